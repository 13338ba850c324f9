//! One endpoint: a pod as a slice shows it, and the hints where it is best used.

use std::collections::BTreeMap;

use api::core::v1::{Node, Pod, Service};
use api::json::{Object, Value};
use api::well_known::LABEL_TOPOLOGY_ZONE;

use crate::{machinery::pods, network::services};

/// Endpoints without a slice, by identity.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    waiting: BTreeMap<String, Value>,
}

/// Identity of an endpoint: addresses, hostname, and target.
fn identity(endpoint: &Value) -> String {
    let part = |path: &[&str]| endpoint.at(path).map(api::json::to_string).unwrap_or_default();
    let name = [part(&["targetRef", "namespace"]), part(&["targetRef", "name"]), part(&["targetRef", "uid"])].join("/");
    [name, part(&["addresses"]), part(&["hostname"]), part(&["nodeName"])].join(" ")
}

impl Endpoints {
    /// Adds an endpoint, unless it has no address.
    pub(crate) fn add(&mut self, endpoint: Value) {
        let has_address = endpoint.get("addresses").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if has_address {
            self.waiting.insert(identity(&endpoint), endpoint);
        }
    }

    /// The endpoint that is the same as this one, which no longer waits.
    pub(crate) fn take(&mut self, endpoint: &Value) -> Option<Value> {
        self.waiting.remove(&identity(endpoint))
    }

    /// Moves endpoints into a list until it has `max`.
    pub(crate) fn fill(&mut self, list: &mut Vec<Value>, max: usize) {
        while list.len() < max {
            let Some((_, endpoint)) = self.waiting.pop_first() else { return };
            list.push(endpoint);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Whether two forms of one endpoint are equal, except for hints.
pub(crate) fn is_same(left: &Value, right: &Value) -> bool {
    ["nodeName", "zone", "conditions", "targetRef"].iter().all(|field| left.get(field) == right.get(field))
}

/// A pod as an endpoint.
pub(crate) fn endpoint(pod: &Pod, node: Option<&Node>, service: &Service, family: &str) -> Value {
    let serving = pods::is_ready(pod);
    let terminating = pod.metadata.is_deleting();
    let ready = service.spec.publish_not_ready_addresses || (serving && !terminating);
    let addresses = services::addresses(pod, family == "IPv6");
    let addresses: Vec<Value> = addresses.iter().map(|ip| ip.to_string().into()).collect();
    let mut endpoint = Object::new();
    endpoint.insert("addresses", addresses);
    endpoint.insert("conditions", api::json!({"ready": ready, "serving": serving, "terminating": terminating}));
    if let Some(hostname) = services::hostname(pod, service) {
        endpoint.insert("hostname", hostname.clone());
    }
    endpoint.insert("targetRef", services::target_ref(pod));
    if !pod.spec.node_name.is_empty() {
        endpoint.insert("nodeName", pod.spec.node_name.clone());
    }
    if let Some(zone) =
        node.and_then(|node| node.metadata.labels.get(LABEL_TOPOLOGY_ZONE)).filter(|zone| !zone.is_empty())
    {
        endpoint.insert("zone", zone.clone());
    }
    Value::Object(endpoint)
}

/// The ports that a service has at a pod, in the order of slices.
pub(crate) fn ports(service: &Service, pod: &Pod) -> Value {
    let mut ports = Vec::with_capacity(service.spec.ports.len());
    for port in &service.spec.ports {
        let Some(number) = services::target_port(pod, port) else { continue };
        let (name, protocol) = (port.name.clone(), port.protocol.clone());
        let mut object = api::json!({"name": name, "protocol": protocol, "port": number});
        if let Some(app) = &port.app_protocol {
            object.set_at(&["appProtocol"], app.clone());
        }
        ports.push(object);
    }
    services::sort_ports(&mut ports, true);
    Value::Array(ports)
}

/// Whether an endpoint serves.
pub(super) fn is_ready(endpoint: &Value) -> bool {
    endpoint.bool_at(&["conditions", "ready"]) == Some(true)
}

/// Sets the hints of every endpoint according to the service's traffic distribution. Slices that are otherwise
/// unchanged are updated if their hints differ.
pub(crate) fn hint(service: &Service, create: &mut [Value], update: &mut Vec<Value>, unchanged: &[Value]) {
    let distribution = service.spec.traffic_distribution.as_deref();
    for slice in unchanged {
        let mut new = slice.clone();
        hint_slice(&mut new, distribution);
        if new != *slice {
            update.push(new);
        }
    }
    for slice in create.iter_mut().chain(update) {
        hint_slice(slice, distribution);
    }
}

fn hint_slice(slice: &mut Value, distribution: Option<&str>) {
    let endpoints = slice.get_mut("endpoints").and_then(Value::as_array_mut);
    for endpoint in endpoints.into_iter().flatten() {
        let near = matches!(distribution, Some("PreferClose" | "PreferSameZone" | "PreferSameNode"));
        if near && !is_ready(endpoint) {
            continue;
        }
        let mut hints = Object::new();
        let named = |field: &str| endpoint.get(field).cloned().map(|name| api::json!([{"name": name}]));
        if let Some(zones) = named("zone").filter(|_| near) {
            hints.insert("forZones", zones);
        }
        if let Some(nodes) = named("nodeName").filter(|_| distribution == Some("PreferSameNode")) {
            hints.insert("forNodes", nodes);
        }
        endpoint.set_or_remove_at(&["hints"], (!hints.is_empty()).then_some(hints));
    }
}
