//! Rejected creations: retried rarely, and by one object on behalf of all.
//!
//! When a gate is disabled under live workloads, each of them has pods that the server no longer accepts.
//! Objects that are rejected for the same reason wait together: every 10 to 20 seconds one of them tries, and
//! when it succeeds the others follow, at most 20 a second. A change of the object's own spec ends its waiting
//! at once. Objects without an attempt that match the mark of a reason will be rejected, too: they try, and
//! record events, one after the other, so that all of them together cause little load. A rejection that may be
//! temporary (403, 404: a service account, a class or a quota that a later manifest brings) is first retried
//! with the queue's ordinary back-off, and waits with the others only after that has failed for a while. The
//! appearance of the missing object ends the waiting at once. Time is an argument. `reason` distinguishes
//! reasons.

mod reason;

use locks::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

use api::json::Value;
use client::informer::Key;
use tokio::time::Instant;

use self::reason::{Mark, Reason};

/// The earliest and the latest that a reason is tried again.
const CANARY: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(18));
/// Interval between releases: 20 a second.
const RELEASE: Duration = Duration::from_millis(50);
/// Interval between the first attempts of objects that will be rejected. Each makes up to four requests (a
/// revision, the attempt, a status, an event), and all together must make fewer than five a second.
const FIRST: Duration = Duration::from_millis(950);
/// Interval at which waiting objects check again, because they are not woken.
const ASK: Duration = Duration::from_secs(5);

/// Attempts with ordinary back-off (5 ms, doubling: about 20 s in all) before a refusal that may pass waits with the others.
const QUICK_TRIES: u32 = 12;

/// A creating party: a controller's name, and the object that it reconciles.
pub type Party = (&'static str, Key);

/// An object to create.
#[derive(Debug, Clone, Copy)]
pub struct WantedObject<'a> {
    /// Plural of its kind.
    pub plural: &'a str,
    /// The document, or one with the same fields.
    pub object: &'a Value,
    /// Generation of the owner for which the object is created.
    pub generation: i64,
}

/// The permission to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Go,
    /// Not yet: the object itself was rejected.
    Wait {
        /// Minimum delay.
        after: Duration,
        /// Message of the server at the last attempt.
        message: String,
    },
    /// Not yet: other objects were rejected for a reason that applies to this one, too.
    First {
        /// Minimum delay.
        after: Duration,
    },
}

