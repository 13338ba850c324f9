//! Duration of plugins, if the caller gives a clock.
//!
//! Whole extension points are measured in every attempt, single plugins in one of [`SAMPLED`], or in all of them while a
//! profile is taken: asking the time about every node would cost more than many plugins do.

use locks::Mutex;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{NodeId, NodeInfo, PodInfo};
use crate::framework::{Dependencies, Event, Filter, Hint, Point, Score, Status};

/// Status of a plugin that accepts the pod.
pub const SUCCESS: &str = "Success";
/// Status of a plugin that does not apply.
pub const SKIP: &str = "Skip";

/// Single plugins are measured in one of this many attempts. Kubernetes: 10 %.
pub const SAMPLED: u64 = 10;

/// The time since a moment of the caller's choice.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that calls a function.
    pub fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

/// Duration of a plugin call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Extension point.
    pub point: Point,
    /// The plugin; empty for all plugins of the point together.
    pub plugin: &'static str,
    /// Result: `Success`, `Unschedulable` and so on.
    pub status: &'static str,
    /// Duration.
    pub duration: Duration,
    /// In how many calls.
    pub calls: u32,
}

/// Duration of event handling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTiming {
    /// The event.
    pub event: Event,
    /// The plugin whose hint was evaluated, and its result; `None` for the event as a whole.
    pub hint: Option<(&'static str, Hint)>,
    /// Duration.
    pub duration: Duration,
}

/// Maximum number of timings that are kept until they are taken; of more, a sample is kept.
const EVENTS_KEPT: usize = 1024;

/// Durations of event handling, measured if there is a clock.
#[derive(Debug, Default)]
pub(crate) struct EventTimings(Mutex<Vec<EventTiming>>);

impl EventTimings {
    /// Measures something.
    pub(crate) fn measure<T>(
        &self,
        clock: Option<&Clock>,
        work: impl FnOnce() -> T,
        what: impl FnOnce(&T) -> (Event, Option<(&'static str, Hint)>),
    ) -> T {
        let Some(clock) = clock else { return work() };
        let begun = clock.now();
        let done = work();
        let duration = clock.now().saturating_sub(begun);
        let (event, hint) = what(&done);
        let mut kept = self.0.lock();
        if kept.len() < EVENTS_KEPT {
            kept.push(EventTiming { event, hint, duration });
        }
        done
    }

    pub(crate) fn take(&self) -> Vec<EventTiming> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Measures one attempt.
#[derive(Default)]
pub struct Timer {
    clock: Option<Clock>,
    by_plugin: bool,
    timings: Vec<Timing>,
}

impl Timer {
    /// A timer that measures nothing.
    #[must_use]
    pub fn off() -> Self {
        Self::default()
    }

    /// A timer that measures extension points, and single plugins if `by_plugin`.
    #[must_use]
    pub fn new(clock: Option<Clock>, by_plugin: bool) -> Self {
        Self { by_plugin: by_plugin && clock.is_some(), clock, timings: Vec::new() }
    }

    /// The clock for the times of single plugins; none if they are not measured.
    pub(crate) fn by_plugin(&self) -> Option<Clock> {
        self.clock.clone().filter(|_| self.by_plugin)
    }

    /// The time, if measuring is enabled.
    pub(crate) fn begin(&self) -> Option<Duration> {
        self.clock.as_ref().map(Clock::now)
    }

    /// Like [`begin`](Self::begin), for single plugins.
    pub(crate) fn begin_plugin(&self) -> Option<Duration> {
        if self.by_plugin { self.begin() } else { None }
    }

    /// Records the end of a call that began at the given time.
    pub(crate) fn end(&mut self, begun: Option<Duration>, point: Point, plugin: &'static str, status: &'static str) {
        if let (Some(begun), Some(now)) = (begun, self.begin()) {
            let duration = now.saturating_sub(begun);
            self.timings.push(Timing { point, plugin, status, duration, calls: 1 });
        }
    }

    /// Number of measurements so far.
    pub(crate) fn mark(&self) -> usize {
        self.timings.len()
    }

    /// Discards the measurements since a mark.
    pub(crate) fn rewind(&mut self, mark: usize) {
        self.timings.truncate(mark);
    }

    /// Adds a measurement from elsewhere.
    pub(crate) fn add(&mut self, timing: Timing) {
        self.timings.push(timing);
    }

    /// The measurements.
    pub(crate) fn into_timings(self) -> Vec<Timing> {
        self.timings
    }
}

/// Status name of a result.
pub(crate) fn status_of<T>(result: &Result<T, Status>) -> &'static str {
    result.as_ref().err().map_or(SUCCESS, |status| status.code.name())
}

/// Time and number of calls that a plugin has used on nodes.
pub(crate) type FilterTime = Rc<Cell<(Duration, u32)>>;

/// A filter whose calls are measured.
pub(crate) struct TimedFilter<'c> {
    pub(crate) filter: Box<dyn Filter + 'c>,
    pub(crate) clock: Clock,
    pub(crate) spent: FilterTime,
}

impl Filter for TimedFilter<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        spending(&self.clock, &self.spent, || self.filter.filter(node))
    }

    fn pod_added(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.filter.pod_added(pod, node);
    }

    fn pod_removed(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.filter.pod_removed(pod, node);
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        self.filter.copy()
    }

    fn depends_on(&self) -> Dependencies {
        self.filter.depends_on()
    }
}

/// Scores whose calls are measured.
pub(crate) struct TimedScore<'c> {
    pub(crate) score: Box<dyn Score + 'c>,
    pub(crate) clock: Clock,
    pub(crate) spent: FilterTime,
}

impl Score for TimedScore<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        spending(&self.clock, &self.spent, || self.score.score(node))
    }

    fn normalize(&self, scores: &mut [(NodeId, i64)]) {
        self.score.normalize(scores);
    }

    fn is_relative(&self) -> bool {
        self.score.is_relative()
    }

    fn depends_on(&self) -> Dependencies {
        self.score.depends_on()
    }
}

fn spending<T>(clock: &Clock, spent: &FilterTime, work: impl FnOnce() -> T) -> T {
    let begun = clock.now();
    let done = work();
    let (before, calls) = spent.get();
    let took = clock.now().saturating_sub(begun);
    spent.set((before.saturating_add(took), calls.saturating_add(1)));
    done
}
