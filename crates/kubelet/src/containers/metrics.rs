//! Metrics of the agent's work, under the names of Kubernetes' kubelet.

use std::sync::Arc;

use cri::EndedCall;
use telemetry::metrics::{Counter, Family, Histogram, Registry};

/// Buckets of the durations of calls to the runtime: from 5 ms, each 2.5 times the one before.
const OPERATION_SECONDS: &[f64] = &[
    0.005,
    0.0125,
    0.031_25,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];
/// Buckets of the time from the first look at a pod until its containers run.
const POD_START_SECONDS: &[f64] = &[
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];
/// Prometheus' default buckets.
const RELIST_SECONDS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const OPERATION: &[&str] = &["operation_type"];

/// The metrics.
pub(super) struct Metrics {
    operations: Arc<Family<Counter>>,
    operation_errors: Arc<Family<Counter>>,
    operation_seconds: Arc<Family<Histogram>>,
    /// Time from the first look at a pod until its containers run.
    pub(super) pod_start: Arc<Histogram>,
    /// Duration of a list of all containers.
    pub(super) relist: Arc<Histogram>,
    /// Time between two such lists.
    pub(super) relist_interval: Arc<Histogram>,
}

impl Metrics {
    /// Registers the metrics.
    pub(super) fn new(registry: &Registry) -> Arc<Self> {
        let histogram = |name, help, bounds| registry.family::<Histogram>(name, help, &[], bounds).with(&[]);
        Arc::new(Self {
            operations: registry.family(
                "kubelet_runtime_operations_total",
                "[ALPHA] Cumulative number of runtime operations by operation type.",
                OPERATION,
                &[],
            ),
            operation_errors: registry.family(
                "kubelet_runtime_operations_errors_total",
                "[ALPHA] Cumulative number of runtime operation errors by operation type.",
                OPERATION,
                &[],
            ),
            operation_seconds: registry.family(
                "kubelet_runtime_operations_duration_seconds",
                "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.",
                OPERATION,
                OPERATION_SECONDS,
            ),
            pod_start: histogram(
                "kubelet_pod_start_duration_seconds",
                "[ALPHA] Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run",
                POD_START_SECONDS,
            ),
            relist: histogram(
                "kubelet_pleg_relist_duration_seconds",
                "[ALPHA] Duration in seconds for relisting pods in PLEG.",
                RELIST_SECONDS,
            ),
            relist_interval: histogram(
                "kubelet_pleg_relist_interval_seconds",
                "[ALPHA] Interval in seconds between relisting in PLEG.",
                RELIST_SECONDS,
            ),
        })
    }

    /// Counts a call to the runtime.
    pub(super) fn count(&self, call: EndedCall) {
        // Kubernetes' kubelet has sandboxes in one word.
        let operation = call.method.replace("pod_sandbox", "podsandbox");
        let labels = [operation.as_str()];
        self.operations.with(&labels).increment();
        if call.is_error {
            self.operation_errors.with(&labels).increment();
        }
        self.operation_seconds.with(&labels).observe_duration(call.duration);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn operations_are_counted_under_their_names() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry);
        let call = EndedCall { method: "run_pod_sandbox", duration: Duration::from_millis(10), is_error: false };
        metrics.count(call);
        metrics.count(EndedCall { is_error: true, ..call });
        metrics.count(EndedCall { method: "version", ..call });
        let text = registry.text();
        for line in [
            "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 2",
            "kubelet_runtime_operations_total{operation_type=\"version\"} 1",
            "kubelet_runtime_operations_errors_total{operation_type=\"run_podsandbox\"} 1",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"run_podsandbox\",le=\"0.0125\"} 2",
            "kubelet_pod_start_duration_seconds_count 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
        }
    }
}