struct HeldParty {
    reason: Reason,
    message: String,
    generation: i64,
    waits_for: AwaitedChange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AwaitedChange {
    /// The reason of the rejection no longer exists.
    Reason,
    /// The first attempt, at this time.
    First(Instant),
    /// A turn, after the reason has ceased to exist.
    Turn,
    /// A turn at this time.
    Time(Instant),
}

/// State of a reason.
struct ReasonState {
    /// Time of the next attempt.
    canary: Instant,
    /// The rejected fields and values. Objects of other kinds are not held for it.
    mark: Option<Mark>,
    plural: String,
}

/// A refusal that may pass at any moment.
struct TransientRejection {
    reason: Reason,
    message: String,
    generation: i64,
    tries: u32,
}

#[derive(Default)]
struct State {
    held: HashMap<Party, HeldParty>,
    passing: HashMap<Party, TransientRejection>,
    reasons: HashMap<Reason, ReasonState>,
    /// The last turn that was given away.
    last_turn: Option<Instant>,
    /// The last first try that was given away.
    last_first: Option<Instant>,
}

/// Rejected parties by reason. One for all controllers of a process.
#[derive(Default)]
pub struct Refusals {
    state: Mutex<State>,
}

/// Whether an error is a rejection that an unchanged request will receive again.
#[must_use]
pub fn is_refusal(error: &client::Error) -> bool {
    matches!(error.code(), 400 | 403 | 404 | 405 | 413 | 415 | 422)
}

/// Whether a retry may succeed without a change of the object, for instance once a missing object is created.
#[must_use]
pub fn may_pass(error: &client::Error) -> bool {
    matches!(error.code(), 403 | 404)
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the permission of `who` to try a creation.
    pub fn ask(&self, who: &Party, wanted: WantedObject<'_>, now: Instant) -> Turn {
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
        if waiting.waits_for == AwaitedChange::Turn {
            // Turns are assigned on request, so that none passes unused.
            let next = next_of(*last_turn, RELEASE, now);
            *last_turn = Some(next);
            waiting.waits_for = AwaitedChange::Time(next);
        }
        let until = match (waiting.waits_for, reasons.get_mut(&waiting.reason)) {
            (AwaitedChange::Time(at) | AwaitedChange::First(at), _) => at,
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
            (after, AwaitedChange::First(_)) => Turn::First { after: after.min(ASK) },
            (after, _) => Turn::Wait { after: after.min(ASK), message: waiting.message.clone() },
        }
    }

    /// Delay of the first attempt of `who`, if it is held. Takes no turn.
    pub fn peek(&self, who: &Party, wanted: WantedObject<'_>, now: Instant) -> Option<Duration> {
        let mut state = self.lock();
        if state.held.get(who).is_some_and(|it| it.generation != wanted.generation) {
            state.leave(who);
        }
        state.expect(who, wanted, now);
        match state.held.get(who)?.waits_for {
            AwaitedChange::First(at) => Some(at.saturating_duration_since(now).min(ASK)),
            _ => None,
        }
    }

    /// Records a rejection; returns whether it is new for `who`.
    pub fn refused(&self, who: &Party, wanted: WantedObject<'_>, error: &client::Error, now: Instant) -> bool {
        let reason = Reason::new(&who.1.namespace, error);
        let mut state = self.lock();
        if may_pass(error)
            && let Some(news) = state.note_passing(who, &reason, error, wanted.generation)
        {
            return news;
        }
        let (message, generation) = (error.to_string(), wanted.generation);
        let held = HeldParty { reason: reason.clone(), message, generation, waits_for: AwaitedChange::Reason };
        let is_known =
            |known: &HeldParty| known.reason == reason && !matches!(known.waits_for, AwaitedChange::First(_));
        // Quick retries have reported the refusal already.
        let was_reported = state.passing.get(who).is_some_and(|it| may_pass(error) && it.tries > 1);
        let news = !state.held.get(who).is_some_and(is_known);
        if news {
            state.leave(who);
        }
        let known = state.reasons.entry(reason).or_insert_with(|| ReasonState {
            canary: later(now, who),
            mark: Mark::new(wanted.plural, wanted.object, error),
            plural: wanted.plural.to_owned(),
        });
        // The next attempt is due a while after any rejection.
        known.canary = later(now, who);
        state.held.insert(who.clone(), held);
        news && !was_reported
    }

    /// Records a successful creation by `who`: those that were rejected for the same reason follow.
    pub fn accepted(&self, who: &Party, plural: &str, now: Instant) {
        let mut state = self.lock();
        state.passing.remove(who);
        let State { held, reasons, .. } = &mut *state;
        let Some(freed) = held.get(who) else { return };
        if reasons.get(&freed.reason).is_some_and(|known| known.plural != plural) {
            return;
        }
        let Some(freed) = held.remove(who) else { return };
        match freed.waits_for {
            AwaitedChange::Reason if reasons.remove(&freed.reason).is_some() => {
                for other in held.values_mut().filter(|other| other.reason == freed.reason) {
                    other.waits_for = AwaitedChange::Turn;
                }
            }
            // It was never rejected, but only expected to be. One that was rejected shall try.
            AwaitedChange::First(_) => {
                if let Some(known) = reasons.get_mut(&freed.reason) {
                    known.canary = now;
                }
                state.forget_reason_without_holders(&freed.reason);
            }
            _ => {}
        }
    }

    /// Removes a deleted object.
    pub fn forget(&self, who: &Party) {
        let mut state = self.lock();
        state.passing.remove(who);
        state.leave(who);
    }

    /// The objects of a controller that were refused because an object of this name was missing. They may try at once.
    pub fn appeared(&self, controller: &str, namespace: &str, name: &str) -> Vec<Key> {
        let mut state = self.lock();
        let missed = |(who, passing): (&Party, &TransientRejection)| {
            let is_meant = who.0 == controller && who.1.namespace == namespace && passing.message.contains(name);
            is_meant.then(|| who.clone())
        };
        let waiting: Vec<Party> = state.passing.iter().filter_map(missed).collect();
        for who in &waiting {
            state.passing.remove(who);
            state.leave(who);
        }
        waiting.into_iter().map(|(_, key)| key).collect()
    }
}

impl State {
    /// Holds a party without an attempt that matches the mark of a reason.
    fn expect(&mut self, who: &Party, wanted: WantedObject<'_>, now: Instant) {
        if self.held.contains_key(who) {
            return;
        }
        let mut reasons = self.reasons.iter();
        let bears =
            |known: &ReasonState| known.mark.as_ref().is_some_and(|mark| mark.is_on(wanted.plural, wanted.object));
        let Some((reason, _)) = reasons.find(|(_, known)| bears(known)) else { return };
        let at = next_of(self.last_first, FIRST, now);
        self.last_first = Some(at);
        let held = HeldParty {
            reason: reason.clone(),
            message: String::new(),
            generation: wanted.generation,
            waits_for: AwaitedChange::First(at),
        };
        self.held.insert(who.clone(), held);
    }

    /// Counts a refusal that may pass. Returns whether it is news while quick retries are left, nothing after them.
    fn note_passing(&mut self, who: &Party, reason: &Reason, error: &client::Error, generation: i64) -> Option<bool> {
        let is_same = |it: &TransientRejection| it.reason == *reason && it.generation == generation;
        let tries = self.passing.get(who).filter(|it| is_same(it)).map_or(0, |it| it.tries).saturating_add(1);
        let message = error.to_string();
        self.passing.insert(who.clone(), TransientRejection { reason: reason.clone(), message, generation, tries });
        (tries <= QUICK_TRIES).then_some(tries == 1)
    }

    /// Removes a party, and the reason with its last rejected party.
    fn leave(&mut self, who: &Party) {
        let Some(gone) = self.held.remove(who) else { return };
        self.forget_reason_without_holders(&gone.reason);
    }

    fn forget_reason_without_holders(&mut self, reason: &Reason) {
        if !self.held.values().any(|other| other.reason == *reason) {
            self.reasons.remove(reason);
        }
    }
}

/// The next time that is at least `distance` after the last one.
fn next_of(last: Option<Instant>, distance: Duration, now: Instant) -> Instant {
    last.and_then(|last| last.checked_add(distance)).map_or(now, |next| next.max(now))
}

/// Time of the next attempt for a reason. Varies with the rejected party, so that reasons are not synchronized.
fn later(now: Instant, who: &Party) -> Instant {
    let (first, last) = CANARY;
    let spread = u64::try_from(last.saturating_sub(first).as_millis()).unwrap_or(u64::MAX);
    let seed = u64::from(crate::machinery::hash::fnv(who.1.to_string().as_bytes()));
    let extra = seed.checked_rem(spread.saturating_add(1)).unwrap_or(0);
    now.checked_add(first.saturating_add(Duration::from_millis(extra))).unwrap_or(now)
}

#[cfg(test)]
mod tests;
