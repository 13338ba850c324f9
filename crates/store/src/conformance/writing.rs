//! Writes: guards, revisions, sizes, expiry.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{PATIENCE, collect, fresh_prefix, put_new, put_over, read, remove};
use crate::modify::{ModifyResult, modify};
use crate::{Change, Entry, Error, Guard, Outcome, Store, Write};

/// Every write makes the next revision, also one that changes nothing; a conflict makes none.
pub async fn revisions_rise_by_one(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "revisions").await;
    let key = format!("{prefix}a");
    let start = store.current_revision().await.expect("a revision");
    assert_eq!(put_new(&*store, &key, "1").await, start + 1);
    assert_eq!(put_over(&*store, &key, start + 1, "1").await, start + 2);
    let conflict = store.write(Write::create(&*key, "2")).await.expect("an answer");
    assert!(matches!(conflict, Outcome::Conflict { .. }));
    assert_eq!(remove(&*store, &key, start + 2).await, start + 3);
    assert_eq!(put_new(&*store, &format!("{prefix}b"), "1").await, start + 4);
    assert_eq!(store.current_revision().await.expect("a revision"), start + 4);
}

/// A write succeeds if, and only if, its guard holds; a conflict returns the current value.
pub async fn guards_hold(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "guards").await;
    let key = format!("{prefix}a");
    let conflict = async |write: Write, current: Option<&Entry>| {
        let outcome = store.write(write.clone()).await.expect("an answer");
        assert_eq!(outcome, Outcome::Conflict { current: current.cloned() }, "{write:?}");
        assert_eq!(read(&*store, &key).await.as_ref(), current, "after {write:?}");
    };
    conflict(Write::update(&*key, 1, "x"), None).await;
    conflict(Write::delete(&*key, 1), None).await;
    let entry = |value: &'static str, revision| Entry { key: key.as_str().into(), value: value.into(), revision };

    let first = entry("1", put_new(&*store, &key, "1").await);
    assert_eq!(read(&*store, &key).await.as_ref(), Some(&first));
    conflict(Write::create(&*key, "x"), Some(&first)).await;
    conflict(Write::update(&*key, first.revision - 1, "x"), Some(&first)).await;
    conflict(Write::update(&*key, first.revision + 1, "x"), Some(&first)).await;
    conflict(Write::update(&*key, 0, "x"), Some(&first)).await;

    let second = entry("2", put_over(&*store, &key, first.revision, "2").await);
    conflict(Write::update(&*key, first.revision, "x"), Some(&second)).await;
    conflict(Write::delete(&*key, first.revision), Some(&second)).await;

    remove(&*store, &key, second.revision).await;
    conflict(Write::delete(&*key, second.revision), None).await;
    conflict(Write::update(&*key, second.revision, "x"), None).await;
    // A recreated key differs from the deleted one: the old revision no longer guards it.
    let third = entry("3", put_new(&*store, &key, "3").await);
    conflict(Write::update(&*key, second.revision, "x"), Some(&third)).await;
    assert_eq!(put_over(&*store, &key, third.revision, "").await, third.revision + 1);
    assert_eq!(read(&*store, &key).await.map(|entry| entry.value), Some(Bytes::new()), "an empty value is a value");
}

/// A read-modify-write loop starts over when it lost, and trusts a cached entry only to write.
pub async fn modify_starts_over_on_conflict(store: Arc<dyn Store>) {
    let key = format!("{}a", fresh_prefix(&*store, "modify").await);
    let put = |value: String| Ok::<_, Error>(Some(Change::Put { value: value.into(), ttl: None }));
    let append = |entry: Option<&Entry>| {
        let old = entry.map_or(&b""[..], |entry| &entry.value);
        put(format!("{}+", String::from_utf8_lossy(old)))
    };
    modify(&*store, &key, None, append).await.expect("created");
    let old = read(&*store, &key).await;
    modify(&*store, &key, None, append).await.expect("updated");
    modify(&*store, &key, old.clone(), append).await.expect("updated, although the cached entry is old");
    let now = read(&*store, &key).await.expect("there");
    assert_eq!(now.value, "+++");

    let mut seen = Vec::new();
    let kept = modify(&*store, &key, old, |entry| {
        seen.push(entry.map(|entry| entry.revision));
        Ok::<_, Error>(None)
    });
    assert_eq!(kept.await.expect("an answer"), ModifyResult::Kept);
    assert_eq!(seen.last(), Some(&Some(now.revision)), "kept on the strength of what the store has");
    let gone = modify(&*store, &key, Some(now), |_| Ok::<_, Error>(Some(Change::Delete))).await;
    assert!(matches!(gone, Ok(ModifyResult::Written { .. })));
    assert_eq!(read(&*store, &key).await, None);
    let gone = modify(&*store, &key, None, |_| Ok::<_, Error>(Some(Change::Delete))).await;
    assert!(matches!(gone, Ok(ModifyResult::Kept)), "{gone:?}");
}

