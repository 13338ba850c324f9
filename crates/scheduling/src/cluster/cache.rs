//! Nodes and the pods on them, those included that are being bound.
//!
//! A pod is *assumed* from the moment it is given a node until the API confirms it: it takes resources, and the
//! API's state of it is older than the one here. Pods on unknown nodes wait until the node is added.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use api::json::Text;

use super::change_log::ChangeLog;
use super::node::{NodeId, NodeInfo, NodeObject};
use super::node_order::{self, Order};
use super::pod::PodInfo;
use super::shape::{Shape, ShapeId};

/// Nodes and the pods on them.
#[derive(Debug, Default)]
pub struct Cache {
    /// By ID; `None` for removed nodes.
    slots: Vec<Option<NodeInfo>>,
    free: Vec<NodeId>,
    by_name: HashMap<Text, NodeId>,
    /// Computed on demand: nodes arrive by the thousand.
    order: OnceLock<Order>,
    /// Changes with the order.
    order_version: u64,
    pods: HashMap<Text, PlacedPod>,
    /// Pods on nodes that are not known, by the node's name.
    orphans: HashMap<Text, Vec<Arc<PodInfo>>>,
    /// Nodes of the pods of each shape.
    shapes: HashMap<ShapeId, (Arc<Shape>, BTreeMap<NodeId, ShapeCount>)>,
    /// The size of each image as it was first seen, and on how many nodes it is.
    images: HashMap<Text, (i64, usize)>,
    /// Number of pods that use a claim, by namespace and name.
    claims: HashMap<(Text, Text), usize>,
    changes: ChangeLog,
    /// Changes with every pod that comes or goes and every node that is added, changed or removed.
    pods_version: u64,
    /// Changes with every node whose images change, and with the number of nodes.
    images_version: u64,
}

/// Number of pods of a shape on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShapeCount {
    /// All pods of the shape.
    pub all: u32,
    /// Pods that are being deleted.
    pub deleting: u32,
}

#[derive(Debug, Clone)]
struct PlacedPod {
    pod: Arc<PodInfo>,
    is_assumed: bool,
}

impl Cache {
    /// All nodes, in the order in which they are evaluated.
    pub fn order(&self) -> &[NodeId] {
        &self.ordered().nodes
    }

    fn ordered(&self) -> &Order {
        self.order.get_or_init(|| {
            let nodes = self.slots.iter().flatten();
            let nodes = node_order::interleave(nodes.map(|node| (node.id, &node.object.matching.labels)));
            Order::new(nodes, self.slots.len())
        })
    }

    /// Position of a node in the order.
    pub(crate) fn position(&self, id: NodeId) -> Option<usize> {
        self.ordered().positions.get(id.index()).map(|position| *position as usize)
    }

    /// Changes with the order of nodes.
    pub(crate) fn order_version(&self) -> u64 {
        self.order_version
    }

    /// The generation of the last change of a node.
    pub(crate) fn last_generation(&self) -> u64 {
        self.changes.last()
    }

    /// The nodes that have changed after a generation, perhaps several times; nothing if that is not known any more.
    pub(crate) fn changed_since(&self, generation: u64) -> Option<&[NodeId]> {
        self.changes.since(generation)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.order().iter().filter_map(|id| self.node(*id))
    }

    /// A node by its place.
    pub fn node(&self, id: NodeId) -> Option<&NodeInfo> {
        self.slots.get(id.index())?.as_ref()
    }

    /// A node by its name.
    pub fn node_named(&self, name: &str) -> Option<&NodeInfo> {
        self.node(*self.by_name.get(name)?)
    }

