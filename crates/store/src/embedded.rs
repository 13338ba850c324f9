//! The store in one process: in a redb file, or in memory only.
//!
//! One thread writes. It takes all writes that were queued during the last commit, commits them together, then
//! makes them visible and acknowledges them. Readers use an index in memory and fetch values by revision.
//! Without a file the same code keeps the values in the index.

mod ballast;
mod containment;
mod file;
mod index;
mod offline;
mod state;
mod watcher;
mod writer;

use locks::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Semaphore, oneshot};

use self::ballast::{Ballast, RESERVE_MIN};
pub use self::containment::quiet_contained_panics;
use self::file::{BackendFactory, FIRST_REVISION, LogFile, Medium, Position, damaged};
pub use self::file::{Report, Salvage, SalvagedKey};
use self::index::{Content, FoundEntry, Version};
use self::state::{RecentEvents, State};
use self::watcher::Watcher;
use self::writer::{Command, Job, Reply, Writer};
use crate::{
    Cause, Change, Entry, Error, ListOptions, Outcome, Page, Reading, Revision, Snapshot, Store, Watch, Write,
};

/// Options of an [`EmbeddedStore`] store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory for redb's pages, at most.
    pub cache_bytes: usize,
    /// Memory limit for the last events, from which up-to-date watchers read.
    pub recent_bytes: usize,
    /// Retention of history.
    pub retention: Retention,
    /// A greater value is refused.
    pub value_bytes_max: usize,
    /// A longer key is refused.
    pub key_bytes_max: usize,
    /// Writes wait while this many bytes are in work.
    pub queued_bytes_max: usize,
    /// Writes other than deletes are refused while the file system has less room than this, and than 16 MiB.
    pub free_bytes_min: u64,
    /// Settings for shrinking the file.
    pub shrinking: Shrinking,
    /// Interval of progress reports of a watch while nothing changes in its range.
    pub progress_interval: Duration,
}

/// Settings for shrinking a file that holds little data.
#[derive(Debug, Clone)]
pub struct Shrinking {
    /// A file that is not longer is left alone; a longer one is made smaller once it is more than half empty.
    pub file_bytes_min: u64,
    /// Interval of the checks.
    pub interval: Duration,
}

impl Default for Shrinking {
    fn default() -> Self {
        Self { file_bytes_min: 64 << 20, interval: Duration::from_secs(10) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 16 << 20,
            recent_bytes: 8 << 20,
            retention: Retention::default(),
            value_bytes_max: 3 << 20,
            key_bytes_max: 4 << 10,
            queued_bytes_max: 32 << 20,
            free_bytes_min: 64 << 20,
            shrinking: Shrinking::default(),
            progress_interval: Duration::from_secs(5),
        }
    }
}

/// Limits on history. The first one that is reached applies; current values are always kept.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Maximum age; unlimited if `None`.
    pub age_max: Option<Duration>,
    /// Keep at most about this many bytes of superseded values.
    pub bytes_max: u64,
    /// Keep at most this many revisions.
    pub revisions_max: u64,
}

impl Default for Retention {
    /// Five minutes, as Kubernetes has it, with room for a busy cluster.
    fn default() -> Self {
        Self { age_max: Some(Duration::from_secs(300)), bytes_max: 256 << 20, revisions_max: 500_000 }
    }
}

impl Retention {
    /// Keeps history until it is compacted explicitly.
    #[must_use]
    pub fn manual() -> Self {
        Self { age_max: None, bytes_max: u64::MAX, revisions_max: u64::MAX }
    }
}

/// Contents of an [`EmbeddedStore`] store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// The revision of the last write.
    pub revision: Revision,
    /// The oldest revision that can be read.
    pub compacted: Revision,
    /// Number of keys.
    pub keys: u64,
    /// About how many bytes superseded versions take.
    pub superseded_bytes: u64,
    /// Size of the recent events in bytes.
    pub recent_bytes: usize,
}

/// A store in its own file, or in memory.
pub struct EmbeddedStore {
    shared: Arc<SharedState>,
    commands: mpsc::Sender<Command>,
    budget: Arc<Semaphore>,
    medium: Option<Medium>,
    options: Options,
}

