//! Affinity between pods: terms compiled once, matched against many pods.
//!
//! Follows `AffinityTerm` of Kubernetes' scheduler. `matchLabelKeys` and `mismatchLabelKeys` are ignored: the
//! API merges them into the selector when the pod is created.

use std::collections::BTreeSet;

use api::core::v1::{self, PodSpec};
use api::json::Text;
use api::labels::{Selector, SelectorError};
use api::meta::v1::{LabelSelector, StringMap};

/// A set of pods, and the topology in which they count.
#[derive(Debug, Clone)]
pub struct AffinityTerm {
    namespaces: BTreeSet<Text>,
    /// `None` selects no pod.
    selector: Option<Selector>,
    /// `None` selects no namespace.
    namespace_selector: Option<Selector>,
    /// Node label whose value identifies the topology domain.
    pub topology_key: Text,
}

/// All terms of a pod.
#[derive(Debug, Clone, Default)]
pub struct PodAffinity {
    /// Must be together with these.
    pub required: Vec<AffinityTerm>,
    /// Must be apart from these.
    pub required_anti: Vec<AffinityTerm>,
    /// Would rather be together with these.
    pub preferred: Vec<(AffinityTerm, i32)>,
    /// Would rather be apart from these.
    pub preferred_anti: Vec<(AffinityTerm, i32)>,
    /// Compile errors of terms, by kind. All terms of that kind are ignored.
    pub errors: Vec<(TermKind, SelectorError)>,
}

/// A list of terms, by its name in Kubernetes' messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum TermKind {
    Required,
    RequiredAnti,
    Preferred,
    PreferredAnti,
}

impl TermKind {
    fn name(self) -> &'static str {
        match self {
            TermKind::Required => "requiredAffinityTerms",
            TermKind::RequiredAnti => "requiredAntiAffinityTerms",
            TermKind::Preferred => "preferredAffinityTerms",
            TermKind::PreferredAnti => "preferredAntiAffinityTerms",
        }
    }
}

impl AffinityTerm {
    fn new(term: &v1::PodAffinityTerm, namespace: &Text) -> Result<Self, SelectorError> {
        let mut namespaces: BTreeSet<Text> = term.namespaces.iter().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.clone());
        }
        let compile = |selector: &Option<LabelSelector>| selector.as_ref().map(LabelSelector::to_selector).transpose();
        Ok(AffinityTerm {
            namespaces,
            selector: compile(&term.label_selector)?,
            namespace_selector: compile(&term.namespace_selector)?,
            topology_key: term.topology_key.clone(),
        })
    }

    /// Whether a pod is selected. `namespace_labels` are those of its namespace.
    pub fn matches(&self, namespace: &str, labels: &StringMap, namespace_labels: &StringMap) -> bool {
        (self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(namespace_labels)))
            && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// The same term with the currently selected namespaces written out.
    #[must_use]
    pub fn resolved<'n>(&self, namespaces: impl Iterator<Item = (&'n Text, &'n StringMap)>) -> Self {
        let Some(selector) = self.namespace_selector.as_ref().filter(|selector| !selector.is_empty()) else {
            return self.clone();
        };
        let selected = namespaces.filter(|(_, labels)| selector.matches(*labels)).map(|(name, _)| name.clone());
        AffinityTerm {
            namespaces: self.namespaces.iter().cloned().chain(selected).collect(),
            namespace_selector: None,
            ..self.clone()
        }
    }
}

impl PodAffinity {
    /// The terms of a pod in a namespace.
    pub fn new(spec: &PodSpec, namespace: &Text) -> Self {
        let mut compiled = PodAffinity::default();
        let Some(affinity) = &spec.affinity else { return compiled };
        let mut errors = Vec::new();
        let mut compile = |kind: TermKind, terms: Vec<&v1::PodAffinityTerm>| {
            let compiled = terms.into_iter().map(|term| AffinityTerm::new(term, namespace));
            let compiled: Result<Vec<AffinityTerm>, SelectorError> = compiled.collect();
            compiled.unwrap_or_else(|error| {
                errors.push((kind, error));
                Vec::new()
            })
        };
        let weigh = |compiled: Vec<AffinityTerm>, terms: &[v1::WeightedPodAffinityTerm]| {
            compiled.into_iter().zip(terms.iter().map(|it| it.weight)).collect()
        };
        let (together, apart) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
        if let Some(together) = together {
            let terms = together.required_during_scheduling_ignored_during_execution.iter();
            compiled.required = compile(TermKind::Required, terms.collect());
        }
        if let Some(apart) = apart {
            let terms = apart.required_during_scheduling_ignored_during_execution.iter();
            compiled.required_anti = compile(TermKind::RequiredAnti, terms.collect());
        }
        if let Some(together) = together {
            let terms = &together.preferred_during_scheduling_ignored_during_execution;
            let of = terms.iter().map(|it| &it.pod_affinity_term);
            compiled.preferred = weigh(compile(TermKind::Preferred, of.collect()), terms);
        }
        if let Some(apart) = apart {
            let terms = &apart.preferred_during_scheduling_ignored_during_execution;
            let of = terms.iter().map(|it| &it.pod_affinity_term);
            compiled.preferred_anti = weigh(compile(TermKind::PreferredAnti, of.collect()), terms);
        }
        compiled.errors = errors;
        compiled
    }

    /// Returns the errors in terms with Kubernetes' text; `None` if there are none.
    pub fn error(&self) -> Option<String> {
        let texts: Vec<String> = self.errors.iter().map(|(kind, error)| format!("{}: {error}", kind.name())).collect();
        match texts.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            several => Some(format!("[{}]", several.join(", "))),
        }
    }

    /// Whether terms of a kind could not be compiled.
    pub fn fails(&self, kind: TermKind) -> bool {
        self.errors.iter().any(|(failed, _)| *failed == kind)
    }

    /// Whether there are no terms.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty()
            && self.required_anti.is_empty()
            && self.preferred.is_empty()
            && self.preferred_anti.is_empty()
    }
}
