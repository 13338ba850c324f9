//! Checks of a machine that is to run containers, each with what to do if it fails.
//!
//! Files are read below a given root, so that tests can lay out machines of other kinds.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cri::messages as m;

use super::containerd;

/// Time limit for the runtime's answers.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(5);
/// Plugins that the network configuration of `celplane up` names.
const PLUGINS: [&str; 4] = ["bridge", "host-local", "loopback", "portmap"];
/// Bytes of disk below which images and logs hardly fit.
const STORAGE_MIN: u64 = 2 << 30;
/// Capability that lowers the scores of the kernel's out-of-memory killer.
const CAP_SYS_RESOURCE: u32 = 24;
/// 2026-01-01: no machine with this program is older.
const EARLIEST: u64 = 1_767_225_600;

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to do.
    Good,
    /// Works, with a restriction.
    Warning,
    /// Containers cannot run.
    Failure,
}

impl Verdict {
    /// Name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Good => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "failure",
        }
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Subject of the check.
    pub name: &'static str,
    /// Result.
    pub verdict: Verdict,
    /// Finding.
    pub finding: String,
    /// Advice; empty if there is nothing to do.
    pub remedy: String,
}

impl Check {
    fn good(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Good, finding: finding.into(), remedy: String::new() }
    }

    fn bad(name: &'static str, verdict: Verdict, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict, finding: finding.into(), remedy: remedy.into() }
    }
}

/// The machine to check, and how it is to be used.
#[derive(Debug, Clone)]
pub struct Doctor {
    /// The root of the file system.
    pub root: PathBuf,
    /// The runtime of the agent: `unix:///path`.
    pub runtime_endpoint: String,
    /// Ports that must be free.
    pub ports: Vec<u16>,
    /// The directory of the agent's files.
    pub directory: PathBuf,
}

