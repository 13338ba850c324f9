//! Addresses and ports of services: the ranges, and the keys in the store that services hold.
//!
//! Each is a key in the store that one service holds: it is created before the service is written, and removed
//! after the service was deleted or has released it, so that no two services ever have the same one, whatever
//! happens in between and however many servers there are. Addresses are `IPAddress` objects, as in Kubernetes.
//! A failure in between leaves an unused key; it counts as free once no request can still be about to use it.

use std::net::Ipv4Addr;

use api::json::Value;
use api::time::Timestamp;

use crate::random;
use crate::resources::{self, Resource};

/// Key prefix of ports; they are not objects that clients see.
pub(crate) const PORTS: &str = "/registry/ranges/servicenodeports/";

/// The network from which services get their cluster IPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: Ipv4Addr,
    length: u32,
}

impl Default for AddressRange {
    /// `10.96.0.0/12`, as `kubeadm` has it.
    fn default() -> Self {
        Self { first: Ipv4Addr::new(10, 96, 0, 0), length: 12 }
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

impl std::str::FromStr for AddressRange {
    type Err = String;

    /// Reads `10.96.0.0/12`; there must be room for a few services.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (address, length) = text.split_once('/').ok_or("must be a network such as 10.96.0.0/12")?;
        let address: Ipv4Addr = address.parse().map_err(|_| "must be a network of IPv4 addresses")?;
        let length: u32 = length.parse().map_err(|_| "must end in a number of bits")?;
        if !(8..=29).contains(&length) {
            return Err("must have a prefix of 8 to 29 bits".to_owned());
        }
        let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or_default();
        Ok(Self { first: Ipv4Addr::from_bits(address.to_bits() & mask), length })
    }
}

impl AddressRange {
    /// Number of addresses, without the network and broadcast addresses.
    pub(crate) fn len(self) -> u32 {
        let all = 1_u32.checked_shl(32_u32.saturating_sub(self.length)).unwrap_or(u32::MAX);
        all.saturating_sub(2)
    }

    /// The address at a position.
    pub(crate) fn at(self, index: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits().saturating_add(1).saturating_add(index))
    }

    pub(crate) fn contains(self, address: Ipv4Addr) -> bool {
        let index = address.to_bits().checked_sub(self.first.to_bits());
        index.is_some_and(|index| (1..=self.len()).contains(&index))
    }

    /// Number of leading addresses that are reserved for explicit requests, as long as there are others.
    pub(crate) fn kept(self) -> u32 {
        const LEAST: u32 = 16;
        const MOST: u32 = 256;
        if self.len() <= LEAST { 0 } else { self.len().div_ceil(LEAST).clamp(LEAST, MOST) }
    }

    /// The address of the API server's own service.
    #[must_use]
    pub fn first_address(self) -> Ipv4Addr {
        self.at(0)
    }
}

/// The ports that services can have on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

impl Default for PortRange {
    fn default() -> Self {
        Self { first: 30000, last: 32767 }
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl std::str::FromStr for PortRange {
    type Err = String;

    /// Reads `30000-32767`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (first, last) = text.split_once('-').ok_or("must be two ports, such as 30000-32767")?;
        let port = |text: &str| text.trim().parse::<u16>().map_err(|_| format!("`{text}` is not a port"));
        let (first, last) = (port(first)?, port(last)?);
        if first == 0 || first > last {
            return Err("must be from a port to a higher one".to_owned());
        }
        Ok(Self { first, last })
    }
}

pub(crate) fn is_service(resource: &Resource<'_>) -> bool {
    resource.is(resources::SERVICES)
}

/// The keys that a service holds.
pub(crate) fn held(service: &Value) -> Vec<String> {
    let addresses = service.list_at(&["spec", "clusterIPs"]);
    let addresses = addresses.iter().filter_map(Value::as_str).filter_map(|it| it.parse().ok()).map(address_key);
    let ports = service.list_at(&["spec", "ports"]);
    let ports = ports.iter().filter_map(|port| port.get("nodePort"));
    let ports = ports.chain(service.at(&["spec", "healthCheckNodePort"])).filter_map(Value::as_i64);
    addresses.chain(ports.filter(|port| *port != 0).map(port_key)).collect()
}

pub(crate) fn address_key(address: Ipv4Addr) -> String {
    resources::IP_ADDRESSES.key("", &address.to_string())
}

pub(crate) fn port_key(port: i64) -> String {
    format!("{PORTS}{port}")
}

/// The object behind the key of an address or a port.
pub(crate) fn holder(key: &str, namespace: &str, name: &str, now: Timestamp) -> Value {
    let what = key.rsplit('/').next().unwrap_or_default();
    let (kind, api_version) =
        if key.starts_with(PORTS) { ("NodePort", "celplane/v1") } else { ("IPAddress", "networking.k8s.io/v1") };
    api::json!({
        "kind": kind,
        "apiVersion": api_version,
        "metadata": {
            "name": what,
            "uid": (random::uid()),
            "creationTimestamp": (now.to_string()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
            }
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}}
    })
}

/// The object with the address range.
pub(crate) fn own_range(range: AddressRange, now: Timestamp) -> Value {
    let networks = vec![Value::from(range.to_string())];
    let condition = api::json!({
        "type": "Ready", "status": "True", "lastTransitionTime": (now.to_string()), "reason": "",
        "message": "Kubernetes default Service CIDR is ready"
    });
    let conditions = vec![condition];
    api::json!({
        "metadata": {"name": "kubernetes"}, "spec": {"cidrs": networks}, "status": {"conditions": conditions}
    })
}

/// The key of the API server's own address, and what it holds.
pub(crate) fn own_address(range: AddressRange, now: Timestamp) -> (String, Value) {
    let key = address_key(range.first_address());
    let holder = holder(&key, "default", "kubernetes", now);
    (key, holder)
}

/// Whether an address is held by the service of the API.
pub(crate) fn is_of_api(holder: &Value) -> bool {
    parent(holder) == ("default", "kubernetes")
}

/// Namespace and name of the service that holds an allocated address or port.
pub(crate) fn parent(holder: &Value) -> (&str, &str) {
    let part = |name: &str| holder.text_at(&["spec", "parentRef", name]);
    (part("namespace"), part("name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let range: AddressRange = "10.96.7.9/12".parse().unwrap();
        assert_eq!((range, range.to_string().as_str()), (AddressRange::default(), "10.96.0.0/12"));
        let range: AddressRange = "192.168.5.0/29".parse().unwrap();
        assert_eq!((range.len(), range.first_address().to_string().as_str(), range.kept()), (6, "192.168.5.1", 0));
        let inside = |text: &str| range.contains(text.parse().unwrap());
        assert!(!inside("192.168.5.0") && inside("192.168.5.1") && inside("192.168.5.6") && !inside("192.168.5.7"));
        assert!(!inside("192.168.4.255") && !inside("192.168.5.8"));
        for wrong in ["10.0.0.0", "10.0.0.0/30", "10.0.0.0/7", "fd00::/112", "x/8", "10.0.0.0/x"] {
            assert!(wrong.parse::<AddressRange>().is_err(), "{wrong}");
        }
        assert_eq!("10.0.0.0/24".parse::<AddressRange>().unwrap().kept(), 16);
        assert_eq!(AddressRange::default().kept(), 256);
        assert_eq!("30000-32767".parse::<PortRange>().unwrap(), PortRange::default());
        for wrong in ["1", "2-1", "0-5", "a-b", "1-70000"] {
            assert!(wrong.parse::<PortRange>().is_err(), "{wrong}");
        }
    }
}
