//! Single changes that would let a pod run that fits nowhere.
//!
//! Candidate changes are derived from the rejections and tried on the core itself; only those with which a node
//! fits are returned.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use api::core::v1::{Node, NodeSelectorRequirement, Pod, Taint, Toleration};
use api::json::Text;
use api::quantity::{Format, Quantity};
use matching::taints;

use super::{Explanation, NodeExplanation};
use crate::plugins::{
    inter_pod_affinity, node_affinity, node_ports, node_resources_fit, node_unschedulable, pod_topology_spread,
    taint_toleration,
};
use crate::scheduler::Scheduler;

/// Maximum number of changes of one kind to try.
const TRIED_MAX: usize = 16;

/// Maximum number of nodes that the text of a remedy names.
const SHOWN_MAX: usize = 3;

/// A change that would let the pod run.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedy {
    /// The pod tolerates a taint.
    Tolerate {
        /// The taint.
        taint: Taint,
        /// Number of nodes that then fit, and some of them.
        nodes: Nodes,
    },
    /// One of several nodes gets a label.
    Label {
        /// The nodes, each of which would do.
        nodes: Vec<Text>,
        /// The label.
        key: Text,
        /// Value of the label.
        value: Text,
    },
    /// A node takes pods again.
    Uncordon {
        /// The node.
        node: Text,
    },
    /// Resources are freed on a node.
    Free {
        /// The node.
        node: Text,
        /// Name of the resource.
        resource: Text,
        /// Amount of the resource.
        amount: Quantity,
    },
    /// A field of the pod's requests is removed.
    Without {
        /// The removed field.
        field: &'static str,
        /// Number of nodes that then fit, and some of them.
        nodes: Nodes,
    },
}

/// Number of nodes that fit, and the names of the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// Number of nodes.
    pub count: usize,
    /// The first.
    pub names: Vec<Text>,
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.count > self.names.len() { ", …" } else { "" };
        let word = if self.count == 1 { "node" } else { "nodes" };
        write!(f, "{} {word} ({}{more})", self.count, self.names.join(", "))
    }
}

impl Remedy {
    /// The remedy without changes to other nodes than the named one; none if nothing is left of it.
    #[must_use]
    pub fn limited_to(mut self, name: &str) -> Option<Remedy> {
        let is_left = match &mut self {
            Remedy::Label { nodes, .. } => {
                nodes.retain(|node| node == name);
                !nodes.is_empty()
            }
            Remedy::Uncordon { node } | Remedy::Free { node, .. } => node == name,
            Remedy::Tolerate { .. } | Remedy::Without { .. } => true,
        };
        is_left.then_some(self)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remedy::Tolerate { taint, nodes } => {
                write!(f, "a toleration of the taint {}={}:{}: ", taint.key, taint.value, taint.effect)?;
                write!(f, "then {nodes} would fit")
            }
            Remedy::Label { nodes, key, value } => match nodes.as_slice() {
                [node] => write!(f, "the label {key}={value} on node {node}"),
                nodes => {
                    let shown: Vec<&str> = nodes.iter().take(SHOWN_MAX).map(Text::as_str).collect();
                    let more = if nodes.len() > SHOWN_MAX { ", …" } else { "" };
                    write!(f, "the label {key}={value} on any of the nodes {}{more}", shown.join(", "))
                }
            },
            Remedy::Uncordon { node } => write!(f, "uncordoning node {node}"),
            Remedy::Free { node, resource, amount } => write!(f, "{amount} more of {resource} on node {node}"),
            Remedy::Without { field, nodes } => write!(f, "the pod without {field}: then {nodes} would fit"),
        }
    }
}

