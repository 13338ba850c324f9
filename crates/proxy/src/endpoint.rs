//! EndpointSlices, reduced to validated facts, and the endpoints of one port of a Service.
//!
//! Follows `pkg/proxy/endpointslicecache.go` of Kubernetes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use api::json::{Text, Value};
use api::time::Timestamp;
use api::well_known::{ANNOTATION_TRIGGER_TIME, LABEL_SERVICE_NAME};
use client::Key;

use crate::network::Protocol;
use crate::service::{is_label, port_number};

/// Kubernetes' maximum number of endpoints of a slice; others are ignored.
const ENDPOINTS_MAX: usize = 1000;
/// Kubernetes' maximum number of ports of a slice.
const PORTS_MAX: usize = 20_000;

/// An EndpointSlice of IPv4 addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The Service.
    pub service: Key,
    /// Ports of every endpoint.
    pub ports: Vec<SlicePort>,
    /// Endpoints.
    pub endpoints: Vec<SliceEndpoint>,
    /// Time of the change that caused the last update.
    pub trigger: Option<Timestamp>,
}

/// A port of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: Text,
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub port: u16,
}

/// An endpoint of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// The first address; the others are the same pod's by convention.
    pub address: Ipv4Addr,
    /// State and hints.
    pub facts: Facts,
}

/// State and hints of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether the endpoint is on this node.
    pub is_local: bool,
    /// Condition `ready`: accepts connections, and is not terminating.
    pub is_ready: bool,
    /// Condition `serving`: accepts connections, even if it is terminating.
    pub is_serving: bool,
    /// Condition `terminating`.
    pub is_terminating: bool,
    /// Zones whose nodes should use the endpoint.
    pub zones: Vec<Text>,
    /// Nodes that should use the endpoint.
    pub nodes: Vec<Text>,
}

/// An endpoint of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddrV4,
    /// State and hints.
    pub facts: Facts,
}

impl Slice {
    /// Reads an EndpointSlice for a node. `None` if it belongs to no Service or has no IPv4 addresses.
    #[must_use]
    pub fn read(object: &Value, node: &str) -> Option<Self> {
        let labels = object.object_at(&["metadata", "labels"])?;
        let service = labels.get(LABEL_SERVICE_NAME).and_then(Value::as_str).filter(|it| is_label(it))?;
        let namespace = Some(object.text_at(&["metadata", "namespace"])).filter(|it| is_label(it))?;
        if object.text("addressType") != "IPv4" {
            return None;
        }
        let trigger = object.str_at(&["metadata", "annotations", ANNOTATION_TRIGGER_TIME]);
        Some(Self {
            service: Key::new(namespace, service),
            ports: object.list("ports").iter().take(PORTS_MAX).filter_map(SlicePort::read).collect(),
            endpoints: object
                .list("endpoints")
                .iter()
                .take(ENDPOINTS_MAX)
                .filter_map(|it| SliceEndpoint::read(it, node))
                .collect(),
            trigger: trigger.and_then(|it| Timestamp::parse(it).ok()),
        })
    }
}

impl SlicePort {
    fn read(port: &Value) -> Option<Self> {
        // A name of null belongs to no port of a Service; an empty name does.
        let name = port.str_at(&["name"])?;
        Some(Self {
            name: name.into(),
            protocol: Protocol::from_name(port.text("protocol"))?,
            port: port_number(port.int("port"))?,
        })
    }
}

impl SliceEndpoint {
    fn read(endpoint: &Value, node: &str) -> Option<Self> {
        let condition = |name: &str, default: bool| endpoint.bool_at(&["conditions", name]).unwrap_or(default);
        let hints = |list: &str| {
            let all = endpoint.list_at(&["hints", list]).iter().map(|it| Text::from(it.text("name")));
            all.collect::<Vec<Text>>()
        };
        Some(Self {
            address: endpoint.texts("addresses").next()?.parse().ok()?,
            facts: Facts {
                is_local: !node.is_empty() && endpoint.text("nodeName") == node,
                is_ready: condition("ready", true),
                is_serving: condition("serving", true),
                is_terminating: condition("terminating", false),
                zones: hints("forZones"),
                nodes: hints("forNodes"),
            },
        })
    }
}

/// The endpoints of a port, sorted by address: those of slices, each with its number of the port. If two slices have the same address, the
/// one that is not terminating counts: the pod network may already have given the address of a terminating pod to another.
#[must_use]
pub fn of_port(slices: &[(&Slice, u16)]) -> Vec<Endpoint> {
    let mut found: BTreeMap<SocketAddrV4, &Facts> = BTreeMap::new();
    for (slice, port) in slices {
        for endpoint in &slice.endpoints {
            let address = SocketAddrV4::new(endpoint.address, *port);
            if !endpoint.facts.is_terminating || !found.contains_key(&address) {
                found.insert(address, &endpoint.facts);
            }
        }
    }
    found.into_iter().map(|(address, facts)| Endpoint { address, facts: facts.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(endpoints: Value) -> Slice {
        let object = api::json!({
            "metadata": {"namespace": "a", "name": "web-1", "labels": {LABEL_SERVICE_NAME: "web"}},
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "http", "protocol": "TCP", "port": 8080_i64}, {"protocol": "TCP", "port": 1_i64}, {"name": "x", "port": 0_i64}],
        });
        Slice::read(&object, "here").unwrap()
    }

    #[test]
    fn missing_conditions_mean_ready() {
        let slice = slice(
            api::json!([{"addresses": ["10.0.0.1"], "nodeName": "here"}, {"addresses": []}, {"addresses": ["x; y"]}]),
        );
        assert_eq!(slice.ports.len(), 1);
        let facts = Facts { is_local: true, is_ready: true, is_serving: true, ..Facts::default() };
        assert_eq!(slice.endpoints, [SliceEndpoint { address: Ipv4Addr::new(10, 0, 0, 1), facts }]);
    }

    #[test]
    fn slices_of_other_kinds_are_ignored() {
        let read = |kind: &str, labels: Value| {
            Slice::read(&api::json!({"metadata": {"namespace": "a", "labels": labels}, "addressType": kind}), "here")
        };
        assert!(read("IPv6", api::json!({LABEL_SERVICE_NAME: "web"})).is_none());
        assert!(read("IPv4", api::json!({})).is_none());
        assert!(read("IPv4", api::json!({LABEL_SERVICE_NAME: "a b"})).is_none());
    }

    #[test]
    fn running_endpoint_wins_over_terminating_one() {
        let old = slice(api::json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false, "terminating": true}}]));
        let new = slice(api::json!([{"addresses": ["10.0.0.1"]}]));
        for order in [[&old, &new], [&new, &old]] {
            let found = of_port(&order.map(|it| (it, 8080)));
            assert!(found.len() == 1 && found.iter().all(|it| it.facts.is_ready && !it.facts.is_terminating));
        }
    }
}
