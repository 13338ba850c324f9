//! A containerd of our own for `celplane up`: its state, sockets and network configuration are in the data directory, and no
//! other containerd of the machine is touched.
//!
//! Containers outlive it: they belong to its shims, and the next start finds them again. If it ends by itself, it is started
//! again.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use cri::messages as m;
use locks::Mutex;
use telemetry::logs::chain;
use tokio::task::JoinHandle;
use tracing::warn;

/// Time limit for containerd's answer.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// Interval at which a containerd that runs is checked.
const WATCH: Duration = Duration::from_secs(1);
/// Minimum and maximum delay before a containerd that ended is started again.
const RESTART_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// A containerd that ran for this long is started again without a longer delay.
const STEADY: Duration = Duration::from_secs(60);
/// Directories in which distributions put CNI plugins.
const CNI_DIRECTORIES: [&str; 4] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni", "/usr/local/lib/cni"];
/// Directories of programs beside those of the caller's `PATH`: not every user has the administrator's.
const PROGRAM_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Directories of a pod network that is not the default one.
#[derive(Debug, Clone, Default)]
pub struct CniDirectories {
    /// Network configurations; by default a directory below containerd's own.
    pub configurations: Option<PathBuf>,
    /// Plugins; by default those of the distribution.
    pub plugins: Option<PathBuf>,
}

impl CniDirectories {
    /// The directory of network configurations of a containerd in `directory`.
    #[must_use]
    pub fn configurations(&self, directory: &Path) -> PathBuf {
        self.configurations.clone().unwrap_or_else(|| directory.join("cni"))
    }
}

/// A containerd that this process started, and starts again if it ends.
pub struct Containerd {
    process: Arc<Process>,
    keeper: JoinHandle<()>,
    endpoint: String,
}

/// A program that is kept running.
struct Process {
    program: PathBuf,
    arguments: Vec<PathBuf>,
    log: PathBuf,
    /// The present run; nothing once the program is to end.
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Starts the program, with its output at the end of the log file.
    fn spawn(&self) -> std::io::Result<Child> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":/usr/sbin:/sbin");
        Command::new(&self.program)
            .args(&self.arguments)
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A Ctrl-C is for this process, which then ends the program.
            .process_group(0)
            .spawn()
    }

    /// The exit status of the present run, if it has ended.
    fn ended(&self) -> Option<ExitStatus> {
        self.child.lock().as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    /// Starts the program whenever it has ended.
    async fn keep(&self, watch: Duration, pauses: (Duration, Duration)) {
        let (mut pause, mut begun) = (pauses.0, Instant::now());
        loop {
            tokio::time::sleep(watch).await;
            let Some(status) = self.ended() else { continue };
            warn!(program = %self.program.display(), %status, "Restarting a program that ended");
            if begun.elapsed() > STEADY {
                pause = pauses.0;
            }
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(pauses.1);
            // The lock is held, so that a program that is to end is not started again.
            let mut child = self.child.lock();
            if child.is_none() {
                return;
            }
            match self.spawn() {
                Ok(new) => (*child, begun) = (Some(new), Instant::now()),
                Err(error) => warn!(err = %chain(&error), "Could not start the program"),
            }
        }
    }

    /// Ends the program for good.
    fn end(&self) {
        let Some(mut child) = self.child.lock().take() else { return };
        let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id.filter(|_| matches!(child.try_wait(), Ok(None))) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        if let Err(error) = child.wait() {
            warn!(err = %chain(&error), "Could not wait for the end of a program");
        }
    }
}

/// The file of a program, if it is installed.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(PROGRAM_DIRECTORIES.iter().map(PathBuf::from));
    directories.map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The directory of CNI plugins, if they are installed.
#[must_use]
pub fn plugins() -> Option<PathBuf> {
    CNI_DIRECTORIES.iter().map(PathBuf::from).find(|directory| directory.join("bridge").is_file())
}

/// Programs and plugins that are missing, each with the Debian package that has it.
#[must_use]
pub fn missing(own_plugins: Option<&Path>) -> Vec<(&'static str, &'static str)> {
    let programs = [
        ("containerd", "containerd"),
        ("runc", "runc"),
        ("iptables", "iptables"),
        ("nft", "nftables"),
        ("conntrack", "conntrack"),
    ];
    let mut missing: Vec<_> = programs.into_iter().filter(|(name, _)| program(name).is_none()).collect();
    if own_plugins.is_none() && plugins().is_none() {
        missing.push(("the CNI plugins bridge, host-local and portmap", "containernetworking-plugins"));
    }
    missing
}

