//! Expressions and versions behind a verdict that had no answer: for events and logs.
//!
//! A failure counts as no match, so that no verdict names it. Scheduler, DaemonSet controller, taint eviction
//! and node agent report it with the same texts.

use std::borrow::Cow;

use api::core::v1::{PodSpec, Taint};
use api::features::Gate;
use api::json::Text;

use crate::expressions::{Outcome, Reason};
use crate::tolerations::{Tolerations, UnusableReason};
use crate::{Node, PodMatcher, taints};

/// Reason of the event about an expression without an answer.
const EXPRESSION_FAILED: &str = "ExpressionFailed";

/// Reason of the event about a field that a gate disables.
const GATE_DISABLED: &str = "FeatureGateDisabled";

/// The number of complaints that one decision reports.
pub const REPORTED_MAX: usize = 8;

/// Something that had no answer, and the node on which it was seen first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    /// An expression: event `ExpressionFailed`, and a line in the log.
    Expression {
        /// A node for which it had no answer.
        node: Text,
        /// The number of such nodes.
        nodes: usize,
        /// The expression.
        expression: Text,
        /// Its input.
        value: Text,
        /// The kind of failure.
        reason: Reason,
        /// The message of the evaluator.
        error: Text,
    },
    /// A taint that is compared as a version and is none: a line in the log.
    TaintVersion {
        /// The node.
        node: Text,
        /// The taint's value.
        value: Text,
        /// The message of the parser.
        error: Text,
    },
    /// A label that is compared as a version and is none: in the log only at the highest level, because nodes are many.
    LabelVersion {
        /// The node.
        node: Text,
        /// The label.
        label: Text,
        /// Its value.
        value: Text,
        /// The message of the parser.
        error: Text,
    },
    /// A field of the pod without effect, because its gate is off in the component: event `FeatureGateDisabled`, and a line in
    /// the log.
    GateOff {
        /// The field.
        field: Text,
        /// The gate.
        gate: Gate,
        /// The component.
        component: &'static str,
    },
}

impl Complaint {
    /// The note of an event, or a line of a log.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Complaint::Expression { node, nodes, expression, value, error, .. } => {
                let place = if *nodes > 1 { format!("{nodes} nodes (first {node})") } else { format!("node {node}") };
                format!("expression {expression:?} failed on {place} for {value}: {error}")
            }
            Complaint::TaintVersion { value, .. } => {
                format!("failed to parse taint value as semantic version taint={value:?}")
            }
            Complaint::LabelVersion { label, value, error, .. } => {
                format!("Parse semver failed for value {value} in label {label}, {error}")
            }
            Complaint::GateOff { field, gate, component } => {
                format!("{field} has no effect: feature gate {} is off in the {component}", gate.name())
            }
        }
    }

    /// Reason and note of the event, where there is one.
    #[must_use]
    pub fn event(&self) -> Option<(&'static str, String)> {
        match self {
            Complaint::Expression { .. } => Some((EXPRESSION_FAILED, self.message())),
            Complaint::GateOff { .. } => Some((GATE_DISABLED, self.message())),
            Complaint::TaintVersion { .. } | Complaint::LabelVersion { .. } => None,
        }
    }

    /// The verbosity from which on the log has it; 0 is an error.
    #[must_use]
    pub fn verbosity(&self) -> u8 {
        match self {
            // Nodes differ in labels: a missing one is not an error.
            Complaint::Expression { reason: Reason::Missing, .. } | Complaint::GateOff { .. } => 4,
            Complaint::Expression { .. } | Complaint::TaintVersion { .. } => 0,
            Complaint::LabelVersion { .. } => 5,
        }
    }

    /// The message in the log; the proposals give these.
    #[must_use]
    pub fn title(&self) -> Cow<'static, str> {
        match self {
            Complaint::Expression { .. } => "CEL runtime error".into(),
            Complaint::TaintVersion { .. } => "failed to parse taint value as semantic version".into(),
            Complaint::LabelVersion { .. } => self.message().into(),
            Complaint::GateOff { .. } => "Field of a disabled feature gate has no effect".into(),
        }
    }

    /// Node, expression or label, value and error, for the log.
    #[must_use]
    pub fn parts(&self) -> [&str; 4] {
        match self {
            Complaint::Expression { node, expression, value, error, .. } => [node, expression, value, error],
            Complaint::TaintVersion { node, value, error } => [node, "", value, error],
            Complaint::LabelVersion { node, label, value, error } => [node, label, value, error],
            Complaint::GateOff { field, gate, .. } => ["", field, "", gate.name()],
        }
    }

    /// Identity: each is reported once.
    #[must_use]
    pub fn key(&self) -> (Text, Text) {
        match self {
            // Nodes differ in labels without end: the failures distinguish them.
            Complaint::Expression { expression, value, error, .. } => {
                (expression.clone(), format!("{value}: {error}").into())
            }
            Complaint::TaintVersion { value, .. } => (Text::default(), value.clone()),
            Complaint::LabelVersion { label, value, .. } => (label.clone(), value.clone()),
            Complaint::GateOff { field, gate, .. } => (field.clone(), gate.name().into()),
        }
    }

    /// Counts further nodes.
    pub fn add_nodes(&mut self, count: usize) {
        if let Complaint::Expression { nodes, .. } = self {
            *nodes = nodes.saturating_add(count);
        }
    }
}

