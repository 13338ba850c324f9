//! What the scheduler counts, under Kubernetes' names.

use std::sync::Arc;
use std::time::Duration;

use scheduling::cycle::Evaluation;
use scheduling::queue::Lengths;
use telemetry::metrics::{Counter, Family, Gauge, Histogram, Registry};

/// From 1 ms, doubled fourteen times.
const SECONDS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// The scheduler's metrics.
#[derive(Clone)]
pub struct Metrics {
    attempts: Arc<Family<Counter>>,
    durations: Arc<Family<Histogram>>,
    evaluations: Arc<Family<Counter>>,
    algorithm: Arc<Histogram>,
    pod_attempts: Arc<Histogram>,
    victims: Arc<Histogram>,
    preemptions: Arc<Counter>,
    pending: [Arc<Gauge>; 4],
}

impl Metrics {
    /// Shown by `registry`, which must not have them yet.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let pending = registry.family::<Gauge>(
            "scheduler_pending_pods",
            "[STABLE] Number of pending pods, by the queue type.",
            &["queue"],
            &[],
        );
        let seconds = |name, help, labels| registry.family::<Histogram>(name, help, labels, SECONDS);
        Self {
            attempts: registry.family(
                "scheduler_schedule_attempts_total",
                "[STABLE] Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be \
                 scheduled, while 'error' means an internal scheduler problem.",
                &["result", "profile"],
                &[],
            ),
            durations: seconds(
                "scheduler_scheduling_attempt_duration_seconds",
                "[STABLE] Scheduling attempt latency in seconds (scheduling algorithm + binding)",
                &["result", "profile"],
            ),
            evaluations: registry.family(
                "scheduler_plugin_evaluation_total",
                "[ALPHA] Number of attempts to schedule pods by each plugin and the extension point (available only in \
                 PreFilter, Filter, PreScore, and Score).",
                &["plugin", "extension_point", "status", "profile"],
                &[],
            ),
            algorithm: seconds(
                "scheduler_scheduling_algorithm_duration_seconds",
                "[BETA] Scheduling algorithm latency in seconds",
                &[],
            )
            .with(&[]),
            pod_attempts: registry
                .family::<Histogram>(
                    "scheduler_pod_scheduling_attempts",
                    "[STABLE] Number of attempts to successfully schedule a pod.",
                    &[],
                    &[1.0, 2.0, 4.0, 8.0, 16.0],
                )
                .with(&[]),
            victims: registry
                .family::<Histogram>(
                    "scheduler_preemption_victims",
                    "[STABLE] Number of selected preemption victims",
                    &[],
                    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0],
                )
                .with(&[]),
            preemptions: registry
                .family::<Counter>(
                    "scheduler_preemption_attempts_total",
                    "[STABLE] Total preemption attempts in the cluster till now",
                    &[],
                    &[],
                )
                .with(&[]),
            pending: ["active", "backoff", "unschedulable", "gated"].map(|queue| pending.with(&[queue])),
        }
    }

    /// An attempt has ended: `scheduled`, `unschedulable` or `error`.
    pub fn attempted(&self, result: &str, profile: &str, duration: Duration) {
        self.attempts.with(&[result, profile]).increment();
        self.durations.with(&[result, profile]).observe_duration(duration);
    }

    /// Plugins were asked.
    pub fn evaluated(&self, evaluations: &[Evaluation], profile: &str) {
        for Evaluation { plugin, point, status, count } in evaluations {
            let series = self.evaluations.with(&[plugin, &format!("{point:?}"), status, profile]);
            series.add(u64::try_from(*count).unwrap_or(u64::MAX));
        }
    }

    /// The core has decided.
    pub fn decided(&self, duration: Duration) {
        self.algorithm.observe_duration(duration);
    }

    /// A pod was bound after this many attempts.
    pub fn bound(&self, attempts: u32) {
        self.pod_attempts.observe(f64::from(attempts));
    }

    /// Room is made by this many victims.
    pub fn preempting(&self, victims: usize) {
        self.preemptions.increment();
        self.victims.observe(f64::from(u32::try_from(victims).unwrap_or(u32::MAX)));
    }

    /// So many pods wait.
    pub fn waiting(&self, lengths: Lengths) {
        let Lengths { active, backoff, unschedulable, gated } = lengths;
        for (gauge, length) in self.pending.iter().zip([active, backoff, unschedulable, gated]) {
            gauge.set(i64::try_from(length).unwrap_or(i64::MAX));
        }
    }
}
