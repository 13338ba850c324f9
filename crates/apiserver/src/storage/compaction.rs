//! Forgetting history: one of all servers on a store does it, at an interval.
//!
//! Each server tries to write a shared key. The one that succeeds compacts up to the revision of its last turn;
//! the others observe the write and wait for the next turn. Follows Kubernetes' `storage/etcd3/compact.go`.

use std::sync::Arc;
use std::time::Duration;

use store::{Error, Outcome, Revision, Store, Write};
use telemetry::logs::chain;
use tracing::{info, warn};

use crate::shutdown::ShutdownSignal;

/// Key that all servers write. It is not an object, but below their prefix: so their watch caches observe that
/// the store advanced.
const KEY: &str = "/registry/compact_rev_key";

/// The turns of one server.
#[derive(Debug, Default)]
pub(crate) struct Compactor {
    /// The last observed turn of any server.
    turn: Option<Revision>,
    /// Revision of the store at that time.
    seen: Revision,
}

impl Compactor {
    /// Takes a turn; returns the revision of the compaction, if this server did it.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn take_turn(&mut self, store: &dyn Store) -> Result<Option<Revision>, Error> {
        let now = store.current_revision().await?;
        let value = now.to_string();
        let write = match self.turn {
            Some(turn) => Write::update(KEY, turn, value),
            None => Write::create(KEY, value),
        };
        let old = std::mem::replace(&mut self.seen, now);
        match store.write(write).await? {
            Outcome::Conflict { current } => {
                self.turn = current.map(|entry| entry.revision);
                Ok(None)
            }
            Outcome::Done { revision } => {
                self.turn = Some(revision);
                if old == 0 {
                    return Ok(None);
                }
                store.compact(old).await?;
                Ok(Some(old))
            }
        }
    }
}

/// Takes turns until the server stops.
pub(crate) async fn run(store: Arc<dyn Store>, interval: Duration, mut stopping: ShutdownSignal) {
    let mut compactor = Compactor::default();
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = stopping.stopped() => return,
        }
        match compactor.take_turn(&*store).await {
            Ok(Some(revision)) => info!(revision, "Compacted store"),
            Ok(None) => {}
            Err(Error::Closed) => return,
            Err(error) => warn!(err = %chain(&error), "Could not compact store"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{EmbeddedStore, ListOptions, Options};

    #[tokio::test]
    async fn one_of_several_compacts_up_to_where_the_store_stood_at_its_last_turn() {
        let store = EmbeddedStore::in_memory(Options::default()).unwrap();
        let (mut first, mut second) = (Compactor::default(), Compactor::default());
        let mut versions = Vec::new();
        let mut done = Vec::new();
        for turn in 0..6 {
            let outcome = store.write(Write::create(format!("/registry/a{turn}"), "x")).await.unwrap();
            let Outcome::Done { revision } = outcome else { panic!("{outcome:?}") };
            versions.push(revision);
            // The order alternates.
            let (left, right) = if turn % 2 == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
            let left = left.take_turn(&store).await.unwrap();
            let right = right.take_turn(&store).await.unwrap();
            assert!(left.is_none() || right.is_none(), "turn {turn}: {left:?} {right:?}");
            done.extend(left.or(right));
        }
        assert!(done.len() >= 3 && done.is_sorted(), "{done:?}");
        let last = *done.last().unwrap();
        let at = |revision| ListOptions { revision: Some(revision), ..ListOptions::default() };
        assert!(matches!(store.list("/", at(last - 1)).await, Err(Error::Compacted { .. })));
        assert!(store.list("/", at(last)).await.is_ok());
        assert!(last < *versions.last().unwrap() + 2, "the newest history stays");
    }
}
