//! Metrics of the scheduler, under Kubernetes' names; those of expressions (`scheduler_cel_…`) come from the
//! cache of expressions.
//!
//! What every attempt counts is gathered here and shown every now and then: looking up a series costs more than a plugin.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::json::Text;
use scheduling::cycle::Evaluation;
use scheduling::framework::{Code, Hint, Point};
use scheduling::queue::Lengths;
use scheduling::timing::{EventTiming, SUCCESS, Timing};
use scheduling::{Attempt, Scheduler};
use telemetry::metrics::{Counter, Family, Gauge, Histogram, Registry};
use tokio::time::Instant;

/// Histogram buckets in seconds: from 1 ms, doubled fourteen times.
const SECONDS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// From 0.1 ms, doubled eleven times.
const POINT_SECONDS: &[f64] =
    &[0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048];

/// From 10 µs, each half as much again as the one before.
const PLUGIN_SECONDS: &[f64] = &[
    0.00001,
    0.000015,
    0.0000225,
    0.00003375,
    0.000050625,
    0.0000759375,
    0.00011390625,
    0.000170859375,
    0.0002562890625,
    0.00038443359375,
    0.000576650390625,
    0.0008649755859375,
    0.00129746337890625,
    0.001946195068359375,
    0.0029192926025390625,
    0.004378938903808594,
    0.006568408355712891,
    0.009852612533569337,
    0.014778918800354004,
    0.022168378200531006,
];

/// From 10 ms, doubled nineteen times.
const SLI_SECONDS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
    1310.72, 2621.44, 5242.88,
];

/// The plugin that preempts pods.
const DEFAULT_PREEMPTION: &str = "DefaultPreemption";

/// Parts of the queue.
const QUEUES: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];

/// Attempts beyond these are one series.
const ATTEMPTS_SHOWN: u32 = 15;

/// The scheduler's metrics.
#[derive(Clone)]
pub struct Metrics {
    attempts: Arc<Family<Counter>>,
    durations: Arc<Family<Histogram>>,
    algorithm: Arc<Histogram>,
    pod_attempts: Arc<Histogram>,
    sli: Arc<Family<Histogram>>,
    after_flush: Arc<Counter>,
    victims: Arc<Histogram>,
    preempted: Arc<Family<Counter>>,
    preempting: Arc<Family<Histogram>>,
    calls: Arc<Family<Counter>>,
    call_durations: Arc<Family<Histogram>>,
    calls_pending: Arc<Family<Gauge>>,
    points: Arc<Family<Histogram>>,
}

/// Writes that run in parallel to the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A binding.
    Bind,
    /// A pod's status.
    PatchStatus,
}

impl Call {
    /// Kubernetes' name for it.
    fn name(self) -> &'static str {
        match self {
            Call::Bind => "pod_binding",
            Call::PatchStatus => "pod_status_patch",
        }
    }
}

/// Metrics of the task that owns the core.
pub struct CoreMetrics {
    entities: [Arc<Gauge>; 4],
    incoming_entities: Arc<Family<Counter>>,
    events: Arc<Family<Histogram>>,
    hints: Arc<Family<Histogram>>,
    evaluations: Arc<Family<Counter>>,
    points: Arc<Family<Histogram>>,
    preemptions: Arc<Counter>,
    plugins: Arc<Family<Histogram>>,
    incoming: Arc<Family<Counter>>,
    unschedulable: Arc<Family<Gauge>>,
    pending: [Arc<Gauge>; 4],
    cache: [Arc<Gauge>; 3],
    binding: Arc<Gauge>,
    evaluated: HashMap<(&'static str, Point, &'static str, Text), u64>,
    timed: HashMap<(Point, &'static str, &'static str, Text), Arc<Histogram>>,
}

impl Metrics {
    /// Creates the metrics and registers them; `registry` must not contain them yet.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
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
            algorithm: seconds(
                "scheduler_scheduling_algorithm_duration_seconds",
                "[ALPHA] Scheduling algorithm latency in seconds",
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
            sli: registry.family(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "[BETA] E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue and \
                 might involve multiple scheduling attempts.",
                &["attempts"],
                SLI_SECONDS,
            ),
            after_flush: registry
                .family::<Counter>(
                    "scheduler_pod_scheduled_after_flush_total",
                    "[ALPHA] Number of pods that were successfully scheduled after being flushed because they waited too \
                     long.",
                    &[],
                    &[],
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
            preempted: registry.family(
                "scheduler_preemption_goroutines_execution_total",
                "[ALPHA] Number of preemption tasks executed.",
                &["result"],
                &[],
            ),
            preempting: registry.family(
                "scheduler_preemption_goroutines_duration_seconds",
                "[ALPHA] Duration in seconds for running tasks for the preemption.",
                &["result"],
                SLI_SECONDS,
            ),
            calls: registry.family(
                "scheduler_async_api_call_execution_total",
                "[ALPHA] Total number of API calls executed by the async dispatcher.",
                &["call_type", "result"],
                &[],
            ),
            call_durations: seconds(
                "scheduler_async_api_call_execution_duration_seconds",
                "[ALPHA] Duration in seconds for executing API call in the async dispatcher.",
                &["call_type", "result"],
            ),
            calls_pending: registry.family(
                "scheduler_pending_async_api_calls",
                "[ALPHA] Number of API calls currently pending in the async queue.",
                &["call_type"],
                &[],
            ),
            points: registry.family(
                "scheduler_framework_extension_point_duration_seconds",
                "[STABLE] Latency for running all plugins of a specific extension point.",
                &["extension_point", "status", "profile"],
                POINT_SECONDS,
            ),
        }
    }

