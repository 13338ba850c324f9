//! Node selectors: terms of which one must match, of requirements that must all hold.
//!
//! Used by pods' node affinity and by volumes. Follows `component-helpers/scheduling/corev1/nodeaffinity`: what cannot be
//! parsed is reported only where no term matches. Expressions follow KEP-5500, versions KEP-5721.

mod requirement;

use std::sync::Arc;

use api::core::v1;
use api::features::Gate;
use api::field::{Errors, Path};
use api::json::{Text, Value};
pub(crate) use requirement::Requirement;

use crate::expressions::{CompileCache, LabelExpression, Outcome};
use crate::features::Features;
use crate::node::Node;
use crate::tolerations::Unusable;

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
    /// What could not be parsed. Such a term matches nothing.
    errors: Errors,
    /// What else keeps the term from matching anything.
    pub(crate) gate_off: Option<Gate>,
}

/// What a field of the node must be: only its name can be asked for.
#[derive(Debug)]
pub(crate) struct FieldRequirement {
    pub(crate) key: Text,
    pub(crate) value: Text,
    pub(crate) is_equal: bool,
}

/// An entry of `matchCELExpressions`.
#[derive(Debug)]
pub(crate) struct TermExpression {
    pub(crate) program: Result<Arc<LabelExpression>, Unusable>,
}

impl NodeSelector {
    /// A node selector. What cannot be used matches nothing.
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

    /// Whether a term matches; what could not be parsed is an error if none does.
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
            outcome.failure().is_some().then(|| (program.text(), outcome.clone()))
        })
    }

    /// All complaints about terms.
    pub fn errors(&self) -> Errors {
        self.terms.iter().flat_map(|(_, term)| term.errors.iter().cloned()).collect()
    }

    /// The terms that are not empty, with their positions.
    pub fn terms(&self) -> impl Iterator<Item = (usize, &Term)> {
        self.terms.iter().map(|(index, term)| (*index, term))
    }
}

/// Selects nothing.
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
                cache.node_affinity(text).map_err(|error| Unusable::DoesNotCompile(error.to_string()))
            } else {
                gate_off = Some(Gate::TaintTolerationNodeAffinityCEL);
                Err(Unusable::GateOff(Gate::TaintTolerationNodeAffinityCEL))
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

    /// What could not be parsed.
    pub fn errors(&self) -> &Errors {
        &self.errors
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
