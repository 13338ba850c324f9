//! Behavior of a store in a file: locks, damage, full disks, reopening, and retention.

use crate::disk;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::Disk;
use store::{EmbeddedStore, Error, ListOptions, Options, Outcome, Retention, Revision, Statistics, Store, Write};

pub(crate) fn options() -> Options {
    Options { retention: Retention::manual(), progress_interval: Duration::from_millis(50), ..Options::default() }
}

pub(crate) async fn put(store: &EmbeddedStore, key: &str, value: impl Into<bytes::Bytes>) -> Revision {
    let current = store.get(key, 0).await.unwrap().entry;
    let write = match current {
        Some(entry) => Write::update(key, entry.revision, value),
        None => Write::create(key, value),
    };
    match store.write(write).await.unwrap() {
        Outcome::Done { revision } => revision,
        conflict => panic!("{conflict:?}"),
    }
}

/// Statistics without the part that depends on whether the store was just opened.
fn statistics(store: &EmbeddedStore) -> Statistics {
    Statistics { recent_bytes: 0, ..store.statistics() }
}

pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what} does not come about");
}

#[tokio::test]
async fn reopening_gives_the_same_revision_and_data() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    put(&store, "/a", "1").await;
    let middle = put(&store, "/b", "1").await;
    put(&store, "/a", "2").await;
    let entry = store.get("/b", 0).await.unwrap().entry.unwrap();
    assert!(matches!(store.write(Write::delete("/b", entry.revision)).await, Ok(Outcome::Done { .. })));
    let before = (statistics(&store), store.list("", ListOptions::default()).await.unwrap());
    store.close().await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.get("/a", 0).await, Err(Error::Closed)));
    assert!(matches!(store.write(Write::create("/c", "")).await, Err(Error::Closed)));
    assert!(matches!(store.watch("", 1).await, Err(Error::Closed)));

    let store = EmbeddedStore::open(&path, options()).unwrap();
    let after = (statistics(&store), store.list("", ListOptions::default()).await.unwrap());
    assert_eq!(before, after);
    let past = ListOptions { revision: Some(middle), ..ListOptions::default() };
    let past: Vec<_> = store.list("", past).await.unwrap().entries.into_iter().map(|it| it.value).collect();
    assert_eq!(past, ["1", "1"]);
    assert_eq!(put(&store, "/c", "x").await, before.1.revision + 1);
    let mut only_the_store: Vec<_> = directory.path().read_dir().unwrap().map(|it| it.unwrap().file_name()).collect();
    only_the_store.sort();
    assert_eq!(only_the_store, ["store", "store.ballast"]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "secrets are in it");
    }
}

#[tokio::test]
async fn closing_ends_watches_and_answers_pending_requests() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path().join("store"), options()).unwrap());
    let mut watch = store.watch("", 1).await.unwrap();
    let waiting = tokio::spawn(async move {
        loop {
            if let Err(error) = watch.next().await {
                return error;
            }
        }
    });
    let writes: Vec<_> = (0..20)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.write(Write::create(format!("/{n}"), "x")).await })
        })
        .collect();
    tokio::task::yield_now().await;
    store.close().await.unwrap();
    let mut done = 0;
    for write in writes {
        match write.await.unwrap() {
            Ok(Outcome::Done { .. }) => done += 1,
            Err(Error::Closed) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(waiting.await.unwrap(), Error::Closed));
    let store = EmbeddedStore::open(directory.path().join("store"), options()).unwrap();
    assert_eq!(store.statistics().keys, done);
}

#[tokio::test]
async fn a_file_in_use_is_locked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    let error = EmbeddedStore::open(&path, options()).err().unwrap();
    assert!(matches!(&error, Error::Locked { path: locked } if *locked == path), "{error:?}");
    assert_eq!(error.to_string(), format!("`{}` is in use by another process", path.display()));
    put(&store, "/a", "1").await;
    store.close().await.unwrap();
    assert_eq!(EmbeddedStore::open(&path, options()).unwrap().statistics().keys, 1);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_not_called_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    put(&store, "/a", "1").await;
    store.close().await.unwrap();
    let format = |number: u64| {
        let database = redb::Database::open(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        let mut meta = transaction.open_table(redb::TableDefinition::<&str, u64>::new("meta")).unwrap();
        meta.insert("format", number).unwrap();
        drop(meta);
        transaction.commit().unwrap();
    };
    format(2);
    for error in [
        EmbeddedStore::open(&path, options()).err(),
        EmbeddedStore::snapshot_of(&path).err(),
        EmbeddedStore::shrink(&path).err(),
        EmbeddedStore::check(&path, |_, _| None).err(),
    ] {
        assert!(matches!(error, Some(Error::Newer { format: 2, newest: 1 })), "{error:?}");
    }
    // A version that supports the format reads everything.
    format(1);
    assert_eq!(EmbeddedStore::open(&path, options()).unwrap().statistics().keys, 1);
}

