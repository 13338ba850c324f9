//! Pods and pod templates.

use super::{
    Affinity, Container, ContainerStatus, EphemeralContainer, ObjectReference, ResourceList, ResourceRequirements,
    Toleration, Volume,
};
use crate::json::Text;
use crate::meta::v1::{LabelSelector, ObjectMeta, StringMap};
use crate::time::Timestamp;
use crate::view::{object, sharing_view, view};

object! {
    /// Containers that run together on one node.
    pub struct Pod("", "v1") {
        pub spec: PodSpec,
        pub status: PodStatus,
    }

    /// Assigns a pod to a node.
    pub struct Binding("", "v1") {
        pub target: ObjectReference,
    }
}

sharing_view! {
    /// Desired state of a pod.
    pub struct PodSpec shares PodSpecPart {
        pub volumes: Vec<Volume>,
        shared init_containers: Vec<Container>,
        shared containers: Vec<Container>,
        shared ephemeral_containers: Vec<EphemeralContainer>,
        shared restart_policy: Text,
        shared termination_grace_period_seconds: Option<i64>,
        shared active_deadline_seconds: Option<i64>,
        shared node_selector: StringMap,
        shared service_account_name: Text,
        pub node_name: Text,
        shared host_network: bool,
        shared security_context: Option<PodSecurityContext>,
        pub hostname: Text,
        shared subdomain: Text,
        shared affinity: Option<Affinity>,
        shared scheduler_name: Text,
        shared tolerations: Vec<Toleration>,
        shared priority_class_name: Text,
        shared priority: Option<i32>,
        shared readiness_gates: Vec<PodReadinessGate>,
        shared runtime_class_name: Option<Text>,
        shared preemption_policy: Option<Text>,
        shared overhead: ResourceList,
        shared topology_spread_constraints: Vec<TopologySpreadConstraint>,
        shared os: Option<PodOs>,
        shared scheduling_gates: Vec<PodSchedulingGate>,
        shared resource_claims: Vec<PodResourceClaim>,
        shared host_users: Option<bool>,
        shared resources: Option<ResourceRequirements>,
    }
}

sharing_view! {
    /// Observed state of a pod.
    pub struct PodStatus shares PodStatusPart {
        shared observed_generation: i64,
        shared phase: Text,
        pub conditions: Vec<PodCondition>,
        shared message: Text,
        shared reason: Text,
        shared nominated_node_name: Text,
        #[serde(rename = "hostIP")]
        pub host_ip: Text,
        #[serde(rename = "hostIPs")]
        pub host_ips: Vec<HostIp>,
        #[serde(rename = "podIP")]
        pub pod_ip: Text,
        #[serde(rename = "podIPs")]
        pub pod_ips: Vec<PodIp>,
        pub start_time: Option<Timestamp>,
        shared init_container_statuses: Vec<ContainerStatus>,
        pub container_statuses: Vec<ContainerStatus>,
        shared ephemeral_container_statuses: Vec<ContainerStatus>,
        shared qos_class: Text,
        shared resource_claim_statuses: Vec<PodResourceClaimStatus>,
        shared extended_resource_claim_status: Option<PodExtendedResourceClaimStatus>,
        shared allocated_resources: Option<ResourceList>,
        shared resources: Option<ResourceRequirements>,
    }
}

sharing_view! {
    /// One aspect of a pod's state.
    pub struct PodCondition shares PodConditionPart {
        #[serde(rename = "type")]
        shared condition_type: Text,
        shared observed_generation: i64,
        shared status: Text,
        shared last_probe_time: Option<Timestamp>,
        pub last_transition_time: Option<Timestamp>,
        shared reason: Text,
        shared message: Text,
    }
}

view! {
    /// A pod to be.
    pub struct PodTemplateSpec {
        pub metadata: ObjectMeta,
        pub spec: PodSpec,
    }

    /// A condition that must be true before the pod counts as ready.
    pub struct PodReadinessGate {
        pub condition_type: Text,
    }

    /// Security settings of a pod that a node must support.
    pub struct PodSecurityContext {
        pub supplemental_groups_policy: Option<Text>,
    }

    /// The operating system of the containers.
    pub struct PodOs {
        pub name: Text,
    }

    /// Keeps a pod from being scheduled while it exists.
    pub struct PodSchedulingGate {
        pub name: Text,
    }

    /// A claim to devices, by name or by template.
    pub struct PodResourceClaim {
        pub name: Text,
        pub resource_claim_name: Option<Text>,
        pub resource_claim_template_name: Option<Text>,
    }

    /// Constraint on the distribution of pods over a topology.
    pub struct TopologySpreadConstraint {
        pub max_skew: i32,
        pub topology_key: Text,
        pub when_unsatisfiable: Text,
        pub label_selector: Option<LabelSelector>,
        pub min_domains: Option<i32>,
        pub node_affinity_policy: Option<Text>,
        pub node_taints_policy: Option<Text>,
        pub match_label_keys: Vec<Text>,
    }

    /// An address of the pod's host.
    pub struct HostIp {
        pub ip: Text,
    }

    /// An address of the pod.
    pub struct PodIp {
        pub ip: Text,
    }

    /// The claim that the scheduler created for the extended resources of a pod.
    pub struct PodExtendedResourceClaimStatus {
        pub request_mappings: Vec<ContainerExtendedResourceRequest>,
        pub resource_claim_name: Text,
    }

    /// The device request that serves an extended resource of a container.
    pub struct ContainerExtendedResourceRequest {
        pub container_name: Text,
        pub resource_name: Text,
        pub request_name: Text,
    }

    /// The claim that was made for one of the pod's.
    pub struct PodResourceClaimStatus {
        pub name: Text,
        pub resource_claim_name: Option<Text>,
    }
}

impl Pod {
    /// Whether the pod has ended.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}
