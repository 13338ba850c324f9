//! Metrics of queues, under the names of client-go's queues.

use locks::Mutex;
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::Duration;

use clock::Clock;
use telemetry::metrics::{Counter, Family, Histogram, Registry};

use super::{Backoff, Bucket, Queue};

/// Bounds of the durations, as client-go has them: 10 ns to 10 s.
const SECONDS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// Counters of a queue.
#[derive(Default)]
pub(super) struct Counts(Option<Series>);

struct Series {
    adds: Arc<Counter>,
    retries: Arc<Counter>,
    waiting: Arc<Histogram>,
    working: Arc<Histogram>,
}

impl Counts {
    pub(super) fn added(&self) {
        if let Some(series) = &self.0 {
            series.adds.increment();
        }
    }

    pub(super) fn retried(&self) {
        if let Some(series) = &self.0 {
            series.retries.increment();
        }
    }

    pub(super) fn taken(&self, waited: Duration) {
        if let Some(series) = &self.0 {
            series.waiting.observe_duration(waited);
        }
    }

    pub(super) fn worked(&self, duration: Duration) {
        if let Some(series) = &self.0 {
            series.working.observe_duration(duration);
        }
    }
}

/// Values of a queue that are read on each scrape.
#[derive(Clone, Copy)]
struct QueueReading {
    depth: usize,
    unfinished: Duration,
    longest: Duration,
}

type ReadFn = Box<dyn Fn() -> Option<QueueReading> + Send + Sync>;
/// The queues that are measured, by name.
type Queues = Arc<Mutex<Vec<(String, ReadFn)>>>;

/// The `workqueue_*` metrics of all queues of a component.
#[derive(Clone)]
pub struct Metrics {
    adds: Arc<Family<Counter>>,
    retries: Arc<Family<Counter>>,
    waiting: Arc<Family<Histogram>>,
    working: Arc<Family<Histogram>>,
    queues: Queues,
}

impl Metrics {
    /// Registers the metrics with `registry`, which must not have them yet.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        let labels: &[&str] = &["name"];
        let queues = Queues::default();
        let gauge = |name, help, value: fn(QueueReading) -> f64| {
            let queues = queues.clone();
            registry.computed(name, help, labels, move || {
                let mut queues = queues.lock();
                queues.retain(|(_, read)| read().is_some());
                queues.iter().filter_map(|(name, read)| Some((vec![name.clone()], value(read()?)))).collect()
            });
        };
        gauge("workqueue_depth", "[BETA] Current depth of workqueue", |reading| {
            f64::from(u32::try_from(reading.depth).unwrap_or(u32::MAX))
        });
        gauge(
            "workqueue_unfinished_work_seconds",
            "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. \
             Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at \
             which this increases.",
            |reading| reading.unfinished.as_secs_f64(),
        );
        gauge(
            "workqueue_longest_running_processor_seconds",
            "[BETA] How many seconds has the longest running processor for workqueue been running.",
            |reading| reading.longest.as_secs_f64(),
        );
        Self {
            adds: registry.family(
                "workqueue_adds_total",
                "[BETA] Total number of adds handled by workqueue",
                labels,
                &[],
            ),
            retries: registry.family(
                "workqueue_retries_total",
                "[BETA] Total number of retries handled by workqueue",
                labels,
                &[],
            ),
            waiting: registry.family(
                "workqueue_queue_duration_seconds",
                "[BETA] How long in seconds an item stays in workqueue before being requested.",
                labels,
                SECONDS,
            ),
            working: registry.family(
                "workqueue_work_duration_seconds",
                "[BETA] How long in seconds processing an item from workqueue takes.",
                labels,
                SECONDS,
            ),
            queues,
        }
    }

    /// A queue that is measured under a name.
    #[must_use]
    pub fn queue<K>(&self, name: &str, backoff: Backoff, bucket: Option<Bucket>, clock: &Clock) -> Arc<Queue<K>>
    where
        K: Clone + Eq + Hash + Send + 'static,
    {
        let counts = Counts(Some(Series {
            adds: self.adds.with(&[name]),
            retries: self.retries.with(&[name]),
            waiting: self.waiting.with(&[name]),
            working: self.working.with(&[name]),
        }));
        let queue = Arc::new(Queue::counting(backoff, bucket, counts, clock.clone()));
        let known: Weak<Queue<K>> = Arc::downgrade(&queue);
        let read = move || known.upgrade().map(|queue| queue.reading());
        let mut queues = self.queues.lock();
        queues.retain(|(it, _)| it != name);
        queues.push((name.to_owned(), Box::new(read)));
        queue
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    fn reading(&self) -> QueueReading {
        let depth = self.len();
        let now = self.clock.instant();
        let state = self.lock();
        let running = state.working.values().map(|since| now.saturating_duration_since(*since));
        QueueReading {
            depth,
            unfinished: running.clone().fold(Duration::ZERO, Duration::saturating_add),
            longest: running.max().unwrap_or_default(),
        }
    }
}
