//! Following a resource: all of its changes by a place in their list, or a part of them by a mailbox.
//!
//! A follower of a whole resource reads the common list. Followers of a namespace, an object, the objects of a
//! node or those with a label are found by that key when an object changes, and only then woken: thousands of
//! unaffected watchers add no cost to a change.

use locks::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::index::{IndexKey, has_room};
use super::{Change, ResourceCache, TooOld};

/// The part of a resource that a follower reads, as far as the cache finds it without searching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interest {
    /// All objects.
    Everything,
    /// Objects whose keys start so: those of a namespace.
    Range(String),
    /// One object.
    Key(String),
    /// Objects whose keys start so, the whole resource if that is empty, and that have this value of a label or field.
    #[expect(missing_docs, reason = "the names say it")]
    Value { range: String, by: IndexKey, value: String },
}

impl Interest {
    /// Whether a change belongs to this part.
    fn concerns(&self, change: &Change) -> bool {
        match self {
            Interest::Everything => true,
            Interest::Range(prefix) => change.key.starts_with(prefix.as_str()),
            Interest::Key(key) => *change.key == **key,
            Interest::Value { range, by, value } => {
                change.key.starts_with(range.as_str()) && by.concerns(value, change)
            }
        }
    }
}

/// Maximum number of unread changes in a mailbox.
const COUNT_MAX: usize = 4096;
/// Limit in bytes of unread objects: a follower that exceeds it loses its position.
const BYTES_MAX: usize = 4 << 20;
/// Changes are handed over in batches of this size.
const BATCH: usize = 256;

/// The changes that one follower has not read yet.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    unread: Mutex<UnreadChanges>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct UnreadChanges {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    is_lost: bool,
}

impl Mailbox {
    fn unread(&self) -> locks::MutexGuard<'_, UnreadChanges> {
        self.unread.lock()
    }

    fn push(&self, change: &Arc<Change>) {
        let mut unread = self.unread();
        if unread.is_lost {
            return;
        }
        unread.bytes = unread.bytes.saturating_add(change.object.json.len());
        unread.changes.push_back(change.clone());
        if unread.changes.len() > COUNT_MAX || (unread.bytes > BYTES_MAX && unread.changes.len() > 1) {
            *unread = UnreadChanges { is_lost: true, ..UnreadChanges::default() };
        }
        drop(unread);
        self.wake.notify_one();
    }

    fn lose(&self) {
        *self.unread() = UnreadChanges { is_lost: true, ..UnreadChanges::default() };
        self.wake.notify_one();
    }

    /// Returns the next unread changes; `None` if some were lost.
    fn take(&self) -> Option<Vec<Arc<Change>>> {
        let mut unread = self.unread();
        if unread.is_lost {
            return None;
        }
        let count = unread.changes.len().min(BATCH);
        let taken: Vec<_> = unread.changes.drain(..count).collect();
        let bytes = taken.iter().map(|change| change.object.json.len()).fold(0, usize::saturating_add);
        unread.bytes = unread.bytes.saturating_sub(bytes);
        if unread.changes.is_empty() {
            // The burst has ended: its memory is released.
            unread.changes.shrink_to(BATCH);
        }
        Some(taken)
    }
}

type MailboxesByText = HashMap<Box<str>, Vec<Arc<Mailbox>>>;

/// Mailboxes by the interests of their owners.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    by_range: MailboxesByText,
    by_key: MailboxesByText,
    /// By label or field, then by range, then by value.
    by_value: HashMap<IndexKey, HashMap<Box<str>, MailboxesByText>>,
}

impl Mailboxes {
    /// Returns the interest under which a follower is registered: only a few labels are indexed.
    fn settle(&self, interest: Interest) -> Interest {
        match interest {
            Interest::Value { range, by, .. }
                if !self.by_value.contains_key(&by) && !has_room(&by, self.by_value.keys()) =>
            {
                if range.is_empty() {
                    Interest::Everything
                } else {
                    Interest::Range(range)
                }
            }
            other => other,
        }
    }

    fn of(&mut self, interest: &Interest) -> Option<(&mut MailboxesByText, Box<str>)> {
        match interest {
            Interest::Everything => None,
            Interest::Range(prefix) => Some((&mut self.by_range, prefix.as_str().into())),
            Interest::Key(key) => Some((&mut self.by_key, key.as_str().into())),
            Interest::Value { range, by, value } => {
                let by_range = self.by_value.entry(by.clone()).or_default();
                Some((by_range.entry(range.as_str().into()).or_default(), value.as_str().into()))
            }
        }
    }

    fn insert(&mut self, interest: &Interest, mailbox: Arc<Mailbox>) {
        if let Some((boxes, key)) = self.of(interest) {
            boxes.entry(key).or_default().push(mailbox);
        }
    }

    fn remove(&mut self, interest: &Interest, mailbox: &Arc<Mailbox>) {
        let Some((boxes, key)) = self.of(interest) else { return };
        if let Some(all) = boxes.get_mut(&key) {
            all.retain(|it| !Arc::ptr_eq(it, mailbox));
            if all.is_empty() {
                boxes.remove(&key);
            }
        }
        if let Interest::Value { by, .. } = interest
            && let Some(by_range) = self.by_value.get_mut(by)
        {
            by_range.retain(|_, boxes| !boxes.is_empty());
            if by_range.is_empty() {
                self.by_value.remove(by);
            }
        }
    }

