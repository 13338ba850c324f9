//! The watch cache: every object as it is served, and the last changes, per resource.
//!
//! One task follows the whole store and passes each change to the cache of its resource, so that all caches
//! have the same revision and a quiet resource needs no messages. Readers share the encoded objects. A watcher
//! that is too slow is disconnected. Events are not cached, only their last changes: there are too many of
//! them, and they are rarely read.
//!
//! - `changes`: the list of the last changes, bounded by age and by bytes of all resources together.
//! - [`Follower`]: a reader of the changes, woken only by those that concern it.
//! - `index`: objects by the labels and fields in use.
//! - [`View`]: the objects as they were at a moment, shared with the cache.

mod changes;
mod follow;
mod index;
mod objects;

use locks::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use store::{Batch, ListOptions, Page, ProgressRequest, Revision, Store};
use telemetry::logs::chain;
use tokio::sync::watch;
use tracing::{error, info, warn};

use self::changes::{Budget, Changes};
pub use self::changes::{Change, ChangeKind, event_line};
use self::follow::Mailboxes;
pub use self::follow::{Follower, Interest};
pub use self::index::IndexKey;
use self::index::{Index, Indexes};
use self::objects::Objects;
pub use self::objects::{Entry, View};
use crate::EVENTS_PREFIX;
use crate::background::Tasks;
use crate::encodings;
use crate::stored::ServedObject;

/// Key prefix of all objects.
pub const ROOT: &str = "/registry/";

/// Number of changes from before the start that watchers can still read.
const HISTORY: Revision = 2_000;

/// Time limit for a request that waits for a future version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

/// Interval at which expired changes of quiet resources are removed.
const TRIM_EVERY: Duration = Duration::from_secs(15);

/// Approximate memory limit for the last changes of events: events have few watchers, which are never far
/// behind.
const EVENT_HISTORY_BYTES_MAX: usize = 16 << 20;

/// Memory limit for messages of protobuf that are kept with their objects: those of about 25,000 pods.
const ENCODING_BYTES_MAX: usize = 64 << 20;

/// At the start this many objects are read at a time.
const PAGE: usize = 10_000;

/// Delay before the store is read again after an error.
const RETRY: Duration = Duration::from_millis(100);

/// All objects of all resources.
pub struct Cache {
    resources: RwLock<HashMap<Box<str>, Arc<ResourceCache>>>,
    revision: watch::Sender<Revision>,
    /// Changes after this revision are known, in every resource.
    started_at: AtomicU64,
    /// Requests the progress of a store that does not report it on its own.
    progress: RwLock<ProgressRequest>,
    /// Memory use of the changes of all resources.
    history: Arc<Budget>,
    /// Memory use of the changes of events.
    event_history: Arc<Budget>,
    /// Memory use of encodings that are kept with objects.
    encodings: Arc<encodings::Budget>,
    tasks: Tasks,
}

/// The objects of one resource.
pub struct ResourceCache {
    state: RwLock<State>,
    /// Number of changes so far: wakes the watchers.
    changed: watch::Sender<u64>,
    /// Whether objects are held, and not only the last changes.
    keeps_objects: bool,
}

struct State {
    objects: Objects,
    /// Size of the objects' texts in bytes.
    bytes: usize,
    changes: Changes,
    indexes: Indexes,
    mailboxes: Mailboxes,
}

/// Objects as of one revision.
#[derive(Debug)]
pub struct Snapshot {
    /// The revision.
    pub revision: Revision,
    /// The objects, by key.
    pub objects: Vec<(Arc<str>, Arc<ServedObject>)>,
    /// Number of objects that follow.
    pub remaining: usize,
}

/// The objects of a part of a resource as of one revision. Some may be outside of the part.
#[derive(Debug)]
pub struct FoundObjects {
    /// The revision.
    pub revision: Revision,
    /// The objects.
    pub objects: View,
}

/// A watcher fell behind the changes that are kept.
#[derive(Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest revision that can be watched from.
    pub oldest: Revision,
}

