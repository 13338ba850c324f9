//! Affinity: where a pod must or would like to run, relative to nodes and other pods.
//!
//! `matchCELExpressions` is the field of KEP-5500. Whether a node matches is decided by `matching`.

use crate::json::Text;
use crate::meta::v1::LabelSelector;
use crate::view::view;

view! {
    /// All rules of a pod.
    pub struct Affinity {
        pub node_affinity: Option<NodeAffinity>,
        pub pod_affinity: Option<PodAffinity>,
        pub pod_anti_affinity: Option<PodAffinity>,
    }

    /// Rules about nodes.
    pub struct NodeAffinity {
        pub required_during_scheduling_ignored_during_execution: Option<NodeSelector>,
        pub preferred_during_scheduling_ignored_during_execution: Vec<PreferredSchedulingTerm>,
    }

    /// Terms of which one must match.
    pub struct NodeSelector {
        pub node_selector_terms: Vec<NodeSelectorTerm>,
    }

    /// Requirements that must all hold. An empty term matches nothing.
    pub struct NodeSelectorTerm {
        pub match_expressions: Vec<NodeSelectorRequirement>,
        pub match_fields: Vec<NodeSelectorRequirement>,
        #[serde(rename = "matchCELExpressions")]
        pub match_cel_expressions: Vec<Text>,
    }

    /// A condition on one label or field.
    pub struct NodeSelectorRequirement {
        pub key: Text,
        pub operator: Text,
        // Messages distinguish a missing list from an empty one.
        pub values: Option<Vec<Text>>,
    }

    /// A term that adds to the score of nodes it matches.
    pub struct PreferredSchedulingTerm {
        pub weight: i32,
        pub preference: NodeSelectorTerm,
    }

    /// Rules about other pods; the same form for affinity and anti-affinity.
    pub struct PodAffinity {
        pub required_during_scheduling_ignored_during_execution: Vec<PodAffinityTerm>,
        pub preferred_during_scheduling_ignored_during_execution: Vec<WeightedPodAffinityTerm>,
    }

    /// A set of pods, and the topology in which they count.
    pub struct PodAffinityTerm {
        pub label_selector: Option<LabelSelector>,
        pub namespaces: Vec<Text>,
        pub topology_key: Text,
        pub namespace_selector: Option<LabelSelector>,
        pub match_label_keys: Vec<Text>,
        pub mismatch_label_keys: Vec<Text>,
    }

    /// A term that adds to the score.
    pub struct WeightedPodAffinityTerm {
        pub weight: i32,
        pub pod_affinity_term: PodAffinityTerm,
    }
}

/// Comparison operator for node labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum NodeSelectorOperator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
    /// KEP-5721.
    SemverLt,
    /// KEP-5721.
    SemverGt,
    /// KEP-5721.
    SemverEq,
}

impl NodeSelectorOperator {
    /// The operator of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "In" => Self::In,
            "NotIn" => Self::NotIn,
            "Exists" => Self::Exists,
            "DoesNotExist" => Self::DoesNotExist,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            "SemverLt" => Self::SemverLt,
            "SemverGt" => Self::SemverGt,
            "SemverEq" => Self::SemverEq,
            _ => return None,
        })
    }

    /// Whether versions are compared.
    #[must_use]
    pub fn is_semver(self) -> bool {
        matches!(self, Self::SemverLt | Self::SemverGt | Self::SemverEq)
    }
}
