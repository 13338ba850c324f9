//! Node selectors: terms of which one must match, of requirements that must all hold.
//!
//! Used by pods' node affinity and by volumes. Follows `component-helpers/scheduling/corev1/nodeaffinity`:
//! parse errors are reported only if no term matches. Expressions follow KEP-5500, versions KEP-5721.

mod requirement;

use api::core::v1;
use api::features::Gate;
use api::field::{Errors, Path};
use api::json::{Text, Value};
pub(crate) use requirement::Requirement;

use crate::expressions::object_limits::Tally;
use crate::expressions::{CompileCache, LabelExpression, Outcome};
use crate::features::Features;
use crate::node::Node;
use crate::tolerations::UnusableReason;

/// Terms of which one must match.
#[derive(Debug, Default)]
pub struct NodeSelector {
    terms: Box<[(usize, Term)]>,
}

/// Requirements that must all hold.
#[derive(Debug)]
pub struct Term {
    pub(crate) labels: Box<[Requirement]>,
    pub(crate) fields: Box<[FieldRequirement]>,
    pub(crate) expressions: Box<[TermExpression]>,
    /// Parse errors. A term with an error matches nothing.
    errors: Errors,
    /// The disabled gate that keeps the term from matching.
    pub(crate) gate_off: Option<Gate>,
}

/// A condition on a field of the node: only its name is supported.
#[derive(Debug)]
pub(crate) struct FieldRequirement {
    pub(crate) key: Text,
    pub(crate) value: Text,
    pub(crate) is_equal: bool,
}

/// An entry of `matchCELExpressions`.
#[derive(Debug)]
pub(crate) struct TermExpression {
    pub(crate) program: Result<LabelExpression, UnusableReason>,
}

impl NodeSelector {
    /// Compiles a node selector. Unusable parts match nothing.
    pub fn new(selector: &v1::NodeSelector, cache: &CompileCache, features: &Features) -> Self {
        let at = Path::ROOT.child("nodeSelectorTerms");
        let terms = selector.node_selector_terms.iter().enumerate();
        let terms = terms.filter(|(_, term)| !is_empty(term));
        NodeSelector {
            terms: terms.map(|(index, term)| (index, Term::new(term, &at.index(index), cache, features))).collect(),
        }
    }

    /// Whether a term matches.
    pub fn matches(&self, node: &Node) -> bool {
        self.terms.iter().any(|(_, term)| term.matches(node))
    }

    /// Whether a term matches; parse errors are returned if none does.
    ///
    /// # Errors
    /// All complaints about terms.
    pub fn try_matches(&self, node: &Node) -> Result<bool, Errors> {
        if self.matches(node) {
            return Ok(true);
        }
        let errors = self.errors();
        if errors.is_empty() { Ok(false) } else { Err(errors) }
    }

    /// The expressions that have no answer for a node, and why.
    pub fn failures(&self, node: &Node) -> impl Iterator<Item = (&str, Outcome)> {
        let expressions = self.terms.iter().flat_map(|(_, term)| &term.expressions);
        expressions.filter_map(|it| it.program.as_ref().ok()).filter_map(move |program| {
            let outcome = program.outcome(&node.labels);
            outcome.own_failure().is_some().then(|| (program.text(), outcome.clone()))
        })
    }

    /// The parts that keep terms from matching any node.
    pub fn unusable(&self) -> Vec<String> {
        let of_term = |(index, term): &(usize, Term)| {
            let parts = term.unusable().into_iter();
            parts.map(|part| format!("nodeSelectorTerms[{index}].{part}")).collect::<Vec<_>>()
        };
        self.terms.iter().flat_map(of_term).collect()
    }

    /// Positions of the terms that match nothing because a gate is off, and the gate.
    pub fn gates_off(&self) -> impl Iterator<Item = (usize, Gate)> {
        self.terms.iter().filter_map(|(index, term)| Some((*index, term.gate_off?)))
    }

    /// All complaints about terms.
    pub fn errors(&self) -> Errors {
        self.terms.iter().flat_map(|(_, term)| term.errors.iter().cloned()).collect()
    }

    /// Adds the expressions of all terms.
    pub fn tally<'s>(&'s self, tally: &mut Tally<'s>) {
        self.terms.iter().for_each(|(_, term)| term.tally(tally));
    }

    /// The terms that are not empty, with their positions.
    pub fn terms(&self) -> impl Iterator<Item = (usize, &Term)> {
        self.terms.iter().map(|(index, term)| (*index, term))
    }
}

/// Whether a term selects nothing.
pub(crate) fn is_empty(term: &v1::NodeSelectorTerm) -> bool {
    term.match_expressions.is_empty() && term.match_fields.is_empty() && term.match_cel_expressions.is_empty()
}

