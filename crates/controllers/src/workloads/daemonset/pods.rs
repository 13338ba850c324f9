//! Daemon pods: to which node each belongs, which template it came from, and how a new one is made.
//!
//! Follows `util/daemonset_util.go` of Kubernetes' DaemonSet controller.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::v1::DaemonSet;
use api::core::v1::{Pod, Toleration};
use api::json::{Text, Value, from_value, to_value};
use api::well_known::LABEL_CONTROLLER_REVISION_HASH;

use super::placement::add_tolerations;
use crate::machinery::ownership::Controller;
use crate::machinery::pods::from_template;

const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// The pods of a daemon set by the node that each belongs to.
pub type PodsByNode = BTreeMap<Text, Vec<Arc<Pod>>>;

/// Groups pods by node, without pods that have ended and are being deleted: those are about to disappear.
#[must_use]
pub fn by_node(pods: &[Arc<Pod>]) -> PodsByNode {
    let mut nodes = PodsByNode::new();
    for pod in pods.iter().filter(|pod| !(pod.is_terminal() && pod.metadata.is_deleting())) {
        if let Some(node) = target_node(pod) {
            nodes.entry(node).or_default().push(pod.clone());
        }
    }
    nodes
}

/// The node that a pod is on, or is assigned to.
#[must_use]
pub fn target_node(pod: &Pod) -> Option<Text> {
    if !pod.spec.node_name.is_empty() {
        return Some(pod.spec.node_name.clone());
    }
    let affinity = pod.spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let fields = terms.iter().flat_map(|term| &term.match_fields);
    let mut names = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    names.find_map(|field| match field.values.as_deref() {
        Some([only]) => Some(only.clone()),
        _ => None,
    })
}

/// Whether a pod came from the set's present template.
#[must_use]
pub fn is_updated(pod: &Pod, set: &DaemonSet, hash: &str) -> bool {
    let label = |name: &str| pod.metadata.labels.get(name);
    let by_hash = !hash.is_empty() && label(LABEL_CONTROLLER_REVISION_HASH).is_some_and(|it| it == hash);
    by_hash || generation(set).is_some_and(|generation| label(GENERATION_LABEL) == Some(&generation))
}

/// The number of the template, as old versions counted it.
fn generation(set: &DaemonSet) -> Option<Text> {
    let text = set.metadata.annotations.get(GENERATION_ANNOTATION)?;
    text.parse::<i64>().ok().map(|number| number.to_string().into())
}

/// Orders scheduled pods before unscheduled ones, then older before newer ones.
#[must_use]
pub fn by_age(left: &Pod, right: &Pod) -> Ordering {
    let waits = |pod: &Pod| pod.spec.node_name.is_empty();
    let age = |pod: &Pod| pod.metadata.creation_timestamp;
    waits(left)
        .cmp(&waits(right))
        .then_with(|| age(left).cmp(&age(right)))
        .then_with(|| left.metadata.name.cmp(&right.metadata.name))
}

/// A pod for a node. The scheduler binds it: no other node fits it.
#[must_use]
pub fn new_pod(set: &DaemonSet, document: &Value, controller: Controller<'_>, hash: &str, node: &str) -> Value {
    let template = document.at(&["spec", "template"]).cloned().unwrap_or_default();
    let mut pod = from_template(&template, controller);
    if let Some(generation) = generation(set) {
        pod.set_at(&["metadata", "labels", GENERATION_LABEL], generation);
    }
    if !hash.is_empty() {
        pod.set_at(&["metadata", "labels", LABEL_CONTROLLER_REVISION_HASH], hash);
    }
    let given = pod.at(&["spec", "tolerations"]).and_then(|it| from_value::<Vec<Toleration>>(it).ok());
    let mut tolerations = given.unwrap_or_default();
    add_tolerations(&mut tolerations, set.spec.template.spec.host_network);
    pod.set_at(&["spec", "tolerations"], to_value(&tolerations).unwrap_or_default());
    let required = api::json!({"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    ]});
    let path = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
    pod.set_at(&path, required);
    pod
}
