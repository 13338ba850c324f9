//! The core as its caller sees it, from events to placements.

#![allow(clippy::arithmetic_side_effects, reason = "tests")]

use std::num::NonZeroUsize;

use api::core::v1::{Node, Pod};
use matching::Features;

use super::*;
use crate::cluster::{Object, ObjectKind};
use crate::{Complaint, cycle};

const START: Duration = Duration::from_secs(1000);
const NO_CPU: &str = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
                      1 No preemption victims found for incoming pod.";
const NO_TAINT: &str = "0/1 nodes are available: 1 node(s) had untolerated taint {v: 1.1.0}. \
                        preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

fn scheduler() -> Scheduler {
    scheduler_with(Features::ALL)
}

fn scheduler_with(features: Features) -> Scheduler {
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    let matcher = Arc::new(Matcher::new(NonZeroUsize::new(64).unwrap(), clock, features).unwrap());
    let profile = plugins::default_profile(&matcher).unwrap();
    Scheduler::new(vec![profile], Backoff::default(), matcher, 1)
}

fn node(name: &str, cpu: &str, taints: &str) -> Node {
    let json = format!(
        r#"{{"metadata": {{"name": "{name}"}}, "spec": {{"taints": [{taints}]}},
            "status": {{"allocatable": {{"cpu": "{cpu}", "memory": "8Gi", "pods": "10"}}}}}}"#
    );
    api::json::from_value(&api::json::parse(json.as_bytes()).unwrap()).unwrap()
}

fn pod(name: &str, cpu: &str, spec: &str) -> Pod {
    let json = format!(
        r#"{{"metadata": {{"name": "{name}", "namespace": "default", "uid": "{name}"}},
            "spec": {{"containers": [{{"name": "c", "resources": {{"requests": {{"cpu": "{cpu}"}}}}}}] {spec}}}}}"#
    );
    api::json::from_value(&api::json::parse(json.as_bytes()).unwrap()).unwrap()
}

#[track_caller]
fn placed(scheduler: &mut Scheduler, now: Duration) -> (String, String) {
    match scheduler.schedule_one(now).expect("a pod to try") {
        Attempt { pod, outcome: Outcome::Scheduled(placement), .. } => {
            (pod.name.to_string(), placement.node.to_string())
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unplaced(scheduler: &mut Scheduler, now: Duration) -> String {
    match scheduler.schedule_one(now).expect("a pod to try").outcome {
        Outcome::Unschedulable(unplaced) => unplaced.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pod_goes_to_the_node_with_more_room() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("small", "2", ""), START);
    scheduler.set_node(&node("large", "8", ""), START);
    scheduler.set_pod(&pod("a", "1", ""), START);
    assert_eq!(placed(&mut scheduler, START), ("a".to_owned(), "large".to_owned()));
    assert!(scheduler.schedule_one(START).is_none());
    assert_eq!((scheduler.binding_count(), scheduler.next_wake_up(START)), (1, None));
    scheduler.bound("a");
    scheduler.set_pod(&pod("a", "1", r#", "nodeName": "large""#), START);
    assert_eq!(scheduler.cluster().cache.pod_counts(), (1, 0));
}

#[test]
fn a_pod_that_fits_nowhere_waits_for_the_change_that_helps() {
    let mut scheduler = scheduler();
    let dedicated = r#"{"key": "dedicated", "value": "db", "effect": "NoSchedule"}"#;
    scheduler.set_node(&node("full", "1", ""), START);
    scheduler.set_node(&node("tainted", "8", dedicated), START);
    scheduler.set_pod(&pod("a", "2", ""), START);
    assert_eq!(
        unplaced(&mut scheduler, START),
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {dedicated: db}. \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
    // A label does not help, neither does more memory.
    let mut labeled = node("tainted", "8", dedicated);
    labeled.metadata.labels.insert("a".into(), "b".into());
    scheduler.set_node(&labeled, START);
    assert_eq!((scheduler.lengths().unschedulable, scheduler.lengths().backoff), (1, 0));
    scheduler.set_node(&node("tainted", "8", ""), START);
    assert_eq!((scheduler.lengths().unschedulable, scheduler.lengths().backoff), (0, 1));
    // No other work is pending, so the back-off is not waited out.
    assert_eq!(placed(&mut scheduler, START).1, "tainted");
}

#[test]
fn pods_waiting_too_long_are_tried_again() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("full", "1", ""), START);
    scheduler.set_pod(&pod("a", "2", ""), START);
    unplaced(&mut scheduler, START);
    let end = START + Duration::from_secs(300);
    assert_eq!(scheduler.next_wake_up(START), Some(end));
    assert!(scheduler.schedule_one(end - Duration::from_secs(1)).is_none());
    unplaced(&mut scheduler, end);
}

#[test]
fn a_binding_that_fails_gives_the_room_back() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("only", "1", ""), START);
    scheduler.set_pod(&pod("a", "1", ""), START);
    placed(&mut scheduler, START);
    scheduler.set_pod(&pod("b", "1", ""), START);
    assert_eq!(unplaced(&mut scheduler, START), NO_CPU);
    scheduler.binding_failed("a", START);
    // The other pod was woken; the one that failed must wait out its back-off.
    assert_eq!(placed(&mut scheduler, START).0, "b");
    assert!(scheduler.schedule_one(START).is_none());
    scheduler.remove_pod("b", START);
    assert_eq!(placed(&mut scheduler, START + Duration::from_secs(1)).0, "a");
}

#[test]
fn a_pod_deleted_while_it_is_bound_leaves_nothing_behind() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("only", "1", ""), START);
    scheduler.set_pod(&pod("a", "1", ""), START);
    placed(&mut scheduler, START);
    scheduler.remove_pod("a", START);
    scheduler.binding_failed("a", START);
    scheduler.bound("a");
    assert_eq!(scheduler.cluster().cache.pod_counts(), (0, 0));
    assert!(scheduler.schedule_one(START + Duration::from_secs(60)).is_none());
}

