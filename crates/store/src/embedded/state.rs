//! State for readers: index, recent events and watchers as of the last durable write.
//!
//! One lock guards it. It is never held during disk access, so readers wait only for other memory accesses.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::file::FIRST_REVISION;
use super::index::{Content, Index, Version};
use crate::{Error, Event, Revision};

/// The visible state.
#[derive(Debug)]
pub(super) struct State {
    /// The last durable revision.
    pub(super) revision: Revision,
    /// History up to here may have been removed.
    pub(super) compacted: Revision,
    pub(super) index: Index,
    pub(super) recent: RecentEvents,
    watchers: Vec<Weak<Slot>>,
    pub(super) closed: bool,
    /// Whether values stay in memory because there is no file to read them from.
    resident: bool,
}

impl State {
    pub(super) fn new(revision: Revision, compacted: Revision, recent: RecentEvents, resident: bool) -> Self {
        Self { revision, compacted, index: Index::default(), recent, watchers: Vec::new(), closed: false, resident }
    }

    /// Checks that the store can be read at this revision.
    pub(super) fn check_readable(&self, revision: Revision) -> Result<(), Error> {
        self.check_open()?;
        if revision > self.revision {
            return Err(Error::FutureRevision { requested: revision, current: self.revision });
        }
        self.check_kept(revision)
    }

    /// Checks that the history after this revision is available.
    pub(super) fn check_kept(&self, revision: Revision) -> Result<(), Error> {
        if revision < self.compacted {
            return Err(Error::Compacted { requested: revision, oldest: self.compacted });
        }
        Ok(())
    }

    pub(super) fn check_open(&self) -> Result<(), Error> {
        if self.closed { Err(Error::Closed) } else { Ok(()) }
    }

    /// Makes durable changes visible and wakes waiting watchers. Events are in order and follow `revision`.
    pub(super) fn publish(&mut self, events: impl IntoIterator<Item = Event>) {
        self.watchers.retain(|watcher| watcher.strong_count() > 0);
        let watchers: Vec<Arc<Slot>> = self.watchers.iter().filter_map(Weak::upgrade).collect();
        for event in events {
            let content = match &event.value {
                None => Content::Deleted,
                Some(value) if self.resident => Content::Resident(value.clone()),
                // The value is within the limits that the store checks, far below 4 GiB.
                Some(value) => Content::OnDisk { length: u32::try_from(value.len()).unwrap_or(u32::MAX) },
            };
            self.index.insert(&event.key, Version { revision: event.revision, content });
            self.revision = event.revision;
            for watcher in &watchers {
                watcher.offer(&event);
            }
            self.recent.push(event);
        }
        self.recent.trim(self.compacted);
    }

    /// Registers a watcher and returns the revision from which it must catch up.
    pub(super) fn register(&mut self, prefix: &str, after: Revision) -> Result<Arc<Slot>, Error> {
        self.check_open()?;
        self.check_kept(after)?;
        // The first revision itself has no change.
        let first = after.max(FIRST_REVISION).saturating_add(1);
        let pending = if first <= self.revision { first } else { 0 };
        let slot = Arc::new(Slot {
            prefix: prefix.into(),
            after,
            pending: AtomicU64::new(pending),
            target: AtomicU64::new(0),
            wake: Notify::new(),
        });
        self.watchers.push(Arc::downgrade(&slot));
        Ok(slot)
    }

    /// Ends all watches.
    pub(super) fn close(&mut self) {
        self.closed = true;
        for watcher in self.watchers.drain(..).filter_map(|watcher| watcher.upgrade()) {
            watcher.wake.notify_one();
        }
    }
}

/// State shared by the store and one watcher.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) prefix: Box<str>,
    /// Changes up to here are of no interest.
    pub(super) after: Revision,
    /// All changes of interest before this revision have been handed out; 0: all there are.
    ///
    /// Changed by the publisher under the state's write lock and by the watcher under its read lock.
    pub(super) pending: AtomicU64,
    /// Requested progress: a caller waits for the watch to reach this revision.
    pub(super) target: AtomicU64,
    pub(super) wake: Notify,
}

impl Slot {
    pub(super) fn wants(&self, event: &Event) -> bool {
        event.revision > self.after && event.key.starts_with(&*self.prefix)
    }

    fn offer(&self, event: &Event) {
        if self.pending.load(Ordering::Acquire) == 0 && self.wants(event) {
            self.pending.store(event.revision, Ordering::Release);
            self.wake.notify_one();
        }
    }
}

/// The last events, one per revision without a gap, so that watchers and readers rarely need the disk.
#[derive(Debug)]
pub(super) struct RecentEvents {
    events: VecDeque<Event>,
    bytes: usize,
    bytes_max: usize,
    /// Whether there is no file, so that this is the only copy of history: then all events since the last
    /// compaction are kept.
    only_copy: bool,
}

impl RecentEvents {
    pub(super) fn new(bytes_max: usize, only_copy: bool) -> Self {
        Self { events: VecDeque::new(), bytes: 0, bytes_max, only_copy }
    }

    fn weight(event: &Event) -> usize {
        let value = event.value.as_ref().map_or(0, bytes::Bytes::len);
        let previous = event.previous.as_ref().map_or(0, |previous| previous.value.len());
        value.saturating_add(previous).saturating_add(event.key.len()).saturating_add(size_of::<Event>())
    }

    fn push(&mut self, event: Event) {
        self.bytes = self.bytes.saturating_add(Self::weight(&event));
        self.events.push_back(event);
    }

    fn trim(&mut self, compacted: Revision) {
        while let Some(event) = self.events.front() {
            let over = if self.only_copy { event.revision <= compacted } else { self.bytes > self.bytes_max };
            if !over {
                break;
            }
            self.bytes = self.bytes.saturating_sub(Self::weight(event));
            self.events.pop_front();
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The event of a revision, if it is still here.
    pub(super) fn get(&self, revision: Revision) -> Option<&Event> {
        let first = self.events.front()?.revision;
        self.events.get(usize::try_from(revision.checked_sub(first)?).ok()?)
    }

    /// The events from a revision on; `None` if the first of them is no longer here.
    pub(super) fn from(&self, revision: Revision) -> Option<impl Iterator<Item = &Event>> {
        let first = self.events.front()?.revision;
        let skip = usize::try_from(revision.checked_sub(first)?).ok()?;
        Some(self.events.iter().skip(skip))
    }
}
