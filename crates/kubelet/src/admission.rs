//! Whether a pod that was bound to a node may run there.
//!
//! Follows `lifecycle/predicate.go` of Kubernetes' kubelet, with its reasons and texts: the operating system, what the node
//! supports, then resources, node affinity, name, ports and `NoExecute` taints, of which the first that fails is told.
//! Tolerations and affinity are decided by `matching`.

use api::core::v1::{Node, Pod, PodSpec};
use api::json::Text;
use matching::resources::{self, Demand, Options, Resources};
use matching::{CompileCache, Features, PodMatcher, host_ports, taints};

use crate::static_pods;

const OS_LABEL: &str = "kubernetes.io/os";
const NODE_OS: &str = "linux";

/// Why a pod is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The pod's `status.reason`.
    pub reason: Text,
    /// More about it.
    pub message: String,
    /// Which resource there is too little of, and how much of it is missing. Pods can be ended for that.
    pub shortage: Option<(Text, i64)>,
}

impl Rejection {
    /// For something that no end of other pods would change.
    pub(crate) fn new(reason: &str, message: impl Into<String>) -> Self {
        Rejection { reason: reason.into(), message: message.into(), shortage: None }
    }

    fn predicate(name: &str, description: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {description}"))
    }
}

/// Whether the pod may run on the node beside the others there.
///
/// # Errors
/// The first thing that is against it.
pub fn admit<'p>(
    pod: &Pod,
    node: &Node,
    others: impl Iterator<Item = &'p Pod> + Clone,
    cache: &CompileCache,
    features: &Features,
) -> Result<(), Rejection> {
    objections(pod, node, others, cache, features).into_iter().next().map_or(Ok(()), Err)
}

/// Everything that is against the pod, in the order in which it is told.
pub fn objections<'p>(
    pod: &Pod,
    node: &Node,
    others: impl Iterator<Item = &'p Pod> + Clone,
    cache: &CompileCache,
    features: &Features,
) -> Vec<Rejection> {
    if let Err(rejection) = check_system(pod, node) {
        return vec![rejection];
    }
    let mut found = shortages(pod, node, others.clone());
    let matcher = PodMatcher::new(&pod.spec, cache, features);
    if !matcher.required().matches(&seen_by_matchers(node)) {
        found.push(Rejection::predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    if !pod.spec.node_name.is_empty() && pod.spec.node_name != node.metadata.name {
        found.push(Rejection::predicate("NodeName", "node(s) didn't match the requested node name"));
    }
    let mut taken = host_ports::HostPorts::default();
    others.flat_map(|other| host_ports::of_pod(&other.spec)).for_each(|port| taken.insert(port));
    if host_ports::of_pod(&pod.spec).any(|port| taken.conflict_with(&port)) {
        let description = "node(s) didn't have free ports for the requested pod ports";
        found.push(Rejection::predicate("NodePorts", description));
    }
    // Pods from the node's own files run whatever the taints.
    let untolerated = matcher.tolerations().first_untolerated(&node.spec.taints, taints::is_no_execute);
    if untolerated.is_some() && !is_static(pod) {
        let description = "node(s) had taints that the pod didn't tolerate";
        found.push(Rejection::predicate("TaintToleration", description));
    }
    found
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
pub(crate) fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.get(static_pods::SOURCE);
    source.is_some_and(|source| source != "api")
}

/// What there is too little of: pods, processors, memory and disk first, then the others by name.
fn shortages<'p>(pod: &Pod, node: &Node, others: impl Iterator<Item = &'p Pod> + Clone) -> Vec<Rejection> {
    let mut found = Vec::new();
    let allocatable = Resources::of(&node.status.allocatable);
    let count = i64::try_from(others.clone().count()).unwrap_or(i64::MAX);
    if count.saturating_add(1) > allocatable.pods {
        found.push(insufficient("pods", 1, count, allocatable.pods));
    }
    let wanted = resources::requests(&without_missing(&pod.spec, &allocatable), Options::default());
    let wanted = Resources::of(&wanted);
    if !wanted.any_above(&Resources::default()) {
        return found;
    }
    let mut used = Resources::default();
    others.for_each(|other| used.add(&requested(other)));
    let scalars = wanted.scalars().map(|(name, _)| name.as_str());
    for name in ["cpu", "memory", "ephemeral-storage"].into_iter().chain(scalars) {
        let (amount, used, capacity) = (wanted.get(name), used.get(name), allocatable.get(name));
        if amount > 0 && amount > capacity.saturating_sub(used) {
            found.push(insufficient(name, amount, used, capacity));
        }
    }
    found
}

/// What a pod takes of its node.
pub(crate) fn requested(pod: &Pod) -> Resources {
    match Demand::may_differ(pod) {
        true => Demand::of(pod).requests,
        false => Resources::of(&resources::requests(&pod.spec, Options::default())),
    }
}

fn insufficient(resource: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    let message = format!(
        "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
    );
    let missing = requested.saturating_sub(capacity.saturating_sub(used));
    Rejection { shortage: Some((resource.into(), missing)), ..Rejection::new(&format!("OutOf{resource}"), message) }
}

/// The pod without what the node does not know: such resources belong to the cluster, not to nodes.
fn without_missing(spec: &PodSpec, allocatable: &Resources) -> PodSpec {
    let mut spec = spec.clone();
    let part = &mut *spec.part;
    for container in part.containers.iter_mut().chain(&mut part.init_containers) {
        let is_known = |name: &str| !resources::is_extended(name) || allocatable.scalar(name).is_some();
        container.resources.requests.retain(|name, _| is_known(name));
    }
    spec
}
