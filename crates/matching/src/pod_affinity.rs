//! Affinity between pods: terms compiled once, asked about many pods.
//!
//! Follows `AffinityTerm` of Kubernetes' scheduler. `matchLabelKeys` and `mismatchLabelKeys` are not looked at: the API
//! merges them into the selector when the pod is created.

use std::collections::BTreeSet;

use api::core::v1::{self, PodSpec};
use api::json::Text;
use api::labels::{Selector, SelectorError};
use api::meta::v1::{LabelSelector, StringMap};

/// A set of pods, and the topology in which they count.
#[derive(Debug, Clone)]
pub struct AffinityTerm {
    namespaces: BTreeSet<Text>,
    /// Nothing selects no pod.
    selector: Option<Selector>,
    /// Nothing selects no namespace.
    namespace_selector: Option<Selector>,
    /// The label of nodes that says which topology they are in.
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
    /// Why terms could not be compiled; they are left out.
    pub error: Option<SelectorError>,
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

    /// Whether a pod is meant. `namespace_labels` are those of its namespace.
    pub fn matches(&self, namespace: &str, labels: &StringMap, namespace_labels: &StringMap) -> bool {
        (self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| selector.matches(namespace_labels)))
            && self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// The same term with the namespaces that its selector selects now written out.
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
        let mut error = None;
        let mut compile = |term: &v1::PodAffinityTerm| match AffinityTerm::new(term, namespace) {
            Ok(term) => Some(term),
            Err(why) => {
                error.get_or_insert(why);
                None
            }
        };
        if let Some(together) = &affinity.pod_affinity {
            let required = &together.required_during_scheduling_ignored_during_execution;
            compiled.required = required.iter().filter_map(&mut compile).collect();
            let preferred = &together.preferred_during_scheduling_ignored_during_execution;
            let preferred = preferred.iter().filter_map(|it| Some((compile(&it.pod_affinity_term)?, it.weight)));
            compiled.preferred = preferred.collect();
        }
        if let Some(apart) = &affinity.pod_anti_affinity {
            let required = &apart.required_during_scheduling_ignored_during_execution;
            compiled.required_anti = required.iter().filter_map(&mut compile).collect();
            let preferred = &apart.preferred_during_scheduling_ignored_during_execution;
            let preferred = preferred.iter().filter_map(|it| Some((compile(&it.pod_affinity_term)?, it.weight)));
            compiled.preferred_anti = preferred.collect();
        }
        compiled.error = error;
        compiled
    }

    /// There are no terms.
    pub fn is_empty(&self) -> bool {
        self.required.is_empty()
            && self.required_anti.is_empty()
            && self.preferred.is_empty()
            && self.preferred_anti.is_empty()
    }
}