    /// Number of node IDs in use, including those of removed nodes.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// A pod that has a node.
    pub fn pod(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|placed| &placed.pod)
    }

    /// Whether the pod was given a node that the API has not confirmed yet.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|placed| placed.is_assumed)
    }

    /// Number of pods with a node, and number of assumed ones among them.
    pub fn pod_counts(&self) -> (usize, usize) {
        (self.pods.len(), self.pods.values().filter(|placed| placed.is_assumed).count())
    }

    /// Nodes of the pods of each shape.
    pub fn shapes(&self) -> impl Iterator<Item = (&Arc<Shape>, &BTreeMap<NodeId, ShapeCount>)> {
        self.shapes.values().map(|(shape, nodes)| (shape, nodes))
    }

    /// The size of an image, and on how many nodes it is.
    pub fn image(&self, name: &str) -> Option<(i64, usize)> {
        self.images.get(name).copied()
    }

    /// Whether a pod on a node uses a claim.
    pub fn is_claim_used(&self, namespace: &Text, claim: &Text) -> bool {
        self.claims.contains_key(&(namespace.clone(), claim.clone()))
    }

    /// Changes with every pod and node.
    pub fn pods_version(&self) -> u64 {
        self.pods_version
    }

    /// Changes with images and with the number of nodes.
    pub fn images_version(&self) -> u64 {
        self.images_version
    }

    /// Adds or changes a node; returns its previous state.
    pub fn set_node(&mut self, object: NodeObject) -> Option<Arc<NodeObject>> {
        let object = Arc::new(object);
        let name = object.name().clone();
        let known = self.by_name.get(&name).copied();
        if let Some(id) = known
            && let Some(Some(node)) = self.slots.get_mut(id.index())
        {
            let old = std::mem::replace(&mut node.object, object.clone());
            self.touch(id);
            if old.images != object.images {
                self.images_version = self.images_version.wrapping_add(1);
                self.forget_images(&old);
                self.add_images(&object);
            }
            if node_order::zone(&old.matching.labels) != node_order::zone(&object.matching.labels) {
                self.reorder();
            }
            return Some(old);
        }
        let id = self.free.pop().unwrap_or(NodeId(u32::try_from(self.slots.len()).unwrap_or(u32::MAX)));
        self.add_images(&object);
        let mut node = NodeInfo::new(id, object);
        for pod in self.orphans.remove(&name).unwrap_or_default() {
            self.count(&pod, id, true);
            node.add_pod(pod);
        }
        match self.slots.get_mut(id.index()) {
            Some(slot) => *slot = Some(node),
            None => self.slots.push(Some(node)),
        }
        self.by_name.insert(name, id);
        self.images_version = self.images_version.wrapping_add(1);
        self.touch(id);
        self.reorder();
        None
    }

    /// Removes a node. Its pods are known until they are deleted.
    pub fn remove_node(&mut self, name: &str) -> Option<Arc<NodeObject>> {
        let id = self.by_name.remove(name)?;
        let node = self.slots.get_mut(id.index())?.take()?;
        self.free.push(id);
        self.forget_images(&node.object);
        for pod in &node.pods {
            self.count(pod, id, false);
        }
        if !node.pods.is_empty() {
            self.orphans.insert(name.into(), node.pods);
        }
        self.images_version = self.images_version.wrapping_add(1);
        self.pods_version = self.pods_version.wrapping_add(1);
        self.reorder();
        Some(node.object)
    }

    /// Assigns a pod to its node before the API confirms it.
    pub fn assume(&mut self, pod: Arc<PodInfo>) {
        self.place(pod, true);
    }

    /// Adds or changes a pod with a node; returns its previous state.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) -> Option<Arc<PodInfo>> {
        self.place(pod, false)
    }

    fn place(&mut self, pod: Arc<PodInfo>, is_assumed: bool) -> Option<Arc<PodInfo>> {
        let old = self.remove_pod(&pod.uid);
        match self.by_name.get(&pod.node_name).copied() {
            Some(id) => {
                if let Some(Some(node)) = self.slots.get_mut(id.index()) {
                    node.add_pod(pod.clone());
                }
                self.count(&pod, id, true);
                self.touch(id);
            }
            None => self.orphans.entry(pod.node_name.clone()).or_default().push(pod.clone()),
        }
        self.pods.insert(pod.uid.clone(), PlacedPod { pod, is_assumed });
        old
    }

    /// Takes a pod from its node.
    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let placed = self.pods.remove(uid)?;
        let name = &placed.pod.node_name;
        match self.by_name.get(name).copied() {
            Some(id) => {
                if let Some(Some(node)) = self.slots.get_mut(id.index()) {
                    node.remove_pod(uid);
                }
                self.count(&placed.pod, id, false);
                self.touch(id);
            }
            None => {
                if let Some(waiting) = self.orphans.get_mut(name) {
                    waiting.retain(|pod| pod.uid != uid);
                    if waiting.is_empty() {
                        self.orphans.remove(name);
                    }
                }
            }
        }
        Some(placed.pod)
    }

    /// Keeps the counts by shape and claim.
    fn count(&mut self, pod: &PodInfo, id: NodeId, comes: bool) {
        let (_, nodes) = self.shapes.entry(pod.shape.id).or_insert_with(|| (pod.shape.clone(), BTreeMap::new()));
        let here = nodes.entry(id).or_default();
        let step = |number: u32| if comes { number.saturating_add(1) } else { number.saturating_sub(1) };
        here.all = step(here.all);
        if pod.is_deleting {
            here.deleting = step(here.deleting);
        }
        if here.all == 0 {
            nodes.remove(&id);
            if nodes.is_empty() {
                self.shapes.remove(&pod.shape.id);
            }
        }
        let volumes = pod.shape.spec().volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        for volume in volumes {
            let name = (pod.shape.namespace().clone(), volume.claim_name.clone());
            let users = self.claims.entry(name.clone()).or_default();
            *users = if comes { users.saturating_add(1) } else { users.saturating_sub(1) };
            if *users == 0 {
                self.claims.remove(&name);
            }
        }
    }

    fn add_images(&mut self, object: &NodeObject) {
        for (name, size) in &object.images {
            let (_, nodes) = self.images.entry(name.clone()).or_insert((*size, 0));
            *nodes = nodes.saturating_add(1);
        }
    }

    fn forget_images(&mut self, object: &NodeObject) {
        for (name, _) in &object.images {
            if let Some((_, nodes)) = self.images.get_mut(name) {
                *nodes = nodes.saturating_sub(1);
                if *nodes == 0 {
                    self.images.remove(name);
                }
            }
        }
    }

    fn touch(&mut self, id: NodeId) {
        let generation = self.changes.note(id, self.slots.len());
        self.pods_version = self.pods_version.wrapping_add(1);
        if let Some(Some(node)) = self.slots.get_mut(id.index()) {
            node.generation = generation;
        }
    }

    fn reorder(&mut self) {
        self.order = OnceLock::new();
        self.order_version = self.order_version.wrapping_add(1);
    }
}
