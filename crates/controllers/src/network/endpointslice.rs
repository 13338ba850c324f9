//! Writes the `EndpointSlice`s of services with a selector.
//!
//! One set of slices per address family and set of ports, at most a hundred endpoints each; a service without endpoints
//! has one empty slice. Follows Kubernetes `staging/src/k8s.io/endpointslice/reconciler.go`. Hints come
//! from the service's `trafficDistribution`, or by `topology` from its annotation.

mod endpoint;
mod topology;

use locks::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::core::v1::{Node, Pod, Service};
use api::discovery::v1::EndpointSlice;
use api::json::{Object, Text, Value};
use api::metadata;
use api::time::Timestamp;
use api::well_known::{CONTROLLER_ENDPOINT_SLICE, LABEL_ENDPOINT_SLICE_MANAGED_BY, LABEL_SERVICE_NAME};
use client::controller::{Controller, Next};
use client::informer::{Change, Informer, Key};
use client::objects::Deletion;
use client::resources::ServedView as _;
use client::{Document, Resource};

use self::endpoint::Endpoints;
use self::topology::Topology;
use crate::machinery::action::{Action, Event};
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::manager::Context;
use crate::network::services::WatchedServices;
use crate::{machinery::edit, machinery::outcome, network::services};

/// The resource of slices.
pub(crate) const SLICES: Resource = EndpointSlice::RESOURCE;
/// The index of slices by the service that they are of.
pub(crate) const BY_SERVICE: &str = "service";
const SLICE_MAX: usize = 100;

/// Number of concurrent workers.
const WORKERS: usize = 5;

struct Slices {
    watched: WatchedServices,
    slices: Informer<Document<EndpointSlice>>,
    nodes: Informer<Node>,
    topology: Arc<Mutex<Topology>>,
    executor: Executor,
}

/// The service that a slice is of.
pub(crate) fn service_of(slice: &Document<EndpointSlice>) -> Option<Key> {
    let metadata = slice.metadata();
    let service = metadata.labels.get(LABEL_SERVICE_NAME)?;
    Some(Key::new(metadata.namespace.clone(), service.clone()))
}

/// The informer of slices, with an index by service.
pub(crate) fn informer(context: &Context) -> Informer<Document<EndpointSlice>> {
    let slices = context.informers.all::<Document<EndpointSlice>>();
    slices.store().add_index(BY_SERVICE, |slice| {
        service_of(slice).map(|service| Text::from(service.to_string())).into_iter().collect()
    });
    slices
}

/// Whether a slice is written by a controller.
pub(crate) fn is_managed_by(slice: &Document<EndpointSlice>, controller: &str) -> bool {
    slice.metadata().labels.get(LABEL_ENDPOINT_SLICE_MANAGED_BY).is_some_and(|it| it == controller)
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let watched = WatchedServices::new(&context.informers);
    let (slices, nodes) = (informer(&context), context.informers.all::<Node>());
    let executor = context.executor();
    executor.expectations().follow(&slices, &SLICES.plural);
    let topology = Arc::<Mutex<Topology>>::default();
    let zones = topology.clone();
    let runner = watched
        .watch(Controller::new(context.name, &context.runtime))
        .watch(&slices, |slice| service_of(slice).filter(|_| is_managed_by(slice, CONTROLLER_ENDPOINT_SLICE)))
        .watch_changes(&nodes, move |change| match change {
            Change::Updated { old, new } if !topology::node_changed(old, new) => Vec::new(),
            _ => zones.lock().nodes_changed(),
        })
        .workers(WORKERS);
    let controller = Arc::new(Slices { watched, slices, nodes, topology, executor });
    runner
        .run(move |key| {
            let controller = controller.clone();
            async move { controller.reconcile(key).await }
        })
        .await;
}

