//! Ports of the host that pods listen on.
//!
//! Follows `HostPortInfo` of Kubernetes' scheduler: a port on all addresses (`0.0.0.0`) excludes the same port on any.

use std::collections::BTreeSet;

use api::core::v1::{ContainerPort, PodSpec};
use api::json::Text;

use crate::resources::is_sidecar;

const ALL_ADDRESSES: &str = "0.0.0.0";

/// A port of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    port: i32,
    protocol: Text,
    ip: Text,
}

/// The ports that are taken on a host.
#[derive(Debug, Clone, Default)]
pub struct HostPorts(BTreeSet<HostPort>);

impl HostPort {
    /// The port of the host that a container's port takes, if it takes one.
    pub fn of(port: &ContainerPort) -> Option<Self> {
        let or = |text: &Text, default: &'static str| if text.is_empty() { default.into() } else { text.clone() };
        (port.host_port > 0).then(|| HostPort {
            port: port.host_port,
            protocol: or(&port.protocol, "TCP"),
            ip: or(&port.host_ip, ALL_ADDRESSES),
        })
    }

    /// Whether both cannot be had at once.
    pub fn conflicts_with(&self, other: &HostPort) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || self.ip == ALL_ADDRESSES || other.ip == ALL_ADDRESSES)
    }
}

/// The ports of the host that a pod takes as long as it runs: those of its containers and sidecars.
pub fn of_pod(spec: &PodSpec) -> impl Iterator<Item = HostPort> {
    let sidecars = spec.init_containers.iter().filter(|container| is_sidecar(container));
    sidecars.chain(&spec.containers).flat_map(|container| &container.ports).filter_map(HostPort::of)
}

impl HostPorts {
    /// Takes a port.
    pub fn insert(&mut self, port: HostPort) {
        self.0.insert(port);
    }

    /// Releases a port.
    pub fn remove(&mut self, port: &HostPort) {
        self.0.remove(port);
    }

    /// Number of ports in use.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no port is in use.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the port cannot be had.
    pub fn conflict_with(&self, port: &HostPort) -> bool {
        // INVARIANT: the set is sorted by port, then protocol: only this short part of it can conflict.
        let first = HostPort { port: port.port, protocol: port.protocol.clone(), ip: Text::default() };
        self.0
            .range(first..)
            .take_while(|taken| taken.port == port.port && taken.protocol == port.protocol)
            .any(|taken| taken.conflicts_with(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(ip: &str, protocol: &str, host_port: i32) -> ContainerPort {
        ContainerPort { host_port, protocol: protocol.into(), host_ip: ip.into(), ..ContainerPort::default() }
    }

    #[track_caller]
    fn check(taken: &[ContainerPort], wanted: ContainerPort, conflicts: bool) {
        let mut ports = HostPorts::default();
        taken.iter().filter_map(HostPort::of).for_each(|it| ports.insert(it));
        let wanted = HostPort::of(&wanted);
        assert_eq!(wanted.is_some_and(|wanted| ports.conflict_with(&wanted)), conflicts);
    }

    #[test]
    fn ports_conflict_as_in_the_scheduler() {
        check(&[], port("", "", 80), false);
        check(&[port("127.0.0.1", "TCP", 80)], port("127.0.0.1", "TCP", 80), true);
        check(&[port("127.0.0.1", "TCP", 80)], port("127.0.0.2", "TCP", 80), false);
        check(&[port("127.0.0.1", "TCP", 80)], port("", "", 80), true);
        check(&[port("0.0.0.0", "TCP", 80)], port("127.0.0.1", "", 80), true);
        check(&[port("", "UDP", 80)], port("", "TCP", 80), false);
        check(&[port("", "", 80)], port("", "", 81), false);
        check(&[port("", "", 0)], port("", "", 0), false);
    }
}
