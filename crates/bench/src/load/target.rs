//! The server under load: a running one, or a child process on a fresh directory with the selected store.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;

use super::connection::{Credentials, Endpoint};
use super::pods::Requests;

/// A server that takes longer is taken to have failed.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Storage of a server that is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// In its own file, every write durable.
    Redb,
    /// In memory only.
    Memory,
    /// In an etcd that is started for it.
    Etcd,
}

/// A server, and what is known of it.
pub struct Target {
    /// Connection to the server.
    pub endpoint: Endpoint,
    /// Time until it was ready, if it was started.
    pub ready: Option<Duration>,
    processes: Vec<Process>,
    /// Processes of the server that others started.
    others: Vec<u32>,
    _directory: Option<TempDir>,
}

/// A child process that does not outlive us.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may already have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Target {
    /// A running server, with the address and identity of `kubeconfig`.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub fn running(kubeconfig: &Path) -> Result<Self> {
        let endpoint = read_kubeconfig(kubeconfig)?;
        Ok(Self { endpoint, ready: None, processes: Vec::new(), others: Vec::new(), _directory: None })
    }

    /// Counts the time and memory of these processes as the server's.
    #[must_use]
    pub fn with_processes(self, others: Vec<u32>) -> Self {
        Self { others, ..self }
    }

    fn process_ids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(|process| process.0.id()).chain(self.others.iter().copied())
    }

    /// Starts `celplane apiserver` on an empty store and waits until it is ready. The directory is made below `parent`.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn start(binary: &Path, store: Store, parent: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("celplane-load-").tempdir_in(parent)?;
        let mut processes = Vec::new();
        let mut command = Command::new(binary);
        let data = directory.path().join("data");
        command.arg("apiserver").arg("--port=0").arg("--data-dir").arg(&data);
        match store {
            Store::Redb => {}
            Store::Memory => {
                command.arg("--ephemeral");
            }
            Store::Etcd => {
                let (etcd, address) = start_etcd(directory.path())?;
                processes.push(etcd);
                command.arg(format!("--etcd-servers=http://{address}"));
            }
        }
        let log = File::create(directory.path().join("server.log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let started = Instant::now();
        let child = command.spawn().with_context(|| {
            format!("cannot run `{}`: build it with `cargo build --release -p celplane`", binary.display())
        })?;
        processes.insert(0, Process(child));
        let kubeconfig = data.join("admin.kubeconfig");
        let endpoint = loop {
            if let Some(status) = processes.first_mut().and_then(|process| process.0.try_wait().ok()).flatten() {
                let log = std::fs::read_to_string(directory.path().join("server.log")).unwrap_or_default();
                bail!("the server ended with {status}: {log}");
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("the server is not ready after {START_TIMEOUT:?}");
            }
            // Until it is written in full it cannot be read.
            if let Ok(endpoint) = read_kubeconfig(&kubeconfig)
                && is_ready(&endpoint).await
            {
                break endpoint;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let ready = Some(started.elapsed());
        Ok(Self { endpoint, ready, processes, others: Vec::new(), _directory: Some(directory) })
    }

    /// Resident memory of the server in bytes, with its etcd if we started one; `None` if it is not ours.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let sizes: Vec<u64> = self.process_ids().filter_map(crate::memory::resident_bytes_of).collect();
        (!sizes.is_empty()).then(|| sizes.iter().sum())
    }

    /// Processor time of the server in seconds, with its etcd if we started one.
    #[must_use]
    pub fn processor_seconds(&self) -> f64 {
        self.process_ids().filter_map(|process| processor_seconds(&process.to_string())).sum()
    }
}

/// User and system time of a process; `self` is a process, too.
#[must_use]
pub fn processor_seconds(process: &str) -> Option<f64> {
    /// Unit of Linux' process times, independent of the kernel's tick.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Some(ticks.sum::<f64>() / TICKS_PER_SECOND)
}

/// Whether the server at an endpoint answers `/readyz` with success.
pub async fn is_ready(endpoint: &Endpoint) -> bool {
    let request = Requests::new(endpoint.address.clone(), false).get("/readyz", "*/*");
    match endpoint.connect().await {
        Ok(mut connection) => connection.exchange(&request).await.is_ok_and(|status| status == 200),
        Err(_) => false,
    }
}

fn start_etcd(directory: &Path) -> Result<(Process, String)> {
    let free_port = || Ok::<_, std::io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
    let (client, peer) = (free_port()?, free_port()?);
    let data = directory.join("etcd");
    let child = Command::new("etcd")
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--listen-client-urls=http://127.0.0.1:{client}"))
        .arg(format!("--advertise-client-urls=http://127.0.0.1:{client}"))
        .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
        .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"))
        .arg(format!("--initial-cluster=default=http://127.0.0.1:{peer}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(directory.join("etcd.log"))?)
        .spawn()
        .context("cannot run `etcd`")?;
    let process = Process(child);
    let address = format!("127.0.0.1:{client}");
    let started = Instant::now();
    // The server's own start is to be measured, not etcd's.
    while std::net::TcpStream::connect(&address).is_err() {
        if started.elapsed() > START_TIMEOUT {
            bail!("etcd is not ready after {START_TIMEOUT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((process, address))
}

/// The endpoint of the current cluster and user, whose certificates must be in the file itself.
fn read_kubeconfig(path: &Path) -> Result<Endpoint> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let field = |name: &str| -> Result<&str> {
        let value = text.lines().find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(name));
        value
            .map(|value| value.trim().trim_matches('"'))
            .with_context(|| format!("no `{name}` in `{}`", path.display()))
    };
    let pem = |name: &str| -> Result<Vec<u8>> { Ok(base64::engine::general_purpose::STANDARD.decode(field(name)?)?) };
    let address = field("server:")?.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let credentials = Credentials {
        authority: CertificateDer::from_pem_slice(&pem("certificate-authority-data:")?)?,
        certificate: CertificateDer::from_pem_slice(&pem("client-certificate-data:")?)?,
        key: PrivateKeyDer::from_pem_slice(&pem("client-key-data:")?)?,
    };
    Ok(Endpoint::new(address, credentials)?)
}

/// The `celplane` beside this program.
#[must_use]
pub fn default_binary() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name("celplane")
}

/// Allows as many open files as the system lets us have.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With the limit that there is, fewer watchers are possible.
    let _ = setrlimit(Resource::Nofile, limit);
}
