//! The watch cache: every object as it is served, and the last changes, per resource.
//!
//! One task follows the whole store and hands each change to the cache of its resource, so that all caches are as new as
//! one revision and a quiet resource needs no messages of its own. Readers share the encoded objects. Watchers hold a
//! place in the list of changes and no changes themselves: one that is too slow loses its place and is cut off.

mod changes;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use store::{Batch, ListOptions, Page, ProgressRequest, Revision, Store};
use tokio::sync::watch;
use tracing::{error, info, warn};

use self::changes::Changes;
pub use self::changes::{Change, ChangeKind, event_line};
use crate::storage::stored::Served;

/// Where all objects lie.
pub const ROOT: &str = "/registry/";

/// So many changes from before the start are known to watchers.
const HISTORY: Revision = 2_000;

/// How long a request waits for a version that has not been reached.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

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
}

/// The objects of one resource.
pub struct ResourceCache {
    state: RwLock<State>,
    /// How many changes there have been: wakes the watchers.
    changed: watch::Sender<u64>,
}

struct State {
    objects: BTreeMap<Arc<str>, Arc<Served>>,
    changes: Changes,
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
    /// not where the store was empty at `opened`: then nobody did.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn start(store: Arc<dyn Store>, opened: Revision) -> Result<Arc<Self>, store::Error> {
        let current = store.current_revision().await?;
        let past = if opened > 1 { current.saturating_sub(HISTORY).max(1) } else { current };
        let at = |revision| ListOptions { revision, ..ListOptions::default() };
        let mut page = store.list(ROOT, at(Some(past))).await;
        if let Err(store::Error::Compacted { oldest, .. }) = page {
            page = store.list(ROOT, at(Some(oldest))).await;
        }
        if let Err(store::Error::Compacted { .. }) = page {
            page = store.list(ROOT, at(None)).await;
        }
        let page = page?;
        let mut watch = store.watch(ROOT, page.revision).await?;
        let cache = Arc::new(Self {
            resources: RwLock::default(),
            revision: watch::channel(page.revision).0,
            started_at: AtomicU64::new(page.revision),
            progress: RwLock::new(watch.progress_request()),
        });
        for (prefix, objects) in by_prefix(page) {
            let resource = cache.resource(&prefix);
            resource.state.write().unwrap_or_else(PoisonError::into_inner).objects = objects;
        }
        cache.progress.read().unwrap_or_else(PoisonError::into_inner).reach(current);
        while cache.revision() < current {
            cache.apply(watch.next().await?);
        }
        tokio::spawn(follow(Arc::downgrade(&cache), store, watch));
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
            state.objects = objects.remove(prefix).unwrap_or_default();
            let sequence = state.changes.restart(revision);
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
        let new = || Arc::new(ResourceCache::new(self.started_at.load(Ordering::Acquire)));
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

/// Reads everything again, until that succeeds; `None` if nobody needs it any more.
async fn refill(cache: &std::sync::Weak<Cache>, store: &dyn Store) -> Option<store::Watch> {
    loop {
        let read = async {
            let page = store.list(ROOT, ListOptions::default()).await?;
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

impl ResourceCache {
    fn new(revision: Revision) -> Self {
        let state = State { objects: BTreeMap::new(), changes: Changes::new(revision) };
        Self { state: RwLock::new(state), changed: watch::channel(0).0 }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
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
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let previous = match &served {
            Some(served) => state.objects.insert(event.key.clone(), served.clone()),
            None => state.objects.remove(&event.key),
        };
        let (kind, object) = match (served, &previous) {
            (Some(served), Some(_)) => (ChangeKind::Modified, served),
            (Some(served), None) => (ChangeKind::Added, served),
            (None, Some(previous)) => (ChangeKind::Deleted, Arc::new(previous.at_revision(event.revision))),
            (None, None) => return,
        };
        let sequence = state.changes.push(Change::new(kind, event.key, object, previous));
        drop(state);
        self.changed.send_replace(sequence);
    }

    /// An object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Served>> {
        self.read().objects.get(key).cloned()
    }

    /// The revision of the last change, 0 if there was none since the start.
    #[must_use]
    pub fn newest(&self) -> Revision {
        self.read().changes.newest()
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

    /// The objects whose keys start with `prefix`, those after `after` only, at most `limit` for which `keep` holds.
    ///
    /// `revision` is one that the cache is known to have reached.
    pub fn list(
        &self,
        prefix: &str,
        limit: Option<usize>,
        revision: Revision,
        mut keep: impl FnMut(&str, &Served) -> bool,
    ) -> Snapshot {
        let state = self.read();
        let revision = revision.max(state.changes.newest());
        let mut range = state
            .objects
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(prefix));
        let mut objects = Vec::new();
        let mut remaining = 0_usize;
        for (key, object) in range.by_ref() {
            // Kubernetes: whether there is more is asked before whether it is selected.
            if limit.is_some_and(|limit| objects.len() >= limit) {
                remaining = 1;
                break;
            }
            if keep(key, object) {
                objects.push((key.clone(), object.clone()));
            }
        }
        if remaining > 0 {
            remaining = remaining.saturating_add(range.count());
        }
        Snapshot { revision, objects, remaining }
    }

    /// The place in the list of changes from which a watcher of what happened after `revision` starts.
    ///
    /// # Errors
    /// [`TooOld`] if some of it is forgotten.
    pub fn place_after(&self, revision: Revision) -> Result<u64, TooOld> {
        self.read().changes.place_after(revision)
    }

    /// A snapshot of the objects below `prefix`, and the place from which to go on.
    pub fn list_and_place(&self, prefix: &str, revision: Revision) -> (Snapshot, u64) {
        let state = self.read();
        let revision = revision.max(state.changes.newest());
        let range = state.objects.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        let objects = range.take_while(|(key, _)| key.starts_with(prefix));
        let objects = objects.map(|(key, object)| (key.clone(), object.clone())).collect();
        (Snapshot { revision, objects, remaining: 0 }, state.changes.end())
    }

    /// Changes from a place on, some at a time.
    ///
    /// # Errors
    /// [`TooOld`] if the place is lost.
    pub fn changes(&self, place: u64) -> Result<Vec<Arc<Change>>, TooOld> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_under_a_resource_is_an_object() {
        assert!(is_object("/registry/core/pods/default/a"));
        assert!(!is_object("/registry/compact_rev_key"));
    }

    /// A store whose watches lose their place when told to.
    struct Forgetful {
        store: store::Embedded,
        forget: watch::Sender<bool>,
    }

    struct Losing(store::Watch, Option<watch::Receiver<bool>>, Revision);

    #[async_trait::async_trait]
    impl store::Source for Losing {
        async fn next(&mut self) -> Result<Batch, store::Error> {
            let Self(inner, forget, after) = self;
            let forgotten = async {
                match forget {
                    Some(forget) => drop(forget.wait_for(|it| *it).await.unwrap()),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = forgotten => Err(store::Error::Compacted { requested: *after, oldest: u64::MAX }),
                batch = inner.next() => batch,
            }
        }

        fn progress_request(&self) -> ProgressRequest {
            self.0.progress_request()
        }
    }

    #[async_trait::async_trait]
    impl Store for Forgetful {
        async fn current_revision(&self) -> Result<Revision, store::Error> {
            self.store.current_revision().await
        }

        async fn get(&self, key: &str, at_least: Revision) -> Result<store::Reading, store::Error> {
            self.store.get(key, at_least).await
        }

        async fn list(&self, prefix: &str, options: ListOptions) -> Result<Page, store::Error> {
            self.store.list(prefix, options).await
        }

        async fn write(&self, write: store::Write) -> Result<store::Outcome, store::Error> {
            self.store.write(write).await
        }

        async fn watch(&self, prefix: &str, after: Revision) -> Result<store::Watch, store::Error> {
            let inner = self.store.watch(prefix, after).await?;
            // A watch that is opened after the loss is a good one.
            let forget = (!*self.forget.borrow()).then(|| self.forget.subscribe());
            Ok(store::Watch::new(Losing(inner, forget, after)))
        }

        async fn compact(&self, revision: Revision) -> Result<(), store::Error> {
            self.store.compact(revision).await
        }

        async fn close(&self) -> Result<(), store::Error> {
            self.store.close().await
        }
    }

    #[tokio::test]
    async fn a_cache_that_lost_its_place_is_filled_anew_and_its_watchers_are_told() {
        let store = store::Embedded::in_memory(store::Options::default()).unwrap();
        let store = Arc::new(Forgetful { store, forget: watch::channel(false).0 });
        let object = |name: &str| {
            let mut object = api::json!({"metadata": {"name": name, "creationTimestamp": "t"}});
            crate::storage::stored::encode(&mut object).unwrap()
        };
        let put = async |name: &str| {
            let write = store::Write::create(format!("/registry/core/pods/{name}"), object(name));
            match store.write(write).await.unwrap() {
                store::Outcome::Done { revision } => revision,
                conflict => panic!("{conflict:?}"),
            }
        };
        put("old").await;
        let cache = Cache::start(store.clone(), 1).await.unwrap();
        let pods = cache.resource("/registry/core/pods/");
        let before = put("before").await;
        cache.reach(before).await.unwrap();
        let place = pods.place_after(before).unwrap();
        let mut wake = pods.subscribe();
        wake.borrow_and_update();
        store.forget.send_replace(true);
        let missed = put("missed").await;
        cache.reach(missed).await.unwrap();
        wake.changed().await.unwrap();
        assert_eq!(pods.len(), 3);
        let oldest = cache.started_at.load(Ordering::Acquire);
        assert_eq!(pods.changes(place).unwrap_err(), TooOld { oldest });
        // A client that comes back with an older version lists again.
        assert_eq!(pods.place_after(oldest - 1), Err(TooOld { oldest }));
        let after = put("after").await;
        cache.reach(after).await.unwrap();
        let place = pods.place_after(missed).unwrap();
        assert_eq!(pods.changes(place).unwrap().len(), 1);
        store.close().await.unwrap();
    }

    #[test]
    fn prefixes_are_cut_behind_the_resource() {
        assert_eq!(prefix_of("/registry/core/pods/default/a"), "/registry/core/pods/");
        assert_eq!(prefix_of("/registry/core/nodes/a"), "/registry/core/nodes/");
        assert_eq!(prefix_of("/odd"), "/odd");
    }
}
