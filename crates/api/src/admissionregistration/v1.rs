//! `admissionregistration.k8s.io/v1`: policies that admission asks.

use crate::json::Text;
use crate::view::{object, view};

object! {
    /// Expressions that new objects must satisfy.
    pub struct ValidatingAdmissionPolicy("admissionregistration.k8s.io", "v1") {
        pub status: ValidatingAdmissionPolicyStatus,
    }
}

view! {
    /// What was found out about a policy.
    pub struct ValidatingAdmissionPolicyStatus {
        pub observed_generation: i64,
        pub warnings: Vec<Text>,
    }
}
