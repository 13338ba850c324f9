//! Following a resource: all of its changes by a place in their list, or a part of them by a mailbox.
//!
//! Who follows a whole resource reads the common list. Who follows one namespace, one object, the objects of one node or
//! those with a label is found by that when something changes, and only then woken: thousands of such watchers cost a
//! change nothing.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, watch};

use super::labels::LABELS_MAX;
use super::{Change, ResourceCache, TooOld};

/// The part of a resource that somebody is interested in, as far as the cache finds it without searching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interest {
    /// All objects.
    Everything,
    /// Objects whose keys start so: those of a namespace.
    Range(String),
    /// One object.
    Key(String),
    /// Objects that have this value in the field by which the resource is indexed.
    Field(String),
    /// Objects whose keys start so, the whole resource if that is empty, and that have this value of a label.
    #[expect(missing_docs, reason = "the names say it")]
    Label { range: String, label: String, value: String },
}

/// A mailbox holds at most this many changes,
const COUNT_MAX: usize = 4096;
/// and at most this many bytes of objects: whoever does not read loses the place.
const BYTES_MAX: usize = 4 << 20;
/// Changes are handed over in batches of this size.
const BATCH: usize = 256;

/// The changes that one follower has not read yet.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    unread: Mutex<Unread>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Unread {
    changes: VecDeque<Arc<Change>>,
    bytes: usize,
    is_lost: bool,
}

impl Mailbox {
    fn unread(&self) -> std::sync::MutexGuard<'_, Unread> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, change: &Arc<Change>) {
        let mut unread = self.unread();
        if unread.is_lost {
            return;
        }
        unread.bytes = unread.bytes.saturating_add(change.object.json.len());
        unread.changes.push_back(change.clone());
        if unread.changes.len() > COUNT_MAX || (unread.bytes > BYTES_MAX && unread.changes.len() > 1) {
            *unread = Unread { is_lost: true, ..Unread::default() };
        }
        drop(unread);
        self.wake.notify_one();
    }

    fn lose(&self) {
        *self.unread() = Unread { is_lost: true, ..Unread::default() };
        self.wake.notify_one();
    }

    /// What has come, some at a time; none if something was lost.
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
            // A burst is over: its room is given back.
            unread.changes.shrink_to(BATCH);
        }
        Some(taken)
    }
}

type ByText = HashMap<Box<str>, Vec<Arc<Mailbox>>>;

/// Mailboxes by what their owners are interested in.
#[derive(Debug, Default)]
pub(super) struct Mailboxes {
    by_range: ByText,
    by_key: ByText,
    by_field: ByText,
    /// By label, then by value.
    by_label: HashMap<Box<str>, ByText>,
}

impl Mailboxes {
    /// The interest by which somebody will be found: labels are only a few.
    fn settle(&self, interest: Interest) -> Interest {
        match interest {
            Interest::Label { range, label, .. }
                if self.by_label.len() >= LABELS_MAX && !self.by_label.contains_key(label.as_str()) =>
            {
                if range.is_empty() { Interest::Everything } else { Interest::Range(range) }
            }
            other => other,
        }
    }

    fn of(&mut self, interest: &Interest) -> Option<(&mut ByText, Box<str>)> {
        match interest {
            Interest::Everything => None,
            Interest::Range(prefix) => Some((&mut self.by_range, prefix.as_str().into())),
            Interest::Key(key) => Some((&mut self.by_key, key.as_str().into())),
            Interest::Field(value) => Some((&mut self.by_field, value.as_str().into())),
            Interest::Label { label, value, .. } => {
                let boxes = self.by_label.entry(label.as_str().into()).or_default();
                Some((boxes, value.as_str().into()))
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
        if let Interest::Label { label, .. } = interest
            && self.by_label.get(label.as_str()).is_some_and(HashMap::is_empty)
        {
            self.by_label.remove(label.as_str());
        }
    }

    /// Whether somebody follows by field, so that it has to be looked at.
    pub(super) fn ask_for_field(&self) -> bool {
        !self.by_field.is_empty()
    }

    /// Whether nobody is here.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        [&self.by_range, &self.by_key, &self.by_field].iter().all(|it| it.is_empty()) && self.by_label.is_empty()
    }

    /// Hands a change to all it concerns. `fields` are the values of the indexed field before and after it.
    pub(super) fn deliver(&self, change: &Arc<Change>, fields: [Option<&str>; 2]) {
        let tell = |found: Option<&Vec<Arc<Mailbox>>>| {
            found.into_iter().flatten().for_each(|mailbox| mailbox.push(change));
        };
        if !self.by_key.is_empty() {
            tell(self.by_key.get(&*change.key));
        }
        if !self.by_range.is_empty()
            && let Some((namespace, _)) = change.key.rsplit_once('/')
        {
            let range = change.key.get(..namespace.len().saturating_add(1)).unwrap_or_default();
            tell(self.by_range.get(range));
        }
        let [before, after] = fields;
        tell(before.and_then(|value| self.by_field.get(value)));
        if after != before {
            tell(after.and_then(|value| self.by_field.get(value)));
        }
        for (label, boxes) in &self.by_label {
            let (before, after) = (change.previous.as_ref().and_then(|it| it.label(label)), change.object.label(label));
            tell(before.and_then(|value| boxes.get(value)));
            if after != before {
                tell(after.and_then(|value| boxes.get(value)));
            }
        }
    }

    /// All places are lost.
    pub(super) fn lose_all(&self) {
        let all = self.by_range.values().chain(self.by_key.values()).chain(self.by_field.values());
        let all = all.chain(self.by_label.values().flat_map(HashMap::values));
        all.flatten().for_each(|mailbox| mailbox.lose());
    }
}

/// Somebody who follows the changes of a resource, or of a part of it.
pub struct Follower {
    cache: Arc<ResourceCache>,
    interest: Interest,
    place: Place,
}

enum Place {
    /// In the list of all changes.
    List(u64, watch::Receiver<u64>),
    /// Changes are brought.
    Mailbox(Arc<Mailbox>),
}

impl Follower {
    /// Follows from a place on. The state is locked by the caller, so that nothing happens in between.
    pub(super) fn new(cache: &Arc<ResourceCache>, state: &mut super::State, interest: Interest, place: u64) -> Self {
        let interest = state.mailboxes.settle(interest);
        let place = if interest == Interest::Everything {
            Place::List(place, cache.changed.subscribe())
        } else {
            let mailbox = Arc::new(Mailbox::default());
            for change in state.changes.all_from(place).filter(|change| cache.concerns(&interest, change)) {
                mailbox.push(change);
            }
            state.mailboxes.insert(&interest, mailbox.clone());
            Place::Mailbox(mailbox)
        };
        Self { cache: cache.clone(), interest, place }
    }

    /// The next changes, some at a time; none if there are no more yet.
    ///
    /// # Errors
    /// [`TooOld`] if changes were forgotten before they were read.
    pub fn take(&mut self) -> Result<Vec<Arc<Change>>, TooOld> {
        match &mut self.place {
            Place::List(place, changed) => {
                changed.borrow_and_update();
                let changes = self.cache.changes(*place)?;
                *place = place.saturating_add(u64::try_from(changes.len()).unwrap_or(u64::MAX));
                Ok(changes)
            }
            Place::Mailbox(mailbox) => mailbox.take().ok_or_else(|| TooOld { oldest: self.cache.newest() }),
        }
    }

    /// Waits until there may be more; false if there never will be.
    pub async fn changed(&mut self) -> bool {
        match &mut self.place {
            Place::List(_, changed) => changed.changed().await.is_ok(),
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