fn failed(node: &Text, expression: &str, value: String, outcome: &Outcome) -> Option<Complaint> {
    let failure = outcome.failure()?;
    let (reason, error) = (failure.reason, failure.message.as_ref().into());
    let (expression, value) = (expression.into(), value.into());
    Some(Complaint::Expression { node: node.clone(), nodes: 1, expression, value, reason, error })
}

/// Complaints about tolerations and a taint of a node.
#[must_use]
pub fn about_taint(tolerations: &Tolerations, node: &Text, taint: &Taint) -> Vec<Complaint> {
    let value = || format!("taint {}={}:{}", taint.key, taint.value, taint.effect);
    let failures = tolerations.failures(taint);
    let mut all: Vec<_> = failures.filter_map(|(text, outcome)| failed(node, text, value(), &outcome)).collect();
    if let Some(error) = tolerations.not_a_version(taint) {
        all.push(Complaint::TaintVersion { node: node.clone(), value: taint.value.clone(), error: error.into() });
    }
    all
}

/// Complaints about the required affinity and the labels of a node.
#[must_use]
pub fn about_labels(matcher: &PodMatcher, node: &Node) -> Vec<Complaint> {
    let (required, name) = (matcher.required(), &node.name);
    let failures = required.failures(node).into_iter();
    let value = || "the node's labels".to_owned();
    let mut all: Vec<_> = failures.filter_map(|(text, outcome)| failed(name, &text, value(), &outcome)).collect();
    all.extend(required.not_versions(node).into_iter().map(|(label, value, error)| Complaint::LabelVersion {
        node: name.clone(),
        label,
        value,
        error: error.into(),
    }));
    all
}

/// Required terms of a pod's affinity.
const REQUIRED_TERMS: &str =
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";

/// Complaints about fields of a pod without effect, because their gates are off in this component.
#[must_use]
pub fn about_gates(spec: &PodSpec, matcher: &PodMatcher, component: &'static str) -> Vec<Complaint> {
    let tolerations = spec.tolerations.iter().zip(matcher.tolerations().iter()).enumerate();
    let tolerations = tolerations.filter_map(|(index, (given, compiled))| {
        let Some(UnusableReason::GateOff(gate)) = compiled.unusable() else { return None };
        let field = if given.expression.is_empty() { "operator" } else { "expression" };
        Some((format!("spec.tolerations[{index}].{field}"), *gate))
    });
    let terms = matcher.required().gates_off().map(|(index, gate)| {
        let field =
            if gate == Gate::TaintTolerationNodeAffinityCEL { "matchCELExpressions" } else { "matchExpressions" };
        (format!("{REQUIRED_TERMS}[{index}].{field}"), gate)
    });
    let complaint = |(field, gate): (String, Gate)| Complaint::GateOff { field: field.into(), gate, component };
    tolerations.chain(terms).map(complaint).collect()
}

/// Complaints about a pod and the taints and labels of a node.
#[must_use]
pub fn about(matcher: &PodMatcher, node: &Node) -> Vec<Complaint> {
    let hard = node.taints.taints().iter().filter(|taint| taints::is_hard(taint));
    let mut all: Vec<_> = hard.flat_map(|taint| about_taint(matcher.tolerations(), &node.name, taint)).collect();
    all.extend(about_labels(matcher, node));
    all
}

/// Complaints of one decision: similar ones are merged, and their nodes counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Complaints(Vec<Complaint>);

impl Complaints {
    /// Adds complaints; further ones than [`REPORTED_MAX`] are dropped.
    pub fn extend(&mut self, complaints: impl IntoIterator<Item = Complaint>) {
        for complaint in complaints {
            let key = complaint.key();
            if let Some(known) = self.0.iter_mut().find(|known| known.key() == key) {
                known.add_nodes(1);
            } else if self.0.len() < REPORTED_MAX {
                self.0.push(complaint);
            }
        }
    }

    /// The complaints, in the order in which they were found.
    #[must_use]
    pub fn into_vec(self) -> Vec<Complaint> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(node: &str, reason: Reason) -> Complaint {
        Complaint::Expression {
            node: node.into(),
            nodes: 1,
            expression: "e".into(),
            value: "the node's labels".into(),
            reason,
            error: "no such key: tier".into(),
        }
    }

    #[test]
    fn alike_complaints_are_joined_and_nodes_counted() {
        let mut all = Complaints::default();
        all.extend(["a", "b", "c"].map(|node| complaint(node, Reason::Missing)));
        let all = all.into_vec();
        let messages: Vec<String> = all.iter().map(Complaint::message).collect();
        assert_eq!(messages, ["expression \"e\" failed on 3 nodes (first a) for the node's labels: no such key: tier"]);
        assert!(all.iter().all(|it| it.verbosity() == 4), "what is merely absent is no error");
        assert_eq!(complaint("a", Reason::Conversion).verbosity(), 0);
    }
}
