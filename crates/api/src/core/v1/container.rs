//! Containers, as far as scheduler, node agent and controllers look into them.

use super::{ResourceList, ResourceRequirements};
use crate::json::{Text, Value};
use crate::view::{sharing_view, view};

sharing_view! {
    /// Observed state of a container.
    pub struct ContainerStatus shares ContainerStatusPart {
        shared name: Text,
        pub state: Option<Value>,
        shared last_state: Option<Value>,
        shared ready: bool,
        shared restart_count: i32,
        shared image: Text,
        #[serde(rename = "imageID")]
        shared image_id: Text,
        #[serde(rename = "containerID")]
        pub container_id: Text,
        shared started: Option<bool>,
        shared allocated_resources: Option<ResourceList>,
        shared resources: Option<ResourceRequirements>,
    }
}

view! {
    /// A container of a pod.
    pub struct Container {
        pub name: Text,
        pub image: Text,
        pub ports: Vec<ContainerPort>,
        pub resources: ResourceRequirements,
        pub restart_policy: Option<Text>,
        pub restart_policy_rules: Vec<ContainerRestartRule>,
        pub volume_mounts: Vec<VolumeMount>,
        pub image_pull_policy: Text,
    }

    /// Condition under which a container is restarted contrary to its policy.
    pub struct ContainerRestartRule {
        pub action: Text,
    }

    /// A volume mount, limited to the fields that place requirements on a node.
    pub struct VolumeMount {
        pub bind_mount_options: Vec<Text>,
    }

    /// A container that was added to a running pod.
    pub struct EphemeralContainer {
        pub name: Text,
        pub image: Text,
        pub resources: ResourceRequirements,
    }

    /// A port that a container listens on.
    pub struct ContainerPort {
        pub name: Text,
        pub host_port: i32,
        pub container_port: i32,
        pub protocol: Text,
        #[serde(rename = "hostIP")]
        pub host_ip: Text,
    }

}
