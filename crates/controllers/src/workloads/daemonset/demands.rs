//! Requirements of sets with expressions, cached between reconciliations with the verdicts found so far.
//!
//! A set whose expressions cost more than one reconciliation may spend continues where it stopped; in between it waits, longer
//! each time.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::apps::v1::DaemonSet;
use api::json::Text;
use client::Document;
use client::informer::Key;
use matching::complaints::Complaint;

use super::placement::Demand;
use crate::machinery::placement::budget_backoff;

/// Requirements of sets with expressions on nodes.
#[derive(Debug, Default)]
pub(super) struct Demands {
    by_key: HashMap<Key, CachedDemand>,
}

#[derive(Debug)]
struct CachedDemand {
    uid: Text,
    generation: i64,
    demand: Arc<Demand>,
    /// Reconciliations in a row that exceeded the budget.
    failures: u32,
    /// The complaints of the last decision, which were reported.
    reported: BTreeSet<(Text, Text)>,
}

impl Demands {
    /// Returns the requirements of the set, from the cache if its template is unchanged. Sets without
    /// expressions are not cached.
    pub(super) fn get(&mut self, set: &Document<DaemonSet>, make: impl FnOnce() -> Demand) -> Arc<Demand> {
        let metadata = set.metadata();
        let key = Key::new(metadata.namespace.clone(), metadata.name.clone());
        let is_same = |known: &&CachedDemand| known.uid == metadata.uid && known.generation == metadata.generation;
        if let Some(known) = self.by_key.get(&key).filter(is_same) {
            return known.demand.clone();
        }
        let demand = Arc::new(make());
        self.by_key.remove(&key);
        if demand.has_expressions() {
            let (uid, generation) = (metadata.uid.clone(), metadata.generation);
            self.by_key.insert(
                key,
                CachedDemand { uid, generation, demand: demand.clone(), failures: 0, reported: BTreeSet::new() },
            );
        }
        demand
    }

    /// Whether deciding about the set evaluates expressions.
    pub(super) fn has_expressions(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    /// Records that all nodes were decided, with these complaints. Returns whether they are new.
    pub(super) fn succeeded(&mut self, key: &Key, complaints: &[Complaint]) -> bool {
        let Some(known) = self.by_key.get_mut(key) else { return false };
        known.failures = 0;
        let keys: BTreeSet<(Text, Text)> = complaints.iter().map(Complaint::key).collect();
        let is_new = !keys.is_subset(&known.reported);
        known.reported = keys;
        is_new
    }

    /// The budget was exceeded; how long to wait.
    pub(super) fn failed(&mut self, key: &Key) -> Duration {
        let failures = self.by_key.get_mut(key).map_or(0, |known| {
            known.failures = known.failures.saturating_add(1);
            known.failures
        });
        budget_backoff(failures)
    }

    /// Removes a deleted set.
    pub(super) fn forget(&mut self, key: &Key) {
        self.by_key.remove(key);
    }
}