/// State shared by readers, watchers and the writer.
struct SharedState {
    state: RwLock<State>,
    /// `None` in memory, after closing, and while a failed file is opened again.
    file: RwLock<Option<Arc<LogFile>>>,
    /// Number of durable commits.
    commits: AtomicU64,
    /// Error that prevents writes, as found by the writer.
    failure: Mutex<Option<Error>>,
    in_memory: bool,
}

impl EmbeddedStore {
    /// Opens the store in the file at `path`, which is made if it does not exist. Its directory must exist.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process has it open, [`Error::Damaged`], [`Error::Full`], [`Error::Unavailable`].
    pub fn open(path: impl Into<PathBuf>, options: Options) -> Result<Self, Error> {
        Self::start(Some(Medium::Path(path.into())), options)
    }

    /// Opens the store on a redb backend of the caller. The function is called again if the backend in use
    /// fails.
    ///
    /// # Errors
    /// As [`EmbeddedStore::open`].
    pub fn open_backend<F>(backend: F, options: Options) -> Result<Self, Error>
    where
        F: Fn() -> io::Result<Box<dyn redb::StorageBackend>> + Send + Sync + 'static,
    {
        let factory: BackendFactory = Arc::new(backend);
        Self::start(Some(Medium::Backend(factory)), options)
    }

    /// An empty store in memory, lost when it is dropped.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the writing thread cannot be started.
    pub fn in_memory(options: Options) -> Result<Self, Error> {
        Self::start(None, options)
    }

    fn start(medium: Option<Medium>, options: Options) -> Result<Self, Error> {
        let in_memory = medium.is_none();
        let mut failure = None;
        let (file, position) = match &medium {
            Some(medium) => {
                // A file cannot be opened without any room at all.
                if let (Some(mut ballast), Some(free)) = (Ballast::of(medium), medium.free_bytes_beside()) {
                    ballast.settle(free, u64::MAX);
                }
                let mut opened = LogFile::open(medium, options.cache_bytes);
                if let Err(full @ Error::Full { .. }) = &opened
                    && let Ok(readable) = LogFile::open_for_reading(medium, options.cache_bytes)
                {
                    // Existing data is served until there is space again.
                    failure = Some(full.clone());
                    opened = Ok(readable);
                }
                let (file, position) = opened?;
                (Some(Arc::new(file)), position)
            }
            None => (None, Position { revision: FIRST_REVISION, compacted: 0 }),
        };
        let recent = RecentEvents::new(options.recent_bytes, in_memory);
        let mut state = State::new(position.revision, position.compacted, recent, in_memory);
        let mut expiring = Vec::new();
        if let Some(file) = &file {
            file.scan(0, |logged| {
                let content = if logged.deleted { Content::Deleted } else { Content::OnDisk { length: logged.length } };
                state.index.insert(&logged.key, Version { revision: logged.revision, content });
                if logged.expires_at_ms != 0 {
                    expiring.push((logged.expires_at_ms, logged.revision, logged.key));
                }
                true
            })?;
        }
        let failure = Mutex::new(failure);
        let (state, file, commits) = (RwLock::new(state), RwLock::new(file), AtomicU64::new(0));
        let shared = Arc::new(SharedState { state, file, commits, failure, in_memory });
        let (commands, receiver) = mpsc::channel();
        Writer::spawn(shared.clone(), medium.clone(), receiver, expiring, options.clone())?;
        let permits = u32::try_from(options.queued_bytes_max / BYTES_PER_PERMIT).unwrap_or(u32::MAX);
        let budget =
            Arc::new(Semaphore::new(usize::try_from(permits).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS)));
        Ok(Self { shared, commands, budget, medium, options })
    }

    /// Contents of the store.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let state = self.shared.state();
        Statistics {
            revision: state.revision,
            compacted: state.compacted,
            keys: state.index.live(),
            superseded_bytes: state.index.superseded_bytes(),
            recent_bytes: state.recent.bytes(),
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }

    fn check_size(&self, write: &Write) -> Result<usize, Error> {
        let check = |what, size: usize, limit: usize| {
            if size > limit {
                let (size, limit) = (size.try_into().unwrap_or(u64::MAX), limit.try_into().unwrap_or(u64::MAX));
                return Err(Error::TooLarge { what, size, limit });
            }
            Ok(size)
        };
        write.check()?;
        let key = check("key", write.key.len(), self.options.key_bytes_max)?;
        let value = match &write.change {
            Change::Put { value, .. } => check("value", value.len(), self.options.value_bytes_max)?,
            Change::Delete => 0,
        };
        Ok(key.saturating_add(value))
    }
}

