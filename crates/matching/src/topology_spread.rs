//! Topology spread constraints, compiled once.
//!
//! Follows `topologySpreadConstraint` of Kubernetes' scheduler.

use api::core::v1;
use api::json::Text;
use api::labels::{Operator, Requirement, Selector, SelectorError};
use api::meta::v1::{LabelSelector, StringMap};

use crate::node::Node;
use crate::pod::PodMatcher;

/// Constraint on the distribution of pods over a topology.
#[derive(Debug, Clone)]
pub struct SpreadConstraint {
    /// By how many pods a part of the topology may be ahead.
    pub max_skew: i32,
    /// Node label whose value identifies the domain.
    pub topology_key: Text,
    /// Selector of the pods that count; `None` selects none.
    pub selector: Option<Selector>,
    /// With fewer parts than this, the emptiest counts as empty.
    pub min_domains: i32,
    /// Whether nodes that the pod's affinity excludes are ignored.
    pub honors_affinity: bool,
    /// Whether nodes whose taints the pod does not tolerate are ignored.
    pub honors_taints: bool,
}

impl SpreadConstraint {
    /// A constraint of a pod with these labels.
    ///
    /// # Errors
    /// The selector is not valid.
    pub fn new(constraint: &v1::TopologySpreadConstraint, labels: &StringMap) -> Result<Self, SelectorError> {
        let selector = constraint.label_selector.as_ref().map(LabelSelector::to_selector).transpose()?;
        let keys = constraint.match_label_keys.iter().filter_map(|key| Some((key, labels.get(key)?)));
        let same = keys.map(|(key, value)| Requirement::new(key, Operator::Equals, vec![value.clone()]));
        let same: Vec<Requirement> = same.collect::<Result<_, _>>()?;
        let selector = selector.map(|selector| {
            let all = selector.requirements().iter().cloned().chain(same).collect();
            Selector::from_requirements(all)
        });
        let honors = |policy: &Option<Text>, default: bool| policy.as_ref().map_or(default, |it| it == "Honor");
        Ok(SpreadConstraint {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.clone(),
            selector,
            min_domains: constraint.min_domains.unwrap_or(1),
            honors_affinity: honors(&constraint.node_affinity_policy, true),
            honors_taints: honors(&constraint.node_taints_policy, false),
        })
    }

    /// Whether pods with these labels count.
    pub fn selects(&self, labels: &StringMap) -> bool {
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }

    /// Whether a node counts, as far as affinity and taints go.
    pub fn includes(&self, pod: &PodMatcher, node: &Node) -> bool {
        (!self.honors_affinity || pod.required().matches(node))
            && (!self.honors_taints || pod.taints(&node.taints).first_untolerated.is_none())
    }
}
