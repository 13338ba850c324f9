//! Counts of policy checks, under Kubernetes' names.

use std::sync::Arc;

use registry::admission::validating::Check;
use telemetry::metrics::{Counter, Family, Histogram, Registry};

/// Histogram buckets of durations, in seconds.
const SECONDS: &[f64] = &[0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// Histogram buckets of compilations, in seconds: those of Kubernetes.
const COMPILATION_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The metrics of both kinds of policies. Labels are names of policies and bindings, never data of requests.
pub(crate) struct PolicyMetrics {
    pub(super) validating: Checks,
    pub(super) mutating: Checks,
    /// Durations of compilations, one for each policy.
    pub(super) compilations: Arc<Histogram>,
}

impl PolicyMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let compilations: Arc<Family<Histogram>> = registry.family(
            "apiserver_cel_compilation_duration_seconds",
            "[BETA] CEL compilation time in seconds.",
            &[],
            COMPILATION_SECONDS,
        );
        let labels = &["policy", "policy_binding", "error_type", "enforcement_action"];
        let validating = Checks {
            total: registry.family(
                "apiserver_validating_admission_policy_check_total",
                "[BETA] Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
                labels,
                &[],
            ),
            durations: registry.family(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "[BETA] Validation admission latency for individual validation expressions in seconds, labeled by policy and further including binding and enforcement action taken.",
                labels,
                SECONDS,
            ),
            has_action: true,
        };
        let labels = &["policy", "policy_binding", "error_type"];
        let mutating = Checks {
            total: registry.family(
                "apiserver_mutating_admission_policy_check_total",
                "[ALPHA] Mutation admission policy check total, labeled by policy and further identified by binding.",
                labels,
                &[],
            ),
            durations: registry.family(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "[ALPHA] Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.",
                labels,
                SECONDS,
            ),
            has_action: false,
        };
        Self { validating, mutating, compilations: compilations.with(&[]) }
    }
}

/// The metrics of one kind of policies.
pub(super) struct Checks {
    total: Arc<Family<Counter>>,
    durations: Arc<Family<Histogram>>,
    has_action: bool,
}

impl Checks {
    pub(super) fn observe(&self, checks: &[Check]) {
        for check in checks {
            let all = [&*check.policy, &*check.binding, check.error, check.action];
            let labels = all.get(..if self.has_action { 4 } else { 3 }).unwrap_or_default();
            self.total.with(labels).increment();
            self.durations.with(labels).observe_duration(check.elapsed);
        }
    }
}