/// Number of bytes per permit of the writers' budget.
const BYTES_PER_PERMIT: usize = 1 << 10;

/// Number of keys to look up before the lock on the index is released briefly.
const LIST_CHUNK: usize = 1024;

/// More values than these are fetched off the async threads.
const INLINE_VALUES_MAX: usize = 32;

#[async_trait]
impl Store for EmbeddedStore {
    async fn current_revision(&self) -> Result<Revision, Error> {
        let state = self.shared.state();
        state.check_open()?;
        Ok(state.revision)
    }

    async fn get(&self, key: &str, at_least: Revision) -> Result<Reading, Error> {
        loop {
            let (revision, found) = {
                let state = self.shared.state();
                state.check_open()?;
                if at_least > state.revision {
                    return Err(Error::FutureRevision { requested: at_least, current: state.revision });
                }
                let found = state.index.latest(key).map(|(key, version)| state.locate(key, version));
                (state.revision, found)
            };
            let Some(found) = found else {
                return Ok(Reading { revision, entry: None });
            };
            // `None`: overwritten and compacted since the index was read.
            if let Some(entry) = self.shared.fetch(vec![found])?.and_then(|mut entries| entries.pop()) {
                return Ok(Reading { revision, entry: Some(entry) });
            }
            if self.shared.state().index.latest(key).is_some_and(|(_, version)| version.revision <= revision) {
                return Err(damaged(format!("the value of `{key}` is missing")));
            }
        }
    }

    async fn list(&self, prefix: &str, options: ListOptions) -> Result<Page, Error> {
        let revision = {
            let state = self.shared.state();
            let revision = options.revision.unwrap_or(state.revision);
            state.check_readable(revision)?;
            revision
        };
        let limit = options.limit.unwrap_or(usize::MAX);
        let mut found: Vec<FoundEntry> = Vec::new();
        let mut remaining = loop {
            let state = self.shared.state();
            state.check_readable(revision)?;
            let last = found.last().map(|last| last.key.clone());
            let after_key = last.as_deref().or(options.after_key.as_deref());
            let mut range = state.index.range(prefix, after_key, revision);
            let before = found.len();
            let room = limit.saturating_sub(before).min(LIST_CHUNK);
            found.extend(range.by_ref().take(room).map(|(key, version)| state.locate(key, version)));
            if found.len() == limit {
                break range.count();
            }
            if found.len().saturating_sub(before) < room {
                break 0;
            }
        };
        if let Some(bytes_max) = options.bytes_max {
            let mut bytes = 0_usize;
            let kept = found.iter().position(|found| {
                let is_enough = bytes >= bytes_max;
                bytes = bytes.saturating_add(usize::try_from(found.content.length()).unwrap_or(usize::MAX));
                is_enough
            });
            let kept = kept.unwrap_or(found.len());
            remaining = remaining.saturating_add(found.len().saturating_sub(kept));
            found.truncate(kept);
        }
        let on_disk = found.iter().filter(|found| matches!(found.content, Content::OnDisk { .. })).count();
        let entries = if on_disk > INLINE_VALUES_MAX {
            let shared = self.shared.clone();
            let fetch = tokio::task::spawn_blocking(move || shared.fetch(found));
            fetch.await.map_err(|error| Error::Unavailable(Cause::new(error)))??
        } else {
            self.shared.fetch(found)?
        };
        let Some(entries) = entries else {
            self.shared.state().check_readable(revision)?;
            return Err(damaged(format!("a value below `{prefix}` is missing")));
        };
        Ok(Page { revision, entries, remaining: remaining.try_into().unwrap_or(u64::MAX) })
    }

