//! `apps/v1`: deployments, replica sets, daemon sets, stateful sets.

use crate::core::v1::PodTemplateSpec;
use crate::int_or_string::IntOrString;
use crate::json::Text;
use crate::meta::v1::LabelSelector;
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// Pods that are replaced step by step when their template changes.
    pub struct Deployment("apps", "v1") {
        pub spec: DeploymentSpec,
        pub status: DeploymentStatus,
    }

    /// A number of equal pods.
    pub struct ReplicaSet("apps", "v1") {
        pub spec: ReplicaSetSpec,
        pub status: ReplicaSetStatus,
    }

    /// A pod on every node that fits.
    pub struct DaemonSet("apps", "v1") {
        pub spec: DaemonSetSpec,
        pub status: DaemonSetStatus,
    }

    /// Pods with names of their own.
    pub struct StatefulSet("apps", "v1") {
        pub spec: StatefulSetSpec,
    }
}

view! {
    /// What is wanted of a deployment.
    pub struct DeploymentSpec {
        pub replicas: Option<i32>,
        pub selector: Option<LabelSelector>,
        pub template: PodTemplateSpec,
        pub strategy: DeploymentStrategy,
        pub min_ready_seconds: i32,
        pub revision_history_limit: Option<i32>,
        pub paused: bool,
        pub progress_deadline_seconds: Option<i32>,
    }

    /// How pods are replaced.
    pub struct DeploymentStrategy {
        #[serde(rename = "type")]
        pub strategy_type: Text,
        pub rolling_update: Option<RollingUpdate>,
    }

    /// How many pods may be missing or too many.
    pub struct RollingUpdate {
        pub max_unavailable: Option<IntOrString>,
        pub max_surge: Option<IntOrString>,
    }

    /// One aspect of a deployment's state.
    pub struct DeploymentCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
        pub last_update_time: Option<Timestamp>,
        pub last_transition_time: Option<Timestamp>,
        pub reason: Text,
        pub message: Text,
    }

    /// How a deployment is doing.
    pub struct DeploymentStatus {
        pub observed_generation: i64,
        pub replicas: i32,
        pub updated_replicas: i32,
        pub ready_replicas: i32,
        pub available_replicas: i32,
        pub unavailable_replicas: i32,
        pub terminating_replicas: Option<i32>,
        pub conditions: Vec<DeploymentCondition>,
        pub collision_count: Option<i32>,
    }

    /// One aspect of the state of a replica set or daemon set.
    pub struct WorkloadCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
        pub last_transition_time: Option<Timestamp>,
        pub reason: Text,
        pub message: Text,
    }

    /// What is wanted of a replica set.
    pub struct ReplicaSetSpec {
        pub replicas: Option<i32>,
        pub min_ready_seconds: i32,
        pub selector: Option<LabelSelector>,
        pub template: PodTemplateSpec,
    }

    /// How a replica set is doing.
    pub struct ReplicaSetStatus {
        pub replicas: i32,
        pub fully_labeled_replicas: i32,
        pub ready_replicas: i32,
        pub available_replicas: i32,
        pub terminating_replicas: Option<i32>,
        pub observed_generation: i64,
        pub conditions: Vec<WorkloadCondition>,
    }

    /// What is wanted of a daemon set.
    pub struct DaemonSetSpec {
        pub selector: Option<LabelSelector>,
        pub template: PodTemplateSpec,
        pub update_strategy: DaemonSetUpdateStrategy,
        pub min_ready_seconds: i32,
        pub revision_history_limit: Option<i32>,
    }

    /// How daemon pods are replaced.
    pub struct DaemonSetUpdateStrategy {
        #[serde(rename = "type")]
        pub strategy_type: Text,
        pub rolling_update: Option<RollingUpdate>,
    }

    /// How a daemon set is doing.
    pub struct DaemonSetStatus {
        pub current_number_scheduled: i32,
        pub number_misscheduled: i32,
        pub desired_number_scheduled: i32,
        pub number_ready: i32,
        pub observed_generation: i64,
        pub updated_number_scheduled: i32,
        pub number_available: i32,
        pub number_unavailable: i32,
        pub collision_count: Option<i32>,
        pub conditions: Vec<WorkloadCondition>,
    }

    /// What is wanted of a stateful set, as far as placement is concerned.
    pub struct StatefulSetSpec {
        pub replicas: Option<i32>,
        pub selector: Option<LabelSelector>,
        pub template: PodTemplateSpec,
    }
}
