//! The ports of a Service that get rules, with their endpoints.
//!
//! Rules multiply: each port exists at each address, and each endpoint has each port. A Service of a few kilobytes could ask for millions
//! of them, and the kernel's table is shared by all Services. So the work for a Service is proportional to its size, plus a constant that
//! ordinary Services do not reach. Ports beyond it get no rules: their traffic is rejected.

use std::collections::HashMap;

use crate::endpoint::{self, Endpoint, Slice};
use crate::network::Protocol;
use crate::service::{Port, Service};

/// Entries for addresses that every Service may have.
const ADDRESS_ENTRIES: usize = 2000;
/// Further entries for each port, address and source range of a Service.
const ADDRESS_ENTRIES_EACH: usize = 4;
/// Entries for endpoints that every Service may have.
const ENDPOINT_ENTRIES: usize = 20_000;
/// Further entries for each endpoint of a Service.
const ENDPOINT_ENTRIES_EACH: usize = 8;
/// Endpoints of one Service that can remember their clients.
pub(crate) const SERVICE_SETS_MAX: usize = 2000;
/// Endpoints of all Services of one namespace that can remember their clients.
pub(crate) const NAMESPACE_SETS_MAX: usize = 4000;
/// Endpoints of all Services that can remember their clients. The kernel's time to add sets grows with the square of their number: 10,000 take seconds.
pub(crate) const SETS_MAX: usize = 10_000;

/// A port that gets rules.
#[derive(Debug)]
pub struct PlannedPort<'a> {
    /// The port.
    pub port: &'a Port,
    /// Its endpoints, sorted by address.
    pub endpoints: Vec<Endpoint>,
}

/// Parts of a Service without rules, because it exceeds a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omissions {
    /// Number of ports without rules.
    pub ports: usize,
    /// Whether clients are assigned by a hash of their address, although the Service requests to remember them.
    pub affinity: bool,
}

/// The ports of a Service that get rules.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The ports, in the order of the Service.
    pub ports: Vec<PlannedPort<'a>>,
    /// Seconds for which clients keep their endpoint.
    pub affinity_seconds: Option<u32>,
    /// Parts without rules.
    pub omissions: Omissions,
}

