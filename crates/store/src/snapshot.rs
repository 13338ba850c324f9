//! All that a store holds at one revision, for backups.

use std::sync::Arc;

use bytes::Bytes;

use crate::{Error, Revision};

/// A key with its value, and all other data that must survive with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEntry {
    /// The key.
    pub key: Arc<str>,
    /// Last written value.
    pub value: Bytes,
    /// The revision of that write.
    pub revision: Revision,
    /// Expiry in milliseconds since 1970; 0: never.
    pub expires_at_ms: u64,
}

/// The values that were current at one revision, in the order of keys. Reading may block.
pub struct Snapshot {
    revision: Revision,
    kept: Box<dyn Iterator<Item = Result<KeptEntry, Error>> + Send>,
}

impl Snapshot {
    pub(crate) fn new(
        revision: Revision,
        kept: impl Iterator<Item = Result<KeptEntry, Error>> + Send + 'static,
    ) -> Self {
        Self { revision, kept: Box::new(kept) }
    }

    /// The revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }
}

impl Iterator for Snapshot {
    type Item = Result<KeptEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.kept.next()
    }
}
