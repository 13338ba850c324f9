//! A node in the form that matchers use: built when the node changes, evaluated often.

use std::sync::Arc;

use api::core::v1;
use api::json::Text;
use api::meta::v1::StringMap;
pub use cel_kubernetes::environments::node_affinity::Labels;

use crate::taints;

/// A node as matchers see it.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// The name; volumes are matched without one.
    pub name: Text,
    /// The labels, sorted.
    pub labels: Labels,
    /// The taints.
    pub taints: Arc<taints::Set>,
}

impl Node {
    /// A node whose taints are kept among others'.
    pub fn new(node: &v1::Node, sets: &taints::Sets) -> Self {
        Node {
            name: node.metadata.name.clone(),
            labels: labels(&node.metadata.labels),
            taints: sets.intern(&node.spec.taints),
        }
    }
}

/// Labels in the form that matchers read.
pub fn labels(labels: &StringMap) -> Labels {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}
