//! What the server refuses is tried again rarely, and by one for all.
//!
//! When a gate goes off under live workloads, each of them has pods that the server no longer accepts. Those who are
//! refused for the same reason wait together: every 10 to 20 seconds one of them tries, and when it succeeds the others
//! follow, at most 20 a second. A change of the object's own spec ends its waiting at once.
//! Time is an argument.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::informer::Key;
use tokio::time::Instant;

/// The earliest and the latest that a reason is tried again.
const CANARY: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(18));
/// Between those who are released: 20 a second.
const RELEASE: Duration = Duration::from_millis(50);
/// Those who wait ask again so often, because nobody wakes them.
const ASK: Duration = Duration::from_secs(5);

/// Who wants to create something: a controller's name, and the object it works for.
pub type Who = (&'static str, Key);

/// Whether one may try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Go,
    /// Not yet.
    Wait {
        /// How long, at least.
        after: Duration,
        /// What the server said the last time.
        message: String,
    },
}

/// A refusal without what differs from try to try.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Reason(String);

impl Reason {
    /// The reason of a refusal: the code and the message without the name of the refused object, which is random. What
    /// is invalid is so everywhere; other refusals (quota, rights) may differ by namespace.
    fn new(namespace: &str, error: &client::Error) -> Self {
        let message = error.to_string();
        let mut parts = message.splitn(3, '"');
        let (before, after) = match (parts.next(), parts.next(), parts.next()) {
            (Some(before), Some(_), Some(after)) => (before, after),
            _ => (message.as_str(), ""),
        };
        let place = if error.code() == 422 { "" } else { namespace };
        Self(format!("{place} {} {before}{after}", error.code()))
    }
}

struct Held {
    reason: Reason,
    message: String,
    generation: i64,
    waits_for: WaitsFor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// The reason to go.
    Reason,
    /// A turn: the reason is gone.
    Turn,
    /// Its turn, at this time.
    Time(Instant),
}

#[derive(Default)]
struct State {
    held: HashMap<Who, Held>,
    /// When each reason is tried again.
    canaries: HashMap<Reason, Instant>,
    /// The last turn that was given away.
    last_turn: Option<Instant>,
}

/// Who was refused, and why. One for all controllers of a process.
#[derive(Default)]
pub struct Refusals {
    state: Mutex<State>,
}

/// Whether an error is a refusal that the same request will meet again until somebody changes something.
#[must_use]
pub fn is_refusal(error: &client::Error) -> bool {
    matches!(error.code(), 400 | 403 | 404 | 405 | 413 | 415 | 422)
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether `who`, whose object has this generation, may try to create.
    pub fn ask(&self, who: &Who, generation: i64, now: Instant) -> Turn {
        let mut state = self.lock();
        let State { held, canaries, last_turn } = &mut *state;
        let Some(waiting) = held.get_mut(who) else { return Turn::Go };
        if waiting.generation != generation {
            state.leave(who);
            return Turn::Go;
        }
        if waiting.waits_for == WaitsFor::Turn {
            // Turns are given to those who ask, so that nobody's passes unused.
            let next = last_turn.and_then(|last| last.checked_add(RELEASE)).map_or(now, |next| next.max(now));
            *last_turn = Some(next);
            waiting.waits_for = WaitsFor::Time(next);
        }
        let until = match (waiting.waits_for, canaries.get_mut(&waiting.reason)) {
            (WaitsFor::Time(at), _) => at,
            (_, Some(at)) if *at <= now => {
                // The others wait for the outcome.
                *at = later(now, who);
                return Turn::Go;
            }
            (_, Some(at)) => *at,
            (_, None) => now,
        };
        match until.saturating_duration_since(now) {
            Duration::ZERO => Turn::Go,
            after => Turn::Wait { after: after.min(ASK), message: waiting.message.clone() },
        }
    }

    /// Notes a refusal; tells whether it is news for `who`.
    pub fn refused(&self, who: &Who, generation: i64, error: &client::Error, now: Instant) -> bool {
        let reason = Reason::new(&who.1.namespace, error);
        let mut state = self.lock();
        state.canaries.entry(reason.clone()).or_insert_with(|| later(now, who));
        let held = Held { reason, message: error.to_string(), generation, waits_for: WaitsFor::Reason };
        let news = state.held.get(who).is_none_or(|known| known.reason != held.reason);
        if news {
            state.leave(who);
        }
        state.held.insert(who.clone(), held);
        news
    }

    /// Notes that `who` could create: those who were refused for the same reason follow.
    pub fn accepted(&self, who: &Who) {
        let mut state = self.lock();
        let State { held, canaries, .. } = &mut *state;
        let Some(freed) = held.remove(who) else { return };
        if freed.waits_for != WaitsFor::Reason || canaries.remove(&freed.reason).is_none() {
            return;
        }
        for other in held.values_mut().filter(|other| other.reason == freed.reason) {
            other.waits_for = WaitsFor::Turn;
        }
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, who: &Who) {
        self.lock().leave(who);
    }
}

impl State {
    /// Takes somebody out, and the reason with the last who was refused for it.
    fn leave(&mut self, who: &Who) {
        let Some(gone) = self.held.remove(who) else { return };
        if !self.held.values().any(|other| other.reason == gone.reason) {
            self.canaries.remove(&gone.reason);
        }
    }
}

/// When a reason is tried again. Differs by who was refused, so that reasons do not march in step.
fn later(now: Instant, who: &Who) -> Instant {
    let (first, last) = CANARY;
    let spread = u64::try_from(last.saturating_sub(first).as_millis()).unwrap_or(u64::MAX);
    let seed = u64::from(crate::hash::fnv(who.1.to_string().as_bytes()));
    let extra = seed.checked_rem(spread.saturating_add(1)).unwrap_or(0);
    now.checked_add(first.saturating_add(Duration::from_millis(extra))).unwrap_or(now)
}

#[cfg(test)]
mod tests;
