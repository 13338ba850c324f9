//! A control plane in a process of its own, and `kubectl` to talk to it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};

/// A control plane, ended when dropped.
pub(crate) struct Cluster {
    process: Child,
    directory: tempfile::TempDir,
}

impl Cluster {
    /// Starts one with these flags; none without `kubectl`, unless `CELPLANE_REQUIRE_TOOLS=1` is set.
    pub(crate) fn start(flags: &[&str]) -> Option<Self> {
        Self::start_in(tempfile::tempdir().unwrap(), flags)
    }

    /// Starts one on the data of another.
    pub(crate) fn start_in(directory: tempfile::TempDir, flags: &[&str]) -> Option<Self> {
        if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
            assert_ne!(std::env::var("CELPLANE_REQUIRE_TOOLS").as_deref(), Ok("1"), "kubectl is not installed");
            eprintln!("skipped: kubectl is not installed");
            return None;
        }
        let mut process = Command::new(env!("CARGO_BIN_EXE_celplane"))
            .args(["up", "--port", "0", "--data-dir"])
            .arg(directory.path().join("data"))
            .args(flags)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("The API is served at https://127.0.0.1:"), "{line}");
        Some(Self { process, directory })
    }

    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new("kubectl")
            .arg("--kubeconfig")
            .arg(self.directory.path().join("data/admin.kubeconfig"))
            .arg("--cache-dir")
            .arg(self.directory.path().join("cache"))
            .args(arguments)
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

    /// Applies manifests.
    #[track_caller]
    pub(crate) fn apply(&self, manifests: &str) {
        self.kubectl(&["apply", "-f", "-"], manifests);
    }

    /// Ends the process as a user would, and keeps its data.
    pub(crate) fn stop(mut self) -> tempfile::TempDir {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.process.wait().unwrap().success());
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
