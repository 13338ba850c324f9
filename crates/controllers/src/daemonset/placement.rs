//! On which nodes a daemon pod should run, and where one that runs already may stay.
//!
//! Follows `NodeShouldRunDaemonPod` and `AddOrUpdateDaemonPodTolerations` of Kubernetes' DaemonSet controller. Tolerations
//! and affinity are decided by `matching`; what a node has left, and whether it is cordoned, is not asked.

use api::core::v1::{PodSpec, Toleration};
use api::json::Text;
use matching::{CompileCache, Features, Node, PodMatcher, taints, tolerations};

/// What a daemon set says about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// A pod belongs there.
    pub should_run: bool,
    /// A pod that is there may stay.
    pub should_continue: bool,
}

impl Placement {
    const NONE: Self = Placement { should_run: false, should_continue: false };
}

/// What the pods of a daemon set ask of nodes: made once per template, asked about many nodes.
#[derive(Debug)]
pub struct Demand {
    /// The template wants one node only.
    node_name: Text,
    matcher: PodMatcher,
}

impl Demand {
    /// What pods of this template ask. What cannot be used matches nothing.
    #[must_use]
    pub fn new(template: &PodSpec, cache: &CompileCache, features: &Features) -> Self {
        let mut spec = template.clone();
        add_tolerations(&mut spec.tolerations, template.host_network);
        Demand { node_name: template.node_name.clone(), matcher: PodMatcher::new(&spec, cache, features) }
    }

    /// Whether a pod belongs on a node, and whether one may stay there.
    #[must_use]
    pub fn placement(&self, node: &Node) -> Placement {
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

/// Adds what every daemon pod tolerates: that its node is in trouble or cordoned.
pub fn add_tolerations(list: &mut Vec<Toleration>, host_network: bool) {
    let always = [
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    ];
    let network = host_network.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
    for (key, effect) in always.into_iter().chain(network) {
        let toleration =
            Toleration { key: key.into(), operator: "Exists".into(), effect: effect.into(), ..Toleration::default() };
        tolerations::add_or_update(list, &toleration);
    }
}
