//! One table of tolerations through all components: filters, scores, preemption and queueing hints of the
//! scheduler, daemon sets, taint eviction and the node agent agree with `matching`.

mod scheduler;

use std::sync::Arc;
use std::time::Duration;

use api::annotations::{REJECTED, TOLERATIONS};
use api::core::v1::{Node, Pod, PodSpec, PodSpecPart, Taint, Toleration};
use api::json::{Value, from_value};
use api::time::Timestamp;
use controllers::nodes::taint_eviction::plan::{Step, revise};
use controllers::workloads::daemonset::placement::Demand;
use matching::tolerations::Tolerations;
use matching::{CompileCache, Features, taints};

const CASES: &str = include_str!("../../matching/tests/cases/tolerations.yaml");

fn cases() -> Vec<Value> {
    let (mut documents, error) = api::yaml::parse_documents(CASES);
    assert!(error.is_none());
    let Value::Array(cases) = documents.remove(0).value else { panic!("cases are a list") };
    cases
}

fn list<T: serde::de::DeserializeOwned>(case: &Value, field: &str) -> Vec<T> {
    case.get(field).map(|it| from_value(it).unwrap()).unwrap_or_default()
}

fn features(case: &Value) -> Features {
    let is_on = |gate: &str| case.at(&["gates", gate]).is_none_or(|value| value.as_bool().unwrap());
    Features {
        cel: is_on("cel"),
        affinity_cel: is_on("affinity_cel"),
        semver: is_on("semver"),
        comparison: is_on("comparison"),
    }
}

/// The same tolerations in an annotation become the same field, which all consumers read; what the server would reject in the
/// field is rejected in the annotation, and then tolerates nothing. Returns whether the annotation is accepted.
fn check_annotation(case: &Value, expected: &[Toleration], cache: &CompileCache, features: &Features) -> bool {
    let text = api::yaml::to_string(case.get("tolerations").unwrap());
    let mut pod = api::json!({"metadata": {"annotations": {TOLERATIONS: text}}, "spec": {}});
    let comparison = api::features::Features::all_proposals().with_flag("TaintTolerationComparisonOperators=true");
    let merger = controlplane::placement::Merger::new(comparison.unwrap()).unwrap();
    merger.merge("Pod", &mut pod);
    let pod: Pod = from_value(&pod).unwrap();
    if pod.metadata.annotations.contains_key(REJECTED) {
        assert!(pod.spec.tolerations.is_empty());
        return false;
    }
    assert_eq!(pod.spec.tolerations, expected);
    let (one, other) =
        (Tolerations::new(&pod.spec.tolerations, cache, features), Tolerations::new(expected, cache, features));
    for taint in list::<Taint>(case, "taints") {
        assert_eq!(one.find(&taint), other.find(&taint), "{taint:?}");
    }
    true
}

fn node(taint: &Taint) -> Node {
    let mut node = Node::default();
    node.metadata.name = "n".into();
    node.spec.taints = vec![taint.clone()];
    node.status.allocatable.insert("pods".into(), api::Quantity::parse("10").unwrap());
    node
}

#[test]
fn all_consumers_give_the_verdict_of_matching() {
    let cache = CompileCache::new(64.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
    let sets = taints::Sets::new();
    let now = Timestamp { seconds: 0, nanos: 0 };
    let (mut count, mut accepted, mut rejected) = (0, 0, 0);
    for case in cases() {
        let tolerations: Vec<Toleration> = list(&case, "tolerations");
        let features = features(&case);
        let counter =
            if check_annotation(&case, &tolerations, &cache, &features) { &mut accepted } else { &mut rejected };
        *counter += 1;
        let verdicts = Tolerations::new(&tolerations, &cache, &features);
        let cordon =
            Taint { key: "node.kubernetes.io/unschedulable".into(), effect: "NoSchedule".into(), ..Taint::default() };
        let passes = scheduler::tolerates_cordon(&tolerations, features);
        assert_eq!(passes, verdicts.tolerate(&cordon), "a cordoned node with {tolerations:?}");
        for (given, effect) in list::<Taint>(&case, "taints")
            .into_iter()
            .flat_map(|taint| ["NoSchedule", "NoExecute"].map(|effect| (taint.clone(), effect)))
        {
            let taint = Taint { effect: effect.into(), ..given };
            let what = format!("{tolerations:?} and {taint:?}");
            let tolerated = verdicts.tolerate(&taint);
            let node = node(&taint);

            assert_eq!(scheduler::tolerates(&tolerations, &taint, features), tolerated, "the scheduler with {what}");
            let spreads = scheduler::spreads_to(&tolerations, &taint, features);
            assert_eq!(spreads, tolerated, "spreading with {what}");
            let makes_room = scheduler::makes_room(&tolerations, &taint, features);
            assert_eq!(makes_room, tolerated, "preemption with {what}");
            let soft = Taint { effect: "PreferNoSchedule".into(), ..taint.clone() };
            let likes = scheduler::likes(&tolerations, &soft, features);
            assert_eq!(likes, verdicts.tolerate(&soft), "scores with {what}");

            let spec = PodSpec::from(PodSpecPart { tolerations: tolerations.clone(), ..PodSpecPart::default() });
            let placement = Demand::new(&spec, &cache, &features).placement(&matching::Node::new(&node, &sets));
            assert_eq!(placement.should_run, tolerated, "a daemon pod with {what}");
            let may_stay = tolerated || effect == "NoSchedule";
            assert_eq!(placement.should_continue, may_stay, "a running daemon pod with {what}");

            let goes = matches!(revise(None, verdicts.stay(&node.spec.taints), now), Step::EvictNow { .. });
            let is_short = tolerations.iter().any(|it| it.toleration_seconds.is_some_and(|seconds| seconds <= 0));
            assert!(goes != may_stay || is_short, "an eviction with {what}");

            let pod = Pod { spec, ..Pod::default() };
            let admitted = kubelet::admission::admit(&pod, &node, std::iter::empty(), &cache, &features).is_ok();
            assert_eq!(admitted, may_stay, "the node agent with {what}");
            count += 1;
        }
    }
    assert!(count > 80, "{count} questions");
    // Only a few cases have tolerations that servers reject.
    assert!(accepted > 20 && accepted > 2 * rejected, "{accepted} accepted, {rejected} rejected");
}
