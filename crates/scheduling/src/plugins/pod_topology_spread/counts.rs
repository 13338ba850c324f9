//! Number of pods in each topology domain.

use std::collections::HashMap;

use api::json::Text;
use matching::topology_spread::SpreadConstraint;

use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};

/// Constraints, each with its counts.
#[derive(Clone)]
pub(super) struct Counts {
    constraints: Vec<(SpreadConstraint, PodCounts)>,
}

/// Pods by the value of a label of their nodes.
#[derive(Clone, Default)]
pub(super) struct PodCounts {
    by_value: HashMap<Text, i64>,
    /// The emptiest parts. Kubernetes keeps two and lets the second grow stale while pods are imagined away: so do we.
    emptiest: [(Text, i64); 2],
}

/// Number of matching pods on each node. Terminating pods do not count.
pub(super) struct MatchingPods {
    by_node: HashMap<NodeId, i64>,
}

impl MatchingPods {
    pub(super) fn new(constraint: &SpreadConstraint, namespace: &str, cluster: &Cluster) -> Self {
        let mut by_node: HashMap<NodeId, i64> = HashMap::new();
        // Without requirements nothing is counted, as in Kubernetes.
        let selector = constraint.selector.as_ref().filter(|selector| !selector.is_empty());
        if let Some(selector) = selector {
            for (shape, nodes) in cluster.cache.shapes() {
                if shape.namespace() != namespace || !selector.matches(shape.labels()) {
                    continue;
                }
                for (node, count) in nodes {
                    let staying = i64::from(count.all).saturating_sub(i64::from(count.deleting));
                    let here = by_node.entry(*node).or_default();
                    *here = here.saturating_add(staying);
                }
            }
        }
        MatchingPods { by_node }
    }

    pub(super) fn on(&self, node: NodeId) -> i64 {
        self.by_node.get(&node).copied().unwrap_or(0)
    }
}

impl Counts {
    pub(super) fn of(constraints: Vec<SpreadConstraint>, pod: &PodInfo, cluster: &Cluster) -> Self {
        let keys: Vec<Text> = constraints.iter().map(|it| it.topology_key.clone()).collect();
        let constraints = constraints.into_iter().map(|constraint| {
            let mut by_value: HashMap<Text, i64> = HashMap::new();
            let matching = MatchingPods::new(&constraint, pod.namespace(), cluster);
            for node in cluster.cache.nodes() {
                let labels = &node.object.matching.labels;
                if !keys.iter().all(|key| labels.get(key).is_some())
                    || !constraint.includes(&pod.matcher, &node.object.matching)
                {
                    continue;
                }
                let Some(value) = labels.get(&constraint.topology_key) else { continue };
                let here = matching.on(node.id);
                match by_value.get_mut(value) {
                    Some(known) => *known = known.saturating_add(here),
                    None => {
                        by_value.insert(value.into(), here);
                    }
                }
            }
            let counted = PodCounts::new(by_value);
            (constraint, counted)
        });
        Counts { constraints: constraints.collect() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&SpreadConstraint, &PodCounts)> {
        self.constraints.iter().map(|(constraint, counted)| (constraint, counted))
    }

    /// A pod is imagined on a node, or away from it.
    pub(super) fn change(&mut self, pod: &PodInfo, waiting: &PodInfo, node: &NodeInfo, by: i64) {
        let labels = &node.object.matching.labels;
        let has_keys = self.constraints.iter().all(|(it, _)| labels.get(&it.topology_key).is_some());
        if pod.namespace() != waiting.namespace() || !has_keys {
            return;
        }
        for (constraint, counted) in &mut self.constraints {
            if constraint.selects(pod.labels())
                && constraint.includes(&waiting.matcher, &node.object.matching)
                && let Some(value) = labels.get(&constraint.topology_key)
            {
                counted.change(value, by);
            }
        }
    }
}

impl PodCounts {
    fn new(by_value: HashMap<Text, i64>) -> Self {
        let none = || (Text::default(), i64::from(i32::MAX));
        let mut counted = PodCounts { by_value: HashMap::new(), emptiest: [none(), none()] };
        let mut values: Vec<(&Text, &i64)> = by_value.iter().collect();
        values.sort();
        for (value, count) in values {
            counted.note(value, *count);
        }
        PodCounts { by_value, ..counted }
    }

    /// Number of pods in the domain with this label value.
    pub(super) fn at(&self, value: &str) -> i64 {
        self.by_value.get(value).copied().unwrap_or(0)
    }

    /// Number of pods in the emptiest domain.
    pub(super) fn least(&self, min_domains: i32) -> i64 {
        let domains = i64::try_from(self.by_value.len()).unwrap_or(i64::MAX);
        let [(_, least), _] = &self.emptiest;
        if domains < i64::from(min_domains) { 0 } else { *least }
    }

    fn change(&mut self, value: &str, by: i64) {
        let count = self.by_value.entry(value.into()).or_default();
        *count = count.saturating_add(by);
        let count = *count;
        self.note(value, count);
    }

    fn note(&mut self, value: &str, count: i64) {
        let [first, second] = &mut self.emptiest;
        if first.0 == value {
            first.1 = count;
        } else if second.0 == value {
            second.1 = count;
        } else if count < first.1 {
            *second = std::mem::replace(first, (value.into(), count));
        } else if count < second.1 {
            *second = (value.into(), count);
        }
        if first.1 > second.1 {
            std::mem::swap(first, second);
        }
    }
}
