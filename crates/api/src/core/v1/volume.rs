//! Volumes of pods, persistent volumes and the claims to them.

use super::{NodeSelector, ObjectReference, ResourceList, TypedLocalObjectReference, TypedObjectReference};
use crate::json::{Text, Value};
use crate::meta::v1::{LabelSelector, ObjectMeta};
use crate::time::Timestamp;
use crate::view::{object, sharing_view, view};

object! {
    /// A piece of storage.
    pub struct PersistentVolume("", "v1") {
        pub spec: PersistentVolumeSpec,
        pub status: PersistentVolumeStatus,
    }

    /// A request for storage.
    pub struct PersistentVolumeClaim("", "v1") {
        pub spec: PersistentVolumeClaimSpec,
        pub status: PersistentVolumeClaimStatus,
    }
}

sharing_view! {
    /// A volume of a pod; sources that only the node agent needs are not decoded.
    pub struct Volume shares VolumePart {
        pub name: Text,
        shared gce_persistent_disk: Option<Value>,
        shared aws_elastic_block_store: Option<Value>,
        shared iscsi: Option<Value>,
        shared persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
        shared rbd: Option<Value>,
        shared azure_disk: Option<Value>,
        shared azure_file: Option<Value>,
        shared cinder: Option<Value>,
        shared portworx_volume: Option<Value>,
        shared vsphere_volume: Option<Value>,
        shared csi: Option<Value>,
        shared ephemeral: Option<EphemeralVolumeSource>,
        shared image: Option<ImageVolumeSource>,
    }
}

view! {
    /// The contents of an image.
    pub struct ImageVolumeSource {
        pub reference: Text,
        pub pull_policy: Text,
    }

    /// A claim of the pod's namespace.
    pub struct PersistentVolumeClaimVolumeSource {
        pub claim_name: Text,
        pub read_only: bool,
    }

    /// A claim that lives as long as the pod.
    pub struct EphemeralVolumeSource {
        pub volume_claim_template: Option<PersistentVolumeClaimTemplate>,
    }

    /// A claim to be.
    pub struct PersistentVolumeClaimTemplate {
        pub metadata: ObjectMeta,
        pub spec: PersistentVolumeClaimSpec,
    }

    /// Definition of a volume.
    pub struct PersistentVolumeSpec {
        pub capacity: ResourceList,
        pub gce_persistent_disk: Option<Value>,
        pub aws_elastic_block_store: Option<Value>,
        pub azure_disk: Option<Value>,
        pub cinder: Option<Value>,
        pub portworx_volume: Option<Value>,
        pub csi: Option<Value>,
        pub access_modes: Vec<Text>,
        pub claim_ref: Option<ObjectReference>,
        pub persistent_volume_reclaim_policy: Text,
        pub storage_class_name: Text,
        pub mount_options: Vec<Text>,
        pub volume_mode: Option<Text>,
        pub node_affinity: Option<VolumeNodeAffinity>,
        pub volume_attributes_class_name: Option<Text>,
    }

    /// Nodes from which a volume is accessible.
    pub struct VolumeNodeAffinity {
        pub required: Option<NodeSelector>,
    }

    /// Observed state of a volume.
    pub struct PersistentVolumeStatus {
        pub phase: Text,
        pub message: Text,
        pub reason: Text,
    }

    /// Requested storage.
    pub struct PersistentVolumeClaimSpec {
        pub access_modes: Vec<Text>,
        pub selector: Option<LabelSelector>,
        pub resources: VolumeResourceRequirements,
        pub volume_name: Text,
        pub storage_class_name: Option<Text>,
        pub volume_mode: Option<Text>,
        pub data_source: Option<TypedLocalObjectReference>,
        pub data_source_ref: Option<TypedObjectReference>,
        pub volume_attributes_class_name: Option<Text>,
    }

    /// Requested amount of storage.
    pub struct VolumeResourceRequirements {
        pub limits: ResourceList,
        pub requests: ResourceList,
    }

    /// Observed state of a claim.
    pub struct PersistentVolumeClaimStatus {
        pub phase: Text,
        pub access_modes: Vec<Text>,
        pub capacity: ResourceList,
        pub conditions: Vec<PersistentVolumeClaimCondition>,
        pub current_volume_attributes_class_name: Option<Text>,
        pub modify_volume_status: Option<ModifyVolumeStatus>,
    }

    /// Target of a change of volume attributes.
    pub struct ModifyVolumeStatus {
        pub target_volume_attributes_class_name: Text,
        pub status: Text,
    }

    /// One aspect of a claim's state.
    pub struct PersistentVolumeClaimCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
        pub last_probe_time: Option<Timestamp>,
        pub last_transition_time: Option<Timestamp>,
        pub reason: Text,
        pub message: Text,
    }

    /// Label requirements of a topology that must all hold.
    pub struct TopologySelectorTerm {
        pub match_label_expressions: Vec<TopologySelectorLabelRequirement>,
    }

    /// A condition on one label.
    pub struct TopologySelectorLabelRequirement {
        pub key: Text,
        pub values: Vec<Text>,
    }
}