    /// Records the result of an attempt: `scheduled`, `unschedulable` or `error`.
    pub fn attempted(&self, result: &str, profile: &str, duration: Duration) {
        self.attempts.with(&[result, profile]).increment();
        self.durations.with(&[result, profile]).observe_duration(duration);
    }

    /// Carries out a call beside scheduling.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn call<T, E>(&self, call: Call, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let (begun, pending) = (Instant::now(), self.calls_pending.with(&[call.name()]));
        pending.add(1);
        let done = work.await;
        pending.add(-1);
        let result = if done.is_ok() { "success" } else { "error" };
        self.calls.with(&[call.name(), result]).increment();
        self.call_durations.with(&[call.name(), result]).observe_duration(begun.elapsed());
        done
    }

    /// Records a preemption; `is_done` if all victims were deleted.
    pub fn made_room(&self, is_done: bool, duration: Duration) {
        let result = if is_done { "success" } else { "error" };
        self.preempted.with(&[result]).increment();
        self.preempting.with(&[result]).observe_duration(duration);
    }

    /// Runs the part of an extension point that is outside the core, and records its duration.
    ///
    /// # Errors
    /// Those of the work.
    pub async fn point<T, E>(
        &self,
        point: Point,
        profile: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let begun = Instant::now();
        let done = work.await;
        let status = if done.is_ok() { SUCCESS } else { Code::Error.name() };
        self.points.with(&[&point.to_string(), status, profile]).observe_duration(begun.elapsed());
        done
    }

    /// Records the duration of a decision of the core.
    pub fn decided(&self, duration: Duration) {
        self.algorithm.observe_duration(duration);
    }

    /// Records the binding of a pod: the number of attempts, and the time since the first one.
    pub fn bound(&self, attempts: u32, since_first: Duration, was_flushed: bool) {
        self.pod_attempts.observe(f64::from(attempts));
        let shown = if attempts > ATTEMPTS_SHOWN { format!("{ATTEMPTS_SHOWN}+") } else { attempts.to_string() };
        self.sli.with(&[&shown]).observe_duration(since_first);
        if was_flushed {
            self.after_flush.increment();
        }
    }

    /// Room is made by this many victims.
    pub fn preempting(&self, victims: usize) {
        self.victims.observe(f64::from(u32::try_from(victims).unwrap_or(u32::MAX)));
    }
}