#[tokio::test]
async fn foreign_file_is_reported_as_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    for content in [&b""[..], b"x", b"not a store at all", &[0; 100_000], &[0xff; 100_000]] {
        std::fs::write(&path, content).unwrap();
        let error = EmbeddedStore::open(&path, options()).err();
        assert!(matches!(error, Some(Error::Damaged(_))), "{} bytes: {error:?}", content.len());
    }
    let missing = EmbeddedStore::open(directory.path().join("missing/store"), options()).err();
    assert!(matches!(missing, Some(Error::Unavailable(_))), "{missing:?}");
}

/// Opens a possibly damaged store and reads all of it: every result is correct, or the damage is reported.
async fn read_damaged(path: &Path, expected: &[(String, String)], context: &str) -> bool {
    let store = match EmbeddedStore::open(path, options()) {
        Ok(store) => store,
        Err(Error::Damaged(_)) => return true,
        Err(error) => panic!("{context}: {error:?}"),
    };
    let outcome = store.list("", ListOptions::default()).await;
    let _ = store.close().await;
    match outcome {
        Ok(page) => {
            let found =
                page.entries.iter().map(|it| (it.key.to_string(), String::from_utf8_lossy(&it.value).into_owned()));
            assert!(found.eq(expected.iter().cloned()), "{context}: wrong data");
            false
        }
        Err(Error::Damaged(_) | Error::Unavailable(_)) => true,
        Err(error) => panic!("{context}: {error:?}"),
    }
}

#[tokio::test]
async fn damage_is_reported_and_never_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let expected: Vec<_> = (0..40).map(|n| (format!("/key/{n:02}"), format!("{n}").repeat(n * 20))).collect();
    let store = EmbeddedStore::open(&path, options()).unwrap();
    for (key, value) in &expected {
        put(&store, key, value.clone()).await;
    }
    store.close().await.unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert!(!read_damaged(&path, &expected, "undamaged").await);
    std::fs::write(&path, &whole).unwrap();

    // redb reports some damage by panicking, which the store contains; it need not be printed.
    store::quiet_contained_panics();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
    for n in 0..150 {
        let at = (n * 7919 * 31) % used;
        let mut damaged = whole.clone();
        for byte in &mut damaged[at..(at + 16).min(used)] {
            *byte = byte.wrapping_add(0x55);
        }
        std::fs::write(&path, &damaged).unwrap();
        read_damaged(&path, &expected, &format!("damaged at {at}")).await;
    }
    // In any location of a value, also in pages that are no longer in use.
    for (key, value) in expected.iter().skip(10) {
        let mut damaged = whole.clone();
        let copies: Vec<usize> = (0..used).filter(|at| whole[*at..].starts_with(value.as_bytes())).collect();
        assert!(!copies.is_empty());
        for at in copies {
            damaged[at + value.len() / 2] ^= 1;
        }
        std::fs::write(&path, &damaged).unwrap();
        assert!(read_damaged(&path, &expected, key).await, "the value of {key}");
    }
    for share in 1..20 {
        std::fs::write(&path, &whole[..whole.len() * share / 20]).unwrap();
        read_damaged(&path, &expected, &format!("cut to {share}/20")).await;
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = Disk::default();
    let store = EmbeddedStore::open_backend(disk.backend(), options()).unwrap();
    let mut watch = store.watch("/", 1).await.unwrap();
    put(&store, "/first", "x").await;
    disk.set_capacity(Some(disk.size() + (1 << 20)));
    let mut written = 1;
    let full = loop {
        match store.write(Write::create(format!("/big/{written:03}"), vec![b'x'; 200_000])).await {
            Ok(Outcome::Done { .. }) => written += 1,
            other => break other,
        }
    };
    assert!(matches!(full, Err(Error::Full { .. })), "{full:?}");
    assert!(written > 2, "{written}");
    assert!(matches!(store.write(Write::create("/more", "x")).await, Err(Error::Full { .. })), "for a while");
    // Existing data can still be read by all clients.
    let page = store.list("/", ListOptions::default()).await.unwrap();
    assert_eq!(page.entries.len(), written);
    assert_eq!(page.revision, 1 + written as u64);
    disk.set_capacity(None);
    eventually("a write", async || store.write(Write::create("/more", "x")).await.is_ok()).await;
    assert_eq!(store.current_revision().await.unwrap(), page.revision + 1);
    let mut seen = Vec::new();
    while seen.len() <= written {
        seen.extend(watch.next().await.unwrap().events.into_iter().map(|event| event.revision));
    }
    assert!(seen.into_iter().eq(2..=page.revision + 1), "the watch has not noticed");
    store.close().await.unwrap();
    assert_eq!(EmbeddedStore::open_backend(disk.backend(), options()).unwrap().statistics().keys, 1 + written as u64);
}

#[tokio::test]
async fn little_room_refuses_writes_but_not_deletes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    let revision = put(&store, "/a", "x").await;
    store.close().await.unwrap();
    let store = EmbeddedStore::open(&path, Options { free_bytes_min: u64::MAX, ..options() }).unwrap();
    assert!(matches!(store.write(Write::create("/b", "x")).await, Err(Error::Full { .. })));
    assert!(matches!(store.write(Write::update("/a", revision, "x")).await, Err(Error::Full { .. })));
    assert!(matches!(store.write(Write::delete("/a", revision)).await, Ok(Outcome::Done { .. })));
    store.compact(revision + 1).await.unwrap();
}