impl Slices {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(service) = self.watched.services.store().get_key(&key) else {
            // The slices belong to the service: they are collected.
            self.watched.forget(&key);
            self.executor.forget(&key);
            let mut topology = self.topology.lock();
            for family in ["IPv4", "IPv6"] {
                topology.forget(&key, family);
            }
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let known = self.slices.store().by_index(BY_SERVICE, &key.to_string());
        let is_ours = |it: &&Arc<Document<EndpointSlice>>| {
            is_managed_by(it, CONTROLLER_ENDPOINT_SLICE) && !it.metadata().is_deleting()
        };
        let known: Vec<&Value> = known.iter().filter(is_ours).map(|it| it.value()).collect();
        let selected = self.watched.pods_of(&service);
        let trigger = self.watched.trigger(&service, &selected);
        let nodes: BTreeMap<&str, Arc<Node>> = selected
            .iter()
            .filter_map(|pod| Some((pod.spec.node_name.as_str(), self.nodes.store().get("", &pod.spec.node_name)?)))
            .collect();
        let pods: Vec<&Pod> = selected.iter().map(|pod| &**pod).collect();
        let node = |name: &str| nodes.get(name).map(|node| &**node);
        let actions = {
            let mut topology = self.topology.lock();
            if topology::is_wanted(&service) {
                let all = self.nodes.store().list();
                topology.look(|| all.iter().map(|node| &**node).collect());
            }
            reconcile(&service, &pods, node, &known, trigger, &mut topology)
        };
        // A node may be seen after its pod.
        let missing = pods.iter().any(|pod| services::is_endpoint(pod, true) && node(&pod.spec.node_name).is_none());
        match outcome::next(self.executor.perform(&key, actions).await) {
            Ok(Next::Done) if missing => Ok(Next::After(UNSETTLED)),
            result => result,
        }
    }
}

/// Changes of the slices of one address family.
#[derive(Debug, Default)]
struct Plan {
    create: Vec<Value>,
    update: Vec<Value>,
    delete: Vec<Value>,
    unchanged: Vec<Value>,
}

/// Returns the actions for a service, given its pods, their nodes, and the existing slices that are not being
/// deleted.
fn reconcile<'a>(
    service: &Service,
    selected: &[&'a Pod],
    node: impl Fn(&str) -> Option<&'a Node>,
    slices: &[&Value],
    trigger: Option<Timestamp>,
    topology: &mut Topology,
) -> Vec<Action> {
    if !services::is_published(service) {
        return Vec::new();
    }
    let families = families(service);
    let mut actions = Vec::new();
    let family_of = |slice: &Value| slice.text("addressType").to_owned();
    for family in &families {
        let known: Vec<&Value> = slices.iter().copied().filter(|slice| family_of(slice) == *family).collect();
        let plan = plan(service, selected, &node, &known, family);
        finish(service, plan, trigger, family, topology, &mut actions);
    }
    for slice in slices.iter().filter(|slice| !families.iter().any(|family| family_of(slice) == *family)) {
        topology.forget(&edit::key(&service.metadata), &family_of(slice));
        actions.push(delete(slice));
    }
    actions
}

fn families(service: &Service) -> Vec<&'static str> {
    let named = service.spec.ip_families.iter().filter_map(|family| match family.as_str() {
        "IPv4" => Some("IPv4"),
        "IPv6" => Some("IPv6"),
        _ => None,
    });
    let named: Vec<&'static str> = named.collect();
    if !named.is_empty() {
        return named;
    }
    match (services::has_address(service), service.spec.cluster_ip.contains(':')) {
        (true, true) => vec!["IPv6"],
        (true, false) => vec!["IPv4"],
        (false, _) => vec!["IPv4", "IPv6"],
    }
}

fn is_owned_by(slice: &Value, service: &Service) -> bool {
    let owners = slice.list_at(&["metadata", "ownerReferences"]);
    owners.iter().any(|owner| {
        owner.str_at(&["uid"]) == Some(service.metadata.uid.as_str()) && owner.str_at(&["kind"]) == Some("Service")
    })
}

fn ports_key(ports: Option<&Value>) -> String {
    let mut ports = ports.and_then(Value::as_array).unwrap_or_default().to_vec();
    services::sort_ports(&mut ports, true);
    for port in &mut ports {
        port.sort_keys();
    }
    api::json::to_string(&Value::Array(ports))
}

