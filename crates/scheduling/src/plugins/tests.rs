//! Rules of Kubernetes' plugins that the recorded cases do not touch.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use api::json::{Value, from_value};
use matching::{Features, Matcher};

use crate::cluster::{NodeObject, Object};
use crate::cycle::Search;
use crate::framework::{Action, Point};
use crate::preemption::candidates;
use crate::queue::Backoff;
use crate::timing::Clock;
use crate::writes::Write;
use crate::{Attempt, Outcome, Profile, Scheduler, plugins};

const NOW: Duration = Duration::from_secs(1);

fn matcher() -> Arc<Matcher> {
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    Arc::new(Matcher::new(NonZeroUsize::new(8).unwrap(), clock, Features::ALL).unwrap())
}

fn yaml<T: serde::de::DeserializeOwned>(text: &str) -> T {
    let (documents, error) = api::yaml::parse_documents(text);
    assert!(error.is_none(), "{error:?}");
    from_value(&documents[0].value).unwrap()
}

fn value(text: &str) -> Value {
    api::yaml::parse_documents(text).0[0].value.clone()
}

fn scheduler(profile: impl FnOnce(&Matcher) -> Profile) -> Scheduler {
    let matcher = matcher();
    Scheduler::new(vec![profile(&matcher)], Backoff::default(), matcher, 1).with_clock(Clock::new(|| NOW))
}

fn default() -> Scheduler {
    scheduler(|matcher| plugins::default_profile(matcher).unwrap())
}

fn set_node(scheduler: &mut Scheduler, name: &str, more: &str) {
    let status = "status: {allocatable: {cpu: '4', memory: 8Gi, pods: '10'}}";
    scheduler.set_node(&yaml(&format!("metadata: {{name: {name}}}\n{status}\n{more}")), NOW);
}

fn set_pod(scheduler: &mut Scheduler, name: &str, metadata: &str, spec: &str) {
    let text = format!("metadata: {{name: {name}, namespace: d, uid: {name}{metadata}}}\nspec: {{{spec}}}");
    scheduler.set_pod(&yaml(&text), NOW);
}

fn attempt(scheduler: &mut Scheduler) -> Attempt {
    scheduler.schedule_one(NOW).expect("a pod to try")
}

#[track_caller]
fn message(scheduler: &mut Scheduler) -> String {
    match attempt(scheduler).outcome {
        Outcome::Unschedulable(unplaced) => unplaced.message,
        Outcome::Error(message) => message,
        other => panic!("{other:?}"),
    }
}

const CPU: &str = "containers: [{name: c, resources: {requests: {cpu: '2'}}}]";

#[test]
fn the_first_budget_that_is_used_up_settles_it() {
    let mut scheduler = default();
    set_node(&mut scheduler, "n1", "");
    for (name, labels, priority) in [("a", "{u: '1', w: '1'}", 5), ("b", "{w: '1'}", 4)] {
        let labels = format!(", labels: {labels}");
        set_pod(&mut scheduler, name, &labels, &format!("nodeName: n1, priority: {priority}, {CPU}"));
    }
    for (name, label, allowed) in [("1", "u", 0), ("2", "w", 1)] {
        let budget = format!(
            "metadata: {{name: '{name}', namespace: d}}\nspec: {{selector: {{matchLabels: {{{label}: '1'}}}}}}\n\
             status: {{disruptionsAllowed: {allowed}}}"
        );
        scheduler.set_object(&Object::DisruptionBudget(Arc::new(yaml(&budget))), NOW);
    }
    let large = "metadata: {name: p, namespace: d, uid: p}\n\
                 spec: {priority: 9, containers: [{name: c, resources: {requests: {cpu: '4'}}}]}";
    let pod = scheduler.view(&yaml(large));
    let (profile, cluster) = (scheduler.profile(&pod).unwrap(), scheduler.cluster());
    let found = Search { profile, cluster, start: 0 }.run(&pod).unwrap();
    let potential = found.diagnosis.resolvable(cluster.cache.order().iter().copied());
    let (found, _) = candidates(profile, &pod, cluster, &potential, 0, 1).unwrap();
    // The budget of `w` has one left for `b`, because that of `u` settled about `a`.
    assert_eq!(found.iter().map(|it| (it.victims.len(), it.violations)).collect::<Vec<_>>(), [(2, 1)]);
}

