//! Handlers of changes.
//!
//! One thread at a time has the turn: it stores a change and passes it to the handlers, so that a new handler
//! neither misses nor repeats one. A handler that adds another one has the turn itself; the new one starts
//! after the change has been handled.

use locks::{Mutex, MutexGuard};
use std::thread::ThreadId;

use super::store::Contents;
use super::{AnyObject, Change, Key};

/// Returns whether to call it again.
pub(super) type Handler = Box<dyn FnMut(&Key, &Change<AnyObject>) -> bool + Send>;

#[derive(Default)]
pub(super) struct Handlers {
    /// The turn.
    all: Mutex<Vec<Handler>>,
    /// Thread that has the turn.
    thread: Mutex<Option<ThreadId>>,
    /// Added by the one whose turn it is.
    added: Mutex<Vec<Handler>>,
}

/// The right to store changes and call handlers.
pub(super) struct Turn<'a> {
    handlers: &'a Handlers,
    contents: &'a Contents,
    all: MutexGuard<'a, Vec<Handler>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.handlers.thread.lock() = None;
    }
}

impl Handlers {
    /// Waits for the turn.
    pub(super) fn turn<'a>(&'a self, contents: &'a Contents) -> Turn<'a> {
        let all = self.all.lock();
        *self.thread.lock() = Some(std::thread::current().id());
        Turn { handlers: self, contents, all }
    }

    pub(super) fn add(&self, contents: &Contents, handler: Handler) {
        if *self.thread.lock() == Some(std::thread::current().id()) {
            self.added.lock().push(handler);
            return;
        }
        let mut turn = self.turn(contents);
        turn.begin(handler);
        turn.begin_added();
    }
}

impl Turn<'_> {
    /// Passes the existing objects to a handler.
    fn begin(&mut self, mut handler: Handler) {
        for (key, object) in self.contents.entries() {
            if !handler(&key, &Change::Added(object)) {
                return;
            }
        }
        self.all.push(handler);
    }

    /// Passes the existing objects to handlers that were added meanwhile, which may have added others.
    fn begin_added(&mut self) {
        loop {
            let added = std::mem::take(&mut *self.handlers.added.lock());
            if added.is_empty() {
                return;
            }
            added.into_iter().for_each(|handler| self.begin(handler));
        }
    }

    /// Passes a stored change to the handlers.
    pub(super) fn report(&mut self, key: &Key, change: &Change<AnyObject>) {
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
            turn.report(&Key::new("", name), &change);
        };
        set("a", 1);
        let reported: Arc<Mutex<Vec<u32>>> = Arc::default();
        let (outer, seen) = (Arc::downgrade(&inner), reported.clone());
        let mut added = false;
        let number = |change: &Change<AnyObject>| *change.newest().downcast_ref::<u32>().unwrap();
        let handler: Handler = Box::new(move |_, change| {
            if number(change) == 2 && !std::mem::replace(&mut added, true) {
                let (inner, seen) = (outer.upgrade().unwrap(), seen.clone());
                let second: Handler = Box::new(move |_, change| {
                    seen.lock().push(number(change));
                    number(change) < 4
                });
                inner.1.add(&inner.0, second);
            }
            true
        });
        inner.1.add(&inner.0, handler);
        set("b", 2);
        // Existing objects are passed in no particular order.
        reported.lock().sort_unstable();
        assert_eq!(*reported.lock(), [1, 2]);
        set("a", 3);
        set("a", 4);
        set("a", 5);
        assert_eq!(*reported.lock(), [1, 2, 3, 4], "it wanted no more after 4");
    }
}
