//! The cluster as the core knows it: nodes with their pods, and the other objects that plugins look at.
//!
//! A cycle runs without interruption, so it reads this directly; what Kubernetes calls a snapshot is not copied. Each node
//! has a generation that changes with everything about it, and everything else that answers depend on has a version.

mod cache;
mod change_log;
mod devices;
mod node;
mod node_order;
mod nominated;
mod objects;
mod pod;
mod shape;

use std::sync::Arc;

pub use cache::{Cache, ShapeCount};
pub(crate) use devices::Carried;
pub use devices::{Clock, Devices, Spent};
use matching::Matcher;
pub use node::{NodeId, NodeInfo, NodeObject};
pub use nominated::Nominated;
pub use objects::{Object, ObjectKind, Objects};
pub(crate) use objects::{SELECTED_NODE, change as object_change};
pub use pod::{PodInfo, PodKey, changes_of_pod};
pub use shape::{Shape, ShapeId, Shapes};

/// Everything that plugins look at.
#[derive(Debug)]
pub struct Cluster {
    /// Nodes and the pods on them.
    pub cache: Cache,
    /// Volumes, claims, services and the like.
    pub objects: Objects,
    /// Pods that wait for room on a node.
    pub nominated: Nominated,
    /// Makes matchers.
    pub matcher: Arc<Matcher>,
}

impl Cluster {
    /// An empty cluster.
    pub fn new(matcher: Arc<Matcher>) -> Self {
        Cluster { cache: Cache::default(), objects: Objects::default(), nominated: Nominated::default(), matcher }
    }
}