#[test]
fn invalid_terms_are_reported_by_kind() {
    let bad = "{topologyKey: z, labelSelector: {matchExpressions: [{key: a, operator: Near}]}}";
    let good = "{topologyKey: z, labelSelector: {matchLabels: {app: web}}}";
    let required = |terms: &str| format!("requiredDuringSchedulingIgnoredDuringExecution: [{terms}]");
    let mut scheduler = default();
    set_node(&mut scheduler, "n1", "");
    set_pod(
        &mut scheduler,
        "p",
        "",
        &format!("affinity: {{podAntiAffinity: {{{}}}}}", required(&format!("{bad}, {good}"))),
    );
    assert_eq!(
        message(&mut scheduler),
        "0/1 nodes are available: parsing pod: requiredAntiAffinityTerms: \"Near\" is not a valid label selector operator."
    );
    let both = format!("affinity: {{podAffinity: {{{0}}}, podAntiAffinity: {{{0}}}}}", required(bad));
    set_pod(&mut scheduler, "q", "", &both);
    let said = message(&mut scheduler);
    assert!(said.contains("parsing pod: [requiredAffinityTerms: \"Near\""), "{said}");
    // If one term of an existing pod cannot be parsed, none of its kind counts, including the valid ones.
    let labeled = "metadata: {name: m, labels: {z: a}}\nstatus: {allocatable: {cpu: '4', pods: '10'}}";
    let mut scheduler = default();
    scheduler.set_node(&yaml(labeled), NOW);
    let anti = format!("affinity: {{podAntiAffinity: {{{}}}}}", required(&format!("{good}, {bad}")));
    set_pod(&mut scheduler, "there", "", &format!("nodeName: m, {anti}"));
    set_pod(&mut scheduler, "web", ", labels: {app: web}", "");
    assert!(matches!(attempt(&mut scheduler).outcome, Outcome::Scheduled(_)));
}

#[test]
fn conditions_of_nodes_have_no_order() {
    let matcher = matcher();
    let node = |conditions: &str| {
        NodeObject::new(&yaml(&format!("metadata: {{name: n1}}\nstatus: {{conditions: [{conditions}]}}")), &matcher)
    };
    let (ready, full) = ("{type: Ready, status: 'True'}", "{type: DiskPressure, status: 'False'}");
    let before = node(&format!("{ready}, {full}"));
    assert_eq!(before.changes(&node(&format!("{full}, {ready}"))), Action::default());
    assert_eq!(before.changes(&node(ready)), Action::UPDATE_NODE_CONDITION);
}

#[test]
fn one_node_is_enough_where_no_plugin_prefers_any() {
    let config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                  profiles: [{plugins: {score: {disabled: [{name: '*'}]}}}]";
    let config = crate::config::Configuration::read(&value(config)).unwrap();
    let mut scheduler = scheduler(|matcher| config.make_profiles(matcher).unwrap().remove(0));
    for name in ["a", "b", "c"] {
        set_node(&mut scheduler, name, "");
    }
    // The later ones are placed from cached results.
    for (name, node) in [("p", "a"), ("q", "b"), ("r", "c"), ("s", "a"), ("t", "b")] {
        set_pod(&mut scheduler, name, "", "containers: [{name: c, resources: {requests: {cpu: 100m}}}]");
        let attempt = attempt(&mut scheduler);
        assert_eq!((attempt.evaluated_nodes, attempt.feasible_nodes), (1, 1));
        let Outcome::Scheduled(placement) = attempt.outcome else { panic!("{:?}", attempt.outcome) };
        assert_eq!(placement.node, node);
    }
}

