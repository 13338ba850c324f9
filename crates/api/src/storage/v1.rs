//! `storage.k8s.io/v1`: storage classes, and the attachment of volumes to nodes.

use crate::core::v1::{PersistentVolumeSpec, TopologySelectorTerm};
use crate::json::Text;
use crate::meta::v1::{LabelSelector, StringMap};
use crate::quantity::Quantity;
use crate::view::{object, view};

object! {
    /// A kind of storage and its provisioner.
    pub struct StorageClass("storage.k8s.io", "v1") {
        pub provisioner: Text,
        pub parameters: StringMap,
        pub reclaim_policy: Option<Text>,
        pub mount_options: Vec<Text>,
        pub allow_volume_expansion: Option<bool>,
        pub volume_binding_mode: Option<Text>,
        pub allowed_topologies: Vec<TopologySelectorTerm>,
    }

    /// Attributes that can be applied to volumes.
    pub struct VolumeAttributesClass("storage.k8s.io", "v1") {
        pub driver_name: Text,
        pub parameters: StringMap,
    }

    /// The storage drivers of a node.
    pub struct CSINode("storage.k8s.io", "v1") {
        pub spec: CsiNodeSpec,
    }

    /// A storage driver of the cluster.
    pub struct CSIDriver("storage.k8s.io", "v1") {
        pub spec: CsiDriverSpec,
    }

    /// A volume that is attached to a node, or will be.
    pub struct VolumeAttachment("storage.k8s.io", "v1") {
        pub spec: VolumeAttachmentSpec,
    }

    /// Available storage of a class in a part of the cluster.
    pub struct CSIStorageCapacity("storage.k8s.io", "v1") {
        pub node_topology: Option<LabelSelector>,
        pub storage_class_name: Text,
        pub capacity: Option<Quantity>,
        pub maximum_volume_size: Option<Quantity>,
    }
}

view! {
    /// Capabilities of a driver.
    pub struct CsiDriverSpec {
        pub attach_required: Option<bool>,
        pub storage_capacity: Option<bool>,
        pub prevent_pod_scheduling_if_missing: Option<bool>,
    }

    /// Attached volume, and its node.
    pub struct VolumeAttachmentSpec {
        pub attacher: Text,
        pub source: VolumeAttachmentSource,
        pub node_name: Text,
    }

    /// The volume that is attached.
    pub struct VolumeAttachmentSource {
        pub persistent_volume_name: Option<Text>,
        pub inline_volume_spec: Option<PersistentVolumeSpec>,
    }

    /// The storage drivers of a node.
    pub struct CsiNodeSpec {
        pub drivers: Vec<CsiNodeDriver>,
    }

    /// A driver, and how many volumes it can attach.
    pub struct CsiNodeDriver {
        pub name: Text,
        #[serde(rename = "nodeID")]
        pub node_id: Text,
        pub topology_keys: Vec<Text>,
        pub allocatable: Option<VolumeNodeResources>,
    }

    /// A limit.
    pub struct VolumeNodeResources {
        pub count: Option<i32>,
    }
}