impl Cache {
    /// Reads everything that is stored and follows the store from there until it is closed.
    ///
    /// The cache begins a little in the past, so that watchers from before a restart can resume; but not if the
    /// store was empty at `opened`, because then there were none. The changes of all resources together take at
    /// most `history_bytes_max`.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn start(
        store: Arc<dyn Store>,
        opened: Revision,
        history_bytes_max: usize,
    ) -> Result<Arc<Self>, store::Error> {
        let current = store.current_revision().await?;
        let past = if opened > 1 { current.saturating_sub(HISTORY).max(1) } else { current };
        let mut page = read_all(&*store, Some(past)).await;
        if let Err(store::Error::Compacted { oldest, .. }) = page {
            page = read_all(&*store, Some(oldest)).await;
        }
        if let Err(store::Error::Compacted { .. }) = page {
            page = read_all(&*store, None).await;
        }
        let page = page?;
        let mut watch = store.watch(ROOT, page.revision).await?;
        let cache = Arc::new(Self {
            resources: RwLock::default(),
            revision: watch::channel(page.revision).0,
            started_at: AtomicU64::new(page.revision),
            progress: RwLock::new(watch.progress_request()),
            history: Arc::new(Budget::new(history_bytes_max)),
            event_history: Arc::new(Budget::new(EVENT_HISTORY_BYTES_MAX.min(history_bytes_max))),
            encodings: encodings::Budget::new(ENCODING_BYTES_MAX),
            tasks: Tasks::default(),
        });
        for (prefix, objects) in by_prefix(page) {
            let resource = cache.resource(&prefix);
            resource.write().set_objects(objects);
        }
        cache.progress.read().reach(current);
        while cache.revision() < current {
            cache.apply(watch.next().await?);
        }
        cache.tasks.spawn("watch cache", follow(Arc::downgrade(&cache), store, watch));
        cache.tasks.spawn("watch cache trimmer", trim(Arc::downgrade(&cache)));
        Ok(cache)
    }

    /// The budget for encodings that are kept with objects.
    pub fn encodings(&self) -> &Arc<encodings::Budget> {
        &self.encodings
    }

    /// Replaces the known state by the stored one, after changes were missed.
    ///
    /// Watchers receive an error and list again.
    fn replace(&self, page: Page) {
        let revision = page.revision;
        self.started_at.store(revision, Ordering::Release);
        let mut objects = by_prefix(page);
        for prefix in objects.keys() {
            self.resource(prefix);
        }
        let resources = self.resources.read();
        for (prefix, resource) in resources.iter() {
            let mut state = resource.state.write();
            state.set_objects(objects.remove(prefix).unwrap_or_default());
            let sequence = state.changes.restart(revision);
            state.mailboxes.lose_all();
            drop(state);
            resource.changed.send_replace(sequence);
        }
        drop(resources);
        self.revision.send_if_modified(|reached| {
            let moved = revision > *reached;
            *reached = revision.max(*reached);
            moved
        });
    }

    /// The cache of the resource whose keys start with `prefix`, which is made if it does not exist.
    pub fn resource(&self, prefix: &str) -> Arc<ResourceCache> {
        if let Some(found) = self.resources.read().get(prefix) {
            return found.clone();
        }
        let mut resources = self.resources.write();
        let new = || {
            let keeps_objects = prefix != EVENTS_PREFIX;
            let budget = if keeps_objects { &self.history } else { &self.event_history };
            let changes = Changes::new(self.started_at.load(Ordering::Acquire), budget.clone(), keeps_objects);
            Arc::new(ResourceCache::new(changes, keeps_objects))
        };
        resources.entry(prefix.into()).or_insert_with(new).clone()
    }

    /// The revision that all caches have reached.
    #[must_use]
    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Waits until a revision has been reached.
    ///
    /// # Errors
    /// The revision that has been reached, after three seconds.
    pub async fn reach(&self, revision: Revision) -> Result<(), Revision> {
        if self.revision() >= revision {
            return Ok(());
        }
        let mut receiver = self.revision.subscribe();
        self.progress.read().reach(revision);
        let reached = receiver.wait_for(|current| *current >= revision);
        match tokio::time::timeout(VERSION_TIMEOUT, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(self.revision()),
        }
    }

    fn apply(&self, batch: Batch) {
        for event in batch.events.into_iter().filter(|event| is_object(&event.key)) {
            let resource = self.resource(prefix_of(&event.key));
            resource.apply(event);
        }
        self.revision.send_if_modified(|revision| {
            let moved = batch.revision > *revision;
            *revision = batch.revision.max(*revision);
            moved
        });
    }
}

