//! One watch on an embedded store.
//!
//! It reads from the recent events, and from the file once it has fallen behind those.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;

use super::SharedState;
use super::file::{LogEntry, damaged};
use super::state::Slot;
use crate::{Batch, Cause, Error, Event, PreviousValue, ProgressRequest, Revision, Source};

/// A batch has at most this many events.
const BATCH_EVENTS: usize = 256;
/// One look into the file covers at most this many revisions.
const SCAN_REVISIONS: usize = 4096;

pub(super) struct Watcher {
    shared: Arc<SharedState>,
    slot: Arc<Slot>,
    progress_interval: Duration,
    /// The revision of the last batch.
    reported: Revision,
}

enum Step {
    Deliver(Batch),
    /// The recent events start only after this revision.
    ReadFile(Revision),
    Wait,
}

impl Watcher {
    pub(super) fn new(shared: Arc<SharedState>, slot: Arc<Slot>, progress_interval: Duration) -> Self {
        let reported = slot.after;
        Self { shared, slot, progress_interval, reported }
    }

    fn step(&mut self, report: bool) -> Result<Step, Error> {
        let state = self.shared.state();
        state.check_open()?;
        let pending = self.slot.pending.load(Ordering::Acquire);
        if (1..=state.revision).contains(&pending) {
            let Some(recent) = state.recent.from(pending) else {
                state.check_kept(pending.saturating_sub(1))?;
                return Ok(Step::ReadFile(pending));
            };
            let mut matching = recent.filter(|event| self.slot.wants(event));
            let events: Vec<Event> = matching.by_ref().take(BATCH_EVENTS).cloned().collect();
            let next = matching.next().map(|event| event.revision);
            self.slot.pending.store(next.unwrap_or(0), Ordering::Release);
            if let Some(last) = events.last() {
                let revision = if next.is_some() { last.revision } else { state.revision };
                self.reported = revision;
                return Ok(Step::Deliver(Batch { events, revision }));
            }
        } else {
            self.slot.pending.store(0, Ordering::Release);
        }
        let revision = state.revision.max(self.slot.after);
        let target = self.slot.target.load(Ordering::Acquire);
        let wanted = self.reported < target && target <= revision;
        if wanted || (report && revision > self.reported) {
            self.reported = revision;
            return Ok(Step::Deliver(Batch { events: Vec::new(), revision }));
        }
        Ok(Step::Wait)
    }
}

#[async_trait]
impl Source for Watcher {
    async fn next(&mut self) -> Result<Batch, Error> {
        let mut report = false;
        loop {
            match self.step(report)? {
                Step::Deliver(batch) => return Ok(batch),
                Step::ReadFile(first) => {
                    let (shared, slot) = (self.shared.clone(), self.slot.clone());
                    let read = tokio::task::spawn_blocking(move || shared.read_history(&slot, first));
                    let (events, covered) = read.await.map_err(|error| Error::Unavailable(Cause::new(error)))??;
                    let _state = self.shared.state();
                    self.slot.pending.store(covered.saturating_add(1), Ordering::Release);
                    if !events.is_empty() {
                        self.reported = covered;
                        return Ok(Batch { events, revision: covered });
                    }
                }
                Step::Wait => {
                    let woken = tokio::time::timeout(self.progress_interval, self.slot.wake.notified()).await;
                    report = woken.is_err();
                }
            }
        }
    }

    fn progress_request(&self) -> ProgressRequest {
        let slot = Arc::downgrade(&self.slot);
        ProgressRequest::new(move |revision| {
            if let Some(slot) = slot.upgrade() {
                slot.target.fetch_max(revision, Ordering::AcqRel);
                slot.wake.notify_one();
            }
        })
    }
}

impl SharedState {
    /// Returns the watcher's events from `first` on, and the revision up to which they are complete.
    fn read_history(&self, slot: &Slot, first: Revision) -> Result<(Vec<Event>, Revision), Error> {
        let current = self.state().revision;
        let mut covered = first.saturating_sub(1);
        let mut scanned = 0_usize;
        let mut logged: Vec<LogEntry> = Vec::new();
        let file = self.file()?;
        file.scan(first, |entry| {
            // Records in the file beyond `current` are about to be published, and will be delivered then.
            if entry.revision > current || scanned == SCAN_REVISIONS || logged.len() == BATCH_EVENTS {
                return false;
            }
            scanned = scanned.saturating_add(1);
            covered = entry.revision;
            if entry.revision > slot.after && entry.key.starts_with(&*slot.prefix) {
                logged.push(entry);
            }
            true
        })?;
        if scanned == 0 {
            self.state().check_kept(first.saturating_sub(1))?;
            return Err(damaged(format!("the log entry of revision {first} is missing")));
        }
        let mut values = Some(file.values()?);
        let mut events = Vec::with_capacity(logged.len());
        for LogEntry { revision, key, deleted, .. } in logged {
            let previous = {
                let state = self.state();
                state.index.before(&key, revision).map(|version| state.locate(&key, version))
            };
            let previous = match previous {
                Some(found) => self
                    .value(found.revision, &found.content, &mut values)?
                    .map(|value| PreviousValue { value, revision: found.revision }),
                None => None,
            };
            let value = match (deleted, &values) {
                (false, Some(values)) => values.get(revision)?,
                _ => None,
            };
            if value.is_none() && !deleted {
                self.state().check_kept(first.saturating_sub(1))?;
                return Err(damaged(format!("the value of `{key}` at revision {revision} is missing")));
            }
            events.push(Event { key, revision, value, previous });
        }
        // If compaction has overtaken us, some of this may have been missing already when it was read.
        self.state().check_kept(first.saturating_sub(1))?;
        Ok((events, covered))
    }
}