/// Searches for single changes. `nodes` are those of the scheduler; its state is the same afterwards.
pub fn find(scheduler: &mut Scheduler, pod: &Pod, nodes: &[Node], known: &Explanation) -> Vec<Remedy> {
    let mut found = Vec::new();
    tolerations(scheduler, pod, nodes, known, &mut found);
    without(scheduler, pod, known, &mut found);
    let single = |node: &&NodeExplanation| node.rejections().count() == 1;
    let by = |name: &'static str| {
        let nodes = known.nodes.iter().filter(single);
        nodes.filter(move |node| node.rejections().any(|(plugin, _)| plugin == name)).map(|node| &node.node)
    };
    let mut trial = Trial { scheduler, pod, nodes };
    let cordoned =
        known.nodes.iter().filter(|it| it.rejections().any(|(plugin, _)| plugin == node_unschedulable::NAME));
    for name in cordoned.map(|it| &it.node).take(TRIED_MAX) {
        if trial.fits_changed(name, uncordon) {
            found.push(Remedy::Uncordon { node: name.clone() });
        }
    }
    for name in by(node_affinity::NAME).take(TRIED_MAX) {
        let label = wanted_labels(pod).into_iter().find(|(key, value)| {
            trial.fits_changed(name, |node| {
                node.metadata.labels.insert(key.clone(), value.clone());
            })
        });
        let Some(wanted) = label else { continue };
        let known = found.iter_mut().find_map(|remedy| match remedy {
            Remedy::Label { nodes, key, value } if (&*key, &*value) == (&wanted.0, &wanted.1) => Some(nodes),
            _ => None,
        });
        match known {
            Some(nodes) => nodes.push(name.clone()),
            None => found.push(Remedy::Label { nodes: vec![name.clone()], key: wanted.0, value: wanted.1 }),
        }
    }
    let mut freed: Vec<(i64, Remedy)> = Vec::new();
    for name in by(node_resources_fit::NAME) {
        let Some((resource, missing)) = trial.missing(name) else { continue };
        let amount = amount(&resource, missing);
        freed.push((missing, Remedy::Free { node: name.clone(), resource, amount }));
    }
    // The least that is missing is the most likely to be found.
    freed.sort_by_key(|(missing, _)| *missing);
    let mut resources = BTreeSet::new();
    for (_, remedy) in freed {
        let Remedy::Free { node, resource, amount } = &remedy else { continue };
        if resources.contains(resource) {
            continue;
        }
        let helps = trial.fits_changed(node, |node| {
            let zero = || Quantity::new(0, Format::DecimalSi);
            node.status.allocatable.get_or_insert_with(resource.clone(), zero).add(amount);
        });
        if helps {
            resources.insert(resource.clone());
            found.push(remedy);
        }
    }
    found
}

/// Finds remedies that add a toleration of one taint.
fn tolerations(scheduler: &mut Scheduler, pod: &Pod, nodes: &[Node], known: &Explanation, found: &mut Vec<Remedy>) {
    let mut tried: Vec<Taint> = Vec::new();
    for rejected in &known.nodes {
        let mut against = rejected.rejections();
        if !matches!((against.next(), against.next()), (Some((taint_toleration::NAME, _)), None)) {
            continue;
        }
        let Some(node) = nodes.iter().find(|node| node.metadata.name == rejected.node) else { continue };
        for taint in node.spec.taints.iter().filter(|taint| taints::is_hard(taint)) {
            let is_same = |it: &Taint| (&it.key, &it.value, &it.effect) == (&taint.key, &taint.value, &taint.effect);
            if tried.len() >= TRIED_MAX || tried.iter().any(is_same) {
                continue;
            }
            tried.push(taint.clone());
            let mut changed = pod.clone();
            changed.spec.tolerations.push(Toleration {
                key: taint.key.clone(),
                operator: if taint.value.is_empty() { "Exists".into() } else { "Equal".into() },
                value: taint.value.clone(),
                effect: taint.effect.clone(),
                ..Toleration::default()
            });
            let (count, names) = scheduler.fitting(&changed);
            if count > 0 {
                found.push(Remedy::Tolerate { taint: taint.clone(), nodes: Nodes { count, names } });
            }
        }
    }
}

/// A change that removes the subject of a plugin from a pod: its name, the field, and the removal.
type FieldRemoval = (&'static str, &'static str, fn(&mut Pod));

const LEFT_OUT: &[FieldRemoval] = &[
    (node_affinity::NAME, "spec.nodeSelector", |pod| pod.spec.node_selector.clear()),
    (node_affinity::NAME, "spec.affinity.nodeAffinity", |pod| {
        if let Some(affinity) = &mut pod.spec.affinity {
            affinity.node_affinity = None;
        }
    }),
    (pod_topology_spread::NAME, "spec.topologySpreadConstraints", |pod| pod.spec.topology_spread_constraints.clear()),
    (inter_pod_affinity::NAME, "spec.affinity.podAffinity", |pod| {
        if let Some(affinity) = &mut pod.spec.affinity {
            affinity.pod_affinity = None;
        }
    }),
    (inter_pod_affinity::NAME, "spec.affinity.podAntiAffinity", |pod| {
        if let Some(affinity) = &mut pod.spec.affinity {
            affinity.pod_anti_affinity = None;
        }
    }),
    (node_ports::NAME, "its host ports", |pod| {
        for container in &mut pod.spec.containers {
            for port in &mut container.ports {
                port.host_port = 0;
            }
        }
    }),
];