#[tokio::test]
async fn a_failed_sync_is_never_acknowledged() {
    let disk = Disk::default();
    let store = EmbeddedStore::open_backend(disk.backend(), options()).unwrap();
    let revision = put(&store, "/a", "1").await;
    let mut watch = store.watch("/", revision).await.unwrap();
    disk.fail_syncs();
    for _ in 0..3 {
        let failed = store.write(Write::update("/a", revision, "2")).await;
        assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    }
    // It did not become visible either.
    assert_eq!(store.get("/a", 0).await.unwrap().entry.unwrap().value, "1");
    assert_eq!(store.current_revision().await.unwrap(), revision);
    let quiet = tokio::time::timeout(Duration::from_millis(200), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    assert!(store.close().await.is_err());
}

#[tokio::test]
async fn expiry_survives_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    for (key, ttl) in [("/soon", 300), ("/late", 3_600_000)] {
        let write = Write::create(key, "x").expiring(Duration::from_millis(ttl));
        assert!(matches!(store.write(write).await, Ok(Outcome::Done { .. })));
    }
    store.close().await.unwrap();
    let store = EmbeddedStore::open(&path, options()).unwrap();
    let mut watch = store.watch("/", 3).await.unwrap();
    let events = loop {
        let batch = watch.next().await.unwrap();
        if !batch.events.is_empty() {
            break batch.events;
        }
    };
    assert!(matches!(&*events, [event] if &*event.key == "/soon" && event.value.is_none()), "{events:?}");
    assert_eq!(store.statistics().keys, 1);
}

#[tokio::test]
async fn retention_bounds_the_history() {
    let limits = [
        Retention { bytes_max: 100_000, ..Retention::manual() },
        Retention { revisions_max: 40, ..Retention::manual() },
        Retention { age_max: Some(Duration::from_millis(200)), ..Retention::manual() },
    ];
    let directory = tempfile::tempdir().unwrap();
    for (n, retention) in limits.into_iter().enumerate() {
        let options = Options { retention: retention.clone(), ..options() };
        for store in [
            EmbeddedStore::open(directory.path().join(n.to_string()), options.clone()).unwrap(),
            EmbeddedStore::in_memory(options).unwrap(),
        ] {
            let mut compacted = 0;
            for round in 0..120 {
                put(&store, &format!("/{}", round % 3), vec![b'x'; 2000]).await;
                let now = store.statistics();
                assert!(now.compacted >= compacted && now.compacted <= now.revision);
                compacted = now.compacted;
                if retention.age_max.is_none() {
                    assert!(now.superseded_bytes < 100_000 + 60 * 2500, "{now:?}");
                    assert!(now.revision - now.compacted < 120, "{now:?}");
                }
            }
            let last = store.current_revision().await.unwrap();
            if retention.age_max.is_some() {
                eventually("compaction", async || store.statistics().compacted == last).await;
            }
            let compacted = store.statistics().compacted;
            assert!(compacted > last - 100, "{compacted} of {last}");
            assert!(matches!(store.watch("", compacted - 1).await, Err(Error::Compacted { .. })));
            assert_eq!(store.list("", ListOptions::default()).await.unwrap().entries.len(), 3);
            // Old data is removed soon.
            eventually("cleaning up", async || {
                let now = store.statistics();
                retention.age_max.is_none() || now.superseded_bytes == 0
            })
            .await;
            store.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn compaction_makes_room_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..6 {
        for _ in 0..40 {
            put(&store, "/a", vec![b'x'; 50_000]).await;
        }
        let revision = store.current_revision().await.unwrap();
        store.compact(revision).await.unwrap();
        eventually("cleaning up", async || store.statistics().superseded_bytes == 0).await;
        sizes.push(path.metadata().unwrap().len());
    }
    assert!(sizes[5] <= sizes[2], "the file keeps growing: {sizes:?}");
}

#[tokio::test]
async fn a_watcher_that_stops_reading_costs_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { recent_bytes: 100_000, ..options() };
    let store = EmbeddedStore::open(directory.path().join("store"), options).unwrap();
    let mut stopped = store.watch("/", 1).await.unwrap();
    for n in 0..200 {
        put(&store, &format!("/{n:03}"), vec![b'x'; 5000]).await;
        assert!(store.statistics().recent_bytes <= 100_000);
    }
    let mut seen = Vec::new();
    while seen.len() < 200 {
        seen.extend(stopped.next().await.unwrap().events);
    }
    assert!(seen.iter().map(|event| event.revision).eq(2..=201));
    assert!(seen.iter().all(|event| { event.value.as_ref().is_some_and(|value| value.len() == 5000) }));

    let mut cut_off = store.watch("/", 100).await.unwrap();
    store.compact(150).await.unwrap();
    let error = cut_off.next().await.err().unwrap();
    assert!(matches!(error, Error::Compacted { requested: 100, oldest: 150 }), "{error:?}");
    assert_eq!(error.to_string(), "revision 100 is too old, history starts at 150");
}
