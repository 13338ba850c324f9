//! Simulated nodes, as the recordings had them: pods become ready one after another, end by annotation, and take their
//! time to go. All times but those of annotations are a quarter of the recorded ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::Client;
use client::informer::{Change, Informer, Key};
use client::objects::{Deletion, Patch, Selection};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cluster::{PODS, from_value, to_value};

const START: Duration = Duration::from_millis(100);
const APART: Duration = Duration::from_millis(90);
const FLIP: Duration = Duration::from_millis(75);
const TERMINATE: Duration = Duration::from_millis(125);

/// The agent of all nodes.
#[derive(Clone)]
pub(crate) struct Kubelet {
    client: Client,
    nodes: usize,
    /// The pods of each namespace in the order of their creation.
    order: Arc<Mutex<HashMap<String, Vec<String>>>>,
    /// Nodes whose agent has stopped.
    stopped: Arc<Mutex<Vec<String>>>,
    /// The addresses of nodes that were added.
    addresses: Arc<Mutex<HashMap<String, String>>>,
}

/// State of one pod's life.
#[derive(Default)]
struct Life {
    starts: bool,
    ends: bool,
    goes: bool,
    exit_now: bool,
    ready: Option<String>,
}

impl Kubelet {
    pub(crate) fn start(client: &Client, nodes: usize) -> Self {
        let kubelet = Self {
            client: client.clone(),
            nodes,
            order: Arc::default(),
            stopped: Arc::default(),
            addresses: Arc::default(),
        };
        let pods = Informer::of_documents(client, PODS, Selection::default());
        let mut changes = pods.changes();
        let this = kubelet.clone();
        tokio::spawn(async move {
            let _keep = pods;
            let mut lives: HashMap<String, Life> = HashMap::new();
            let mut starters: HashMap<String, mpsc::UnboundedSender<(Key, Value, Instant)>> = HashMap::new();
            loop {
                let (key, change) = changes.next().await;
                let pod = from_value(change.newest());
                let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
                if matches!(change, Change::Deleted(_)) {
                    lives.remove(&uid);
                    continue;
                }
                {
                    // A pod may replace one of the same name whose end was not observed.
                    let mut order = this.order.lock().unwrap();
                    let order = order.entry(key.namespace.to_string()).or_default();
                    if !order.contains(&uid) {
                        order.push(uid.clone());
                    }
                }
                this.follow(&key, &pod, lives.entry(uid).or_default(), &mut starters);
            }
        });
        kubelet
    }

    /// The address of a pod: its number in its namespace.
    fn address(&self, namespace: &str, uid: &str) -> String {
        let order = self.order.lock().unwrap();
        let number = order.get(namespace).and_then(|uids| uids.iter().position(|it| it == uid)).unwrap_or(0) + 1;
        format!("10.0.{}.{}", number / 250, number % 250)
    }

    fn follow(
        &self,
        key: &Key,
        pod: &Value,
        life: &mut Life,
        starters: &mut HashMap<String, mpsc::UnboundedSender<(Key, Value, Instant)>>,
    ) {
        let annotation = |name: &str| pod["metadata"]["annotations"][name].as_str().map(ToOwned::to_owned);
        let Some(node) = pod["spec"]["nodeName"].as_str() else {
            if pod["metadata"]["deletionTimestamp"].is_string() && !life.goes {
                life.goes = true;
                self.remove(key, pod, Duration::ZERO);
            }
            return;
        };
        if self.stopped.lock().unwrap().iter().any(|it| it == node) {
            return;
        }
        if pod["metadata"]["deletionTimestamp"].is_string() {
            if !life.goes {
                life.goes = true;
                match annotation("sim/terminate-seconds").as_deref() {
                    Some("never") => {}
                    Some(seconds) => self.remove(key, pod, Duration::from_secs_f64(seconds.parse().unwrap())),
                    None => self.remove(key, pod, TERMINATE),
                }
            }
            return;
        }
        if !life.starts && annotation("sim/phase").as_deref() != Some("Pending") {
            life.starts = true;
            let this = self.clone();
            let starter = starters.entry(key.namespace.to_string()).or_insert_with(|| this.starter());
            let _ = starter.send((key.clone(), pod.clone(), Instant::now()));
            life.ready = annotation("sim/ready");
        }
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        if phase != "Running" {
            return;
        }
        if !life.ends
            && let Some(seconds) = annotation("sim/run-seconds")
        {
            life.ends = true;
            let mut code = annotation("sim/exit-code").map_or(0, |code| code.parse().unwrap());
            let index = annotation("batch.kubernetes.io/job-completion-index");
            if let (Some(failing), Some(index)) = (annotation("sim/fail-indexes"), index)
                && failing.split(',').any(|it| it == index)
            {
                code = annotation("sim/fail-code").map_or(1, |code| code.parse().unwrap());
            }
            // A controller that batches changes for a second has all of them before the next one.
            self.end(key, pod, Duration::from_secs_f64(seconds.parse().unwrap()) + 2 * START, code);
        }
        if !life.exit_now
            && let Some(code) = annotation("sim/exit-now")
        {
            life.exit_now = true;
            self.end(key, pod, FLIP, code.parse().unwrap());
        }
        let ready = annotation("sim/ready");
        if ready != life.ready {
            life.ready = ready.clone();
            let is_ready = ready.as_deref() != Some("false");
            let (this, key, pod) = (self.clone(), key.clone(), pod.clone());
            tokio::spawn(async move {
                tokio::time::sleep(FLIP).await;
                this.patch(&key, &this.running(&key, &pod, is_ready)).await;
            });
        }
    }

