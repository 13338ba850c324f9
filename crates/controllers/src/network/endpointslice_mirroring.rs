//! Mirrors `Endpoints` that users write into `EndpointSlice`s, for services without a selector.
//!
//! Follows Kubernetes `pkg/controller/endpointslicemirroring`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::core::v1::{Endpoints, ObjectReference, Service};
use api::discovery::v1::EndpointSlice;
use api::json::{Object, Value};
use api::metadata;
use api::well_known::{
    ANNOTATION_LAST_APPLIED, CONTROLLER_ENDPOINT_SLICE_MIRRORING, LABEL_ENDPOINT_SLICE_MANAGED_BY,
    LABEL_ENDPOINT_SLICE_SKIP_MIRROR, LABEL_SERVICE_NAME,
};
use client::Document;
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::manager::Context;
use crate::network::endpoints::Subsets;
use crate::network::endpointslice::{self, SLICES, delete, name_prefix};
use crate::{machinery::outcome, network::services};

const SUBSET_MAX: usize = 1000;

/// Number of concurrent workers.
const WORKERS: usize = 5;

struct Mirror {
    services: Informer<Service>,
    endpoints: Informer<Document<Endpoints>>,
    slices: Informer<Document<EndpointSlice>>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let (services, endpoints) = (context.informers.all::<Service>(), context.informers.all::<Document<Endpoints>>());
    let slices = endpointslice::informer(&context);
    let executor = context.executor();
    executor.expectations().follow(&slices, &SLICES.plural);
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&services, own)
        .watch(&endpoints, own)
        .watch(&slices, |it| {
            endpointslice::service_of(it)
                .filter(|_| endpointslice::is_managed_by(it, CONTROLLER_ENDPOINT_SLICE_MIRRORING))
        })
        .workers(WORKERS);
    let controller = Arc::new(Mirror { services, endpoints, slices, executor });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl Mirror {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let service = self.services.store().get_key(&key);
        let endpoints = self.endpoints.store().get_key(&key);
        let mirrored = endpoints.filter(|it| is_mirrored(it.value(), service.as_deref()));
        let known = self.slices.store().by_index(endpointslice::BY_SERVICE, &key.to_string());
        let is_ours =
            |it: &&Arc<Document<EndpointSlice>>| endpointslice::is_managed_by(it, CONTROLLER_ENDPOINT_SLICE_MIRRORING);
        let known: Vec<&Value> = known.iter().filter(is_ours).map(|it| it.value()).collect();
        let actions = reconcile(mirrored.as_ref().map(|it| it.value()), &known);
        outcome::next(self.executor.perform(&key, actions).await)
    }
}

/// Endpoints that share family and ports.
#[derive(Debug, Default)]
struct Group {
    ports: Vec<Value>,
    endpoints: Vec<Value>,
}

/// Whether an `Endpoints` is mirrored for this service.
fn is_mirrored(endpoints: &Value, service: Option<&Service>) -> bool {
    let skipped = endpoints.str_at(&["metadata", "labels", LABEL_ENDPOINT_SLICE_SKIP_MIRROR]) == Some("true");
    !skipped
        && metadata::annotation(endpoints, services::LEADER).is_none()
        && service.is_some_and(|service| service.spec.selector.is_empty())
}

/// Returns the actions that mirror the endpoints to slices; `None` if they are not to be mirrored.
fn reconcile(endpoints: Option<&Value>, slices: &[&Value]) -> Vec<Action> {
    let Some(endpoints) = endpoints else { return slices.iter().map(|slice| delete(slice)).collect() };
    let mut actions = Vec::new();
    let mut wanted = groups(endpoints, &mut actions);
    let mut known: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for slice in slices {
        let family = slice.text("addressType").to_owned();
        let ports = slice.get("ports").and_then(Value::as_array).unwrap_or_default().to_vec();
        known.entry((family, ports_key(&ports))).or_default().push(slice);
    }
    let (mut create, mut update, mut free) = (Vec::new(), Vec::new(), Vec::new());
    for (key, group) in &mut wanted {
        let mut slices = known.remove(key).unwrap_or_default().into_iter();
        let new = new_slice(endpoints, group, &key.0);
        match slices.next() {
            None => create.push(new),
            Some(slice) if is_current(slice, &new) => {}
            Some(slice) => update.push(renamed(new, slice)),
        }
        free.extend(slices);
    }
    free.extend(known.into_values().flatten());
    for slice in free {
        match create.pop() {
            Some(new) if new.get("addressType") == slice.get("addressType") => update.push(renamed(new, slice)),
            other => {
                create.extend(other);
                actions.push(delete(slice));
            }
        }
    }
    let is_deleting = endpoints.at(&["metadata", "deletionTimestamp"]).is_some();
    let create = create.into_iter().filter(|_| !is_deleting);
    let mut writes: Vec<Action> = create.map(|object| Action::Create { resource: SLICES, object }).collect();
    writes.extend(update.into_iter().map(|object| Action::Update { resource: SLICES, object }));
    writes.append(&mut actions);
    writes
}

