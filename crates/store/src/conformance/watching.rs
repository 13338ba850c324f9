//! Watches.

use std::sync::Arc;
use std::time::Duration;

use super::{PATIENCE, collect, fresh_prefix, next, put_new, put_over, read, remove};
use crate::{Error, Event, ListOptions, PreviousValue, Revision, Store};

/// Writes some keys below a prefix and outside of it; returns the last revision.
async fn some_writes(store: &dyn Store, prefix: &str, count: u64) -> Revision {
    let mut last = 0;
    for n in 0..count {
        let key = format!("{prefix}{}", n.wrapping_mul(5) % 7);
        last = match read(store, &key).await {
            None => put_new(store, &key, n.to_string()).await,
            Some(entry) if n % 4 == 0 => remove(store, &key, entry.revision).await,
            Some(entry) => put_over(store, &key, entry.revision, n.to_string()).await,
        };
        let beside = format!("{}-beside", prefix.trim_end_matches('/'));
        match read(store, &beside).await {
            None => _ = put_new(store, &beside, "x").await,
            Some(entry) => _ = put_over(store, &beside, entry.revision, "x").await,
        }
    }
    last
}

/// Replays events onto a map and checks that each is consistent with the earlier ones.
fn replay(events: &[Event]) -> std::collections::BTreeMap<Arc<str>, PreviousValue> {
    let mut state = std::collections::BTreeMap::new();
    let mut last = 0;
    for event in events {
        assert!(event.revision > last, "event {} after {last}", event.revision);
        last = event.revision;
        let previous = match &event.value {
            Some(value) => state.insert(event.key.clone(), PreviousValue { value: value.clone(), revision: last }),
            None => state.remove(&event.key),
        };
        assert_eq!(event.previous, previous, "what `{}` held before {last}", event.key);
    }
    state
}

/// Every change is delivered once, in order, with the previous value; changes outside of the range are not
/// delivered.
pub async fn watch_sees_every_change_in_order(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "watch").await;
    let start = store.current_revision().await.expect("a revision");
    let mut early = store.watch(&prefix, start).await.expect("a watch");
    let last = some_writes(&*store, &prefix, 60).await;
    let live = collect(&mut early, last).await;
    assert_eq!(live.len(), 60);
    assert!(live.iter().all(|event| event.key.starts_with(&prefix)));
    let state = replay(&live);
    let page = store.list(&prefix, ListOptions::default()).await.expect("a page");
    let listed = page.entries.into_iter().map(|it| (it.key, PreviousValue { value: it.value, revision: it.revision }));
    assert_eq!(state, listed.collect());
    let mut late = store.watch(&prefix, start).await.expect("a watch");
    assert_eq!(collect(&mut late, last).await, live, "a late watcher sees the same");
}

/// A watch from any revision continues exactly there, even during concurrent writes.
pub async fn watch_resumes_exactly(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "resume").await;
    let start = store.current_revision().await.expect("a revision");
    let writer = {
        let (store, prefix) = (store.clone(), prefix.clone());
        tokio::spawn(async move { some_writes(&*store, &prefix, 80).await })
    };
    // A watcher that reconnects after every batch and continues from the last revision received.
    let mut events = Vec::new();
    let mut after = start;
    while events.len() < 80 {
        let mut watch = store.watch(&prefix, after).await.expect("a watch");
        let batch = next(&mut watch).await;
        assert!(batch.revision >= after);
        after = batch.revision;
        events.extend(batch.events);
    }
    let last = writer.await.expect("the writer finishes");
    replay(&events);
    assert_eq!(events.last().map(|event| event.revision), Some(last));
    for (n, event) in events.iter().enumerate() {
        let mut watch = store.watch(&prefix, event.revision - 1).await.expect("a watch");
        let rest = collect(&mut watch, last).await;
        assert!(rest == events[n..], "from {}", event.revision - 1);
    }
}

/// A watch from a future revision reports only later changes.
pub async fn watch_waits_for_the_future(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "future").await;
    let start = store.current_revision().await.expect("a revision");
    let mut watch = store.watch(&prefix, start + 2).await.expect("a watch");
    let mut last = 0;
    for n in 0..4 {
        last = put_new(&*store, &format!("{prefix}{n}"), "x").await;
    }
    let seen: Vec<_> = collect(&mut watch, last).await.into_iter().map(|event| event.revision).collect();
    assert_eq!(seen, [start + 3, start + 4]);
}

/// A watch of a range without changes receives the store's progress, even without a request.
pub async fn progress_reaches_a_quiet_range(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "quiet").await;
    let start = store.current_revision().await.expect("a revision");
    let mut asked = store.watch(&format!("{prefix}quiet/"), start).await.expect("a watch");
    let mut patient = store.watch(&format!("{prefix}quiet/"), start).await.expect("a watch");
    for round in 0..5 {
        let revision = put_new(&*store, &format!("{prefix}busy/{round}"), "x").await;
        asked.progress_request().reach(revision);
        assert_eq!(collect(&mut asked, revision).await, []);
        if round == 0 {
            assert_eq!(collect(&mut patient, revision).await, []);
        }
    }
    // Requested while events are pending: the events are delivered first.
    let revision = put_new(&*store, &format!("{prefix}quiet/a"), "x").await;
    asked.progress_request().reach(revision);
    let batch = next(&mut asked).await;
    assert_eq!(batch.events.iter().map(|event| event.revision).collect::<Vec<_>>(), [revision]);
}

/// A watcher that does not keep up either catches up without a gap or receives an error.
pub async fn slow_watchers_see_no_gap(store: Arc<dyn Store>) {
    const WRITES: u64 = 400;
    let prefix = fresh_prefix(&*store, "slow").await;
    let key = format!("{prefix}a");
    let mut expected = vec![put_new(&*store, &key, "0").await];
    let mut slow = store.watch(&prefix, expected[0] - 1).await.expect("a watch");
    let mut stopped = store.watch(&prefix, expected[0] - 1).await.expect("a watch");
    assert_eq!(next(&mut slow).await.events.len(), 1);
    for n in 1..WRITES {
        let since = expected[expected.len() - 1];
        expected.push(put_over(&*store, &key, since, vec![b'x'; 8 << 10]).await);
        if n % 100 == 0 {
            let batch = next(&mut slow).await;
            assert!(!batch.events.is_empty());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let last = expected[expected.len() - 1];
    store.compact(last).await.expect("compaction succeeds");
    for n in 0..50 {
        put_new(&*store, &format!("{prefix}-{n}"), "x").await;
    }
    let mut seen = Vec::new();
    loop {
        match tokio::time::timeout(PATIENCE, stopped.next()).await.expect("the watch reports in time") {
            Ok(batch) => seen.extend(batch.events.iter().map(|event| event.revision)),
            Err(Error::Compacted { .. }) => break,
            Err(error) => panic!("cut off for another reason: {error}"),
        }
        if seen.len() >= expected.len() {
            break;
        }
    }
    let common = seen.len().min(expected.len());
    assert_eq!(seen[..common], expected[..common]);
}
