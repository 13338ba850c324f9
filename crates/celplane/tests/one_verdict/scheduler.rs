//! Effects of a toleration in the scheduler: filters, scores, spreading, preemption and a queueing hint, each
//! through the whole core.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod, Taint, Toleration};
use api::json;
use api::json::{Value, from_value};
use matching::{Features, Matcher};
use scheduling::queue::Backoff;
use scheduling::{Outcome, Scheduler, plugins};

const HOUR: Duration = Duration::from_secs(3600);

fn core(features: Features) -> Scheduler {
    let matcher = Arc::new(Matcher::new(64.try_into().unwrap(), Arc::new(|| Duration::ZERO), features).unwrap());
    let profile = plugins::default_profile(&matcher).unwrap();
    Scheduler::new(vec![profile], Backoff::default(), matcher, 1)
}

fn node(name: &str, taints: &[Taint]) -> Node {
    let mut node: Node = from_value(&json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
    }))
    .unwrap();
    node.spec.taints = taints.to_vec();
    node
}

fn pod(name: &str, tolerations: &[Toleration], spec: Value) -> Pod {
    let mut pod: Pod = from_value(&json!({
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": "a"}}, "spec": spec,
    }))
    .unwrap();
    pod.spec.scheduler_name = "default-scheduler".into();
    pod.spec.tolerations = tolerations.to_vec();
    pod
}

/// Whether the next attempt finds a node.
fn is_placed(core: &mut Scheduler, now: Duration) -> bool {
    matches!(core.schedule_one(now).map(|attempt| attempt.outcome), Some(Outcome::Scheduled(_)))
}

/// `TaintToleration`, and what makes it look again.
pub(super) fn tolerates(tolerations: &[Toleration], taint: &Taint, features: Features) -> bool {
    let mut core = core(features);
    core.set_node(&node("n", std::slice::from_ref(taint)), Duration::ZERO);
    core.set_pod(&pod("p", tolerations, json!({})), Duration::ZERO);
    if is_placed(&mut core, Duration::ZERO) {
        return true;
    }
    // Another label on a node that is still excluded wakes no pod; a node without the taint does.
    let mut changed = node("n", std::slice::from_ref(taint));
    changed.metadata.labels.insert("zone".into(), "z".into());
    core.set_node(&changed, HOUR);
    assert_eq!(core.lengths().unschedulable, 1, "{tolerations:?} and {taint:?}");
    core.set_node(&node("n", &[]), HOUR);
    assert_eq!(core.lengths().unschedulable, 0, "{tolerations:?} and {taint:?}");
    assert!(is_placed(&mut core, 2 * HOUR), "{tolerations:?} without a taint");
    false
}

/// `NodeUnschedulable`: a cordoned node counts as one with this taint.
pub(super) fn tolerates_cordon(tolerations: &[Toleration], features: Features) -> bool {
    let mut core = core(features);
    let mut cordoned = node("n", &[]);
    cordoned.spec.unschedulable = true;
    core.set_node(&cordoned, Duration::ZERO);
    core.set_pod(&pod("p", tolerations, json!({})), Duration::ZERO);
    is_placed(&mut core, Duration::ZERO)
}

/// `PodTopologySpread` with `nodeTaintsPolicy: Honor`: an empty node whose taints are tolerated is a place to spread to,
/// and then the pod does not fit beside another on the second node.
pub(super) fn spreads_to(tolerations: &[Toleration], taint: &Taint, features: Features) -> bool {
    let mut core = core(features);
    core.set_node(&node("empty", std::slice::from_ref(taint)), Duration::ZERO);
    core.set_node(&node("used", &[]), Duration::ZERO);
    core.set_pod(&pod("other", &[], json!({"nodeName": "used"})), Duration::ZERO);
    let spec = json!({
        "nodeSelector": {"kubernetes.io/hostname": "used"},
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}}, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor",
        }],
    });
    core.set_pod(&pod("p", tolerations, spec), Duration::ZERO);
    !is_placed(&mut core, Duration::ZERO)
}

/// `TaintToleration` among scores: a soft taint counts against a node, more than a pod that is on the other one, unless it
/// is tolerated.
pub(super) fn likes(tolerations: &[Toleration], taint: &Taint, features: Features) -> bool {
    let mut core = core(features);
    core.set_node(&node("soft", std::slice::from_ref(taint)), Duration::ZERO);
    core.set_node(&node("plain", &[]), Duration::ZERO);
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "2"}}}]);
    core.set_pod(&pod("other", &[], json!({"nodeName": "plain", "containers": containers})), Duration::ZERO);
    core.set_pod(&pod("p", tolerations, json!({})), Duration::ZERO);
    match core.schedule_one(Duration::ZERO).unwrap().outcome {
        Outcome::Scheduled(placement) => &*placement.node == "soft",
        other => panic!("both nodes have room: {other:?}"),
    }
}

/// `DefaultPreemption`: room is made on a full node only where the pod could then run.
pub(super) fn makes_room(tolerations: &[Toleration], taint: &Taint, features: Features) -> bool {
    let mut core = core(features);
    core.set_node(&node("n", std::slice::from_ref(taint)), Duration::ZERO);
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "8"}}}]);
    let low = json!({"nodeName": "n", "priority": 0, "containers": (containers.clone())});
    core.set_pod(&pod("low", &[], low), Duration::ZERO);
    core.set_pod(&pod("high", tolerations, json!({"priority": 10, "containers": containers})), Duration::ZERO);
    match core.schedule_one(Duration::ZERO).unwrap().outcome {
        Outcome::Unschedulable(unplaced) => unplaced.nomination.is_some_and(|it| it.victims.len() == 1),
        other => panic!("the node is full: {other:?}"),
    }
}
