//! The budget of one attempt: how much its expressions may cost before it has to stop and try again later.
//!
//! An attempt is one try to schedule a pod, one reconciliation, one eviction check, or one admission on a node.
//! Once its budget is used up, expressions without a cached verdict are not evaluated and have no result, which
//! is not cached either: the owner of the meter discards the attempt and retries after a back-off. Verdicts
//! found until then stay cached, so that the next attempt continues where this one stopped.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use cel_kubernetes::cache::Clock;

/// Run-time cost that one attempt may spend.
pub const COST_MAX: u64 = 10_000_000;

/// Processor time that one attempt may spend.
pub const TIME_MAX: Duration = Duration::from_millis(200);

/// Meters the cost of an attempt's expressions.
pub struct Meter {
    cost_max: u64,
    time_max: Duration,
    clock: Clock,
    cost: AtomicU64,
    /// Time when the first expression was compiled or evaluated, in nanoseconds; 0 before.
    started: AtomicU64,
    /// Nanoseconds that evaluations took. Checked after each evaluation: prices do not grow with the size of
    /// all results, so the cost alone does not bound the time.
    taken: AtomicU64,
    /// Nanoseconds that count as taken from the beginning.
    taken_before: AtomicU64,
    /// The attempt has one part of this many of the budget.
    parts: AtomicU32,
    state: AtomicU8,
}

/// The limit that an attempt exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Excess {
    /// Run-time cost.
    Cost(u64),
    /// Processor time.
    Time(Duration),
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Excess::Cost(limit) => write!(f, "run-time cost {limit}"),
            Excess::Time(limit) => write!(f, "processor time {limit:?}"),
        }
    }
}

const WITHIN: u8 = 0;
const ABOVE_COST: u8 = 1;
const ABOVE_TIME: u8 = 2;

impl Meter {
    /// A meter with the usual limits. `clock` gives the processor time of the calling thread.
    pub fn new(clock: Clock) -> Self {
        Self::with_limits(COST_MAX, TIME_MAX, clock)
    }

    /// A meter with other limits.
    pub fn with_limits(cost_max: u64, time_max: Duration, clock: Clock) -> Self {
        Meter {
            cost_max,
            time_max,
            clock,
            cost: AtomicU64::new(0),
            started: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            taken_before: AtomicU64::new(0),
            parts: AtomicU32::new(1),
            state: AtomicU8::new(WITHIN),
        }
    }

    /// Begins an attempt with the full budget.
    pub fn begin(&self) {
        self.cost.store(0, Ordering::Relaxed);
        self.started.store(0, Ordering::Relaxed);
        self.taken.store(0, Ordering::Relaxed);
        self.taken_before.store(0, Ordering::Relaxed);
        self.parts.store(1, Ordering::Relaxed);
        self.state.store(WITHIN, Ordering::Relaxed);
    }

    /// Like [`begin`](Self::begin), with only this part of the budget.
    pub fn begin_with_part(&self, parts: u32) {
        self.begin();
        self.parts.store(parts.max(1), Ordering::Relaxed);
        let spent = |limit: u64| limit.saturating_sub(limit.checked_div(u64::from(parts)).unwrap_or(0));
        self.cost.store(spent(self.cost_max), Ordering::Relaxed);
        self.taken.store(spent(nanoseconds(self.time_max)), Ordering::Relaxed);
        self.taken_before.store(spent(nanoseconds(self.time_max)), Ordering::Relaxed);
    }

    /// Whether an evaluation was left out in this attempt: then its answers cannot be used.
    pub fn is_exceeded(&self) -> bool {
        self.state.load(Ordering::Relaxed) != WITHIN
    }

    /// The limit that kept an evaluation from being made.
    pub fn excess(&self) -> Option<Excess> {
        match self.state.load(Ordering::Relaxed) {
            WITHIN => None,
            ABOVE_COST => Some(Excess::Cost(self.cost_max)),
            _ => Some(Excess::Time(self.time_max)),
        }
    }

    /// Run-time cost so far.
    pub fn cost(&self) -> u64 {
        self.cost.load(Ordering::Relaxed)
    }

