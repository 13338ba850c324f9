//! Events that the server itself writes, about its own configuration.
//!
//! An object has one event per reason in a while, however often the reason occurs.

use locks::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ::clock::Clock;
use api::json::Value;
use api::time::Timestamp;
use cache::EVENTS_PREFIX;
use cache::background::Tasks;
use store::{Change, Guard, Store, Write};
use telemetry::logs::chain;
use tokio::time::Instant;

use crate::random;

/// An object has no second event of a reason before this time has passed.
const QUIET: Duration = Duration::from_secs(600);
/// More objects are not remembered: the oldest are forgotten.
const OBJECTS_MAX: usize = 1_000;

/// An object that an event is about. It lies in no namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RegardingObject {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Writes events.
pub(crate) struct Recorder {
    store: Arc<dyn Store>,
    lifetime: Duration,
    clock: Clock,
    last: Mutex<HashMap<(RegardingObject, &'static str), Instant>>,
    tasks: Tasks,
}

impl Recorder {
    pub(crate) fn new(store: Arc<dyn Store>, lifetime: Duration, clock: Clock) -> Self {
        Self { store, lifetime, clock, last: Mutex::default(), tasks: Tasks::default() }
    }

    /// Writes a warning in the background, unless the object had one of this reason a moment ago.
    pub(crate) fn warn(&self, regarding: &RegardingObject, reason: &'static str, message: String) {
        if !self.is_due(regarding, reason) {
            return;
        }
        let name = format!("{}.{}", regarding.name, random::suffix());
        let mut event = event(regarding, reason, &name, message, self.clock.now_seconds());
        let Some(value) = cache::stored::encode(&mut event) else { return };
        let change = Change::Put { value, ttl: Some(self.lifetime) };
        let write = Write { key: format!("{EVENTS_PREFIX}default/{name}"), guard: Guard::Absent, change };
        let store = self.store.clone();
        self.tasks.spawn("events of the server", async move {
            if let Err(error) = store.write(write).await {
                tracing::warn!(err = %chain(&error), "Failed to write event");
            }
        });
    }

    fn is_due(&self, regarding: &RegardingObject, reason: &'static str) -> bool {
        let (key, now) = ((regarding.clone(), reason), self.clock.instant());
        let mut last = self.last.lock();
        if last.get(&key).is_some_and(|last| now.saturating_duration_since(*last) < QUIET) {
            return false;
        }
        if last.len() >= OBJECTS_MAX {
            last.retain(|_, last| now.saturating_duration_since(*last) < QUIET);
        }
        if last.len() >= OBJECTS_MAX {
            return false;
        }
        last.insert(key, now);
        true
    }
}

fn event(regarding: &RegardingObject, reason: &str, name: &str, message: String, now: Timestamp) -> Value {
    let now = now.to_string();
    let RegardingObject { api_version, kind, name: of, uid } = regarding;
    api::json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": (random::uid()), "creationTimestamp": (now.as_str())},
        "involvedObject": {
            "kind": (*kind), "name": (of.as_str()), "uid": (uid.as_str()), "apiVersion": (*api_version)
        },
        "reason": reason, "message": message, "source": {"component": "celplane-apiserver"},
        "firstTimestamp": (now.as_str()), "lastTimestamp": (now.as_str()), "count": 1_i64, "type": "Warning",
        "eventTime": null, "reportingComponent": "celplane-apiserver", "reportingInstance": ""
    })
}
