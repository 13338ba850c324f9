//! Elements, chains and sets of nftables, as values.
//!
//! Names of chains and sets consist of DNS labels, addresses and numbers (see [`crate::service`]), so that they need no quoting.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use crate::network::Protocol;

/// The name of a chain or set.
pub type Name = Arc<str>;

/// The chain that rejects.
pub const REJECT_CHAIN: &str = "reject-chain";

/// Most endpoints of a destination that are elements of shared maps, one map for the first endpoint of each destination, one for the second, and so on.
pub const SHARED_ENDPOINTS_MAX: u8 = 8;

/// The shared chain that translates a destination to one of its first endpoints.
#[must_use]
pub fn shared_chain(protocol: Protocol, endpoints: u8) -> Name {
    Arc::from(format!("endpoints-{}-{endpoints}", protocol.name()))
}

/// An element of a set or map that every Service shares, by its key. Packets are dispatched by these in constant time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// A cluster IP.
    ClusterIp(Ipv4Addr),
    /// Destinations with endpoints.
    Service(Ipv4Addr, Protocol, u16),
    /// Node ports with endpoints.
    NodePort(Protocol, u16),
    /// Destinations that are rejected or dropped.
    NoEndpoint(Ipv4Addr, Protocol, u16),
    /// Node ports that are rejected or dropped.
    NoEndpointNodePort(Protocol, u16),
    /// Destinations that only some sources may use.
    Firewall(Ipv4Addr, Protocol, u16),
    /// Local endpoints, whose connections to themselves are masqueraded.
    Hairpin(Ipv4Addr, Protocol, u16),
    /// The endpoint with this number of a destination, below [`SHARED_ENDPOINTS_MAX`].
    Endpoint(u8, Ipv4Addr, Protocol, u16),
}

/// A set or map, and whether its elements have a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Container {
    /// The name.
    pub name: &'static str,
    /// Whether it is a verdict map.
    pub is_map: bool,
    /// The type of its elements.
    pub element_type: &'static str,
}

const fn endpoints(name: &'static str) -> Container {
    let element_type = "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service";
    Container { name, is_map: true, element_type }
}

/// All containers, in the order of [`Element`].
pub const CONTAINERS: [Container; 15] = [
    Container { name: "cluster-ips", is_map: false, element_type: "ipv4_addr" },
    Container { name: "service-ips", is_map: true, element_type: "ipv4_addr . inet_proto . inet_service : verdict" },
    Container { name: "service-nodeports", is_map: true, element_type: "inet_proto . inet_service : verdict" },
    Container {
        name: "no-endpoint-services",
        is_map: true,
        element_type: "ipv4_addr . inet_proto . inet_service : verdict",
    },
    Container { name: "no-endpoint-nodeports", is_map: true, element_type: "inet_proto . inet_service : verdict" },
    Container { name: "firewall-ips", is_map: true, element_type: "ipv4_addr . inet_proto . inet_service : verdict" },
    Container {
        name: "hairpin-connections",
        is_map: false,
        element_type: "ipv4_addr . ipv4_addr . inet_proto . inet_service",
    },
    endpoints("endpoint-0"),
    endpoints("endpoint-1"),
    endpoints("endpoint-2"),
    endpoints("endpoint-3"),
    endpoints("endpoint-4"),
    endpoints("endpoint-5"),
    endpoints("endpoint-6"),
    endpoints("endpoint-7"),
];

impl Element {
    /// The name of the set or map.
    #[must_use]
    pub fn container(&self) -> &'static str {
        let [cluster_ips, services, node_ports, no_endpoint, no_endpoint_node_ports, firewall, hairpin, endpoints @ ..] =
            CONTAINERS;
        let [first, .., last] = endpoints;
        let container = match self {
            Self::ClusterIp(_) => cluster_ips,
            Self::Service(..) => services,
            Self::NodePort(..) => node_ports,
            Self::NoEndpoint(..) => no_endpoint,
            Self::NoEndpointNodePort(..) => no_endpoint_node_ports,
            Self::Firewall(..) => firewall,
            Self::Hairpin(..) => hairpin,
            Self::Endpoint(0, ..) => first,
            Self::Endpoint(number, ..) => endpoints.get(usize::from(*number)).copied().unwrap_or(last),
        };
        container.name
    }
}

/// The key, as nftables writes it.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClusterIp(address) => write!(f, "{address}"),
            Self::Service(address, protocol, port)
            | Self::NoEndpoint(address, protocol, port)
            | Self::Firewall(address, protocol, port)
            | Self::Endpoint(_, address, protocol, port) => write!(f, "{address} . {} . {port}", protocol.name()),
            Self::NodePort(protocol, port) | Self::NoEndpointNodePort(protocol, port) => {
                write!(f, "{} . {port}", protocol.name())
            }
            Self::Hairpin(address, protocol, port) => {
                write!(f, "{address} . {address} . {} . {port}", protocol.name())
            }
        }
    }
}

/// The value of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Elements of sets have no value.
    Member,
    /// Continues in a chain.
    Goto(Name),
    /// Rejects with an ICMP message or a TCP reset.
    Reject,
    /// Drops the packet.
    Drop,
    /// The address of an endpoint.
    Endpoint(SocketAddrV4),
}

/// The value, as nftables writes it; empty for elements of sets.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member => Ok(()),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Reject => write!(f, "goto {REJECT_CHAIN}"),
            Self::Drop => f.write_str("drop"),
            Self::Endpoint(address) => write!(f, "{} . {}", address.ip(), address.port()),
        }
    }
}

/// The rules of one Service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// Elements of shared sets and maps.
    pub elements: Vec<(Element, Verdict)>,
    /// Chains of its own, with their rules.
    pub chains: Vec<(Name, Arc<[String]>)>,
    /// Sets of clients with session affinity, with their timeout in seconds.
    pub sets: Vec<(Name, u32)>,
    /// Number of ports whose internal traffic is dropped for lack of local endpoints.
    pub internal_without_local: usize,
    /// Number of ports whose external traffic is dropped for lack of local endpoints.
    pub external_without_local: usize,
}

/// Joins list items of a set or map literal.
pub(crate) fn join(items: impl Iterator<Item = impl fmt::Display>) -> String {
    let mut text = String::new();
    for item in items {
        let comma = if text.is_empty() { "" } else { " , " };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{item}");
    }
    text
}
