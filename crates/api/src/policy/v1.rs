//! `policy/v1`: disruption budgets.

use crate::int_or_string::IntOrString;
use crate::meta::v1::{Condition, LabelSelector, StringMap};
use crate::view::{object, view};

object! {
    /// Limit on the voluntary disruption of a set of pods.
    pub struct PodDisruptionBudget("policy", "v1") {
        pub spec: PodDisruptionBudgetSpec,
        pub status: PodDisruptionBudgetStatus,
    }
}

view! {
    /// The pods, and how many must be there.
    pub struct PodDisruptionBudgetSpec {
        pub min_available: Option<IntOrString>,
        pub selector: Option<LabelSelector>,
        pub max_unavailable: Option<IntOrString>,
    }

    /// Number of disruptions that are allowed now.
    pub struct PodDisruptionBudgetStatus {
        pub observed_generation: i64,
        pub disrupted_pods: StringMap,
        pub disruptions_allowed: i32,
        pub current_healthy: i32,
        pub desired_healthy: i32,
        pub expected_pods: i32,
        pub conditions: Vec<Condition>,
    }
}