#[test]
fn pods_wait_for_volumes_as_long_as_is_configured() {
    let args = value("{bindTimeoutSeconds: 7}");
    let args = BTreeMap::from([("VolumeBinding", &args)]);
    let mut scheduler = scheduler(|matcher| plugins::default_profile_with(&args, matcher).unwrap());
    set_node(&mut scheduler, "n1", "");
    let class = "metadata: {name: s}\nprovisioner: example.com/p\nvolumeBindingMode: WaitForFirstConsumer";
    scheduler.set_object(&Object::StorageClass(Arc::new(yaml(class))), NOW);
    let claim = "metadata: {name: v, namespace: d}\nspec: {storageClassName: s, resources: {requests: {storage: 1Gi}}}";
    scheduler.set_object(&Object::Claim(Arc::new(yaml(claim))), NOW);
    set_pod(&mut scheduler, "p", "", "volumes: [{name: v, persistentVolumeClaim: {claimName: v}}]");
    let Outcome::Scheduled(placement) = attempt(&mut scheduler).outcome else { panic!() };
    assert!(
        matches!(placement.writes.as_slice(), [Write::ProvisionVolume { timeout, .. }] if *timeout == Duration::from_secs(7)),
        "{placement:?}"
    );
}

#[test]
fn each_thing_that_changes_is_an_event_of_its_own() {
    let mut scheduler = default();
    let tainted = "spec: {taints: [{key: t, effect: NoSchedule}]}";
    set_node(&mut scheduler, "n1", tainted);
    set_pod(&mut scheduler, "p", "", CPU);
    message(&mut scheduler);
    scheduler.take_event_timings();
    let relabeled = "metadata: {name: n1, labels: {a: b}}\nstatus: {allocatable: {cpu: '4', memory: 8Gi, pods: '10'}}";
    scheduler.set_node(&yaml(relabeled), NOW);
    let timings = scheduler.take_event_timings();
    let whole: Vec<String> = timings.iter().filter(|it| it.hint.is_none()).map(|it| it.event.to_string()).collect();
    assert_eq!(whole, ["NodeUpdateNodeLabel", "NodeUpdateNodeTaint"]);
    let moves: Vec<String> = scheduler.take_moves().map(|(queue, cause, _)| format!("{queue} {cause}")).collect();
    assert!(moves.contains(&"backoff NodeUpdateNodeTaint".to_owned()), "{moves:?}");
}

#[test]
fn helpful_changes_of_the_pod_are_named() {
    let mut scheduler = default();
    set_node(&mut scheduler, "n1", "spec: {taints: [{key: t, effect: NoSchedule}]}");
    set_pod(&mut scheduler, "p", "", "");
    message(&mut scheduler);
    scheduler.take_moves().for_each(drop);
    set_pod(&mut scheduler, "p", "", "tolerations: [{key: t, operator: Exists}]");
    let moves: Vec<String> = scheduler.take_moves().map(|(queue, cause, _)| format!("{queue} {cause}")).collect();
    assert_eq!(moves, ["backoff TargetPodUpdatePodToleration"]);
}

#[test]
fn all_extension_points_are_measured() {
    let mut scheduler = default();
    set_node(&mut scheduler, "n1", "");
    set_pod(&mut scheduler, "p", "", CPU);
    set_pod(&mut scheduler, "large", "", "containers: [{name: c, resources: {requests: {cpu: '3'}}}]");
    let measured = |attempt: &Attempt| -> Vec<(Point, &'static str)> {
        attempt.timings.iter().filter(|it| it.plugin.is_empty()).map(|it| (it.point, it.status)).collect()
    };
    let placed = measured(&attempt(&mut scheduler));
    for point in [Point::PreFilter, Point::Filter, Point::Reserve, Point::Permit] {
        assert!(placed.contains(&(point, "Success")), "{point}: {placed:?}");
    }
    let rejected = attempt(&mut scheduler);
    assert!(measured(&rejected).contains(&(Point::PostFilter, "Unschedulable")), "{:?}", rejected.timings);
}
