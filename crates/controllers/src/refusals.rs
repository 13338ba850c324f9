//! What the server refuses is tried again rarely, and by one for all.
//!
//! When a gate goes off under live workloads, each of them has pods that the server no longer accepts. Those who are
//! refused for the same reason wait together: every 10 to 20 seconds one of them tries, and when it succeeds the others
//! follow, at most 20 a second. A change of the object's own spec ends its waiting at once.
//! Who has not tried yet but bears the mark of a reason will be refused too: such ones try, and tell their users, one
//! after the other, so that all of them together ask little of the server.
//! Time is an argument. `reason` tells reasons apart.

mod reason;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::json::Value;
use client::informer::Key;
use tokio::time::Instant;

use self::reason::{Mark, Reason};

/// The earliest and the latest that a reason is tried again.
const CANARY: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(18));
/// Between those who are released: 20 a second.
const RELEASE: Duration = Duration::from_millis(50);
/// Between the first tries of those who will be refused. Each makes up to four requests (a revision, the try, a status, an event), and
/// all together shall make fewer than five a second.
const FIRST: Duration = Duration::from_millis(950);
/// Those who wait ask again so often, because nobody wakes them.
const ASK: Duration = Duration::from_secs(5);

/// Who wants to create something: a controller's name, and the object it works for.
pub type Who = (&'static str, Key);

/// What somebody wants to create.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Of which kind.
    pub plural: &'a str,
    /// The document, or one with the same fields.
    pub object: &'a Value,
    /// The generation of the object that it is created for.
    pub generation: i64,
}

/// Whether one may try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Go,
    /// Not yet: it was refused.
    Wait {
        /// How long, at least.
        after: Duration,
        /// What the server said the last time.
        message: String,
    },
    /// Not yet, though it has not tried: others were refused, and so will it.
    First {
        /// How long, at least.
        after: Duration,
    },
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
    /// The time of its first try.
    First(Instant),
    /// A turn: the reason is gone.
    Turn,
    /// Its turn, at this time.
    Time(Instant),
}

/// What is known of a reason.
struct Known {
    /// When it is tried again.
    canary: Instant,
    /// What is wrong with those who are refused for it. Of another kind, nobody is held for it.
    mark: Option<Mark>,
    plural: String,
}

#[derive(Default)]
struct State {
    held: HashMap<Who, Held>,
    reasons: HashMap<Reason, Known>,
    /// The last turn that was given away.
    last_turn: Option<Instant>,
    /// The last first try that was given away.
    last_first: Option<Instant>,
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

    /// Whether `who` may try to create something.
    pub fn ask(&self, who: &Who, wanted: Wanted<'_>, now: Instant) -> Turn {
        let mut state = self.lock();
        if state.held.get(who).is_some_and(|it| it.generation != wanted.generation) {
            state.leave(who);
        }
        state.expect(who, wanted, now);
        let State { held, reasons, last_turn, .. } = &mut *state;
        let Some(waiting) = held.get_mut(who) else { return Turn::Go };
        if reasons.get(&waiting.reason).is_some_and(|known| known.plural != wanted.plural) {
            return Turn::Go;
        }
        if waiting.waits_for == WaitsFor::Turn {
            // Turns are given to those who ask, so that nobody's passes unused.
            let next = next_of(*last_turn, RELEASE, now);
            *last_turn = Some(next);
            waiting.waits_for = WaitsFor::Time(next);
        }
        let until = match (waiting.waits_for, reasons.get_mut(&waiting.reason)) {
            (WaitsFor::Time(at) | WaitsFor::First(at), _) => at,
            (_, Some(known)) if known.canary <= now => {
                // The others wait for the outcome.
                known.canary = later(now, who);
                return Turn::Go;
            }
            (_, Some(known)) => known.canary,
            (_, None) => now,
        };
        match (until.saturating_duration_since(now), waiting.waits_for) {
            (Duration::ZERO, _) => Turn::Go,
            (after, WaitsFor::First(_)) => Turn::First { after: after.min(ASK) },
            (after, _) => Turn::Wait { after: after.min(ASK), message: waiting.message.clone() },
        }
    }

