//! Revisioned storage for the API server: keys, opaque bytes, and one revision that every write moves on by one.
//!
//! * [`Store`] is the trait: get, list at a revision, guarded write, watch from a revision, compact.
//! * [`EmbeddedStore`] keeps it in a file ([redb](https://docs.rs/redb)) or in memory.
//! * `etcd::Etcd` (feature `etcd`) keeps it in etcd, for several API servers at once.
//! * [`backup`] is a store as a stream of bytes.
//! * `conformance` (feature of the same name) is the suite that every implementation passes.
//! * [`modify`](modify::modify) is the read-modify-write loop over it.
//!
//! The caller defines the meaning of the bytes, and the keys.
//!
//! ```
//! use celplane_store::{EmbeddedStore, ListOptions, Options, Outcome, Store, Write};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), celplane_store::Error> {
//! let store = EmbeddedStore::in_memory(Options::default())?;
//! let start = store.current_revision().await?;
//! let mut watch = store.watch("/registry/pods/", start).await?;
//!
//! let Outcome::Done { revision } = store.write(Write::create("/registry/pods/default/a", "one")).await? else {
//!     return Ok(()); // It exists already.
//! };
//! assert_eq!(revision, start + 1);
//!
//! // A guarded update says what it is based on. This one is based on something else, and changes nothing.
//! let outcome = store.write(Write::update("/registry/pods/default/a", start, "two")).await?;
//! assert!(matches!(outcome, Outcome::Conflict { current: Some(entry) } if entry.revision == revision));
//!
//! let page = store.list("/registry/pods/", ListOptions::default()).await?;
//! assert_eq!((page.revision, page.entries.len()), (revision, 1));
//!
//! let batch = watch.next().await?;
//! assert_eq!(batch.events[0].value.as_deref(), Some(&b"one"[..]));
//! store.close().await
//! # }
//! ```

mod data;
mod error;
mod snapshot;
mod watch;

pub mod backup;
pub mod modify;

mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;

#[cfg(feature = "conformance")]
pub mod conformance;

use async_trait::async_trait;

pub use data::{Change, Entry, Event, Guard, ListOptions, Outcome, Page, PreviousValue, Reading, Revision, Write};
pub use embedded::{
    EmbeddedStore, Options, Report, Retention, Salvage, SalvagedKey, Shrinking, Statistics, quiet_contained_panics,
};
pub use error::{Cause, Error};
pub use snapshot::{KeptEntry, Snapshot};
pub use watch::{Batch, ProgressRequest, Source, Watch};

/// A map from keys to bytes with history.
///
/// There is one revision for the whole store. Every successful write creates the next one, even if it sets the
/// same value. A write that [`Store::write`] has acknowledged survives a crash, and every later call sees it.
#[async_trait]
pub trait Store: Send + Sync {
    /// The revision of the last write.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Closed`].
    async fn current_revision(&self) -> Result<Revision, Error>;

    /// Reads the current value of a key. `at_least` is a revision that the caller has seen: an older result is
    /// an error.
    ///
    /// # Errors
    /// [`Error::FutureRevision`] if the store has not reached `at_least`; [`Error::Damaged`], [`Error::Unavailable`], [`Error::Closed`].
    async fn get(&self, key: &str, at_least: Revision) -> Result<Reading, Error>;

    /// The entries whose keys start with `prefix`, as of one revision.
    ///
    /// # Errors
    /// [`Error::Compacted`] or [`Error::FutureRevision`] if that revision cannot be read; otherwise as [`Store::get`].
    async fn list(&self, prefix: &str, options: ListOptions) -> Result<Page, Error>;

    /// Performs one guarded write. It is durable once this returns. If the future is dropped, the write may
    /// still happen.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::Refused`] and [`Error::Full`]: nothing was written. [`Error::Unavailable`]: it may have been.
    async fn write(&self, write: Write) -> Result<Outcome, Error>;

    /// Follows the changes of all keys that start with `prefix`, from the one after revision `after`.
    ///
    /// A revision in the future is waited for: changes up to it are not reported.
    ///
    /// # Errors
    /// [`Error::Compacted`], here or from the watch itself, if the changes right after `after` were compacted.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error>;

    /// Removes all values that were overwritten or deleted at or before `revision`. Reading at `revision`
    /// itself stays possible.
    ///
    /// # Errors
    /// [`Error::FutureRevision`] if the store has not reached that revision. Compacting again is not an error.
    async fn compact(&self, revision: Revision) -> Result<(), Error>;

    /// Checks that writes can be expected to succeed.
    ///
    /// # Errors
    /// Why not: [`Error::Full`] where there is room for deletes only, or as [`Store::current_revision`].
    async fn check_writable(&self) -> Result<(), Error> {
        self.current_revision().await.map(drop)
    }

    /// Number of durable commits since the start: each is one sync of the disk, for one write or many. Zero for
    /// a store that does not count them.
    fn durable_commits(&self) -> u64 {
        0
    }

    /// Returns all current values, for a backup. Concurrent writes are not blocked.
    ///
    /// # Errors
    /// [`Error::Refused`] if this store is backed up in another way; otherwise as [`Store::get`].
    async fn snapshot(&self) -> Result<Snapshot, Error> {
        Err(Error::Refused(Cause::new("this store has its own backup tools")))
    }

    /// Finishes accepted writes, ends all watches and releases the storage. Closing twice is allowed.
    ///
    /// # Errors
    /// Those of the last writes; the storage is released in any case.
    async fn close(&self) -> Result<(), Error>;
}
