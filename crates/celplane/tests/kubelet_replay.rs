//! Scenarios recorded with Kubernetes' kubelet, replayed against the node agent with a runtime that plays containers.
//!
//! `data/kubelet/scenarios.jsonl` has manifests, steps, and what was observed: the last status of every pod, and the order
//! of phases and events. Where two recordings differ, both are right. Scenarios that fail are in `data/kubelet/known_gaps.txt`, a list that may only shrink.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cri::server::serve;
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::played_runtime::PlayedRuntime;

#[path = "kubelet_replay/case.rs"]
mod case;
#[path = "kubelet_replay/compare.rs"]
mod compare;
#[path = "kubelet_replay/watched.rs"]
mod watched;

use case::Case;
use watched::WatchState;

/// Time after which a scenario fails that has not reached the recorded state.
const LIMIT: Duration = Duration::from_secs(100);
const NODE: &str = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {"disk": "ssd"}},
    "status": {"capacity": {"cpu": "2", "pods": "200"}}}"#;

/// An agent, ended when dropped, with the mounts that it made.
struct Agent(Child);

impl Agent {
    fn start(cluster: &Cluster) -> Self {
        let directory = cluster.directory.path();
        let path = |name: &str| directory.join(name).display().to_string();
        std::fs::write(directory.join("node.json"), NODE).unwrap();
        std::fs::create_dir_all(directory.join("static")).unwrap();
        let program = env!("CARGO_BIN_EXE_celplane");
        // Mounts of an agent that may mount are in a namespace of their own.
        let mut command = match rustix::process::geteuid().is_root() {
            true => Command::new("unshare"),
            false => Command::new(program),
        };
        if rustix::process::geteuid().is_root() {
            command.args(["-m", program]);
        }
        let endpoint = format!("unix://{}", path("cri.sock"));
        let kubeconfig = cluster.kubeconfig().display().to_string();
        let child = command
            .args(["kubelet", "--hostname-override", "node-1", "--secure-port", "0", "--port", "0"])
            .args([
                "--eviction-hard",
                "",
                "--node-ip",
                "127.0.0.1",
                "--kubeconfig",
                &kubeconfig,
                "--root-dir",
                &path("kubelet"),
            ])
            .args(["--pod-logs-dir", &path("logs"), "--pod-manifest-path", &path("static")])
            .args(["--node-template", &path("node.json"), "--container-runtime-endpoint", &endpoint])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Common parts of all scenarios.
pub(crate) struct Stage {
    client: client::Client,
    watched: Arc<WatchState>,
    runtime: PlayedRuntime,
    directory: std::path::PathBuf,
    deadline: Instant,
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(ToOwned::to_owned).collect()
}

#[test]
fn scenarios_end_as_with_the_kubelet_of_kubernetes() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "0"]);
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let gaps = lines(include_str!("data/kubelet/known_gaps.txt"));
    let wanted = std::env::var("CELPLANE_REPLAY").unwrap_or_default();
    let cases: Vec<Value> = include_str!("data/kubelet/scenarios.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|case: &Value| case["id"].as_str().unwrap().contains(&wanted))
        .collect();
    let failures = tokio.block_on(replay(&cluster, &cases, &gaps));
    let failed: BTreeSet<String> = failures.iter().map(|(id, _)| id.clone()).collect();
    let fresh: Vec<&(String, String)> = failures.iter().filter(|(id, _)| !gaps.contains(id)).collect();
    let report: String = fresh.iter().map(|(id, why)| format!("{id}: {why}\n")).collect();
    assert!(fresh.is_empty(), "{} of {} scenarios differ:\n{report}", fresh.len(), cases.len());
    if wanted.is_empty() {
        let closed: Vec<&String> = gaps.difference(&failed).collect();
        assert!(closed.is_empty(), "these are no gaps any more, remove them from known_gaps.txt: {closed:?}");
    }
}

/// Most scenarios are replayed at the same time. Those whose pods have little time to start follow, and then those that
/// taint the node, which ends the pods of all others.
fn group_of(id: &str) -> usize {
    let is_short = ["deadline/", "sidecar/crashes-is-restarted"].iter().any(|it| id.starts_with(it));
    if id.starts_with("taint/") { 2 } else { usize::from(is_short) }
}

/// Replays scenarios; returns those that differ, with the differences.
async fn replay(cluster: &Cluster, cases: &[Value], gaps: &BTreeSet<String>) -> Vec<(String, String)> {
    let directory = cluster.directory.path().to_owned();
    let runtime = PlayedRuntime::default();
    let server = serve(&directory.join("cri.sock"), Arc::new(runtime.clone())).unwrap();
    tokio::spawn(server);
    std::fs::create_dir_all(directory.join("mnt/dir")).unwrap();
    std::fs::write(directory.join("mnt/file"), "hello").unwrap();
    let _agent = Agent::start(cluster);
    let client = client::Client::from_kubeconfig(&cluster.kubeconfig(), None, "replay").await.unwrap();
    let watched = WatchState::start(&client);
    let ready_by = Instant::now() + LIMIT;
    watched.until(ready_by, |it| it.node_is_ready).await;
    let mut failures = Vec::new();
    for group in [0, 1, 2] {
        let stage = Arc::new(Stage {
            client: client.clone(),
            watched: watched.clone(),
            runtime: runtime.clone(),
            directory: directory.clone(),
            deadline: Instant::now() + LIMIT,
        });
        let of_group = cases.iter().filter(|case| group_of(case["id"].as_str().unwrap()) == group);
        let running = of_group.map(|case| {
            let stage = stage.clone();
            let case = Case::new(case.clone(), gaps.contains(case["id"].as_str().unwrap()));
            tokio::spawn(async move {
                let differences = case.replay(&stage).await;
                (case.id.clone(), differences)
            })
        });
        for task in running.collect::<Vec<_>>() {
            let (id, differences) = task.await.unwrap();
            if !differences.is_empty() {
                failures.push((id, differences.join("\n    ")));
            }
        }
    }
    failures
}
