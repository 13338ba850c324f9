//! `autoscaling/v2`: how many replicas there should be.

use crate::json::{Text, Value};
use crate::meta::v1::Condition;
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// Scales something between bounds.
    pub struct HorizontalPodAutoscaler("autoscaling", "v2") {
        pub spec: HorizontalPodAutoscalerSpec,
        pub status: HorizontalPodAutoscalerStatus,
    }
}

view! {
    /// What is scaled, between which bounds, and by what.
    pub struct HorizontalPodAutoscalerSpec {
        pub scale_target_ref: CrossVersionObjectReference,
        pub min_replicas: Option<i32>,
        pub max_replicas: i32,
        pub metrics: Vec<Value>,
    }

    /// An object of the same namespace.
    pub struct CrossVersionObjectReference {
        pub kind: Text,
        pub name: Text,
        pub api_version: Text,
    }

    /// What was done last.
    pub struct HorizontalPodAutoscalerStatus {
        pub observed_generation: Option<i64>,
        pub last_scale_time: Option<Timestamp>,
        pub current_replicas: i32,
        pub desired_replicas: i32,
        pub conditions: Vec<Condition>,
    }
}
