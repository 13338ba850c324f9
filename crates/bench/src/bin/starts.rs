//! Time, processor time and memory of starts: `celplane up`, `celplane apiserver`, and `kube-apiserver` with `etcd` as
//! envtest starts them.
//!
//! `cargo build --release -p celplane && cargo run --release -p celplane-bench --bin starts -- --assets /path/to/upstream`

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use apiserver::identity::keys::KeyRing;
use celplane_bench::load::target::default_binary;
use celplane_bench::memory::size;
use clap::Parser;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

/// A server that takes longer is taken to have failed.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Interval at which readiness is checked; envtest's is 100 ms.
const POLL: Duration = Duration::from_millis(1);

/// Start control planes and measure them
#[derive(Parser)]
struct Arguments {
    /// The celplane to start; the one beside this program unless given
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// A directory with another kube-apiserver and etcd to start in turn; may be repeated
    #[arg(long, value_name = "DIRECTORY")]
    assets: Vec<PathBuf>,
    /// Number of starts of each
    #[arg(long, default_value_t = 50)]
    starts: usize,
    /// Number of control planes side by side; 0 leaves them out
    #[arg(long, default_value_t = 20)]
    beside: usize,
}

/// A way to start a control plane.
enum Kind {
    /// `celplane` in memory, with these arguments.
    Celplane { binary: PathBuf, arguments: &'static [&'static str] },
    /// `etcd` and `kube-apiserver` of a directory.
    Assets(PathBuf),
}

/// A running control plane: the processes in the order in which they are stopped.
struct RunningPlane {
    processes: Vec<Child>,
    _directory: tempfile::TempDir,
}

/// One start.
struct StartMeasurement {
    ready: Duration,
    /// Processor time of all its processes, until it was ready.
    processor: Duration,
    stopped: Duration,
    /// Most memory of all its processes, until it was ready.
    peak_bytes: u64,
}

impl Kind {
    fn name(&self) -> String {
        match self {
            Self::Celplane { arguments, .. } => format!("`celplane {}`", arguments.join(" ")),
            Self::Assets(directory) => format!("`kube-apiserver` and `etcd` in {}", directory.display()),
        }
    }

    fn start(&self) -> Result<RunningPlane> {
        let directory = tempfile::tempdir()?;
        // Children of a start that fails are ended by the drop.
        let mut running = RunningPlane { processes: Vec::new(), _directory: directory };
        match self {
            Self::Celplane { binary, arguments } => start_celplane(binary, arguments, &mut running)?,
            Self::Assets(assets) => start_assets(assets, &mut running)?,
        }
        Ok(running)
    }

    fn measure(&self) -> Result<StartMeasurement> {
        let begun = Instant::now();
        let running = self.start()?;
        let ready = begun.elapsed();
        let processor = running.processes.iter().filter_map(|process| processor(process.id())).sum();
        let peak_bytes = running.processes.iter().filter_map(|process| peak_bytes(process.id())).sum();
        let begun = Instant::now();
        running.stop()?;
        Ok(StartMeasurement { ready, processor, stopped: begun.elapsed(), peak_bytes })
    }
}

impl RunningPlane {
    /// Stops the processes one after the other, as envtest does.
    fn stop(mut self) -> Result<()> {
        for process in &mut self.processes {
            kill_process(Pid::from_child(process), Signal::TERM)?;
            process.wait()?;
        }
        self.processes.clear();
        Ok(())
    }
}

impl Drop for RunningPlane {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // It may already have exited.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn spawn(command: &mut Command, log: &Path) -> Result<Child> {
    let log = File::create(log)?;
    let spawned = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
    spawned.with_context(|| format!("cannot run {}", command.get_program().display()))
}

