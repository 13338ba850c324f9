//! A real etcd, or three, on loopback ports and in a temporary directory, removed after the test.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

use std::io::Write as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Prints that a test is skipped because etcd is not installed, or fails if it is required.
pub fn is_missing(test: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| directory.join("etcd").is_file()) {
        return false;
    }
    let required = std::env::var("CELPLANE_REQUIRE_TOOLS").is_ok_and(|value| value == "1");
    assert!(!required, "{test} needs `etcd` in the PATH");
    // Bypasses the harness, which hides the output of successful tests.
    let notice = format!("SKIPPED {test}: there is no `etcd` in the PATH\n");
    std::io::stderr().write_all(notice.as_bytes()).unwrap();
    true
}

fn free_port() -> u16 {
    // Below the ports of outgoing connections: while its server is down, no connection takes the port, not even one to itself.
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    (0..12_000_u64)
        .map(|n| 20_000 + u16::try_from(seed.wrapping_add(n) % 12_000).unwrap())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Files for TLS.
pub struct Certificates {
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// One member.
pub struct Member {
    pub endpoint: String,
    arguments: Vec<String>,
    process: Option<Child>,
}

/// A cluster.
pub struct Server {
    pub members: Vec<Member>,
    directory: TempDir,
}

impl Server {
    pub fn start(count: usize, tls: Option<&Certificates>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let ports: Vec<(u16, u16)> = (0..count).map(|_| (free_port(), free_port())).collect();
        let cluster: Vec<String> =
            ports.iter().enumerate().map(|(n, (_, peer))| format!("m{n}=http://127.0.0.1:{peer}")).collect();
        let mut members = Vec::new();
        for (n, (client, peer)) in ports.iter().enumerate() {
            let endpoint = format!("{scheme}://127.0.0.1:{client}");
            let data = directory.path().join(format!("m{n}"));
            let mut arguments = vec![
                format!("--name=m{n}"),
                format!("--data-dir={}", data.display()),
                format!("--listen-client-urls={endpoint}"),
                format!("--advertise-client-urls={endpoint}"),
                format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
                format!("--initial-cluster={}", cluster.join(",")),
                // Old versions report progress at this interval only.
                "--experimental-watch-progress-notify-interval=100ms".to_owned(),
            ];
            if let Some(tls) = tls {
                arguments.push(format!("--trusted-ca-file={}", tls.authority.display()));
                arguments.push(format!("--cert-file={}", tls.certificate.display()));
                arguments.push(format!("--key-file={}", tls.key.display()));
                arguments.push("--client-cert-auth".to_owned());
            }
            members.push(Member { endpoint, arguments, process: None });
        }
        let mut server = Self { members, directory };
        for n in 0..count {
            server.run(n);
        }
        server
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint.clone()).collect()
    }

    /// Starts a member, again if it was killed before.
    pub fn run(&mut self, n: usize) {
        let log = std::fs::File::create(self.directory.path().join(format!("m{n}.log"))).unwrap();
        let member = &mut self.members[n];
        let mut command = Command::new("etcd");
        command.args(&member.arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        member.process = Some(command.spawn().unwrap());
    }

    /// Kills a member at once.
    pub fn kill(&mut self, n: usize) {
        if let Some(mut process) = self.members[n].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops a member's clock, or lets it run again.
    pub fn pause(&self, n: usize, paused: bool) {
        let id = self.members[n].process.as_ref().unwrap().id();
        let pid = rustix::process::Pid::from_raw(i32::try_from(id).unwrap()).unwrap();
        let signal = if paused { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut process) = member.process.take() {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}
