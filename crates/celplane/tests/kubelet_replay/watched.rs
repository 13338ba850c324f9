//! Pods and events of all namespaces as watches deliver them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::compare::masked_status;

/// The history of one pod.
#[derive(Default)]
pub(super) struct PodHistory {
    /// Distinct statuses, masked.
    pub(super) statuses: Vec<Value>,
    /// The newest object.
    pub(super) object: Value,
    pub(super) is_deleted: bool,
}

#[derive(Default)]
pub(super) struct ObservedState {
    /// By namespace and name.
    pub(super) pods: BTreeMap<(String, String), PodHistory>,
    /// By namespace, in the order of their creation.
    pub(super) events: BTreeMap<String, Vec<Value>>,
    pub(super) node_is_ready: bool,
}

/// The state of all watches.
#[derive(Default)]
pub(super) struct WatchState {
    seen: Mutex<ObservedState>,
    changed: Notify,
}

impl WatchState {
    pub(super) fn start(client: &client::Client) -> Arc<Self> {
        let this = Arc::new(Self::default());
        for resource in ["pods", "events", "nodes"] {
            let (this, client) = (this.clone(), client.clone());
            tokio::spawn(async move { this.follow(&client, resource).await });
        }
        this
    }

    async fn follow(&self, client: &client::Client, resource: &str) {
        let path = format!("/api/v1/{resource}?watch=true&timeoutSeconds=3600");
        let mut body = client.read_stream(&path, "application/json").await.unwrap();
        let mut pending = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                self.take(resource, &serde_json::from_slice(&line).unwrap());
            }
        }
    }

    fn take(&self, resource: &str, change: &Value) {
        let mut seen = self.seen.lock().unwrap();
        let object = &change["object"];
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        match resource {
            "pods" => {
                let history = seen.pods.entry((text("namespace"), text("name"))).or_default();
                let status = masked_status(object);
                if history.statuses.last() != Some(&status) {
                    history.statuses.push(status);
                }
                history.object = object.clone();
                history.is_deleted = change["type"] == "DELETED";
            }
            "events" if change["type"] != "DELETED" => {
                let events = seen.events.entry(text("namespace")).or_default();
                match events.iter_mut().find(|it| it["metadata"]["name"] == object["metadata"]["name"]) {
                    Some(known) => *known = object.clone(),
                    None => events.push(object.clone()),
                }
            }
            _ => {
                let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
                seen.node_is_ready |= conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
            }
        }
        drop(seen);
        self.changed.notify_waiters();
    }

    /// Reads the state.
    pub(super) fn read<T>(&self, read: impl FnOnce(&ObservedState) -> T) -> T {
        read(&self.seen.lock().unwrap())
    }

    /// Waits until a condition holds; whether it does by the deadline.
    pub(super) async fn until(&self, deadline: Instant, condition: impl Fn(&ObservedState) -> bool) -> bool {
        loop {
            let changed = self.changed.notified();
            if self.read(&condition) {
                return true;
            }
            if tokio::time::timeout_at(deadline, changed).await.is_err() {
                return false;
            }
        }
    }
}

impl ObservedState {
    /// Whether a pod is being deleted, or was.
    pub(super) fn is_deleting(&self, namespace: &str, pod: &str) -> bool {
        let history = self.pods.get(&(namespace.to_owned(), pod.to_owned()));
        history.is_none_or(|it| it.is_deleted || it.object["metadata"].get("deletionTimestamp").is_some())
    }

    /// Whether the agent has written a status of a pod.
    pub(super) fn is_admitted(&self, namespace: &str, pod: &str) -> bool {
        let history = self.pods.get(&(namespace.to_owned(), pod.to_owned()));
        history.is_some_and(|it| it.object["status"].get("startTime").is_some())
    }

    /// Whether the agent has observed the newest version of a pod, if there is such a pod.
    pub(super) fn is_acknowledged(&self, namespace: &str, pod: &str) -> bool {
        let history = self.pods.get(&(namespace.to_owned(), pod.to_owned()));
        history.is_none_or(|it| {
            let (wanted, seen) = (&it.object["metadata"]["generation"], &it.object["status"]["observedGeneration"]);
            it.is_deleted || wanted == seen
        })
    }

    /// Whether a condition of a recorded wait holds.
    pub(super) fn holds(&self, namespace: &str, pod: &str, condition: &str) -> bool {
        let (kind, rest) = condition.split_once(':').unwrap_or((condition, ""));
        let events = self.events.get(namespace).map(Vec::as_slice).unwrap_or_default();
        let history = self.pods.get(&(namespace.to_owned(), pod.to_owned()));
        let nothing = json!({});
        let status = history.map_or(&nothing, |it| &it.object["status"]);
        let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
        let containers: Vec<&Value> = lists.iter().filter_map(|it| status[it].as_array()).flatten().collect();
        let is_ready = status["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"));
        let in_state = |state: &str| containers.iter().any(|it| it["name"] == rest && it["state"].get(state).is_some());
        match kind {
            "gone" => history.is_some_and(|it| it.is_deleted),
            "event" => events.iter().any(|it| it["reason"] == rest),
            "eventmsg" => events.iter().any(|it| it["message"].as_str().unwrap().contains(rest)),
            "eventcount" => {
                let (reason, count) = rest.split_once(':').unwrap();
                let counts =
                    events.iter().filter(|it| it["reason"] == reason).map(|it| it["count"].as_i64().unwrap_or(1));
                counts.sum::<i64>() >= count.parse().unwrap()
            }
            "phase" => status["phase"] == rest,
            "ready" => is_ready,
            "notready" => history.is_some() && !is_ready,
            "waiting" => containers.iter().any(|it| it["state"]["waiting"]["reason"] == rest),
            "terminated" | "running" => in_state(kind),
            "restarts" => {
                let wanted: i64 = rest.parse().unwrap();
                containers.iter().any(|it| it["restartCount"].as_i64().unwrap_or(0) >= wanted)
            }
            other => panic!("unknown condition {other}"),
        }
    }
}
