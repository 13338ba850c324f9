//! The last changes of a resource, in order, with the text that watchers are sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use api::json::Value;
use bytes::Bytes;
use store::Revision;

use super::TooOld;
use crate::storage::stored::Served;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl ChangeKind {
    /// The type of a watch event.
    #[must_use]
    pub fn event_type(self) -> &'static str {
        match self {
            ChangeKind::Added => "ADDED",
            ChangeKind::Modified => "MODIFIED",
            ChangeKind::Deleted => "DELETED",
        }
    }
}

/// A change. What watchers need of it is made once, when the first one asks, and forgotten when all but the slow have it.
#[derive(Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The key of the object.
    pub key: Arc<str>,
    /// The object since then; after a deletion the last one, with the revision of the deletion.
    pub object: Arc<Served>,
    /// The object before.
    pub previous: Option<Arc<Served>>,
    made: Mutex<Made>,
}

/// Forms of a change that can be made again.
#[derive(Debug, Default)]
struct Made {
    event: Option<Bytes>,
    decoded: Option<Arc<Value>>,
    decoded_previous: Option<Arc<Value>>,
}

impl Change {
    pub(super) fn new(kind: ChangeKind, key: Arc<str>, object: Arc<Served>, previous: Option<Arc<Served>>) -> Self {
        Self { kind, key, object, previous, made: Mutex::default() }
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_made(&self) {
        *self.made() = Made::default();
    }

    /// The line that tells of it.
    pub fn event(&self) -> Bytes {
        self.made().event.get_or_insert_with(|| event_line(self.kind.event_type(), &self.object.json)).clone()
    }

    /// The object as a document.
    pub fn decoded(&self) -> Arc<Value> {
        self.made().decoded.get_or_insert_with(|| Arc::new(self.object.decode())).clone()
    }

    /// The object before, as a document.
    pub fn decoded_previous(&self) -> Arc<Value> {
        let decode = || Arc::new(self.previous.as_ref().map(|it| it.decode()).unwrap_or_default());
        self.made().decoded_previous.get_or_insert_with(decode).clone()
    }
}

/// The line of a watch event about an object.
#[must_use]
pub fn event_line(event_type: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len().saturating_add(40));
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(event_type.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// At most so many changes are kept per resource,
const COUNT_MAX: usize = 20_000;
/// and at most so many bytes of text in them.
const BYTES_MAX: usize = 16 << 20;
/// What was made for watchers is kept with so many of the last changes: a document takes ten times the room of its text.
const MADE_MAX: usize = 128;
/// A watcher gets at most so many changes at a time,
const BATCH: usize = 256;
/// and no more once they have so many bytes: a slow one holds some batches.
const BATCH_BYTES: usize = 256 << 10;

/// The changes that are kept, numbered without gaps.
#[derive(Debug)]
pub(super) struct Changes {
    list: VecDeque<Arc<Change>>,
    /// The number of the first one in the list.
    first: u64,
    bytes: usize,
    /// INVARIANT: every change after this revision is in the list.
    complete_after: Revision,
    newest: Revision,
}

impl Changes {
    pub(super) fn new(revision: Revision) -> Self {
        Self { list: VecDeque::new(), first: 0, bytes: 0, complete_after: revision, newest: 0 }
    }

    /// Forgets everything: changes up to `revision` are unknown, and every place is lost. Gives back the next number.
    pub(super) fn restart(&mut self, revision: Revision) -> u64 {
        let first = self.end().saturating_add(1);
        *self = Self { first, newest: revision, ..Self::new(revision) };
        self.end()
    }

    /// Adds a change; gives back the number of the next one.
    pub(super) fn push(&mut self, change: Change) -> u64 {
        self.newest = change.object.revision;
        self.bytes = self.bytes.saturating_add(change.object.json.len());
        self.list.push_back(Arc::new(change));
        let old = self.list.len().checked_sub(MADE_MAX).and_then(|at| self.list.get(at));
        if let Some(old) = old {
            old.forget_made();
        }
        while self.list.len() > COUNT_MAX || (self.bytes > BYTES_MAX && self.list.len() > 1) {
            let Some(oldest) = self.list.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.object.json.len());
            self.complete_after = oldest.object.revision;
            self.first = self.first.saturating_add(1);
        }
        self.end()
    }

    /// The revision of the last change, 0 if there was none.
    pub(super) fn newest(&self) -> Revision {
        self.newest
    }

    /// The number of the next change.
    pub(super) fn end(&self) -> u64 {
        self.first.saturating_add(u64::try_from(self.list.len()).unwrap_or(u64::MAX))
    }

    pub(super) fn place_after(&self, revision: Revision) -> Result<u64, TooOld> {
        if revision < self.complete_after {
            return Err(TooOld { oldest: self.complete_after });
        }
        let before = self.list.partition_point(|change| change.object.revision <= revision);
        Ok(self.first.saturating_add(u64::try_from(before).unwrap_or(u64::MAX)))
    }

    pub(super) fn from(&self, place: u64) -> Result<Vec<Arc<Change>>, TooOld> {
        let Some(skip) = place.checked_sub(self.first) else {
            return Err(TooOld { oldest: self.complete_after });
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let mut bytes = 0_usize;
        let fits = |change: &&Arc<Change>| {
            let fits = bytes < BATCH_BYTES;
            bytes = bytes.saturating_add(change.object.json.len());
            fits
        };
        Ok(self.list.iter().skip(skip).take(BATCH).take_while(fits).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::stored;

    fn change(revision: u64, length: usize) -> Change {
        let mut object = api::json!({"metadata": {"creationTimestamp": null, "name": ("x".repeat(length))}});
        let served = Served::new(&stored::encode(&mut object).unwrap(), revision).unwrap();
        Change::new(ChangeKind::Added, "k".into(), Arc::new(served), None)
    }

    #[test]
    fn places_are_found_by_revision_and_lost_when_changes_are_forgotten() {
        let mut changes = Changes::new(5);
        assert_eq!(changes.place_after(4), Err(TooOld { oldest: 5 }));
        assert_eq!(changes.place_after(9), Ok(0));
        for revision in [7, 9, 12] {
            changes.push(change(revision, 10));
        }
        assert_eq!(changes.place_after(5), Ok(0));
        assert_eq!(changes.place_after(9), Ok(2));
        assert_eq!(changes.place_after(99), Ok(3));
        assert_eq!(changes.from(1).unwrap().len(), 2);
        changes.push(change(20, BYTES_MAX));
        assert_eq!(changes.place_after(9), Err(TooOld { oldest: 12 }));
        assert_eq!(changes.from(0).unwrap_err(), TooOld { oldest: 12 });
        assert_eq!(changes.from(3).unwrap().len(), 1);
        assert_eq!(changes.end(), 4);
    }

    #[test]
    fn the_event_is_one_line() {
        assert_eq!(event_line("ADDED", b"{}"), "{\"type\":\"ADDED\",\"object\":{}}\n");
    }
}
