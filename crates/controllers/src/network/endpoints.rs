//! Writes the `Endpoints` of services with a selector: the older form, one object for all addresses.
//!
//! Follows Kubernetes `pkg/controller/endpoint`.

mod subsets;

use std::sync::{Arc, Weak};

use api::core::v1::{Endpoints, Pod, Service};
use api::json::{Object, Value};
use api::metadata;
use api::time::Timestamp;
use api::well_known::LABEL_ENDPOINTS_MANAGED_BY;
use client::controller::{Controller, Next};
use client::informer::{Change, Informer, Key};
use client::objects::Deletion;
use client::resources::ServedView as _;
use client::{Document, Queue};

use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::manager::Context;
use crate::network::services::WatchedServices;
use crate::{machinery::edit, machinery::outcome, machinery::pods, network::services};

pub(crate) use subsets::Subsets;

const CONTROLLER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// More addresses than these are not written.
const CAPACITY: usize = 1000;

/// Number of concurrent workers.
const WORKERS: usize = 5;

struct EndpointsController {
    watched: WatchedServices,
    endpoints: Informer<Document<Endpoints>>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let watched = WatchedServices::new(&context.informers);
    let endpoints = context.informers.all::<Document<Endpoints>>();
    let executor = context.executor();
    executor.expectations().follow(&endpoints, &Endpoints::RESOURCE.plural);
    let services = watched.services.clone();
    let runner = watched
        .watch(Controller::new(context.name, &context.runtime))
        .watch_changes(&endpoints, move |change| {
            // Kubernetes: endpoints that someone makes without a service are left alone.
            let key = edit::key(change.newest().metadata());
            let matters = matches!(change, Change::Deleted(_)) || services.store().get_key(&key).is_some();
            matters.then_some(key)
        })
        .workers(WORKERS);
    let controller = Arc::new(EndpointsController { watched, endpoints, executor });
    let left_over = controller.clone().look_for_left_over(Arc::downgrade(runner.queue()));
    let work = runner.run(move |key| {
        let controller = controller.clone();
        async move { controller.reconcile(key).await }
    });
    tokio::select! {
        () = work => {}
        () = left_over => {}
    }
}

impl EndpointsController {
    /// Queues endpoints once at the start: services may have been deleted while the controller was not running.
    /// Never ends.
    async fn look_for_left_over(self: Arc<Self>, queue: Weak<Queue<Key>>) {
        self.endpoints.synced().await;
        if let Some(queue) = queue.upgrade() {
            let all = self.endpoints.store().list();
            all.iter().filter(|it| is_left_over(it)).for_each(|it| queue.add(edit::key(it.metadata())));
        }
        std::future::pending().await
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let current = self.endpoints.store().get_key(&key);
        let Some(service) = self.watched.services.store().get_key(&key) else {
            self.watched.forget(&key);
            let actions = current.map(|it| delete(&it)).into_iter().collect();
            return outcome::next(self.executor.perform(&key, actions).await);
        };
        let selected = self.watched.pods_of(&service);
        let trigger = self.watched.trigger(&service, &selected);
        let current = current.as_ref().map(|it| it.value());
        let actions = reconcile(&service, selected.iter().map(|pod| &**pod), current, trigger);
        outcome::next(self.executor.perform(&key, actions).await)
    }
}

/// Whether Endpoints without a Service are deleted. Those that serve as locks of leader elections are kept.
fn is_left_over(endpoints: &Document<Endpoints>) -> bool {
    metadata::annotation(endpoints.value(), services::LEADER).is_none()
}

fn delete(endpoints: &Document<Endpoints>) -> Action {
    let metadata = endpoints.metadata();
    Action::Delete {
        resource: Endpoints::RESOURCE,
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        how: Deletion::default(),
    }
}

/// Returns the actions for a service, given its pods and the existing endpoints. `trigger` is the time of the
/// newest change.
fn reconcile<'a>(
    service: &Service,
    selected: impl IntoIterator<Item = &'a Pod>,
    current: Option<&Value>,
    trigger: Option<Timestamp>,
) -> Vec<Action> {
    if !services::is_published(service) {
        return Vec::new();
    }
    let mut subsets = wanted(service, selected).pack();
    let mut labels = services::labels_value(&service.metadata.labels);
    labels.remove(services::HEADLESS);
    if !services::has_address(service) {
        labels.insert(services::HEADLESS, "");
    }
    labels.insert(LABEL_ENDPOINTS_MANAGED_BY, CONTROLLER);
    labels.sort();
    if current.is_some_and(|current| is_current(current, &subsets, &labels)) {
        return Vec::new();
    }
    let mut object = current.cloned().unwrap_or_else(|| {
        let (name, namespace) = (service.metadata.name.clone(), service.metadata.namespace.clone());
        api::json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name, "namespace": namespace}})
    });
    let truncated = subsets::truncate(&mut subsets, CAPACITY);
    object.set_at(&["metadata", "labels"], labels);
    let annotation = |key: &'static str| ["metadata", "annotations", key];
    object.set_or_remove_at(&annotation(OVER_CAPACITY), truncated.then_some("truncated"));
    object.set_or_remove_at(&annotation(services::TRIGGER_TIME), trigger.map(|at| at.to_string()));
    if object.object_at(&["metadata", "annotations"]).is_some_and(Object::is_empty) {
        object.remove_at(&["metadata", "annotations"]);
    }
    object.set_or_remove_at(&["subsets"], (!subsets.is_empty()).then_some(subsets));
    let resource = Endpoints::RESOURCE;
    vec![if current.is_some() { Action::Update { resource, object } } else { Action::Create { resource, object } }]
}