fn ports_key(ports: &[Value]) -> String {
    let mut ports = ports.to_vec();
    services::sort_ports(&mut ports, true);
    for port in &mut ports {
        port.sort_keys();
    }
    api::json::to_string(&Value::Array(ports))
}

/// Groups the endpoints to mirror by family and ports. Adds events for omitted ones.
fn groups(endpoints: &Value, actions: &mut Vec<Action>) -> BTreeMap<(String, String), Group> {
    let mut subsets = Subsets::default();
    subsets.add_document(endpoints.get("subsets"));
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    let (mut invalid, mut skipped) = (0_usize, 0_usize);
    for subset in subsets.pack() {
        let list = |field| subset.get(field).and_then(Value::as_array).unwrap_or_default();
        let ports: Vec<Value> = list("ports").iter().map(slice_port).collect();
        let mut added = 0_usize;
        let all = list("addresses").iter().map(|it| (it, true));
        for (address, ready) in all.chain(list("notReadyAddresses").iter().map(|it| (it, false))) {
            if added >= SUBSET_MAX {
                skipped = skipped.saturating_add(1);
                continue;
            }
            let Some((family, endpoint)) = slice_endpoint(address, ready) else {
                invalid = invalid.saturating_add(1);
                continue;
            };
            let group = groups.entry((family.to_owned(), ports_key(&ports))).or_default();
            group.ports.clone_from(&ports);
            group.endpoints.push(endpoint);
            added = added.saturating_add(1);
        }
    }
    let about = reference(endpoints);
    if invalid > 0 {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        actions.push(Action::warning(&about, "InvalidIPAddress", message));
    }
    if skipped > 0 {
        let skipped = skipped.saturating_add(invalid);
        let message = format!(
            "A max of {SUBSET_MAX} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were skipped"
        );
        actions.push(Action::warning(&about, "TooManyAddressesToMirror", message));
    }
    groups
}

fn reference(endpoints: &Value) -> ObjectReference {
    let text = |field| endpoints.text_at(&["metadata", field]).into();
    ObjectReference {
        kind: "Endpoints".into(),
        api_version: "v1".into(),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectReference::default()
    }
}

fn slice_port(port: &Value) -> Value {
    let text = |field| port.text(field);
    let number = port.get("port").cloned().unwrap_or_default();
    let mut new = api::json!({"name": (text("name")), "protocol": (text("protocol")), "port": number});
    if let Some(app) = port.get("appProtocol") {
        new.set_at(&["appProtocol"], app.clone());
    }
    new
}

fn slice_endpoint(address: &Value, ready: bool) -> Option<(&'static str, Value)> {
    let ip: IpAddr = address.str_at(&["ip"])?.parse().ok()?;
    let family = if ip.is_ipv6() { "IPv6" } else { "IPv4" };
    let mut endpoint = Object::new();
    endpoint.insert("addresses", vec![Value::from(ip.to_string())]);
    endpoint.insert("conditions", api::json!({"ready": ready}));
    for field in ["hostname", "targetRef", "nodeName"] {
        if let Some(value) = address.get(field) {
            endpoint.insert(field, value.clone());
        }
    }
    Some((family, Value::Object(endpoint)))
}

fn new_slice(endpoints: &Value, group: &Group, family: &str) -> Value {
    let field = |name: &str| endpoints.at(&["metadata", name]).cloned().unwrap_or_default();
    let fields = |name: &str| field(name).as_object().cloned().unwrap_or_default();
    let mut labels = fields("labels");
    labels.insert(LABEL_SERVICE_NAME, field("name"));
    labels.insert(LABEL_ENDPOINT_SLICE_MANAGED_BY, CONTROLLER_ENDPOINT_SLICE_MIRRORING);
    labels.sort();
    let mut annotations = fields("annotations");
    annotations.retain(|key, _| !matches!(key, services::TRIGGER_TIME | ANNOTATION_LAST_APPLIED));
    let prefix = name_prefix(metadata::name(endpoints));
    let mut metadata = api::json!({
        "generateName": prefix, "namespace": (field("namespace")), "labels": labels,
        "ownerReferences": [{
            "apiVersion": "v1", "kind": "Endpoints", "name": (field("name")), "uid": (field("uid")),
            "controller": true, "blockOwnerDeletion": true,
        }],
    });
    if !annotations.is_empty() {
        metadata.set_at(&["annotations"], annotations);
    }
    let (list, ports) = (group.endpoints.clone(), group.ports.clone());
    api::json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": family, "endpoints": list, "ports": ports,
    })
}

