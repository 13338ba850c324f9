//! A control plane of a contestant in a directory of its own: API server with a durable store, and perhaps a scheduler.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use apiserver::certificates::Bundle;
use apiserver::identity::keys::KeyRing;
use tempfile::TempDir;

use super::programs::Kubernetes;
use crate::load::target::{Target, is_ready};
use crate::memory::resident_bytes_of;

/// A server that takes longer is taken to have failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which readiness is checked.
const POLL: Duration = Duration::from_millis(2);
/// Requests per second that a scheduler may send: kube-scheduler limits itself to 50 by default.
const SCHEDULER_QPS: u32 = 50_000;

/// A kind of control plane.
#[derive(Debug, Clone)]
pub enum Contestant {
    /// Ours.
    Celplane(PathBuf),
    /// Kubernetes' own programs.
    Kubernetes(Kubernetes),
}

impl Contestant {
    /// Name in tables.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Celplane(_) => "Celplane",
            Self::Kubernetes(_) => "Kubernetes",
        }
    }

    /// Whether there is a scheduler.
    #[must_use]
    pub fn has_scheduler(&self) -> bool {
        match self {
            Self::Celplane(_) => true,
            Self::Kubernetes(kubernetes) => kubernetes.scheduler.is_some(),
        }
    }
}

/// A running control plane. Its processes end when it is dropped.
pub struct ControlPlane {
    /// Time from the start of the first process until the API server was ready.
    pub ready: Duration,
    /// Memory of all processes at that time.
    pub idle_bytes: u64,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Processes; the scheduler is the last, if there is one.
    processes: Vec<Process>,
    _directory: TempDir,
}

/// A child process that does not outlive us.
struct Process {
    child: Child,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ControlPlane {
    /// Starts the API server with its store on an empty directory, waits until it is ready, and starts the scheduler.
    ///
    /// # Errors
    /// A program that does not start or does not become ready.
    pub fn start(contestant: &Contestant, with_scheduler: bool) -> Result<Self> {
        // Not in /tmp, which may be in memory: writes have to reach a disk.
        let directory = tempfile::Builder::new().prefix("celplane-bench-").tempdir_in(".")?;
        let path = directory.path().canonicalize()?;
        let begun = Instant::now();
        let (processes, kubeconfig) = match contestant {
            Contestant::Celplane(binary) => start_celplane(binary, &path)?,
            Contestant::Kubernetes(kubernetes) => start_kubernetes(kubernetes, &path)?,
        };
        let mut plane = Self { ready: begun.elapsed(), idle_bytes: 0, kubeconfig, processes, _directory: directory };
        plane.wait_until_ready(begun)?;
        plane.ready = begun.elapsed();
        plane.idle_bytes = plane.resident_bytes();
        if with_scheduler {
            let scheduler = start_scheduler(contestant, &plane.kubeconfig, &path)?;
            plane.processes.push(scheduler);
        }
        Ok(plane)
    }

    /// Identifiers of all processes.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.child.id()).collect()
    }

    /// Resident memory of all processes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.processes().into_iter().filter_map(resident_bytes_of).sum()
    }

    /// The API server as the load generator sees it.
    ///
    /// # Errors
    /// A kubeconfig that cannot be read.
    pub fn target(&self) -> Result<Target> {
        Ok(Target::running(&self.kubeconfig)?.with_processes(self.processes()))
    }

    fn wait_until_ready(&mut self, begun: Instant) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        loop {
            for process in &mut self.processes {
                if let Some(status) = process.child.try_wait()? {
                    bail!("{status}: {}", end_of(&process.log));
                }
            }
            // Until it is written in full it cannot be read.
            if let Ok(target) = Target::running(&self.kubeconfig)
                && runtime.block_on(is_ready(&target.endpoint))
            {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                let logs: Vec<String> = self.processes.iter().map(|process| end_of(&process.log)).collect();
                bail!("not ready after {START_TIMEOUT:?}: {}", logs.join("\n"));
            }
            std::thread::sleep(POLL);
        }
    }
}

/// The last lines of a log.
fn end_of(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n")
}

fn spawn(command: &mut Command, directory: &Path, name: &str) -> Result<Process> {
    let log = directory.join(format!("{name}.log"));
    let file = File::create(&log)?;
    let spawned = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn();
    let child = spawned.with_context(|| format!("cannot run `{}`", command.get_program().display()))?;
    Ok(Process { child, log })
}

fn start_celplane(binary: &Path, directory: &Path) -> Result<(Vec<Process>, PathBuf)> {
    let data = directory.join("data");
    let mut command = Command::new(binary);
    command.args(["apiserver", "--port=0", "--data-dir"]).arg(&data);
    Ok((vec![spawn(&mut command, directory, "celplane")?], data.join("admin.kubeconfig")))
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn start_kubernetes(programs: &Kubernetes, directory: &Path) -> Result<(Vec<Process>, PathBuf)> {
    let (client, peer, server) = (free_port()?, free_port()?, free_port()?);
    let mut etcd = Command::new(&programs.etcd);
    etcd.args([
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls=http://127.0.0.1:{client}"),
        format!("--advertise-client-urls=http://127.0.0.1:{client}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peer}"),
    ]);
    let etcd = spawn(&mut etcd, directory, "etcd")?;
    let keys = directory.join("pki");
    let bundle = Bundle::load_or_create(&keys, &[IpAddr::V4(Ipv4Addr::LOCALHOST)])?;
    KeyRing::load_or_create(&keys.join("sa.key"))?;
    let file = |name: &str| keys.join(name).display().to_string();
    let mut apiserver = Command::new(&programs.apiserver);
    apiserver.args([
        format!("--etcd-servers=http://127.0.0.1:{client}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={server}"),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--service-account-key-file={}", file("sa.key")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        format!("--service-account-issuer=https://127.0.0.1:{server}/"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
    ]);
    let apiserver = spawn(&mut apiserver, directory, "kube-apiserver")?;
    let kubeconfig = directory.join("admin.kubeconfig");
    std::fs::write(&kubeconfig, bundle.kubeconfig(&format!("https://127.0.0.1:{server}")))?;
    Ok((vec![apiserver, etcd], kubeconfig))
}

fn start_scheduler(contestant: &Contestant, kubeconfig: &Path, directory: &Path) -> Result<Process> {
    let mut command = match contestant {
        Contestant::Celplane(binary) => {
            let mut command = Command::new(binary);
            command.arg("scheduler");
            command
        }
        Contestant::Kubernetes(programs) => {
            let mut command = Command::new(programs.scheduler.as_ref().context("there is no kube-scheduler")?);
            command.args([
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
                format!("--kube-api-qps={SCHEDULER_QPS}"),
                format!("--kube-api-burst={SCHEDULER_QPS}"),
            ]);
            command
        }
    };
    command.arg(format!("--kubeconfig={}", kubeconfig.display()));
    spawn(&mut command, directory, "scheduler")
}
