//! Following the changes of a range of keys.
//!
//! A watch is pulled: it buffers no events beyond the batch being read, so a slow reader costs no memory. A
//! reader that falls behind the history receives [`Error::Compacted`] and never misses an event silently.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{Error, Event, Revision};

/// Changes that follow each other, and how far they reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The changes in the order in which they happened. Empty if this only reports progress.
    pub events: Vec<Event>,
    /// Every change to the watched keys up to and including this revision has been handed out.
    pub revision: Revision,
}

/// Source of a [`Watch`]'s batches: one implementation per store.
#[async_trait]
pub trait Source: Send {
    /// See [`Watch::next`].
    async fn next(&mut self) -> Result<Batch, Error>;
    /// See [`Watch::progress_request`].
    fn progress_request(&self) -> ProgressRequest;
}

/// The changes of all keys with one prefix, in order, without loss or repetition.
pub struct Watch(Box<dyn Source>);

impl Watch {
    /// Wraps a store's implementation.
    pub fn new(source: impl Source + 'static) -> Self {
        Self(Box::new(source))
    }

    /// Waits for the next changes, or for progress.
    ///
    /// The revisions of successive batches never decrease. From time to time, and on request, a batch without
    /// events reports a newer revision without changes in the range. Cancel safe: a batch that was not returned
    /// is delivered again.
    ///
    /// # Errors
    /// [`Error::Compacted`] if the reader fell behind the history, [`Error::Closed`] if the store was closed;
    /// both are final. Any other error may be temporary: call again to continue without loss, or give up.
    pub async fn next(&mut self) -> Result<Batch, Error> {
        self.0.next().await
    }

    /// A handle with which others can make this watch report its progress.
    #[must_use]
    pub fn progress_request(&self) -> ProgressRequest {
        self.0.progress_request()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// Makes one watch report its progress.
#[derive(Clone)]
pub struct ProgressRequest(Arc<dyn Fn(Revision) + Send + Sync>);

impl ProgressRequest {
    /// Wraps the function that requests a progress report.
    pub fn new(ask: impl Fn(Revision) + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// Makes the watch report as soon as it has reached `revision`, if it has not done so already.
    ///
    /// With the store's current revision, this is the revision that a cache must reach to be as recent as the
    /// store.
    pub fn reach(&self, revision: Revision) {
        (self.0)(revision);
    }
}

impl fmt::Debug for ProgressRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressRequest").finish_non_exhaustive()
    }
}
