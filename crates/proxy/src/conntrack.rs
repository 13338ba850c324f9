//! Flows of UDP to endpoints that no longer exist.
//!
//! The kernel keeps translating the packets of a known flow, and a client that keeps sending from one port never ends it. Such flows
//! are deleted after their endpoint has been removed. Follows `CleanStaleEntries` in `pkg/proxy/conntrack/cleanup.go` of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// Largest number of deletions at once; the next change of the Service deletes more.
pub const DELETIONS_MAX: usize = 10_000;

/// An address of a Service for UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Frontend {
    /// Address and port.
    Address(Ipv4Addr, u16),
    /// A port of every address of the node.
    NodePort(u16),
}

/// Frontends with the endpoints whose flows may continue. The addresses of a port share them.
pub type Frontends = BTreeMap<Frontend, Arc<BTreeSet<SocketAddrV4>>>;

/// A translated flow: the original destination, and the endpoint that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The destination that the client uses.
    pub destination: SocketAddrV4,
    /// The source of the answers.
    pub endpoint: SocketAddrV4,
}

impl Flow {
    /// Reads a line of `conntrack -L -p udp`: the first addresses are of the original direction, the second ones of the reply.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let values =
            |name: &str| -> Vec<&str> { line.split_whitespace().filter_map(|word| word.strip_prefix(name)).collect() };
        let [_, reply_source] = values("src=")[..] else { return None };
        let [destination, _] = values("dst=")[..] else { return None };
        let [_, reply_port] = values("sport=")[..] else { return None };
        let [port, _] = values("dport=")[..] else { return None };
        Some(Self {
            destination: SocketAddrV4::new(destination.parse().ok()?, port.parse().ok()?),
            endpoint: SocketAddrV4::new(reply_source.parse().ok()?, reply_port.parse().ok()?),
        })
    }
}

/// Returns the flows to a frontend whose endpoint is not one of the frontend's, each once.
pub fn stale(flows: impl Iterator<Item = Flow>, frontends: &Frontends) -> BTreeSet<Flow> {
    let is_stale = |flow: &Flow| {
        let address = Frontend::Address(*flow.destination.ip(), flow.destination.port());
        let endpoints = frontends.get(&address).or_else(|| frontends.get(&Frontend::NodePort(flow.destination.port())));
        endpoints.is_some_and(|it| !it.contains(&flow.endpoint))
    };
    flows.filter(is_stale).take(DELETIONS_MAX).collect()
}

/// The deletions as a file for `conntrack -R`. One line deletes the flows of all clients.
#[must_use]
pub fn deletions(flows: &BTreeSet<Flow>) -> String {
    let mut text = String::new();
    for Flow { destination, endpoint } in flows {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "-D -f ipv4 -p udp --orig-dst {} --orig-port-dst {} --reply-src {} --reply-port-src {}",
            destination.ip(),
            destination.port(),
            endpoint.ip(),
            endpoint.port()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "udp      17 28 src=10.244.0.5 dst=10.96.0.10 sport=4000 dport=53 [UNREPLIED] src=10.244.0.7 dst=10.244.0.5 \
        sport=5353 dport=4000 mark=0 use=1";

    #[test]
    fn flows_to_other_endpoints_are_stale() {
        let flow = Flow::parse(LINE).unwrap();
        assert_eq!(
            (flow.destination.to_string(), flow.endpoint.to_string()),
            ("10.96.0.10:53".into(), "10.244.0.7:5353".into())
        );
        let frontend = Frontend::Address(*flow.destination.ip(), 53);
        let check = |frontend: Frontend, endpoint: &str, count: usize| {
            let endpoints: BTreeSet<SocketAddrV4> = endpoint.parse().into_iter().collect();
            assert_eq!(
                stale([flow, flow].into_iter(), &Frontends::from([(frontend, Arc::new(endpoints))])).len(),
                count
            );
        };
        check(frontend, "10.244.0.7:5353", 0);
        check(frontend, "10.244.0.8:5353", 1);
        check(frontend, "", 1);
        check(Frontend::NodePort(53), "10.244.0.8:5353", 1);
        check(Frontend::Address(*flow.destination.ip(), 54), "", 0);
        assert_eq!(
            deletions(&BTreeSet::from([flow])),
            "-D -f ipv4 -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.244.0.7 --reply-port-src 5353\n"
        );
    }

    #[test]
    fn unreadable_lines_are_skipped() {
        for line in ["", "udp 17 src=a dst=b", "icmp 1 src=10.0.0.1 dst=10.0.0.2 type=8 src=10.0.0.2 dst=10.0.0.1"] {
            assert_eq!(Flow::parse(line), None);
        }
    }
}
