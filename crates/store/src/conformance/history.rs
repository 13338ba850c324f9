//! Reads of the past, and its end.

use std::sync::Arc;

use super::{fresh_prefix, put_new, put_over, read, remove};
use crate::{Entry, Error, ListOptions, Revision, Store};

async fn list_at(store: &dyn Store, prefix: &str, revision: Revision) -> Result<Vec<Entry>, Error> {
    let options = ListOptions { revision: Some(revision), ..ListOptions::default() };
    let page = store.list(prefix, options).await?;
    assert_eq!(page.revision, revision);
    Ok(page.entries)
}

/// A list at a revision shows exactly the state of that revision.
pub async fn reads_at_a_revision_see_that_revision(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "past").await;
    let mut seen = vec![(store.current_revision().await.expect("a revision"), Vec::new())];
    for n in 0..40_u64 {
        let key = format!("{prefix}{}", n.wrapping_mul(7) % 5);
        match read(&*store, &key).await {
            None => _ = put_new(&*store, &key, n.to_string()).await,
            Some(entry) if n % 3 == 0 => _ = remove(&*store, &key, entry.revision).await,
            Some(entry) => _ = put_over(&*store, &key, entry.revision, n.to_string()).await,
        }
        let page = store.list(&prefix, ListOptions::default()).await.expect("a page");
        seen.push((page.revision, page.entries));
    }
    for (revision, entries) in seen {
        assert_eq!(list_at(&*store, &prefix, revision).await.expect("a page"), entries, "at {revision}");
    }
}

/// Paging at a revision is not disturbed by writers.
pub async fn paging_is_stable_while_writes_go_on(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "stable").await;
    for n in 0..60 {
        put_new(&*store, &format!("{prefix}{n:03}"), "old").await;
    }
    let whole = store.list(&prefix, ListOptions::default()).await.expect("a page");
    let writer = {
        let (store, prefix, old) = (store.clone(), prefix.clone(), whole.entries.clone());
        tokio::spawn(async move {
            for (n, entry) in old.iter().enumerate().rev() {
                put_new(&*store, &format!("{prefix}{n:03}-new"), "new").await;
                if n % 2 == 0 {
                    remove(&*store, &entry.key, entry.revision).await;
                } else {
                    put_over(&*store, &entry.key, entry.revision, "new").await;
                }
            }
        })
    };
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let after_key = entries.last().map(|entry| entry.key.to_string());
        let options = ListOptions { revision: Some(whole.revision), limit: Some(7), after_key, bytes_max: None };
        let page = store.list(&prefix, options).await.expect("a page");
        entries.extend(page.entries);
        assert_eq!(page.remaining, whole.entries.len() as u64 - entries.len() as u64);
        if page.remaining == 0 {
            break;
        }
    }
    writer.await.expect("the writer finishes");
    assert_eq!(entries, whole.entries);
    assert_eq!(list_at(&*store, &prefix, whole.revision).await.expect("a page"), whole.entries);
    assert_eq!(store.list(&prefix, ListOptions::default()).await.expect("a page").entries.len(), 90);
}

/// Reads before the compacted revision fail, reads after it are unaffected.
pub async fn compaction_makes_the_past_too_old(store: Arc<dyn Store>) {
    let prefix = fresh_prefix(&*store, "compaction").await;
    let [kept, changed, gone, back] = ["kept", "changed", "gone", "back"].map(|name| format!("{prefix}{name}"));
    let mut revisions = Vec::new();
    for key in [&kept, &changed, &gone, &back] {
        revisions.push(put_new(&*store, key, "1").await);
    }
    let changed_again = put_over(&*store, &changed, revisions[1], "2").await;
    remove(&*store, &gone, revisions[2]).await;
    let compacted = remove(&*store, &back, revisions[3]).await;
    let at_compacted = list_at(&*store, &prefix, compacted).await.expect("a page");
    put_new(&*store, &back, "3").await;
    let last = put_over(&*store, &changed, changed_again, "3").await;
    let at_last = list_at(&*store, &prefix, last).await.expect("a page");

    store.compact(compacted).await.expect("compaction succeeds");
    store.compact(compacted).await.expect("again is fine");
    store.compact(revisions[0]).await.expect("less is fine");

    for _ in 0..2 {
        for revision in [1, revisions[0], compacted - 1] {
            let listed = list_at(&*store, &prefix, revision).await;
            assert!(matches!(listed, Err(Error::Compacted { .. })), "at {revision}: {listed:?}");
            let mut outcome = store.watch(&prefix, revision).await.map(|_| ());
            if let Ok(mut watch) = store.watch(&prefix, revision).await {
                outcome = watch.next().await.map(|_| ());
            }
            let Err(Error::Compacted { requested, oldest }) = outcome else {
                panic!("watch after {revision}: {outcome:?}")
            };
            assert!(requested <= revision && oldest > revision, "{requested}, {oldest}");
        }
        assert_eq!(list_at(&*store, &prefix, compacted).await.expect("a page"), at_compacted);
        assert_eq!(list_at(&*store, &prefix, last).await.expect("a page"), at_last);
        for entry in &at_last {
            assert_eq!(read(&*store, &entry.key).await.as_ref(), Some(entry));
        }
        assert_eq!(read(&*store, &gone).await, None);
        let mut watch = store.watch(&prefix, compacted).await.expect("a watch");
        let events = super::collect(&mut watch, last).await;
        let seen: Vec<_> =
            events.iter().map(|event| (&*event.key, event.previous.as_ref().map(|it| it.revision))).collect();
        assert_eq!(seen, [(&*back, None), (&*changed, Some(changed_again))]);
        // Repeated after further writes, when compacted data may have been removed.
        for n in 0..20 {
            put_new(
                &*store,
                &format!(
                    "{}-after/{n}-{last}-{}",
                    prefix.trim_end_matches('/'),
                    store.current_revision().await.expect("a revision")
                ),
                "x",
            )
            .await;
        }
    }
}
