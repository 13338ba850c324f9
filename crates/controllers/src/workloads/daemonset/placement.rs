//! Nodes on which a daemon pod should run, or an existing one may stay.
//!
//! Follows `NodeShouldRunDaemonPod` and `AddOrUpdateDaemonPodTolerations` of Kubernetes' DaemonSet controller.
//! Tolerations and affinity are decided by `matching`; free resources and cordons of nodes are ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::core::v1::{Node, PodSpec, Toleration};
use api::json::Text;
use api::well_known::{
    EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE, TAINT_DISK_PRESSURE, TAINT_MEMORY_PRESSURE, TAINT_NETWORK_UNAVAILABLE,
    TAINT_NOT_READY, TAINT_PID_PRESSURE, TAINT_UNREACHABLE, TAINT_UNSCHEDULABLE,
};
use client::costly::thread_time;
use matching::complaints::{self, Complaint, Complaints};
use matching::expressions::meter::Excess;
use matching::{CompileCache, Features, Meter, PodMatcher, taints, tolerations};

/// Decision of a daemon set about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Whether a pod belongs on the node.
    pub should_run: bool,
    /// Whether an existing pod may stay.
    pub should_continue: bool,
}

impl Placement {
    const NONE: Self = Placement { should_run: false, should_continue: false };
}

/// The decision about all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementDecision {
    /// The decision about each node, by name.
    pub placements: BTreeMap<Text, Placement>,
    /// Expressions that had no answer for nodes without a pod.
    pub complaints: Vec<Complaint>,
}

/// Requirements of a daemon set's pods on nodes: built once per template, evaluated for many nodes.
#[derive(Debug)]
pub struct Demand {
    /// The node that the template names, if any.
    node_name: Text,
    matcher: PodMatcher,
    meter: Arc<Meter>,
}

impl Demand {
    /// Builds the requirements of a template. Unusable requirements match nothing.
    #[must_use]
    pub fn new(template: &PodSpec, cache: &CompileCache, features: &Features) -> Self {
        Self::within(template, cache, features, Meter::new(Arc::new(thread_time)))
    }

    /// Like [`new`](Self::new), with a budget for each call of [`placements`](Self::placements).
    #[must_use]
    pub fn within(template: &PodSpec, cache: &CompileCache, features: &Features, meter: Meter) -> Self {
        let mut spec = template.clone();
        add_tolerations(&mut spec.tolerations, template.host_network);
        let meter = Arc::new(meter);
        let matcher = PodMatcher::new(&spec, &cache.metered(meter.clone()), features);
        Demand { node_name: template.node_name.clone(), matcher, meter }
    }

    /// Whether deciding evaluates expressions.
    #[must_use]
    pub fn has_expressions(&self) -> bool {
        self.matcher.has_expressions()
    }

    /// Decides about nodes within the budget of one reconciliation.
    ///
    /// # Errors
    /// The budget that was exceeded. Verdicts are kept: another call continues where this one stopped.
    pub fn placements<'n>(
        &self,
        nodes: impl IntoIterator<Item = &'n Node>,
        sets: &taints::Sets,
    ) -> Result<PlacementDecision, Excess> {
        self.meter.begin();
        let mut placements = BTreeMap::new();
        let mut complaints = Complaints::default();
        for node in nodes {
            let seen = matching::Node::new(node, sets);
            let placement = self.placement(&seen);
            if !placement.should_run && self.has_expressions() {
                complaints.extend(complaints::about(&self.matcher, &seen));
            }
            if let Some(excess) = self.meter.excess() {
                return Err(excess);
            }
            placements.insert(node.metadata.name.clone(), placement);
        }
        Ok(PlacementDecision { placements, complaints: complaints.into_vec() })
    }

    /// Decides for a node: a pod belongs there, one may stay there, or neither.
    #[must_use]
    pub fn placement(&self, node: &matching::Node) -> Placement {
        let is_named = self.node_name.is_empty() || self.node_name == node.name;
        if !is_named || !self.matcher.required().matches(node) {
            return Placement::NONE;
        }
        if self.matcher.taints(&node.taints).first_untolerated.is_none() {
            return Placement { should_run: true, should_continue: true };
        }
        let tolerations = self.matcher.tolerations();
        let has_to_go = tolerations.first_untolerated(node.taints.taints(), taints::is_no_execute).is_some();
        Placement { should_run: false, should_continue: !has_to_go }
    }
}

