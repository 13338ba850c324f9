//! What was wrong with expressions and values behind a rejection: for events and logs.
//!
//! A failure counts as no, so the pod's sentence does not tell it. Each is told once per pod, expression and value.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use api::json::Text;
use matching::taints;

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::diagnosis::Diagnosis;

/// How many complaints one attempt tells.
const TOLD_MAX: usize = 8;

/// Something that was wrong, and on which node it was seen first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// An expression had no answer: event `ExpressionFailed`, and an error in the log.
    Expression {
        /// A node for which it had none.
        node: Text,
        /// The expression.
        expression: Text,
        /// What it was asked about.
        value: Text,
        /// Why it had none.
        error: Text,
    },
    /// A taint that is compared as a version is not one: an error in the log.
    TaintVersion {
        /// The node.
        node: Text,
        /// The taint's value.
        value: Text,
        /// Why it is not a version.
        error: Text,
    },
    /// A label that is compared as a version is not one: in the log only at the highest level, because nodes are many.
    LabelVersion {
        /// The node.
        node: Text,
        /// The label.
        label: Text,
        /// Its value.
        value: Text,
        /// Why it is not a version.
        error: Text,
    },
}

/// What was told before.
pub(crate) type Told = BTreeSet<(Text, Text)>;

impl Complaint {
    /// The note of an event, or a line of a log.
    pub fn message(&self) -> String {
        match self {
            Complaint::Expression { node, expression, value, error } => {
                format!("expression {expression:?} failed on node {node} for {value}: {error}")
            }
            Complaint::TaintVersion { value, .. } => {
                format!("failed to parse taint value as semantic version taint={value:?}")
            }
            Complaint::LabelVersion { label, value, error, .. } => {
                format!("Parse semver failed for value {value} in label {label}, {error}")
            }
        }
    }

    /// What it is about: each is told once.
    fn key(&self) -> (Text, Text) {
        match self {
            Complaint::Expression { expression, value, .. } => (expression.clone(), value.clone()),
            Complaint::TaintVersion { value, .. } => (Text::default(), value.clone()),
            Complaint::LabelVersion { label, value, .. } => (label.clone(), value.clone()),
        }
    }
}

/// What was wrong behind a rejection and was not told before.
pub(crate) fn find(pod: &PodInfo, diagnosis: &Diagnosis, cluster: &Cluster, told: &mut Told) -> Vec<Complaint> {
    let mut new = Vec::new();
    if !can_fail(pod) {
        return new;
    }
    let mut seen = HashSet::new();
    for node in diagnosis.by_node.iter().filter_map(|(id, _)| cluster.cache.node(*id)) {
        // Nodes that have the same taints have the same complaints about them.
        let is_new = seen.insert(Arc::as_ptr(&node.object.matching.taints));
        for complaint in about(pod, node, is_new) {
            if new.len() >= TOLD_MAX {
                return new;
            }
            if told.insert(complaint.key()) {
                new.push(complaint);
            }
        }
    }
    new
}

fn about(pod: &PodInfo, node: &NodeInfo, with_taints: bool) -> Vec<Complaint> {
    let mut all = Vec::new();
    let name = node.name();
    let matching = &node.object.matching;
    let tolerations = pod.matcher.tolerations();
    for taint in matching.taints.taints().iter().filter(|taint| with_taints && taints::is_hard(taint)) {
        all.extend(tolerations.failures(taint).map(|(expression, outcome)| Complaint::Expression {
            node: name.clone(),
            expression: expression.into(),
            value: format!("taint {}={}:{}", taint.key, taint.value, taint.effect).into(),
            error: outcome.failure().map_or("", |it| &it.message).into(),
        }));
        if let Some(error) = tolerations.not_a_version(taint) {
            all.push(Complaint::TaintVersion { node: name.clone(), value: taint.value.clone(), error: error.into() });
        }
    }
    let required = pod.matcher.required();
    all.extend(required.failures(matching).into_iter().map(|(expression, outcome)| {
        let error: Text = outcome.failure().map_or("", |it| &it.message).into();
        // Nodes differ in labels without end: what they fail by is what distinguishes them.
        let value = format!("the node's labels ({error})").into();
        Complaint::Expression { node: name.clone(), expression: expression.into(), value, error }
    }));
    all.extend(required.not_versions(matching).into_iter().map(|(label, value, error)| Complaint::LabelVersion {
        node: name.clone(),
        label,
        value,
        error: error.into(),
    }));
    all
}

/// Whether the pod has expressions or compares versions.
fn can_fail(pod: &PodInfo) -> bool {
    let spec = pod.spec();
    let required = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = required.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = required.map(|selector| selector.node_selector_terms.as_slice()).unwrap_or_default();
    let is_semver = |operator: &str| operator.starts_with("Semver");
    spec.tolerations.iter().any(|it| !it.expression.is_empty() || is_semver(&it.operator))
        || terms.iter().any(|term| {
            !term.match_cel_expressions.is_empty() || term.match_expressions.iter().any(|it| is_semver(&it.operator))
        })
}
