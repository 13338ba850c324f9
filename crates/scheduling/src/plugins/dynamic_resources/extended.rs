//! Extended resources that are backed by devices (KEP-5004).
//!
//! A pod requests such a resource like any other. On a node that does not have it, the devices of a class serve it:
//! the search gets one more claim, with a request for each container, which exists only in memory until the pod is
//! bound. Follows Kubernetes' `extendeddynamicresources.go`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Container, ContainerExtendedResourceRequest, PodSpec};
use api::json::Text;
use api::meta::v1::OwnerReference;
use api::resource::v1::{
    DeviceClass, DeviceRequest, EXTENDED_RESOURCE_CLAIM, ExactDeviceRequest, IMPLICIT_RESOURCE_PREFIX, ResourceClaim,
};
use matching::resources::is_extended;

use super::ClaimFilter;
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo, pending_claim};
use crate::framework::{Filter, Score, Status};

/// Name of the claim before it is created: not a valid name, so that no other claim has it.
const NAME_IN_MEMORY: &str = "<extended-resources>";

/// Returns the class whose devices serve a resource.
pub(in crate::plugins) fn class_of<'c>(cluster: &'c Cluster, resource: &str) -> Option<&'c DeviceClass> {
    let classes = &cluster.objects.device_classes;
    match resource.strip_prefix(IMPLICIT_RESOURCE_PREFIX) {
        Some(name) => classes.get(&(Text::default(), name.into())).map(|class| &**class),
        None => DeviceClass::serving(classes.values().map(|class| &**class), resource),
    }
}

/// Returns the requested resources of a pod that devices or nodes provide, if devices of a class serve one of them.
pub(super) fn of<'c>(pod: &'c PodInfo, cluster: &Cluster) -> Vec<&'c str> {
    let requests = pod.shape.demand.requests.scalars().filter(|(_, amount)| *amount > 0);
    let names = requests.map(|(name, _)| name.as_str());
    let names = names.filter(|name| is_extended(name) || name.starts_with(IMPLICIT_RESOURCE_PREFIX));
    let names: Vec<&str> = names.collect();
    if names.iter().any(|name| class_of(cluster, name).is_some()) { names } else { Vec::new() }
}

/// Returns the claim that an earlier attempt created for the pod.
pub(super) fn stale_claim<'c>(pod: &PodInfo, cluster: &'c Cluster) -> Option<&'c Arc<ResourceClaim>> {
    let name = cluster.objects.devices.as_ref()?.extended_claim(&pod.uid)?;
    cluster.objects.resource_claims.get(name)
}

/// The filter for a pod that requests such resources, and possibly devices by claims as well.
///
/// Nodes differ in the resources that they have themselves: there is one search for each set of other resources.
pub(super) struct ExtendedFilter<'c> {
    pub(super) pod: &'c PodInfo,
    pub(super) cluster: &'c Cluster,
    pub(super) resources: Vec<&'c str>,
    pub(super) timeout: Option<Duration>,
    searches: RefCell<BTreeMap<Vec<&'c str>, Rc<ClaimFilter<'c>>>>,
}

impl<'c> ExtendedFilter<'c> {
    pub(super) fn new(
        pod: &'c PodInfo,
        cluster: &'c Cluster,
        resources: Vec<&'c str>,
        timeout: Option<Duration>,
    ) -> Self {
        ExtendedFilter { pod, cluster, resources, timeout, searches: RefCell::default() }
    }

    /// Returns the search for the devices of the pod on a node; `None` if it needs none there.
    ///
    /// # Errors
    /// The pod does not fit the node.
    pub(super) fn on(&self, node: &NodeInfo) -> Result<Option<Rc<ClaimFilter<'c>>>, Status> {
        if stale_claim(self.pod, self.cluster).is_some() {
            return Err(Status::unresolvable("cannot schedule extended resource claim"));
        }
        let allocatable = &node.object.allocatable;
        let mut by_devices = Vec::new();
        for name in &self.resources {
            if allocatable.get(name) == 0 && class_of(self.cluster, name).is_some() {
                by_devices.push(*name);
            } else if allocatable.scalar(name).is_none() {
                return Err(Status::unresolvable("cannot fit resource"));
            }
        }
        if by_devices.is_empty() && self.pod.spec().resource_claims.is_empty() {
            return Ok(None);
        }
        if let Some(search) = self.searches.borrow().get(&by_devices) {
            return Ok(Some(search.clone()));
        }
        let claim = claim(self.pod, self.cluster, &by_devices);
        let search = ClaimFilter::with(self.pod, self.cluster, self.timeout, claim)?;
        let search = search.map(Rc::new);
        if let Some(search) = &search {
            self.searches.borrow_mut().insert(by_devices, search.clone());
        }
        Ok(search)
    }

    fn judge(&self, node: &NodeInfo) -> Result<(), Status> {
        self.on(node)?.map_or(Ok(()), |search| search.judge(node))
    }
}

