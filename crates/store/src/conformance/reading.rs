//! Reads of the present.

use std::sync::Arc;

use super::{fresh_prefix, put_new, put_over, remove};
use crate::{Error, ListOptions, Page, Store};

/// A client that has seen a revision never sees an earlier one.
pub async fn current_revision_never_falls(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "current").await;
    let writer = {
        let (store, prefix) = (store.clone(), prefix.clone());
        tokio::spawn(async move {
            for n in 0..100 {
                let revision = put_new(&*store, &format!("{prefix}{n}"), "x").await;
                let reading = store.get(&format!("{prefix}{n}"), revision).await.expect("a get succeeds");
                assert!(reading.entry.is_some_and(|entry| entry.revision == revision));
            }
        })
    };
    let mut last = 0;
    while !writer.is_finished() {
        let current = store.current_revision().await.expect("a revision");
        let listed = store.list(&prefix, ListOptions::default()).await.expect("a page").revision;
        let read = store.get(&prefix, 0).await.expect("a reading").revision;
        assert!(last <= current && current <= listed && listed <= read, "{last}, {current}, {listed}, {read}");
        last = read;
    }
    writer.await.expect("the writer finishes");
}

/// A read that must not be older than a revision in the future fails; one that may be is fine.
pub async fn minimum_revision_is_kept(store: Arc<dyn Store>) {
    let key = format!("{}a", fresh_prefix(&*store, "minimum").await);
    let revision = put_new(&*store, &key, "x").await;
    for at_least in [0, 1, revision] {
        assert!(store.get(&key, at_least).await.expect("a reading").entry.is_some());
    }
    let far = revision + 1000;
    let refused = store.get(&key, far).await;
    assert!(matches!(refused, Err(Error::FutureRevision { requested, .. }) if requested == far), "{refused:?}");
    let refused = store.list(&key, ListOptions { revision: Some(far), ..ListOptions::default() }).await;
    assert!(matches!(refused, Err(Error::FutureRevision { .. })), "{refused:?}");
    let refused = store.compact(far).await;
    assert!(matches!(refused, Err(Error::FutureRevision { .. })), "{refused:?}");
}

/// A prefix selects the keys that start with it, bytewise, and no others.
pub async fn prefixes_have_exact_bounds(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "prefixes").await;
    let names =
        ["a", "a/", "a/1", "a/2", "a/\u{10ffff}", "a0", "a-b", "ab", "b", "A/1", "\u{e9}/1", "\u{e9}/2", "\u{ea}"];
    let start = store.current_revision().await.expect("a revision");
    for name in names {
        put_new(&*store, &format!("{prefix}{name}"), name).await;
    }
    let last = store.current_revision().await.expect("a revision");
    for part in ["", "a", "a/", "a/1", "a/1/", "A", "b", "c", "\u{e9}", "\u{e9}/", "\u{10ffff}"] {
        let range = format!("{prefix}{part}");
        let mut expected: Vec<String> =
            names.iter().filter(|name| name.starts_with(part)).map(|name| format!("{prefix}{name}")).collect();
        let mut watch = store.watch(&range, start).await.expect("a watch");
        watch.progress_request().reach(last);
        let events = super::collect(&mut watch, last).await;
        assert!(events.iter().map(|event| &*event.key).eq(expected.iter()), "watch of `{range}`: {events:?}");
        expected.sort();
        let page = store.list(&range, ListOptions::default()).await.expect("a page");
        assert!(page.entries.iter().map(|entry| &*entry.key).eq(expected.iter()), "list of `{range}`: {page:?}");
        assert_eq!(page.remaining, 0);
    }
}

/// Pages of any size, put together, are the whole list; the remaining count is exact.
pub async fn paging_walks_all_keys_once(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "paging").await;
    for n in 0..23 {
        let key = format!("{prefix}{n:02}");
        let revision = put_new(&*store, &key, n.to_string()).await;
        match n % 5 {
            0 => _ = remove(&*store, &key, revision).await,
            1 => _ = put_over(&*store, &key, revision, "over").await,
            _ => {}
        }
    }
    put_new(&*store, &format!("{}~", prefix.trim_end_matches('/')), "a neighbor").await;
    let whole = store.list(&prefix, ListOptions::default()).await.expect("a page");
    assert_eq!((whole.entries.len(), whole.remaining), (18, 0));
    for limit in [1, 2, 5, 17, 18, 19, 1000] {
        let mut entries = Vec::new();
        loop {
            let after_key = entries.last().map(|entry: &crate::Entry| entry.key.to_string());
            let options =
                ListOptions { revision: Some(whole.revision), limit: Some(limit), after_key, bytes_max: None };
            let Page { revision, entries: page, remaining } = store.list(&prefix, options).await.expect("a page");
            assert_eq!(revision, whole.revision);
            assert_eq!(page.len(), limit.min(18 - entries.len()));
            entries.extend(page);
            assert_eq!(remaining, 18 - entries.len() as u64);
            if remaining == 0 {
                break;
            }
        }
        assert_eq!(entries, whole.entries, "in pages of {limit}");
    }
    // A key to start after need not exist, and need not be in the range.
    let after = async |key: String| {
        let options = ListOptions { after_key: Some(key), ..ListOptions::default() };
        store.list(&prefix, options).await.expect("a page").entries.len()
    };
    assert_eq!(after(format!("{prefix}10x")).await, 10);
    assert_eq!(after("/".to_owned()).await, 18);
    assert_eq!(after(format!("{prefix}~")).await, 0);
    assert_eq!(after("~".to_owned()).await, 0);
}