/// Kubernetes: the new slice replaces the old one whole, and loses `generateName`.
fn renamed(mut new: Value, slice: &Value) -> Value {
    new.remove_at(&["metadata", "generateName"]);
    new.set_at(&["metadata", "name"], metadata::name(slice));
    new
}

fn is_current(slice: &Value, new: &Value) -> bool {
    let sorted = |value: &Value| {
        let mut list: Vec<String> = value
            .get("endpoints")
            .and_then(Value::as_array)
            .unwrap_or_default()
            .iter()
            .map(|it| {
                let mut it = it.clone();
                it.sort_keys();
                it.to_string()
            })
            .collect();
        list.sort();
        list
    };
    let same = |name: &str| {
        let of = |value: &Value| value.object_at(&["metadata", name]).cloned().unwrap_or_default();
        of(slice) == of(new)
    };
    same("labels")
        && same("annotations")
        && slice.at(&["metadata", "ownerReferences"]) == new.at(&["metadata", "ownerReferences"])
        && sorted(slice) == sorted(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(ips: &[&str]) -> Value {
        let addresses: Vec<Value> = ips.iter().map(|ip| api::json!({"ip": (*ip)})).collect();
        api::json!({"metadata": {"name": "web", "namespace": "a", "uid": "u", "labels": {"l": "1"}},
            "subsets": [{"addresses": addresses, "ports": [{"port": 80, "protocol": "TCP"}]}]})
    }

    #[test]
    fn one_slice_per_family_is_written_and_replaced() {
        let actions = reconcile(Some(&endpoints(&["203.0.113.1", "2001:db8::1"])), &[]);
        let made: Vec<&Value> = actions
            .iter()
            .map(|action| match action {
                Action::Create { object, .. } => object,
                other => panic!("{other:?}"),
            })
            .collect();
        let families: Vec<Option<&str>> = made.iter().map(|it| it.str_at(&["addressType"])).collect();
        assert_eq!(families, [Some("IPv4"), Some("IPv6")]);
        let mut slice = made[0].clone();
        slice.set_at(&["metadata", "name"], "web-x");
        assert_eq!(reconcile(Some(&endpoints(&["203.0.113.1"])), &[&slice]), []);
        let changed = reconcile(Some(&endpoints(&["203.0.113.5"])), &[&slice]);
        let [Action::Update { object, .. }] = changed.as_slice() else { panic!("{changed:?}") };
        assert_eq!(object.at(&["metadata", "generateName"]), None);
        assert_eq!(metadata::name(object), "web-x");
        assert!(matches!(reconcile(None, &[&slice]).as_slice(), [Action::Delete { .. }]));
        assert!(matches!(reconcile(Some(&endpoints(&[])), &[&slice]).as_slice(), [Action::Delete { .. }]));
    }

    #[test]
    fn invalid_endpoints_are_reported() {
        let actions = reconcile(Some(&endpoints(&["nonsense", "203.0.113.1"])), &[]);
        assert!(matches!(actions.as_slice(), [Action::Create { .. }, Action::Event(event)]
            if event.message == "Skipped 1 invalid IP addresses when mirroring to EndpointSlices"));
    }

    #[test]
    fn only_services_without_a_selector_are_mirrored() {
        let bare = Service::default();
        assert!(is_mirrored(&endpoints(&[]), Some(&bare)));
        assert!(!is_mirrored(&endpoints(&[]), None));
        let mut selecting = Service::default();
        selecting.spec.selector.insert("a".into(), "b".into());
        assert!(!is_mirrored(&endpoints(&[]), Some(&selecting)));
        let skipped = api::json!({"metadata": {"labels": {LABEL_ENDPOINT_SLICE_SKIP_MIRROR: "true"}}});
        assert!(!is_mirrored(&skipped, Some(&bare)));
    }
}
