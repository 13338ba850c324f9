//! Availability of aggregated API servers: asks them, and writes the condition `Available`.
//!
//! A server is asked when its APIService, service or endpoints change, every 30 seconds, and sooner after a failure. Every API
//! server on a store does the same. The documents of available servers are read as well.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::json::Value;
use api::time::Timestamp;
use cache::background::Tasks;
use cache::stored::ServedObject;
use store::{Outcome, Store, Write};
use telemetry::logs::chain;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::endpoint::{Endpoint, Unavailability};
use super::{Aggregator, RemoteVersion, available};
use crate::initial_objects;
use crate::resources::{self, Resource};
use crate::shutdown::ShutdownSignal;

/// Time between two checks of a server.
const INTERVAL: Duration = Duration::from_secs(30);
/// Time until the first repetition of a check that failed; it doubles with each failure.
const RETRY: Duration = Duration::from_secs(1);
/// Servers that are asked at the same time.
const CHECKS_MAX: usize = 16;
/// Times that a write is tried if another writer was faster.
const ATTEMPTS_MAX: usize = 5;

/// The condition of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    is_true: bool,
    reason: &'static str,
    message: String,
}

impl From<Unavailability> for Condition {
    fn from(Unavailability { reason, message }: Unavailability) -> Self {
        Self { is_true: false, reason, message }
    }
}

/// A server, as it was seen last.
struct KnownServer {
    remote: RemoteVersion,
    endpoint: Result<Endpoint, Unavailability>,
    due: Instant,
    failures: u32,
    /// The check that is under way.
    running: Option<u64>,
}

/// A check that is over.
struct CheckResult {
    name: String,
    number: u64,
    is_available: bool,
}

struct Checker {
    aggregator: Arc<Aggregator>,
    store: Arc<dyn Store>,
    known: HashMap<String, KnownServer>,
    running: JoinSet<CheckResult>,
    number: u64,
}

/// Checks all servers until the server stops.
pub(crate) fn keep(aggregator: &Arc<Aggregator>, store: Arc<dyn Store>, tasks: &Tasks, mut stopping: ShutdownSignal) {
    let mut changed = aggregator.services.subscribe();
    let subscribe = |row: &Resource<'_>| aggregator.cache.resource(&row.prefix()).subscribe();
    let (mut services, mut slices) = (subscribe(resources::SERVICES), subscribe(resources::ENDPOINT_SLICES));
    let (running, known) = (JoinSet::new(), HashMap::new());
    let mut checker = Checker { aggregator: aggregator.clone(), store, known, running, number: 0 };
    tasks.spawn("aggregated APIs", async move {
        loop {
            // Changes from here on wake the task again.
            changed.borrow_and_update();
            services.borrow_and_update();
            slices.borrow_and_update();
            let next = checker.pass().await;
            let has_remotes = !checker.known.is_empty();
            tokio::select! {
                alive = change(&mut changed) => if !alive { return },
                alive = change(&mut services), if has_remotes => if !alive { return },
                alive = change(&mut slices), if has_remotes => if !alive { return },
                Some(finished) = checker.running.join_next() => checker.finish(finished.ok()),
                () = tokio::time::sleep_until(next) => {}
                () = stopping.stopped() => return,
            }
        }
    });
}

/// Waits for a change; false if there will be none.
async fn change(receiver: &mut watch::Receiver<u64>) -> bool {
    receiver.changed().await.is_ok()
}

