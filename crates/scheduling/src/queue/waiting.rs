//! Pods that wait for something to change, grouped by who rejected them and by shape.
//!
//! Ten thousand pods of one workload are one group: a change is looked at once for all of them, and not at all if none of
//! their plugins waits for it.

use std::collections::{BTreeMap, BTreeSet};

use api::json::Text;

use super::PluginSet;
use crate::cluster::ShapeId;

/// Who rejected the pods, and their shape.
pub(super) type Group = (PluginSet, ShapeId);

/// Pods that wait for something to change.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    groups: BTreeMap<PluginSet, BTreeMap<ShapeId, BTreeSet<Text>>>,
}

impl Waiting {
    pub(super) fn insert(&mut self, by: PluginSet, shape: ShapeId, uid: Text) {
        self.groups.entry(by).or_default().entry(shape).or_default().insert(uid);
    }

    pub(super) fn remove(&mut self, by: PluginSet, shape: ShapeId, uid: &str) {
        let Some(shapes) = self.groups.get_mut(&by) else { return };
        if let Some(pods) = shapes.get_mut(&shape) {
            pods.remove(uid);
            if pods.is_empty() {
                shapes.remove(&shape);
            }
        }
        if shapes.is_empty() {
            self.groups.remove(&by);
        }
    }

    /// The groups that one of the plugins rejected.
    pub(super) fn groups(&self, listeners: PluginSet) -> Vec<Group> {
        let rejected = self.groups.iter().filter(|(by, _)| **by & listeners != 0);
        rejected.flat_map(|(by, shapes)| shapes.keys().map(|shape| (*by, *shape))).collect()
    }

    /// One pod of a group.
    pub(super) fn any_of(&self, (by, shape): Group) -> Option<&Text> {
        self.groups.get(&by)?.get(&shape)?.first()
    }

    /// All pods of a group.
    pub(super) fn all_of(&self, (by, shape): Group) -> Vec<Text> {
        let pods = self.groups.get(&by).and_then(|shapes| shapes.get(&shape));
        pods.map(|pods| pods.iter().cloned().collect()).unwrap_or_default()
    }
}