impl Term {
    pub(crate) fn new(term: &v1::NodeSelectorTerm, at: &Path<'_>, cache: &CompileCache, features: &Features) -> Self {
        let mut errors = Errors::new();
        let mut gate_off = None;
        let list = at.child("matchExpressions");
        let mut labels = Vec::with_capacity(term.match_expressions.len());
        for (index, requirement) in term.match_expressions.iter().enumerate() {
            match Requirement::new(requirement, &list.index(index), features, &mut errors) {
                Ok(Some(requirement)) => labels.push(requirement),
                Ok(None) => {}
                Err(gate) => gate_off = Some(gate),
            }
        }
        let list = at.child("matchFields");
        let fields = term.match_fields.iter().enumerate();
        let fields = fields.filter_map(|(index, it)| FieldRequirement::new(it, &list.index(index), &mut errors));
        let fields = fields.collect();
        let mut expressions = Vec::with_capacity(term.match_cel_expressions.len());
        for text in &term.match_cel_expressions {
            let program = if features.affinity_cel {
                cache.node_affinity(text).map_err(|error| UnusableReason::DoesNotCompile(error.to_string()))
            } else {
                gate_off = Some(Gate::TaintTolerationNodeAffinityCEL);
                Err(UnusableReason::GateOff(Gate::TaintTolerationNodeAffinityCEL))
            };
            expressions.push(TermExpression { program });
        }
        Term { labels: labels.into(), fields, expressions: expressions.into(), errors, gate_off }
    }

    /// Whether everything in the term holds.
    pub fn matches(&self, node: &Node) -> bool {
        self.is_usable()
            && self.labels.iter().all(|it| it.matches(&node.labels))
            && (node.name.is_empty() || self.fields.iter().all(|it| it.matches(&node.name)))
            && self.expressions.iter().all(|it| it.matches(node))
    }

    /// Parse errors.
    pub fn errors(&self) -> &Errors {
        &self.errors
    }

    /// The parts that keep the term from matching any node: gates that are off, expressions that do not compile, values
    /// that are no versions.
    pub fn unusable(&self) -> Vec<String> {
        let expressions = self.expressions.iter().enumerate().filter_map(|(index, it)| {
            let why = match it.program.as_ref().err()? {
                UnusableReason::GateOff(gate) => format!("requires feature gate {}", gate.name()),
                UnusableReason::DoesNotCompile(error) => error.clone(),
                _ => "cannot be used".to_owned(),
            };
            Some(format!("matchCELExpressions[{index}]: {why}"))
        });
        let versions = self.labels.iter().filter(|it| it.is_never());
        let versions = versions.map(|it| format!("matchExpressions: the value for {} is not a version", it.key));
        let gate = self.gate_off.filter(|_| self.expressions.is_empty());
        let gate = gate.map(|gate| format!("matchExpressions: requires feature gate {}", gate.name()));
        expressions.chain(versions).chain(gate).collect()
    }

    /// Adds the expressions of the term.
    pub(crate) fn tally<'s>(&'s self, tally: &mut Tally<'s>) {
        for program in self.expressions.iter().filter_map(|it| it.program.as_ref().ok()) {
            tally.add(program.text(), Some(program.compiled().cost().max));
        }
    }

    fn is_usable(&self) -> bool {
        self.errors.is_empty() && self.gate_off.is_none()
    }
}

impl TermExpression {
    pub(crate) fn matches(&self, node: &Node) -> bool {
        self.program.as_ref().is_ok_and(|program| program.matches(&node.labels))
    }
}

impl FieldRequirement {
    pub(crate) fn new(requirement: &v1::NodeSelectorRequirement, at: &Path<'_>, errors: &mut Errors) -> Option<Self> {
        let is_equal = match requirement.operator.as_str() {
            "In" => true,
            "NotIn" => false,
            other => {
                errors.not_supported(at.child("operator"), other, &["In", "NotIn"]);
                return None;
            }
        };
        match requirement.values.as_deref() {
            Some([value]) => Some(FieldRequirement { key: requirement.key.clone(), value: value.clone(), is_equal }),
            values => {
                errors.invalid(at.child("values"), shown(values), "must have one element");
                None
            }
        }
    }

    pub(crate) fn matches(&self, node_name: &str) -> bool {
        // Fields that nodes do not have are empty.
        let found = if self.key == "metadata.name" { node_name } else { "" };
        (found == self.value) == self.is_equal
    }
}

/// Values as messages show them: a missing list is null.
fn shown(values: Option<&[Text]>) -> Value {
    match values {
        Some(values) => Value::Array(values.iter().map(|value| Value::String(value.clone())).collect()),
        None => Value::Null,
    }
}