#[test]
fn gates_keep_a_pod_out_until_the_last_is_removed() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("only", "1", ""), START);
    scheduler.set_pod(&pod("a", "1", r#", "schedulingGates": [{"name": "x"}, {"name": "y"}]"#), START);
    assert!(scheduler.schedule_one(START).is_none());
    assert_eq!(scheduler.lengths().gated, 1);
    scheduler.set_pod(&pod("a", "1", r#", "schedulingGates": [{"name": "y"}]"#), START);
    assert!(scheduler.schedule_one(START).is_none());
    scheduler.set_pod(&pod("a", "1", ""), START);
    assert_eq!(placed(&mut scheduler, START).0, "a");
}

#[test]
fn more_important_pods_come_first_and_equals_in_order() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("only", "8", ""), START);
    for (name, priority) in [("z", 0), ("y", 0), ("vip", 10)] {
        scheduler.set_pod(&pod(name, "1", &format!(r#", "priority": {priority}"#)), START);
    }
    let order = [(); 3].map(|()| placed(&mut scheduler, START).0);
    assert_eq!(order, ["vip", "z", "y"]);
}

#[test]
fn without_nodes_the_pod_is_tried_again() {
    let mut scheduler = scheduler();
    scheduler.set_pod(&pod("a", "1", ""), START);
    assert_eq!(unplaced(&mut scheduler, START), "no nodes available to schedule pods");
    assert_eq!(scheduler.next_wake_up(START), Some(START + Duration::from_secs(1)));
    scheduler.set_node(&node("only", "8", ""), START);
    placed(&mut scheduler, START + Duration::from_secs(1));
}

#[test]
fn pods_of_other_schedulers_are_left_alone_but_count() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("only", "1", ""), START);
    scheduler.set_pod(&pod("a", "1", r#", "schedulerName": "other""#), START);
    assert!(scheduler.schedule_one(START).is_none());
    scheduler.set_pod(&pod("a", "1", r#", "schedulerName": "other", "nodeName": "only""#), START);
    scheduler.set_pod(&pod("b", "1", ""), START);
    assert_eq!(unplaced(&mut scheduler, START), NO_CPU);
}

#[test]
fn an_expression_is_asked_by_filter_and_hint() {
    let mut scheduler = scheduler();
    let version = |value: &str| format!(r#"{{"key": "v", "value": "{value}", "effect": "NoSchedule"}}"#);
    let asks = r#", "tolerations": [{"expression": "taint.key == 'v' && semver(taint.value).isGreaterThan(semver('1.2.0'))"}]"#;
    scheduler.set_node(&node("n", "4", &version("1.1.0")), START);
    scheduler.set_pod(&pod("a", "1", asks), START);
    assert_eq!(unplaced(&mut scheduler, START), NO_TAINT);
    scheduler.set_node(&node("n", "4", &version("1.2.0")), START);
    assert_eq!(scheduler.lengths().unschedulable, 1);
    scheduler.set_node(&node("n", "4", &version("not a version")), START);
    assert_eq!(scheduler.lengths().unschedulable, 1);
    scheduler.set_node(&node("n", "4", &version("1.3.0")), START);
    assert_eq!(placed(&mut scheduler, START).1, "n");
}

#[test]
fn failing_expressions_are_reported_once_per_value() {
    let mut scheduler = scheduler();
    let version = |value: &str| format!(r#"{{"key": "v", "value": "{value}", "effect": "NoSchedule"}}"#);
    let asks = r#", "tolerations": [{"expression": "semver(taint.value).isGreaterThan(semver('1.2.0'))"},
        {"key": "v", "operator": "SemverGt", "value": "1.2.0"}]"#;
    scheduler.set_node(&node("a", "4", &version("nine")), START);
    scheduler.set_node(&node("b", "4", &version("nine")), START);
    scheduler.set_pod(&pod("p", "1", asks), START);
    let attempt = scheduler.schedule_one(START).unwrap();
    let reported: Vec<String> = attempt.complaints.iter().map(Complaint::message).collect();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported[0].contains(" failed on 2 nodes (first a) for taint v=nine:NoSchedule: "), "{reported:?}");
    assert_eq!(reported[1], "failed to parse taint value as semantic version taint=\"nine\"");
    let filters: Vec<_> = attempt.evaluations.iter().filter(|it| it.plugin == "TaintToleration").collect();
    assert_eq!((filters.len(), filters[0].count, filters[0].status), (1, 2, "UnschedulableAndUnresolvable"));
    let before: Vec<_> = attempt.evaluations.iter().filter(|it| it.point == Point::PreFilter).collect();
    assert!(before.iter().any(|it| it.plugin == "NodeResourcesFit" && it.count == 1), "{before:?}");
    assert!(before.iter().all(|it| it.plugin != "TaintToleration"), "{before:?}");
    let later = START + Duration::from_secs(400);
    assert!(scheduler.schedule_one(later).unwrap().complaints.is_empty());
    scheduler.set_node(&node("b", "4", &version("ten")), later);
    let attempt = scheduler.schedule_one(later + Duration::from_secs(400)).unwrap();
    assert_eq!(attempt.complaints.len(), 2);
}

/// The event `FailedScheduling` keeps Kubernetes' text; a second event names the gate, once per field.
#[test]
fn disabled_gates_are_reported_once_per_field() {
    let mut scheduler = scheduler_with(Features::default());
    scheduler.set_node(&node("n", "4", r#"{"key": "v", "value": "1.1.0", "effect": "NoSchedule"}"#), START);
    let asks = r#", "tolerations": [{"key": "other", "operator": "Exists"}, {"expression": "true"},
        {"key": "v", "operator": "SemverLt", "value": "2.0.0"}, {"key": "v", "operator": "Lt", "value": "2"}]"#;
    scheduler.set_pod(&pod("p", "1", asks), START);
    let attempt = scheduler.schedule_one(START).unwrap();
    let Outcome::Unschedulable(unplaced) = &attempt.outcome else { panic!("{:?}", attempt.outcome) };
    assert_eq!(unplaced.message, NO_TAINT);
    let events: Vec<(&str, String)> = attempt.complaints.iter().filter_map(Complaint::event).collect();
    let event = |field: &str, gate: &str| {
        let note = format!("spec.tolerations{field} has no effect: feature gate {gate} is off in the scheduler");
        ("FeatureGateDisabled", note)
    };
    let expected = [
        event("[1].expression", "TaintTolerationCEL"),
        event("[2].operator", "TaintTolerationNodeAffinitySemverComparisonOperators"),
        event("[3].operator", "TaintTolerationComparisonOperators"),
    ];
    assert_eq!(events, expected);
    assert!(scheduler.schedule_one(START + Duration::from_secs(400)).unwrap().complaints.is_empty());
}

#[test]
fn disabled_gates_of_affinity_are_reported() {
    let mut scheduler = scheduler_with(Features::default());
    scheduler.set_node(&node("n", "4", ""), START);
    let asks = |term: &str| {
        format!(
            r#", "affinity": {{"nodeAffinity": {{"requiredDuringSchedulingIgnoredDuringExecution":
            {{"nodeSelectorTerms": [{{"matchFields": [{{"key": "metadata.name", "operator": "In", "values": ["x"]}}]}}, {term}]}}}}}}"#
        )
    };
    let terms = [
        (r#"{"matchCELExpressions": ["true"]}"#, "matchCELExpressions", "TaintTolerationNodeAffinityCEL"),
        (
            r#"{"matchExpressions": [{"key": "v", "operator": "SemverLt", "values": ["2.0.0"]}]}"#,
            "matchExpressions",
            "TaintTolerationNodeAffinitySemverComparisonOperators",
        ),
    ];
    for (name, (term, field, gate)) in ["cel", "semver"].into_iter().zip(terms) {
        scheduler.set_pod(&pod(name, "1", &asks(term)), START);
        let attempt = scheduler.schedule_one(START).unwrap();
        let messages: Vec<String> = attempt.complaints.iter().map(Complaint::message).collect();
        let at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1]";
        assert_eq!(messages, [format!("{at}.{field} has no effect: feature gate {gate} is off in the scheduler")]);
    }
}

/// Cached and fresh results are equal, after any history, for all plugins together.
#[test]
fn remembered_answers_are_fresh_ones() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut scheduler = scheduler();
        let mut now = START;
        let mut compared = 0;
        for step in 0..120 {
            now += Duration::from_millis(700);
            change_something(&mut scheduler, &mut random, 6, step, now);
            compared += compare(&mut scheduler);
            assert_eq!(waiting_in_vain(&scheduler), Vec::<String>::new(), "{seed} {step}");
            if let Some(attempt) = scheduler.schedule_one(now)
                && matches!(attempt.outcome, Outcome::Scheduled(_))
            {
                match random.below(4) {
                    0 => scheduler.binding_failed(&attempt.uid, now),
                    _ => scheduler.bound(&attempt.uid),
                }
            }
        }
        assert!(compared > 100, "{compared}");
    }
}

/// Ranking yields the same as evaluating nodes in turn: the same node by the same random choice, the same
/// scores, counts and messages, and the next search begins at the same node.
#[test]
fn ranked_nodes_are_those_found_in_turn() {
    const NODES: usize = 130;
    for seed in 0..6 {
        let (mut ranking, mut plain) = (scheduler(), scheduler());
        plain.memory = Memory::unranked();
        let (mut on_ranking, mut on_plain) = (Random::new(seed), Random::new(seed));
        let (mut now, mut placed, mut unplaced) = (START, 0, 0);
        for number in 0..NODES {
            let mut it = node(&format!("n{number}"), "4", "");
            it.metadata.labels.insert("zone".into(), ["a", "b"][number % 2].into());
            ranking.set_node(&it, now);
            plain.set_node(&it, now);
        }
        for step in 0..400 {
            now += Duration::from_millis(700);
            change_something(&mut ranking, &mut on_ranking, NODES, step, now);
            change_something(&mut plain, &mut on_plain, NODES, step, now);
            let attempts = (ranking.schedule_one(now), plain.schedule_one(now));
            let (Some(left), Some(right)) = attempts else {
                assert!(attempts.0.is_none() && attempts.1.is_none());
                continue;
            };
            assert_eq!(said(&left), said(&right), "{seed} {step}");
            assert_eq!(ranking.start, plain.start, "{seed} {step}");
            match left.outcome {
                Outcome::Scheduled(_) => placed += 1,
                _ => unplaced += 1,
            }
            if (on_ranking.below(4), on_plain.below(4)) == (0, 0) {
                ranking.binding_failed(&left.uid, now);
                plain.binding_failed(&left.uid, now);
            }
        }
        assert!(placed > 50 && unplaced > 5, "{placed} {unplaced}");
        assert!(ranking.memory.ranked() >= 6 && plain.memory.ranked() == 0, "{}", ranking.memory.ranked());
    }
}

/// All observable facts about an attempt.
fn said(attempt: &Attempt) -> String {
    let Attempt { pod, evaluated_nodes, feasible_nodes, score, outcome, .. } = attempt;
    let mut evaluations: Vec<String> = attempt.evaluations.iter().map(|it| format!("{it:?}")).collect();
    evaluations.sort();
    let outcome = match outcome {
        Outcome::Scheduled(placement) => format!("{placement:?}"),
        Outcome::Unschedulable(it) => format!("{} {:?}", it.message, it.nomination.as_ref().map(|it| &it.node)),
        other => format!("{other:?}"),
    };
    format!("{pod}: {evaluated_nodes} {feasible_nodes} {score:?} {evaluations:?} {outcome}")
}

/// Waiting pods that would fit now, although no event woke them.
fn waiting_in_vain(scheduler: &Scheduler) -> Vec<String> {
    let waiting = scheduler.queue.pods().filter(|(queued, _)| scheduler.queue.is_waiting(&queued.pod.uid));
    let fits = |pod: &PodInfo| {
        let profile = profile_of(&scheduler.profiles, pod).unwrap();
        let found = Search { profile, cluster: &scheduler.cluster, start: 0 }.run(pod);
        found.is_ok_and(|found| !found.feasible.is_empty())
    };
    let told_nothing = waiting.filter(|(queued, _)| fits(&queued.pod));
    told_nothing.map(|(queued, _)| format!("{:?} rejected by {:b}", queued.pod.spec(), queued.rejected_by)).collect()
}

/// Changes an object that is neither a node nor a pending pod.
fn change_another(scheduler: &mut Scheduler, random: &mut Random, name: &str, now: Duration) {
    fn read<T: serde::de::DeserializeOwned>(text: &str) -> Arc<T> {
        Arc::new(api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap())
    }
    let number = random.below(2);
    match random.below(6) {
        0 | 1 => {
            let zone = ["a", "b"][random.below(2)];
            let volume = format!(
                r#"{{"metadata": {{"name": "v{number}"}}, "spec": {{"csi": {{"driver": "d", "volumeHandle": "v{number}"}},
                "nodeAffinity": {{"required": {{"nodeSelectorTerms": [{{"matchExpressions":
                    [{{"key": "zone", "operator": "In", "values": ["{zone}"]}}]}}]}}}}}}}}"#
            );
            scheduler.set_object(&Object::Volume(read(&volume)), now);
            let claim = format!(
                r#"{{"metadata": {{"name": "v{number}", "namespace": "default",
                    "annotations": {{"pv.kubernetes.io/bind-completed": "yes"}}}}, "spec": {{"volumeName": "v{number}"}}}}"#
            );
            scheduler.set_object(&Object::Claim(read(&claim)), now);
        }
        2 => {
            let limit = random.below(3);
            let node = format!(
                r#"{{"metadata": {{"name": "{name}"}}, "spec": {{"drivers":
                    [{{"name": "d", "nodeID": "{name}", "allocatable": {{"count": {limit}}}}}]}}}}"#
            );
            scheduler.set_object(&Object::CsiNode(read(&node)), now);
        }
        3 => {
            if random.below(3) == 0 {
                scheduler.remove_object(ObjectKind::DeviceClass, "", "x", now);
            } else {
                let class = r#"{"metadata": {"name": "x"}, "spec": {"extendedResourceName": "example.com/x"}}"#;
                scheduler.set_object(&Object::DeviceClass(read(class)), now);
            }
        }
        4 => {
            if random.below(2) == 0 {
                scheduler.remove_object(ObjectKind::Service, "default", "s", now);
            } else {
                let service =
                    r#"{"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "y"}}}"#;
                scheduler.set_object(&Object::Service(read(service)), now);
            }
        }
        _ => {
            let placed: Vec<_> = scheduler.cluster.cache.nodes().flat_map(|node| &node.pods).cloned().collect();
            let placed: Vec<_> = placed.into_iter().filter(|pod| !scheduler.binding.contains_key(&pod.uid)).collect();
            let Some(there) = random.choose(&placed) else { return };
            // Resized or labeled.
            let spec = format!(r#", "nodeName": "{}""#, there.node_name);
            let mut changed = pod(&there.name, ["50m", "1", "3"][random.below(3)], &spec);
            changed.metadata.labels.insert("app".into(), ["x", "y"][random.below(2)].into());
            scheduler.set_pod(&changed, now);
        }
    }
}

