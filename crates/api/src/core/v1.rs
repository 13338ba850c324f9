//! `v1`: pods, nodes, volumes, namespaces, events.

mod affinity;
mod config;
mod container;
mod event;
mod namespace;
mod node;
mod pod;
mod reference;
mod replication_controller;
mod resources;
mod service;
mod toleration;
mod volume;

pub use affinity::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorOperator, NodeSelectorRequirement, NodeSelectorTerm, PodAffinity,
    PodAffinityTerm, PreferredSchedulingTerm, WeightedPodAffinityTerm,
};
pub use config::{
    ConfigMap, Endpoints, ResourceQuota, ResourceQuotaSpec, ResourceQuotaStatus, ScopeSelector,
    ScopedResourceSelectorRequirement, Secret, ServiceAccount,
};
pub use container::{
    Container, ContainerPort, ContainerRestartRule, ContainerStatus, ContainerStatusPart, EphemeralContainer,
    VolumeMount,
};
pub use event::{Event, EventSeries, EventSource};
pub use namespace::{Namespace, NamespaceCondition, NamespaceSpec, NamespaceStatus};
pub use node::{
    ContainerImage, Node, NodeAddress, NodeCondition, NodeConditionPart, NodeFeatures, NodeSpec, NodeStatus,
    NodeStatusPart, NodeSystemInfo, NodeSystemInfoPart, Taint, TaintEffect,
};
pub use pod::{
    Binding, ContainerExtendedResourceRequest, HostIp, Pod, PodCondition, PodConditionPart,
    PodExtendedResourceClaimStatus, PodIp, PodOs, PodReadinessGate, PodResourceClaim, PodResourceClaimStatus,
    PodSchedulingGate, PodSecurityContext, PodSpec, PodSpecPart, PodStatus, PodStatusPart, PodTemplateSpec,
    TopologySpreadConstraint,
};
pub use reference::{LocalObjectReference, ObjectReference, TypedLocalObjectReference, TypedObjectReference};
pub use replication_controller::{ReplicationController, ReplicationControllerSpec, ReplicationControllerStatus};
pub use resources::{ResourceClaim, ResourceList, ResourceRequirements};
pub use service::{Service, ServicePort, ServiceSpec};
pub use toleration::{Toleration, TolerationOperator};
pub use volume::{
    EphemeralVolumeSource, ImageVolumeSource, ModifyVolumeStatus, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeClaimCondition, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus,
    PersistentVolumeClaimTemplate, PersistentVolumeClaimVolumeSource, PersistentVolumeSpec, PersistentVolumeStatus,
    TopologySelectorLabelRequirement, TopologySelectorTerm, Volume, VolumeNodeAffinity, VolumePart,
    VolumeResourceRequirements,
};