impl CoreMetrics {
    /// Creates the metrics and registers them; `registry` must not contain them yet.
    #[must_use]
    pub fn new(registry: &Registry, metrics: &Metrics) -> Self {
        let gauge = |name, help, labels| registry.family::<Gauge>(name, help, labels, &[]);
        let pending =
            gauge("scheduler_pending_pods", "[STABLE] Number of pending pods, by the queue type.", &["queue"]);
        let cache = gauge(
            "scheduler_cache_size",
            "[ALPHA] Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            &["type"],
        );
        let tasks = gauge(
            "scheduler_goroutines",
            "[ALPHA] Number of running tasks split by the work they do such as binding.",
            &["operation"],
        );
        let entities = gauge(
            "scheduler_queued_entities",
            "[ALPHA] Number of queued scheduling entities by the queue type. All of them are pods.",
            &["queue", "type"],
        );
        Self {
            entities: QUEUES.map(|queue| entities.with(&[queue, "pod"])),
            incoming_entities: registry.family(
                "scheduler_queue_incoming_entities_total",
                "[ALPHA] Number of scheduling entities added to scheduling queues by event, queue type, and entity type. \
                 All of them are pods.",
                &["queue", "event", "type"],
                &[],
            ),
            events: registry.family(
                "scheduler_event_handling_duration_seconds",
                "[ALPHA] Event handling latency in seconds.",
                &["event"],
                POINT_SECONDS,
            ),
            hints: registry.family(
                "scheduler_queueing_hint_execution_duration_seconds",
                "[ALPHA] Duration for running a queueing hint function of a plugin.",
                &["plugin", "event", "hint"],
                PLUGIN_SECONDS,
            ),
            evaluations: registry.family(
                "scheduler_plugin_evaluation_total",
                "[ALPHA] Number of attempts to schedule pods by each plugin and the extension point (available only in \
                 PreFilter, Filter, PreScore, and Score).",
                &["plugin", "extension_point", "status", "profile"],
                &[],
            ),
            points: metrics.points.clone(),
            preemptions: registry
                .family::<Counter>(
                    "scheduler_preemption_attempts_total",
                    "[STABLE] Total preemption attempts in the cluster till now",
                    &[],
                    &[],
                )
                .with(&[]),
            plugins: registry.family(
                "scheduler_plugin_execution_duration_seconds",
                "[ALPHA] Duration for running a plugin at a specific extension point.",
                &["plugin", "extension_point", "status"],
                PLUGIN_SECONDS,
            ),
            incoming: registry.family(
                "scheduler_queue_incoming_pods_total",
                "[STABLE] Number of pods added to scheduling queues by event and queue type.",
                &["queue", "event"],
                &[],
            ),
            unschedulable: gauge(
                "scheduler_unschedulable_pods",
                "[ALPHA] The number of unschedulable pods broken down by plugin name. A pod will increment the gauge for \
                 all plugins that caused it to not schedule and so this metric have meaning only when broken down by \
                 plugin.",
                &["plugin", "profile"],
            ),
            pending: QUEUES.map(|queue| pending.with(&[queue])),
            cache: ["nodes", "pods", "assumed_pods"].map(|kind| cache.with(&[kind])),
            binding: tasks.with(&["binding"]),
            evaluated: HashMap::new(),
            timed: HashMap::new(),
        }
    }

    /// Records the results and durations of plugins.
    pub fn asked(&mut self, attempt: &Attempt, profile: &Text) {
        for Evaluation { plugin, point, status, count } in &attempt.evaluations {
            let known = self.evaluated.entry((*plugin, *point, *status, profile.clone())).or_default();
            *known = known.saturating_add(u64::try_from(*count).unwrap_or(u64::MAX));
        }
        for timing in &attempt.timings {
            if timing.point == Point::PostFilter && timing.plugin == DEFAULT_PREEMPTION {
                self.preemptions.increment();
            }
            // Plugins have no profile in Kubernetes' labels.
            let profile = if timing.plugin.is_empty() { profile.clone() } else { Text::default() };
            let key = (timing.point, timing.plugin, timing.status, profile);
            let (points, plugins) = (&self.points, &self.plugins);
            let series = self.timed.entry(key).or_insert_with_key(|(point, plugin, status, profile)| match *plugin {
                "" => points.with(&[&point.to_string(), status, profile]),
                plugin => plugins.with(&[plugin, &point.to_string(), status]),
            });
            series.observe_duration(per_call(timing));
        }
    }

    /// Publishes the collected counts, and those of the core.
    pub fn show(&mut self, core: &mut Scheduler) {
        for ((plugin, point, status, profile), count) in self.evaluated.drain() {
            self.evaluations.with(&[plugin, &point.to_string(), status, &profile]).add(count);
        }
        for (queue, cause, count) in core.take_moves() {
            let cause = cause.to_string();
            self.incoming.with(&[queue, &cause]).add(count);
            self.incoming_entities.with(&[queue, &cause, "pod"]).add(count);
        }
        for (profile, plugin, count) in core.rejected_by() {
            self.unschedulable.with(&[plugin, profile]).set(number(count));
        }
        let Lengths { active, backoff, unschedulable, gated } = core.lengths();
        let lengths = [active, backoff, unschedulable, gated];
        for ((pods, entities), length) in self.pending.iter().zip(&self.entities).zip(lengths) {
            pods.set(number(length));
            entities.set(number(length));
        }
        for EventTiming { event, hint, duration } in core.take_event_timings() {
            let event = event.to_string();
            match hint {
                None => self.events.with(&[&event]).observe_duration(duration),
                Some((plugin, hint)) => {
                    let hint = if hint == Hint::Queue { "Queue" } else { "QueueSkip" };
                    self.hints.with(&[plugin, &event, hint]).observe_duration(duration);
                }
            }
        }
        let cluster = &core.cluster().cache;
        let (pods, assumed) = cluster.pod_counts();
        let sizes = [cluster.order().len(), pods, assumed];
        for (gauge, size) in self.cache.iter().zip(sizes) {
            gauge.set(number(size));
        }
        self.binding.set(number(core.binding_count()));
    }
}

/// Kubernetes measures a filter once per node.
fn per_call(timing: &Timing) -> Duration {
    timing.duration.checked_div(timing.calls.max(1)).unwrap_or(timing.duration)
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
