//! Inputs and results of a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{Cause, Error};

/// A point in the history of the whole store: every write makes the next one.
///
/// An empty store is at 1, so 0 is never a revision of anything.
pub type Revision = u64;

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// Last written value.
    pub value: Bytes,
    /// The revision of that write.
    pub revision: Revision,
}

/// Value of a key, with the revision at which it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The store's revision when the key was read.
    pub revision: Revision,
    /// The entry, if the key exists.
    pub entry: Option<Entry>,
}

/// Part of a range to list, and its revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// The revision to list at; the current one if `None`.
    pub revision: Option<Revision>,
    /// At most this many entries; all of them if `None`.
    pub limit: Option<usize>,
    /// Only keys greater than this one: the last key of the page before.
    pub after_key: Option<String>,
    /// No further entries once their values have about this many bytes; any number if `None`.
    pub bytes_max: Option<usize>,
}

/// Entries in the order of their keys (bytewise), all as of one revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The revision of the list: use it for the next page, or to watch from it.
    pub revision: Revision,
    /// The entries.
    pub entries: Vec<Entry>,
    /// Number of entries after the last one.
    pub remaining: u64,
}

/// One change to one key, under a guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: String,
    /// Precondition of the change.
    pub guard: Guard,
    /// The change.
    pub change: Change,
}

impl Write {
    /// Creates a key that must not exist.
    pub fn create(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), guard: Guard::Absent, change: Change::Put { value: value.into(), ttl: None } }
    }

    /// Replaces the value of a key if it was last written at `unchanged_since`.
    pub fn update(key: impl Into<String>, unchanged_since: Revision, value: impl Into<Bytes>) -> Self {
        Self {
            key: key.into(),
            guard: Guard::Unchanged(unchanged_since),
            change: Change::Put { value: value.into(), ttl: None },
        }
    }

    /// Deletes a key if it was last written at `unchanged_since`.
    pub fn delete(key: impl Into<String>, unchanged_since: Revision) -> Self {
        Self { key: key.into(), guard: Guard::Unchanged(unchanged_since), change: Change::Delete }
    }

    /// Checks that the write is valid for every store.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let why = match (&self.guard, &self.change) {
            _ if self.key.is_empty() => "the key is empty",
            (Guard::Absent, Change::Delete) => "a key that must not exist cannot be deleted",
            _ => return Ok(()),
        };
        Err(Error::Refused(Cause::new(why)))
    }

    /// Makes the store delete the key once `ttl` has passed without another write.
    ///
    /// The deletion comes soon after that time, not at it, and looks like any other. No effect on a delete.
    #[must_use]
    pub fn expiring(mut self, after: Duration) -> Self {
        if let Change::Put { ttl, .. } = &mut self.change {
            *ttl = Some(after);
        }
        self
    }
}

/// Precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The key exists and was last written at this revision.
    Unchanged(Revision),
}

/// Change made by a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets the value.
    Put {
        /// The new value.
        value: Bytes,
        /// Time to live unless the key is written again; forever if `None`.
        ttl: Option<Duration>,
    },
    /// Removes the key.
    Delete,
}

/// Result of a guarded write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a conflict means that nothing was written"]
pub enum Outcome {
    /// The write is durable.
    Done {
        /// The revision it made.
        revision: Revision,
    },
    /// The guard did not hold and nothing was written.
    Conflict {
        /// Value of the key, read after the guard failed: the start of the next round of a read-modify-write
        /// loop.
        current: Option<Entry>,
    },
}

/// A change that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key that changed.
    pub key: Arc<str>,
    /// The revision of the change.
    pub revision: Revision,
    /// New value; `None` if the key was deleted.
    pub value: Option<Bytes>,
    /// Previous value; `None` if the key did not exist.
    pub previous: Option<PreviousValue>,
}

/// Value of a key before a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousValue {
    /// The value.
    pub value: Bytes,
    /// The revision at which that was written.
    pub revision: Revision,
}