impl Containerd {
    /// Starts containerd in a directory and waits until it answers.
    ///
    /// # Errors
    /// Programs that are missing, files that cannot be written, or a containerd that ends.
    pub async fn start(directory: &Path, cni: &CniDirectories) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("containers need root: run this as root, or without `--runtime containerd` for simulated nodes");
        }
        let missing = missing(cni.plugins.as_deref());
        if !missing.is_empty() {
            let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
            let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
            bail!("missing: {}; on Debian: apt-get install {}", names.join(", "), packages.join(" "));
        }
        let directory = std::path::absolute(directory)?;
        let network = std::path::absolute(cni.configurations(&directory))?;
        for directory in [&directory, &network] {
            std::fs::create_dir_all(directory).with_context(|| format!("cannot create `{}`", directory.display()))?;
        }
        let plugins = cni.plugins.clone().or_else(plugins).unwrap_or_default();
        let file = directory.join("config.toml");
        std::fs::write(&file, configuration(&directory, &network, &std::path::absolute(&plugins)?))?;
        let log = directory.join("containerd.log");
        File::create(&log)?;
        let process = Process {
            program: program("containerd").context("containerd is missing")?,
            arguments: vec!["--config".into(), file],
            log,
            child: Mutex::default(),
        };
        let child = process.spawn().context("cannot start containerd")?;
        *process.child.lock() = Some(child);
        let process = Arc::new(process);
        let kept = process.clone();
        let keeper = tokio::spawn(async move { kept.keep(WATCH, RESTART_PAUSES).await });
        let endpoint = format!("unix://{}", socket(&directory).display());
        let containerd = Self { process, keeper, endpoint };
        containerd.wait().await?;
        Ok(containerd)
    }

    async fn wait(&self) -> Result<()> {
        let client = cri::Client::new(&self.endpoint)?;
        let begun = Instant::now();
        loop {
            let log = &self.process.log;
            if let Some(status) = self.process.ended() {
                bail!("containerd ended ({status}); see `{}`", log.display());
            }
            let answer = client.version(m::VersionRequest::default()).await;
            if answer.is_ok() {
                return Ok(());
            }
            if begun.elapsed() > START_TIMEOUT {
                bail!("containerd does not answer; see `{}`", log.display());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The address of its CRI.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }
}

impl Drop for Containerd {
    /// Ends containerd. Containers run on.
    fn drop(&mut self) {
        self.keeper.abort();
        self.process.end();
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("containerd.sock")
}

/// The configuration of containerd, in the form that versions 1.6 to 2 read.
fn configuration(directory: &Path, network: &Path, plugins: &Path) -> String {
    let (directory, network, plugins) = (directory.display(), network.display(), plugins.display());
    // Without CAP_SYS_RESOURCE the score of the pause container cannot be lowered, and every sandbox would fail.
    format!(
        r#"version = 2
root = "{directory}/root"
state = "{directory}/state"
[grpc]
  address = "{directory}/containerd.sock"
[ttrpc]
  address = "{directory}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network}"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{directory}/registries"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn program_that_ends_is_started_again() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let process = Process {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "echo run; [ $(wc -l < $0) -ge 3 ] && exec sleep 1000".into(), log.clone()],
            log: log.clone(),
            child: Mutex::default(),
        };
        let child = process.spawn().unwrap();
        *process.child.lock() = Some(child);
        let process = Arc::new(process);
        let (kept, soon) = (process.clone(), Duration::from_millis(1));
        let keeper = tokio::spawn(async move { kept.keep(soon, (soon, soon)).await });
        let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();
        while runs() < 3 {
            tokio::time::sleep(LOOK).await;
        }
        process.end();
        keeper.abort();
        assert_eq!(runs(), 3, "the third run stays");
    }

    #[test]
    fn everything_is_in_the_directory() {
        let text =
            configuration(Path::new("/data/containerd"), Path::new("/data/containerd/cni"), Path::new("/usr/lib/cni"));
        for line in
            ["root = \"/data/containerd/root\"", "conf_dir = \"/data/containerd/cni\"", "bin_dir = \"/usr/lib/cni\""]
        {
            assert!(text.contains(line), "{line}");
        }
        let cni = CniDirectories { configurations: Some("/etc/cni/net.d".into()), plugins: None };
        assert_eq!(cni.configurations(Path::new("/data")), Path::new("/etc/cni/net.d"));
    }
}
