//! Backups, checks, files that are made smaller, and full disks.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use store::backup::{self, Reader};
use store::{EmbeddedStore, Error, ListOptions, Options, Outcome, Retention, Shrinking, Store, Write};

use crate::disk::Disk;
use crate::embedded_file::{eventually, options, put};

/// A backup as one piece.
async fn backup(store: &EmbeddedStore) -> Vec<u8> {
    let snapshot = store.snapshot().await.unwrap();
    let mut bytes = Vec::new();
    backup::begin(snapshot.revision(), &mut bytes);
    let mut count = 0;
    for entry in snapshot {
        backup::add(&entry.unwrap(), &mut bytes);
        count += 1;
    }
    backup::end(count, &mut bytes);
    bytes
}

fn no_judge(_: &str, _: &bytes::Bytes) -> Option<String> {
    None
}

#[tokio::test]
async fn a_backup_of_a_store_in_use_is_restored_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(EmbeddedStore::open(directory.path().join("store"), options()).unwrap());
    for n in 0..50 {
        put(&store, &format!("/{n:02}"), vec![b'x'; n * 100]).await;
    }
    put(&store, "/07", "again").await;
    let gone = store.get("/08", 0).await.unwrap().entry.unwrap();
    assert!(matches!(store.write(Write::delete("/08", gone.revision)).await, Ok(Outcome::Done { .. })));
    let expiring = Write::create("/soon", "x").expiring(Duration::from_millis(500));
    assert!(matches!(store.write(expiring).await, Ok(Outcome::Done { .. })));
    let before = store.list("", ListOptions::default()).await.unwrap();

    let snapshot = store.snapshot().await.unwrap();
    // Later writes are not part of it.
    put(&store, "/later", "x").await;
    let mut bytes = Vec::new();
    backup::begin(snapshot.revision(), &mut bytes);
    let entries: Vec<_> = snapshot.map(Result::unwrap).collect();
    entries.iter().for_each(|entry| backup::add(entry, &mut bytes));
    backup::end(entries.len() as u64, &mut bytes);

    let path = directory.path().join("restored");
    let reader = || Reader::new(bytes.as_slice()).unwrap();
    assert_eq!(EmbeddedStore::restore(&path, reader(), 1000).unwrap(), 50);
    assert!(matches!(EmbeddedStore::restore(&path, reader(), 1000), Err(Error::Refused(_))), "it exists");
    assert_eq!(EmbeddedStore::check(&path, no_judge).unwrap().problems, Vec::<String>::new());
    let restored = EmbeddedStore::open(&path, options()).unwrap();
    let after = restored.list("", ListOptions::default()).await.unwrap();
    assert_eq!(after.entries, before.entries);
    assert_eq!(after.revision, before.revision + 1000);
    // No watch can resume from a revision before the restore.
    assert!(matches!(restored.watch("", before.revision).await, Err(Error::Compacted { .. })));
    eventually("expiry", async || restored.get("/soon", 0).await.unwrap().entry.is_none()).await;
    assert_eq!(put(&restored, "/new", "x").await, before.revision + 1002);
}

#[tokio::test]
async fn a_backup_that_is_cut_off_leaves_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path().join("store"), options()).unwrap();
    put(&store, "/a", "x").await;
    let bytes = backup(&store).await;
    let path = directory.path().join("restored");
    let cut = Reader::new(&bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(EmbeddedStore::restore(&path, cut, 0), Err(Error::Damaged(_))));
    assert!(!path.exists());
    let mut names: Vec<_> = directory.path().read_dir().unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["store", "store.ballast"]);
}

#[tokio::test]
async fn check_names_damaged_values() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    assert!(matches!(EmbeddedStore::check(&path, no_judge), Err(Error::Refused(_))), "it does not make one");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    for n in 0..20 {
        put(&store, &format!("/{n:02}"), format!("value {n:02} ").repeat(100)).await;
    }
    assert!(matches!(EmbeddedStore::check(&path, no_judge), Err(Error::Locked { .. })));
    store.close().await.unwrap();
    let report = EmbeddedStore::check(&path, |key, _| (key == "/03").then(|| "odd".to_owned())).unwrap();
    assert_eq!((report.keys, report.bytes, report.history_bytes), (20, 20 * 900, 0));
    assert_eq!(report.problems, ["`/03` at revision 5: odd"]);

    let whole = std::fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let value = "value 07 ".repeat(100);
    let copies: Vec<usize> = (0..whole.len()).filter(|at| whole[*at..].starts_with(value.as_bytes())).collect();
    assert!(!copies.is_empty());
    for at in copies {
        damaged[at + 450] ^= 1;
    }
    std::fs::write(&path, damaged).unwrap();
    store::quiet_contained_panics();
    let report = EmbeddedStore::check(&path, no_judge).unwrap();
    assert!(report.problems.iter().any(|it| it.starts_with("`/07` at revision 9: ")), "{:?}", report.problems);
}

fn shrinking() -> Options {
    let shrinking = Shrinking { file_bytes_min: 2 << 20, interval: Duration::from_millis(20) };
    Options { shrinking, retention: Retention::manual(), ..options() }
}

async fn fill(store: &Arc<EmbeddedStore>, count: usize) {
    let writes: Vec<_> = (0..count)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.write(Write::create(format!("/{n:04}"), vec![b'x'; 20_000])).await })
        })
        .collect();
    for write in writes {
        assert!(matches!(write.await.unwrap(), Ok(Outcome::Done { .. })));
    }
}

