//! The objects of a long list, some at a time: from a view of the cache, or page by page from the store.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use store::{ListOptions, Revision, Store};
use tracing::warn;

use crate::http::listing::AHEAD;
use crate::storage::cache::{Entry, View};
use crate::storage::stored::Served;

/// A part of a long list is made of about this many bytes of objects,
pub(super) const PART_BYTES: usize = 128 << 10;
/// or this many objects, selected or not.
pub(super) const PART_OBJECTS: usize = 256;

/// Gets some objects, on a thread that may wait; none if that fails.
pub(in super::super) type Fetch = Box<dyn FnOnce() -> Option<Vec<Entry>> + Send>;

/// Where the objects come from.
#[derive(Clone)]
pub(in super::super) enum Chunks {
    View(View),
    Pages(Pages),
}

/// Objects that only the store has, as of one revision.
pub(in super::super) struct Pages {
    store: Arc<dyn Store>,
    range: String,
    revision: Revision,
    /// What has been read already.
    first: VecDeque<Entry>,
    /// Where it goes on after that; none at the end.
    after_key: Arc<Mutex<Option<String>>>,
    runtime: tokio::runtime::Handle,
}

impl Clone for Pages {
    /// Both go on from here, each for itself.
    fn clone(&self) -> Self {
        let after_key = self.after_key.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            store: self.store.clone(),
            range: self.range.clone(),
            revision: self.revision,
            first: self.first.clone(),
            after_key: Arc::new(Mutex::new(after_key)),
            runtime: self.runtime.clone(),
        }
    }
}

impl Chunks {
    /// The next objects; none at the end.
    pub(in super::super) fn next(&mut self) -> Option<Fetch> {
        match self {
            Chunks::View(view) => some(|| view.next_entry()).map(|some| -> Fetch { Box::new(|| Some(some)) }),
            Chunks::Pages(pages) => match some(|| pages.first.pop_front()) {
                Some(some) => Some(Box::new(|| Some(some))),
                None => pages.next(),
            },
        }
    }

    /// How many fetches may be under way.
    pub(super) fn ahead(&self) -> usize {
        match self {
            Chunks::View(_) => AHEAD,
            // Where a page begins is known when the one before it has been read.
            Chunks::Pages(_) => 1,
        }
    }
}

impl Pages {
    /// All objects whose keys start with `range`.
    pub(in super::super) fn new(store: Arc<dyn Store>, range: String, revision: Revision) -> Self {
        // Every key is behind its own beginning.
        let after_key = Arc::new(Mutex::new(Some(range.clone())));
        let runtime = tokio::runtime::Handle::current();
        Self { store, range, revision, first: VecDeque::new(), after_key, runtime }
    }

    /// Some that have been read, and those behind `after_key`.
    pub(super) fn after(self, read: Vec<Entry>, after_key: Option<String>) -> Self {
        Self { first: read.into(), after_key: Arc::new(Mutex::new(after_key)), ..self }
    }

    fn next(&mut self) -> Option<Fetch> {
        let after_key = self.after_key.clone();
        after_key.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?;
        let (store, range, revision) = (self.store.clone(), self.range.clone(), self.revision);
        let runtime = self.runtime.clone();
        Some(Box::new(move || {
            let mut after_key = after_key.lock().unwrap_or_else(PoisonError::into_inner);
            let options =
                ListOptions { revision: Some(revision), limit: Some(PART_OBJECTS), after_key: after_key.clone() };
            let page = match runtime.block_on(store.list(&range, options)) {
                Ok(page) => page,
                Err(error) => {
                    warn!(err = %error, "Cut off a list because the store cannot be read");
                    return None;
                }
            };
            let last = page.entries.last().map(|entry| entry.key.to_string());
            *after_key = last.filter(|_| page.remaining > 0);
            let served = |entry: store::Entry| Some((entry.key, Arc::new(Served::new(&entry.value, entry.revision)?)));
            Some(page.entries.into_iter().filter_map(served).collect())
        }))
    }
}

/// The next objects up to the size of a part.
fn some(mut next: impl FnMut() -> Option<Entry>) -> Option<Vec<Entry>> {
    let (mut some, mut bytes) = (Vec::new(), 0_usize);
    while bytes < PART_BYTES
        && some.len() < PART_OBJECTS
        && let Some((key, object)) = next()
    {
        bytes = bytes.saturating_add(object.json.len());
        some.push((key, object));
    }
    (!some.is_empty()).then_some(some)
}