impl Doctor {
    /// Performs all checks.
    pub async fn checks(&self) -> Vec<Check> {
        let mut checks =
            vec![user(rustix::process::geteuid().is_root()), self.cgroups(), programs(&containerd::missing(None))];
        checks.push(plugins(containerd::plugins().as_deref()));
        checks.push(self.runtime().await);
        checks.extend([self.overlay(), self.forwarding(), self.bridge_filter(), self.swap(), self.scores()]);
        checks.push(self.storage());
        checks.extend(self.ports.iter().map(|port| port_is_free(*port)));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs());
        checks.push(self.clock(now));
        checks
    }

    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    fn cgroups(&self) -> Check {
        const NAME: &str = "cgroups";
        let needed = ["cpu", "memory", "pids"];
        let reboot = "add `cgroup_enable=memory swapaccount=1` to the kernel's command line and restart the machine";
        if let Some(controllers) = self.read("sys/fs/cgroup/cgroup.controllers") {
            let found: Vec<&str> = controllers.split_whitespace().collect();
            let missing: Vec<&str> = needed.into_iter().filter(|it| !found.contains(it)).collect();
            return match missing.as_slice() {
                [] => Check::good(NAME, "cgroup v2"),
                names => Check::bad(NAME, Verdict::Failure, format!("cgroup v2 without {}", names.join(", ")), reboot),
            };
        }
        let missing: Vec<&str> =
            needed.into_iter().filter(|it| !self.root.join("sys/fs/cgroup").join(it).is_dir()).collect();
        match missing.as_slice() {
            [] => Check::bad(
                NAME,
                Verdict::Warning,
                "cgroup v1",
                "containers run; Kubernetes ends its support: start the machine with `systemd.unified_cgroup_hierarchy=1`",
            ),
            names => Check::bad(NAME, Verdict::Failure, format!("no controller for {}", names.join(", ")), reboot),
        }
    }

    async fn runtime(&self) -> Check {
        const NAME: &str = "container runtime";
        let endpoint = &self.runtime_endpoint;
        let Some(path) = endpoint.strip_prefix("unix://") else {
            return Check::bad(NAME, Verdict::Failure, format!("{endpoint} is no socket"), "use unix:///path");
        };
        if !self.root.join(path.trim_start_matches('/')).exists() {
            let remedy =
                "`celplane up --runtime containerd` starts its own; for `celplane kubelet`: systemctl start containerd";
            return Check::bad(NAME, Verdict::Warning, format!("nothing listens at {endpoint}"), remedy);
        }
        let Ok(client) = cri::Client::new(endpoint) else {
            return Check::bad(NAME, Verdict::Failure, format!("{endpoint} is no socket"), "use unix:///path");
        };
        let ask = async {
            let version = client.version(m::VersionRequest::default()).await?;
            let status = client.status(m::StatusRequest { verbose: false }).await?;
            Ok::<_, cri::Status>((version, status.status.unwrap_or_default().conditions))
        };
        match tokio::time::timeout(RUNTIME_TIMEOUT, ask).await {
            Ok(Ok((version, conditions))) => runtime_state(&version, &conditions),
            Ok(Err(status)) => {
                let remedy = "its CRI plugin may be disabled: remove `cri` from disabled_plugins in /etc/containerd/config.toml and restart it";
                Check::bad(
                    NAME,
                    Verdict::Failure,
                    format!("{endpoint} does not serve CRI: {}", status.message()),
                    remedy,
                )
            }
            Err(_) => {
                let remedy = "restart it: systemctl restart containerd";
                Check::bad(NAME, Verdict::Failure, format!("{endpoint} does not answer"), remedy)
            }
        }
    }

    fn overlay(&self) -> Check {
        let found = self.read("proc/filesystems").unwrap_or_default().lines().any(|line| line.ends_with("\toverlay"));
        match found {
            true => Check::good("overlay file system", "available"),
            false => Check::bad(
                "overlay file system",
                Verdict::Failure,
                "the kernel does not have it",
                "modprobe overlay, and add it to /etc/modules-load.d/celplane.conf",
            ),
        }
    }

    fn forwarding(&self) -> Check {
        match self.read("proc/sys/net/ipv4/ip_forward").as_deref().map(str::trim) {
            Some("1") => Check::good("IP forwarding", "on"),
            _ => Check::bad(
                "IP forwarding",
                Verdict::Failure,
                "off: pods reach no other machine",
                "sysctl -w net.ipv4.ip_forward=1, and add it to /etc/sysctl.d/celplane.conf",
            ),
        }
    }

    fn bridge_filter(&self) -> Check {
        match self.read("proc/sys/net/bridge/bridge-nf-call-iptables").as_deref().map(str::trim) {
            Some("1") => Check::good("bridge filter", "on"),
            _ => Check::bad(
                "bridge filter",
                Verdict::Warning,
                "packets between pods of this machine pass no rules: they reach no Service whose pod is on the same machine",
                "modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1, and add both to /etc/modules-load.d and /etc/sysctl.d",
            ),
        }
    }

    fn swap(&self) -> Check {
        let devices = self.read("proc/swaps").unwrap_or_default().lines().count().saturating_sub(1);
        match devices {
            0 => Check::good("swap", "off"),
            _ => Check::bad(
                "swap",
                Verdict::Warning,
                "on: memory limits of containers do not count it, and secrets may be written to disk on kernels before 6.3",
                "swapoff -a, and remove it from /etc/fstab",
            ),
        }
    }

    fn scores(&self) -> Check {
        const NAME: &str = "out-of-memory scores";
        let status = self.read("proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let bits = effective.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0);
        match bits.checked_shr(CAP_SYS_RESOURCE).unwrap_or(0) & 1 {
            1 => Check::good(NAME, "can be lowered"),
            _ => Check::bad(
                NAME,
                Verdict::Warning,
                "CAP_SYS_RESOURCE is missing: containers of critical pods are not preferred when memory runs out",
                "in a container runtime of your own, set `restrict_oom_score_adj = true`; `celplane up` does so",
            ),
        }
    }

    fn storage(&self) -> Check {
        const NAME: &str = "disk";
        let there = self.directory.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
        let shown = there.display();
        let Ok(found) = rustix::fs::statvfs(there) else {
            return Check::bad(NAME, Verdict::Warning, format!("{shown} cannot be examined"), "check the mount");
        };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let gibibytes = free.checked_shr(30).unwrap_or(0);
        match free >= STORAGE_MIN {
            true => Check::good(NAME, format!("{gibibytes} GiB are free at {shown}")),
            false => Check::bad(
                NAME,
                Verdict::Warning,
                format!("{gibibytes} GiB are free at {shown}"),
                "images and logs need about 2 GiB: free space, or choose another directory with --root-dir",
            ),
        }
    }

    fn clock(&self, now: u64) -> Check {
        const NAME: &str = "clock";
        let remedy = "install a time service: apt-get install systemd-timesyncd";
        if now < EARLIEST {
            let finding = "behind the date of this program: certificates and tokens are not valid yet";
            return Check::bad(NAME, Verdict::Failure, finding, remedy);
        }
        let services = ["run/systemd/timesync/synchronized", "run/chrony", "run/ntpd.pid", "run/openntpd.sock"];
        match services.iter().any(|it| self.root.join(it).exists()) {
            true => Check::good(NAME, "kept by a time service"),
            false => Check::bad(NAME, Verdict::Warning, "no time service was found", remedy),
        }
    }
}

fn user(is_root: bool) -> Check {
    match is_root {
        true => Check::good("user", "root"),
        false => Check::bad("user", Verdict::Failure, "not root", "run the agent, and this check, with sudo"),
    }
}