fn plan<'a>(
    service: &Service,
    selected: &[&'a Pod],
    node: &impl Fn(&str) -> Option<&'a Node>,
    slices: &[&Value],
    family: &'static str,
) -> Plan {
    let mut plan = Plan::default();
    let mut known: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for slice in slices {
        if is_owned_by(slice, service) {
            known.entry(ports_key(slice.get("ports"))).or_default().push(slice);
        } else {
            plan.delete.push((*slice).clone());
        }
    }
    let mut wanted: BTreeMap<String, (Value, Endpoints)> = BTreeMap::new();
    for pod in selected.iter().filter(|pod| services::is_endpoint(pod, true)) {
        let ports = endpoint::ports(service, pod);
        let (_, endpoints) =
            wanted.entry(ports_key(Some(&ports))).or_insert_with(|| (ports.clone(), Endpoints::default()));
        let on = node(&pod.spec.node_name);
        // Kubernetes: a pod on a node that does not exist is left out, unless it is to be published whatever it is.
        if on.is_some() || service.spec.publish_not_ready_addresses {
            endpoints.add(endpoint::endpoint(pod, on, service, family));
        }
    }
    for (key, (ports, endpoints)) in &mut wanted {
        let slices = known.remove(key).unwrap_or_default();
        place(service, &slices, std::mem::take(endpoints), ports, family, &mut plan);
    }
    plan.delete.extend(known.into_values().flatten().cloned());
    if slices.len() == plan.delete.len() && plan.create.is_empty() {
        let placeholder = new_slice(service, &Value::Array(Vec::new()), family);
        match plan.delete.as_slice() {
            [only] if is_placeholder(only, &placeholder) => plan.delete.clear(),
            _ => plan.create.push(placeholder),
        }
    }
    plan
}

/// Whether a slice is the same as a new, empty one.
fn is_placeholder(slice: &Value, placeholder: &Value) -> bool {
    let is_empty = |field| slice.get(field).and_then(Value::as_array).unwrap_or_default().is_empty();
    let same = |path: &[&str]| slice.at(path) == placeholder.at(path);
    is_empty("endpoints")
        && is_empty("ports")
        && same(&["metadata", "labels"])
        && same(&["metadata", "ownerReferences"])
}

/// Places endpoints that share their ports: first where they are, then into slices that change anyway, then where the
/// fewest places are left over, then into new ones.
fn place(
    service: &Service,
    slices: &[&Value],
    mut wanted: Endpoints,
    ports: &Value,
    family: &'static str,
    plan: &mut Plan,
) {
    let mut update: Vec<(Value, Vec<Value>)> = Vec::new();
    let mut unchanged: Vec<&Value> = Vec::new();
    for slice in slices {
        let old = slice.get("endpoints").and_then(Value::as_array).unwrap_or_default();
        let mut changed = false;
        let mut kept = Vec::with_capacity(old.len());
        for endpoint in old {
            let Some(new) = wanted.take(endpoint) else { continue };
            changed |= !endpoint::is_same(&new, endpoint);
            kept.push(new);
        }
        let labels = labels(service, slice.object_at(&["metadata", "labels"]));
        if changed || kept.len() != old.len() {
            if kept.is_empty() {
                plan.delete.push((*slice).clone());
                continue;
            }
            let mut new = (*slice).clone();
            new.set_at(&["metadata", "labels"], labels.0);
            update.push((new, kept));
        } else if labels.1 {
            let mut new = (*slice).clone();
            new.set_at(&["metadata", "labels"], labels.0);
            update.push((new, kept));
        } else {
            unchanged.push(slice);
        }
    }
    update.sort_by_key(|(_, endpoints)| std::cmp::Reverse(endpoints.len()));
    for (_, endpoints) in &mut update {
        wanted.fill(endpoints, SLICE_MAX);
    }
    while !wanted.is_empty() {
        let room = |slice: &Value| {
            let used = slice.get("endpoints").and_then(Value::as_array).map_or(0, <[Value]>::len);
            SLICE_MAX.checked_sub(used)?.checked_sub(wanted.len())
        };
        let best = unchanged.iter().enumerate().filter_map(|(index, slice)| Some((room(slice)?, index))).min();
        let fits = best.filter(|(left, _)| *left < SLICE_MAX && wanted.len() < SLICE_MAX);
        if let Some((_, index)) = fits {
            let slice = unchanged.remove(index);
            let mut endpoints = slice.get("endpoints").and_then(Value::as_array).unwrap_or_default().to_vec();
            wanted.fill(&mut endpoints, SLICE_MAX);
            update.push((slice.clone(), endpoints));
        } else {
            let mut slice = new_slice(service, ports, family);
            let mut endpoints = Vec::new();
            wanted.fill(&mut endpoints, SLICE_MAX);
            slice.set_at(&["endpoints"], endpoints);
            plan.create.push(slice);
        }
    }
    for (mut slice, endpoints) in update {
        slice.set_at(&["endpoints"], endpoints);
        plan.update.push(slice);
    }
    plan.unchanged.extend(unchanged.into_iter().cloned());
}

