//! Events of the cluster, in the terms of plugins.
//!
//! Follows `ClusterEvent` of Kubernetes' `kube-scheduler/framework`.

use std::fmt;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::resource::v1::{DeviceClass, ResourceClaim};
use api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};

use crate::cluster::{NodeObject, PodInfo};

/// Kind of the changed object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Resource {
    /// A pod on a node.
    AssignedPod,
    /// A pod without a node, other than the waiting one.
    UnscheduledPod,
    /// The waiting pod itself.
    TargetPod,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    CSINode,
    CSIDriver,
    VolumeAttachment,
    CSIStorageCapacity,
    StorageClass,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
}

/// Kinds of changes, as a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Action(u32);

/// An event, or one that a plugin waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    /// The kind of object.
    pub resource: Resource,
    /// Kind of the change.
    pub action: Action,
}

/// The object before and after; nothing where it was added or deleted.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Change<'c> {
    Node {
        old: Option<&'c NodeObject>,
        new: Option<&'c NodeObject>,
    },
    Pod {
        old: Option<&'c PodInfo>,
        new: Option<&'c PodInfo>,
    },
    Volume {
        old: Option<&'c PersistentVolume>,
        new: Option<&'c PersistentVolume>,
    },
    Claim {
        old: Option<&'c PersistentVolumeClaim>,
        new: Option<&'c PersistentVolumeClaim>,
    },
    StorageClass {
        old: Option<&'c StorageClass>,
        new: Option<&'c StorageClass>,
    },
    CsiNode {
        old: Option<&'c CSINode>,
        new: Option<&'c CSINode>,
    },
    CsiDriver {
        old: Option<&'c CSIDriver>,
        new: Option<&'c CSIDriver>,
    },
    CsiStorageCapacity {
        old: Option<&'c CSIStorageCapacity>,
        new: Option<&'c CSIStorageCapacity>,
    },
    VolumeAttachment {
        old: Option<&'c VolumeAttachment>,
        new: Option<&'c VolumeAttachment>,
    },
    DeviceClass {
        old: Option<&'c DeviceClass>,
        new: Option<&'c DeviceClass>,
    },
    ResourceClaim {
        old: Option<&'c ResourceClaim>,
        new: Option<&'c ResourceClaim>,
    },
    /// An object whose contents no plugin reads.
    Other,
}

/// The effect of a change on a pod that a plugin rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// The change may help: try again.
    Queue,
    /// The change cannot help.
    Skip,
}

impl Resource {
    /// The name in labels of events.
    pub fn name(self) -> &'static str {
        match self {
            Resource::AssignedPod => "AssignedPod",
            Resource::UnscheduledPod => "UnscheduledPod",
            Resource::TargetPod => "TargetPod",
            Resource::Node => "Node",
            Resource::PersistentVolume => "PersistentVolume",
            Resource::PersistentVolumeClaim => "PersistentVolumeClaim",
            Resource::CSINode => "storage.k8s.io/CSINode",
            Resource::CSIDriver => "storage.k8s.io/CSIDriver",
            Resource::VolumeAttachment => "storage.k8s.io/VolumeAttachment",
            Resource::CSIStorageCapacity => "storage.k8s.io/CSIStorageCapacity",
            Resource::StorageClass => "storage.k8s.io/StorageClass",
            Resource::ResourceClaim => "resource.k8s.io/ResourceClaim",
            Resource::ResourceSlice => "resource.k8s.io/ResourceSlice",
            Resource::DeviceClass => "resource.k8s.io/DeviceClass",
        }
    }
}

/// The names of the single actions, in the order of their bits.
const NAMES: [&str; 15] = [
    "Add",
    "Delete",
    "UpdateNodeAllocatable",
    "UpdateNodeLabel",
    "UpdateNodeTaint",
    "UpdateNodeCondition",
    "UpdateNodeAnnotation",
    "UpdateNodeDeclaredFeature",
    "UpdatePodLabel",
    "UpdatePodScaleDown",
    "UpdatePodScaleUp",
    "UpdatePodToleration",
    "UpdatePodSchedulingGatesEliminated",
    "UpdatePodGeneratedResourceClaim",
    "Update",
];

#[expect(missing_docs, reason = "the names are Kubernetes'")]
impl Action {
    pub const ADD: Action = Action(1);
    pub const DELETE: Action = Action(1 << 1);
    pub const UPDATE_NODE_ALLOCATABLE: Action = Action(1 << 2);
    pub const UPDATE_NODE_LABEL: Action = Action(1 << 3);
    /// Taints or `spec.unschedulable`.
    pub const UPDATE_NODE_TAINT: Action = Action(1 << 4);
    pub const UPDATE_NODE_CONDITION: Action = Action(1 << 5);
    pub const UPDATE_NODE_ANNOTATION: Action = Action(1 << 6);
    pub const UPDATE_NODE_DECLARED_FEATURE: Action = Action(1 << 7);
    pub const UPDATE_POD_LABEL: Action = Action(1 << 8);
    pub const UPDATE_POD_SCALE_DOWN: Action = Action(1 << 9);
    pub const UPDATE_POD_SCALE_UP: Action = Action(1 << 10);
    pub const UPDATE_POD_TOLERATION: Action = Action(1 << 11);
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: Action = Action(1 << 12);
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: Action = Action(1 << 13);
    /// A change to an object that is neither pod nor node, or one to a pod that is none of the above.
    pub const UPDATE: Action = Action(1 << 14);
    /// Any change to a pod.
    pub const UPDATE_ANY_POD: Action = Action(0x7f00);

    /// Both.
    #[must_use]
    pub const fn or(self, other: Action) -> Action {
        Action(self.0 | other.0)
    }

    /// Whether the two have something in common.
    pub const fn meets(self, other: Action) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// One action at a time, in the order of the bits.
    pub fn singles(self) -> impl Iterator<Item = Action> {
        (0..NAMES.len()).map(|bit| Action(1 << bit)).filter(move |single| self.meets(*single))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.meets(Action(1 << bit)));
        for (index, (_, name)) in names.enumerate() {
            if index > 0 {
                f.write_str("|")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl Event {
    /// An event.
    pub const fn new(resource: Resource, action: Action) -> Self {
        Event { resource, action }
    }

    /// Whether an event matches an awaited one.
    pub fn is_awaited_by(self, awaited: Event) -> bool {
        self.resource == awaited.resource && self.action.meets(awaited.action)
    }
}

impl fmt::Display for Event {
    /// Formats an event as in metrics and logs: `NodeUpdateNodeTaint`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.resource.name(), self.action)
    }
}
