//! One of several schedulers or controller managers, each with a separate user, so that the audit log
//! identifies it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::LIMIT;
use crate::cluster::Cluster;

/// Both kinds: the subcommand, which is also what its users are called after, and its lease.
pub(super) const KINDS: [(&str, &str); 2] =
    [("scheduler", "kube-scheduler"), ("controller-manager", "kube-controller-manager")];

const POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";

/// An API server with these users and an audit log.
pub(super) fn server() -> Cluster {
    let directory = tempfile::tempdir().unwrap();
    let users = KINDS.iter().flat_map(|(kind, _)| [1, 2].map(|number| format!("{kind}-{number}")));
    let tokens: String = users.map(|user| format!("{user},{user},{user},\"system:masters\"\n")).collect();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (tokens, policy) = (file("tokens", &tokens), file("policy", POLICY));
    let log = directory.path().join("audit.log").display().to_string();
    let audit = ["--audit-policy-file", &policy, "--audit-log-path", &log];
    Cluster::start_with(directory, &[&["--token-auth-file", &tokens][..], &audit].concat())
}

/// A kubeconfig for a user, at a port of this machine.
pub(super) fn kubeconfig(cluster: &Cluster, user: &str, port: &str) -> PathBuf {
    let own = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let authority = own.lines().find(|line| line.contains("certificate-authority-data")).unwrap().trim();
    let path = cluster.directory.path().join(format!("{user}.kubeconfig"));
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n    server: https://127.0.0.1:{port}\n    \
         {authority}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\nusers:\n- name: u\n  user: {{token: {user}}}\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// A process, ended when dropped.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn start(role: &[&str], kubeconfig: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
        command.args(role).args(["--secure-port", "0", "--kubeconfig"]).arg(kubeconfig);
        Process(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until it has ended, and returns the exit code.
    #[track_caller]
    pub(super) fn ends(&mut self) -> Option<i32> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(started.elapsed() < LIMIT, "it has not ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lease, once it has a holder.
pub(super) fn lease(cluster: &Cluster, name: &str) -> Option<Value> {
    let output = cluster.run(&["get", "lease", name, "-n", "kube-system", "-o", "json"], "");
    let lease: Value = output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())?;
    (!holder(&lease).is_empty()).then_some(lease)
}

pub(super) fn holder(lease: &Value) -> &str {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default()
}

/// Times of each user's changes, except leases and events, as written by the server.
pub(super) fn acts(cluster: &Cluster, user: &str) -> Vec<(String, String)> {
    let log = std::fs::read_to_string(cluster.directory.path().join("audit.log")).unwrap();
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let acts = events.filter(|event| {
        event["user"]["username"] == *user
            && !matches!(event["verb"].as_str(), Some("get" | "list" | "watch"))
            && !matches!(event["objectRef"]["resource"].as_str(), Some("leases" | "events"))
    });
    acts.map(|event| {
        // 500 is the code of a client that left before the response; 400 that of one that was cut off while it sent
        // the body. Such a request may be sent again, which the server rejects with 409 if it was carried out.
        let code = &event["responseStatus"]["code"];
        let answered = if *code == 500 || *code == 400 { "unanswered" } else { "answered" };
        let what = format!("{} {} {code} {answered}", event["verb"], event["requestURI"]);
        (event["requestReceivedTimestamp"].as_str().unwrap().to_owned(), what)
    })
    .collect()
}