/// The labels of a slice, and whether those of the service have changed since.
fn labels(service: &Service, known: Option<&Object>) -> (Object, bool) {
    let reserved = |key: &str| matches!(key, LABEL_SERVICE_NAME | LABEL_ENDPOINT_SLICE_MANAGED_BY | services::HEADLESS);
    let mut labels = services::labels_value(&service.metadata.labels);
    labels.retain(|key, _| !reserved(key));
    let mut old = known.cloned().unwrap_or_default();
    old.retain(|key, _| !reserved(key));
    let changed = old != labels;
    if !services::has_address(service) {
        labels.insert(services::HEADLESS, "");
    }
    labels.insert(LABEL_SERVICE_NAME, service.metadata.name.clone());
    labels.insert(LABEL_ENDPOINT_SLICE_MANAGED_BY, CONTROLLER_ENDPOINT_SLICE);
    labels.sort();
    (labels, changed)
}

/// The beginning of the names of the slices of a service, or of an `Endpoints`.
pub(crate) fn name_prefix(name: &str) -> String {
    // A dash more must not make the name too long.
    if name.len() < 253 { format!("{name}-") } else { name.to_owned() }
}

fn new_slice(service: &Service, ports: &Value, family: &str) -> Value {
    let metadata = &service.metadata;
    let (name, uid, namespace) = (metadata.name.clone(), metadata.uid.clone(), metadata.namespace.clone());
    let (labels, _) = labels(service, None);
    let prefix = name_prefix(&name);
    let ports = ports.clone();
    api::json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": prefix,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": family,
        "endpoints": [],
        "ports": ports,
    })
}

/// Converts a plan to actions: slices that would be deleted are reused for new ones.
fn finish(
    service: &Service,
    mut plan: Plan,
    trigger: Option<Timestamp>,
    family: &'static str,
    topology: &mut Topology,
    actions: &mut Vec<Action>,
) {
    let key = edit::key(&service.metadata);
    let reported = if topology::is_wanted(service) {
        topology.hint(&key, family, &mut plan.create, &mut plan.update, &plan.unchanged)
    } else {
        let reported = topology.unwanted(&key, family);
        endpoint::hint(service, &mut plan.create, &mut plan.update, &plan.unchanged);
        reported
    };
    let mut delete_rest = Vec::new();
    for slice in std::mem::take(&mut plan.delete) {
        if is_owned_by(&slice, service)
            && let Some(mut new) = plan.create.pop()
        {
            let mut metadata = slice.get("metadata").cloned().unwrap_or_default();
            let labels = new.at(&["metadata", "labels"]).cloned().unwrap_or_default();
            metadata.set_at(&["labels"], labels);
            new.set_at(&["metadata"], metadata);
            plan.update.push(new);
        } else {
            delete_rest.push(slice);
        }
    }
    plan.delete = delete_rest;
    let stamp = |object: &mut Value| {
        let at = ["metadata", "annotations", services::TRIGGER_TIME];
        object.set_or_remove_at(&at, trigger.map(|at| Text::from(at.to_string())));
        if object.object_at(&["metadata", "annotations"]).is_some_and(Object::is_empty) {
            object.remove_at(&["metadata", "annotations"]);
        }
    };
    // A service that is going needs no new slices: they would only be collected.
    if !service.metadata.is_deleting() {
        for mut object in plan.create {
            stamp(&mut object);
            actions.push(Action::Create { resource: SLICES, object });
        }
    }
    for mut object in plan.update {
        stamp(&mut object);
        actions.push(Action::Update { resource: SLICES, object });
    }
    actions.extend(plan.delete.iter().map(delete));
    actions.extend(reported.map(|(severity, reason, message)| {
        Action::Event(Event { about: client::events::reference(service), severity, reason, message })
    }));
}

/// Deletes a slice.
pub(crate) fn delete(slice: &Value) -> Action {
    Action::Delete {
        resource: SLICES,
        namespace: metadata::namespace(slice).into(),
        name: metadata::name(slice).into(),
        uid: slice.text_at(&["metadata", "uid"]).into(),
        how: Deletion::default(),
    }
}

#[cfg(test)]
mod tests;
