//! The time of components: the time of day, and timers.
//!
//! Every component takes its time from the [`Clock`] in its options, so that a test can move the time of one control
//! plane while others in the same process, and all I/O, keep the machine's. A [`Hand`] moves a clock forward; timers
//! that become due ring at once. Time that belongs to I/O (timeouts of requests, leader election, retries of
//! connections) does not come from here: it passes as the machine's does.

use locks::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::time::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// A source of time. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    source: Source,
    /// The distance that a hand has moved it; missing for a clock that cannot be moved.
    shift: Option<Arc<Shift>>,
}

#[derive(Debug, Clone, Copy, Default)]
enum Source {
    /// The machine's.
    #[default]
    System,
    /// This time of day at this instant; it passes as the runtime's time does, which tests may pause.
    Since(Timestamp, Instant),
}

#[derive(Debug, Default)]
struct Shift {
    distance: watch::Sender<Duration>,
    periodic: Mutex<PeriodicTimers>,
    round_ended: Notify,
}

/// The periodic timers of a clock, by number.
#[derive(Debug, Default)]
struct PeriodicTimers {
    next_number: u64,
    /// Timers that wait, and the instant at which each ticks.
    waiting: HashMap<u64, Instant>,
    /// Timers that a move has made tick, and whose round has not ended.
    running: HashSet<u64>,
}

impl Shift {
    fn periodic(&self) -> MutexGuard<'_, PeriodicTimers> {
        self.periodic.lock()
    }
}

/// Moves a clock.
#[derive(Debug, Clone)]
pub struct Hand(Arc<Shift>);

impl Clock {
    /// The machine's time.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that shows `begin` now and passes as the Tokio runtime's time does, which tests may pause.
    #[must_use]
    pub fn starting_at(begin: Timestamp) -> Self {
        Self { source: Source::Since(begin, Instant::now()), shift: None }
    }

    /// A clock that starts with the machine's time and can be moved.
    #[must_use]
    pub fn movable() -> (Self, Hand) {
        let shift = Arc::new(Shift::default());
        (Self { source: Source::System, shift: Some(shift.clone()) }, Hand(shift))
    }

    fn distance(&self) -> Duration {
        self.shift.as_ref().map(|shift| *shift.distance.borrow()).unwrap_or_default()
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let now = match self.source {
            Source::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
            }
            Source::Since(begin, at) => begin.plus(at.elapsed()),
        };
        match &self.shift {
            Some(_) => now.plus(self.distance()),
            None => now,
        }
    }

    /// The time of day in whole seconds, as most fields of objects show it.
    #[must_use]
    pub fn now_seconds(&self) -> Timestamp {
        Timestamp { nanos: 0, ..self.now() }
    }

    /// The time by which durations are measured. It is ahead of the runtime's by the distance that the clock was moved.
    #[must_use]
    pub fn instant(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.distance()).unwrap_or(now)
    }

    /// Waits for a time by this clock.
    pub async fn sleep(&self, duration: Duration) {
        let now = self.instant();
        // A time beyond what can be counted does not come.
        match now.checked_add(duration) {
            Some(deadline) => self.sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }

    /// Waits until [`instant`](Self::instant) is at `deadline`.
    pub async fn sleep_until(&self, deadline: Instant) {
        let Some(shift) = &self.shift else { return tokio::time::sleep_until(deadline).await };
        let mut moves = shift.distance.subscribe();
        loop {
            let distance = *moves.borrow_and_update();
            let Some(at) = deadline.checked_sub(distance) else { return };
            tokio::select! {
                () = tokio::time::sleep_until(at) => return,
                // The sender is kept by `shift`.
                _ = moves.changed() => {}
            }
        }
    }

    /// Ticks at once and then once per period, later ticks counted from the last one.
    #[must_use]
    pub fn interval(&self, period: Duration) -> Interval {
        let number = self.shift.as_ref().map_or(0, |shift| {
            let mut periodic = shift.periodic();
            periodic.next_number = periodic.next_number.saturating_add(1);
            periodic.next_number
        });
        Interval { clock: self.clone(), period, next: self.instant(), number }
    }
}

/// A periodic timer. The work between two ticks is a round.
#[derive(Debug)]
pub struct Interval {
    clock: Clock,
    period: Duration,
    next: Instant,
    number: u64,
}