impl<'a> Plan<'a> {
    /// Plans a Service. At most `sets_max` endpoints can remember their clients.
    pub fn new<'s>(service: &'a Service, slices: impl Iterator<Item = &'s Slice>, sets_max: usize) -> Self {
        // Without the index, each port would go through all ports of all slices.
        let mut by_port: HashMap<(&str, Protocol), Vec<(&Slice, u16)>> = HashMap::new();
        let mut endpoints = 0_usize;
        for slice in slices {
            endpoints = endpoints.saturating_add(slice.endpoints.len());
            for port in &slice.ports {
                by_port.entry((port.name.as_str(), port.protocol)).or_default().push((slice, port.port));
            }
        }
        let addresses = service.external_ips.len().saturating_add(service.load_balancer_ips.len());
        let has_firewall = !service.source_ranges.is_empty() || service.rejects_sources;
        let sources = if has_firewall {
            let balancers = service.load_balancer_ips.len();
            service.source_ranges.len().saturating_add(balancers.saturating_mul(2))
        } else {
            0
        };
        // Cluster IP and node port, with and without endpoints.
        let address_entries_each = addresses.saturating_add(sources).saturating_add(2);
        let size = service.ports.len().saturating_add(addresses).saturating_add(sources);
        let mut addresses_left = size.saturating_mul(ADDRESS_ENTRIES_EACH).saturating_add(ADDRESS_ENTRIES);
        let mut endpoints_left = endpoints.saturating_mul(ENDPOINT_ENTRIES_EACH).saturating_add(ENDPOINT_ENTRIES);
        let mut plan = Self { ports: Vec::new(), affinity_seconds: None, omissions: Omissions::default() };
        for port in &service.ports {
            let of_port = by_port.get(&(port.name.as_str(), port.protocol)).map(Vec::as_slice).unwrap_or_default();
            let count = of_port.iter().fold(0_usize, |sum, (slice, _)| sum.saturating_add(slice.endpoints.len()));
            let left = addresses_left.checked_sub(address_entries_each).zip(endpoints_left.checked_sub(count));
            let Some(left) = left else {
                plan.omissions.ports = plan.omissions.ports.saturating_add(1);
                continue;
            };
            (addresses_left, endpoints_left) = left;
            plan.ports.push(PlannedPort { port, endpoints: endpoint::of_port(of_port) });
        }
        let sets = plan.ports.iter().fold(0_usize, |sum, it| sum.saturating_add(it.endpoints.len()));
        plan.affinity_seconds = service.affinity_seconds.filter(|_| sets <= sets_max);
        plan.omissions.affinity = plan.affinity_seconds != service.affinity_seconds;
        plan
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::arithmetic_side_effects, reason = "tests")]

    use api::json::Value;

    use super::*;

    fn service(ports: usize, addresses: usize, affinity: &str) -> Service {
        let port = |it: usize| api::json!({"name": (format!("p{it}")), "port": (i64::try_from(it + 1).unwrap()), "protocol": "TCP"});
        let address = |it: usize| Value::from(format!("192.0.{}.{}", it / 250, it % 250));
        Service::read(&api::json!({
            "metadata": {"namespace": "a", "name": "web"},
            "spec": {
                "clusterIP": "10.96.0.1", "sessionAffinity": affinity,
                "ports": (Value::Array((0..ports).map(port).collect())),
                "externalIPs": (Value::Array((0..addresses).map(address).collect())),
            },
        }))
        .unwrap()
    }

    fn slice(ports: usize, endpoints: usize) -> Slice {
        let port = |it: usize| api::json!({"name": (format!("p{it}")), "port": (i64::try_from(it + 1).unwrap()), "protocol": "TCP"});
        let endpoint = |it: usize| api::json!({"addresses": [(format!("10.0.{}.{}", it / 250, it % 250))]});
        let object = api::json!({
            "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
            "ports": (Value::Array((0..ports).map(port).collect())),
            "endpoints": (Value::Array((0..endpoints).map(endpoint).collect())),
        });
        Slice::read(&object, "here").unwrap()
    }

    fn planned(service: &Service, slices: &[Slice]) -> (usize, Omissions) {
        let plan = Plan::new(service, slices.iter(), SERVICE_SETS_MAX);
        (plan.ports.len(), plan.omissions)
    }

    #[test]
    fn large_services_in_one_direction_get_all_rules() {
        let none = Omissions::default();
        assert_eq!(planned(&service(10_000, 2, "None"), &[slice(10_000, 1)]), (10_000, none));
        assert_eq!(planned(&service(2, 1000, "None"), &[slice(2, 1)]), (2, none));
        let slices: Vec<Slice> = (0..100).map(|_| slice(8, 1000)).collect();
        assert_eq!(planned(&service(8, 0, "None"), &slices), (8, none));
        assert_eq!(planned(&service(2, 1, "ClientIP"), &[slice(2, 1000)]), (2, none));
    }

    #[test]
    fn products_of_ports_and_addresses_are_bounded() {
        let (ports, omissions) = planned(&service(20_000, 1000, "None"), &[]);
        assert_eq!(ports + omissions.ports, 20_000);
        assert!(ports * 1000 < 100_000, "{ports}");
    }

    #[test]
    fn products_of_ports_and_endpoints_are_bounded() {
        let (ports, omissions) = planned(&service(1000, 0, "None"), &[slice(1000, 1000)]);
        assert_eq!((ports, omissions.ports), (28, 972));
    }

    #[test]
    fn affinity_of_too_many_endpoints_is_omitted() {
        let omissions = Omissions { ports: 0, affinity: true };
        assert_eq!(planned(&service(3, 0, "ClientIP"), &[slice(3, 1000)]), (3, omissions));
    }
}
