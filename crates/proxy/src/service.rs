//! Services, reduced to the validated facts that rules need.
//!
//! Addresses are parsed, ports are numbers and names are DNS labels, so that no text of the API reaches `nft` unchecked. Follows
//! `newBaseServiceInfo` in `pkg/proxy/serviceport.go` of Kubernetes.

use std::net::{IpAddr, Ipv4Addr};

use api::json::{Text, Value};
use client::Key;

use crate::network::{Network, Protocol};

/// Longest name of a namespace, Service or port.
const NAME_BYTES_MAX: usize = 63;
/// Largest number of addresses and source ranges of one Service that are used.
const ADDRESSES_MAX: usize = 1000;
/// Kubernetes' default of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const AFFINITY_SECONDS_DEFAULT: u32 = 10_800;
/// Kubernetes' maximum of `sessionAffinityConfig.clientIP.timeoutSeconds`.
const AFFINITY_SECONDS_MAX: i64 = 86_400;

/// A Service that has an IPv4 cluster address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: Key,
    /// Creation time in seconds: the oldest Service keeps an address that several claim.
    pub created: i64,
    /// `spec.clusterIP`.
    pub cluster_ip: Ipv4Addr,
    /// Ports.
    pub ports: Vec<Port>,
    /// Addresses of a load balancer in VIP mode.
    pub load_balancer_ips: Vec<Ipv4Addr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<Ipv4Addr>,
    /// `spec.loadBalancerSourceRanges`; empty if all sources are allowed.
    pub source_ranges: Vec<Network>,
    /// Whether `loadBalancerSourceRanges` names only networks that cannot be used: all sources are rejected.
    pub rejects_sources: bool,
    /// Seconds for which a client keeps its endpoint, for session affinity `ClientIP`.
    pub affinity_seconds: Option<u32>,
    /// Whether external traffic uses local endpoints only.
    pub external_policy_local: bool,
    /// Whether internal traffic uses local endpoints only.
    pub internal_policy_local: bool,
    /// Port for health checks of load balancers.
    pub health_check_node_port: Option<u16>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The name, empty if the Service has one port.
    pub name: Text,
    /// The protocol.
    pub protocol: Protocol,
    /// The port at the Service's addresses.
    pub port: u16,
    /// The port at the node's addresses.
    pub node_port: Option<u16>,
}

/// A reason for which a Service gets no rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IgnoreReason {
    /// Headless Services and those of type ExternalName have no address of their own.
    #[error("it has no cluster IP")]
    NoAddress,
    /// Only IPv4 is supported.
    #[error("it has no IPv4 address, and IPv6 is not supported")]
    Ipv6,
    /// A name that the API server would not accept.
    #[error("its name is not a DNS label")]
    Name,
}

/// Whether a text is a DNS label: it can be a part of a chain's name.
pub(crate) fn is_label(text: &str) -> bool {
    let fits = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// A port number of the API, if it is one.
pub(crate) fn port_number(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|it| *it != 0)
}

