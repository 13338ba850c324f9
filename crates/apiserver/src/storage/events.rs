//! Events are numerous and short-lived: the store expires them, and this bounds their size until then.
//!
//! A task follows the events in the store and tracks key and size of each. When they exceed the limit, the
//! oldest are deleted. Their contents are not kept in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::EVENTS_PREFIX as PREFIX;
use store::{Error, ListOptions, Revision, Store, Write};
use tracing::warn;

use crate::shutdown::ShutdownSignal;

/// Page size for reading existing events.
const PAGE: usize = 1_000;
/// Number of concurrent deletions.
const DELETE_WIDTH: usize = 64;
/// Additional share to delete when the limit is exceeded, so that this does not happen for every event.
const SPARE_PART: u64 = 10;
/// Interval at which early deletions are logged.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Delay before the store is read again after an error.
const RETRY: Duration = Duration::from_secs(1);

/// All events: where each lies, by the revision that wrote it.
#[derive(Debug, Default)]
struct Ledger {
    events: BTreeMap<Revision, (Arc<str>, u64)>,
    bytes: u64,
}

impl Ledger {
    fn insert(&mut self, revision: Revision, key: Arc<str>, length: usize) {
        let bytes = u64::try_from(length.saturating_add(key.len())).unwrap_or(u64::MAX);
        self.remove(revision);
        self.bytes = self.bytes.saturating_add(bytes);
        self.events.insert(revision, (key, bytes));
    }

    fn remove(&mut self, revision: Revision) {
        if let Some((_, bytes)) = self.events.remove(&revision) {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }

    fn apply(&mut self, event: store::Event) {
        if let Some(previous) = &event.previous {
            self.remove(previous.revision);
        }
        if let Some(value) = &event.value {
            self.insert(event.revision, event.key, value.len());
        }
    }

    /// Takes out the oldest, if all together take more than `bytes_max`.
    fn take_excess(&mut self, bytes_max: u64) -> Vec<(Arc<str>, Revision)> {
        let mut excess = Vec::new();
        if self.bytes <= bytes_max {
            return excess;
        }
        let target = bytes_max.saturating_sub(bytes_max.checked_div(SPARE_PART).unwrap_or_default());
        while self.bytes > target
            && let Some((revision, (key, bytes))) = self.events.pop_first()
        {
            self.bytes = self.bytes.saturating_sub(bytes);
            excess.push((key, revision));
        }
        excess
    }
}

/// Deletes the oldest events when all together take more than `bytes_max`, until the server stops.
pub(crate) async fn bound(store: Arc<dyn Store>, bytes_max: u64, mut stopping: ShutdownSignal) {
    tokio::select! {
        () = follow(&*store, bytes_max) => {}
        () = stopping.stopped() => {}
    }
}

async fn follow(store: &dyn Store, bytes_max: u64) {
    let mut warned: Option<Instant> = None;
    loop {
        // A failure or a gap: start over with the existing events.
        match follow_once(store, bytes_max, &mut warned).await {
            Err(Error::Closed) => return,
            _ => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn follow_once(store: &dyn Store, bytes_max: u64, warned: &mut Option<Instant>) -> Result<(), Error> {
    let mut ledger = Ledger::default();
    let mut options = ListOptions { revision: None, limit: Some(PAGE), ..ListOptions::default() };
    loop {
        let page = store.list(PREFIX, options.clone()).await?;
        options.revision = Some(page.revision);
        options.after_key = page.entries.last().map(|entry| entry.key.to_string());
        for entry in page.entries {
            ledger.insert(entry.revision, entry.key, entry.value.len());
        }
        if page.remaining == 0 {
            break;
        }
    }
    let mut watch = store.watch(PREFIX, options.revision.unwrap_or_default()).await?;
    loop {
        let excess = ledger.take_excess(bytes_max);
        if !excess.is_empty() && warned.is_none_or(|at| at.elapsed() > WARN_EVERY) {
            *warned = Some(Instant::now());
            warn!(
                count = excess.len(),
                bytesMax = bytes_max,
                "Deleted events before they expired to stay below the size limit"
            );
        }
        for some in excess.chunks(DELETE_WIDTH) {
            let deletes = some.iter().map(|(key, revision)| store.write(Write::delete(&**key, *revision)));
            for deleted in futures::future::join_all(deletes).await {
                // A conflict means that it was rewritten or deleted: the watch reports which.
                let _ = deleted?;
            }
        }
        for event in watch.next().await?.events {
            ledger.apply(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;
    use store::{EmbeddedStore, Options, Outcome};

    #[test]
    fn events_lie_where_the_resource_says() {
        assert_eq!(resources::find("", "v1", "events").unwrap().prefix(), PREFIX);
    }

    #[tokio::test]
    async fn the_oldest_events_are_deleted_when_all_take_too_much() {
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(Options::default()).unwrap());
        let put = async |n: usize| {
            let write = Write::create(format!("{PREFIX}default/{n:04}"), vec![b'x'; 1000]);
            assert!(matches!(store.write(write).await, Ok(Outcome::Done { .. })));
        };
        // Some exist before the task starts.
        for n in 0..30 {
            put(n).await;
        }
        let following = tokio::spawn({
            let store = store.clone();
            async move { follow(&*store, 100_000).await }
        });
        for n in 30..400 {
            put(n).await;
        }
        let total = async || -> (usize, String) {
            let entries = store.list(PREFIX, ListOptions::default()).await.unwrap().entries;
            (entries.iter().map(|entry| entry.key.len() + entry.value.len()).sum(), entries[0].key.to_string())
        };
        for _ in 0..2000 {
            if total().await.0 <= 100_000 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (bytes, first) = total().await;
        assert!(bytes <= 100_000 && bytes > 80_000, "{bytes}");
        assert!(*first > *format!("{PREFIX}default/0290"), "the newest stay: {first}");
        following.abort();
    }
}
