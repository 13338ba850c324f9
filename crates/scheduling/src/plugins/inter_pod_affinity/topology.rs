//! Counts by topology key and value.

use std::collections::{BTreeMap, HashMap};

use api::json::Text;

use crate::cluster::NodeInfo;

/// Counts by topology key and value. Entries are removed when they reach zero.
#[derive(Debug, Clone, Default)]
pub(super) struct Topology {
    keys: BTreeMap<Text, HashMap<Text, i64>>,
}

impl Topology {
    /// Adds to the count of a node's domain; returns whether the node has one.
    pub(super) fn add(&mut self, node: &NodeInfo, key: &str, by: i64) -> bool {
        let Some(value) = node.object.matching.labels.get(key) else { return false };
        if !self.keys.contains_key(key) {
            self.keys.insert(key.into(), HashMap::new());
        }
        let Some(values) = self.keys.get_mut(key) else { return false };
        match values.get_mut(value) {
            Some(count) => {
                *count = count.saturating_add(by);
                if *count == 0 {
                    values.remove(value);
                }
            }
            None if by != 0 => {
                values.insert(value.into(), by);
            }
            None => {}
        }
        true
    }

    pub(super) fn at(&self, key: &str, value: &str) -> i64 {
        self.keys.get(key).and_then(|values| values.get(value)).copied().unwrap_or(0)
    }

    /// Whether something was counted where the node is.
    pub(super) fn any_on(&self, node: &NodeInfo) -> bool {
        self.on(node).any(|count| count > 0)
    }

    /// Returns the counts of the node's domains.
    pub(super) fn on(&self, node: &NodeInfo) -> impl Iterator<Item = i64> {
        let labels = &node.object.matching.labels;
        self.keys.iter().filter_map(|(key, values)| values.get(labels.get(key)?).copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.values().all(HashMap::is_empty)
    }
}
