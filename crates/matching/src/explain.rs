//! Explanation of a pod on a node: every taint, toleration and term, with verdicts, values and costs.
//!
//! For diagnosis, not for hot loops: everything is evaluated again and traced. The verdicts are those of the
//! matchers.

mod evaluation;

use api::core::v1::{self, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PodSpec, Taint};
use api::features::Gate;
use api::field::{Errors, Path};
pub use evaluation::{Evaluation, Step};

use crate::expressions::CompileCache;
use crate::features::Features;
use crate::node::Node;
use crate::node_selector::{FieldRequirement, Requirement, is_empty};
use crate::taints;
use crate::tolerations::{Rule, Toleration, UnusableReason};
use crate::volumes::nameless;

/// Explains the verdicts about a pod.
#[derive(Debug, Clone, Copy)]
pub struct Explainer<'a> {
    /// Spec of the pod.
    pub spec: &'a PodSpec,
    /// Compile cache for its expressions.
    pub cache: &'a CompileCache,
    /// Enabled features.
    pub features: Features,
}

/// One thing that holds or does not, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Reason {
    /// Text of the requirement, as in the manifest.
    pub what: String,
    /// Whether the requirement holds.
    pub holds: bool,
    /// Reason for a mismatch, if it is not obvious.
    pub detail: Option<String>,
    /// Trace of the expression's evaluation.
    pub evaluation: Option<Evaluation>,
}

/// Result of the tolerations for one taint.
#[derive(Debug, Clone, PartialEq)]
pub struct TaintReason {
    /// The first toleration that tolerates it.
    pub tolerated_by: Option<usize>,
    /// Whether the taint excludes the pod.
    pub rejects: bool,
    /// All tolerations.
    pub tolerations: Vec<Reason>,
}

/// Result of a term for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct TermReason {
    /// The term's position.
    pub index: usize,
    /// Weight that a preferred term adds to the score.
    pub weight: Option<i32>,
    /// Whether the term matches.
    pub matches: bool,
    /// All that must hold.
    pub parts: Vec<Reason>,
}

impl Explainer<'_> {
    /// Evaluates the tolerations for a taint.
    pub fn taint(&self, taint: &Taint) -> TaintReason {
        let tolerations: Vec<Reason> = self.spec.tolerations.iter().map(|it| self.toleration(it, taint)).collect();
        let tolerated_by = tolerations.iter().position(|reason| reason.holds);
        TaintReason { tolerated_by, rejects: tolerated_by.is_none() && taints::is_hard(taint), tolerations }
    }

    /// Evaluates `spec.nodeSelector` for a node: one reason per label.
    pub fn node_selector(&self, node: &Node) -> Vec<Reason> {
        let labels = self.spec.node_selector.iter();
        labels
            .map(|(key, value)| {
                let found = node.labels.get(key);
                let holds = found == Some(value.as_str());
                Reason {
                    what: format!("nodeSelector {key}={value}"),
                    holds,
                    detail: (!holds).then(|| label_text(found)),
                    evaluation: None,
                }
            })
            .collect()
    }

    /// Evaluates the required terms for a node; `None` if the pod has none.
    pub fn required(&self, node: &Node) -> Option<Vec<TermReason>> {
        let affinity = self.spec.affinity.as_ref()?.node_affinity.as_ref()?;
        let selector = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
        Some(self.terms(&selector.node_selector_terms, node))
    }

    /// Evaluates the preferred terms for a node.
    pub fn preferred(&self, node: &Node) -> Vec<TermReason> {
        let affinity = self.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let terms = affinity.map(|it| it.preferred_during_scheduling_ignored_during_execution.as_slice());
        let terms = terms.unwrap_or_default().iter().enumerate();
        terms
            .map(|(index, weighted)| TermReason {
                weight: Some(weighted.weight),
                ..self.term(index, &weighted.preference, node)
            })
            .collect()
    }

    /// Evaluates a volume's terms for a node; `None` if it is accessible from everywhere.
    pub fn volume(&self, volume: &PersistentVolume, node: &Node) -> Option<Vec<TermReason>> {
        let selector = volume.spec.node_affinity.as_ref()?.required.as_ref()?;
        Some(self.terms(&selector.node_selector_terms, &nameless(&node.labels)))
    }

    fn terms(&self, terms: &[NodeSelectorTerm], node: &Node) -> Vec<TermReason> {
        terms.iter().enumerate().map(|(index, term)| self.term(index, term, node)).collect()
    }

    fn term(&self, index: usize, term: &NodeSelectorTerm, node: &Node) -> TermReason {
        let mut parts = Vec::new();
        if is_empty(term) {
            let detail = Some("matches no node".to_owned());
            parts.push(Reason { what: "empty term".to_owned(), holds: false, detail, evaluation: None });
        }
        parts.extend(term.match_expressions.iter().map(|it| self.requirement(it, node)));
        parts.extend(term.match_fields.iter().map(|it| field(it, node)));
        parts.extend(term.match_cel_expressions.iter().map(|it| self.expression(it, node)));
        TermReason { index, weight: None, matches: parts.iter().all(|part| part.holds), parts }
    }

    fn requirement(&self, requirement: &NodeSelectorRequirement, node: &Node) -> Reason {
        let mut errors = Errors::new();
        let parsed = Requirement::new(requirement, &Path::ROOT, &self.features, &mut errors);
        let (holds, detail) = match parsed {
            Ok(Some(parsed)) => {
                let holds = parsed.matches(&node.labels);
                (holds, (!holds).then(|| label_text(node.labels.get(&requirement.key))))
            }
            Ok(None) => (false, Some(errors.message())),
            Err(gate) => (false, Some(gate_text(gate))),
        };
        Reason { what: requirement_text("", requirement), holds, detail, evaluation: None }
    }

    fn expression(&self, text: &str, node: &Node) -> Reason {
        let what = text.to_owned();
        if !self.features.affinity_cel {
            let detail = Some(gate_text(Gate::TaintTolerationNodeAffinityCEL));
            return Reason { what, holds: false, detail, evaluation: None };
        }
        match self.cache.node_affinity(text) {
            Ok(expression) => Reason::evaluated(what, Evaluation::of_labels(expression.compiled(), &node.labels)),
            Err(error) => Reason { what, holds: false, detail: Some(error.to_string()), evaluation: None },
        }
    }

    fn toleration(&self, view: &v1::Toleration, taint: &Taint) -> Reason {
        let what = toleration_text(view);
        let toleration = Toleration::new(view, self.cache, &self.features);
        match toleration.rule() {
            Rule::Expression(expression) if toleration.is_for(taint) => {
                let seen = taints::seen_by_expressions(taint);
                Reason::evaluated(what, Evaluation::of_taint(expression.compiled(), &seen))
            }
            Rule::Never(why) => {
                let detail = match why {
                    // Either of two opens the field.
                    UnusableReason::GateOff(gate @ Gate::TaintTolerationCEL) => {
                        let other = Gate::TaintTolerationNodeAffinityCEL.name();
                        format!("needs feature gate {} or {other}, which are off", gate.name())
                    }
                    why => unusable_text(why),
                };
                Reason { what, holds: false, detail: Some(detail), evaluation: None }
            }
            _ => {
                let holds = toleration.tolerates(taint);
                Reason { what, holds, detail: None, evaluation: None }
            }
        }
    }
}

