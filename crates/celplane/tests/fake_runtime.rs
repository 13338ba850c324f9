//! The agent of real nodes with a runtime that plays containers over CRI: needs neither root nor containerd.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use cri::server::serve;

use crate::cluster::Cluster;
use crate::played_runtime::PlayedRuntime;

/// A container that runs until it is stopped.
pub(crate) const RUNNING: &str = "command: [sh, -c, \"trap 'exit 0' TERM; while :; do sleep 1; done\"]";

/// An agent, ended when dropped.
pub(crate) struct Agent(Child);

impl Agent {
    pub(crate) fn start(cluster: &Cluster, socket: &std::path::Path) -> Self {
        Self::start_with(cluster, socket, &["--kubeconfig", &cluster.kubeconfig().display().to_string()])
    }

    /// Starts an agent with more flags.
    pub(crate) fn start_with(cluster: &Cluster, socket: &std::path::Path, more: &[&str]) -> Self {
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
            ])
            // The disks of developers are often nearly full.
            .args(if more.contains(&"--eviction-hard") { &[][..] } else { &["--eviction-hard", ""] })
            .args(["--root-dir", &path("kubelet"), "--pod-logs-dir", &path("logs")])
            .args(["--container-runtime-endpoint", &format!("unix://{}", socket.display())])
            .args(more)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Sends a signal, and waits for the end of the agent.
    pub(crate) fn end(mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
        self.0.wait().unwrap()
    }
}

/// A control plane, a runtime that is played at a socket, and the threads that play it.
pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) runtime: PlayedRuntime,
    pub(crate) socket: std::path::PathBuf,
    _threads: tokio::runtime::Runtime,
}

impl Stage {
    pub(crate) fn new(arguments: &[&str]) -> Option<Self> {
        if Cluster::is_missing() {
            return None;
        }
        let cluster = Cluster::up(tempfile::tempdir().unwrap(), &[&["--nodes", "0"], arguments].concat());
        let threads = tokio::runtime::Runtime::new().unwrap();
        let socket = cluster.directory.path().join("cri.sock");
        let runtime = PlayedRuntime::default();
        let server = threads.block_on(async { serve(&socket, Arc::new(runtime.clone())) }).unwrap();
        threads.spawn(server);
        Some(Self { cluster, runtime, socket, _threads: threads })
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::start(&self.cluster, &self.socket)
    }

    /// Waits for a condition of `kubectl wait`.
    #[track_caller]
    pub(crate) fn wait(&self, what: &str, condition: &str) {
        self.cluster.kubectl(&["wait", what, &format!("--for={condition}"), "--timeout=60s"], "");
    }

    /// A field of an object.
    #[track_caller]
    pub(crate) fn read(&self, what: &str, path: &str) -> String {
        self.cluster.kubectl(&["get", what, "-o", &format!("jsonpath={path}")], "")
    }

    /// Waits until the runtime was called like this.
    #[track_caller]
    pub(crate) fn wait_for_call(&self, call: &str) {
        for _ in 0..600 {
            if self.runtime.calls().iter().any(|it| it == call) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{call} was not called: {:?}", self.runtime.calls());
    }
}

impl Stage {
    /// Waits until nothing runs.
    #[track_caller]
    pub(crate) fn wait_until_idle(&self) {
        for _ in 0..600 {
            if self.runtime.running() == (0, 0) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("still running: {:?}", self.runtime.running());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn pod(name: &str, container: &str, policy: &str) -> String {
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
    let class =
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: guarded}\nhandler: special\n---\n".to_owned();
    let manifests = class
        + &pod("classed", &format!("{{name: g, image: 'app:1', {RUNNING}}}"), "Always")
            .replace("spec: {", "spec: {runtimeClassName: guarded, ")
        + &pod("runs", &format!("{{name: a, image: 'app:1', {RUNNING}}}"), "Always")
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
    // The sandbox of a pod with a runtime class is made by the handler of the class.
    wait("pod/classed", ".status.phase}=Running");
    assert!(played.calls().contains(&"handler special".to_owned()), "{:?}", played.calls());
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
