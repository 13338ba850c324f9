//! The last changes of a resource, in order, with their encodings for watchers.

use locks::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::json::Value;
use bytes::Bytes;
use store::Revision;

use super::TooOld;
use crate::stored::ServedObject;

/// Kind of a change.
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

/// A change. Its encodings for watchers are created on first use, and dropped once all but slow watchers have
/// read it.
#[derive(Debug)]
pub struct Change {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The key of the object.
    pub key: Arc<str>,
    /// The object since then; after a deletion the last one, with the revision of the deletion.
    pub object: Arc<ServedObject>,
    /// The object before.
    pub previous: Option<Arc<ServedObject>>,
    at: Instant,
    made: Mutex<Encodings>,
}

/// Forms of a change that can be made again.
#[derive(Debug, Default)]
struct Encodings {
    event: Option<Bytes>,
    frame: Option<Bytes>,
    decoded: Option<Arc<Value>>,
    /// Set when encodings are no longer cached: a late watcher encodes its own copy.
    is_over: bool,
}

impl Encodings {
    /// A form that is here already, or a new one.
    fn form<T: Clone>(&mut self, of: fn(&mut Self) -> &mut Option<T>, make: impl FnOnce() -> T) -> T {
        let is_over = self.is_over;
        match of(self) {
            Some(made) => made.clone(),
            None if is_over => make(),
            empty => empty.insert(make()).clone(),
        }
    }
}

impl Change {
    pub(super) fn new(
        kind: ChangeKind,
        key: Arc<str>,
        object: Arc<ServedObject>,
        previous: Option<Arc<ServedObject>>,
        at: Instant,
    ) -> Self {
        Self { kind, key, object, previous, at, made: Mutex::default() }
    }

    /// The same change of the object in another version.
    #[must_use]
    pub fn converted(&self, object: Arc<ServedObject>, previous: Option<Arc<ServedObject>>) -> Self {
        Self::new(self.kind, self.key.clone(), object, previous, self.at)
    }

    /// Returns the bytes that are in memory only because of this change: an object that is still cached does
    /// not count.
    fn bytes(&self, objects_are_kept: bool) -> usize {
        let is_elsewhere = objects_are_kept && self.kind != ChangeKind::Deleted;
        let gone = if is_elsewhere { 0 } else { self.object.json.len() };
        let before = self.previous.as_ref().map(|previous| previous.json.len()).unwrap_or_default();
        gone.saturating_add(before).saturating_add(CHANGE_BYTES)
    }

    fn made(&self) -> locks::MutexGuard<'_, Encodings> {
        self.made.lock()
    }

    fn forget_made(&self) {
        *self.made() = Encodings { is_over: true, ..Encodings::default() };
    }

    /// The encoded watch event.
    pub fn event(&self) -> Bytes {
        self.made().form(|made| &mut made.event, || event_line(self.kind.event_type(), &self.object.json))
    }

    /// The change in another encoding: `encode` receives the type of the event and the text of the object.
    pub fn frame(&self, encode: fn(&str, &[u8]) -> Bytes) -> Bytes {
        self.made().form(|made| &mut made.frame, || encode(self.kind.event_type(), &self.object.json))
    }

    /// The object as a document.
    pub fn decoded(&self) -> Arc<Value> {
        self.made().form(|made| &mut made.decoded, || Arc::new(self.object.decode()))
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

/// Retention time of changes: a watcher that receives only bookmarks, one a minute, can resume from the last
/// one.
const AGE_MAX: Duration = Duration::from_secs(90);
/// All resources together keep a number of bytes, but a resource with less than this part of it keeps its own: a busy one
/// does not cost the others their past.
const SHARE: usize = 8;
/// This many changes of a resource are kept however old they are, if they take no more than [`OLD_BYTES`].
const COUNT_MIN: usize = 100;
/// Memory up to which changes are kept however old they are.
const OLD_BYTES: usize = 4 << 20;
/// Memory of a change besides its text: inputs of selectors, and unused space between texts.
const CHANGE_BYTES: usize = 1 << 10;
/// Number of the last changes that keep their encodings: a decoded document takes ten times the memory of its
/// text.
const MADE_MAX: usize = 128;
/// Bytes of text of the last changes that keep their encodings, besides the newest: definitions and other large objects
/// keep them for fewer changes.
const MADE_BYTES: usize = 1 << 20;
/// Encodings are dropped after this time: by then all but slow watchers have read them.
const MADE_AGE: Duration = Duration::from_secs(10);
/// Maximum number of changes that a watcher receives at a time.
const BATCH: usize = 256;
/// Size of a batch in bytes: a slow watcher holds some batches.
const BATCH_BYTES: usize = 256 << 10;

/// Memory use of the changes of all resources, and its limit.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether a resource whose changes take `own` bytes must remove some.
    fn is_exceeded_by(&self, own: usize) -> bool {
        own > self.max / SHARE && self.used.load(Ordering::Relaxed) > self.max
    }
}