impl Checker {
    /// Starts the checks that are due and returns the time of the next one.
    async fn pass(&mut self) -> Instant {
        let snapshot = self.aggregator.snapshot();
        let now = Instant::now();
        let gone = |name: &String| snapshot.remotes().iter().all(|it| it.name != *name || it.uid.is_empty());
        for name in self.known.keys().filter(|name| gone(name)).cloned().collect::<Vec<_>>() {
            self.known.remove(&name);
            self.aggregator.set_documents(&name, None);
        }
        let mut next = now.checked_add(INTERVAL).unwrap_or(now);
        // An API of this process that no APIService stands for needs no check.
        for remote in snapshot.remotes().iter().filter(|it| !it.uid.is_empty()) {
            let endpoint = self.aggregator.endpoint(remote);
            let known = self.known.entry(remote.name.clone()).or_insert_with(|| KnownServer {
                remote: remote.clone(),
                endpoint: endpoint.clone(),
                due: now,
                failures: 0,
                running: None,
            });
            if !known.remote.has_same_server(remote) || known.endpoint != endpoint {
                // The result of a check that is under way is about another server.
                (known.due, known.failures, known.running) = (now, 0, None);
                known.endpoint = endpoint.clone();
            }
            known.remote = remote.clone();
            match endpoint {
                Err(unreachable) if known.due <= now => {
                    known.due = now.checked_add(INTERVAL).unwrap_or(now);
                    let written = write(&self.aggregator, &*self.store, remote, &unreachable.into()).await;
                    if let Err(error) = written {
                        warn!(apiService = remote.name, err = %chain(&error), "Could not write availability");
                        known.due = now.checked_add(RETRY).unwrap_or(now);
                    }
                    next = next.min(known.due);
                }
                Ok(endpoint) if known.running.is_none() => {
                    if known.due <= now && self.running.len() < CHECKS_MAX {
                        self.number = self.number.saturating_add(1);
                        known.running = Some(self.number);
                        let check = Check {
                            aggregator: self.aggregator.clone(),
                            store: self.store.clone(),
                            remote: remote.clone(),
                            endpoint,
                            number: self.number,
                        };
                        self.running.spawn(check.run());
                    } else if known.due > now {
                        next = next.min(known.due);
                    }
                }
                Err(_) => next = next.min(known.due),
                // Its end wakes the task.
                Ok(_) => {}
            }
        }
        next
    }

    fn finish(&mut self, finished: Option<CheckResult>) {
        let Some(CheckResult { name, number, is_available }) = finished else { return };
        let Some(known) = self.known.get_mut(&name).filter(|it| it.running == Some(number)) else { return };
        known.running = None;
        known.failures = if is_available { 0 } else { known.failures.saturating_add(1) };
        let pause = match is_available {
            true => INTERVAL,
            false => RETRY.saturating_mul(1 << known.failures.saturating_sub(1).min(5)).min(INTERVAL),
        };
        let now = Instant::now();
        known.due = now.checked_add(pause).unwrap_or(now);
    }
}

/// One check of one server.
struct Check {
    aggregator: Arc<Aggregator>,
    store: Arc<dyn Store>,
    remote: RemoteVersion,
    endpoint: Endpoint,
    number: u64,
}

impl Check {
    async fn run(self) -> CheckResult {
        let Self { aggregator, store, remote, endpoint, number } = self;
        let condition = condition(&aggregator, &remote, &endpoint).await;
        let is_available = condition.is_true;
        if let Err(error) = write(&aggregator, &*store, &remote, &condition).await {
            warn!(apiService = remote.name, err = %chain(&error), "Could not write availability");
        }
        if is_available {
            let documents = aggregator.read_documents(&remote, &endpoint).await;
            aggregator.set_documents(&remote.name, Some(documents));
        }
        CheckResult { name: remote.name, number, is_available }
    }
}

/// Asks a server for the document that every API server has.
async fn condition(aggregator: &Aggregator, remote: &RemoteVersion, endpoint: &Endpoint) -> Condition {
    let path = format!("/apis/{}/{}", remote.group, remote.version);
    let url = format!("https://{}{path}", endpoint.host);
    let failure = match aggregator.probe(endpoint, &path).await {
        Ok(code) if (200..300).contains(&code) => {
            return Condition { is_true: true, reason: "Passed", message: "all checks passed".to_owned() };
        }
        Ok(code) => format!("bad status from {url}: {code}"),
        Err(why) => format!("Get {}: {why}", api::go_text::quote(&url)),
    };
    let message = format!("failing or missing response from {url}: {failure}");
    Condition { is_true: false, reason: "FailedDiscoveryCheck", message }
}

