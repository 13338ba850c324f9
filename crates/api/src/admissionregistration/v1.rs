//! `admissionregistration.k8s.io/v1`: admission policies.

use crate::json::Text;
use crate::view::{object, view};

object! {
    /// Expressions that new objects must satisfy.
    pub struct ValidatingAdmissionPolicy("admissionregistration.k8s.io", "v1") {
        pub spec: ValidatingAdmissionPolicySpec,
        pub status: ValidatingAdmissionPolicyStatus,
    }
}

view! {
    /// Objects that a policy matches, and the conditions on them.
    pub struct ValidatingAdmissionPolicySpec {
        pub param_kind: Option<ParamKind>,
        pub match_constraints: MatchResources,
        pub validations: Vec<Validation>,
        pub variables: Vec<Variable>,
    }

    /// The kind of a policy's parameters.
    pub struct ParamKind {
        pub api_version: Text,
        pub kind: Text,
    }

    /// The objects that a policy is about.
    pub struct MatchResources {
        pub resource_rules: Vec<NamedRuleWithOperations>,
    }

    /// Resources by group, version and name.
    pub struct NamedRuleWithOperations {
        pub api_groups: Vec<Text>,
        pub api_versions: Vec<Text>,
        pub resources: Vec<Text>,
    }

    /// An expression, and the message if it evaluates to false.
    pub struct Validation {
        pub expression: Text,
        pub message_expression: Text,
    }

    /// An expression that others refer to by name.
    pub struct Variable {
        pub name: Text,
        pub expression: Text,
    }

    /// Observed state of a policy.
    pub struct ValidatingAdmissionPolicyStatus {
        pub observed_generation: i64,
    }
}
