//! A decision waits until the writes of the last one are in the local copies.
//!
//! A controller decides by the contents of its informers, which are slightly outdated. If it decided again
//! before its own writes are visible, it would create the same pods twice. Therefore writes are recorded per
//! key, with the version from the server, and a key is [settled](Expectations::settled) once every informer has
//! reached that version. Deletions are recorded by UID, because their response need not have a version.

use locks::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use api::json::Text;
use client::controller::HasMetadata;
use client::informer::{Change, Informer, Key};
use tokio::time::Instant;

/// Delay before a key that waits for its own writes is reconciled again; most often a change arrives earlier.
pub const UNSETTLED: Duration = Duration::from_secs(1);
/// Time after which a write with an unknown result is visible.
const UNSURE: Duration = Duration::from_secs(2);
/// Time after which unobserved writes are ignored.
const EXPIRY: Duration = Duration::from_secs(300);

/// Writes that one key waits for.
struct PendingWrites {
    /// The highest version written, by plural.
    versions: HashMap<Text, u64>,
    /// UIDs of deleted objects.
    deletions: HashSet<Text>,
    /// Until then it is not known whether something was written.
    unsure_until: Option<Instant>,
    since: Instant,
}

#[derive(Default)]
struct State {
    /// Version that the informer of each plural has reached.
    seen: HashMap<Text, u64>,
    pending: HashMap<Key, PendingWrites>,
    /// Keys that wait for the deletion of a UID.
    deleting: HashMap<Text, Key>,
}

/// Writes of a controller that were not observed yet. Clones share it.
#[derive(Clone, Default)]
pub struct Expectations {
    state: Arc<Mutex<State>>,
}

fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}

impl Expectations {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Tracks the progress of an informer. Writes to a resource without a tracked informer are not waited for.
    pub fn follow<T: HasMetadata + Send + Sync + 'static>(&self, informer: &Informer<T>, plural: &str) {
        let plural = Text::from(plural);
        self.lock().seen.entry(plural.clone()).or_default();
        let known = self.clone();
        informer.on_change(move |_, change| {
            let gone = matches!(change, Change::Deleted(_));
            let metadata = change.newest().metadata();
            known.saw(&plural, &metadata.resource_version, &metadata.uid, gone || metadata.is_deleting());
        });
    }

    /// Records an observed version of an object.
    fn saw(&self, plural: &str, version: &str, uid: &str, deleting: bool) {
        let mut state = self.lock();
        if let Some(seen) = state.seen.get_mut(plural) {
            *seen = number(version).max(*seen);
        }
        if deleting
            && let Some(key) = state.deleting.remove(uid)
            && let Some(pending) = state.pending.get_mut(&key)
        {
            pending.deletions.remove(uid);
        }
    }

    /// Records a write for a key.
    pub fn wrote(&self, key: &Key, plural: &str, version: &str, now: Instant) {
        let version = number(version);
        let mut state = self.lock();
        if state.seen.get(plural).is_some_and(|seen| *seen < version) {
            let pending = state.pending_of(key, now);
            let known = pending.versions.entry(plural.into()).or_default();
            *known = version.max(*known);
        }
    }

    /// Records that something may have been written for a key, with an unknown version.
    pub fn may_have_written(&self, key: &Key, now: Instant) {
        self.lock().pending_of(key, now).unsure_until = now.checked_add(UNSURE);
    }

    /// Records an upcoming deletion for a key.
    pub fn deletes(&self, key: &Key, plural: &str, uid: &str, now: Instant) {
        let mut state = self.lock();
        if state.seen.contains_key(plural) && !uid.is_empty() {
            state.pending_of(key, now).deletions.insert(uid.into());
            state.deleting.insert(uid.into(), key.clone());
        }
    }

    /// Records that a deletion failed.
    pub fn does_not_delete(&self, uid: &str) {
        self.saw("", "", uid, true);
    }

    /// Whether all that was written for a key has been seen, or is overdue.
    #[must_use]
    pub fn settled(&self, key: &Key, now: Instant) -> bool {
        let mut state = self.lock();
        let State { seen, pending, deleting } = &mut *state;
        let Some(waiting) = pending.get_mut(key) else { return true };
        waiting.versions.retain(|plural, version| seen.get(plural).is_some_and(|seen| seen < version));
        let overdue = now.saturating_duration_since(waiting.since) >= EXPIRY;
        let is_sure = waiting.unsure_until.is_none_or(|until| now >= until);
        let settled = overdue || (is_sure && waiting.versions.is_empty() && waiting.deletions.is_empty());
        if settled && let Some(done) = pending.remove(key) {
            done.deletions.iter().for_each(|uid| drop(deleting.remove(uid)));
        }
        settled
    }

    /// Removes a key whose object was deleted.
    pub fn forget(&self, key: &Key) {
        let mut state = self.lock();
        if let Some(done) = state.pending.remove(key) {
            done.deletions.iter().for_each(|uid| drop(state.deleting.remove(uid)));
        }
    }
}

impl State {
    fn pending_of(&mut self, key: &Key, now: Instant) -> &mut PendingWrites {
        let pending = self.pending.entry(key.clone());
        let pending = pending.or_insert_with(|| PendingWrites {
            versions: HashMap::new(),
            deletions: HashSet::new(),
            unsure_until: None,
            since: now,
        });
        pending.since = now;
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_settled_when_its_writes_have_come_back() {
        let expectations = Expectations::default();
        let (key, now) = (Key::new("ns", "web"), Instant::now());
        expectations.wrote(&key, "pods", "7", now);
        assert!(expectations.settled(&key, now), "nothing follows pods");
        expectations.lock().seen.insert("pods".into(), 5);
        expectations.wrote(&key, "pods", "5", now);
        assert!(expectations.settled(&key, now), "it was seen before the answer came");
        expectations.wrote(&key, "pods", "7", now);
        expectations.deletes(&key, "pods", "u1", now);
        assert!(!expectations.settled(&key, now));
        assert!(expectations.settled(&Key::new("ns", "other"), now));
        expectations.saw("pods", "9", "u2", false);
        assert!(!expectations.settled(&key, now), "the deletion is still missing");
        expectations.saw("pods", "8", "u1", true);
        assert!(expectations.settled(&key, now));
        assert!(expectations.lock().deleting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn uncertain_writes_are_awaited() {
        let expectations = Expectations::default();
        let (key, now) = (Key::new("ns", "web"), Instant::now());
        expectations.may_have_written(&key, now);
        assert!(!expectations.settled(&key, now));
        assert!(expectations.settled(&key, now + UNSURE));
    }

    #[tokio::test(start_paused = true)]
    async fn unobserved_writes_expire() {
        let expectations = Expectations::default();
        let (key, now) = (Key::new("ns", "web"), Instant::now());
        expectations.lock().seen.insert("pods".into(), 5);
        expectations.deletes(&key, "pods", "u1", now);
        assert!(!expectations.settled(&key, now + Duration::from_secs(299)));
        assert!(expectations.settled(&key, now + EXPIRY));
        expectations.deletes(&key, "pods", "u2", now);
        expectations.does_not_delete("u2");
        assert!(expectations.settled(&key, now));
    }
}