/// Writes the condition of an APIService unless it has it, or is another one by now.
async fn write(
    aggregator: &Aggregator,
    store: &dyn Store,
    remote: &RemoteVersion,
    condition: &Condition,
) -> Result<(), store::Error> {
    let row = resources::API_SERVICES;
    let key = row.key("", &remote.name);
    for _ in 0..ATTEMPTS_MAX {
        let Some(entry) = store.get(&key, 0).await?.entry else { return Ok(()) };
        let Some(old) = ServedObject::new(&entry.value, entry.revision).map(|served| served.decode()) else {
            return Ok(());
        };
        if !RemoteVersion::new(&old).is_some_and(|it| it.has_same_server(remote)) {
            return Ok(());
        }
        let now = aggregator.clock.now_seconds();
        let Some(object) = with_condition(&old, condition, now) else { return Ok(()) };
        let Some(bytes) = initial_objects::changed_part(row, "status", &old, object, now) else { return Ok(()) };
        if let Outcome::Done { .. } = store.write(Write::update(key.as_str(), entry.revision, bytes)).await? {
            let was_available = available(&old).and_then(|it| it.str_at(&["status"])) == Some("True");
            if was_available && !condition.is_true {
                aggregator.count_unavailable(&remote.name, condition.reason);
            }
            let (name, reason, message) = (&remote.name, condition.reason, &condition.message);
            info!(apiService = name, available = condition.is_true, reason, message, "Changed APIService availability");
            return Ok(());
        }
        debug!(apiService = remote.name, "APIService changed meanwhile");
    }
    Ok(())
}

/// The object with a condition; none if it has it. The time changes with the status alone.
fn with_condition(old: &Value, condition: &Condition, now: Timestamp) -> Option<Value> {
    let status = if condition.is_true { "True" } else { "False" };
    let known = available(old);
    let text = |field: &str| known.and_then(|it| it.str_at(&[field])).unwrap_or_default();
    if (text("status"), text("reason"), text("message")) == (status, condition.reason, condition.message.as_str()) {
        return None;
    }
    let time = match text("status") == status {
        true => text("lastTransitionTime").to_owned(),
        false => now.to_string(),
    };
    let new = api::json!({
        "type": "Available", "status": status, "lastTransitionTime": time, "reason": (condition.reason),
        "message": (condition.message.as_str())
    });
    let mut object = old.clone();
    let conditions = old.list_at(&["status", "conditions"]);
    let mut conditions: Vec<Value> = conditions.to_vec();
    match conditions.iter_mut().find(|it| it.str_at(&["type"]) == Some("Available")) {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
    let fields = object.as_object_mut()?;
    let status = fields.get_or_insert("status", Value::object).as_object_mut()?;
    status.insert("conditions", conditions);
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp { seconds: 1_800_000_000, nanos: 0 };

    #[test]
    fn transition_time_changes_with_status_only() {
        let passed = Condition { is_true: true, reason: "Passed", message: "m".to_owned() };
        let first = with_condition(&api::json!({"spec": {}}), &passed, NOW).unwrap();
        assert_eq!(with_condition(&first, &passed, NOW), None);
        let mut old = first.clone();
        let condition = api::json!([{"type": "Available", "status": "True", "reason": "Passed", "message": "m",
            "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
        old.as_object_mut().unwrap().insert("status", api::json!({"conditions": condition}));
        let time = |object: &Value| available(object).unwrap().str_at(&["lastTransitionTime"]).unwrap().to_owned();
        let other = Condition { message: "n".to_owned(), ..passed.clone() };
        assert_eq!(time(&with_condition(&old, &other, NOW).unwrap()), "2020-01-01T00:00:00Z");
        let failed = Condition { is_true: false, ..passed };
        assert_ne!(time(&with_condition(&old, &failed, NOW).unwrap()), "2020-01-01T00:00:00Z");
    }
}