impl Reason {
    fn evaluated(what: String, evaluation: Evaluation) -> Reason {
        let holds = evaluation.result == Ok(true);
        let detail = evaluation.result.as_ref().err().map(|error| format!("error: {error}"));
        Reason { what, holds, detail, evaluation: Some(evaluation) }
    }
}

fn field(requirement: &NodeSelectorRequirement, node: &Node) -> Reason {
    let mut errors = Errors::new();
    let what = requirement_text("field ", requirement);
    let Some(parsed) = FieldRequirement::new(requirement, &Path::ROOT, &mut errors) else {
        return Reason { what, holds: false, detail: Some(errors.message()), evaluation: None };
    };
    // A node without a name represents any: volumes are matched by labels alone.
    let holds = node.name.is_empty() || parsed.matches(&node.name);
    Reason { what, holds, detail: None, evaluation: None }
}

fn requirement_text(prefix: &str, requirement: &NodeSelectorRequirement) -> String {
    let values = requirement.values.as_deref().unwrap_or_default();
    let values = if values.is_empty() { String::new() } else { format!(" [{}]", values.join(", ")) };
    format!("{prefix}{} {}{values}", requirement.key, requirement.operator)
}

/// A toleration in one line.
pub fn toleration_text(toleration: &v1::Toleration) -> String {
    let mut text = if toleration.expression.is_empty() {
        let operator = if toleration.operator.is_empty() { "Equal" } else { toleration.operator.as_str() };
        let key = if toleration.key.is_empty() { "any key" } else { toleration.key.as_str() };
        let value = if toleration.value.is_empty() { String::new() } else { format!(" {}", toleration.value) };
        format!("{key} {operator}{value}")
    } else {
        toleration.expression.to_string()
    };
    if !toleration.effect.is_empty() {
        text = format!("{text} :{}", toleration.effect);
    }
    match toleration.toleration_seconds {
        Some(seconds) => format!("{text} for {seconds}s"),
        None => text,
    }
}

fn label_text(label: Option<&str>) -> String {
    label.map_or_else(|| "the node has no such label".to_owned(), |value| format!("the label is {value:?}"))
}

fn gate_text(gate: Gate) -> String {
    format!("needs feature gate {}, which is off", gate.name())
}

/// Describes why a rule can never match.
pub fn unusable_text(why: &UnusableReason) -> String {
    match why {
        UnusableReason::GateOff(gate) => gate_text(*gate),
        UnusableReason::UnknownOperator(operator) => format!("operator {operator:?} is not known"),
        UnusableReason::NotANumber(value) => format!("{value:?} is not a canonical whole number"),
        UnusableReason::NotAVersion(error) | UnusableReason::DoesNotCompile(error) => error.clone(),
    }
}