impl Service {
    /// Reads a Service.
    ///
    /// # Errors
    /// The reason for which it has no rules.
    pub fn read(object: &Value) -> Result<Self, IgnoreReason> {
        let (namespace, name) = (object.text_at(&["metadata", "namespace"]), object.text_at(&["metadata", "name"]));
        let spec = object.field("spec");
        let cluster_ip = cluster_ip(spec)?;
        if !is_label(namespace) || !is_label(name) {
            return Err(IgnoreReason::Name);
        }
        let is_balancer = spec.text("type") == "LoadBalancer";
        let external_ips = addresses(spec.texts("externalIPs"));
        let accepts_external = is_balancer || spec.text("type") == "NodePort" || !spec.list("externalIPs").is_empty();
        let external_policy_local = accepts_external && spec.text("externalTrafficPolicy") == "Local";
        // The API server accepts ranges with spaces around them.
        let ranges: Vec<&str> = spec.texts("loadBalancerSourceRanges").map(str::trim).take(ADDRESSES_MAX).collect();
        let mut source_ranges: Vec<Network> = ranges.iter().filter_map(|it| it.parse().ok()).collect();
        let rejects_sources = !ranges.is_empty() && source_ranges.is_empty();
        if source_ranges.iter().any(|it| it.is_everything()) {
            source_ranges.clear();
        }
        source_ranges.sort_unstable();
        source_ranges.dedup();
        let created =
            object.str_at(&["metadata", "creationTimestamp"]).and_then(|it| api::time::Timestamp::parse(it).ok());
        let timeout = spec.i64_at(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]);
        let timeout =
            timeout.filter(|it| (1..=AFFINITY_SECONDS_MAX).contains(it)).and_then(|it| u32::try_from(it).ok());
        let has_affinity = spec.text("sessionAffinity") == "ClientIP";
        let health_check = Some(spec.int("healthCheckNodePort")).filter(|_| is_balancer && external_policy_local);
        Ok(Self {
            key: Key::new(namespace, name),
            created: created.map_or(0, |it| it.seconds),
            cluster_ip,
            ports: spec.list("ports").iter().filter_map(Port::read).collect(),
            load_balancer_ips: load_balancer_ips(object),
            external_ips,
            source_ranges,
            rejects_sources,
            affinity_seconds: has_affinity.then(|| timeout.unwrap_or(AFFINITY_SECONDS_DEFAULT)),
            external_policy_local,
            internal_policy_local: spec.text("internalTrafficPolicy") == "Local",
            health_check_node_port: health_check.and_then(port_number),
        })
    }

    /// Whether a port can be reached by an address other than the cluster IP.
    #[must_use]
    pub fn is_external(&self, port: &Port) -> bool {
        port.node_port.is_some() || !self.load_balancer_ips.is_empty() || !self.external_ips.is_empty()
    }

    /// Whether traffic to a port ever uses the endpoints of all nodes. External traffic of the policy `Local` does if it comes from
    /// the node itself or its pods.
    #[must_use]
    pub fn uses_cluster_endpoints(&self, port: &Port) -> bool {
        !self.internal_policy_local || self.is_external(port)
    }

    /// Whether traffic to a port ever uses only local endpoints.
    #[must_use]
    pub fn uses_local_endpoints(&self, port: &Port) -> bool {
        self.internal_policy_local || (self.external_policy_local && self.is_external(port))
    }
}

impl Port {
    fn read(port: &Value) -> Option<Self> {
        let name = port.text("name");
        Some(Self {
            name: Some(name).filter(|it| it.is_empty() || is_label(it))?.into(),
            protocol: Protocol::from_name(port.text("protocol"))?,
            port: port_number(port.int("port"))?,
            node_port: port_number(port.int("nodePort")),
        })
    }
}

/// The first IPv4 address of `clusterIPs`.
fn cluster_ip(spec: &Value) -> Result<Ipv4Addr, IgnoreReason> {
    if spec.text("type") == "ExternalName" {
        return Err(IgnoreReason::NoAddress);
    }
    let first = spec.text("clusterIP");
    let mut all =
        std::iter::once(first).chain(spec.texts("clusterIPs")).filter_map(|it| it.parse::<IpAddr>().ok()).peekable();
    if all.peek().is_none() {
        return Err(IgnoreReason::NoAddress);
    }
    all.find_map(ipv4).ok_or(IgnoreReason::Ipv6)
}