impl Filter for ExtendedFilter<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        self.judge(node)
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(UnchangedFilter(self))
    }
}

/// A filter with unchanged results, regardless of hypothetically removed pods.
struct UnchangedFilter<'s, 'c>(&'s ExtendedFilter<'c>);

impl Filter for UnchangedFilter<'_, '_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        self.0.judge(node)
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(UnchangedFilter(self.0))
    }
}

impl Score for ExtendedFilter<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        self.on(node)?.map_or(Ok(0), |search| search.score(node))
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [(NodeId, i64)]) {
        crate::framework::default_normalize(scores, false);
    }
}

/// The claim in memory, for the resources that devices have to provide; `None` if there are none.
fn claim(pod: &PodInfo, cluster: &Cluster, resources: &[&str]) -> Option<PendingClaim> {
    let requests = requests(pod.spec(), resources, |name| class_of(cluster, name).map(|it| it.metadata.name.clone()));
    if requests.devices.is_empty() {
        return None;
    }
    let mut claim = ResourceClaim::default();
    claim.metadata.name = NAME_IN_MEMORY.into();
    claim.metadata.generate_name = format!("{}-extended-resources-", pod.name).into();
    claim.metadata.namespace = pod.namespace().clone();
    claim.metadata.uid = pending_claim(&pod.uid);
    claim.metadata.owner_references = vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        controller: Some(true),
        ..OwnerReference::default()
    }];
    claim.metadata.annotations.insert(EXTENDED_RESOURCE_CLAIM.into(), "true".into());
    claim.spec.devices.requests = requests.devices;
    Some(PendingClaim { claim: Arc::new(claim), mappings: requests.mappings })
}

/// Whether a claim is the one in memory.
pub(super) fn is_in_memory(claim: &ResourceClaim) -> bool {
    claim.metadata.name == NAME_IN_MEMORY
}

/// The device requests of a pod, and the containers that they serve.
#[derive(Debug, Default)]
struct Requests {
    devices: Vec<DeviceRequest>,
    mappings: Vec<ContainerExtendedResourceRequest>,
}

/// A claim in memory.
pub(super) struct PendingClaim {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) mappings: Vec<ContainerExtendedResourceRequest>,
}

/// Returns the requests for some resources of a pod.
///
/// Containers that run side by side have requests of their own. Init containers run before the later ones, one after
/// the other: they use the devices of containers that come later, and share one request for what they need beyond.
fn requests(spec: &PodSpec, resources: &[&str], class: impl Fn(&str) -> Option<Text>) -> Requests {
    let containers: Vec<&Container> = spec.init_containers.iter().chain(&spec.containers).collect();
    let is_short = |index: usize, container: &Container| {
        index < spec.init_containers.len() && container.restart_policy.as_deref() != Some("Always")
    };
    let mut found = Requests::default();
    let mut names = resources.to_vec();
    names.sort_unstable();
    for resource in names {
        let Some(class) = class(resource) else { continue };
        let mut long_lived: Vec<(usize, DeviceRequest)> = Vec::new();
        for (index, container) in containers.iter().enumerate().filter(|(index, it)| !is_short(*index, it)) {
            let Some(amount) = amount(container, resource) else { continue };
            let request = request(index, container, resource, &class, amount);
            found.mappings.push(mapping(container, resource, &request.name));
            long_lived.push((index, request));
        }
        let mut widest: Option<DeviceRequest> = None;
        let mut shared = Vec::new();
        for (index, container) in containers.iter().enumerate().filter(|(index, it)| is_short(*index, it)) {
            let Some(amount) = amount(container, resource) else { continue };
            let mut reused = 0_i64;
            for (_, later) in long_lived.iter().filter(|(other, _)| *other >= index) {
                if reused >= amount {
                    break;
                }
                reused = reused.saturating_add(count(later));
                shared.push((*container, Some(later.name.clone())));
            }
            if reused < amount {
                shared.push((*container, None));
                let request = request(index, container, resource, &class, amount.saturating_sub(reused));
                if widest.as_ref().is_none_or(|widest| count(widest) < count(&request)) {
                    widest = Some(request);
                }
            }
        }
        for (container, name) in shared {
            let name = name.or_else(|| widest.as_ref().map(|request| request.name.clone())).unwrap_or_default();
            found.mappings.push(mapping(container, resource, &name));
        }
        found.devices.extend(widest);
        found.devices.extend(long_lived.into_iter().map(|(_, request)| request));
    }
    found.devices.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().map_or(0, |exactly| exactly.count)
}