fn without(scheduler: &mut Scheduler, pod: &Pod, known: &Explanation, found: &mut Vec<Remedy>) {
    for (plugin, field, leave_out) in LEFT_OUT {
        let is_against = |node: &NodeExplanation| node.rejections().any(|(name, _)| name == *plugin);
        if !known.nodes.iter().any(is_against) {
            continue;
        }
        let mut changed = pod.clone();
        leave_out(&mut changed);
        let (count, names) = scheduler.fitting(&changed);
        if count > 0 {
            found.push(Remedy::Without { field, nodes: Nodes { count, names } });
        }
    }
}

/// Nodes that are changed for a moment.
struct Trial<'t> {
    scheduler: &'t mut Scheduler,
    pod: &'t Pod,
    nodes: &'t [Node],
}

impl Trial<'_> {
    /// Whether the pod fits a node that is changed.
    fn fits_changed(&mut self, name: &Text, change: impl FnOnce(&mut Node)) -> bool {
        let Some(node) = self.nodes.iter().find(|node| node.metadata.name == *name) else { return false };
        let mut changed = node.clone();
        change(&mut changed);
        self.scheduler.set_node(&changed, Duration::ZERO);
        let (count, _) = self.scheduler.fitting(self.pod);
        self.scheduler.set_node(node, Duration::ZERO);
        count > 0
    }

    /// The one resource of which a node has not enough, and how much is missing.
    fn missing(&mut self, name: &Text) -> Option<(Text, i64)> {
        let pod = self.scheduler.view(self.pod);
        let node = self.scheduler.cluster().cache.node_named(name)?;
        let wanted = &pod.demand().requests;
        let mut missing: Vec<(Text, i64)> = Vec::new();
        let mut note = |name: &str, wanted: i64, free: i64| {
            if wanted > 0 && wanted > free {
                missing.push((name.into(), wanted.saturating_sub(free)));
            }
        };
        let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
        note("pods", 1, node.object.allocatable.pods.saturating_sub(pods));
        let names = ["cpu", "memory", "ephemeral-storage"].into_iter();
        for name in names.chain(wanted.scalars().map(|(name, _)| name.as_str())) {
            let free = node.object.allocatable.get(name).saturating_sub(node.requested.get(name));
            note(name, wanted.get(name), free);
        }
        let (first, second) = (missing.pop(), missing.pop());
        first.filter(|_| second.is_none())
    }
}

/// Processors are counted in thousandths.
fn amount(resource: &str, missing: i64) -> Quantity {
    match resource {
        "cpu" => Quantity::new_milli(missing, Format::DecimalSi),
        "memory" | "ephemeral-storage" => Quantity::new(missing, Format::BinarySi),
        _ => Quantity::new(missing, Format::DecimalSi),
    }
}

fn uncordon(node: &mut Node) {
    node.spec.unschedulable = false;
    node.spec.taints.retain(|taint| taint.key != taints::unschedulable().key);
}

/// Labels that the pod may require.
fn wanted_labels(pod: &Pod) -> Vec<(Text, Text)> {
    let mut labels: Vec<(Text, Text)> =
        pod.spec.node_selector.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let required = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = required.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|selector| selector.node_selector_terms.as_slice()).unwrap_or_default();
    labels.extend(terms.iter().flat_map(|term| &term.match_expressions).filter_map(label_for));
    labels.truncate(TRIED_MAX);
    labels
}

/// A label that meets a requirement.
fn label_for(requirement: &NodeSelectorRequirement) -> Option<(Text, Text)> {
    let first = requirement.values.iter().flatten().next().cloned();
    let value = match requirement.operator.as_str() {
        "In" | "SemverEq" => first?,
        "Exists" => Text::default(),
        "Gt" => first?.parse::<i64>().ok()?.checked_add(1)?.to_string().into(),
        "Lt" => first?.parse::<i64>().ok()?.checked_sub(1)?.to_string().into(),
        _ => return None,
    };
    Some((requirement.key.clone(), value))
}
