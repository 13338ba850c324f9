//! The objects of a long list, some at a time: from a view of the cache, or page by page from the store.

use locks::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

use store::{ListOptions, Revision, Store};
use telemetry::logs::chain;
use tracing::warn;

use crate::wire::listing::AHEAD;
use cache::stored::ServedObject;
use cache::{Entry, View};

/// Approximate size of a part of a long list, in bytes of objects.
pub(super) const PART_BYTES: usize = 128 << 10;
/// Maximum number of objects that are read for a part, selected or not.
pub(super) const PART_OBJECTS: usize = 256;

/// Gets some objects, on a thread that may wait; none if that fails.
pub(in super::super) type FetchFn = Box<dyn FnOnce() -> Option<Vec<Entry>> + Send>;

/// Source of the objects.
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
    /// Objects that were already read.
    first: VecDeque<Entry>,
    /// Key after which to continue; `None` at the end.
    after_key: Arc<Mutex<Option<String>>>,
    runtime: tokio::runtime::Handle,
}

impl Clone for Pages {
    /// Both continue from here, independently.
    fn clone(&self) -> Self {
        let after_key = self.after_key.lock().clone();
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
    pub(in super::super) fn next(&mut self) -> Option<FetchFn> {
        match self {
            Chunks::View(view) => some(|| view.next_entry()).map(|some| -> FetchFn { Box::new(|| Some(some)) }),
            Chunks::Pages(pages) => match some(|| pages.first.pop_front()) {
                Some(some) => Some(Box::new(|| Some(some))),
                None => pages.next(),
            },
        }
    }

    /// Number of concurrent fetches.
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

    /// Objects that were read, and those behind `after_key`.
    pub(super) fn after(self, read: Vec<Entry>, after_key: Option<String>) -> Self {
        Self { first: read.into(), after_key: Arc::new(Mutex::new(after_key)), ..self }
    }

    fn next(&mut self) -> Option<FetchFn> {
        let after_key = self.after_key.clone();
        after_key.lock().as_ref()?;
        let (store, range, revision) = (self.store.clone(), self.range.clone(), self.revision);
        let runtime = self.runtime.clone();
        Some(Box::new(move || {
            let mut after_key = after_key.lock();
            let options = ListOptions {
                revision: Some(revision),
                limit: Some(PART_OBJECTS),
                after_key: after_key.clone(),
                bytes_max: Some(PART_BYTES),
            };
            let page = match runtime.block_on(store.list(&range, options)) {
                Ok(page) => page,
                Err(error) => {
                    warn!(err = %chain(&error), "Aborted a list because the store cannot be read");
                    return None;
                }
            };
            let last = page.entries.last().map(|entry| entry.key.to_string());
            *after_key = last.filter(|_| page.remaining > 0);
            let served =
                |entry: store::Entry| Some((entry.key, Arc::new(ServedObject::new(&entry.value, entry.revision)?)));
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
