//! The agent of real nodes with a runtime that plays containers over CRI: needs neither root nor containerd.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cri::server::serve;

use crate::cluster::Cluster;
use crate::played_runtime::PlayedRuntime;

/// A container that runs until it is stopped.
const RUNNING: &str = "command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1; done\"]";

/// An agent, ended when dropped.
pub(crate) struct Agent(Child);

impl Agent {
    pub(crate) fn start(cluster: &Cluster, socket: &std::path::Path) -> Self {
        let directory = cluster.directory.path();
        let path = |name: &str| directory.join(name).display().to_string();
        let child = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args([
                "kubelet",
                "--hostname-override",
                "real",
                "--secure-port",
                "0",
                "--port",
                "0",
                "--node-ip",
                "127.0.0.1",
                "--eviction-hard",
                "",
            ])
            .args([
                "--kubeconfig",
                &cluster.kubeconfig().display().to_string(),
                "--root-dir",
                &path("kubelet"),
                "--pod-logs-dir",
                &path("logs"),
            ])
            .args(["--container-runtime-endpoint", &format!("unix://{}", socket.display())])
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

fn pod(name: &str, container: &str, policy: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{automountServiceAccountToken: false, restartPolicy: {policy}, \
         terminationGracePeriodSeconds: 7, containers: [{container}]}}\n---\n"
    )
}

#[test]
fn agent_starts_adopts_and_ends_containers() {
    if Cluster::is_missing() {
        return;
    }
    let cluster = Cluster::up(tempfile::tempdir().unwrap(), &["--nodes", "0"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let socket = cluster.directory.path().join("cri.sock");
    let played = PlayedRuntime::default();
    let server = runtime.block_on(async { serve(&socket, Arc::new(played.clone())) }).unwrap();
    runtime.spawn(server);
    let agent = Agent::start(&cluster, &socket);
    let manifests = pod("runs", &format!("{{name: a, image: 'app:1', {RUNNING}}}"), "Always")
        + &pod("fails", "{name: b, image: 'app:1', command: [exit, '3']}", "Never")
        + &pod("crashes", "{name: c, image: 'app:1', command: [exit, '1']}", "Always")
        + &pod("pulls", "{name: d, image: 'missing:1'}", "Always")
        + &pod(
            "reads",
            "{name: e, image: 'app:1', env: [{name: A, valueFrom: {configMapKeyRef: {name: none, key: k}}}]}",
            "Always",
        );
    cluster.apply(&manifests);
    let wait = |pod: &str, condition: &str| {
        cluster.kubectl(&["wait", pod, &format!("--for=jsonpath={{{condition}"), "--timeout=60s"], "");
    };
    wait("pod/runs", ".status.phase}=Running");
    wait("pod/fails", ".status.phase}=Failed");
    let waiting = ".status.containerStatuses[0].state.waiting.reason}=";
    wait("pod/crashes", &format!("{waiting}CrashLoopBackOff"));
    wait("pod/pulls", &format!("{waiting}ErrImagePull"));
    wait("pod/reads", &format!("{waiting}CreateContainerConfigError"));
    let ended = cluster.kubectl(
        &["get", "pod", "fails", "-o", "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}"],
        "",
    );
    assert_eq!(ended, "3");
    // A restarted agent finds its containers and starts none again.
    drop(agent);
    let before = played.calls().iter().filter(|call| *call == "start a").count();
    let _agent = Agent::start(&cluster, &socket);
    cluster.apply(&pod("later", &format!("{{name: f, image: 'app:1', {RUNNING}}}"), "Always"));
    wait("pod/later", ".status.phase}=Running");
    assert_eq!(played.calls().iter().filter(|call| *call == "start a").count(), before);
    // A deletion stops containers within the grace period, and everything of the pod goes.
    cluster.kubectl(&["delete", "pod", "runs", "--wait"], "");
    assert!(played.calls().contains(&"stop after 7".to_owned()), "{:?}", played.calls());
}
