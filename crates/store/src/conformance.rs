//! Properties of every store, one function each.
//!
//! Each property works below its own prefix and needs a store without other writers; the store need not be
//! empty. A property that does not hold panics with the expectation. [`ALL`] lists them for a test that runs
//! all.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test suite: it says that a property does not hold by panicking"
)]

mod history;
mod linearizability;
mod reading;
mod watching;
mod writing;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use history::{
    compaction_makes_the_past_too_old, paging_is_stable_while_writes_go_on, reads_at_a_revision_see_that_revision,
};
pub use linearizability::{Operation, TimedOperation, concurrent_history_is_linearizable, find_violation};
pub use reading::{
    current_revision_never_falls, minimum_revision_is_kept, paging_walks_all_keys_once, prefixes_have_exact_bounds,
};
pub use watching::{
    progress_reaches_a_quiet_range, slow_watchers_see_no_gap, watch_resumes_exactly, watch_sees_every_change_in_order,
    watch_waits_for_the_future,
};
pub use writing::{
    big_values_come_back_whole, concurrent_writers_lose_no_update, expired_keys_go_away, guards_hold,
    modify_starts_over_on_conflict, oversized_requests_are_refused, revisions_rise_by_one,
};

use crate::{Batch, Entry, Event, Outcome, Revision, Store, Watch, Write};

/// A property as a value.
pub type Property = fn(Arc<dyn Store>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! properties {
    ($($name:ident),* $(,)?) => {
        /// All properties with their names.
        pub const ALL: &[(&str, Property)] = &[$((stringify!($name), |store| Box::pin($name(store)))),*];
    };
}

properties![
    revisions_rise_by_one,
    guards_hold,
    modify_starts_over_on_conflict,
    concurrent_writers_lose_no_update,
    big_values_come_back_whole,
    oversized_requests_are_refused,
    expired_keys_go_away,
    current_revision_never_falls,
    minimum_revision_is_kept,
    prefixes_have_exact_bounds,
    paging_walks_all_keys_once,
    reads_at_a_revision_see_that_revision,
    paging_is_stable_while_writes_go_on,
    compaction_makes_the_past_too_old,
    watch_sees_every_change_in_order,
    watch_resumes_exactly,
    watch_waits_for_the_future,
    progress_reaches_a_quiet_range,
    slow_watchers_see_no_gap,
    concurrent_history_is_linearizable,
];

/// Time limit for every expected event.
const PATIENCE: Duration = Duration::from_secs(20);

/// A prefix that only this call uses, so that a suite can run twice on one store.
async fn fresh_prefix(store: &dyn Store, name: &str) -> String {
    let revision = store.current_revision().await.expect("the store answers");
    let prefix = format!("/conformance/{name}-{revision}/");
    // Moves the revision on, so that no two calls get the same one.
    put_new(store, &format!("/conformance/started/{name}-{revision}"), "").await;
    prefix
}

async fn put_new(store: &dyn Store, key: &str, value: impl Into<Bytes>) -> Revision {
    done(store.write(Write::create(key, value)).await.expect("a create succeeds"))
}

async fn put_over(store: &dyn Store, key: &str, since: Revision, value: impl Into<Bytes>) -> Revision {
    done(store.write(Write::update(key, since, value)).await.expect("an update succeeds"))
}

async fn remove(store: &dyn Store, key: &str, since: Revision) -> Revision {
    done(store.write(Write::delete(key, since)).await.expect("a delete succeeds"))
}

#[track_caller]
fn done(outcome: Outcome) -> Revision {
    match outcome {
        Outcome::Done { revision } => revision,
        Outcome::Conflict { current } => {
            panic!("the guard holds, but the store reports a conflict with {current:?}")
        }
    }
}

async fn read(store: &dyn Store, key: &str) -> Option<Entry> {
    store.get(key, 0).await.expect("a get succeeds").entry
}

async fn next(watch: &mut Watch) -> Batch {
    let batch = tokio::time::timeout(PATIENCE, watch.next()).await.expect("the watch reports in time");
    batch.expect("the watch continues")
}

/// Reads events until `until` has been reported.
async fn collect(watch: &mut Watch, until: Revision) -> Vec<Event> {
    let mut events = Vec::new();
    let mut last = 0;
    while last < until {
        let batch = next(watch).await;
        assert!(batch.revision >= last, "progress falls from {last} to {}", batch.revision);
        last = batch.revision;
        events.extend(batch.events);
        if let Some(event) = events.last() {
            assert!(event.revision <= last, "event {} comes with progress {last}", event.revision);
            if event.revision >= until {
                break;
            }
        }
    }
    events
}
