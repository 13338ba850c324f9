//! The embedded store, in a file and in memory, has every property that a store must have.

use std::sync::Arc;
use std::time::Duration;

use store::{EmbeddedStore, Options, Retention, Store, conformance};

/// Small buffers, so that slow paths are taken too.
fn options(recent_bytes: usize) -> Options {
    Options {
        recent_bytes,
        cache_bytes: 1 << 20,
        retention: Retention::manual(),
        progress_interval: Duration::from_millis(50),
        ..Options::default()
    }
}

async fn run_all(open: impl Fn() -> EmbeddedStore) {
    for (name, property) in conformance::ALL {
        println!("{name}");
        let store: Arc<dyn Store> = Arc::new(open());
        property(store.clone()).await;
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    // One file for all properties: each finds the data of the others.
    run_all(|| EmbeddedStore::open(directory.path().join("store"), options(4 << 20)).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_file_without_recent_events() {
    let directory = tempfile::tempdir().unwrap();
    run_all(|| EmbeddedStore::open(directory.path().join("store"), options(0)).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_memory() {
    run_all(|| EmbeddedStore::in_memory(options(0)).unwrap()).await;
}
