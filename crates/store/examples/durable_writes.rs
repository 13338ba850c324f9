//! How many durable writes per second does the embedded store take on this disk?
//!
//! `cargo run --release -p celplane-store --example durable_writes -- [DIRECTORY] [WRITERS] [WRITES] [VALUE_BYTES]`
#![allow(
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a measuring tool: it stops at the first error"
)]

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use celplane_store::{EmbeddedStore, ListOptions, Options, Outcome, Store, Write};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| arguments.get(at).map_or(default, |text| text.parse().expect("a number"));
    let parent = arguments.first().map_or_else(std::env::temp_dir, Into::into);
    let (writers, writes, size) = (number(1, 32), number(2, 50_000), number(3, 3072));
    let directory = tempfile::tempdir_in(parent).expect("a directory");
    report("fsync alone, 4 KiB", fsyncs(directory.path()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime");
    for (name, path) in [("redb", Some(directory.path().join("store"))), ("memory", None)] {
        let open = || match &path {
            Some(path) => EmbeddedStore::open(path, Options::default()),
            None => EmbeddedStore::in_memory(Options::default()),
        };
        let store = Arc::new(open().expect("a store"));
        println!("-- {name}: {writers} writers, {writes} writes of {size} bytes each");
        runtime.block_on(measure(&store, writers, writes, size));
        if let Some(path) = &path {
            let bytes = std::fs::metadata(path).expect("a file").len();
            println!("file: {:.1} MB", bytes as f64 / 1e6);
            drop(store);
            let started = Instant::now();
            let reopened = open().expect("the same store");
            println!("open: {:?}, {:?}", started.elapsed(), reopened.statistics());
        }
    }
}

async fn measure(store: &Arc<EmbeddedStore>, writers: usize, writes: usize, size: usize) {
    let phase = |name: &'static str, work: fn(Arc<EmbeddedStore>, String, Vec<u8>) -> BoxFuture| {
        let store = store.clone();
        async move {
            let started = Instant::now();
            let tasks: Vec<_> = (0..writers)
                .map(|writer| {
                    let store = store.clone();
                    tokio::spawn(async move {
                        let mut latencies = Vec::with_capacity(writes / writers);
                        for n in 0..writes / writers {
                            let key = format!("/registry/pods/namespace-{writer}/pod-{n:08}");
                            let mut value = vec![b'x'; size];
                            value[..key.len()].copy_from_slice(key.as_bytes());
                            let started = Instant::now();
                            work(store.clone(), key, value).await;
                            latencies.push(started.elapsed());
                        }
                        latencies
                    })
                })
                .collect();
            let mut latencies = Vec::new();
            for task in tasks {
                latencies.extend(task.await.expect("no panic"));
            }
            let rate = latencies.len() as f64 / started.elapsed().as_secs_f64();
            report(&format!("{name}: {rate:.0}/s"), latencies);
        }
    };
    phase("create", |store, key, value| {
        Box::pin(async move {
            let outcome = store.write(Write::create(key, value)).await.expect("written");
            assert!(matches!(outcome, Outcome::Done { .. }));
        })
    })
    .await;
    phase("get", |store, key, _| {
        Box::pin(async move {
            assert!(store.get(&key, 0).await.expect("read").entry.is_some());
        })
    })
    .await;
    phase("get and update", |store, key, value| {
        Box::pin(async move {
            let entry = store.get(&key, 0).await.expect("read").entry.expect("there");
            let outcome = store.write(Write::update(key, entry.revision, value)).await.expect("written");
            assert!(matches!(outcome, Outcome::Done { .. }));
        })
    })
    .await;
    let started = Instant::now();
    let page = store.list("/registry/pods/", ListOptions::default()).await.expect("listed");
    println!("list of {}: {:?}", page.entries.len(), started.elapsed());
    let started = Instant::now();
    store.compact(page.revision).await.expect("compacted");
    while store.statistics().superseded_bytes > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    println!("compact: {:?}", started.elapsed());
    let started = Instant::now();
    store.close().await.expect("closed");
    println!("close: {:?}", started.elapsed());
}

type BoxFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn fsyncs(directory: &std::path::Path) -> Vec<Duration> {
    let mut file = std::fs::File::create(directory.join("fsync")).expect("a file");
    (0..200)
        .map(|_| {
            file.write_all(&[0; 4096]).expect("written");
            let started = Instant::now();
            file.sync_data().expect("synced");
            started.elapsed()
        })
        .collect()
}

fn report(what: &str, mut latencies: Vec<Duration>) {
    latencies.sort();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
    println!("{what}, p50 {:?}, p99 {:?}", at(0.5), at(0.99));
}
