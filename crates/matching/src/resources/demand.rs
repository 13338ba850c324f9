//! What a pod takes of a node, while it is resized in place, too.
//!
//! Follows `PodInfo.CalculateResource` of Kubernetes' scheduler: during a resize the largest of what is wanted, allocated and
//! in use counts, unless the resize can never be done. For scores, a container that asks for nothing still counts a little.

use std::borrow::Cow;

use api::core::v1::{Container, ContainerStatus, Pod, ResourceList};
use api::quantity::{Format, Quantity};

use super::{Resources, add, is_pod_level, of_containers, raise, replace};

/// What a pod takes of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// What the pod requests.
    pub requests: Resources,
    /// CPU for scores, in thousandths: a container without a request counts a tenth of one.
    pub nonzero_milli_cpu: i64,
    /// Memory for scores: a container without a request counts 200 MiB.
    pub nonzero_memory: i64,
    /// For the scores of a pod that is to be placed: as above, and as if the pod asked for nothing as a whole. Kubernetes'
    /// NodeResourcesFit reckons so.
    pub scored: Resources,
}

const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 << 20;

impl Demand {
    /// Whether what the pod takes may differ from what its spec asks for: it is being resized.
    pub fn may_differ(pod: &Pod) -> bool {
        has_resources_in_status(pod) || is_resize_infeasible(pod)
    }

    /// What the pod takes.
    pub fn of(pod: &Pod) -> Self {
        let requests = requests(pod, &ResourceList::new(), true);
        let sets_pod_level =
            pod.spec.resources.as_ref().is_some_and(|it| it.requests.keys().any(|it| is_pod_level(it)));
        let defaults = ResourceList::from([
            ("cpu".into(), Quantity::new_milli(DEFAULT_MILLI_CPU, Format::DecimalSi)),
            ("memory".into(), Quantity::new(DEFAULT_MEMORY, Format::BinarySi)),
        ]);
        let scored = self::requests(pod, &defaults, false);
        // A pod that asks as a whole gets defaults only for what it asks nothing of.
        let mut missing = defaults;
        missing.retain(|name, _| !(sets_pod_level && requests.contains_key(name)));
        let nonzero = if sets_pod_level { self::requests(pod, &missing, true) } else { scored.clone() };
        let amount = |name: &str| nonzero.get(name).cloned().unwrap_or_default();
        Demand {
            requests: Resources::of(&requests),
            nonzero_milli_cpu: amount("cpu").milli_value(),
            nonzero_memory: amount("memory").value(),
            scored: Resources::of(&scored),
        }
    }
}

/// The pod's requests; `missing` stands for what containers do not ask for, `pod_level` for what the pod asks as a whole.
fn requests(pod: &Pod, missing: &ResourceList, pod_level: bool) -> ResourceList {
    let spec = &pod.spec;
    let with_missing = |own: Cow<'_, ResourceList>| {
        let mut own = own;
        for (name, amount) in missing {
            if !own.contains_key(name) {
                own.to_mut().insert(name.clone(), amount.clone());
            }
        }
        own.into_owned()
    };
    let wanted = |container: &Container| Cow::Owned(with_missing(Cow::Borrowed(&container.resources.requests)));
    let is_infeasible = is_resize_infeasible(pod);
    let mut sum = if has_resources_in_status(pod) || is_infeasible {
        let allocated = |container: &Container| {
            let status = status_of(pod, container);
            let fallback = (!is_infeasible).then_some(&container.resources.requests);
            let own = status.and_then(|it| it.allocated_resources.as_ref()).or(fallback);
            Cow::Owned(with_missing(own.map_or_else(Cow::default, Cow::Borrowed)))
        };
        let in_use = |container: &Container| {
            let status = status_of(pod, container);
            let requests = status.and_then(|it| it.resources.as_ref()).map(|it| &it.requests);
            match requests.filter(|requests| !requests.is_empty()) {
                Some(own) => Cow::Owned(with_missing(Cow::Borrowed(own))),
                None => allocated(container),
            }
        };
        let mut largest = of_containers(spec, allocated);
        raise(&mut largest, &of_containers(spec, in_use));
        if !is_infeasible {
            raise(&mut largest, &of_containers(spec, wanted));
        }
        largest
    } else {
        of_containers(spec, wanted)
    };
    if pod_level && let Some(resources) = &spec.resources {
        replace(&mut sum, &resources.requests);
    }
    add(&mut sum, &spec.overhead);
    sum
}

fn status_of<'p>(pod: &'p Pod, container: &Container) -> Option<&'p ContainerStatus> {
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    statuses.into_iter().find(|status| status.name == container.name)
}

/// The node tells what containers were given or use.
fn has_resources_in_status(pod: &Pod) -> bool {
    pod.status
        .container_statuses
        .iter()
        .chain(&pod.status.init_container_statuses)
        .any(|status| status.allocated_resources.is_some() || status.resources.is_some())
}

/// The node said that the resize can never be done.
fn is_resize_infeasible(pod: &Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|it| it.condition_type == "PodResizePending");
    pending.is_some_and(|condition| condition.reason == "Infeasible")
}
