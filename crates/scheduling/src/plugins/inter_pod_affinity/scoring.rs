//! Scores nodes by the pods around them: those that this pod prefers, and those that prefer this pod.

use api::meta::v1::StringMap;
use matching::pod_affinity::AffinityTerm;

use super::topology::Topology;
use super::{namespace_labels, resolved};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo, Shape};
use crate::framework::{Dependencies, MAX_NODE_SCORE, Score, Status};

/// Sums of weights by topology.
pub(super) struct Preference {
    sums: Topology,
}

impl Preference {
    /// `None` if no term matters on any node. `only_whether` stops at the first one that may.
    pub(super) fn new(
        pod: &PodInfo,
        cluster: &Cluster,
        hard_weight: i32,
        prefers: bool,
        only_whether: bool,
    ) -> Option<Self> {
        let own_labels = namespace_labels(cluster, pod.namespace()).cloned().unwrap_or_default();
        let resolve = |terms: &[(AffinityTerm, i32)], sign: i64| -> Vec<(AffinityTerm, i64)> {
            let weigh = |weight: i32| i64::from(weight).saturating_mul(sign);
            terms.iter().map(|(term, weight)| (resolved(term, cluster), weigh(*weight))).collect()
        };
        let own: Vec<(AffinityTerm, i64)> =
            resolve(&pod.affinity.preferred, 1).into_iter().chain(resolve(&pod.affinity.preferred_anti, -1)).collect();
        let mut sums = Topology::default();
        let mut is_touched = false;
        for (shape, nodes) in cluster.cache.shapes() {
            if !prefers && shape.affinity.is_empty() {
                continue;
            }
            let weights = weights(pod, &own_labels, &own, shape, hard_weight);
            if weights.is_empty() {
                continue;
            }
            if only_whether {
                return Some(Preference { sums });
            }
            for (node, count) in nodes {
                let Some(node) = cluster.cache.node(*node) else { continue };
                for (key, weight) in &weights {
                    is_touched |= sums.add(node, key, weight.saturating_mul(i64::from(count.all)));
                }
            }
        }
        is_touched.then_some(Preference { sums })
    }
}

/// Returns the weights that a pod of a shape adds in its domain, by topology key.
fn weights<'s>(
    pod: &PodInfo,
    own_labels: &StringMap,
    own: &'s [(AffinityTerm, i64)],
    shape: &'s Shape,
    hard_weight: i32,
) -> Vec<(&'s str, i64)> {
    let nothing = StringMap::new();
    let of_own = own.iter().filter(|(term, _)| term.matches(shape.namespace(), shape.labels(), &nothing));
    let of_own = of_own.map(|(term, weight)| (term, *weight));
    let asks = |term: &AffinityTerm| term.matches(pod.namespace(), pod.labels(), own_labels);
    let hard = shape.affinity.required.iter().filter(|_| hard_weight > 0).map(|term| (term, i64::from(hard_weight)));
    let soft = shape.affinity.preferred.iter().map(|(term, weight)| (term, i64::from(*weight)));
    let anti = shape.affinity.preferred_anti.iter().map(|(term, weight)| (term, i64::from(*weight).saturating_neg()));
    let theirs = hard.chain(soft).chain(anti).filter(|(term, _)| asks(term));
    of_own.chain(theirs).map(|(term, weight)| (term.topology_key.as_str(), weight)).collect()
}

impl Score for Preference {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        Ok(self.sums.on(node).fold(0, i64::saturating_add))
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::float_arithmetic,
        reason = "Kubernetes reckons in floats, and truncates"
    )]
    fn normalize(&self, scores: &mut [(NodeId, i64)]) {
        let least = scores.iter().map(|(_, score)| *score).min().unwrap_or(0);
        let most = scores.iter().map(|(_, score)| *score).max().unwrap_or(0);
        let range = most.saturating_sub(least);
        for (_, score) in scores {
            let above = score.saturating_sub(least);
            let share = if range > 0 { above as f64 / range as f64 } else { 0.0 };
            *score = (MAX_NODE_SCORE as f64 * share) as i64;
        }
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::PODS)
    }
}
