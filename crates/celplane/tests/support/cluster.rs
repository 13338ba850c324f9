//! A control plane of its own for a test: own process, port and directory; and `kubectl` to drive it.
#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A control plane, ended when dropped.
pub(crate) struct Cluster {
    process: Child,
    pub(crate) directory: tempfile::TempDir,
}

impl Cluster {
    /// `None`, and a word about it, without `kubectl`.
    pub(crate) fn start() -> Option<Self> {
        is_installed("kubectl", &["version", "--client"]).then(|| Self::start_in(tempfile::tempdir().unwrap()))
    }

    pub(crate) fn start_in(directory: tempfile::TempDir) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(["up", "--port", "0", "--data-dir"])
            .arg(directory.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("The API is served at https://127.0.0.1:"), "{line}");
        Self { process, directory }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("data/admin.kubeconfig")
    }

    /// `kubectl` as a user of this cluster would call it, in the cluster's directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.directory.path().join("cache"))
            .current_dir(self.directory.path())
            .args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// What `kubectl` prints; it must succeed.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {text}{errors}");
        text
    }

    /// What `kubectl` complains about; it must fail.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(!output.status.success(), "kubectl {arguments:?} should fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Ends the process as a user would, and keeps its data.
    pub(crate) fn stop(mut self) -> tempfile::TempDir {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let started = Instant::now();
        assert!(self.process.wait().unwrap().success());
        assert!(started.elapsed() < Duration::from_secs(6), "the end took {:?}", started.elapsed());
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a program is here; it must be if `CELPLANE_REQUIRE_TOOLS=1` is set.
pub(crate) fn is_installed(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success());
    if !found {
        assert_ne!(std::env::var("CELPLANE_REQUIRE_TOOLS").as_deref(), Ok("1"), "{program} is not installed");
        eprintln!("skipped: {program} is not installed");
    }
    found
}
