//! Resource requests of a pod, and its quality-of-service class.
//!
//! Follows `component-helpers/resource` and `qos.ComputePodQOS`: ordinary init containers run one after the
//! other, restartable ones (sidecars) run in parallel with all later containers, and pod-level requests replace
//! the sum.

mod demand;
mod devices;
mod vector;

use std::borrow::Cow;

use api::core::v1::{Container, PodSpec, ResourceList, ResourceRequirements};
use api::quantity::Quantity;
pub use demand::Demand;
pub use devices::device_usage;
pub use vector::{Resources, is_extended, is_scalar};

/// Parts of a pod's demand to include.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Include the pod's overhead.
    pub overhead: bool,
    /// Include pod-level resources.
    pub pod_level: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { overhead: true, pod_level: true }
    }
}

/// A quality-of-service class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum QosClass {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl QosClass {
    /// The name in `status.qosClass`.
    pub fn name(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

/// Returns the resource requests of a pod.
pub fn requests(spec: &PodSpec, options: Options) -> ResourceList {
    let mut sum = of_containers(spec, |container| Cow::Borrowed(&container.resources.requests));
    if options.pod_level
        && let Some(resources) = &spec.resources
    {
        replace(&mut sum, &resources.requests);
    }
    if options.overhead {
        add(&mut sum, &spec.overhead);
    }
    sum
}

/// Returns the resource limits of a pod. Overhead is added to limits that are set and not zero.
pub fn limits(spec: &PodSpec, options: Options) -> ResourceList {
    let mut sum = of_containers(spec, |container| Cow::Borrowed(&container.resources.limits));
    if options.pod_level
        && let Some(resources) = &spec.resources
    {
        replace(&mut sum, &resources.limits);
    }
    if options.overhead {
        for (name, amount) in &spec.overhead {
            if let Some(limit) = sum.get_mut(name).filter(|limit| !limit.is_zero()) {
                limit.add(amount);
            }
        }
    }
    sum
}

/// The quality-of-service class of a pod.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    if let Some(resources) = spec.resources.as_ref().filter(|resources| sets_pod_level(resources)) {
        return class_of(resources);
    }
    let mut containers = spec.init_containers.iter().chain(&spec.containers).map(|it| class_of(&it.resources));
    let Some(first) = containers.next() else { return QosClass::BestEffort };
    if containers.all(|class| class == first) { first } else { QosClass::Burstable }
}

/// Whether an init container runs in parallel with later containers.
pub fn is_sidecar(init_container: &Container) -> bool {
    init_container.restart_policy.as_deref() == Some("Always")
}

/// Whether a resource can be set at the pod level.
pub fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

fn sets_pod_level(resources: &ResourceRequirements) -> bool {
    resources.requests.keys().chain(resources.limits.keys()).any(|name| is_pod_level(name))
}

fn of_containers<'s>(spec: &'s PodSpec, amounts: impl Fn(&'s Container) -> Cow<'s, ResourceList>) -> ResourceList {
    let mut sum = ResourceList::new();
    for container in &spec.containers {
        add(&mut sum, &amounts(container));
    }
    let mut sidecars = ResourceList::new();
    let mut while_starting = ResourceList::new();
    for container in &spec.init_containers {
        let own = amounts(container);
        if is_sidecar(container) {
            add(&mut sum, &own);
            add(&mut sidecars, &own);
            raise(&mut while_starting, &sidecars);
        } else {
            let mut together = own.into_owned();
            add(&mut together, &sidecars);
            raise(&mut while_starting, &together);
        }
    }
    raise(&mut sum, &while_starting);
    sum
}

fn add(sum: &mut ResourceList, amounts: &ResourceList) {
    for (name, amount) in amounts {
        match sum.get_mut(name) {
            Some(known) => known.add(amount),
            None => {
                sum.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// The larger of both, for each resource.
fn raise(list: &mut ResourceList, amounts: &ResourceList) {
    for (name, amount) in amounts {
        if list.get(name).is_none_or(|known| amount > known) {
            list.insert(name.clone(), amount.clone());
        }
    }
}

fn replace(list: &mut ResourceList, amounts: &ResourceList) {
    for (name, amount) in amounts.iter().filter(|(name, _)| is_pod_level(name)) {
        list.insert(name.clone(), amount.clone());
    }
}

fn class_of(resources: &ResourceRequirements) -> QosClass {
    let [cpu, memory] = ["cpu", "memory"].map(|name| {
        let zero = Quantity::default();
        let request = resources.requests.get(name).unwrap_or(&zero);
        match resources.limits.get(name).unwrap_or(&zero) {
            limit if limit != request => QosClass::Burstable,
            limit if limit.is_zero() => QosClass::BestEffort,
            _ => QosClass::Guaranteed,
        }
    });
    if cpu == memory { cpu } else { QosClass::Burstable }
}
