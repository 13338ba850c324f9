//! The current revision of the store, read once for concurrent requests.
//!
//! On etcd every such read is a round trip to a quorum. A read is shared by all requests that arrived before it
//! began: it covers all earlier writes. Requests that arrive during a read wait for the next.

use locks::Mutex;
use std::time::Instant;

use store::{Error, Revision};

/// Reads of the current revision.
#[derive(Debug, Default)]
pub(crate) struct CurrentRevision {
    turn: tokio::sync::Mutex<()>,
    /// Start of the last read, and its result.
    last: Mutex<Option<(Instant, Revision)>>,
}

impl CurrentRevision {
    /// A revision that is not older than this call; `fetch` reads it from the store.
    pub(crate) async fn read<F>(&self, fetch: impl FnOnce() -> F) -> Result<Revision, Error>
    where
        F: Future<Output = Result<Revision, Error>>,
    {
        let asked = Instant::now();
        let _turn = self.turn.lock().await;
        let last = *self.last.lock();
        if let Some((began, revision)) = last
            && began > asked
        {
            return Ok(revision);
        }
        let began = Instant::now();
        let revision = fetch().await?;
        *self.last.lock() = Some((began, revision));
        Ok(revision)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn reads_at_the_same_time_are_shared_and_never_old() {
        let (current, reads) = (CurrentRevision::default(), Cell::new(0));
        let read = || {
            current.read(|| async {
                reads.set(reads.get() + 1);
                Ok(reads.get())
            })
        };
        // All of them arrive during another read.
        let turn = current.turn.lock().await;
        let (all, ()) = tokio::join!(join_all((0..20).map(|_| read())), async { drop(turn) });
        assert!(all.into_iter().all(|revision| matches!(revision, Ok(1))));
        assert_eq!(reads.get(), 1);
        assert!(matches!(read().await, Ok(2)));
        let failed = current.read(|| async { Err(Error::Closed) }).await;
        assert!(matches!(failed, Err(Error::Closed)));
    }
}
