//! Node affinity: on which nodes a pod may run, and on which it would rather.
//!
//! Follows `RequiredNodeAffinity` and `PreferredSchedulingTerms` of Kubernetes' `component-helpers`.

use api::core::v1;
use api::features::Gate;
use api::field::{Errors, Path};
use api::json::Text;
use api::meta::v1::StringMap;

use crate::expressions::object_limits::Tally;
use crate::expressions::{CompileCache, Outcome};
use crate::features::Features;
use crate::node::Node;
use crate::node_selector::{NodeSelector, Term, is_empty};

/// `spec.nodeSelector` and the required node affinity.
#[derive(Debug, Default)]
pub struct RequiredAffinity {
    pub(crate) labels: StringMap,
    pub(crate) selector: Option<NodeSelector>,
}

/// The preferred node affinity.
#[derive(Debug, Default)]
pub struct PreferredAffinity {
    pub(crate) terms: Box<[WeightedTerm]>,
    errors: Errors,
}

/// A term and its weight.
#[derive(Debug)]
pub(crate) struct WeightedTerm {
    pub(crate) weight: i32,
    pub(crate) term: Term,
}

impl RequiredAffinity {
    /// Builds the requirements of a pod.
    pub fn new(
        node_selector: &StringMap,
        affinity: Option<&v1::NodeAffinity>,
        cache: &CompileCache,
        features: &Features,
    ) -> Self {
        let selector = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
        RequiredAffinity {
            labels: node_selector.clone(),
            selector: selector.map(|selector| NodeSelector::new(selector, cache, features)),
        }
    }

    /// Whether the pod may run on the node.
    pub fn matches(&self, node: &Node) -> bool {
        self.labels_match(node) && self.selector.as_ref().is_none_or(|selector| selector.matches(node))
    }

    /// Whether the pod may run on the node; parse errors are returned if no term matches.
    ///
    /// # Errors
    /// All complaints about terms.
    pub fn try_matches(&self, node: &Node) -> Result<bool, Errors> {
        match &self.selector {
            _ if !self.labels_match(node) => Ok(false),
            Some(selector) => selector.try_matches(node),
            None => Ok(true),
        }
    }

    /// The expressions that have no answer for a node, and why.
    pub fn failures(&self, node: &Node) -> Vec<(String, Outcome)> {
        let failures = self.selector.iter().flat_map(|selector| selector.failures(node));
        failures.map(|(text, outcome)| (text.to_owned(), outcome)).collect()
    }

    /// Labels of a node that would be compared as versions and are not: key, value, and why.
    pub fn not_versions(&self, node: &Node) -> Vec<(Text, Text, String)> {
        let terms = self.selector.iter().flat_map(NodeSelector::terms);
        terms.flat_map(|(_, term)| &term.labels).filter_map(|it| it.not_a_version(&node.labels)).collect()
    }

    /// All complaints about terms.
    pub fn errors(&self) -> Errors {
        self.selector.as_ref().map(NodeSelector::errors).unwrap_or_default()
    }

    /// The parts that keep terms from matching any node.
    pub fn unusable(&self) -> Vec<String> {
        self.selector.as_ref().map(NodeSelector::unusable).unwrap_or_default()
    }

    /// Positions of the terms that match nothing because a gate is off, and the gate.
    pub fn gates_off(&self) -> impl Iterator<Item = (usize, Gate)> {
        self.selector.iter().flat_map(NodeSelector::gates_off)
    }

    /// Adds all expressions.
    pub fn tally<'s>(&'s self, tally: &mut Tally<'s>) {
        self.selector.iter().for_each(|selector| selector.tally(tally));
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.selector.is_none()
    }

    fn labels_match(&self, node: &Node) -> bool {
        self.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value.as_str()))
    }
}

impl PreferredAffinity {
    /// Builds the preferences of a pod. Terms without weight and empty terms are ignored.
    pub fn new(terms: &[v1::PreferredSchedulingTerm], cache: &CompileCache, features: &Features) -> Self {
        let mut preferred = Vec::with_capacity(terms.len());
        let mut errors = Errors::new();
        for (index, weighted) in terms.iter().enumerate() {
            if weighted.weight == 0 || is_empty(&weighted.preference) {
                continue;
            }
            let term = Term::new(&weighted.preference, &Path::ROOT.index(index), cache, features);
            // With its gate off a term adds nothing; it does not keep the pod from being scheduled.
            if term.gate_off.is_none() {
                errors.append(term.errors().clone());
            }
            preferred.push(WeightedTerm { weight: weighted.weight, term });
        }
        PreferredAffinity { terms: preferred.into(), errors }
    }

    /// The sum of the weights of the terms that match.
    pub fn score(&self, node: &Node) -> i64 {
        let matching = self.terms.iter().filter(|it| it.term.matches(node));
        matching.map(|it| i64::from(it.weight)).fold(0, i64::saturating_add)
    }

    /// Parse errors of the terms; if there are any, Kubernetes scores no node.
    pub fn errors(&self) -> &Errors {
        &self.errors
    }

    /// The parts that keep terms from matching any node.
    pub fn unusable(&self) -> Vec<String> {
        self.terms.iter().flat_map(|it| it.term.unusable()).collect()
    }

    /// Adds all expressions.
    pub fn tally<'s>(&'s self, tally: &mut Tally<'s>) {
        self.terms.iter().for_each(|weighted| weighted.term.tally(tally));
    }

    /// Whether nothing is preferred.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}