fn programs(missing: &[(&'static str, &'static str)]) -> Check {
    let missing: Vec<_> = missing.iter().filter(|(_, package)| *package != "containernetworking-plugins").collect();
    if missing.is_empty() {
        return Check::good("programs", "containerd, runc, iptables, nft and conntrack are installed");
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    let remedy = format!("on Debian: apt-get install {}", packages.join(" "));
    Check::bad("programs", Verdict::Failure, format!("missing: {}", names.join(", ")), remedy)
}

fn plugins(directory: Option<&Path>) -> Check {
    const NAME: &str = "CNI plugins";
    let remedy = "on Debian: apt-get install containernetworking-plugins";
    let Some(directory) = directory else {
        return Check::bad(NAME, Verdict::Failure, "none were found", remedy);
    };
    let missing: Vec<&str> = PLUGINS.into_iter().filter(|it| !directory.join(it).is_file()).collect();
    match missing.as_slice() {
        [] => Check::good(NAME, directory.display().to_string()),
        names => {
            let finding = format!("{} has no {}", directory.display(), names.join(", "));
            Check::bad(NAME, Verdict::Failure, finding, remedy)
        }
    }
}

fn runtime_state(version: &m::VersionResponse, conditions: &[m::RuntimeCondition]) -> Check {
    const NAME: &str = "container runtime";
    let shown = format!("{} {}", version.runtime_name, version.runtime_version);
    match conditions.iter().find(|it| !it.status) {
        None => Check::good(NAME, shown),
        Some(it) if it.r#type == "NetworkReady" => Check::bad(
            NAME,
            Verdict::Failure,
            format!("{shown} has no pod network: {}", it.message),
            "add a network configuration to /etc/cni/net.d (docs/real-nodes.md has one)",
        ),
        Some(it) => Check::bad(
            NAME,
            Verdict::Failure,
            format!("{shown} is not ready: {}", it.message),
            "see its log: journalctl -u containerd",
        ),
    }
}

fn port_is_free(port: u16) -> Check {
    match TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))) {
        Ok(_) => Check::good("port", format!("{port} is free")),
        Err(error) => Check::bad(
            "port",
            Verdict::Failure,
            format!("{port} is in use: {error}"),
            format!("end the process that uses it (ss -ltnp sport = :{port}), or choose another port"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doctor(files: &[(&str, &str)]) -> (tempfile::TempDir, Doctor) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let doctor = Doctor {
            root: root.path().to_owned(),
            runtime_endpoint: "unix:///run/none.sock".to_owned(),
            ports: Vec::new(),
            directory: root.path().to_owned(),
        };
        (root, doctor)
    }

    #[test]
    fn cgroups_of_both_versions_are_recognized() {
        let (_root, two) = doctor(&[("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")]);
        assert_eq!(two.cgroups(), Check::good("cgroups", "cgroup v2"));
        let (_root, lacking) = doctor(&[("sys/fs/cgroup/cgroup.controllers", "cpu pids\n")]);
        assert_eq!(
            (lacking.cgroups().verdict, lacking.cgroups().finding.as_str()),
            (Verdict::Failure, "cgroup v2 without memory")
        );
        let (_root, one) = doctor(&[
            ("sys/fs/cgroup/cpu/tasks", ""),
            ("sys/fs/cgroup/memory/tasks", ""),
            ("sys/fs/cgroup/pids/tasks", ""),
        ]);
        assert_eq!(one.cgroups().verdict, Verdict::Warning);
        let (_root, none) = doctor(&[]);
        assert_eq!(none.cgroups().verdict, Verdict::Failure);
    }

    #[test]
    fn kernel_settings_are_checked() {
        let (_root, good) = doctor(&[
            ("proc/filesystems", "nodev\toverlay\n"),
            ("proc/sys/net/ipv4/ip_forward", "1\n"),
            ("proc/sys/net/bridge/bridge-nf-call-iptables", "1\n"),
            ("proc/swaps", "Filename Type\n"),
            ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
            ("run/systemd/timesync/synchronized", ""),
        ]);
        let all = |it: &Doctor| {
            [it.overlay(), it.forwarding(), it.bridge_filter(), it.swap(), it.scores(), it.clock(EARLIEST)]
        };
        assert!(all(&good).iter().all(|it| it.verdict == Verdict::Good && it.remedy.is_empty()));
        let (_root, bad) = doctor(&[("proc/swaps", "Filename Type\n/dev/sda2 partition\n")]);
        assert!(all(&bad).iter().all(|it| it.verdict != Verdict::Good && !it.remedy.is_empty()));
        assert_eq!(bad.clock(1).verdict, Verdict::Failure);
    }

    #[test]
    fn missing_programs_name_their_packages() {
        let check = programs(&[("runc", "runc"), ("the CNI plugins", "containernetworking-plugins")]);
        assert_eq!(
            (check.finding.as_str(), check.remedy.as_str()),
            ("missing: runc", "on Debian: apt-get install runc")
        );
        assert_eq!(plugins(None).verdict, Verdict::Failure);
    }

    #[test]
    fn ports_in_use_are_reported() {
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(port_is_free(port).verdict, Verdict::Failure);
        drop(taken);
        assert_eq!(port_is_free(port).verdict, Verdict::Good);
    }
}