fn change_something(scheduler: &mut Scheduler, random: &mut Random, nodes: usize, step: usize, now: Duration) {
    let name = format!("n{}", random.below(nodes));
    match random.below(11) {
        9.. => change_another(scheduler, random, &name, now),
        0..=2 => {
            let taints = [
                "",
                r#"{"key": "t", "value": "1.2.0", "effect": "NoSchedule"}"#,
                r#"{"key": "t", "value": "3.0.0", "effect": "PreferNoSchedule"}"#,
            ];
            let mut node = node(&name, ["1", "4", "16"][random.below(3)], taints[random.below(3)]);
            node.metadata.labels.insert("zone".into(), ["a", "b"][random.below(2)].into());
            node.metadata.labels.insert("kubernetes.io/hostname".into(), name.as_str().into());
            node.spec.unschedulable = random.below(5) == 0;
            let size = 50_000_000 * (1 + random.below(4) as i64);
            let image = api::core::v1::ContainerImage { names: vec!["img:latest".into()], size_bytes: size };
            node.status.images = if random.below(2) == 0 { vec![image] } else { Vec::new() };
            scheduler.set_node(&node, now);
        }
        3 => scheduler.remove_node(&name, now),
        4..=6 => {
            let kinds = [
                r#", "tolerations": [{"expression": "semver(taint.value).isLessThan(semver('2.0.0'))"}]"#,
                r#", "nodeSelector": {"zone": "a"}"#,
                r#", "priority": 5, "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
                    [{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}]}}"#,
                r#", "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": "x"}}}]"#,
                r#", "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
                    [{"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}},
                     {"weight": 3, "preference": {"matchCELExpressions": ["node.labels['kubernetes.io/hostname'] > 'n3'"]}}]}}"#,
                "",
                r#", "nodeSelector": {"kubernetes.io/hostname": "n3"}"#,
                r#", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v0"}}]"#,
                r#", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "v1"}}]"#,
                r#", "initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}]"#,
                r#", "initContainers": [{"name": "i", "resources": {"requests": {"example.com/x": "1"}}}]"#,
                r#", "affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 9,
                    "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}}]}}"#,
            ];
            let kind = random.below(kinds.len());
            let mut pod = pod(&format!("p{step}"), ["100m", "2"][random.below(2)], kinds[kind]);
            // The others are nothing to those that look at pods elsewhere.
            pod.metadata.labels.insert("app".into(), if (1..4).contains(&kind) { "x" } else { "y" }.into());
            pod.spec.containers[0].image = "img".into();
            scheduler.set_pod(&pod, now);
        }
        _ => {
            let placed: Vec<_> = scheduler.cluster.cache.nodes().flat_map(|node| &node.pods).cloned().collect();
            if let Some(pod) = random.choose(&placed) {
                scheduler.remove_pod(&pod.uid, now);
            }
        }
    }
}

