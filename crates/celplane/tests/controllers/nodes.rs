//! The nodes as objects: registered as kubelets do it, alive by their leases, ready or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::Client;
use client::objects::{Deletion, Patch};
use serde_json::{Value, json};

use super::cluster::{NODE, to_value};
use super::kubelet::Kubelet;

/// Interval at which leases are renewed.
const RENEWAL: Duration = Duration::from_secs(2);

/// The nodes of a cluster.
#[derive(Clone)]
pub(crate) struct Nodes {
    client: Client,
    /// The nodes that live, by name.
    living: Arc<Mutex<BTreeMap<String, ()>>>,
}

impl Nodes {
    pub(crate) fn start(client: &Client) -> Self {
        let nodes = Self { client: client.clone(), living: Arc::default() };
        let this = nodes.clone();
        tokio::spawn(async move {
            let mut leases = BTreeMap::new();
            loop {
                let living: Vec<String> = this.living.lock().unwrap().keys().cloned().collect();
                for name in living {
                    let known = leases.remove(&name);
                    if let Ok(lease) = kubelet::heartbeat::renew(&this.client, known, &name, None, now()).await {
                        leases.insert(name, lease);
                    }
                }
                tokio::time::sleep(RENEWAL).await;
            }
        });
        nodes
    }

    /// Registers a node, which lives from then on.
    pub(crate) async fn add(&self, name: &str, how: &Value) {
        let ip = how["ip"].as_str().unwrap_or_default();
        let mut labels = how["labels"].as_object().cloned().unwrap_or_default();
        for (label, value) in
            [("kubernetes.io/arch", "amd64"), ("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux")]
        {
            labels.insert(label.to_owned(), value.into());
        }
        let cpu = how["cpu"].as_str().unwrap_or("4");
        let pods = how["pods"].as_str().unwrap_or("110");
        let resources = json!({"cpu": cpu, "ephemeral-storage": "100Gi", "memory": "32Gi", "pods": pods});
        let node = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": how["taints"]},
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": conditions(true),
                "addresses": [{"type": "InternalIP", "address": ip}, {"type": "Hostname", "address": name}],
                "nodeInfo": {
                    "machineID": "m", "systemUUID": "s", "bootID": "b", "kernelVersion": "6", "osImage": "sim",
                    "containerRuntimeVersion": "sim://1", "kubeletVersion": "v1.38.0-alpha.0", "kubeProxyVersion": "",
                    "operatingSystem": "linux", "architecture": "amd64",
                },
            },
        });
        self.living.lock().unwrap().insert(name.to_owned(), ());
        self.client.documents(NODE).create("", &to_value(&node)).await.unwrap();
    }

    async fn report(&self, name: &str, is_ready: bool) {
        let patch = to_value(&json!({"status": {"conditions": conditions(is_ready)}}));
        let nodes = self.client.documents(NODE);
        nodes.patch("", name, "status", Patch::StrategicMerge, &patch).await.unwrap();
    }

    /// Performs the action of a scenario on a node.
    pub(crate) async fn act(&self, kubelet: &Kubelet, step: &Value) -> Result<(), String> {
        let (verb, how) = step.as_object().unwrap().iter().next().unwrap();
        let name = how["name"].as_str().or(how.as_str()).unwrap_or_default();
        match verb.as_str() {
            "addNode" => {
                kubelet.set_address(name, how["ip"].as_str().unwrap_or_default());
                self.add(name, how).await;
            }
            "removeNode" => {
                self.living.lock().unwrap().remove(name);
                kubelet.set_stopped(name, true);
                self.client.documents(NODE).delete("", name, &Deletion::default()).await.unwrap();
            }
            "stopNode" => {
                self.living.lock().unwrap().remove(name);
                kubelet.set_stopped(name, true);
            }
            "startNode" => {
                self.living.lock().unwrap().insert(name.to_owned(), ());
                kubelet.set_stopped(name, false);
                self.report(name, true).await;
            }
            "ready" | "notReady" => self.report(name, verb == "ready").await,
            _ => return Err(format!("nodes cannot do {step} here yet")),
        }
        Ok(())
    }
}

fn now() -> api::time::Timestamp {
    clock::Clock::system().now()
}

/// The conditions as a kubelet reports them.
fn conditions(is_ready: bool) -> Value {
    let now = now().to_string();
    let rows = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        if is_ready {
            ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        } else {
            ("Ready", "False", "KubeletNotReady", "not ready")
        },
    ];
    let row = |(name, status, reason, message): (&str, &str, &str, &str)| {
        json!({"type": name, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now,
            "reason": reason, "message": message})
    };
    rows.map(row).to_vec().into()
}
