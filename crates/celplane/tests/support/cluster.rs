//! A control plane in its own process, and `kubectl` for it.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The proposals' gates.
const GATES: &str = "TaintTolerationCEL=true,TaintTolerationNodeAffinityCEL=true,DRACELDeviceConstraint=true,\
                     TaintTolerationNodeAffinitySemverComparisonOperators=true,CRDAdditionalPrinterColumnCEL=true";

/// The program: that of this build, unless `CELPLANE_BIN` names another one.
pub fn program() -> String {
    std::env::var("CELPLANE_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_celplane").to_owned())
}

/// A port that no process listens on.
pub fn free_port() -> u16 {
    // Below the ports of outgoing connections: while its server is down, no connection takes the port, not even one to itself.
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    (0..12_000_u64)
        .map(|n| 20_000 + u16::try_from(seed.wrapping_add(n) % 12_000).unwrap())
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// A control plane, ended when dropped.
pub struct Cluster {
    pub process: Child,
    pub directory: tempfile::TempDir,
}

impl Cluster {
    /// Prints that a test is skipped because `kubectl` is not installed, or fails if it is required.
    pub fn is_missing() -> bool {
        !is_installed("kubectl", &["version", "--client"])
    }

    pub fn start() -> Option<Self> {
        if Self::is_missing() { None } else { Some(Self::start_in(tempfile::tempdir().unwrap())) }
    }

    pub fn start_in(directory: tempfile::TempDir) -> Self {
        Self::start_with(directory, &[])
    }

    /// The API server alone, with the proposals' features on, and more arguments. Nothing creates service accounts.
    pub fn start_with(directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        let gates: &[&str] = if arguments.contains(&"--feature-gates") { &[] } else { &["--feature-gates", GATES] };
        let alone = ["apiserver", "--disable-admission-plugins", "ServiceAccount"];
        Self::start_role(directory, &[&alone, gates, arguments].concat())
    }

    /// The whole control plane with simulated nodes.
    pub fn up(directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        Self::start_role(directory, &[&["up"], arguments].concat())
    }

    /// Stops the whole control plane, by a kill if requested, and restarts it on its data.
    pub fn restart(mut self, kill: bool) -> Self {
        if kill {
            self.process.kill().unwrap();
        } else {
            let id = rustix::process::Pid::from_child(&self.process);
            rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        }
        self.process.wait().unwrap();
        let directory = std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap());
        Self::up(directory, &[])
    }

    fn start_role(directory: tempfile::TempDir, arguments: &[&str]) -> Self {
        let (role, arguments) = arguments.split_first().unwrap();
        let port: &[&str] = if arguments.contains(&"--port") { &[] } else { &["--port", "0"] };
        let mut process = Command::new(program())
            .arg(role)
            .args(port)
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("The API is served at https://127.0.0.1:"), "{line}");
        Self { process, directory }
    }

    /// Waits until all nodes are ready. `kubectl wait` fails while there are none.
    pub fn wait_for_nodes(&self) {
        let started = Instant::now();
        while self.kubectl(&["get", "nodes", "--output=name"], "").is_empty() {
            assert!(started.elapsed() < Duration::from_secs(60), "no node was created");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.kubectl(&["wait", "--for=condition=Ready", "node", "--all", "--timeout=60s"], "");
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("data/admin.kubeconfig")
    }

    /// `kubectl` as a user of this cluster would call it, in the cluster's directory.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .env("KUBECONFIG", self.kubeconfig())
            .env("KUBECACHEDIR", self.directory.path().join("cache"))
            .current_dir(self.directory.path())
            .args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str], input: &str) -> Output {
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

    /// Returns the output of `kubectl`, which must succeed.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {text}{errors}");
        text
    }

    /// Returns the error output of `kubectl`, which must fail.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run(arguments, input);
        assert!(!output.status.success(), "kubectl {arguments:?} should fail");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Applies manifests.
    #[track_caller]
    pub fn apply(&self, manifests: &str) {
        self.kubectl(&["apply", "-f", "-"], manifests);
    }

    /// Ends the process as a user would, and keeps its data.
    pub fn stop(mut self) -> tempfile::TempDir {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let started = Instant::now();
        assert!(self.process.wait().unwrap().success());
        assert!(started.elapsed() < Duration::from_secs(60), "the end took {:?}", started.elapsed());
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
pub fn is_installed(program: &str, arguments: &[&str]) -> bool {
    let found = Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success());
    if !found {
        assert_ne!(std::env::var("CELPLANE_REQUIRE_TOOLS").as_deref(), Ok("1"), "{program} is not installed");
        eprintln!("skipped: {program} is not installed");
    }
    found
}
