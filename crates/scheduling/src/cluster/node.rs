//! A node with its pods, and their resource use.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::core::v1::Node;
use api::json::Text;
use api::meta::v1::StringMap;
use matching::Matcher;
use matching::host_ports::HostPorts;
use matching::resources::Resources;

use super::pod::PodInfo;
use crate::framework::Action;

/// The place of a node in the cache, the same as long as the node exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The parts of a node object that plugins read.
#[derive(Debug, Clone, Default)]
pub struct NodeObject {
    /// Name, labels and taints.
    pub matching: matching::Node,
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    /// Resources available to pods.
    pub allocatable: Resources,
    /// The images that it has, by every name, and their sizes. INVARIANT: sorted by name.
    pub images: Vec<(Text, i64)>,
    /// Features declared by the node's agent.
    pub declared_features: Vec<Text>,
    annotations: StringMap,
    conditions: BTreeMap<Text, Text>,
}

/// A node with its pods.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// ID of the node.
    pub id: NodeId,
    /// Changes with everything here; no two states of any nodes have the same.
    pub generation: u64,
    /// The node object.
    pub object: Arc<NodeObject>,
    /// The pods on it, those included that are being bound.
    pub pods: Vec<Arc<PodInfo>>,
    /// Total requests of the pods.
    pub requested: Resources,
    /// CPU for scores.
    pub nonzero_milli_cpu: i64,
    /// Memory for scores.
    pub nonzero_memory: i64,
    /// The ports of the host that they take.
    pub ports: HostPorts,
}

impl NodeObject {
    /// Extracts the parts of a node object.
    pub fn new(node: &Node, matcher: &Matcher) -> Self {
        let images = node.status.images.iter();
        let images = images.flat_map(|image| image.names.iter().map(|name| (name.clone(), image.size_bytes)));
        let mut images: Vec<(Text, i64)> = images.collect();
        images.sort();
        images.dedup_by(|right, left| right.0 == left.0);
        NodeObject {
            matching: matcher.node(node),
            unschedulable: node.spec.unschedulable,
            allocatable: Resources::of(&node.status.allocatable),
            images,
            declared_features: node.status.declared_features.clone(),
            annotations: node.metadata.annotations.clone(),
            conditions: node
                .status
                .conditions
                .iter()
                .map(|condition| (condition.condition_type.clone(), condition.status.clone()))
                .collect(),
        }
    }

    /// Name of the node.
    pub fn name(&self) -> &Text {
        &self.matching.name
    }

    /// Whether the node has an image.
    pub fn has_image(&self, name: &str) -> bool {
        self.images.binary_search_by(|(known, _)| known.as_str().cmp(name)).is_ok()
    }

    /// Classifies an update for waiting pods. Cordoning a node helps no pod.
    pub fn changes(&self, new: &NodeObject) -> Action {
        let mut action = Action::default();
        if self.allocatable != new.allocatable {
            action = action.or(Action::UPDATE_NODE_ALLOCATABLE);
        }
        if self.matching.labels != new.matching.labels {
            action = action.or(Action::UPDATE_NODE_LABEL);
        }
        let is_uncordoned = self.unschedulable && !new.unschedulable;
        if self.matching.taints.taints() != new.matching.taints.taints() || is_uncordoned {
            action = action.or(Action::UPDATE_NODE_TAINT);
        }
        if self.conditions != new.conditions {
            action = action.or(Action::UPDATE_NODE_CONDITION);
        }
        if self.annotations != new.annotations {
            action = action.or(Action::UPDATE_NODE_ANNOTATION);
        }
        if self.declared_features != new.declared_features {
            action = action.or(Action::UPDATE_NODE_DECLARED_FEATURE);
        }
        action
    }
}

impl NodeInfo {
    /// A node without pods.
    pub fn new(id: NodeId, object: Arc<NodeObject>) -> Self {
        NodeInfo {
            id,
            generation: 0,
            object,
            pods: Vec::new(),
            requested: Resources::default(),
            nonzero_milli_cpu: 0,
            nonzero_memory: 0,
            ports: HostPorts::default(),
        }
    }

    /// Name of the node.
    pub fn name(&self) -> &Text {
        self.object.name()
    }

    /// Adds a pod to the node.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        let demand = pod.demand();
        self.requested.add(&demand.requests);
        self.nonzero_milli_cpu = self.nonzero_milli_cpu.saturating_add(demand.nonzero_milli_cpu);
        self.nonzero_memory = self.nonzero_memory.saturating_add(demand.nonzero_memory);
        for port in &pod.ports {
            self.ports.insert(port.clone());
        }
        self.pods.push(pod);
    }

    /// Takes a pod from the node.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let index = self.pods.iter().position(|pod| pod.uid == uid)?;
        let pod = self.pods.swap_remove(index);
        let demand = pod.demand();
        self.requested.subtract(&demand.requests);
        self.nonzero_milli_cpu = self.nonzero_milli_cpu.saturating_sub(demand.nonzero_milli_cpu);
        self.nonzero_memory = self.nonzero_memory.saturating_sub(demand.nonzero_memory);
        for port in &pod.ports {
            self.ports.remove(port);
        }
        // Another pod may have the same port: bound by hand, or terminating.
        for port in self.pods.iter().flat_map(|pod| &pod.ports).filter(|port| pod.ports.contains(port)) {
            self.ports.insert(port.clone());
        }
        Some(pod)
    }
}