    /// Returns the used part of the budget as a cost: that of the evaluations, or the share of the time that
    /// they took.
    pub fn spent(&self) -> u64 {
        let parts = u64::from(self.parts.load(Ordering::Relaxed));
        let before = self.cost_max.saturating_sub(self.cost_max.checked_div(parts).unwrap_or(0));
        let cost = self.cost().saturating_sub(before);
        let taken = self.taken.load(Ordering::Relaxed).saturating_sub(self.taken_before.load(Ordering::Relaxed));
        let share = u128::from(taken).saturating_mul(u128::from(COST_MAX));
        let by_time = share.checked_div(u128::from(nanoseconds(self.time_max))).unwrap_or(0);
        let spent = cost.max(u64::try_from(by_time).unwrap_or(u64::MAX));
        let all = COST_MAX.checked_div(parts).unwrap_or(COST_MAX);
        if self.is_exceeded() { spent.max(all) } else { spent }
    }

    /// Counts the time of work that belongs to the attempt and has no cost, such as compiling.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        self.start();
        let result = work();
        self.add(0);
        result
    }

    fn start(&self) {
        if self.started.load(Ordering::Relaxed) == 0 {
            self.started.store(nanoseconds((self.clock)()).max(1), Ordering::Relaxed);
        }
    }

    /// Whether another evaluation may be made.
    pub(super) fn admits(&self) -> bool {
        if self.is_exceeded() {
            return false;
        }
        if self.cost() >= self.cost_max {
            self.state.store(ABOVE_COST, Ordering::Relaxed);
            return false;
        }
        if self.taken.load(Ordering::Relaxed) >= nanoseconds(self.time_max) {
            self.state.store(ABOVE_TIME, Ordering::Relaxed);
            return false;
        }
        self.start();
        true
    }

    /// Adds the cost of an evaluation.
    pub(super) fn add(&self, cost: u64) {
        self.cost.fetch_add(cost, Ordering::Relaxed);
        let running = nanoseconds((self.clock)()).saturating_sub(self.started.load(Ordering::Relaxed));
        let taken = self.taken_before.load(Ordering::Relaxed).saturating_add(running);
        self.taken.store(taken, Ordering::Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("cost", &self.cost()).field("excess", &self.excess()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn cost_limit_ends_an_attempt() {
        let meter = Meter::with_limits(100, Duration::MAX, Arc::new(|| Duration::ZERO));
        assert!(meter.admits());
        meter.add(99);
        assert!(meter.admits() && !meter.is_exceeded());
        meter.add(1);
        assert!(!meter.admits() && !meter.admits());
        assert_eq!(meter.excess(), Some(Excess::Cost(100)));
        meter.begin();
        assert!(meter.admits() && meter.excess().is_none());
    }

    #[test]
    fn time_limit_ends_an_attempt() {
        let time = Arc::new(AtomicU64::new(5));
        let read = time.clone();
        let clock = Arc::new(move || Duration::from_millis(read.load(Ordering::Relaxed)));
        let meter = Meter::new(clock);
        meter.begin();
        assert!(meter.admits(), "time runs from the first evaluation on");
        time.store(105, Ordering::Relaxed);
        meter.add(1);
        assert_eq!(meter.spent(), COST_MAX / 2, "half of the time");
        assert!(meter.admits());
        time.store(205, Ordering::Relaxed);
        meter.add(1);
        assert!(!meter.admits());
        assert_eq!(meter.excess().map(|it| it.to_string()).as_deref(), Some("processor time 200ms"));
        meter.begin_with_part(20);
        assert!(meter.admits());
        assert_eq!(meter.spent(), 0, "the other parts were not spent by this attempt");
        time.store(215, Ordering::Relaxed);
        meter.add(1);
        assert!(!meter.admits());
        assert_eq!(meter.spent(), COST_MAX / 20);
        meter.begin();
        meter.measure(|| time.store(315, Ordering::Relaxed));
        assert_eq!(meter.spent(), COST_MAX / 2, "compiling takes time, too");
    }
}
