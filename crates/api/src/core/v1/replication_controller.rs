//! Replication controllers, the older form of replica sets.

use super::PodTemplateSpec;
use crate::apps::v1::WorkloadCondition;
use crate::meta::v1::StringMap;
use crate::view::{object, view};

object! {
    /// A number of equal pods.
    pub struct ReplicationController("", "v1") {
        pub spec: ReplicationControllerSpec,
        pub status: ReplicationControllerStatus,
    }
}

view! {
    /// Desired state of a ReplicationController.
    pub struct ReplicationControllerSpec {
        pub replicas: Option<i32>,
        pub min_ready_seconds: i32,
        pub selector: StringMap,
        pub template: Option<PodTemplateSpec>,
    }

    /// Observed state of a ReplicationController.
    pub struct ReplicationControllerStatus {
        pub replicas: i32,
        pub fully_labeled_replicas: i32,
        pub ready_replicas: i32,
        pub available_replicas: i32,
        pub observed_generation: i64,
        pub conditions: Vec<WorkloadCondition>,
    }
}
