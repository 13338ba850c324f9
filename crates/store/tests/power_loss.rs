//! The machine loses power at every single write and sync in turn: nothing acknowledged is lost, nothing seen is taken back.

use crate::disk;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::Disk;
use store::{EmbeddedStore, Error, ListOptions, Options, Outcome, Retention, Revision, Store, Write};

const WRITERS: usize = 4;
const ROUNDS: usize = 9;

fn options() -> Options {
    Options { retention: Retention::manual(), cache_bytes: 256 << 10, ..Options::default() }
}

/// State of a writer's key.
#[derive(Debug, Default)]
struct WriterState {
    /// After the last acknowledged write.
    acknowledged: Option<(String, Revision)>,
    /// The write in progress: its value.
    under_way: Option<Option<String>>,
}

/// Runs writers, a compactor and a watcher until the power fails. Returns their state and the highest revision
/// observed.
async fn work(store: Arc<EmbeddedStore>) -> (HashMap<String, WriterState>, Revision) {
    let seen = Arc::new(AtomicU64::new(0));
    let start = store.current_revision().await.unwrap_or(1);
    let watcher = store.watch("/", start).await.ok().map(|mut watch| {
        let seen = seen.clone();
        tokio::spawn(async move {
            while let Ok(batch) = watch.next().await {
                seen.fetch_max(batch.revision, Ordering::SeqCst);
            }
        })
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, seen) = (store.clone(), seen.clone());
            tokio::spawn(async move {
                let key = format!("/key/{writer}");
                let mut known = WriterState::default();
                for round in 0..ROUNDS {
                    let value = format!("{writer}-{round}-{}", "x".repeat(round * 300));
                    let delete = round % 5 == 4;
                    let write = match &known.acknowledged {
                        None => Write::create(&*key, value.clone()),
                        Some((_, revision)) if delete => Write::delete(&*key, *revision),
                        Some((_, revision)) => Write::update(&*key, *revision, value.clone()),
                    };
                    let left = (!delete || known.acknowledged.is_none()).then_some(value);
                    known.under_way = Some(left.clone());
                    match store.write(write).await {
                        Ok(Outcome::Done { revision }) => {
                            seen.fetch_max(revision, Ordering::SeqCst);
                            known.acknowledged = left.map(|value| (value, revision));
                            known.under_way = None;
                        }
                        Ok(outcome) => panic!("{outcome:?}"),
                        Err(Error::Unavailable(_)) => break,
                        Err(error) => panic!("{error:?}"),
                    }
                    if round == 7 && writer == 0 {
                        let revision = store.current_revision().await.unwrap();
                        let _ = store.compact(revision).await;
                    }
                }
                (key, known)
            })
        })
        .collect();
    let mut all = HashMap::new();
    for writer in writers {
        let (key, known) = writer.await.unwrap();
        all.insert(key, known);
    }
    let _ = store.close().await;
    if let Some(watcher) = watcher {
        watcher.await.unwrap();
    }
    (all, seen.load(Ordering::SeqCst))
}

async fn check(disk: &Disk, known: &HashMap<String, WriterState>, seen: Revision, context: &str) {
    let store =
        EmbeddedStore::open_backend(disk.backend(), options()).unwrap_or_else(|error| panic!("{context}: {error:?}"));
    let page = store.list("/key/", ListOptions::default()).await.unwrap();
    assert!(page.revision >= seen, "{context}: revision {} after {seen} was seen", page.revision);
    let found: BTreeMap<String, (String, Revision)> = page
        .entries
        .iter()
        .map(|it| (it.key.to_string(), (String::from_utf8(it.value.to_vec()).unwrap(), it.revision)))
        .collect();
    for (key, known) in known {
        let found = found.get(key);
        let as_acknowledged = found == known.acknowledged.as_ref();
        let as_under_way = known.under_way.as_ref().is_some_and(|left| left.as_ref() == found.map(|(value, _)| value));
        assert!(as_acknowledged || as_under_way, "{context}: `{key}` is {found:?}, but {known:?}");
    }
    // The store continues from there.
    let Outcome::Done { revision } = store.write(Write::create("/next", "x")).await.unwrap() else {
        panic!("{context}")
    };
    assert_eq!(revision, page.revision + 1);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_every_write_and_sync() {
    // How many operations there are at least, from a run without an accident.
    let disk = Disk::default();
    let store = EmbeddedStore::open_backend(disk.backend(), options()).unwrap();
    let opened = disk.operations();
    let (known, seen) = work(Arc::new(store)).await;
    check(&disk, &known, seen, "without an accident").await;
    assert!(known.values().all(|known| known.under_way.is_none()));
    let operations = disk.operations();
    assert!(operations > opened + 50, "{operations}");

    let mut interrupted = 0;
    for at in 0..operations {
        let disk = Disk::default();
        disk.lose_power_at(at);
        let (known, seen) = match EmbeddedStore::open_backend(disk.backend(), options()) {
            Ok(store) => work(Arc::new(store)).await,
            Err(_) => continue, // While the file was being made: nothing was acknowledged.
        };
        interrupted += usize::from(known.values().any(|known| known.under_way.is_some()));
        for seed in 0..2 {
            let context = format!("power lost at operation {at}, seed {seed}");
            check(&disk.after_power_loss(seed * 1000 + at), &known, seen, &context).await;
        }
    }
    assert!(interrupted > 20, "only {interrupted} runs were cut short");
}