    /// Whether there are no followers.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_range.is_empty() && self.by_key.is_empty() && self.by_value.is_empty()
    }

    /// Hands a change to all it concerns.
    pub(super) fn deliver(&self, change: &Arc<Change>) {
        let report = |found: Option<&Vec<Arc<Mailbox>>>| {
            found.into_iter().flatten().for_each(|mailbox| mailbox.push(change));
        };
        if !self.by_key.is_empty() {
            report(self.by_key.get(&*change.key));
        }
        let namespace = change.key.rfind('/').and_then(|slash| change.key.get(..=slash)).unwrap_or_default();
        if !self.by_range.is_empty() {
            report(self.by_range.get(namespace));
        }
        for (by, by_range) in &self.by_value {
            let (before, after) = (change.previous.as_ref().and_then(|it| by.value(it)), by.value(&change.object));
            for boxes in ["", namespace].iter().filter_map(|range| by_range.get(*range)) {
                report(before.as_deref().and_then(|value| boxes.get(value)));
                if after != before {
                    report(after.as_deref().and_then(|value| boxes.get(value)));
                }
            }
        }
    }

    /// All places are lost.
    pub(super) fn lose_all(&self) {
        let all = self.by_range.values().chain(self.by_key.values());
        let by_value = self.by_value.values().flat_map(HashMap::values);
        let all = all.chain(by_value.flat_map(HashMap::values));
        all.flatten().for_each(|mailbox| mailbox.lose());
    }
}

/// A reader of the changes of a resource, or of a part of it.
pub struct Follower {
    cache: Arc<ResourceCache>,
    interest: Interest,
    place: Place,
}

enum Place {
    /// In the list of all changes.
    List(u64, watch::Receiver<u64>),
    /// Behind the end of that list.
    Behind(u64),
    /// Changes are brought.
    Mailbox(Arc<Mailbox>),
}

impl Place {
    /// Position of a follower that has read everything. The caller holds the lock on the state, so that no
    /// change is missed.
    fn at_end(cache: &ResourceCache, state: &mut super::State, interest: &Interest) -> Self {
        if *interest == Interest::Everything {
            return Place::List(state.changes.end(), cache.changed.subscribe());
        }
        let mailbox = Arc::<Mailbox>::default();
        state.mailboxes.insert(interest, mailbox.clone());
        Place::Mailbox(mailbox)
    }
}

impl Follower {
    /// Follows from the end on.
    pub(super) fn from_end(cache: &Arc<ResourceCache>, state: &mut super::State, interest: Interest) -> Self {
        let interest = state.mailboxes.settle(interest);
        let place = Place::at_end(cache, state, &interest);
        Self { cache: cache.clone(), interest, place }
    }

    /// Follows from a revision on. Earlier changes are examined as they are read: there may be many.
    pub(super) fn after(cache: &Arc<ResourceCache>, interest: Interest, revision: u64) -> Result<Self, TooOld> {
        let place = Place::Behind(cache.read().changes.place_after(revision)?);
        Ok(Self { cache: cache.clone(), interest, place })
    }

    /// Whether there is more to take, also if the last that was taken is nothing.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        matches!(self.place, Place::Behind(_))
    }

    /// The next changes, some at a time; none if there are no more yet, or none of interest among the next.
    ///
    /// # Errors
    /// [`TooOld`] if changes were removed before they were read.
    pub fn take(&mut self) -> Result<Vec<Arc<Change>>, TooOld> {
        let count = |changes: &Vec<_>| u64::try_from(changes.len()).unwrap_or(u64::MAX);
        match &mut self.place {
            Place::List(place, changed) => {
                changed.borrow_and_update();
                let changes = self.cache.changes(*place)?;
                *place = place.saturating_add(count(&changes));
                Ok(changes)
            }
            Place::Behind(place) => {
                let mut changes = self.cache.changes(*place)?;
                if changes.is_empty() {
                    let mut state = self.cache.write();
                    changes = state.changes.from(*place)?;
                    if changes.is_empty() {
                        self.interest = state.mailboxes.settle(self.interest.clone());
                        self.place = Place::at_end(&self.cache, &mut state, &self.interest);
                        return Ok(changes);
                    }
                }
                *place = place.saturating_add(count(&changes));
                changes.retain(|change| self.interest.concerns(change));
                Ok(changes)
            }
            Place::Mailbox(mailbox) => mailbox.take().ok_or_else(|| TooOld { oldest: self.cache.newest() }),
        }
    }

    /// Waits until there may be more; false if there never will be.
    pub async fn changed(&mut self) -> bool {
        match &mut self.place {
            Place::List(_, changed) => changed.changed().await.is_ok(),
            Place::Behind(_) => true,
            Place::Mailbox(mailbox) => {
                mailbox.wake.notified().await;
                true
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Place::Mailbox(mailbox) = &self.place {
            self.cache.write().mailboxes.remove(&self.interest, mailbox);
        }
    }
}
