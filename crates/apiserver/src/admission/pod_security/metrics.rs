//! Metrics of Pod Security admission, named as Kubernetes names them.

use std::sync::{Arc, OnceLock};

use registry::pod_security::{Decision, Evaluation, Level, Mode, Version};
use telemetry::metrics::{Counter, Family, Registry};

use crate::admission::{Attributes, Operation};

/// The counters.
pub(super) struct Metrics {
    evaluations: Arc<Family<Counter>>,
    exemptions: Arc<Family<Counter>>,
    errors: Arc<Family<Counter>>,
    /// Creates and updates of pods in privileged namespaces, which are most.
    usual: [OnceLock<Arc<Counter>>; 2],
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            evaluations: registry.family(
                "pod_security_evaluations_total",
                "[ALPHA] Number of policy evaluations that occurred, not counting ignored or exempt requests.",
                &[
                    "decision",
                    "policy_level",
                    "policy_version",
                    "mode",
                    "request_operation",
                    "resource",
                    "subresource",
                ],
                &[],
            ),
            exemptions: registry.family(
                "pod_security_exemptions_total",
                "[ALPHA] Number of exempt requests, not counting ignored or out of scope requests.",
                &["request_operation", "resource", "subresource"],
                &[],
            ),
            errors: registry.family(
                "pod_security_errors_total",
                "[ALPHA] Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation.",
                &["fatal", "request_operation", "resource", "subresource"],
                &[],
            ),
            usual: Default::default(),
        }
    }

    pub(super) fn count(&self, decision: &Decision, attributes: &Attributes<'_>) {
        if decision.is_exempt {
            self.exemptions.with(&[operation(attributes), resource(attributes), attributes.subresource]).increment();
        }
        for evaluation in &decision.evaluations {
            let count = || self.evaluation(evaluation, attributes);
            let is_usual = evaluation.is_allowed
                && evaluation.standard.level == Level::Privileged
                && evaluation.mode == Mode::Enforce
                && attributes.subresource.is_empty();
            let [create, update] = &self.usual;
            let usual = if attributes.operation == Operation::Create { create } else { update };
            if is_usual { usual.get_or_init(count).increment() } else { count().increment() }
        }
    }

    fn evaluation(&self, evaluation: &Evaluation, attributes: &Attributes<'_>) -> Arc<Counter> {
        let standard = evaluation.standard;
        let version = match standard.version {
            _ if standard.level == Level::Privileged => "latest".to_owned(),
            // Later than the version of this server.
            Version::Minor(minor) if minor > u64::from(api::kubernetes::MINOR) => "future".to_owned(),
            version => version.to_string(),
        };
        self.evaluations.with(&[
            if evaluation.is_allowed { "allow" } else { "deny" },
            standard.level.name(),
            &version,
            evaluation.mode.name(),
            operation(attributes),
            resource(attributes),
            attributes.subresource,
        ])
    }

    pub(super) fn count_error(&self, is_fatal: bool, attributes: &Attributes<'_>) {
        let fatal = if is_fatal { "true" } else { "false" };
        self.errors.with(&[fatal, operation(attributes), resource(attributes), attributes.subresource]).increment();
    }
}

fn operation(attributes: &Attributes<'_>) -> &'static str {
    if attributes.operation == Operation::Create { "create" } else { "update" }
}

fn resource(attributes: &Attributes<'_>) -> &'static str {
    match attributes.resource_name() {
        ("", "pods") => "pod",
        ("", "namespaces") => "namespace",
        _ => "controller",
    }
}
