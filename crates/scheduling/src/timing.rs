//! How long plugins take, where the caller gives a clock.
//!
//! Whole extension points are measured in every attempt, single plugins in one of [`SAMPLED`], or in all of them while a
//! profile is taken: asking the time about every node would cost more than many plugins do.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::{NodeId, NodeInfo, PodInfo};
use crate::framework::{Dependencies, Event, Filter, Hint, Point, Score, Status};

/// What a plugin says that is for the pod.
pub const SUCCESS: &str = "Success";
/// What a plugin says that has nothing to say.
pub const SKIP: &str = "Skip";

/// Single plugins are measured in one of this many attempts. Kubernetes: 10 %.
pub const SAMPLED: u64 = 10;

/// The time since a moment of the caller's choice.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// A clock that asks the caller.
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

/// How long something took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Where.
    pub point: Point,
    /// The plugin; empty for all plugins of the point together.
    pub plugin: &'static str,
    /// What came of it: `Success`, `Unschedulable` and so on.
    pub status: &'static str,
    /// How long.
    pub duration: Duration,
    /// In how many calls.
    pub calls: u32,
}

/// How long what followed a change took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTiming {
    /// What happened.
    pub event: Event,
    /// The plugin that was asked whether it helps, and its answer; nothing for the change as a whole.
    pub hint: Option<(&'static str, Hint)>,
    /// How long.
    pub duration: Duration,
}

/// How many are kept until somebody takes them; of more there is a sample.
const EVENTS_KEPT: usize = 1024;

/// What followed changes, measured where there is a clock.
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
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < EVENTS_KEPT {
            kept.push(EventTiming { event, hint, duration });
        }
        done
    }

    pub(crate) fn take(&self) -> Vec<EventTiming> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
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

    /// Whether single plugins are measured.
    pub(crate) fn by_plugin(&self) -> Option<Clock> {
        self.clock.clone().filter(|_| self.by_plugin)
    }

    /// The time, if somebody wants to know.
    pub(crate) fn begin(&self) -> Option<Duration> {
        self.clock.as_ref().map(Clock::now)
    }

    /// As [`begin`](Self::begin), for single plugins.
    pub(crate) fn begin_plugin(&self) -> Option<Duration> {
        if self.by_plugin { self.begin() } else { None }
    }

    /// Something that began then has ended.
    pub(crate) fn end(&mut self, begun: Option<Duration>, point: Point, plugin: &'static str, status: &'static str) {
        if let (Some(begun), Some(now)) = (begun, self.begin()) {
            let duration = now.saturating_sub(begun);
            self.timings.push(Timing { point, plugin, status, duration, calls: 1 });
        }
    }

    /// How much was measured so far.
    pub(crate) fn mark(&self) -> usize {
        self.timings.len()
    }

    /// Forgets what was measured since.
    pub(crate) fn rewind(&mut self, mark: usize) {
        self.timings.truncate(mark);
    }

    /// Adds what was measured elsewhere.
    pub(crate) fn add(&mut self, timing: Timing) {
        self.timings.push(timing);
    }

    /// What was measured.
    pub(crate) fn into_timings(self) -> Vec<Timing> {
        self.timings
    }
}

/// The name of what came of something.
pub(crate) fn status_of<T>(result: &Result<T, Status>) -> &'static str {
    result.as_ref().err().map_or(SUCCESS, |status| status.code.name())
}

/// What a plugin has spent on nodes, and in how many calls.
pub(crate) type Spent = Rc<Cell<(Duration, u32)>>;

/// A filter whose calls are measured.
pub(crate) struct TimedFilter<'c> {
    pub(crate) filter: Box<dyn Filter + 'c>,
    pub(crate) clock: Clock,
    pub(crate) spent: Spent,
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
    pub(crate) spent: Spent,
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

fn spending<T>(clock: &Clock, spent: &Spent, work: impl FnOnce() -> T) -> T {
    let begun = clock.now();
    let done = work();
    let (before, calls) = spent.get();
    let took = clock.now().saturating_sub(begun);
    spent.set((before.saturating_add(took), calls.saturating_add(1)));
    done
}
