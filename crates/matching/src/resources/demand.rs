//! Demand of a pod on a node, including in-place resizes.
//!
//! Follows `PodInfo.CalculateResource` of Kubernetes' scheduler: during a resize the largest of the requested,
//! allocated and used amounts counts, unless the resize is infeasible. If the node reports both for the whole
//! pod, these replace those of its containers. For scores, a container without requests counts with a small
//! default.

use std::borrow::Cow;

use api::core::v1::{Container, ContainerStatus, Pod, ResourceList, ResourceRequirements};
use api::quantity::{Format, Quantity};

use super::{Resources, add, is_pod_level, of_containers, raise, replace};

/// Resources that a pod takes on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Requests of the pod.
    pub requests: Resources,
    /// CPU for scores, in thousandths: a container without a request counts a tenth of one.
    pub nonzero_milli_cpu: i64,
    /// Memory for scores: a container without a request counts 200 MiB.
    pub nonzero_memory: i64,
    /// For the scores of a pod that is to be placed: as above, and without pod-level requests. This follows
    /// Kubernetes' NodeResourcesFit.
    pub scored: Resources,
}

const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 << 20;

impl Demand {
    /// Whether the demand may differ from the spec's requests because the pod is being resized.
    pub fn may_differ(pod: &Pod) -> bool {
        has_resources_in_status(pod) || is_resize_infeasible(pod)
    }

    /// Computes the demand of a pod.
    pub fn of(pod: &Pod) -> Self {
        let requests = requests(pod, &ResourceList::new(), true);
        let sets_pod_level = pod.spec.resources.as_ref().is_some_and(asks_as_a_whole);
        let defaults = ResourceList::from([
            ("cpu".into(), Quantity::new_milli(DEFAULT_MILLI_CPU, Format::DecimalSi)),
            ("memory".into(), Quantity::new(DEFAULT_MEMORY, Format::BinarySi)),
        ]);
        let scored = self::requests(pod, &defaults, false);
        // A pod with pod-level requests gets defaults only for the resources that it does not request.
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

/// Computes the pod's requests; `missing` are defaults for containers, `pod_level` includes pod-level requests.
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
        let of_pod = (pod.status.allocated_resources.as_ref(), in_use_by_pod(pod));
        let mut largest = match of_pod {
            (Some(allocated), Some(in_use)) => larger(allocated, in_use),
            _ => larger(&of_containers(spec, allocated), &of_containers(spec, in_use)),
        };
        if !is_infeasible {
            raise(&mut largest, &of_containers(spec, wanted));
        }
        largest
    } else {
        of_containers(spec, wanted)
    };
    if pod_level && let Some(resources) = spec.resources.as_ref().filter(|it| asks_as_a_whole(it)) {
        let mut asked = if is_infeasible && pod.status.resources.is_some() {
            ResourceList::new()
        } else {
            resources.requests.clone()
        };
        if let Some(reported) = &pod.status.resources {
            raise(&mut asked, &reported.requests);
            raise(&mut asked, &pod.status.allocated_resources.clone().unwrap_or_default());
        }
        replace(&mut sum, &asked);
    }
    add(&mut sum, &spec.overhead);
    sum
}

/// Whether a pod requests something as a whole.
fn asks_as_a_whole(resources: &ResourceRequirements) -> bool {
    resources.requests.keys().any(|name| is_pod_level(name))
}

/// Resources of the whole pod, as reported by the node.
fn in_use_by_pod(pod: &Pod) -> Option<&ResourceList> {
    pod.status.resources.as_ref().map(|it| &it.requests).filter(|requests| !requests.is_empty())
}

fn larger(left: &ResourceList, right: &ResourceList) -> ResourceList {
    let mut larger = left.clone();
    raise(&mut larger, right);
    larger
}

fn status_of<'p>(pod: &'p Pod, container: &Container) -> Option<&'p ContainerStatus> {
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    statuses.into_iter().find(|status| status.name == container.name)
}

/// Whether the node reports allocated or used resources of the pod or its containers.
fn has_resources_in_status(pod: &Pod) -> bool {
    let of_pod = pod.status.allocated_resources.is_some() || pod.status.resources.is_some();
    of_pod
        || pod
            .status
            .container_statuses
            .iter()
            .chain(&pod.status.init_container_statuses)
            .any(|status| status.allocated_resources.is_some() || status.resources.is_some())
}

/// Whether the node reported that the resize is infeasible.
fn is_resize_infeasible(pod: &Pod) -> bool {
    let pending = pod.status.conditions.iter().find(|it| it.condition_type == "PodResizePending");
    pending.is_some_and(|condition| condition.reason == "Infeasible")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pod: &str, milli_cpu: i64) {
        let pod: Pod = api::json::from_value(&api::json::parse(pod.as_bytes()).unwrap()).unwrap();
        assert!(Demand::may_differ(&pod));
        assert_eq!(Demand::of(&pod).requests.milli_cpu, milli_cpu);
    }

    #[test]
    fn largest_of_requested_allocated_and_used_counts() {
        let containers = r#""containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]"#;
        let pod = |resources: &str, status: &str| {
            format!(r#"{{"spec": {{{containers}{resources}}}, "status": {{{status}}}}}"#)
        };
        let whole = r#", "resources": {"requests": {"cpu": "2"}}"#;
        let given = |given: &str, used: &str| {
            let used = format!(r#""resources": {{"requests": {{"cpu": "{used}"}}}}"#);
            format!(r#""allocatedResources": {{"cpu": "{given}"}}, {used}"#)
        };
        let of_container = |given: &str| {
            format!(r#""containerStatuses": [{{"name": "c", "allocatedResources": {{"cpu": "{given}"}}}}]"#)
        };
        let infeasible = r#", "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}]"#;
        check(&pod("", &of_container("3")), 3000);
        // Resources reported for the whole pod replace those of its containers.
        check(&pod("", &format!("{}, {}", of_container("9"), given("3", "2"))), 3000);
        check(&pod("", &given("500m", "250m")), 1000);
        check(&pod("", &format!("{}{infeasible}", given("500m", "250m"))), 500);
        // They also replace the pod-level requests.
        check(&pod(whole, &given("3", "1")), 3000);
        check(&pod(whole, &given("1", "4")), 4000);
        check(&pod(whole, &given("1", "1")), 2000);
        check(&pod(whole, &format!("{}{infeasible}", given("1", "1500m"))), 1500);
    }
}
