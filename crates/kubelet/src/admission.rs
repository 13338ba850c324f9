//! Whether a pod that was bound to a node may run there.
//!
//! Follows `lifecycle/predicate.go` of Kubernetes' kubelet, with its reasons and texts: the operating system,
//! the features of the node, then resources, node affinity, name, ports and `NoExecute` taints; the first
//! failure is reported. Tolerations and affinity are decided by `matching`.

use api::core::v1::{Node, Pod, PodSpec};
use api::json::Text;
use api::well_known::LABEL_OS;
use matching::complaints::{Complaint, Complaints, about_labels, about_taint};
use matching::resources::{self, Demand, Options, Resources};
use matching::{CompileCache, Features, PodMatcher, host_ports, taints};

use crate::static_pods;

const NODE_OS: &str = "linux";

/// A reason to reject a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The pod's `status.reason`.
    pub reason: Text,
    /// More about it.
    pub message: String,
    /// The insufficient resource, and the missing amount. Pods can be evicted for that.
    pub shortage: Option<(Text, i64)>,
}

impl Rejection {
    /// Creates a rejection that remains even if other pods end.
    pub(crate) fn new(reason: &str, message: impl Into<String>) -> Self {
        Rejection { reason: reason.into(), message: message.into(), shortage: None }
    }

    fn predicate(name: &str, description: &str) -> Self {
        Self::new(name, format!("Predicate {name} failed: {description}"))
    }
}

/// Admits a pod that may run on the node in addition to the others there.
///
/// # Errors
/// The first reason to reject the pod.
pub fn admit<'p>(
    pod: &Pod,
    node: &Node,
    others: impl Iterator<Item = &'p Pod> + Clone,
    cache: &CompileCache,
    features: &Features,
) -> Result<(), Rejection> {
    let judgment = Judgment::new(pod, node, cache, features);
    objections(pod, node, others, &judgment).into_iter().next().map_or(Ok(()), Err)
}

/// Results of affinity and tolerations: the part of admission that evaluates expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgment {
    affinity_fits: bool,
    taints_are_tolerated: bool,
    /// Expressions that had no answer, where the pod is rejected for it.
    pub complaints: Vec<Complaint>,
}

impl Judgment {
    /// Evaluates a pod on a node.
    #[must_use]
    pub fn new(pod: &Pod, node: &Node, cache: &CompileCache, features: &Features) -> Self {
        let matcher = PodMatcher::new(&pod.spec, cache, features);
        let (tolerations, seen) = (matcher.tolerations(), seen_by_matchers(node));
        let untolerated = tolerations.first_untolerated(&node.spec.taints, taints::is_no_execute);
        let affinity_fits = matcher.required().matches(&seen);
        // Pods from the node's own files run whatever the taints.
        let taints_are_tolerated = untolerated.is_none() || is_static(pod);
        let mut complaints = Complaints::default();
        if !affinity_fits {
            complaints.extend(about_labels(&matcher, &seen));
        }
        if !taints_are_tolerated {
            let binding = node.spec.taints.iter().filter(|taint| taints::is_no_execute(taint));
            complaints.extend(binding.flat_map(|taint| about_taint(tolerations, &seen.name, taint)));
        }
        Judgment { affinity_fits, taints_are_tolerated, complaints: complaints.into_vec() }
    }
}

/// Whether judging a pod evaluates expressions.
#[must_use]
pub fn has_expressions(pod: &Pod) -> bool {
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let mut terms = required.into_iter().flat_map(|selector| &selector.node_selector_terms);
    pod.spec.tolerations.iter().any(|toleration| !toleration.expression.is_empty())
        || terms.any(|term| !term.match_cel_expressions.is_empty())
}

/// Returns all objections to the pod, in the order in which they are reported.
pub fn objections<'p>(
    pod: &Pod,
    node: &Node,
    others: impl Iterator<Item = &'p Pod> + Clone,
    judgment: &Judgment,
) -> Vec<Rejection> {
    if let Err(rejection) = check_system(pod, node) {
        return vec![rejection];
    }
    let mut found = shortages(pod, node, others.clone());
    if !judgment.affinity_fits {
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
    if !judgment.taints_are_tolerated {
        let description = "node(s) had taints that the pod didn't tolerate";
        found.push(Rejection::predicate("TaintToleration", description));
    }
    found
}

fn check_system(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    // Kubernetes checks the pod's label, not its node selector.
    if pod.metadata.labels.get(LABEL_OS).is_some_and(|os| os != NODE_OS) {
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

/// The node agent uses its actual operating system, regardless of the label.
fn seen_by_matchers(node: &Node) -> matching::Node {
    let mut labels = node.metadata.labels.clone();
    labels.insert(LABEL_OS.into(), NODE_OS.into());
    matching::Node {
        name: node.metadata.name.clone(),
        labels: matching::node::labels(&labels),
        ..matching::Node::default()
    }
}

/// Whether a pod is static: read from the node's own files, with only a mirror on the server.
pub(crate) fn is_static(pod: &Pod) -> bool {
    let source = pod.metadata.annotations.get(static_pods::SOURCE);
    source.is_some_and(|source| source != "api")
}

/// Returns the insufficient resources: pods, processors, memory and disk first, then the others by name.
pub(crate) fn shortages<'p>(pod: &Pod, node: &Node, others: impl Iterator<Item = &'p Pod> + Clone) -> Vec<Rejection> {
    let mut found = Vec::new();
    let allocatable = Resources::of(&node.status.allocatable);
    let count = i64::try_from(others.clone().count()).unwrap_or(i64::MAX);
    if count.saturating_add(1) > allocatable.pods {
        found.push(insufficient("pods", 1, count, allocatable.pods));
    }
    let wanted = resources::requests(&without_missing(pod, &allocatable), Options::default());
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

/// Resources that a pod takes on its node.
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

/// The pod without resources that devices provide, and without those that the node does not have: these belong to
/// the cluster, not to nodes.
fn without_missing(pod: &Pod, allocatable: &Resources) -> PodSpec {
    let mut spec = pod.spec.clone();
    let extended = pod.status.extended_resource_claim_status.as_ref();
    let mappings = extended.map(|it| it.request_mappings.as_slice()).unwrap_or_default();
    let part = &mut *spec.part;
    for container in part.containers.iter_mut().chain(&mut part.init_containers) {
        let container_name = container.name.clone();
        let by_devices =
            |name: &str| mappings.iter().any(|it| it.resource_name == name && it.container_name == container_name);
        let is_known =
            |name: &str| !by_devices(name) && (!resources::is_extended(name) || allocatable.scalar(name).is_some());
        container.resources.requests.retain(|name, _| is_known(name));
    }
    spec
}
