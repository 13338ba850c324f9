//! `rbac.authorization.k8s.io/v1`: rights.

use crate::json::Value;
use crate::meta::v1::LabelSelector;
use crate::view::{object, view};

object! {
    /// Permissions in all namespaces, or in those of a binding.
    pub struct ClusterRole("rbac.authorization.k8s.io", "v1") {
        pub rules: Vec<Value>,
        pub aggregation_rule: Option<AggregationRule>,
    }
}

view! {
    /// The roles whose rights this one has, too.
    pub struct AggregationRule {
        pub cluster_role_selectors: Vec<LabelSelector>,
    }
}