fn ipv4(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

fn addresses<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<Ipv4Addr> {
    let mut addresses: Vec<Ipv4Addr> = texts.filter_map(|it| it.parse().ok()).take(ADDRESSES_MAX).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Load balancers in proxy mode forward to the node ports: their addresses get no rules.
fn load_balancer_ips(object: &Value) -> Vec<Ipv4Addr> {
    let ingress = object.list_at(&["status", "loadBalancer", "ingress"]).iter();
    addresses(ingress.filter(|it| matches!(it.text("ipMode"), "" | "VIP")).map(|it| it.text("ip")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: Value) -> Result<Service, IgnoreReason> {
        Service::read(&api::json!({
            "metadata": {"namespace": "a", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec
        }))
    }

    #[test]
    fn services_without_an_ipv4_address_are_ignored() {
        assert_eq!(read(api::json!({"clusterIP": "None"})), Err(IgnoreReason::NoAddress));
        assert_eq!(read(api::json!({"type": "ExternalName", "externalName": "x"})), Err(IgnoreReason::NoAddress));
        assert_eq!(read(api::json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]})), Err(IgnoreReason::Ipv6));
        let dual = read(api::json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1", "10.96.0.7"]})).unwrap();
        assert_eq!(dual.cluster_ip, Ipv4Addr::new(10, 96, 0, 7));
    }

    #[test]
    fn hostile_text_is_dropped() {
        let hostile = "x } ; delete table ip filter";
        let service = read(api::json!({
            "clusterIP": "10.96.0.1", "type": "LoadBalancer", "externalIPs": [hostile, "192.0.2.1"],
            "loadBalancerSourceRanges": [hostile, " 10.0.0.0/8 "], "sessionAffinity": hostile,
            "ports": [
                {"name": hostile, "port": 80_i64}, {"name": "ok", "port": 0_i64}, {"name": "ok", "port": 70000_i64},
                {"name": "ok", "port": 80_i64, "protocol": hostile}, {"name": "ok", "port": 81_i64, "nodePort": (-1_i64)},
            ],
        }));
        let service = service.unwrap();
        assert_eq!(service.external_ips, [Ipv4Addr::new(192, 0, 2, 1)]);
        assert_eq!(service.source_ranges, ["10.0.0.0/8".parse().unwrap()]);
        let ports: Vec<_> = service.ports.iter().map(|it| (it.name.as_str(), it.port, it.node_port)).collect();
        assert_eq!(ports, [("ok", 81, None)]);
        let named = Service::read(&api::json!({
            "metadata": {"namespace": "a", "name": hostile}, "spec": {"clusterIP": "10.96.0.1"}
        }));
        assert_eq!(named, Err(IgnoreReason::Name));
    }

    #[test]
    fn unusable_source_ranges_reject_all_sources() {
        let spec =
            api::json!({"clusterIP": "10.96.0.1", "type": "LoadBalancer", "loadBalancerSourceRanges": ["fd00::/8"]});
        assert!(read(spec).unwrap().rejects_sources);
        let spec = api::json!({"clusterIP": "10.96.0.1", "type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8", "0.0.0.0/0"]});
        let open = read(spec).unwrap();
        assert!(open.source_ranges.is_empty() && !open.rejects_sources);
    }

    #[test]
    fn policies_apply_to_external_services_only() {
        let local = |kind: &str| {
            read(api::json!({"clusterIP": "10.96.0.1", "type": kind, "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001_i64}))
                .unwrap()
        };
        assert!(!local("ClusterIP").external_policy_local);
        let node_port = local("NodePort");
        assert!(node_port.external_policy_local && node_port.health_check_node_port.is_none());
        assert_eq!(local("LoadBalancer").health_check_node_port, Some(30001));
    }

    #[test]
    fn only_vip_addresses_of_load_balancers_count() {
        let service = Service::read(&api::json!({
            "metadata": {"namespace": "a", "name": "web"}, "spec": {"clusterIP": "10.96.0.1", "type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [
                {"ip": "192.0.2.2"}, {"ip": "192.0.2.1", "ipMode": "VIP"}, {"ip": "192.0.2.3", "ipMode": "Proxy"}, {"hostname": "x"},
            ]}},
        }));
        assert_eq!(service.unwrap().load_balancer_ips, [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)]);
    }
}
