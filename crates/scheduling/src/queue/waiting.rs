//! Waiting pods, grouped by the plugins that rejected them and by shape.
//!
//! Ten thousand pods of one workload are one group: an event is judged once for all of them, and not at all if
//! none of their plugins waits for it. Pods with their own claims are separate groups, because an event that
//! helps one need not help another.

use std::collections::{BTreeMap, BTreeSet};

use api::json::Text;

use super::PluginSet;
use crate::cluster::{PodInfo, ShapeId};

/// The plugins that rejected the pods, and their common shape.
pub(super) type Group = (PluginSet, Kind);

/// The shape of pods; the uid of one that differs from others of its shape.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind(ShapeId, Option<Text>);

impl Kind {
    pub(super) fn of(pod: &PodInfo) -> Self {
        let differs = !pod.spec().resource_claims.is_empty();
        Kind(pod.shape.id, differs.then(|| pod.uid.clone()))
    }
}

/// Pods that wait for something to change.
#[derive(Debug, Default)]
pub(super) struct WaitingPods {
    groups: BTreeMap<PluginSet, BTreeMap<Kind, BTreeSet<Text>>>,
}

impl WaitingPods {
    pub(super) fn insert(&mut self, by: PluginSet, kind: Kind, uid: Text) {
        self.groups.entry(by).or_default().entry(kind).or_default().insert(uid);
    }

    pub(super) fn remove(&mut self, by: PluginSet, kind: &Kind, uid: &str) {
        let Some(kinds) = self.groups.get_mut(&by) else { return };
        if let Some(pods) = kinds.get_mut(kind) {
            pods.remove(uid);
            if pods.is_empty() {
                kinds.remove(kind);
            }
        }
        if kinds.is_empty() {
            self.groups.remove(&by);
        }
    }

    /// The groups that one of the plugins rejected.
    pub(super) fn groups(&self, listeners: PluginSet) -> Vec<Group> {
        let rejected = self.groups.iter().filter(|(by, _)| **by & listeners != 0);
        rejected.flat_map(|(by, kinds)| kinds.keys().map(|kind| (*by, kind.clone()))).collect()
    }

    /// One pod of a group.
    pub(super) fn any_of(&self, (by, kind): &Group) -> Option<&Text> {
        self.groups.get(by)?.get(kind)?.first()
    }

    /// All pods of a group.
    pub(super) fn all_of(&self, (by, kind): &Group) -> Vec<Text> {
        let pods = self.groups.get(by).and_then(|kinds| kinds.get(kind));
        pods.map(|pods| pods.iter().cloned().collect()).unwrap_or_default()
    }
}
