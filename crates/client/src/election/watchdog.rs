//! A thread outside of the runtime that acts when a leader did not renew its lease: where all workers of the runtime are
//! blocked, the code that gives up leadership does not run either.

use locks::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::logs::chain;
use tracing::warn;

/// Watches one term of leadership. Dropped at its end.
#[derive(Debug)]
pub(super) struct Watchdog {
    shared: Arc<SharedState>,
}

#[derive(Debug)]
struct SharedState {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Deadline for the next sign of the leader.
    deadline: Instant,
    is_over: bool,
}

impl Watchdog {
    /// Calls `expired` from a separate thread if the deadline passes.
    pub(super) fn start(left: Duration, expired: Arc<dyn Fn() + Send + Sync>) -> Self {
        let deadline = deadline(left);
        let shared =
            Arc::new(SharedState { state: Mutex::new(State { deadline, is_over: false }), changed: Condvar::new() });
        let watched = shared.clone();
        let started = std::thread::Builder::new().name("lease-watchdog".to_owned()).spawn(move || {
            if watched.is_late() {
                expired();
            }
        });
        if let Err(error) = started {
            warn!(err = %chain(&error), "Could not start the thread that watches the lease");
        }
        Self { shared }
    }

    /// Extends the deadline: the leader is alive.
    pub(super) fn extend(&self, left: Duration) {
        self.shared.lock().deadline = deadline(left);
        self.shared.changed.notify_all();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Waits until the deadline has passed; false if there is none any more.
    fn is_late(&self) -> bool {
        let mut state = self.lock();
        loop {
            let left = state.deadline.saturating_duration_since(Instant::now());
            if state.is_over || left.is_zero() {
                return !state.is_over;
            }
            state = self.changed.wait_timeout(state, left);
        }
    }
}

fn deadline(left: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(left).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn passed_deadline_is_reported() {
        let (sender, receiver) = channel();
        let watchdog =
            Watchdog::start(Duration::from_secs(3600), Arc::new(move || sender.send(()).unwrap_or_default()));
        watchdog.extend(Duration::from_millis(1));
        receiver.recv().unwrap();
    }

    #[test]
    fn ended_term_is_not_reported() {
        let (sender, receiver) = channel::<()>();
        let watchdog =
            Watchdog::start(Duration::from_secs(3600), Arc::new(move || sender.send(()).unwrap_or_default()));
        drop(watchdog);
        assert!(receiver.recv().is_err(), "the thread ended without a report");
    }

    /// The runtime's only thread waits for the report, as a blocked one would for ever.
    #[test]
    fn blocked_runtime_is_reported() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (sender, receiver) = channel();
            let _watchdog =
                Watchdog::start(Duration::from_millis(1), Arc::new(move || sender.send(()).unwrap_or_default()));
            receiver.recv().unwrap();
        });
    }
}