    /// Starts the pods of a namespace one after another.
    fn starter(&self) -> mpsc::UnboundedSender<(Key, Value, Instant)> {
        let (sender, mut receiver) = mpsc::unbounded_channel::<(Key, Value, Instant)>();
        let this = self.clone();
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            while let Some((key, pod, since)) = receiver.recv().await {
                let after_last = last.map_or(since, |last| last + APART);
                tokio::time::sleep_until(after_last.max(since + START)).await;
                last = Some(Instant::now());
                let is_ready = pod["metadata"]["annotations"]["sim/ready"] != "false";
                let status = this.running(&key, &pod, is_ready);
                this.patch(&key, &status).await;
            }
        });
        sender
    }

    fn running(&self, key: &Key, pod: &Value, is_ready: bool) -> Value {
        let uid = pod["metadata"]["uid"].as_str().unwrap();
        let ip = self.address(&key.namespace, uid);
        let node = pod["spec"]["nodeName"].as_str().unwrap();
        let number: usize = node.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(self.nodes);
        let known = self.addresses.lock().unwrap().get(node).cloned();
        let host = known.unwrap_or_else(|| format!("192.168.0.{}", number + 1));
        let started = pod["status"]["startTime"].as_str().map_or_else(now, ToOwned::to_owned);
        let containers: Vec<Value> = pod["spec"]["containers"]
            .as_array()
            .unwrap()
            .iter()
            .map(|container| {
                json!({"name": container["name"], "state": {"running": {"startedAt": started}}, "lastState": {},
                "ready": is_ready, "restartCount": 0, "image": container["image"], "imageID": "sim",
                "containerID": format!("sim://{uid}"), "started": is_ready})
            })
            .collect();
        let mut status = json!({"phase": "Running", "hostIP": host, "hostIPs": [{"ip": host}], "podIP": ip,
            "podIPs": [{"ip": ip}], "startTime": started, "containerStatuses": containers});
        status["conditions"] = conditions(if is_ready { "" } else { "ContainersNotReady" });
        status["observedGeneration"] = 1.into();
        status
    }

    /// Ends a pod after some time.
    fn end(&self, key: &Key, pod: &Value, after: Duration, code: i64) {
        let (this, key, pod) = (self.clone(), key.clone(), pod.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            this.patch(&key, &ended(&pod, code)).await;
        });
    }

    /// Removes a pod after some time; pods of jobs first report their end.
    fn remove(&self, key: &Key, pod: &Value, after: Duration) {
        let (this, key, pod) = (self.clone(), key.clone(), pod.clone());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            let of_job = pod["metadata"]["ownerReferences"][0]["kind"] == "Job";
            let phase = pod["status"]["phase"].as_str().unwrap_or_default();
            if of_job && pod["spec"]["nodeName"].is_string() && phase != "Succeeded" && phase != "Failed" {
                this.patch(&key, &ended(&pod, 143)).await;
                tokio::time::sleep(TERMINATE).await;
            }
            let uid = pod["metadata"]["uid"].as_str().map(Into::into);
            let how = Deletion { grace_period_seconds: Some(0), uid, ..Deletion::default() };
            // It may be deleted by now.
            let _ = this.client.documents(PODS).delete(&key.namespace, &key.name, &how).await;
        });
    }

    async fn patch(&self, key: &Key, status: &Value) {
        let patch = to_value(&json!({"status": status}));
        // The pod may be deleted by now.
        let pods = self.client.documents(PODS);
        let _ = pods.patch(&key.namespace, &key.name, "status", Patch::StrategicMerge, &patch).await;
    }

    /// Notes the address of a node.
    pub(crate) fn set_address(&self, node: &str, address: &str) {
        self.addresses.lock().unwrap().insert(node.to_owned(), address.to_owned());
    }

    /// Stops or starts the agent of a node.
    pub(crate) fn set_stopped(&self, node: &str, stopped: bool) {
        let mut nodes = self.stopped.lock().unwrap();
        nodes.retain(|it| it != node);
        if stopped {
            nodes.push(node.to_owned());
        }
    }
}

/// The conditions of a pod on a node; `unready` is the reason why it is not ready.
fn conditions(unready: &str) -> Value {
    let now = now();
    let condition = |kind: &str, serves: bool| {
        let condition = json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
        if serves || unready.is_empty() {
            return condition;
        }
        json!({"type": kind, "status": "False", "lastProbeTime": null, "lastTransitionTime": now, "reason": unready})
    };
    json!([
        condition("PodReadyToStartContainers", true),
        condition("Initialized", true),
        condition("Ready", false),
        condition("ContainersReady", false),
    ])
}

/// The status of a pod whose containers have exited.
fn ended(pod: &Value, code: i64) -> Value {
    let (phase, reason, unready) =
        if code == 0 { ("Succeeded", "Completed", "PodCompleted") } else { ("Failed", "Error", "PodFailed") };
    let (now, uid) = (now(), pod["metadata"]["uid"].as_str().unwrap());
    let container = |container: &Value| {
        let end = json!({"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now,
            "containerID": format!("sim://{uid}")});
        json!({"name": container["name"], "ready": false, "started": false, "restartCount": 0,
            "image": container["image"], "imageID": "sim", "containerID": format!("sim://{uid}"), "lastState": {},
            "state": {"running": null, "terminated": end}})
    };
    let containers: Vec<Value> = pod["spec"]["containers"].as_array().unwrap().iter().map(container).collect();
    json!({"phase": phase, "containerStatuses": containers, "conditions": conditions(unready)})
}

fn now() -> String {
    clock::Clock::system().now().to_string()
}
