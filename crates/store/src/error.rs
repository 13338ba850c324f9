//! Errors of a store.
//!
//! A guard that does not hold is not an error: it is [`crate::Outcome::Conflict`]. The API server decides which
//! errors users see.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::Revision;

/// Error of an operation. Cheap to clone: one failed group commit fails many writes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The requested history was compacted; list again and continue from there.
    #[error("revision {requested} is too old, history starts at {oldest}")]
    Compacted {
        /// Requested revision.
        requested: Revision,
        /// The oldest revision that can still be read, or watched from.
        oldest: Revision,
    },
    /// The store has not come that far (yet).
    #[error("revision {requested} is in the future, the store is at {current}")]
    FutureRevision {
        /// Requested revision.
        requested: Revision,
        /// The store's revision.
        current: Revision,
    },
    /// A key or value is over the store's limit. Nothing was written.
    #[error("{what} of {size} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// `key`, `value` or `request`.
        what: &'static str,
        /// Size in bytes; 0 if the rejecting server does not report it.
        size: u64,
        /// Limit in bytes; 0 if the rejecting server does not report it.
        limit: u64,
    },
    /// There is no space left. Deletes and compaction still work; writes work again once there is space.
    #[error("the disk is full{}", room(*free_bytes, *reserve_bytes))]
    Full {
        /// Free space of the file system, if known.
        free_bytes: Option<u64>,
        /// Below this much nothing is written but deletes; 0 where nothing is kept in reserve.
        reserve_bytes: u64,
    },
    /// The file is open in another process.
    #[error("`{}` is in use by another process", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A newer version has written this, in a form that this one cannot read. Nothing was changed.
    #[error("the data has format {format}, and this version reads formats up to {newest}: a newer version wrote it")]
    Newer {
        /// The format that was found.
        format: u64,
        /// The newest one that can be read.
        newest: u64,
    },
    /// The stored data differs from the written data.
    #[error("the stored data is damaged")]
    Damaged(#[source] Cause),
    /// The storage cannot be reached or failed. A write that ends so may or may not have happened.
    #[error("the storage is unavailable")]
    Unavailable(#[source] Cause),
    /// The storage did not answer in time. A write that ends so may or may not have happened.
    #[error("the storage did not answer in time")]
    TimedOut(#[source] Cause),
    /// The store refused the operation and would do so again, for example for lack of rights.
    #[error("the storage refused the request")]
    Refused(#[source] Cause),
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// The storage reported that it is full, without details.
    pub(crate) fn full() -> Self {
        Self::Full { free_bytes: None, reserve_bytes: 0 }
    }
}

fn room(free_bytes: Option<u64>, reserve_bytes: u64) -> String {
    match free_bytes {
        Some(free) if reserve_bytes > 0 => {
            format!(": {} MiB are free, and the last {} MiB are kept in reserve", free >> 20, reserve_bytes >> 20)
        }
        _ => String::new(),
    }
}

/// A shared cause of an [`Error`].
#[derive(Clone)]
pub struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl Cause {
    /// Wraps an error, or a text.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(error.into().into())
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}
