//! State of all devices in a scheduler: slices and allocations, including decisions that are not written yet.
//!
//! A decision counts from the moment it is made ([`Inventory::assume`]) until the API shows it or it is
//! reverted. The usable pools of a node are computed once and cached until a slice or the node changes.

use locks::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

use api::json::Text;
use api::resource::v1::{AllocationResult, DeviceTaintRule, ResourceSlice};
use matching::Matcher;
use matching::node::Labels;

use crate::allocated::AllocatedState;
use crate::answers::{Answer, Answers, Numbers, SearchKey};
use crate::catalog::Catalog;
use crate::claims::Claims;
use crate::deferred::SearchOutcome;
use crate::error::Error;
use crate::features::Features;
use crate::pools::{NodePools, Target};
use crate::shape;

/// State of all devices in a scheduler.
#[derive(Debug)]
pub struct Inventory {
    catalog: Catalog,
    allocated: AllocatedState,
    /// By the claim's uid.
    claims: HashMap<Text, Allocation>,
    features: Features,
    gathered: Mutex<PoolCache>,
    answers: Mutex<Answers>,
}

/// State of a claim.
#[derive(Debug, Default)]
struct Allocation {
    /// Allocation in the API.
    seen: Option<Arc<AllocationResult>>,
    /// Allocation that was decided but not observed yet.
    assumed: Option<Arc<AllocationResult>>,
}

#[derive(Debug, Default)]
struct PoolCache {
    nodes: HashMap<Text, CachedPools>,
    usable: Numbers,
    taken: Numbers,
}

/// Usable pools of a node, and the versions on which they are based.
#[derive(Debug)]
struct CachedPools {
    version: (u64, u64),
    labels: Labels,
    /// Versions of the allocations, by pool.
    taken_versions: Vec<u64>,
    shaped: ShapedPools,
}

/// Usable pools of a node, with numbers that equivalent nodes share.
#[derive(Debug, Clone)]
pub(crate) struct ShapedPools {
    pub(crate) pools: Arc<NodePools>,
    /// Number of the usable devices.
    pub(crate) number: u64,
    /// Number of their allocation.
    pub(crate) taken: u64,
}

impl Inventory {
    /// An empty inventory.
    #[must_use]
    pub fn new(matcher: Arc<Matcher>, features: Features) -> Self {
        Inventory {
            catalog: Catalog::new(matcher),
            allocated: AllocatedState::new(),
            claims: HashMap::new(),
            features,
            gathered: Mutex::default(),
            answers: Mutex::default(),
        }
    }

    /// Enabled features.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// A slice that is new or has changed.
    pub fn set_slice(&mut self, slice: &ResourceSlice) {
        self.catalog.set(slice);
    }

    /// Removes a slice.
    pub fn remove_slice(&mut self, name: &str) {
        self.catalog.remove(name);
    }

    /// Adds or changes a taint rule; `None` removes it.
    pub fn set_taint_rule(&mut self, name: &str, rule: Option<&DeviceTaintRule>) {
        self.catalog.set_taint_rule(name, rule);
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) {
        self.gathered.lock().nodes.remove(name);
    }

    /// Records the state of a claim in the API.
    pub fn see_claim(&mut self, uid: &Text, allocation: Option<&AllocationResult>) {
        let claim = self.claims.entry(uid.clone()).or_default();
        let before = claim.effective().cloned();
        claim.seen = allocation.cloned().map(Arc::new);
        // The decision was observed, or another writer was faster and our write will fail.
        if claim.seen.is_some() {
            claim.assumed = None;
        }
        self.change(uid, before);
    }

    /// Removes a claim.
    pub fn remove_claim(&mut self, uid: &Text) {
        if let Some(claim) = self.claims.remove(uid)
            && let Some(allocation) = claim.effective()
        {
            self.allocated.remove(allocation);
        }
    }

    /// A decision that is about to be written.
    pub fn assume(&mut self, uid: &Text, allocation: AllocationResult) {
        let claim = self.claims.entry(uid.clone()).or_default();
        let before = claim.effective().cloned();
        claim.assumed = Some(Arc::new(allocation));
        self.change(uid, before);
    }

    /// A decision that was not written after all.
    pub fn take_back(&mut self, uid: &Text) {
        let Some(claim) = self.claims.get_mut(uid) else { return };
        let before = claim.effective().cloned();
        claim.assumed = None;
        self.change(uid, before);
    }

    /// Whether a decision about the claim is not observed yet.
    #[must_use]
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.claims.get(uid).is_some_and(|claim| claim.assumed.is_some())
    }

    /// Allocated devices.
    #[must_use]
    pub fn allocated(&self) -> &AllocatedState {
        &self.allocated
    }

    fn change(&mut self, uid: &Text, before: Option<Arc<AllocationResult>>) {
        let after = self.claims.get(uid).and_then(Allocation::effective).cloned();
        if let Some(before) = before {
            self.allocated.remove(&before);
        }
        match after {
            Some(after) => self.allocated.add(&after),
            None => {
                self.claims.remove(uid);
            }
        }
    }

    /// Returns the usable pools of a node.
    pub(crate) fn shaped(&self, target: Target<'_>) -> Result<ShapedPools, Error> {
        let version = self.catalog.version_for(&target.node.name);
        let mut gathered = self.gathered.lock();
        let PoolCache { nodes, usable, taken } = &mut *gathered;
        if let Some(kept) = nodes.get_mut(&target.node.name)
            && kept.version == version
            && kept.shaped.pools.optional_node_operations == target.optional_node_operations
            && (self.catalog.is_all_local() || kept.labels == target.node.labels)
        {
            if !self.taken_versions(&kept.shaped.pools).eq(kept.taken_versions.iter().copied()) {
                kept.shaped.taken = taken.of(shape::taken(&kept.shaped.pools, &self.allocated));
                kept.taken_versions = self.taken_versions(&kept.shaped.pools).collect();
            }
            return Ok(kept.shaped.clone());
        }
        let pools = Arc::new(self.catalog.pools(target, &self.features)?);
        let number = usable.of(shape::usable(&pools));
        let taken = taken.of(shape::taken(&pools, &self.allocated));
        let taken_versions = self.taken_versions(&pools).collect();
        let shaped = ShapedPools { pools, number, taken };
        let labels = target.node.labels.clone();
        nodes.insert(target.node.name.clone(), CachedPools { version, labels, taken_versions, shaped: shaped.clone() });
        Ok(shaped)
    }

    fn taken_versions<'p>(&'p self, pools: &'p NodePools) -> impl Iterator<Item = u64> + 'p {
        pools.pools.iter().map(|(_, pool)| self.allocated.version(&pool.driver, &pool.name))
    }

    /// Number of a question.
    pub(crate) fn question(&self, claims: &Claims) -> u64 {
        self.answers.lock().question(claims)
    }

    /// Number of a new question.
    pub(crate) fn new_question(&self) -> u64 {
        self.answers.lock().new_question()
    }

    /// Returns the cached result of a search.
    pub(crate) fn answer(&self, key: &SearchKey) -> Option<Answer> {
        self.answers.lock().get(key).cloned()
    }

    pub(crate) fn remember(&self, key: SearchKey, answer: Answer) {
        self.answers.lock().remember(key, answer);
    }

    /// Records the result of a deferred search.
    pub fn learn(&mut self, searched: &SearchOutcome) {
        if let Ok(answer) = &searched.answer {
            self.remember(searched.key, answer.clone());
        }
    }
}

impl Allocation {
    fn effective(&self) -> Option<&Arc<AllocationResult>> {
        self.assumed.as_ref().or(self.seen.as_ref())
    }
}