/// Concurrent increments of one key do not overwrite each other.
pub async fn concurrent_writers_lose_no_update(store: Arc<dyn Store>) {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 25;
    let key = format!("{}counter", fresh_prefix(&*store, "counter").await);
    let tasks = (0..WRITERS).map(|_| {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move {
            let mut revisions = Vec::new();
            for _ in 0..ROUNDS {
                let count_up = |entry: Option<&Entry>| {
                    let old = entry.map_or(0, |entry| number(&entry.value));
                    Ok::<_, Error>(Some(Change::Put { value: (old + 1).to_string().into(), ttl: None }))
                };
                match modify(&*store, &key, None, count_up).await.expect("written") {
                    ModifyResult::Written { revision } => revisions.push(revision),
                    ModifyResult::Kept => panic!("the decision was to write"),
                }
            }
            assert!(revisions.is_sorted(), "{revisions:?}");
            revisions
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut revisions = Vec::new();
    for task in tasks {
        revisions.extend(task.await.expect("a writer finishes"));
    }
    revisions.sort_unstable();
    revisions.dedup();
    assert_eq!(revisions.len(), WRITERS * ROUNDS, "every write has a revision of its own");
    assert_eq!(read(&*store, &key).await.map(|entry| number(&entry.value)), Some(WRITERS * ROUNDS));
}

fn number(value: &[u8]) -> usize {
    String::from_utf8_lossy(value).parse().expect("a number")
}

/// Values of 1.5 MB are stored, listed and watched unchanged.
pub async fn big_values_come_back_whole(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "big").await;
    let key = format!("{prefix}a");
    let value = |seed: u32| -> Bytes {
        (0..1_500_000_u32).map(|n| n.wrapping_mul(2_654_435_761).wrapping_add(seed).to_be_bytes()[0]).collect()
    };
    let start = store.current_revision().await.expect("a revision");
    let mut watch = store.watch(&prefix, start).await.expect("a watch");
    let created = put_new(&*store, &key, value(1)).await;
    let updated = put_over(&*store, &key, created, value(2)).await;
    assert!(read(&*store, &key).await.is_some_and(|entry| entry.value == value(2)));
    let page = store.list(&prefix, crate::ListOptions::default()).await.expect("a page");
    assert!(page.entries.iter().map(|entry| &entry.value).eq([&value(2)]));
    let events = collect(&mut watch, updated).await;
    assert!(events.iter().map(|event| event.value.clone()).eq([Some(value(1)), Some(value(2))]));
    let previous: Vec<_> = events.into_iter().map(|event| event.previous.map(|previous| previous.value)).collect();
    assert!(previous == [None, Some(value(1))]);
}

/// Requests above the limits are rejected with a clear error, and have no effect.
pub async fn oversized_requests_are_refused(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "limits").await;
    let key = format!("{prefix}a");
    let start = store.current_revision().await.expect("a revision");
    let huge = store.write(Write::create(&*key, vec![0; 16 << 20])).await;
    assert!(matches!(huge, Err(Error::TooLarge { .. })), "{huge:?}");
    let pointless = Write { key: key.clone(), guard: Guard::Absent, change: Change::Delete };
    for refused in [Write::create("", "x"), Write::delete("", 1), pointless] {
        let outcome = store.write(refused).await;
        assert!(matches!(outcome, Err(Error::Refused(_))), "{outcome:?}");
    }
    assert_eq!(read(&*store, &key).await, None);
    assert_eq!(put_new(&*store, &key, "small").await, start + 1);
}

/// A key with a time to live is deleted like any other, unless it is written again without one.
pub async fn expired_keys_go_away(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "expiry").await;
    let [short, kept, renewed] = ["short", "kept", "renewed"].map(|name| format!("{prefix}{name}"));
    let start = store.current_revision().await.expect("a revision");
    let mut watch = store.watch(&prefix, start).await.expect("a watch");
    let ttl = Duration::from_secs(1);
    let mut revisions = Vec::new();
    for key in [&short, &kept, &renewed] {
        let outcome = store.write(Write::create(key.as_str(), "x").expiring(ttl)).await.expect("written");
        revisions.push(super::done(outcome));
    }
    put_over(&*store, &kept, revisions[1], "y").await;
    let again = Write::update(&*renewed, revisions[2], "y").expiring(Duration::from_secs(3600));
    let last = super::done(store.write(again).await.expect("written"));
    assert!(read(&*store, &short).await.is_some());

    let events = collect(&mut watch, last).await;
    assert_eq!(events.len(), 5);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let deleted = loop {
        let batch =
            tokio::time::timeout_at(deadline, watch.next()).await.expect("in time").expect("the watch continues");
        if let [event] = &*batch.events {
            break event.clone();
        }
        assert_eq!(batch.events, []);
    };
    assert_eq!((&*deleted.key, deleted.value), (&*short, None));
    assert_eq!(deleted.previous.map(|previous| previous.revision), Some(revisions[0]));
    assert!(deleted.revision > last);
    assert_eq!(read(&*store, &short).await, None);
    assert!(read(&*store, &kept).await.is_some());
    assert!(read(&*store, &renewed).await.is_some());
    put_new(&*store, &short, "back").await;
}