    /// How long `who` waits for its first try, if it is held for that. Takes no turn.
    pub fn peek(&self, who: &Who, wanted: Wanted<'_>, now: Instant) -> Option<Duration> {
        let mut state = self.lock();
        if state.held.get(who).is_some_and(|it| it.generation != wanted.generation) {
            state.leave(who);
        }
        state.expect(who, wanted, now);
        match state.held.get(who)?.waits_for {
            WaitsFor::First(at) => Some(at.saturating_duration_since(now).min(ASK)),
            _ => None,
        }
    }

    /// Notes a refusal; tells whether it is news for `who`.
    pub fn refused(&self, who: &Who, wanted: Wanted<'_>, error: &client::Error, now: Instant) -> bool {
        let reason = Reason::new(&who.1.namespace, error);
        let mut state = self.lock();
        let (message, generation) = (error.to_string(), wanted.generation);
        let held = Held { reason: reason.clone(), message, generation, waits_for: WaitsFor::Reason };
        let is_known = |known: &Held| known.reason == reason && !matches!(known.waits_for, WaitsFor::First(_));
        let news = !state.held.get(who).is_some_and(is_known);
        if news {
            state.leave(who);
        }
        let known = state.reasons.entry(reason).or_insert_with(|| Known {
            canary: later(now, who),
            mark: Mark::new(wanted.plural, wanted.object, error),
            plural: wanted.plural.to_owned(),
        });
        // Whoever was refused, the next try is due a while after.
        known.canary = later(now, who);
        state.held.insert(who.clone(), held);
        news
    }

    /// Notes that `who` could create something of a kind: those who were refused for the same reason follow.
    pub fn accepted(&self, who: &Who, plural: &str, now: Instant) {
        let mut state = self.lock();
        let State { held, reasons, .. } = &mut *state;
        let Some(freed) = held.get(who) else { return };
        if reasons.get(&freed.reason).is_some_and(|known| known.plural != plural) {
            return;
        }
        let Some(freed) = held.remove(who) else { return };
        match freed.waits_for {
            WaitsFor::Reason if reasons.remove(&freed.reason).is_some() => {
                for other in held.values_mut().filter(|other| other.reason == freed.reason) {
                    other.waits_for = WaitsFor::Turn;
                }
            }
            // It was never refused, and may have been taken for one who would be. Somebody who was shall try.
            WaitsFor::First(_) => {
                if let Some(known) = reasons.get_mut(&freed.reason) {
                    known.canary = now;
                }
                state.forget_reason_without_holders(&freed.reason);
            }
            _ => {}
        }
    }

    /// Forgets an object that is gone.
    pub fn forget(&self, who: &Who) {
        self.lock().leave(who);
    }
}

impl State {
    /// Holds somebody who has not tried and bears the mark of a reason.
    fn expect(&mut self, who: &Who, wanted: Wanted<'_>, now: Instant) {
        if self.held.contains_key(who) {
            return;
        }
        let mut reasons = self.reasons.iter();
        let bears = |known: &Known| known.mark.as_ref().is_some_and(|mark| mark.is_on(wanted.plural, wanted.object));
        let Some((reason, _)) = reasons.find(|(_, known)| bears(known)) else { return };
        let at = next_of(self.last_first, FIRST, now);
        self.last_first = Some(at);
        let held = Held {
            reason: reason.clone(),
            message: String::new(),
            generation: wanted.generation,
            waits_for: WaitsFor::First(at),
        };
        self.held.insert(who.clone(), held);
    }

    /// Takes somebody out, and the reason with the last who was refused for it.
    fn leave(&mut self, who: &Who) {
        let Some(gone) = self.held.remove(who) else { return };
        self.forget_reason_without_holders(&gone.reason);
    }

    fn forget_reason_without_holders(&mut self, reason: &Reason) {
        if !self.held.values().any(|other| other.reason == *reason) {
            self.reasons.remove(reason);
        }
    }
}

/// The next of times that keep a distance.
fn next_of(last: Option<Instant>, distance: Duration, now: Instant) -> Instant {
    last.and_then(|last| last.checked_add(distance)).map_or(now, |next| next.max(now))
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
