//! The console in a real browser, on a live cluster.

mod accessibility;
mod feed;
mod map;
mod pages;
mod screenshots;
mod sessions;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::browser::Browser;
use crate::cluster::Cluster;

/// `celplane console` for a kubeconfig; it ends when dropped.
pub(crate) struct ConsoleProcess {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl ConsoleProcess {
    pub(crate) fn start(kubeconfig: &Path, port: u16) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(["console", "--port", &port.to_string(), "--kubeconfig"])
            .arg(kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// The next URL that is printed.
    pub(crate) fn url(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "the console has ended");
            if let Some((_, url)) = line.trim().split_once(": http") {
                return format!("http{url}");
            }
        }
    }
}

impl Drop for ConsoleProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A cluster with pods that wait for different reasons.
pub(crate) const OBJECTS: &str = include_str!("data/console.yaml");

/// A cluster, a console and a browser with a session; none where a tool is missing.
pub(crate) fn ready() -> Option<(Cluster, ConsoleProcess, Browser)> {
    ready_with("4")
}

/// As [`ready`], with this many nodes.
pub(crate) fn ready_with(nodes: &str) -> Option<(Cluster, ConsoleProcess, Browser)> {
    if Cluster::is_missing() {
        return None;
    }
    let browser = Browser::start()?;
    let cluster =
        Cluster::up(tempfile::tempdir().unwrap(), &["--ephemeral", "--nodes", nodes, "--devices", "grid:2x4"]);
    cluster.wait_for_nodes();
    cluster.kubectl(&["taint", "node", "node-0", "gpu.example.com/generation=3:NoSchedule"], "");
    cluster.kubectl(&["taint", "node", "node-1", "gpu.example.com/generation=6:NoSchedule"], "");
    cluster.kubectl(&["label", "node", "node-0", "node-1", "topology.kubernetes.io/zone=east-1", "pool=gpu"], "");
    cluster.kubectl(&["label", "node", "node-2", "node-3", "topology.kubernetes.io/zone=west-2", "pool=general"], "");
    cluster.apply(OBJECTS);
    let mut served = ConsoleProcess::start(&cluster.kubeconfig(), 0);
    let url = served.url();
    browser.open(&url);
    browser.see("Why pending");
    Some((cluster, served, browser))
}
