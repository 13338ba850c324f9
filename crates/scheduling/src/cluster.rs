//! The state of the cluster in the core: nodes with their pods, and the other objects that plugins read.
//!
//! A cycle runs without interruption, so it reads this directly; there is no copy like Kubernetes' snapshot.
//! Each node has a generation that changes with everything about it, and all other dependencies of results have
//! a version.

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
pub(crate) use devices::{CarriedEffort, pending_claim};
pub use devices::{Clock, DeviceEffort, Devices};
use matching::{Matcher, Meter};
pub use node::{NodeId, NodeInfo, NodeObject};
pub use nominated::NominatedPods;
pub(crate) use objects::change as object_change;
pub use objects::{Object, ObjectKind, Objects};
pub use pod::{PodInfo, PodKey, changes_of_pod};
pub use shape::{Shape, ShapeId, Shapes};

/// All objects that plugins read.
#[derive(Debug)]
pub struct Cluster {
    /// Nodes and the pods on them.
    pub cache: Cache,
    /// Volumes, claims, services and the like.
    pub objects: Objects,
    /// Pods that wait for room on a node.
    pub nominated: NominatedPods,
    /// Makes matchers.
    pub matcher: Arc<Matcher>,
}

impl Cluster {
    /// The budget for expressions in one attempt.
    pub(crate) fn meter(&self) -> Option<&Meter> {
        self.matcher.meter().map(|meter| &**meter)
    }

    /// An empty cluster.
    pub fn new(matcher: Arc<Matcher>) -> Self {
        Cluster { cache: Cache::default(), objects: Objects::default(), nominated: NominatedPods::default(), matcher }
    }
}
