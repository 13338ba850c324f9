//! The machine as a node: its processors, memory, system and address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use api::json::{Object, Value};

/// Maximum number of pods of a node.
const PODS_MAX: i64 = 110;

/// Facts of this machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Processors in thousandths.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
    storage: i64,
}

impl Machine {
    /// Reads the facts; files of pods are kept in `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |it| i64::try_from(it.get()).unwrap_or(1));
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let there = root.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
        let storage = rustix::fs::statvfs(there).map_or(0, |it| it.f_blocks.saturating_mul(it.f_frsize));
        Self {
            cpu_milli: processors.saturating_mul(1000),
            memory: total_memory(&memory).unwrap_or(0),
            storage: i64::try_from(storage).unwrap_or(i64::MAX),
        }
    }

    /// Completes a Node manifest with the properties of this machine.
    pub fn complete(&self, node: &mut Value, runtime_version: &str) {
        let Some(fields) = node.as_object_mut() else { return };
        let Some(status) = part(fields, "status") else { return };
        let capacity = api::json!({
            "cpu": (self.cpu_milli.checked_div(1000).unwrap_or(1).to_string()),
            "ephemeral-storage": (self.storage.to_string()),
            "memory": (format!("{}Ki", self.memory.checked_div(1024).unwrap_or(0))),
            "pods": (PODS_MAX.to_string()),
        });
        if let (Some(given), Some(capacity)) = (part(status, "capacity"), capacity.as_object()) {
            for (name, amount) in capacity.iter() {
                given.get_or_insert(name, || amount.clone());
            }
        }
        let Some(info) = part(status, "nodeInfo") else { return };
        let system = rustix::system::uname();
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let facts = [
            ("machineID", file("/etc/machine-id")),
            ("bootID", file("/proc/sys/kernel/random/boot_id")),
            ("systemUUID", file("/etc/machine-id")),
            ("kernelVersion", system.release().to_string_lossy().into_owned()),
            ("osImage", system_name(&file("/etc/os-release"))),
            ("containerRuntimeVersion", runtime_version.to_owned()),
        ];
        for (name, value) in facts {
            info.insert(name, value);
        }
    }
}

fn part<'o>(object: &'o mut Object, field: &str) -> Option<&'o mut Object> {
    object.get_or_insert(field, Value::object).as_object_mut()
}

/// The memory that `/proc/meminfo` names, in bytes.
fn total_memory(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1024)
}

/// The name of the system in `/etc/os-release`.
fn system_name(text: &str) -> String {
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned())
}

/// The name of this machine as a node.
#[must_use]
pub fn name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    let fits = |it: &char| it.is_ascii_alphanumeric() || matches!(it, '-' | '.');
    let name: String = name.chars().filter(fits).collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// The address of this machine from which it reaches others. Nothing is sent to find it.
#[must_use]
pub fn own_address(towards: Option<SocketAddr>) -> IpAddr {
    let towards = towards.unwrap_or(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)));
    let found = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        socket.connect(towards)?;
        socket.local_addr()
    });
    found.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_files() {
        assert_eq!(total_memory("MemTotal:       8128 kB\nMemFree: 1 kB\n"), Some(8128 << 10));
        assert_eq!(total_memory("nothing"), None);
        assert_eq!(system_name("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
    }

    #[test]
    fn capacity_that_is_given_stays() {
        let machine = Machine { cpu_milli: 2000, memory: 1 << 30, storage: 10 };
        let mut node = api::json!({"status": {"capacity": {"cpu": "1"}}});
        machine.complete(&mut node, "containerd://1");
        assert_eq!(node.str_at(&["status", "capacity", "cpu"]), Some("1"));
        assert_eq!(node.str_at(&["status", "capacity", "memory"]), Some("1048576Ki"));
        assert_eq!(node.str_at(&["status", "nodeInfo", "containerRuntimeVersion"]), Some("containerd://1"));
    }
}
