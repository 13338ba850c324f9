//! Random operations on an embedded store agree with a simple model, also across reopening and compaction.

use crate::disk;

use crate::model;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use disk::Disk;
use model::{Step, block_on, steps};
use proptest::prelude::*;
use store::{EmbeddedStore, Options, Retention, Store};

fn options(recent_bytes: usize) -> Options {
    Options {
        recent_bytes,
        cache_bytes: 256 << 10,
        retention: Retention::manual(),
        progress_interval: Duration::from_millis(20),
        ..Options::default()
    }
}

async fn run(steps: Vec<Step>, disk: Option<Disk>, recent_bytes: usize) {
    let current: Mutex<Option<Arc<EmbeddedStore>>> = Mutex::new(None);
    let reopen = async |old: Option<Arc<dyn Store>>| -> Arc<dyn Store> {
        let store = match (&disk, old) {
            (Some(disk), old) => {
                if let Some(old) = old {
                    old.close().await.unwrap();
                }
                EmbeddedStore::open_backend(disk.backend(), options(recent_bytes)).unwrap()
            }
            // Data in memory cannot be reopened.
            (None, Some(old)) => return old,
            (None, None) => EmbeddedStore::in_memory(options(recent_bytes)).unwrap(),
        };
        current.lock().unwrap().insert(Arc::new(store)).clone()
    };
    let check = |model: &model::Model| {
        let statistics = current.lock().unwrap().as_ref().unwrap().statistics();
        assert_eq!((statistics.revision, statistics.compacted), (model.revision(), model.compacted));
        assert_eq!(statistics.keys, model.keys());
    };
    model::run(steps, reopen, check).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn store_on_disk_agrees_with_model(steps in steps(), recent_bytes in prop_oneof![Just(0), Just(20_000), Just(1 << 20)]) {
        block_on(run(steps, Some(Disk::default()), recent_bytes));
    }

    #[test]
    fn store_in_memory_agrees_with_model(steps in steps()) {
        block_on(run(steps, None, 0));
    }
}