fn wanted<'a>(service: &Service, selected: impl IntoIterator<Item = &'a Pod>) -> Subsets {
    let mut subsets = Subsets::default();
    let all = service.spec.publish_not_ready_addresses;
    let family = service.spec.ip_families.first().map(|family| family == "IPv6");
    for pod in selected {
        if !services::is_endpoint(pod, all) {
            continue;
        }
        let ipv6 = family.unwrap_or_else(|| {
            let of = if services::has_address(service) { &service.spec.cluster_ip } else { &pod.status.pod_ip };
            of.contains(':')
        });
        let Some(ip) = services::addresses(pod, ipv6).first().map(ToString::to_string) else { continue };
        let mut address = api::json!({"ip": ip});
        if let Some(fields) = address.as_object_mut() {
            if let Some(hostname) = services::hostname(pod, service) {
                fields.insert("hostname", hostname.clone());
            }
            fields.insert("nodeName", pod.spec.node_name.clone());
            fields.insert("targetRef", services::target_ref(pod));
        }
        let ready = all || pods::is_ready(pod);
        if service.spec.ports.is_empty() && service.spec.cluster_ip == "None" {
            subsets.add(&address, None, ready);
        }
        for port in &service.spec.ports {
            let Some(number) = services::target_port(pod, port) else { continue };
            let mut object = Object::new();
            if !port.name.is_empty() {
                object.insert("name", port.name.clone());
            }
            object.insert("port", number);
            object.insert("protocol", port.protocol.clone());
            if let Some(app) = &port.app_protocol {
                object.insert("appProtocol", app.clone());
            }
            subsets.add(&address, Some(&Value::Object(object)), ready);
        }
    }
    subsets
}

/// Whether the existing endpoints have the same contents.
fn is_current(current: &Value, subsets: &[Value], labels: &Object) -> bool {
    let mut known = Subsets::default();
    known.add_document(current.get("subsets"));
    let mut known_labels = current.object_at(&["metadata", "labels"]).cloned().unwrap_or_default();
    let mut wanted_labels = labels.clone();
    // Kubernetes: this label alone is not a reason to write.
    known_labels.remove(services::HEADLESS);
    wanted_labels.remove(services::HEADLESS);
    known_labels == wanted_labels && metadata::annotation(current, OVER_CAPACITY).is_none() && known.pack() == subsets
}

#[cfg(test)]
mod tests {
    use api::json::from_value;

    use super::*;

    fn service(spec: &Value) -> Service {
        let spec = spec.clone();
        let service =
            api::json!({"metadata": {"name": "web", "namespace": "a", "labels": {"team": "x"}}, "spec": spec});
        from_value(&service).expect("a service")
    }

    fn pod(name: &str, ready: bool) -> Pod {
        let status = if ready { "True" } else { "False" };
        let uid = format!("uid-{name}");
        from_value(&api::json!({
            "metadata": {"name": name, "namespace": "a", "uid": uid},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": status}]},
        }))
        .expect("a pod")
    }

    #[track_caller]
    fn written(actions: &[Action]) -> &Value {
        match actions {
            [Action::Create { object, .. } | Action::Update { object, .. }] => object,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn written_once_and_again_only_when_something_changed() {
        let spec = api::json!({"selector": {"app": "web"}, "clusterIP": "1.2.3.4", "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]});
        let service = service(&spec);
        let actions = reconcile(&service, [&pod("p", true)], None, None);
        let object = written(&actions);
        let labels = api::json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller", "team": "x"});
        assert_eq!(object.at(&["metadata", "labels"]), Some(&labels));
        assert_eq!(
            object.get("subsets"),
            Some(&api::json!([{"addresses": [{"ip": "10.0.0.1", "nodeName": "n",
                "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "uid-p"}}],
                "ports": [{"port": 8080, "protocol": "TCP"}]}]))
        );
        assert_eq!(reconcile(&service, [&pod("p", true)], Some(object), None), []);
        let unready = reconcile(&service, [&pod("p", false)], Some(object), None);
        assert!(written(&unready).at(&["subsets"]).is_some_and(|it| it.to_string().contains("notReadyAddresses")));
        let mut gone = pod("p", true);
        gone.status.phase = "Failed".into();
        let empty = reconcile(&service, [&gone], Some(object), None);
        assert_eq!(written(&empty).get("subsets"), None);
    }

    #[test]
    fn a_headless_service_needs_no_ports() {
        let service = service(&api::json!({"selector": {"app": "web"}, "clusterIP": "None"}));
        let actions = reconcile(&service, [&pod("p", true)], None, None);
        let object = written(&actions);
        assert_eq!(object.str_at(&["metadata", "labels", services::HEADLESS]), Some(""));
        assert_eq!(object.get("subsets").and_then(Value::as_array).map(<[Value]>::len), Some(1));
        assert_eq!(reconcile(&Service::default(), [&pod("p", true)], None, None), [], "without a selector");
    }
}
