//! Whether a pod that was bound to a node may run there.
//!
//! Follows `lifecycle/predicate.go` of Kubernetes' kubelet, with its reasons and texts: the operating system, what the node
//! supports, then resources, node affinity, name, ports and `NoExecute` taints, of which the first that fails is told.
//! Tolerations and affinity are decided by `matching`.

use std::collections::BTreeMap;

use api::core::v1::{Node, Pod, PodSpec, ResourceList};
use api::json::Text;
use matching::resources::{self, Options};
use matching::{CompileCache, Features, PodMatcher, host_ports, taints};

const OS_LABEL: &str = "kubernetes.io/os";
const NODE_OS: &str = "linux";

/// Why a pod is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The pod's `status.reason`.
    pub reason: Text,
    /// More about it.
    pub message: String,
}

impl Rejection {
    fn new(reason: &str, message: impl Into<String>) -> Self {
        Rejection { reason: reason.into(), message: message.into() }
    }

    fn predicate(name: &str, description: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {description}"))
    }
}

/// Whether the pod may run on the node beside the others there.
///
/// # Errors
/// Why not.
pub fn admit<'p>(
    pod: &Pod,
    node: &Node,
    others: impl Iterator<Item = &'p Pod> + Clone,
    cache: &CompileCache,
    features: &Features,
) -> Result<(), Rejection> {
    check_system(pod, node)?;
    check_resources(pod, node, others.clone())?;
    let matcher = PodMatcher::new(&pod.spec, cache, features);
    if !matcher.required().matches(&seen_by_matchers(node)) {
        return Err(Rejection::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    if !pod.spec.node_name.is_empty() && pod.spec.node_name != node.metadata.name {
        return Err(Rejection::predicate("NodeName", "node(s) didn't match the requested node name"));
    }
    let mut taken = host_ports::HostPorts::default();
    others.flat_map(|other| host_ports::of_pod(&other.spec)).for_each(|port| taken.insert(port));
    if host_ports::of_pod(&pod.spec).any(|port| taken.conflict_with(&port)) {
        let description = "node(s) didn't have free ports for the requested pod ports";
        return Err(Rejection::predicate("NodePorts", description));
    }
    // Pods from the node's own files run whatever the taints.
    let untolerated = matcher.tolerations().first_untolerated(&node.spec.taints, taints::is_no_execute);
    if untolerated.is_some() && !is_static(pod) {
        let description = "node(s) had taints that the pod didn't tolerate";
        return Err(Rejection::predicate("TaintToleration", description));
    }
    Ok(())
}

fn check_system(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    // Kubernetes looks at the pod's label, not at its node selector.
    if pod.metadata.labels.get(OS_LABEL).is_some_and(|os| os != NODE_OS) {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Err(Rejection::new("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if pod.spec.os.as_ref().is_some_and(|os| os.name != NODE_OS) {
        return Err(Rejection::new("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"));
    }
    let policy = pod.spec.security_context.as_ref().and_then(|it| it.supplemental_groups_policy.as_deref());
    let supports = node.status.features.as_ref().and_then(|it| it.supplemental_groups_policy);
    if policy == Some("Strict") && supports != Some(true) {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return Err(Rejection::new("SupplementalGroupsPolicyNotSupported", message));
    }
    Ok(())
}

/// The node agent knows its own system, whatever the label says.
fn seen_by_matchers(node: &Node) -> matching::Node {
    let mut labels = node.metadata.labels.clone();
    labels.insert(OS_LABEL.into(), NODE_OS.into());
    matching::Node {
        name: node.metadata.name.clone(),
        labels: matching::node::labels(&labels),
        ..matching::Node::default()
    }
}

/// A pod that the node read from its own files, of which the server holds only an image.
fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.get("kubernetes.io/config.source");
    source.is_some_and(|source| source != "api")
}

fn check_resources<'p>(pod: &Pod, node: &Node, others: impl Iterator<Item = &'p Pod> + Clone) -> Result<(), Rejection> {
    let allocatable = Amounts::of(&node.status.allocatable);
    let pods_max = node.status.allocatable.get("pods").map_or(0, api::Quantity::value);
    let count = i64::try_from(others.clone().count()).unwrap_or(i64::MAX);
    if count.saturating_add(1) > pods_max {
        return Err(insufficient("pods", 1, count, pods_max));
    }
    let wanted = Amounts::of(&resources::requests(&without_missing(&pod.spec, &allocatable), Options::default()));
    if wanted.0.values().all(|amount| *amount == 0) {
        return Ok(());
    }
    let mut used = Amounts::default();
    others.for_each(|other| used.add(&Amounts::of(&resources::requests(&other.spec, Options::default()))));
    for (name, amount) in wanted.in_order() {
        let (used, capacity) = (used.get(name), allocatable.get(name));
        if amount > 0 && amount > capacity.saturating_sub(used) {
            return Err(insufficient(name, amount, used, capacity));
        }
    }
    Ok(())
}

fn insufficient(resource: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    let message = format!(
        "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    );
    Rejection::new(&format!("OutOf{resource}"), message)
}

/// The pod without what the node does not know: such resources belong to the cluster, not to nodes.
fn without_missing(spec: &PodSpec, allocatable: &Amounts) -> PodSpec {
    let mut spec = spec.clone();
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        container.resources.requests.retain(|name, _| !is_extended(name) || allocatable.0.contains_key(name));
    }
    spec
}

/// A resource that is not Kubernetes' own.
fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.") && api::names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Amounts in whole units, of processors in thousandths.
#[derive(Debug, Default)]
struct Amounts(BTreeMap<Text, i64>);

impl Amounts {
    fn of(list: &ResourceList) -> Self {
        let amount = |name: &str, quantity: &api::Quantity| match name {
            "cpu" => quantity.milli_value(),
            _ => quantity.value(),
        };
        Amounts(list.iter().map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect())
    }

    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Processors, memory and disk first, then the others by name.
    fn in_order(&self) -> impl Iterator<Item = (&str, i64)> {
        const FIRST: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
        let first = FIRST.into_iter().map(|name| (name, self.get(name)));
        let rest = self.0.iter().map(|(name, amount)| (name.as_str(), *amount));
        first.chain(rest.filter(|(name, _)| !FIRST.contains(name)))
    }
}
