//! The watch cache: every object as it is served, and the last changes, per resource.
//!
//! One task follows the whole store and hands each change to the cache of its resource, so that all caches are as new as
//! one revision and a quiet resource needs no messages of its own. Readers share the encoded objects. A watcher that is
//! too slow loses its place and is cut off. Events are not held, only the last changes of them: there are too many, and
//! hardly anybody reads them.
//!
//! - `changes`: the list of the last changes, bounded by age and by bytes of all resources together.
//! - [`Follower`]: who follows them, woken only by what concerns it.
//! - `index`: objects by the labels and fields that are asked for.
//! - [`View`]: the objects as they were at a moment, shared with the cache.

mod changes;
mod follow;
mod index;
mod objects;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use store::{Batch, ListOptions, Page, ProgressRequest, Revision, Store};
use tokio::sync::watch;
use tracing::{error, info, warn};

use self::changes::{Budget, Changes};
pub use self::changes::{Change, ChangeKind, event_frame, event_line};
use self::follow::Mailboxes;
pub use self::follow::{Follower, Interest};
pub use self::index::By;
use self::index::{Index, Indexes};
use self::objects::Objects;
pub use self::objects::{Entry, View};
use crate::storage::events;
use crate::storage::stored::Served;

/// Where all objects lie.
pub const ROOT: &str = "/registry/";

/// How many changes from before the start are known to watchers.
const HISTORY: Revision = 2_000;

/// How long a request waits for a version that has not been reached.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

/// How often changes that have become too old are forgotten where nothing happens.
const TRIM_EVERY: Duration = Duration::from_secs(15);

/// What the last changes of events may take, about: those who follow events are few, and never far behind.
const EVENT_HISTORY_BYTES_MAX: usize = 16 << 20;

/// At the start this many objects are read at a time.
const PAGE: usize = 10_000;

/// After an error of the store it is asked again after this time.
const RETRY: Duration = Duration::from_millis(100);

/// All objects of all resources.
pub struct Cache {
    resources: RwLock<HashMap<Box<str>, Arc<ResourceCache>>>,
    revision: watch::Sender<Revision>,
    /// Changes after this revision are known, in every resource.
    started_at: AtomicU64,
    /// Asks the store how far it has come, where it does not say so by itself.
    progress: RwLock<ProgressRequest>,
    /// What the changes of all resources take,
    history: Arc<Budget>,
    /// and those of events.
    event_history: Arc<Budget>,
}

/// The objects of one resource.
pub struct ResourceCache {
    state: RwLock<State>,
    /// How many changes there have been: wakes the watchers.
    changed: watch::Sender<u64>,
    /// Whether objects are held, and not only the last changes.
    keeps_objects: bool,
}

struct State {
    objects: Objects,
    /// What the texts of the objects take.
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
    pub objects: Vec<(Arc<str>, Arc<Served>)>,
    /// How many more there are.
    pub remaining: usize,
}

