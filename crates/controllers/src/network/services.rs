//! Shared rules for publishing endpoints of services: pods, addresses, ports and times.
//!
//! [`WatchedServices`] are the informers of their controllers. Follows Kubernetes
//! `staging/src/k8s.io/endpointslice` (`utils.go`, `util/`) and `pkg/api/v1/endpoints`.

use locks::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::core::v1::{Pod, Service, ServicePort};
use api::int_or_string::IntOrString;
use api::json::{Object, Text, Value};
use api::meta::v1::StringMap;
use api::time::Timestamp;
pub(crate) use api::well_known::ANNOTATION_TRIGGER_TIME as TRIGGER_TIME;
use client::controller::{Controller, own};
use client::informer::{Change, Key};
use client::{Informer, Informers};

use crate::machinery::pods;

/// Label of the endpoints of services without a cluster IP.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";
/// Marks objects by which components elect a leader.
pub(crate) const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// Whether endpoints of the service are made from pods.
pub(crate) fn is_published(service: &Service) -> bool {
    service.spec.service_type != "ExternalName" && !service.spec.selector.is_empty()
}

/// Whether the service selects pods with these labels.
pub(crate) fn selects(service: &Service, labels: &StringMap) -> bool {
    let selector = &service.spec.selector;
    !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Whether the service has a cluster IP.
pub(crate) fn has_address(service: &Service) -> bool {
    !matches!(service.spec.cluster_ip.as_str(), "" | "None")
}

/// Whether a pod can be reached at all.
pub(crate) fn is_endpoint(pod: &Pod, include_terminating: bool) -> bool {
    let has_ip = !pod.status.pod_ip.is_empty() || !pod.status.pod_ips.is_empty();
    !pod.is_terminal() && has_ip && (include_terminating || !pod.metadata.is_deleting())
}

/// Whether a change of a pod can change an endpoint of it.
pub(crate) fn endpoint_changed(old: &Pod, new: &Pod) -> bool {
    old.metadata.labels != new.metadata.labels
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.spec.hostname != new.spec.hostname
        || old.spec.subdomain != new.spec.subdomain
        || old.status.pod_ips != new.status.pod_ips
        || old.is_terminal() != new.is_terminal()
        || pods::is_ready(old) != pods::is_ready(new)
}

/// The pod's addresses of one family, in the usual form.
pub(crate) fn addresses(pod: &Pod, ipv6: bool) -> Vec<IpAddr> {
    let parsed = pod.status.pod_ips.iter().filter_map(|it| it.ip.parse::<IpAddr>().ok());
    parsed.filter(|ip| ip.is_ipv6() == ipv6).collect()
}

/// The name by which the pod is known below the service's.
pub(crate) fn hostname<'a>(pod: &'a Pod, service: &Service) -> Option<&'a Text> {
    let known = !pod.spec.hostname.is_empty()
        && pod.spec.subdomain == service.metadata.name
        && pod.metadata.namespace == service.metadata.namespace;
    known.then_some(&pod.spec.hostname)
}

/// The number of a service's port at a pod; nothing if the pod has no port of that name.
pub(crate) fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let sidecars = pod.spec.init_containers.iter().filter(|it| it.restart_policy.as_deref() == Some("Always"));
    let ports = pod.spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    let mut named = ports.filter(|it| it.name.as_str() == name.as_str() && it.protocol == port.protocol);
    named.next().map(|it| it.container_port)
}

/// The reference of an endpoint to its pod.
pub(crate) fn target_ref(pod: &Pod) -> Value {
    let metadata = &pod.metadata;
    let (namespace, name, uid) = (metadata.namespace.clone(), metadata.name.clone(), metadata.uid.clone());
    api::json!({"kind": "Pod", "namespace": namespace, "name": name, "uid": uid})
}

/// Sorts ports as Kubernetes does: by a hash of their Go representation.
pub(crate) fn sort_ports(ports: &mut [Value], in_slice: bool) {
    ports.sort_by_cached_key(|port| port_hash(port, in_slice));
}

fn port_hash(port: &Value, in_slice: bool) -> u128 {
    let text = |field| port.str_at(&[field]);
    let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
    let protocol = text("protocol").unwrap_or_default();
    let app = text("appProtocol").unwrap_or("<nil>");
    let name = text("name").unwrap_or_default();
    let printed = if in_slice {
        format!(
            "(v1.EndpointPort){{Name:(*string){name} Protocol:(*v1.Protocol){protocol} Port:(*int32){number} AppProtocol:(*string){app}}}"
        )
    } else {
        format!(
            "(v1.EndpointPort){{Name:(string){name} Port:(int32){number} Protocol:(v1.Protocol){protocol} AppProtocol:(*string){app}}}"
        )
    };
    fnv_128(printed.as_bytes())
}