/// The changes that are kept, numbered without gaps.
#[derive(Debug)]
pub(super) struct Changes {
    list: VecDeque<Arc<Change>>,
    /// The number of the first one in the list.
    first: u64,
    bytes: usize,
    /// Number of the last changes that may hold encodings, and the bytes of their texts.
    made: (usize, usize),
    budget: Arc<Budget>,
    /// Whether the cache holds the objects as well.
    objects_are_kept: bool,
    /// INVARIANT: every change after this revision is in the list.
    complete_after: Revision,
    newest: Revision,
}

impl Changes {
    pub(super) fn new(revision: Revision, budget: Arc<Budget>, objects_are_kept: bool) -> Self {
        let list = VecDeque::new();
        Self { list, first: 0, bytes: 0, made: (0, 0), budget, objects_are_kept, complete_after: revision, newest: 0 }
    }

    /// Removes all changes: those up to `revision` are unknown, and every position is lost. Returns the next
    /// number.
    pub(super) fn restart(&mut self, revision: Revision) -> u64 {
        self.first = self.end().saturating_add(1);
        self.list.clear();
        self.budget.give_back(self.bytes);
        (self.bytes, self.made) = (0, (0, 0));
        self.complete_after = revision;
        self.newest = revision;
        self.end()
    }

    /// Adds a change; gives back the number of the next one.
    pub(super) fn push(&mut self, change: Arc<Change>) -> u64 {
        self.newest = change.object.revision;
        let (bytes, now) = (change.bytes(self.objects_are_kept), change.at);
        self.bytes = self.bytes.saturating_add(bytes);
        self.budget.take(bytes);
        let (count, text) = self.made;
        self.made = (count.saturating_add(1), text.saturating_add(change.object.json.len()));
        self.list.push_back(change);
        self.trim(now);
        self.end()
    }

    /// Drops encodings of changes that are too old, too many or too large.
    fn forget_made(&mut self, now: Instant) {
        while let Some(oldest) = self.list.len().checked_sub(self.made.0).and_then(|at| self.list.get(at)) {
            let (count, text) = self.made;
            let is_old = now.saturating_duration_since(oldest.at) > MADE_AGE;
            if !is_old && count <= MADE_MAX && (text <= MADE_BYTES || count <= 1) {
                return;
            }
            oldest.forget_made();
            self.made = (count.saturating_sub(1), text.saturating_sub(oldest.object.json.len()));
        }
    }