/// The amount of a resource that a container requests; `None` for nothing, and for what is not a whole number.
fn amount(container: &Container, resource: &str) -> Option<i64> {
    container.resources.requests.get(resource)?.as_i64().filter(|amount| *amount > 0)
}

fn request(index: usize, container: &Container, resource: &str, class: &Text, count: i64) -> DeviceRequest {
    let mut names: Vec<&str> = container.resources.requests.keys().map(Text::as_str).collect();
    names.sort_unstable();
    let place = names.iter().position(|name| *name == resource).unwrap_or(0);
    DeviceRequest {
        name: format!("container-{index}-request-{place}").into(),
        exactly: Some(ExactDeviceRequest {
            device_class_name: class.clone(),
            allocation_mode: "ExactCount".into(),
            count,
            ..ExactDeviceRequest::default()
        }),
        first_available: Vec::new(),
    }
}

fn mapping(container: &Container, resource: &str, request: &Text) -> ContainerExtendedResourceRequest {
    ContainerExtendedResourceRequest {
        container_name: container.name.clone(),
        resource_name: resource.into(),
        request_name: request.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests as `NAME=COUNT`, mappings as `CONTAINER=REQUEST`.
    #[track_caller]
    fn check(init: &[(&str, i64, bool)], containers: &[(&str, i64)], expected: &str) {
        let container = |name: &str, amount: i64, is_sidecar: bool| {
            let policy = if is_sidecar { r#", "restartPolicy": "Always""# } else { "" };
            format!(r#"{{"name": "{name}", "resources": {{"requests": {{"example.com/gpu": "{amount}"}}}}{policy}}}"#)
        };
        let init: Vec<String> = init.iter().map(|(name, amount, always)| container(name, *amount, *always)).collect();
        let containers: Vec<String> = containers.iter().map(|(name, amount)| container(name, *amount, false)).collect();
        let text = format!(r#"{{"initContainers": [{}], "containers": [{}]}}"#, init.join(","), containers.join(","));
        let spec: PodSpec = api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
        let found = requests(&spec, &["example.com/gpu"], |_| Some("gpu".into()));
        let short = |name: &Text| name.replace("container-", "").replace("-request-0", "");
        let devices = found.devices.iter().map(|it| format!("{}={}", short(&it.name), count(it)));
        let mappings = found.mappings.iter().map(|it| format!("{}={}", it.container_name, short(&it.request_name)));
        assert_eq!(devices.chain(mappings).collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn containers_side_by_side_have_requests_of_their_own() {
        check(&[], &[("a", 2), ("b", 0), ("c", 1)], "0=2 2=1 a=0 c=2");
        check(&[("sidecar", 1, true)], &[("a", 2)], "0=1 1=2 sidecar=0 a=1");
    }

    #[test]
    fn init_containers_use_the_devices_of_later_containers() {
        check(&[("i", 2, false)], &[("a", 1), ("b", 3)], "1=1 2=3 a=1 b=2 i=1 i=2");
        check(&[("i", 1, false)], &[("a", 1), ("b", 3)], "1=1 2=3 a=1 b=2 i=1");
        // Beyond that, they share the largest request of one of them.
        check(&[("i", 2, false), ("j", 5, false)], &[("a", 1)], "1=4 2=1 a=2 i=2 i=1 j=2 j=1");
        // A sidecar that starts earlier keeps its devices.
        check(&[("s", 2, true), ("i", 2, false)], &[], "0=2 1=2 s=0 i=1");
    }
}