/// Waits until something is there, and reports the log of a process that ends meanwhile.
fn wait(process: &mut Child, log: &Path, mut is_ready: impl FnMut() -> bool) -> Result<()> {
    let begun = Instant::now();
    while !is_ready() {
        if let Some(status) = process.try_wait()? {
            bail!("{status}: {}", std::fs::read_to_string(log).unwrap_or_default());
        }
        if begun.elapsed() > START_TIMEOUT {
            bail!("not ready after {START_TIMEOUT:?}: {}", std::fs::read_to_string(log).unwrap_or_default());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn start_celplane(binary: &Path, arguments: &[&str], running: &mut RunningPlane) -> Result<()> {
    let directory = running._directory.path().to_owned();
    let (ready, log) = (directory.join("ready.json"), directory.join("log"));
    let mut command = Command::new(binary);
    command.args(arguments).args(["--ephemeral", "--port=0"]);
    command.arg("--data-dir").arg(directory.join("data")).arg("--ready-file").arg(&ready);
    running.processes.push(spawn(&mut command, &log)?);
    let process = running.processes.last_mut().context("it was just started")?;
    wait(process, &log, || ready.exists())
}

fn start_assets(assets: &Path, running: &mut RunningPlane) -> Result<()> {
    let directory = running._directory.path().to_owned();
    let free_port = || Ok::<_, std::io::Error>(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
    let (client, server) = (free_port()?, free_port()?);
    let log = directory.join("etcd.log");
    let mut command = Command::new(assets.join("etcd"));
    command.args([
        format!("--listen-client-urls=http://127.0.0.1:{client}"),
        format!("--advertise-client-urls=http://127.0.0.1:{client}"),
        "--listen-peer-urls=http://localhost:0".to_owned(),
        format!("--data-dir={}", directory.join("etcd").display()),
        "--unsafe-no-fsync=true".to_owned(),
    ]);
    let mut etcd = spawn(&mut command, &log)?;
    let answered = wait(&mut etcd, &log, || is_etcd_healthy(client));
    running.processes.push(etcd);
    answered?;
    let (log, certificates) = (directory.join("server.log"), directory.join("certificates"));
    let mut command = Command::new(assets.join("kube-apiserver"));
    command.args([
        "--allow-privileged=true".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", certificates.display()),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--etcd-servers=http://127.0.0.1:{client}"),
        format!("--secure-port={server}"),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        format!("--service-account-issuer=https://127.0.0.1:{server}/"),
    ]);
    // A P-256 key takes no time to speak of.
    let key = directory.join("sa.key");
    KeyRing::load_or_create(&key)?;
    command.args([
        format!("--service-account-key-file={}", key.display()),
        format!("--service-account-signing-key-file={}", key.display()),
    ]);
    running.processes.insert(0, spawn(&mut command, &log)?);
    let process = running.processes.first_mut().context("it was just started")?;
    wait(process, &log, || is_server_healthy(server, &certificates).unwrap_or(false))
}

fn is_etcd_healthy(port: u16) -> bool {
    let answer = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        std::io::read_to_string(stream)
    });
    answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Requests `/healthz`. The server's certificate is trusted by its own file.
fn is_server_healthy(port: u16, certificates: &Path) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let mut roots = rustls::RootCertStore::empty();
    for file in ["apiserver.crt", "celplane/pki/ca.crt"] {
        let Ok(text) = std::fs::read(certificates.join(file)) else { continue };
        for certificate in CertificateDer::pem_slice_iter(&text) {
            roots.add(certificate?)?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), ServerName::try_from("127.0.0.1")?)?;
    let mut tls = rustls::Stream::new(&mut connection, &mut stream);
    tls.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    tls.read_exact(&mut head)?;
    Ok(&head == b"HTTP/1.1 200")
}

/// Most resident memory of a process so far.
fn peak_bytes(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()?.saturating_mul(1024))
}

/// Processor time of a process so far: the nanoseconds of its threads, or, if that is more, the hundredths of seconds of the
/// process, which include threads that have ended.
fn processor(process: u32) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    let ticks = cpu_seconds(&format!("/proc/{process}/stat"), 11);
    Some(Duration::from_nanos(nanoseconds.sum()).max(Duration::from_secs_f64(ticks)))
}

/// User and system time from two fields of a file of process times.
fn cpu_seconds(file: &str, first_field: usize) -> f64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(first_field).take(2).filter_map(|field| field.parse::<f64>().ok());
    // Linux counts process times in hundredths, independent of the kernel's tick.
    ticks.sum::<f64>() / 100.0
}

/// Processor time of all children that have ended, in seconds.
fn children_seconds() -> f64 {
    cpu_seconds("/proc/self/stat", 13)
}