/// Compares for every pod that waits; how many were compared.
fn compare(scheduler: &mut Scheduler) -> usize {
    let waiting: Vec<_> = scheduler.queue.pods().map(|(queued, _)| queued.pod.clone()).collect();
    for pod in &waiting {
        let profile = profile_of(&scheduler.profiles, pod).unwrap();
        let search = Search { profile, cluster: &scheduler.cluster, start: 0 };
        let (fresh, remembered) =
            (search.run(pod).unwrap(), search.run_remembering(pod, &mut scheduler.memory).unwrap());
        assert_eq!(fresh.feasible, remembered.feasible, "{}", pod.name);
        let said = |found: &crate::cycle::SearchResult| {
            found.diagnosis.by_node.iter().map(|(node, status)| (*node, Status::clone(status))).collect::<Vec<_>>()
        };
        assert_eq!(said(&fresh), said(&remembered), "{}", pod.name);
        let cluster = &scheduler.cluster;
        let fresh_scores = cycle::score(profile, pod, cluster, &fresh.feasible).unwrap();
        let scores = cycle::score_remembering(profile, pod, cluster, &fresh.feasible, &mut scheduler.memory).unwrap();
        for (left, right) in fresh_scores.by_plugin.iter().zip(&scores.by_plugin) {
            assert_eq!((left.plugin, &left.raw, &left.normalized), (right.plugin, &right.raw, &right.normalized));
        }
        assert_eq!(fresh_scores.total, scores.total);
    }
    waiting.len()
}