    /// Removes changes that are too old or too many.
    pub(super) fn trim(&mut self, now: Instant) {
        self.forget_made(now);
        while let Some(oldest) = self.list.front() {
            let is_old = now.saturating_duration_since(oldest.at) > AGE_MAX;
            let is_too_much = self.budget.is_exceeded_by(self.bytes);
            let is_little = self.list.len() <= COUNT_MIN && self.bytes <= OLD_BYTES;
            if !is_too_much && (!is_old || is_little) {
                return;
            }
            let bytes = oldest.bytes(self.objects_are_kept);
            self.complete_after = oldest.object.revision;
            self.first = self.first.saturating_add(1);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.budget.give_back(bytes);
            if self.made.0 >= self.list.len() {
                self.made = (self.made.0.saturating_sub(1), self.made.1.saturating_sub(oldest.object.json.len()));
            }
            self.list.pop_front();
        }
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

    /// Whether all changes from a position on are available.
    pub(super) fn knows(&self, place: u64) -> bool {
        place >= self.first
    }

    /// All changes from a place on.
    pub(super) fn all_from(&self, place: u64) -> impl Iterator<Item = &Arc<Change>> {
        let skip = usize::try_from(place.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.list.iter().skip(skip)
    }

    /// Changes from a place on, some at a time.
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

impl Drop for Changes {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored;

    fn change(revision: u64, length: usize, at: Instant) -> Arc<Change> {
        let mut object = api::json!({"metadata": {"creationTimestamp": null, "name": ("x".repeat(length))}});
        let served = Arc::new(ServedObject::new(&stored::encode(&mut object).unwrap(), revision).unwrap());
        Arc::new(Change::new(ChangeKind::Deleted, "k".into(), served, None, at))
    }

    #[test]
    fn places_are_found_by_revision_and_lost_when_changes_are_forgotten() {
        let (total, start) = (Arc::new(Budget::new(256 << 20)), Instant::now());
        let mut changes = Changes::new(5, total.clone(), true);
        assert_eq!(changes.place_after(4), Err(TooOld { oldest: 5 }));
        assert_eq!(changes.place_after(9), Ok(0));
        for revision in [7, 9, 12] {
            changes.push(change(revision, 10, start));
        }
        assert_eq!(changes.place_after(5), Ok(0));
        assert_eq!(changes.place_after(9), Ok(2));
        assert_eq!(changes.place_after(99), Ok(3));
        assert_eq!(changes.from(1).unwrap().len(), 2);
        // Few changes stay however old they are.
        changes.trim(start + AGE_MAX * 2);
        assert_eq!(changes.from(0).unwrap().len(), 3);
        for revision in 20..20 + COUNT_MIN as u64 {
            changes.push(change(revision, 10, start + AGE_MAX * 2));
        }
        assert_eq!(changes.place_after(9), Err(TooOld { oldest: 12 }));
        assert_eq!(changes.from(0).unwrap_err(), TooOld { oldest: 12 });
        assert_eq!(changes.end(), 3 + COUNT_MIN as u64);
        assert_eq!(total.used.load(Ordering::Relaxed), changes.bytes);
        drop(changes);
        assert_eq!(total.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn old_changes_of_large_objects_are_removed() {
        let start = Instant::now();
        let mut changes = Changes::new(0, Arc::new(Budget::new(256 << 20)), true);
        for revision in 1..=COUNT_MIN as u64 {
            changes.push(change(revision, 100 << 10, start));
        }
        changes.trim(start + AGE_MAX);
        assert_eq!(changes.list.len(), COUNT_MIN);
        changes.trim(start + AGE_MAX * 2);
        assert!((30..50).contains(&changes.list.len()), "{} changes of 101 kB", changes.list.len());
        assert!(changes.bytes <= OLD_BYTES);
    }

    #[test]
    fn a_busy_resource_pays_for_its_own_past() {
        let (total, start) = (Arc::new(Budget::new(256 << 20)), Instant::now());
        let (mut busy, mut quiet) = (Changes::new(1, total.clone(), true), Changes::new(1, total.clone(), true));
        quiet.push(change(2, 10, start));
        for revision in 3..80 {
            busy.push(change(revision, 4 << 20, start));
        }
        quiet.push(change(80, 10, start));
        assert!(total.used.load(Ordering::Relaxed) <= total.max + (5 << 20));
        assert_eq!(quiet.place_after(1), Ok(0));
        assert!(busy.place_after(1).is_err());
    }

    /// The default budget of servers holds the changes of a busy cluster between two bookmarks.
    #[test]
    fn two_thousand_changes_a_second_are_kept_for_longer_than_a_bookmark_takes() {
        const EACH_SECOND: u64 = 2_000;
        let budget = Arc::new(Budget::new(896 << 20));
        let (mut changes, start) = (Changes::new(0, budget, true), Instant::now());
        let text = "x".repeat(4_000);
        let mut pod = api::json!({"metadata": {"creationTimestamp": null, "name": (text.as_str())}});
        let stored = stored::encode(&mut pod).unwrap();
        // In this test all changes share one text, which counts for each.
        let before = Arc::new(ServedObject::new(&stored, 1).unwrap());
        let mut small = api::json!({"metadata": {"creationTimestamp": null, "name": "n"}});
        let small = stored::encode(&mut small).unwrap();
        for revision in 1..=EACH_SECOND * 100 {
            let after = Arc::new(ServedObject::new(&small, revision).unwrap());
            let at = start + Duration::from_millis(1_000 * revision / EACH_SECOND);
            changes.push(Arc::new(Change::new(ChangeKind::Modified, "k".into(), after, Some(before.clone()), at)));
        }
        assert!(changes.place_after(EACH_SECOND * 25).is_ok(), "75 s are not kept");
        assert!(changes.place_after(EACH_SECOND * 5).is_err(), "95 s are kept");
    }

    /// Reading an old change does not add cached encodings to it.
    #[test]
    fn old_changes_hold_only_their_objects() {
        let start = Instant::now();
        let mut changes = Changes::new(0, Arc::new(Budget::new(256 << 20)), true);
        for revision in 1..=2 * MADE_MAX as u64 {
            changes.push(change(revision, 10, start));
        }
        let all: Vec<_> = changes.all_from(0).cloned().collect();
        let texts: Vec<_> = all.iter().map(|change| (change.event(), change.decoded())).collect();
        assert!(texts.iter().zip(&all).all(|(text, change)| text.0 == change.event() && *text.1 == *change.decoded()));
        let holding = all.iter().filter(|change| change.made().event.is_some() || change.made().decoded.is_some());
        assert_eq!(holding.count(), MADE_MAX);
    }

    fn holding(changes: &Changes) -> usize {
        changes.list.iter().filter(|change| change.made().event.is_some() || change.made().decoded.is_some()).count()
    }

    #[test]
    fn large_and_old_changes_drop_their_encodings() {
        let start = Instant::now();
        let mut changes = Changes::new(0, Arc::new(Budget::new(256 << 20)), true);
        for revision in 1..=20 {
            let change = change(revision, 100 << 10, start);
            changes.push(change.clone());
            assert!(!change.event().is_empty() && !change.decoded().is_null());
        }
        assert_eq!(holding(&changes), 10, "1 MiB of 100 kB each");
        changes.push(change(21, 4 << 20, start));
        assert!(changes.list.back().is_some_and(|newest| !newest.event().is_empty()));
        assert_eq!(holding(&changes), 1, "the newest, however large");
        changes.trim(start + MADE_AGE * 2);
        assert_eq!((holding(&changes), changes.made), (0, (0, 0)));
        changes.push(change(22, 10, start + MADE_AGE * 2));
        assert!(changes.list.back().is_some_and(|newest| !newest.event().is_empty()));
        assert_eq!((holding(&changes), changes.made.0), (1, 1));
    }

    #[test]
    fn the_event_is_one_line() {
        assert_eq!(event_line("ADDED", b"{}"), "{\"type\":\"ADDED\",\"object\":{}}\n");
    }
}
