//! Pods and pod templates.

use super::{
    Affinity, Container, ContainerStatus, EphemeralContainer, ObjectReference, ResourceList, ResourceRequirements,
    Toleration, Volume,
};
use crate::json::Text;
use crate::meta::v1::{LabelSelector, ObjectMeta, StringMap};
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// Containers that run together on one node.
    pub struct Pod("", "v1") {
        pub spec: PodSpec,
        pub status: PodStatus,
    }

    /// Puts a pod on a node.
    pub struct Binding("", "v1") {
        pub target: ObjectReference,
    }
}

view! {
    /// A pod to be.
    pub struct PodTemplateSpec {
        pub metadata: ObjectMeta,
        pub spec: PodSpec,
    }

    /// What is wanted of a pod.
    pub struct PodSpec {
        pub volumes: Vec<Volume>,
        pub init_containers: Vec<Container>,
        pub containers: Vec<Container>,
        pub ephemeral_containers: Vec<EphemeralContainer>,
        pub restart_policy: Text,
        pub termination_grace_period_seconds: Option<i64>,
        pub active_deadline_seconds: Option<i64>,
        pub node_selector: StringMap,
        pub service_account_name: Text,
        pub node_name: Text,
        pub host_network: bool,
        pub security_context: Option<PodSecurityContext>,
        pub hostname: Text,
        pub subdomain: Text,
        pub affinity: Option<Affinity>,
        pub scheduler_name: Text,
        pub tolerations: Vec<Toleration>,
        pub priority_class_name: Text,
        pub priority: Option<i32>,
        pub readiness_gates: Vec<PodReadinessGate>,
        pub runtime_class_name: Option<Text>,
        pub preemption_policy: Option<Text>,
        pub overhead: ResourceList,
        pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
        pub os: Option<PodOs>,
        pub scheduling_gates: Vec<PodSchedulingGate>,
        pub resource_claims: Vec<PodResourceClaim>,
        pub host_users: Option<bool>,
        pub resources: Option<ResourceRequirements>,
    }

    /// A condition that must be true before the pod counts as ready.
    pub struct PodReadinessGate {
        pub condition_type: Text,
    }

    /// How the containers' processes are set up, as far as a node must support it.
    pub struct PodSecurityContext {
        pub supplemental_groups_policy: Option<Text>,
    }

    /// The operating system of the containers.
    pub struct PodOs {
        pub name: Text,
    }

    /// Keeps a pod from being scheduled while it is there.
    pub struct PodSchedulingGate {
        pub name: Text,
    }

    /// A claim to devices, by name or by template.
    pub struct PodResourceClaim {
        pub name: Text,
        pub resource_claim_name: Option<Text>,
        pub resource_claim_template_name: Option<Text>,
    }

    /// How evenly pods spread over a topology.
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

    /// How a pod is doing.
    pub struct PodStatus {
        pub observed_generation: i64,
        pub phase: Text,
        pub conditions: Vec<PodCondition>,
        pub message: Text,
        pub reason: Text,
        pub nominated_node_name: Text,
        #[serde(rename = "hostIP")]
        pub host_ip: Text,
        #[serde(rename = "hostIPs")]
        pub host_ips: Vec<HostIp>,
        #[serde(rename = "podIP")]
        pub pod_ip: Text,
        #[serde(rename = "podIPs")]
        pub pod_ips: Vec<PodIp>,
        pub start_time: Option<Timestamp>,
        pub init_container_statuses: Vec<ContainerStatus>,
        pub container_statuses: Vec<ContainerStatus>,
        pub qos_class: Text,
        pub resource_claim_statuses: Vec<PodResourceClaimStatus>,
        pub allocated_resources: Option<ResourceList>,
        pub resources: Option<ResourceRequirements>,
    }

    /// One aspect of a pod's state.
    pub struct PodCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub observed_generation: i64,
        pub status: Text,
        pub last_probe_time: Option<Timestamp>,
        pub last_transition_time: Option<Timestamp>,
        pub reason: Text,
        pub message: Text,
    }

    /// An address of the pod's host.
    pub struct HostIp {
        pub ip: Text,
    }

    /// An address of the pod.
    pub struct PodIp {
        pub ip: Text,
    }

    /// The claim that was made for one of the pod's.
    pub struct PodResourceClaimStatus {
        pub name: Text,
        pub resource_claim_name: Option<Text>,
    }
}

impl Pod {
    /// Whether the pod has ended for good.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}