/// The objects of a part of a resource as of one revision. Some may be beside the part.
#[derive(Debug)]
pub struct Found {
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
    /// It begins a little in the past, so that watchers who knew the server before it was started again can go on; but
    /// not where the store was empty at `opened`: then nobody did. The changes of all resources together take at most
    /// `history_bytes_max`.
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
        });
        for (prefix, objects) in by_prefix(page) {
            let resource = cache.resource(&prefix);
            resource.write().set_objects(objects);
        }
        cache.progress.read().unwrap_or_else(PoisonError::into_inner).reach(current);
        while cache.revision() < current {
            cache.apply(watch.next().await?);
        }
        tokio::spawn(follow(Arc::downgrade(&cache), store, watch));
        tokio::spawn(trim(Arc::downgrade(&cache)));
        Ok(cache)
    }

    /// Takes what is stored now in the place of everything that is known, after changes have been missed.
    ///
    /// Who watches is told that the place is lost, and lists again.
    fn replace(&self, page: Page) {
        let revision = page.revision;
        self.started_at.store(revision, Ordering::Release);
        let mut objects = by_prefix(page);
        for prefix in objects.keys() {
            self.resource(prefix);
        }
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        for (prefix, resource) in resources.iter() {
            let mut state = resource.state.write().unwrap_or_else(PoisonError::into_inner);
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
        if let Some(found) = self.resources.read().unwrap_or_else(PoisonError::into_inner).get(prefix) {
            return found.clone();
        }
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let keeps_objects = prefix != events::PREFIX;
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
        self.progress.read().unwrap_or_else(PoisonError::into_inner).reach(revision);
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
                warn!(err = %error, "Watch cache fell behind the store and is filled anew");
                match refill(&cache, &*store).await {
                    Some(new) => watch = new,
                    None => return,
                }
            }
            Err(error) => {
                warn!(err = %error, "Watch cache lost the store for a moment");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Forgets old changes of resources that are quiet, so that the room for a burst is given back after it.
async fn trim(cache: std::sync::Weak<Cache>) {
    loop {
        tokio::time::sleep(TRIM_EVERY).await;
        let Some(cache) = cache.upgrade() else { return };
        let resources: Vec<_> =
            cache.resources.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for resource in resources {
            resource.write().changes.trim(Instant::now());
        }
    }
}

/// Reads everything again, until that succeeds; `None` if nobody needs it any more.
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
                *cache.progress.write().unwrap_or_else(PoisonError::into_inner) = watch.progress_request();
                let revision = page.revision;
                cache.replace(page);
                info!(revision, "Filled watch cache");
                return Some(watch);
            }
            Err(store::Error::Closed) => return None,
            Err(error) => {
                warn!(err = %error, "Watch cache cannot read the store");
                tokio::time::sleep(RETRY).await;
            }
        }
        cache.upgrade()?;
    }
}

/// Everything but events, as of one revision.
async fn read_all(store: &dyn Store, revision: Option<Revision>) -> Result<Page, store::Error> {
    let mut all = Page { revision: 0, entries: Vec::new(), remaining: 0 };
    let mut options = ListOptions { revision, limit: Some(PAGE), after_key: None };
    loop {
        let mut page = store.list(ROOT, options.clone()).await?;
        options.revision = Some(page.revision);
        let last = page.entries.last().map(|entry| entry.key.to_string());
        let reached_events = page.entries.iter().any(|entry| entry.key.starts_with(events::PREFIX));
        page.entries.retain(|entry| !entry.key.starts_with(events::PREFIX));
        all.revision = page.revision;
        all.entries.append(&mut page.entries);
        if page.remaining == 0 {
            return Ok(all);
        }
        // No key sorts behind this one and still begins so.
        options.after_key = if reached_events { last.max(Some(format!("{}\u{10ffff}", events::PREFIX))) } else { last };
    }
}

/// The objects of a page as they are served, by resource.
fn by_prefix(page: Page) -> HashMap<Box<str>, BTreeMap<Arc<str>, Arc<Served>>> {
    let mut by_prefix: HashMap<Box<str>, BTreeMap<Arc<str>, Arc<Served>>> = HashMap::new();
    for entry in page.entries.into_iter().filter(|entry| is_object(&entry.key)) {
        let Some(served) = Served::new(&entry.value, entry.revision) else {
            error!(key = %entry.key, "Skipped damaged object");
            continue;
        };
        by_prefix.entry(prefix_of(&entry.key).into()).or_default().insert(entry.key, Arc::new(served));
    }
    by_prefix
}

/// Whether an object lies under a key, and not something that servers keep for themselves.
fn is_object(key: &str) -> bool {
    key.match_indices('/').nth(3).is_some()
}

/// `/registry/group/resource/` of a key.
fn prefix_of(key: &str) -> &str {
    let end = key.match_indices('/').nth(3).map_or(key.len(), |(at, _)| at.saturating_add(1));
    key.get(..end).unwrap_or(key)
}

