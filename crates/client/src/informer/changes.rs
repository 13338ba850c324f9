//! A queue of changes, merged by key: a slow reader skips outdated ones instead of filling the memory.

use locks::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::{AnyObject, Change, Key};

#[derive(Default)]
struct WaitingChanges {
    order: VecDeque<Key>,
    changes: HashMap<Key, Change<AnyObject>>,
}

struct SharedChanges {
    waiting: Mutex<WaitingChanges>,
    ready: Arc<Notify>,
}

impl SharedChanges {
    fn take(&self) -> Option<(Key, Change<AnyObject>)> {
        let mut waiting = self.lock();
        let key = waiting.order.pop_front()?;
        let change = waiting.changes.remove(&key)?;
        Some((key, change))
    }

    fn lock(&self) -> MutexGuard<'_, WaitingChanges> {
        self.waiting.lock()
    }
}

/// Changes of a collection, to be read at leisure.
pub struct Changes<T> {
    shared: Arc<SharedChanges>,
    form: PhantomData<fn() -> T>,
}

pub(super) struct Sender {
    shared: Weak<SharedChanges>,
}

/// `ready` is notified whenever something waits.
pub(super) fn channel<T>(ready: Arc<Notify>) -> (Sender, Changes<T>) {
    let shared = Arc::new(SharedChanges { waiting: Mutex::default(), ready });
    (Sender { shared: Arc::downgrade(&shared) }, Changes { shared, form: PhantomData })
}

impl Sender {
    /// Queues a change; returns whether there is still a reader.
    pub(super) fn send(&self, key: &Key, change: &Change<AnyObject>) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let mut waiting = shared.lock();
        let joined = match waiting.changes.remove(key) {
            None => {
                waiting.order.push_back(key.clone());
                Some(change.clone())
            }
            Some(earlier) => join(earlier, change),
        };
        match joined {
            Some(change) => {
                waiting.changes.insert(key.clone(), change);
            }
            // The reader never knew of it.
            None => waiting.order.retain(|it| it != key),
        }
        drop(waiting);
        shared.ready.notify_one();
        true
    }
}

/// Merges two consecutive changes for a reader that has seen neither.
fn join(earlier: Change<AnyObject>, later: &Change<AnyObject>) -> Option<Change<AnyObject>> {
    match (earlier, later) {
        (Change::Added(_), Change::Deleted(_)) => None,
        (Change::Added(_), later) => Some(Change::Added(later.newest().clone())),
        (_, Change::Deleted(last)) => Some(Change::Deleted(last.clone())),
        (Change::Updated { old, .. } | Change::Deleted(old), later) => {
            Some(Change::Updated { old, new: later.newest().clone() })
        }
    }
}

impl<T: Send + Sync + 'static> Changes<T> {
    /// The next change.
    pub async fn next(&mut self) -> (Key, Change<T>) {
        loop {
            if let Some(change) = self.try_next() {
                return change;
            }
            self.shared.ready.notified().await;
        }
    }

    /// The next change, if one waits.
    pub fn try_next(&mut self) -> Option<(Key, Change<T>)> {
        let (key, change) = self.shared.take()?;
        Some((key, change.typed()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(changes: &[Change<AnyObject>], expected: Option<Change<AnyObject>>) {
        let (sender, mut receiver) = channel::<u8>(Arc::default());
        let key = Key::new("a", "b");
        for change in changes {
            assert!(sender.send(&key, change));
        }
        assert_eq!(receiver.try_next(), expected.and_then(|change| Some((key, change.typed()?))));
        assert_eq!(receiver.try_next(), None);
        drop(receiver);
        assert!(!sender.send(&Key::default(), &Change::Added(Arc::new(0))));
    }

    #[test]
    fn unread_changes_are_merged() {
        let added = |to: u8| Change::Added(Arc::new(to) as Arc<AnyObject>);
        let updated = |from: u8, to: u8| Change::Updated { old: Arc::new(from) as Arc<AnyObject>, new: Arc::new(to) };
        let deleted = |last: u8| Change::Deleted(Arc::new(last) as Arc<AnyObject>);
        check(&[added(1), updated(1, 2)], Some(added(2)));
        check(&[added(1), updated(1, 2), deleted(2)], None);
        check(&[updated(1, 2), updated(2, 3)], Some(updated(1, 3)));
        check(&[updated(1, 2), deleted(3)], Some(deleted(3)));
        check(&[deleted(1), added(2)], Some(updated(1, 2)));
        check(&[deleted(1), added(2), deleted(2)], Some(deleted(2)));
    }
}