/// Adds the tolerations of every daemon pod: for unhealthy and cordoned nodes.
pub fn add_tolerations(list: &mut Vec<Toleration>, host_network: bool) {
    let always = [
        (TAINT_NOT_READY, EFFECT_NO_EXECUTE),
        (TAINT_UNREACHABLE, EFFECT_NO_EXECUTE),
        (TAINT_DISK_PRESSURE, EFFECT_NO_SCHEDULE),
        (TAINT_MEMORY_PRESSURE, EFFECT_NO_SCHEDULE),
        (TAINT_PID_PRESSURE, EFFECT_NO_SCHEDULE),
        (TAINT_UNSCHEDULABLE, EFFECT_NO_SCHEDULE),
    ];
    let network = host_network.then_some((TAINT_NETWORK_UNAVAILABLE, EFFECT_NO_SCHEDULE));
    for (key, effect) in always.into_iter().chain(network) {
        let toleration =
            Toleration { key: key.into(), operator: "Exists".into(), effect: effect.into(), ..Toleration::default() };
        tolerations::add_or_update(list, &toleration);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expressions_without_an_answer_are_reported_with_their_nodes() {
        let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let template = api::json!({"tolerations": [{"expression": "semver(taint.value).major() > 1"}]});
        let template: PodSpec = api::json::from_value(&template).unwrap();
        let nodes: Vec<Node> = [("a", "zzz"), ("b", "zzz"), ("c", "2.0.0")]
            .iter()
            .map(|(name, value)| {
                let taints = api::json!([{"key": "k", "value": (*value), "effect": "NoSchedule"}]);
                let node = api::json!({"metadata": {"name": (*name)}, "spec": {"taints": taints}});
                api::json::from_value::<Node>(&node).unwrap()
            })
            .collect();
        let demand = Demand::new(&template, &cache, &Features::ALL);
        let decided = demand.placements(&nodes, &taints::Sets::new()).unwrap();
        assert_eq!(decided.placements.values().filter(|it| it.should_run).count(), 1);
        let messages: Vec<String> = decided.complaints.iter().map(Complaint::message).collect();
        let start =
            "expression \"semver(taint.value).major() > 1\" failed on 2 nodes (first a) for taint k=zzz:NoSchedule: ";
        assert!(messages.len() == 1 && messages[0].starts_with(start), "{messages:?}");
        let errors: f64 = cache.samples().iter().filter(|it| it.0 == "errors_total").map(|it| it.3).sum();
        assert_eq!(errors as u64, 1, "remembered failures are not counted twice");
    }

    #[test]
    fn expressions_over_budget_continue_in_the_next_reconciliation() {
        let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
        let expression = "[1,2,3,4,5,6,7,8,9,10].all(a, taint.value != 'x')";
        let template = api::json!({"tolerations": [{"expression": expression}]});
        let template: PodSpec = api::json::from_value(&template).unwrap();
        let node = |number: i64| {
            let taints = api::json!([{"key": "k", "value": (number.to_string()), "effect": "NoSchedule"}]);
            let node = api::json!({"metadata": {"name": (format!("n{number}"))}, "spec": {"taints": taints}});
            api::json::from_value::<Node>(&node).unwrap()
        };
        let nodes: Vec<Node> = (0..10).map(node).collect();
        let meter = Meter::with_limits(100, Duration::MAX, Arc::new(|| Duration::ZERO));
        let demand = Demand::within(&template, &cache, &Features::ALL, meter);
        assert!(demand.has_expressions());
        let sets = taints::Sets::new();
        let mut reconciliations = 1;
        let placements = loop {
            match demand.placements(&nodes, &sets) {
                Ok(decided) => break decided.placements,
                Err(excess) => assert_eq!(excess, Excess::Cost(100)),
            }
            reconciliations += 1;
            assert!(reconciliations <= nodes.len());
        };
        assert!(reconciliations > 1, "one reconciliation may not decide everything");
        assert!(placements.len() == 10 && placements.values().all(|it| it.should_run));
        assert_eq!(cache.counts().evaluations, 10, "no verdict is found twice");
    }
}