    async fn write(&self, write: Write) -> Result<Outcome, Error> {
        let bytes = self.check_size(&write)?;
        let permits = u32::try_from(bytes / BYTES_PER_PERMIT).unwrap_or(u32::MAX).saturating_add(1);
        // One that is greater than the whole budget must still get through.
        let permits =
            permits.min(u32::try_from(self.options.queued_bytes_max / BYTES_PER_PERMIT).unwrap_or(u32::MAX)).max(1);
        let permit = self.budget.clone().acquire_many_owned(permits).await.map_err(|_| Error::Closed)?;
        let key = write.key.clone();
        match self.ask(|reply| Command::Write(Job::new(write, Some(reply), Some(permit)))).await? {
            Reply::Done(revision) => Ok(Outcome::Done { revision }),
            Reply::Conflict => Ok(Outcome::Conflict { current: self.get(&key, 0).await?.entry }),
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        let slot = self.shared.state_mut().register(prefix, after)?;
        Ok(Watch::new(Watcher::new(self.shared.clone(), slot, self.options.progress_interval)))
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.ask(|reply| Command::Compact(revision, reply)).await
    }

    async fn check_writable(&self) -> Result<(), Error> {
        self.shared.state().check_open()?;
        match self.shared.failure() {
            Some(Error::Full { .. }) | None => {}
            Some(error) => return Err(error),
        }
        match self.medium.as_ref().and_then(|medium| medium.full(&self.options)) {
            Some(full) => Err(full),
            None => self.shared.failure().map_or(Ok(()), Err),
        }
    }

    async fn snapshot(&self) -> Result<Snapshot, Error> {
        if self.shared.in_memory {
            return Err(Error::Refused(Cause::new("the store is in memory only")));
        }
        let file = self.shared.file()?;
        let snapshot = tokio::task::spawn_blocking(move || file.snapshot());
        snapshot.await.map_err(|error| Error::Unavailable(Cause::new(error)))?
    }

    fn durable_commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    async fn close(&self) -> Result<(), Error> {
        match self.ask(Command::Close).await {
            Err(Error::Closed) => Ok(()),
            result => result,
        }
    }
}

impl State {
    /// Returns the location of a version's value, or the value itself if it is recent.
    fn locate(&self, key: &Arc<str>, version: &Version) -> FoundEntry {
        let recent = match &version.content {
            Content::OnDisk { .. } => self.recent.get(version.revision).and_then(|event| event.value.clone()),
            _ => None,
        };
        FoundEntry {
            key: key.clone(),
            revision: version.revision,
            content: recent.map_or_else(|| version.content.clone(), Content::Resident),
        }
    }
}

impl Medium {
    /// Returns an error if there is less space than the reserve.
    fn full(&self, options: &Options) -> Option<Error> {
        let (free_bytes, reserve_bytes) = (self.free_bytes()?, options.free_bytes_min.max(RESERVE_MIN));
        (free_bytes < reserve_bytes).then_some(Error::Full { free_bytes: Some(free_bytes), reserve_bytes })
    }
}

impl SharedState {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    fn file(&self) -> Result<Arc<LogFile>, Error> {
        if let Some(file) = &*self.file.read() {
            return Ok(file.clone());
        }
        self.state().check_open()?;
        Err(Error::Unavailable(Cause::new("the file is being opened again after a failure")))
    }

    fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    fn set_failure(&self, failure: Option<Error>) {
        *self.failure.lock() = failure;
    }

    fn set_file(&self, file: Option<Arc<LogFile>>) -> Option<Arc<LogFile>> {
        std::mem::replace(&mut *self.file.write(), file)
    }

    /// Fetches the values of entries; `None` if one of them was compacted meanwhile.
    fn fetch(&self, found: Vec<FoundEntry>) -> Result<Option<Vec<Entry>>, Error> {
        let mut values = None;
        let mut entries = Vec::with_capacity(found.len());
        for FoundEntry { key, revision, content } in found {
            let Some(value) = self.value(revision, &content, &mut values)? else {
                return Ok(None);
            };
            entries.push(Entry { key, value, revision });
        }
        Ok(Some(entries))
    }

    /// One value; opens the file for reading on the first one that needs it.
    fn value(
        &self,
        revision: Revision,
        content: &Content,
        values: &mut Option<file::Values>,
    ) -> Result<Option<Bytes>, Error> {
        match content {
            Content::Deleted => Ok(None),
            Content::Resident(value) => Ok(Some(value.clone())),
            Content::OnDisk { .. } => {
                let values = match values {
                    Some(values) => values,
                    none => none.insert(self.file()?.values()?),
                };
                values.get(revision)
            }
        }
    }
}
