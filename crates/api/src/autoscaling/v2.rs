//! `autoscaling/v2`: how many replicas there should be.

use crate::json::{Text, Value};
use crate::meta::v1::Condition;
use crate::quantity::Quantity;
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
    /// Target, bounds and metrics of an autoscaler.
    pub struct HorizontalPodAutoscalerSpec {
        pub scale_target_ref: CrossVersionObjectReference,
        pub min_replicas: Option<i32>,
        pub max_replicas: i32,
        pub metrics: Vec<Value>,
        pub behavior: Option<HorizontalPodAutoscalerBehavior>,
    }

    /// Limits of change in both directions.
    pub struct HorizontalPodAutoscalerBehavior {
        pub scale_up: Option<ScalingRules>,
        pub scale_down: Option<ScalingRules>,
    }

    /// Limits of change in one direction.
    pub struct ScalingRules {
        pub stabilization_window_seconds: Option<i32>,
        pub select_policy: Option<Text>,
        pub policies: Vec<ScalingPolicy>,
        pub tolerance: Option<Quantity>,
    }

    /// Limit of change within a period.
    pub struct ScalingPolicy {
        #[serde(rename = "type")]
        pub policy_type: Text,
        pub value: i32,
        pub period_seconds: i32,
    }

    /// An object of the same namespace.
    pub struct CrossVersionObjectReference {
        pub kind: Text,
        pub name: Text,
        pub api_version: Text,
    }

    /// Observed state of an autoscaler.
    pub struct HorizontalPodAutoscalerStatus {
        pub observed_generation: Option<i64>,
        pub last_scale_time: Option<Timestamp>,
        pub current_replicas: i32,
        pub desired_replicas: i32,
        pub conditions: Vec<Condition>,
    }
}