impl Interval {
    /// Waits for the next tick, and ends the round before it.
    pub async fn tick(&mut self) {
        if let Some(shift) = &self.clock.shift {
            let mut periodic = shift.periodic();
            periodic.waiting.insert(self.number, self.next);
            if periodic.running.remove(&self.number) {
                shift.round_ended.notify_waiters();
            }
        }
        self.clock.sleep_until(self.next).await;
        let now = self.clock.instant();
        self.next = now.checked_add(self.period).unwrap_or(now);
        if let Some(shift) = &self.clock.shift {
            shift.periodic().waiting.remove(&self.number);
        }
    }
}

impl Drop for Interval {
    fn drop(&mut self) {
        if let Some(shift) = &self.clock.shift {
            let mut periodic = shift.periodic();
            periodic.waiting.remove(&self.number);
            periodic.running.remove(&self.number);
            shift.round_ended.notify_waiters();
        }
    }
}

impl Hand {
    /// Moves the clock forward, and waits until the periodic tasks that became due have done a round. Returns whether
    /// they have within `patience`, which is time of the machine.
    ///
    /// A move beyond a period makes a periodic task tick once, not several times: move in steps where that matters.
    pub async fn advance(&self, by: Duration, patience: Duration) -> bool {
        self.0.distance.send_modify(|distance| *distance = distance.saturating_add(by));
        {
            let distance = *self.0.distance.borrow();
            let now = Instant::now();
            let now = now.checked_add(distance).unwrap_or(now);
            let mut periodic = self.0.periodic();
            let due: Vec<u64> = periodic.waiting.iter().filter(|(_, at)| **at <= now).map(|(it, _)| *it).collect();
            periodic.running.extend(due);
        }
        let ended = async {
            loop {
                let mut notified = pin!(self.0.round_ended.notified());
                // Enabled before the look, so that no end is missed in between.
                notified.as_mut().enable();
                if self.0.periodic().running.is_empty() {
                    return;
                }
                notified.await;
            }
        };
        tokio::time::timeout(patience, ended).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn moved_clock_rings_due_timers_only() {
        let (clock, hand) = Clock::movable();
        let (begin, start) = (clock.now(), Instant::now());
        let sleeper = clock.clone();
        let soon = tokio::spawn(async move { sleeper.sleep(MINUTE).await });
        let sleeper = clock.clone();
        let later = tokio::spawn(async move { sleeper.sleep(MINUTE * 10).await });
        tokio::task::yield_now().await;
        assert!(hand.advance(MINUTE * 5, MINUTE).await);
        soon.await.unwrap();
        assert!(!later.is_finished());
        assert_eq!(Instant::now(), start, "no time of the runtime has passed");
        assert!(clock.now().seconds >= begin.seconds + 300);
        assert_eq!(clock.instant().duration_since(start), MINUTE * 5);
        later.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn advance_waits_for_the_rounds_of_periodic_tasks() {
        let (clock, hand) = Clock::movable();
        let rounds = Arc::new(Mutex::new(0));
        let (counted, periodic) = (rounds.clone(), clock.clone());
        let task = tokio::spawn(async move {
            let mut ticks = periodic.interval(MINUTE);
            loop {
                ticks.tick().await;
                // Work that takes a while.
                tokio::time::sleep(Duration::from_millis(5)).await;
                *counted.lock() += 1;
            }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*rounds.lock(), 1, "the first tick comes at once");
        for expected in 2..5 {
            assert!(hand.advance(MINUTE, MINUTE).await);
            assert_eq!(*rounds.lock(), expected);
        }
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn advance_gives_up_on_a_round_that_does_not_end() {
        let (clock, hand) = Clock::movable();
        let periodic = clock.clone();
        let task = tokio::spawn(async move {
            let mut ticks = periodic.interval(MINUTE);
            ticks.tick().await;
            ticks.tick().await;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        assert!(!hand.advance(MINUTE, Duration::from_secs(1)).await);
        task.abort();
        let _ = task.await;
        assert!(hand.advance(MINUTE, Duration::from_secs(1)).await, "a dropped timer is not waited for");
    }

    #[tokio::test(start_paused = true)]
    async fn clock_of_the_runtime_passes_with_paused_time() {
        let clock = Clock::starting_at(Timestamp { seconds: 1_800_000_000, nanos: 0 });
        tokio::time::sleep(MINUTE).await;
        assert_eq!(clock.now(), Timestamp { seconds: 1_800_000_060, nanos: 0 });
    }

    #[tokio::test(start_paused = true)]
    async fn clocks_move_apart() {
        let ((first, hand), (second, _)) = (Clock::movable(), Clock::movable());
        hand.advance(MINUTE, MINUTE).await;
        assert!(first.now().seconds - second.now().seconds >= 59);
    }
}