#[test]
fn a_pod_is_not_tried_while_its_only_victim_ends() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("n", "1", ""), START);
    let low = pod("low", "1", r#", "nodeName": "n", "priority": 1"#);
    scheduler.set_pod(&low, START);
    let mut high = pod("high", "1", r#", "priority": 9"#);
    scheduler.set_pod(&high, START);
    let said = unplaced(&mut scheduler, START);
    assert!(said.ends_with("found a potential placement for pod on node n, preempting 1 victims"), "{said}");
    // The caller's writes are observed: the nomination, the victim's condition, its deletion.
    let later = START + Duration::from_secs(20);
    high.status.nominated_node_name = "n".into();
    scheduler.set_pod(&high, later);
    let condition = r#"{"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}}"#;
    let condition: Pod = api::json::from_value(&api::json::parse(condition.as_bytes()).unwrap()).unwrap();
    let mut ending = Pod { status: condition.status, ..low };
    scheduler.set_pod(&ending, later);
    let deleted = r#"{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}"#;
    let deleted: Pod = api::json::from_value(&api::json::parse(deleted.as_bytes()).unwrap()).unwrap();
    ending.metadata.deletion_timestamp = deleted.metadata.deletion_timestamp;
    scheduler.set_pod(&ending, later);
    assert!(scheduler.schedule_one(later).is_none());
    scheduler.remove_pod("low", later);
    assert_eq!(placed(&mut scheduler, later), ("high".to_owned(), "n".to_owned()));
}

/// Without an inventory of devices, the pod must not run without them.
#[test]
fn extended_resource_of_a_class_needs_an_inventory() {
    let mut scheduler = scheduler();
    scheduler.set_node(&node("n", "1", ""), START);
    let mut wants = pod("a", "1", "");
    let container = wants.spec.containers.first_mut().unwrap();
    container.resources.requests.insert("example.com/x".into(), api::quantity::Quantity::parse("1").unwrap());
    scheduler.set_pod(&wants, START);
    assert!(unplaced(&mut scheduler, START).contains("1 Insufficient example.com/x"));
    let class = r#"{"metadata": {"name": "x"}, "spec": {"extendedResourceName": "example.com/x"}}"#;
    let class = api::json::from_value(&api::json::parse(class.as_bytes()).unwrap()).unwrap();
    scheduler.set_object(&Object::DeviceClass(Arc::new(class)), START);
    let said = unplaced(&mut scheduler, START);
    assert!(said.contains("1 dynamic resource allocation is not available in this scheduler"), "{said}");
    let mut able = node("n", "1", "");
    able.status.allocatable.insert("example.com/x".into(), api::quantity::Quantity::parse("1").unwrap());
    scheduler.set_node(&able, START);
    let later = START + Duration::from_secs(20);
    assert_eq!(placed(&mut scheduler, later), ("a".to_owned(), "n".to_owned()));
}
