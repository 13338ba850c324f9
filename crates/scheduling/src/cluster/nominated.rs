//! Pods for which room is being made on a node: they count there for pods that are not more important.

use std::collections::HashMap;
use std::sync::Arc;

use api::json::Text;

use super::pod::PodInfo;

/// Pods for which room is being made, by node.
#[derive(Debug, Default)]
pub struct NominatedPods {
    by_node: HashMap<Text, Vec<Arc<PodInfo>>>,
    nodes: HashMap<Text, Text>,
}

impl NominatedPods {
    /// Records the node on which preemption makes room for a pod; an empty name removes the record.
    pub fn set(&mut self, pod: &Arc<PodInfo>, node: &str) {
        self.remove(&pod.uid);
        if node.is_empty() {
            return;
        }
        self.by_node.entry(node.into()).or_default().push(pod.clone());
        self.nodes.insert(pod.uid.clone(), node.into());
    }

    /// The pod needs no room any more.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.nodes.remove(uid) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// Node to which a pod is nominated.
    pub fn node_of(&self, uid: &str) -> Option<&Text> {
        self.nodes.get(uid)
    }

    /// The pods for which room is being made on a node.
    pub fn on(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether there are no nominated pods.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}