async fn delete_all_but(store: &EmbeddedStore, rest: usize) {
    for entry in store.list("", ListOptions::default()).await.unwrap().entries.into_iter().skip(rest) {
        assert!(matches!(store.write(Write::delete(&*entry.key, entry.revision)).await, Ok(Outcome::Done { .. })));
    }
}

fn length(path: &Path) -> u64 {
    path.metadata().unwrap().len()
}

#[tokio::test]
async fn the_file_shrinks_after_much_was_deleted_while_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Arc::new(EmbeddedStore::open(&path, shrinking()).unwrap());
    fill(&store, 800).await;
    let long = length(&path);
    assert!(long > 16_000_000, "{long}");
    delete_all_but(&store, 10).await;
    let kept = store.list("", ListOptions::default()).await.unwrap();
    store.compact(kept.revision - 5).await.unwrap();
    let mut watch = store.watch("/", kept.revision).await.unwrap();
    // Writes continue during the backup.
    let mut round = 0;
    while length(&path) > long / 4 {
        put(&store, "/busy", format!("{round}")).await;
        assert_eq!(store.list("/0", ListOptions::default()).await.unwrap().entries, kept.entries);
        round += 1;
        assert!(round < 20_000, "the file stays at {}", length(&path));
    }
    let last = put(&store, "/busy", "last").await;
    let mut seen = 0;
    while seen < last {
        let batch = watch.next().await.unwrap();
        seen = batch.events.last().map_or(seen, |event| event.revision);
    }
    let past = ListOptions { revision: Some(kept.revision), ..ListOptions::default() };
    assert_eq!(store.list("", past.clone()).await.unwrap().entries, kept.entries, "history is kept");
    let statistics = store.statistics();
    store.close().await.unwrap();
    assert_eq!(EmbeddedStore::check(&path, no_judge).unwrap().problems, Vec::<String>::new());
    let store = EmbeddedStore::open(&path, shrinking()).unwrap();
    assert_eq!(store.statistics().revision, statistics.revision);
    assert_eq!(store.statistics().keys, 11);
    assert_eq!(store.list("", past).await.unwrap().entries, kept.entries);
    let mut names: Vec<_> = directory.path().read_dir().unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["store", "store.ballast"]);
}

#[tokio::test]
async fn unused_file_is_shrunk_to_the_minimum() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = Arc::new(EmbeddedStore::open(&path, options()).unwrap());
    fill(&store, 400).await;
    delete_all_but(&store, 3).await;
    let kept = store.list("", ListOptions::default()).await.unwrap();
    store.close().await.unwrap();
    let (before, after) = EmbeddedStore::shrink(&path).unwrap();
    assert!(before > 8_000_000 && after < before / 4, "{before} to {after}");
    assert_eq!(after, length(&path));
    let store = EmbeddedStore::open(&path, options()).unwrap();
    assert_eq!(store.list("", ListOptions::default()).await.unwrap(), kept);
    assert_eq!(store.statistics().compacted, kept.revision);
}

#[tokio::test]
async fn a_start_on_a_full_disk_serves_reads() {
    for power_lost in [false, true] {
        let disk = Disk::default();
        let store = EmbeddedStore::open_backend(disk.backend(), options()).unwrap();
        for n in 0..30 {
            put(&store, &format!("/{n:02}"), vec![b'x'; 3000]).await;
        }
        let expected = store.list("", ListOptions::default()).await.unwrap();
        let disk = if power_lost { disk.after_power_loss(7) } else { disk };
        if !power_lost {
            store.close().await.unwrap();
        }
        disk.set_capacity(Some(0));
        let store = EmbeddedStore::open_backend(disk.backend(), options()).unwrap();
        assert_eq!(store.list("", ListOptions::default()).await.unwrap(), expected, "power lost: {power_lost}");
        let refused = store.write(Write::create("/more", vec![b'x'; 3000])).await;
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        assert!(matches!(store.check_writable().await, Err(Error::Full { .. })));
        disk.set_capacity(None);
        eventually("a write", async || store.write(Write::create("/more", "x")).await.is_ok()).await;
        store.check_writable().await.unwrap();
        store.close().await.unwrap();
        assert_eq!(EmbeddedStore::open_backend(disk.backend(), options()).unwrap().statistics().keys, 31);
    }
}

#[tokio::test]
async fn little_room_is_said_with_the_reserve_and_a_guard_that_fails_is_a_conflict_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let store = EmbeddedStore::open(&path, options()).unwrap();
    put(&store, "/a", "x").await;
    store.check_writable().await.unwrap();
    store.close().await.unwrap();
    let store = EmbeddedStore::open(&path, Options { free_bytes_min: 1 << 60, ..options() }).unwrap();
    let full = store.check_writable().await.unwrap_err();
    let text = full.to_string();
    assert!(text.ends_with(" MiB are free, and the last 1099511627776 MiB are kept in reserve"), "{text}");
    // Every start tries to create existing objects.
    let outcome = store.write(Write::create("/a", "y")).await;
    assert!(matches!(outcome, Ok(Outcome::Conflict { current: Some(_) })), "{outcome:?}");
    assert!(matches!(store.write(Write::create("/b", "y")).await, Err(Error::Full { .. })));
}
