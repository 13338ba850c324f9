//! Kinds of `policy`: PodDisruptionBudgets.
//!
//! Follows `pkg/apis/policy/validation`.

use api::field::{Errors, Path};
use api::json::Value;

use crate::apps::{validate_at_most_all, validate_share};
use crate::conditions;
use crate::generic;
use crate::meta;
use crate::render;
use crate::strategy::{Part, Strategy};

pub(crate) const DISRUPTION_BUDGET: Strategy = Strategy {
    validate_create: |budget, _, errors| {
        validate_spec(budget.field("spec"), false, errors);
    },
    validate_update: |budget, old, _, errors| {
        meta::validate_update(budget, old, errors);
        let had_bad_values = meta::has_bad_values(old.field("spec").field("selector"));
        validate_spec(budget.field("spec"), had_bad_values, errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: |budget, old, _| budget.set("spec", old.field("spec").clone()),
            validate: |budget, _, _, errors| {
                let (status, at) = (budget.field("status"), Path::new("status"));
                conditions::validate(status.list("conditions"), &at.child("conditions"), errors);
                for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
                    meta::non_negative(status.int(name), at.child(name), errors);
                }
            },
        },
    )],
    ..generic::WITH_GENERATION
};

fn validate_spec(spec: &Value, allow_bad_values: bool, errors: &mut Errors) {
    let at = Path::new("spec");
    let (min, max) = (spec.optional("minAvailable"), spec.optional("maxUnavailable"));
    if min.is_some() && max.is_some() {
        let shown = render::internal("k8s.io/api/policy/v1", "PodDisruptionBudgetSpec", spec);
        errors.invalid(at, shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for (name, value) in [("minAvailable", min), ("maxUnavailable", max)] {
        if let Some(value) = value {
            validate_share(value, at.child(name), errors);
            validate_at_most_all(value, at.child(name), errors);
        }
    }
    if let Some(selector) = spec.optional("selector") {
        meta::validate_selector(selector, allow_bad_values, &at.child("selector"), errors);
    }
    match spec.optional_text("unhealthyPodEvictionPolicy") {
        None | Some("AlwaysAllow" | "IfHealthyBudget") => {}
        Some(other) => {
            let policies = &["AlwaysAllow", "IfHealthyBudget"];
            errors.not_supported(at.child("unhealthyPodEvictionPolicy"), other, policies);
        }
    }
}