async fn follow(cache: std::sync::Weak<Cache>, store: Arc<dyn Store>, mut watch: store::Watch) {
    loop {
        match watch.next().await {
            Ok(batch) => match cache.upgrade() {
                Some(cache) => cache.apply(batch),
                None => return,
            },
            Err(store::Error::Closed) => return,
            Err(error @ store::Error::Compacted { .. }) => {
                warn!(err = %chain(&error), "Watch cache fell behind the store and is being refilled");
                match refill(&cache, &*store).await {
                    Some(new) => watch = new,
                    None => return,
                }
            }
            Err(error) => {
                warn!(err = %chain(&error), "Watch cache lost its connection to the store");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Removes old changes of quiet resources, so that the memory of a burst is released.
async fn trim(cache: std::sync::Weak<Cache>) {
    loop {
        tokio::time::sleep(TRIM_EVERY).await;
        let Some(cache) = cache.upgrade() else { return };
        let resources: Vec<_> = cache.resources.read().values().cloned().collect();
        for resource in resources {
            resource.write().changes.trim(Instant::now());
        }
    }
}

/// Reads everything again until that succeeds; `None` if the cache was dropped.
async fn refill(cache: &std::sync::Weak<Cache>, store: &dyn Store) -> Option<store::Watch> {
    loop {
        let read = async {
            let page = read_all(store, None).await?;
            let watch = store.watch(ROOT, page.revision).await?;
            Ok((page, watch))
        };
        match read.await {
            Ok((page, watch)) => {
                let cache = cache.upgrade()?;
                *cache.progress.write() = watch.progress_request();
                let revision = page.revision;
                cache.replace(page);
                info!(revision, "Filled watch cache");
                return Some(watch);
            }
            Err(store::Error::Closed) => return None,
            Err(error) => {
                warn!(err = %chain(&error), "Watch cache cannot read the store");
                tokio::time::sleep(RETRY).await;
            }
        }
        cache.upgrade()?;
    }
}

/// Reads all objects except events, as of one revision.
async fn read_all(store: &dyn Store, revision: Option<Revision>) -> Result<Page, store::Error> {
    let mut all = Page { revision: 0, entries: Vec::new(), remaining: 0 };
    let mut options = ListOptions { revision, limit: Some(PAGE), ..ListOptions::default() };
    loop {
        let mut page = store.list(ROOT, options.clone()).await?;
        options.revision = Some(page.revision);
        let last = page.entries.last().map(|entry| entry.key.to_string());
        let reached_events = page.entries.iter().any(|entry| entry.key.starts_with(EVENTS_PREFIX));
        page.entries.retain(|entry| !entry.key.starts_with(EVENTS_PREFIX));
        all.revision = page.revision;
        all.entries.append(&mut page.entries);
        if page.remaining == 0 {
            return Ok(all);
        }
        // No key sorts behind this one and still begins so.
        options.after_key = if reached_events { last.max(Some(format!("{}\u{10ffff}", EVENTS_PREFIX))) } else { last };
    }
}

/// The objects of a page as they are served, by resource.
fn by_prefix(page: Page) -> HashMap<Box<str>, BTreeMap<Arc<str>, Arc<ServedObject>>> {
    let mut by_prefix: HashMap<Box<str>, BTreeMap<Arc<str>, Arc<ServedObject>>> = HashMap::new();
    for entry in page.entries.into_iter().filter(|entry| is_object(&entry.key)) {
        let Some(served) = ServedObject::new(&entry.value, entry.revision) else {
            error!(key = %entry.key, "Skipped damaged object");
            continue;
        };
        by_prefix.entry(prefix_of(&entry.key).into()).or_default().insert(entry.key, Arc::new(served));
    }
    by_prefix
}

/// Whether a key is that of an object, and not of internal data of servers.
fn is_object(key: &str) -> bool {
    key.match_indices('/').nth(3).is_some()
}

/// `/registry/group/resource/` of a key.
fn prefix_of(key: &str) -> &str {
    let end = key.match_indices('/').nth(3).map_or(key.len(), |(at, _)| at.saturating_add(1));
    key.get(..end).unwrap_or(key)
}

impl State {
    fn set_objects(&mut self, objects: BTreeMap<Arc<str>, Arc<ServedObject>>) {
        self.bytes = objects.values().map(|object| object.json.len()).fold(0, usize::saturating_add);
        self.objects = Objects::from_sorted(objects);
        self.indexes = Indexes::default();
    }
}

impl ResourceCache {
    fn new(changes: Changes, keeps_objects: bool) -> Self {
        let (objects, indexes, mailboxes) = (Objects::default(), Indexes::default(), Mailboxes::default());
        let state = State { objects, bytes: 0, changes, indexes, mailboxes };
        Self { state: RwLock::new(state), changed: watch::channel(0).0, keeps_objects }
    }

    /// Whether objects can be read here. If not, only changes can be followed, and objects are in the store.
    #[must_use]
    pub fn keeps_objects(&self) -> bool {
        self.keeps_objects
    }

    fn read(&self) -> locks::RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> locks::RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    fn apply(&self, event: store::Event) {
        let served = match &event.value {
            Some(value) => match ServedObject::new(value, event.revision) {
                Some(served) => Some(Arc::new(served)),
                None => {
                    error!(key = %event.key, "Skipped damaged object");
                    return;
                }
            },
            None => None,
        };
        let now = Instant::now();
        let mut state = self.write();
        let state = &mut *state;
        let previous = match &served {
            _ if !self.keeps_objects => {
                let previous =
                    event.previous.and_then(|previous| ServedObject::new(&previous.value, previous.revision));
                previous.map(Arc::new)
            }
            Some(served) => state.objects.insert(event.key.clone(), served.clone()),
            None => state.objects.remove(&event.key),
        };
        let keeps_objects = self.keeps_objects;
        let texts = |object: Option<&Arc<ServedObject>>| object.filter(|_| keeps_objects).map_or(0, |it| it.json.len());
        state.bytes = state.bytes.saturating_add(texts(served.as_ref())).saturating_sub(texts(previous.as_ref()));
        if let (Some(served), Some(previous)) = (&served, &previous) {
            served.inherit_node_name(previous);
        }
        state.indexes.changed(&event.key, previous.as_deref(), served.as_deref());
        let (kind, object) = match (served, &previous) {
            (Some(served), Some(_)) => (ChangeKind::Modified, served),
            (Some(served), None) => (ChangeKind::Added, served),
            (None, Some(previous)) => (ChangeKind::Deleted, Arc::new(previous.at_revision(event.revision))),
            (None, None) => return,
        };
        let change = Arc::new(Change::new(kind, event.key, object, previous, now));
        state.mailboxes.deliver(&change);
        let sequence = state.changes.push(change);
        self.changed.send_replace(sequence);
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<ServedObject>> {
        self.read().objects.get(key).map(|(_, object)| object.clone())
    }

    /// The revision of the last change, 0 if there was none since the start.
    #[must_use]
    pub fn newest(&self) -> Revision {
        self.read().changes.newest()
    }

    /// Number of objects, and size of their texts in bytes.
    #[must_use]
    pub fn size(&self) -> (u64, u64) {
        let state = self.read();
        let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        (number(state.objects.len()), number(state.bytes))
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The objects whose keys start with `prefix`, at most `limit` for which `keep` holds.
    ///
    /// `revision` is one that the cache is known to have reached.
    pub fn list(
        &self,
        prefix: &str,
        limit: Option<usize>,
        revision: Revision,
        mut keep: impl FnMut(&str, &ServedObject) -> bool,
    ) -> Snapshot {
        let (revision, view) = {
            let state = self.read();
            (revision.max(state.changes.newest()), state.objects.view(prefix))
        };
        let mut objects = Vec::new();
        let mut remaining = 0_usize;
        for (index, (key, object)) in view.iter().enumerate() {
            // Kubernetes: the check for further objects precedes the selection.
            if limit.is_some_and(|limit| objects.len() >= limit) {
                remaining = view.len().saturating_sub(index);
                break;
            }
            if keep(key, object) {
                objects.push((key.clone(), object.clone()));
            }
        }
        Snapshot { revision, objects, remaining }
    }

    /// Finds the objects of a part of the resource without examining the others. Some may be outside of the
    /// interest.
    #[must_use]
    pub fn find(&self, interest: &Interest, revision: Revision) -> FoundObjects {
        self.make_index(interest);
        let state = self.read();
        found(&state, interest, revision)
    }

    /// Whether an interest needs an index that does not exist yet: building one takes a while.
    #[must_use]
    pub fn wants_index(&self, interest: &Interest) -> bool {
        let Interest::Value { by, .. } = interest else { return false };
        let state = self.read();
        self.keeps_objects && state.indexes.want(by, state.objects.len())
    }

    /// Builds the index that an interest needs from a view, and then adds later changes.
    pub fn make_index(&self, interest: &Interest) {
        let Interest::Value { by, .. } = interest else { return };
        let (view, place) = {
            let state = self.read();
            if !self.keeps_objects || !state.indexes.want(by, state.objects.len()) {
                return;
            }
            (state.objects.view(""), state.changes.end())
        };
        let mut index = Index::new(by.clone(), view.iter());
        let mut state = self.write();
        let state = &mut *state;
        // If some of them were removed meanwhile, the next reader tries again.
        if state.changes.knows(place) {
            state.changes.all_from(place).for_each(|change| index.apply(change));
            state.indexes.add(index, state.objects.len());
        }
    }

    /// Returns the objects of a part of the resource, and follows its later changes.
    pub fn find_and_follow(self: &Arc<Self>, interest: Interest, revision: Revision) -> (FoundObjects, Follower) {
        self.make_index(&interest);
        let mut state = self.write();
        let found = found(&state, &interest, revision);
        (found, Follower::from_end(self, &mut state, interest))
    }

    /// Follows a part of the resource from now on.
    pub fn follow(self: &Arc<Self>, interest: Interest) -> Follower {
        Follower::from_end(self, &mut self.write(), interest)
    }

    /// Follows a part of the resource from the first change after `revision`.
    ///
    /// # Errors
    /// [`TooOld`] if some of these changes were removed.
    pub fn follow_after(self: &Arc<Self>, interest: Interest, revision: Revision) -> Result<Follower, TooOld> {
        Follower::after(self, interest, revision)
    }

    /// Changes from a place on, some at a time.
    fn changes(&self, place: u64) -> Result<Vec<Arc<Change>>, TooOld> {
        self.read().changes.from(place)
    }

    /// Number of changes so far.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        *self.changed.borrow()
    }

    /// Returns a receiver that is notified of changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

fn found(state: &State, interest: &Interest, revision: Revision) -> FoundObjects {
    let revision = revision.max(state.changes.newest());
    let objects = match interest {
        Interest::Everything => state.objects.view(""),
        Interest::Range(prefix) => state.objects.view(prefix),
        Interest::Key(key) => View::of(state.objects.get(key).cloned().into_iter().collect()),
        Interest::Value { range, by, value } => match state.indexes.keys(by, value, range) {
            Some(keys) => View::of(keys.filter_map(|key| state.objects.get(key)).cloned().collect()),
            None => state.objects.view(range),
        },
    };
    FoundObjects { revision, objects }
}

#[cfg(test)]
mod tests;
