//! Counts of webhook calls, under Kubernetes' names. Labels are names of webhooks, never data of requests.

use std::sync::Arc;
use std::time::Duration;

use telemetry::metrics::{Counter, Family, Histogram, Registry};

const SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];

/// Metrics of mutating and validating webhooks.
pub(crate) struct WebhookMetrics {
    durations: Arc<Family<Histogram>>,
    requests: Arc<Family<Counter>>,
    rejections: Arc<Family<Counter>>,
    fail_open: Arc<Family<Counter>>,
    skipped: Arc<Family<Counter>>,
}

/// A call of a webhook.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    /// The type of webhook: `admit` or `validating`.
    pub(super) kind: &'a str,
    pub(super) operation: &'a str,
    pub(super) elapsed: Duration,
}

impl WebhookMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            durations: registry.family(
                "apiserver_admission_webhook_admission_duration_seconds",
                "[STABLE] Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and type (validate or admit).",
                &["name", "operation", "rejected", "type"],
                SECONDS,
            ),
            requests: registry.family(
                "apiserver_admission_webhook_request_total",
                "[ALPHA] Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["code", "name", "operation", "rejected", "type"],
                &[],
            ),
            rejections: registry.family(
                "apiserver_admission_webhook_rejection_count",
                "[ALPHA] Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code (honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep the metrics cardinality bounded.",
                &["error_type", "name", "operation", "rejection_code", "type"],
                &[],
            ),
            fail_open: registry.family(
                "apiserver_admission_webhook_fail_open_count",
                "[ALPHA] Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
                &["name", "type"],
                &[],
            ),
            skipped: registry.family(
                "celplane_apiserver_simulated_backend_skipped_total",
                "[ALPHA] Calls of webhooks that were skipped because the pods of their Service are simulated.",
                &["name", "type"],
                &[],
            ),
        }
    }

    /// Counts a call that does not reject the request, with the code of its outcome.
    pub(super) fn accepted(&self, call: &Call<'_>, code: u16) {
        self.observe(call, "false", code);
    }

    /// Counts a call that rejects the request: a denial, a failed call, or an error of the server.
    pub(super) fn rejected(&self, call: &Call<'_>, error: &str, code: u16) {
        self.observe(call, "true", code);
        let code = code.min(600).to_string();
        self.rejections.with(&[error, call.name, call.operation, &code, call.kind]).increment();
    }

    /// Counts a failed call that is ignored.
    pub(super) fn failed_open(&self, call: &Call<'_>, code: u16) {
        self.accepted(call, code);
        self.fail_open.with(&[call.name, call.kind]).increment();
    }

    fn observe(&self, call: &Call<'_>, rejected: &str, code: u16) {
        let Call { name, kind, operation, elapsed } = *call;
        self.durations.with(&[name, operation, rejected, kind]).observe_duration(elapsed);
        self.requests.with(&[&code.min(600).to_string(), name, operation, rejected, kind]).increment();
    }

    /// Counts a call that was skipped.
    pub(super) fn skipped(&self, name: &str, kind: &str) {
        self.skipped.with(&[name, kind]).increment();
    }
}
