//! Counts of match conditions of policies and webhooks, under Kubernetes' names.
//!
//! Labels are names of policies and webhooks, never data of requests.

use std::sync::Arc;

use registry::admission::webhook::ConditionCheck;
use telemetry::metrics::{Counter, Family, Histogram, Registry};

const LABELS: &[&str] = &["kind", "name", "operation", "type"];

/// The metrics of match conditions.
pub(crate) struct ConditionMetrics {
    seconds: Arc<Family<Histogram>>,
    errors: Arc<Family<Counter>>,
    exclusions: Arc<Family<Counter>>,
}

impl ConditionMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            seconds: registry.family(
                "apiserver_admission_match_condition_evaluation_seconds",
                "[ALPHA] Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing matchConditions (webhook or policy), operation and type (validate or admit).",
                LABELS,
                &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25],
            ),
            errors: registry.family(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "[ALPHA] Admission match condition evaluation errors count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
                LABELS,
                &[],
            ),
            exclusions: registry.family(
                "apiserver_admission_match_condition_exclusions_total",
                "[ALPHA] Admission match condition evaluation exclusions count, identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or policy), operation and admission type (validate or admit).",
                LABELS,
                &[],
            ),
        }
    }

    /// Counts evaluations of the conditions of policies. Kubernetes names both kinds of policies `validate`, and counts no
    /// exclusions of them.
    pub(super) fn policies(&self, checks: &[ConditionCheck], operation: &str) {
        checks.iter().for_each(|check| self.observe(check, &["policy", &check.name, operation, "validate"]));
    }

    /// Counts an evaluation of the conditions of a webhook of a type, and whether it excluded the webhook.
    pub(super) fn webhook(&self, check: &ConditionCheck, kind: &str, operation: &str, is_excluded: bool) {
        self.observe(check, &["webhook", &check.name, operation, kind]);
        if is_excluded {
            // Kubernetes names the type differently here.
            let kind = if kind == "validating" { "validate" } else { kind };
            self.exclusions.with(&["webhook", &check.name, operation, kind]).increment();
        }
    }

    fn observe(&self, check: &ConditionCheck, labels: &[&str]) {
        self.seconds.with(labels).observe_duration(check.elapsed);
        if check.errors > 0 {
            self.errors.with(labels).add(check.errors as u64);
        }
    }
}
