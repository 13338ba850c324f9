//! Nodes are liked where few pods of the kind are.

use std::collections::{HashMap, HashSet};

use api::json::Text;
use matching::topology_spread::SpreadConstraint;

use super::counts::MatchingPods;
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::framework::{Dependencies, MAX_NODE_SCORE, Score, Status};
use api::well_known::LABEL_HOSTNAME;

/// Counts for soft constraints.
pub(super) struct Preference {
    constraints: Vec<WeighedConstraint>,
    /// Nodes that lack a label of a constraint.
    ignored: HashSet<NodeId>,
}

struct WeighedConstraint {
    constraint: SpreadConstraint,
    matching: MatchingPods,
    by_value: HashMap<Text, i64>,
    /// Weight that compensates for topologies of many domains, which have few pods in each.
    weight: f64,
}

impl Preference {
    #[expect(clippy::cast_precision_loss, clippy::float_arithmetic, reason = "Kubernetes reckons in floats")]
    pub(super) fn new(
        constraints: Vec<SpreadConstraint>,
        pod: &PodInfo,
        cluster: &Cluster,
        nodes: &[NodeId],
        requires_all: bool,
    ) -> Self {
        let keys: Vec<Text> = constraints.iter().map(|it| it.topology_key.clone()).collect();
        let is_out = |node: &NodeInfo| {
            let labels = &node.object.matching.labels;
            requires_all && !keys.iter().all(|key| labels.get(key).is_some())
        };
        let feasible: Vec<&NodeInfo> = nodes.iter().filter_map(|id| cluster.cache.node(*id)).collect();
        let ignored: HashSet<NodeId> = feasible.iter().filter(|node| is_out(node)).map(|node| node.id).collect();
        let weighed = constraints.into_iter().map(|constraint| {
            let matching = MatchingPods::new(&constraint, pod.namespace(), cluster);
            let is_host = constraint.topology_key == LABEL_HOSTNAME;
            // A missing label is a separate domain, as in Kubernetes.
            let value = |node: &NodeInfo| {
                node.object.matching.labels.get(&constraint.topology_key).unwrap_or_default().to_owned()
            };
            let mut by_value: HashMap<Text, i64> = HashMap::new();
            if !is_host {
                for node in feasible.iter().filter(|node| !ignored.contains(&node.id)) {
                    by_value.entry(value(node).into()).or_default();
                }
                for node in cluster.cache.nodes() {
                    let here = matching.on(node.id);
                    if here != 0
                        && !is_out(node)
                        && constraint.includes(&pod.matcher, &node.object.matching)
                        && let Some(count) = by_value.get_mut(value(node).as_str())
                    {
                        *count = count.saturating_add(here);
                    }
                }
            }
            let parts = if is_host { feasible.len().saturating_sub(ignored.len()) } else { by_value.len() };
            let weight = (parts as f64 + 2.0).ln();
            WeighedConstraint { constraint, matching, by_value, weight }
        });
        Preference { constraints: weighed.collect(), ignored }
    }
}

impl Score for Preference {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::float_arithmetic,
        reason = "Kubernetes reckons in floats"
    )]
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        if self.ignored.contains(&node.id) {
            return Ok(0);
        }
        let mut score = 0.0;
        for weighed in &self.constraints {
            let key = &weighed.constraint.topology_key;
            if let Some(value) = node.object.matching.labels.get(key) {
                let count = if key == LABEL_HOSTNAME {
                    weighed.matching.on(node.id)
                } else {
                    weighed.by_value.get(value).copied().unwrap_or(0)
                };
                score += count as f64 * weighed.weight + f64::from(weighed.constraint.max_skew.saturating_sub(1));
            }
        }
        Ok(score.round() as i64)
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [(NodeId, i64)]) {
        let counted = || scores.iter().filter(|(node, _)| !self.ignored.contains(node)).map(|(_, score)| *score);
        let least = counted().min().unwrap_or(i64::MAX);
        let most = counted().max().unwrap_or(0).max(0);
        for (node, score) in scores {
            // Kubernetes marks nodes that do not count by this score, and finds others that happen to have it.
            *score = if self.ignored.contains(node) || *score == -1 {
                0
            } else {
                let from_most = most.saturating_add(least).saturating_sub(*score);
                MAX_NODE_SCORE.saturating_mul(from_most).checked_div(most).unwrap_or(MAX_NODE_SCORE)
            };
        }
    }

    fn depends_on(&self) -> Dependencies {
        // Counts depend on which nodes fit.
        Dependencies::UNKNOWN
    }
}