/// The value that this part of all does not exceed.
fn quantile<T: Ord + Copy + Default>(values: &mut [T], part: f64) -> T {
    values.sort_unstable();
    let index = (values.len() as f64 * part).ceil() as usize;
    values.get(index.saturating_sub(1)).copied().unwrap_or_default()
}

fn row(kind: &Kind, measured: &[StartMeasurement]) {
    let times = |of: fn(&StartMeasurement) -> Duration| {
        let mut values: Vec<Duration> = measured.iter().map(of).collect();
        let (median, high) = (quantile(&mut values, 0.5), quantile(&mut values, 0.99));
        format!("{:.0} · {:.0} ms", median.as_secs_f64() * 1e3, high.as_secs_f64() * 1e3)
    };
    let mut bytes: Vec<u64> = measured.iter().map(|it| it.peak_bytes).collect();
    let (median, high) = (quantile(&mut bytes, 0.5), quantile(&mut bytes, 0.99));
    println!(
        "| {} | {} | {} | {} · {} | {} |",
        kind.name(),
        times(|it| it.ready),
        times(|it| it.processor),
        size(median as f64),
        size(high as f64),
        times(|it| it.stopped),
    );
}

/// Starts many at once, and stops them.
fn beside(kind: &Kind, count: usize) -> Result<()> {
    let (before, begun) = (children_seconds(), Instant::now());
    let started: Vec<Result<RunningPlane>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(|| kind.start())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| bail!("a thread panicked"))).collect()
    });
    let ready = begun.elapsed();
    let started: Vec<RunningPlane> = started.into_iter().collect::<Result<_>>()?;
    let all = started.iter().flat_map(|it| &it.processes);
    let bytes: u64 = all.filter_map(|process| peak_bytes(process.id())).sum();
    for running in started {
        running.stop()?;
    }
    let processor = children_seconds() - before;
    println!(
        "| {} | {count} | {:.0} ms | {:.2} s | {} |",
        kind.name(),
        ready.as_secs_f64() * 1e3,
        processor,
        size(bytes as f64)
    );
    Ok(())
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let binary = arguments.binary.unwrap_or_else(default_binary);
    let binary = binary.canonicalize().with_context(|| format!("cannot find `{}`", binary.display()))?;
    let links = tempfile::tempdir()?;
    for name in ["kube-apiserver", "etcd"] {
        std::os::unix::fs::symlink(&binary, links.path().join(name))?;
    }
    let direct: [&[&str]; 3] = [&["apiserver"], &["up", "--nodes=0"], &["up", "--nodes=3"]];
    let mut kinds: Vec<Kind> =
        direct.map(|arguments| Kind::Celplane { binary: binary.clone(), arguments }).into_iter().collect();
    kinds.push(Kind::Assets(links.path().to_owned()));
    kinds.extend(arguments.assets.into_iter().map(Kind::Assets));
    let mut measured: Vec<Vec<StartMeasurement>> = kinds.iter().map(|_| Vec::new()).collect();
    // In turn: what the machine does besides disturbs all alike.
    for _ in 0..arguments.starts {
        for (kind, all) in kinds.iter().zip(&mut measured) {
            all.push(kind.measure().with_context(|| kind.name())?);
        }
    }
    println!("| {} starts each, median · p99 | ready | processor | memory | stop |", arguments.starts);
    println!("|---|---|---|---|---|");
    for (kind, all) in kinds.iter().zip(&measured) {
        row(kind, all);
    }
    if arguments.beside > 0 {
        println!("\n| side by side | | all ready | processor, with stop | memory |\n|---|---|---|---|---|");
        for kind in &kinds {
            beside(kind, arguments.beside).with_context(|| kind.name())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measured_values() {
        let mut values: Vec<Duration> = (1..=50).rev().map(Duration::from_millis).collect();
        assert_eq!(quantile(&mut values, 0.5), Duration::from_millis(25));
        assert_eq!(quantile(&mut values, 0.99), Duration::from_millis(50));
        assert_eq!(quantile::<Duration>(&mut [], 0.5), Duration::ZERO);
    }

    #[test]
    fn own_memory_is_read() {
        assert!(peak_bytes(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(peak_bytes(u32::MAX), None);
        assert!(processor(std::process::id()).is_some_and(|time| time > Duration::ZERO));
        assert_eq!(processor(u32::MAX), None);
    }
}
