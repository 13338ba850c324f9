//! Nodes and their taints.

use super::ResourceList;
use crate::json::{Text, Value};
use crate::time::Timestamp;
use crate::view::{object, sharing_view, view};
use crate::well_known::{EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE, EFFECT_PREFER_NO_SCHEDULE};

object! {
    /// A machine that runs pods.
    pub struct Node("", "v1") {
        pub spec: NodeSpec,
        pub status: NodeStatus,
    }
}

sharing_view! {
    /// Observed state of a node.
    pub struct NodeStatus shares NodeStatusPart {
        shared capacity: ResourceList,
        shared allocatable: ResourceList,
        shared phase: Text,
        pub conditions: Vec<NodeCondition>,
        pub addresses: Vec<NodeAddress>,
        pub node_info: NodeSystemInfo,
        pub images: Vec<ContainerImage>,
        pub volumes_in_use: Vec<Text>,
        pub volumes_attached: Vec<Value>,
        shared features: Option<NodeFeatures>,
        shared declared_features: Vec<Text>,
    }
}

sharing_view! {
    /// One aspect of a node's state.
    pub struct NodeCondition shares NodeConditionPart {
        #[serde(rename = "type")]
        shared condition_type: Text,
        shared status: Text,
        pub last_heartbeat_time: Option<Timestamp>,
        pub last_transition_time: Option<Timestamp>,
        shared reason: Text,
        shared message: Text,
    }
}

sharing_view! {
    /// Software versions of a node.
    pub struct NodeSystemInfo shares NodeSystemInfoPart {
        #[serde(rename = "machineID")]
        pub machine_id: Text,
        #[serde(rename = "systemUUID")]
        pub system_uuid: Text,
        #[serde(rename = "bootID")]
        pub boot_id: Text,
        shared kernel_version: Text,
        shared os_image: Text,
        shared container_runtime_version: Text,
        shared kubelet_version: Text,
        shared kube_proxy_version: Text,
        shared operating_system: Text,
        shared architecture: Text,
    }
}

view! {
    /// Desired state of a node.
    pub struct NodeSpec {
        #[serde(rename = "podCIDR")]
        pub pod_cidr: Text,
        #[serde(rename = "podCIDRs")]
        pub pod_cidrs: Vec<Text>,
        #[serde(rename = "providerID")]
        pub provider_id: Text,
        pub unschedulable: bool,
        pub taints: Vec<Taint>,
    }

    /// Keeps pods away that do not tolerate it.
    pub struct Taint {
        pub key: Text,
        pub value: Text,
        pub effect: Text,
        pub time_added: Option<Timestamp>,
    }

    /// Address of a node.
    pub struct NodeAddress {
        #[serde(rename = "type")]
        pub address_type: Text,
        pub address: Text,
    }

    /// Optional features of a node's runtime.
    pub struct NodeFeatures {
        pub supplemental_groups_policy: Option<bool>,
    }

    /// An image that a node has.
    pub struct ContainerImage {
        pub names: Vec<Text>,
        pub size_bytes: i64,
    }
}

/// Effect of a taint on pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaintEffect {
    /// Pods are not scheduled here.
    NoSchedule,
    /// Pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Pods are evicted.
    NoExecute,
}

impl TaintEffect {
    /// The effect of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            EFFECT_NO_SCHEDULE => Self::NoSchedule,
            EFFECT_PREFER_NO_SCHEDULE => Self::PreferNoSchedule,
            EFFECT_NO_EXECUTE => Self::NoExecute,
            _ => return None,
        })
    }

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSchedule => EFFECT_NO_SCHEDULE,
            Self::PreferNoSchedule => EFFECT_PREFER_NO_SCHEDULE,
            Self::NoExecute => EFFECT_NO_EXECUTE,
        }
    }
}