impl State {
    fn set_objects(&mut self, objects: BTreeMap<Arc<str>, Arc<Served>>) {
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

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, event: store::Event) {
        let served = match &event.value {
            Some(value) => match Served::new(value, event.revision) {
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
                let previous = event.previous.and_then(|previous| Served::new(&previous.value, previous.revision));
                previous.map(Arc::new)
            }
            Some(served) => state.objects.insert(event.key.clone(), served.clone()),
            None => state.objects.remove(&event.key),
        };
        let keeps_objects = self.keeps_objects;
        let texts = |object: Option<&Arc<Served>>| object.filter(|_| keeps_objects).map_or(0, |it| it.json.len());
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
    pub fn get(&self, key: &str) -> Option<Arc<Served>> {
        self.read().objects.get(key).map(|(_, object)| object.clone())
    }

    /// The revision of the last change, 0 if there was none since the start.
    #[must_use]
    pub fn newest(&self) -> Revision {
        self.read().changes.newest()
    }

    /// How many objects there are, and how many bytes of text they have.
    #[must_use]
    pub fn size(&self) -> (u64, u64) {
        let state = self.read();
        let number = |it: usize| u64::try_from(it).unwrap_or(u64::MAX);
        (number(state.objects.len()), number(state.bytes))
    }

    /// How many objects there are.
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
        mut keep: impl FnMut(&str, &Served) -> bool,
    ) -> Snapshot {
        let (revision, view) = {
            let state = self.read();
            (revision.max(state.changes.newest()), state.objects.view(prefix))
        };
        let mut objects = Vec::new();
        let mut remaining = 0_usize;
        for (index, (key, object)) in view.iter().enumerate() {
            // Kubernetes: whether there is more is asked before whether it is selected.
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

    /// The objects of a part of the resource, found without a look at the others. Some may be beside the interest.
    #[must_use]
    pub fn find(&self, interest: &Interest, revision: Revision) -> Found {
        self.make_index(interest);
        let state = self.read();
        found(&state, interest, revision)
    }

    /// Whether an interest needs an index that is not there yet: to make one takes a while.
    #[must_use]
    pub fn wants_index(&self, interest: &Interest) -> bool {
        let Interest::Value { by, .. } = interest else { return false };
        let state = self.read();
        self.keeps_objects && state.indexes.want(by, state.objects.len())
    }

    /// Makes the index that an interest needs from a view, and then adds what happened meanwhile.
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
        // If some of it is forgotten already, the next one tries again.
        if state.changes.knows(place) {
            state.changes.all_from(place).for_each(|change| index.apply(change));
            state.indexes.add(index, state.objects.len());
        }
    }

    /// The objects of a part of the resource, and what happens to it after that.
    pub fn find_and_follow(self: &Arc<Self>, interest: Interest, revision: Revision) -> (Found, Follower) {
        self.make_index(&interest);
        let mut state = self.write();
        let found = found(&state, &interest, revision);
        (found, Follower::from_end(self, &mut state, interest))
    }

    /// What happens to a part of the resource from now on.
    pub fn follow(self: &Arc<Self>, interest: Interest) -> Follower {
        Follower::from_end(self, &mut self.write(), interest)
    }

    /// What happened to a part of the resource after `revision`, and goes on to happen.
    ///
    /// # Errors
    /// [`TooOld`] if some of it is forgotten.
    pub fn follow_after(self: &Arc<Self>, interest: Interest, revision: Revision) -> Result<Follower, TooOld> {
        Follower::after(self, interest, revision)
    }

    /// Changes from a place on, some at a time.
    fn changes(&self, place: u64) -> Result<Vec<Arc<Change>>, TooOld> {
        self.read().changes.from(place)
    }

    /// How many changes there have been.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        *self.changed.borrow()
    }

    /// Tells when there are changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

fn found(state: &State, interest: &Interest, revision: Revision) -> Found {
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
    Found { revision, objects }
}

#[cfg(test)]
mod tests;
