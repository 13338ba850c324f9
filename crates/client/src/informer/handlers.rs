//! Who is told about changes.
//!
//! One thread at a time has the turn: it stores a change and tells it, so that a new handler neither misses nor repeats
//! one. A handler that adds another one has the turn itself; the new one waits until the change has been told.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::store::Contents;
use super::{Anything, Change, Key};

/// Answers whether it wants to be called again.
pub(super) type Handler = Box<dyn FnMut(&Key, &Change<Anything>) -> bool + Send>;

#[derive(Default)]
pub(super) struct Handlers {
    /// The turn.
    all: Mutex<Vec<Handler>>,
    /// Whose turn it is.
    thread: Mutex<Option<ThreadId>>,
    /// Added by the one whose turn it is.
    added: Mutex<Vec<Handler>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to store and tell.
pub(super) struct Turn<'a> {
    handlers: &'a Handlers,
    contents: &'a Contents,
    all: MutexGuard<'a, Vec<Handler>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *lock(&self.handlers.thread) = None;
    }
}

impl Handlers {
    /// Waits for the turn.
    pub(super) fn turn<'a>(&'a self, contents: &'a Contents) -> Turn<'a> {
        let all = lock(&self.all);
        *lock(&self.thread) = Some(std::thread::current().id());
        Turn { handlers: self, contents, all }
    }

    pub(super) fn add(&self, contents: &Contents, handler: Handler) {
        if *lock(&self.thread) == Some(std::thread::current().id()) {
            lock(&self.added).push(handler);
            return;
        }
        let mut turn = self.turn(contents);
        turn.begin(handler);
        turn.begin_added();
    }
}

impl Turn<'_> {
    /// Tells a handler what is here.
    fn begin(&mut self, mut handler: Handler) {
        for (key, object) in self.contents.entries() {
            if !handler(&key, &Change::Added(object)) {
                return;
            }
        }
        self.all.push(handler);
    }

    /// Tells what is here to those that were added meanwhile, who may have added others.
    fn begin_added(&mut self) {
        loop {
            let added = std::mem::take(&mut *lock(&self.handlers.added));
            if added.is_empty() {
                return;
            }
            added.into_iter().for_each(|handler| self.begin(handler));
        }
    }

    /// Tells a change that has been stored.
    pub(super) fn tell(&mut self, key: &Key, change: &Change<Anything>) {
        self.all.retain_mut(|handler| handler(key, change));
        self.begin_added();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_handler_may_add_handlers_which_miss_and_repeat_nothing() {
        let inner = Arc::new((Contents::default(), Handlers::default()));
        let set = |name: &str, number: u32| {
            let mut turn = inner.1.turn(&inner.0);
            let change = inner.0.set(&Key::new("", name), number.to_string().into(), Arc::new(number)).unwrap();
            turn.tell(&Key::new("", name), &change);
        };
        set("a", 1);
        let told: Arc<Mutex<Vec<u32>>> = Arc::default();
        let (outer, seen) = (Arc::downgrade(&inner), told.clone());
        let mut added = false;
        let number = |change: &Change<Anything>| *change.newest().downcast_ref::<u32>().unwrap();
        let handler: Handler = Box::new(move |_, change| {
            if number(change) == 2 && !std::mem::replace(&mut added, true) {
                let (inner, seen) = (outer.upgrade().unwrap(), seen.clone());
                let second: Handler = Box::new(move |_, change| {
                    lock(&seen).push(number(change));
                    number(change) < 4
                });
                inner.1.add(&inner.0, second);
            }
            true
        });
        inner.1.add(&inner.0, handler);
        set("b", 2);
        // What is here already comes in no order.
        lock(&told).sort_unstable();
        assert_eq!(*lock(&told), [1, 2]);
        set("a", 3);
        set("a", 4);
        set("a", 5);
        assert_eq!(*lock(&told), [1, 2, 3, 4], "it wanted no more after 4");
    }
}