/// FNV-1a over 128 bits.
fn fnv_128(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// Labels as a document holds them.
pub(crate) fn labels_value<'a>(labels: impl IntoIterator<Item = (&'a Text, &'a Text)>) -> Object {
    labels.into_iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The index of informers by namespace.
pub(crate) const BY_NAMESPACE: &str = "namespace";

/// Services, their pods and the times of changes, as the controllers of endpoints share them.
pub(crate) struct WatchedServices {
    pub(crate) services: Informer<Service>,
    pub(crate) pods: Informer<Pod>,
    times: Mutex<TriggerTimes>,
}

impl WatchedServices {
    /// The informers, with indexes of pods and services.
    pub(crate) fn new(informers: &Informers) -> Self {
        let (services, pods) = (informers.all::<Service>(), informers.all::<Pod>());
        services.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
        pods.store().add_index(BY_NAMESPACE, |it| vec![it.metadata.namespace.clone()]);
        Self { services, pods, times: Mutex::default() }
    }

    /// Adds the services, and those whose endpoints a change of a pod may change.
    pub(crate) fn watch(&self, runner: Controller) -> Controller {
        let services = self.services.clone();
        runner.watch(&self.services, own).watch_changes(&self.pods, move |change| {
            let both: Vec<&StringMap> = match change {
                Change::Updated { old, new } if !endpoint_changed(old, new) => Vec::new(),
                Change::Updated { old, new } => vec![&old.metadata.labels, &new.metadata.labels],
                Change::Added(pod) | Change::Deleted(pod) => vec![&pod.metadata.labels],
            };
            if both.is_empty() {
                return Vec::new();
            }
            let near = services.store().by_index(BY_NAMESPACE, &change.newest().metadata.namespace);
            let hit = |service: &&Arc<Service>| both.iter().any(|labels| selects(service, labels));
            near.iter().filter(hit).filter_map(|service| own(&**service)).collect::<Vec<Key>>()
        })
    }

    /// The pods of a service, by name.
    pub(crate) fn pods_of(&self, service: &Service) -> Vec<Arc<Pod>> {
        let near = self.pods.store().by_index(BY_NAMESPACE, &service.metadata.namespace);
        near.into_iter().filter(|pod| selects(service, &pod.metadata.labels)).collect()
    }

    /// Time of the newest change.
    pub(crate) fn trigger(&self, service: &Service, selected: &[Arc<Pod>]) -> Option<Timestamp> {
        let mut times = self.times.lock();
        times.look(service, selected.iter().map(|pod| &**pod))
    }

    /// Removes a deleted service.
    pub(crate) fn forget(&self, key: &Key) {
        self.times.lock().forget(&key.namespace, &key.name);
    }
}

/// Creation time of a service, and the times at which its pods became ready or unready.
type Times = (Option<Timestamp>, HashMap<Text, Timestamp>);

/// Times of changes.
#[derive(Debug, Default)]
pub(crate) struct TriggerTimes {
    known: HashMap<(Text, Text), Times>,
}

impl TriggerTimes {
    /// The earliest change since the last look; nothing if there was none that has a time.
    pub(crate) fn look<'a>(
        &mut self,
        service: &Service,
        selected: impl IntoIterator<Item = &'a Pod>,
    ) -> Option<Timestamp> {
        if !is_published(service) {
            // It is published for the first time.
            return None;
        }
        let key = (service.metadata.namespace.clone(), service.metadata.name.clone());
        let created = service.metadata.creation_timestamp;
        let time = |pod: &Pod| pods::condition(pod, "Ready").and_then(|ready| ready.last_transition_time);
        let ready: HashMap<Text, Timestamp> =
            selected.into_iter().filter_map(|pod| Some((pod.metadata.name.clone(), time(pod)?))).collect();
        let Some((old_created, old_ready)) = self.known.insert(key, (created, ready.clone())) else { return created };
        let changed = ready.iter().filter(|(name, at)| old_ready.get(*name).is_none_or(|old| *at > old));
        let recreated = created.filter(|at| old_created.is_none_or(|old| *at > old));
        changed.map(|(_, at)| *at).chain(recreated).min()
    }

    /// Removes a deleted service.
    pub(crate) fn forget(&mut self, namespace: &str, name: &str) {
        self.known.remove(&(namespace.into(), name.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_the_order_that_kubernetes_gives_them() {
        let (a, b) = (
            api::json!({"name": "a", "port": 8080, "protocol": "TCP"}),
            api::json!({"name": "b", "port": 53, "protocol": "UDP"}),
        );
        let mut ports = [a.clone(), b.clone()];
        sort_ports(&mut ports, false);
        assert_eq!(ports, [b.clone(), a.clone()]);
        let mut ports = [b.clone(), a.clone()];
        sort_ports(&mut ports, true);
        assert_eq!(ports, [a, b]);
    }

    #[test]
    fn the_trigger_is_the_service_and_then_the_earliest_pod() {
        let service: Service = api::json::from_value(
            &api::json!({"metadata": {"name": "s", "namespace": "a", "creationTimestamp": "2026-01-01T00:00:10Z"},
                "spec": {"selector": {"app": "web"}}}),
        )
        .expect("a service");
        let mut bare = service.clone();
        bare.spec.selector.clear();
        let pod = |name: &str, seconds: i64| -> Pod {
            let time = Timestamp { seconds, nanos: 0 }.to_string();
            let pod = api::json!({"metadata": {"name": name}, "status": {"conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": time}]}});
            api::json::from_value(&pod).expect("a pod")
        };
        let mut times = TriggerTimes::default();
        let (one, two) = (pod("one", 5), pod("two", 9));
        assert_eq!(times.look(&bare, [&one]), None, "without a selector it does not count as seen");
        assert_eq!(times.look(&service, [&one]), service.metadata.creation_timestamp);
        assert_eq!(times.look(&service, [&one]), None);
        assert_eq!(times.look(&service, [&one, &two]), Some(Timestamp { seconds: 9, nanos: 0 }));
        assert_eq!(times.look(&service, [&two]), None, "a pod that went has no time");
    }
}
