//! `apps/v1`: deployments, replica sets, daemon sets, stateful sets, and their revisions.

use crate::core::v1::{PersistentVolumeClaim, PodTemplateSpec};
use crate::int_or_string::IntOrString;
use crate::json::{Text, Value};
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

    /// Pods with stable names.
    pub struct StatefulSet("apps", "v1") {
        pub spec: StatefulSetSpec,
        pub status: StatefulSetStatus,
    }

    /// A template as it was, so that one can go back to it.
    pub struct ControllerRevision("apps", "v1") {
        pub data: Option<Value>,
        pub revision: i64,
    }
}

view! {
    /// Desired state of a Deployment.
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

    /// Strategy for replacing pods.
    pub struct DeploymentStrategy {
        #[serde(rename = "type")]
        pub strategy_type: Text,
        pub rolling_update: Option<RollingUpdate>,
    }

    /// Maximum number of unavailable and of additional pods.
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

    /// Observed state of a Deployment.
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

    /// Desired state of a ReplicaSet.
    pub struct ReplicaSetSpec {
        pub replicas: Option<i32>,
        pub min_ready_seconds: i32,
        pub selector: Option<LabelSelector>,
        pub template: PodTemplateSpec,
    }

    /// Observed state of a ReplicaSet.
    pub struct ReplicaSetStatus {
        pub replicas: i32,
        pub fully_labeled_replicas: i32,
        pub ready_replicas: i32,
        pub available_replicas: i32,
        pub terminating_replicas: Option<i32>,
        pub observed_generation: i64,
        pub conditions: Vec<WorkloadCondition>,
    }

    /// Desired state of a DaemonSet.
    pub struct DaemonSetSpec {
        pub selector: Option<LabelSelector>,
        pub template: PodTemplateSpec,
        pub update_strategy: DaemonSetUpdateStrategy,
        pub min_ready_seconds: i32,
        pub revision_history_limit: Option<i32>,
    }

    /// Strategy for replacing daemon pods.
    pub struct DaemonSetUpdateStrategy {
        #[serde(rename = "type")]
        pub strategy_type: Text,
        pub rolling_update: Option<RollingUpdate>,
    }

    /// Observed state of a DaemonSet.
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

    /// Desired state of a StatefulSet.
    pub struct StatefulSetSpec {
        pub replicas: Option<i32>,
        pub selector: Option<LabelSelector>,
        pub template: PodTemplateSpec,
        pub volume_claim_templates: Vec<PersistentVolumeClaim>,
        pub service_name: Text,
        pub pod_management_policy: Text,
        pub update_strategy: StatefulSetUpdateStrategy,
        pub revision_history_limit: Option<i32>,
        pub min_ready_seconds: i32,
        pub persistent_volume_claim_retention_policy: Option<ClaimRetentionPolicy>,
        pub ordinals: Option<StatefulSetOrdinals>,
    }

    /// Strategy for replacing the pods of a StatefulSet.
    pub struct StatefulSetUpdateStrategy {
        #[serde(rename = "type")]
        pub strategy_type: Text,
        pub rolling_update: Option<StatefulSetRollingUpdate>,
    }

    /// Partition and pace of a rolling update.
    pub struct StatefulSetRollingUpdate {
        pub partition: Option<i32>,
        pub max_unavailable: Option<IntOrString>,
    }

    /// Policy for claims when their set is deleted or scaled down: `Retain` or `Delete`.
    pub struct ClaimRetentionPolicy {
        pub when_deleted: Text,
        pub when_scaled: Text,
    }

    /// First ordinal of the pods.
    pub struct StatefulSetOrdinals {
        pub start: i32,
    }

    /// Observed state of a StatefulSet.
    pub struct StatefulSetStatus {
        pub observed_generation: i64,
        pub replicas: i32,
        pub ready_replicas: i32,
        pub current_replicas: i32,
        pub updated_replicas: i32,
        pub current_revision: Text,
        pub update_revision: Text,
        pub collision_count: Option<i32>,
        pub conditions: Vec<WorkloadCondition>,
        pub available_replicas: i32,
    }
}
