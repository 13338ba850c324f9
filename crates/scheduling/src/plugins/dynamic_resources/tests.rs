//! Pods with claims, from the objects of the API to placements and writes.

use std::num::NonZeroUsize;
use std::time::Duration;

use api::json;
use api::resource::v1::ResourceSlice;
use dra::{Expressions, Inventory};
use matching::Features;

use super::*;
use crate::cluster::{Object, ObjectKind};
use crate::queue::Backoff;
use crate::{Attempt, Outcome, Scheduler, plugins};

const START: Duration = Duration::from_secs(1000);
const LATER: Duration = Duration::from_secs(2000);

fn scheduler(features: dra::Features) -> Scheduler {
    scheduler_with(features, |_| {})
}

fn scheduler_with(features: dra::Features, change: impl FnOnce(&mut Devices)) -> Scheduler {
    let size = NonZeroUsize::new(64).unwrap();
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    let matcher = Arc::new(Matcher::new(size, clock.clone(), Features::ALL).unwrap());
    let profile = plugins::default_profile(&matcher).unwrap();
    let mut devices =
        Devices::new(Inventory::new(matcher.clone(), features), Arc::new(Expressions::new(size, clock).unwrap()));
    change(&mut devices);
    let mut scheduler = Scheduler::new(vec![profile], Backoff::default(), matcher, 1).with_devices(devices);
    let class = read(r#"{"metadata": {"name": "gpu"}}"#);
    scheduler.set_object(&Object::DeviceClass(Arc::new(class)), START);
    scheduler
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    json::from_value(&json::parse(text.as_bytes()).unwrap()).unwrap()
}

/// A node with local devices.
fn add_node(scheduler: &mut Scheduler, name: &str, devices: usize) {
    let node = format!(
        r#"{{"metadata": {{"name": "{name}"}}, "status": {{"allocatable": {{"cpu": "8", "memory": "8Gi", "pods": "10"}}}}}}"#
    );
    scheduler.set_node(&read(&node), START);
    let devices: Vec<String> =
        (0..devices).map(|id| format!(r#"{{"name": "gpu-{id}", "attributes": {{"id": {{"int": {id}}}}}}}"#)).collect();
    let slice: ResourceSlice = read(&format!(
        r#"{{"metadata": {{"name": "{name}-slice"}}, "spec": {{"driver": "gpu.example.com", "nodeName": "{name}",
            "pool": {{"name": "{name}", "generation": 1, "resourceSliceCount": 1}}, "devices": [{}]}}}}"#,
        devices.join(",")
    ));
    scheduler.set_object(&Object::ResourceSlice(Arc::new(slice)), START);
}

fn claim(name: &str, count: usize, more: &str) -> Arc<ResourceClaim> {
    Arc::new(read(&format!(
        r#"{{"metadata": {{"name": "{name}", "namespace": "default", "uid": "{name}", "resourceVersion": "7"}},
            "spec": {{"devices": {{"requests": [{{"name": "r", "exactly": {{"deviceClassName": "gpu",
            "allocationMode": "ExactCount", "count": {count}}}}}] {more}}}}}}}"#
    )))
}

fn set_claim(scheduler: &mut Scheduler, claim: &Arc<ResourceClaim>, now: Duration) {
    scheduler.set_object(&Object::ResourceClaim(claim.clone()), now);
}

fn add_pod(scheduler: &mut Scheduler, name: &str, claim: &str) {
    let pod = format!(
        r#"{{"metadata": {{"name": "{name}", "namespace": "default", "uid": "{name}"}}, "spec": {{"containers": [{{"name": "c"}}],
            "resourceClaims": [{{"name": "x", {claim}}}]}}}}"#
    );
    scheduler.set_pod(&read(&pod), START);
}

#[track_caller]
fn placed(scheduler: &mut Scheduler, now: Duration) -> (String, Vec<Write>) {
    match scheduler.schedule_one(now).expect("a pod to try") {
        Attempt { outcome: Outcome::Scheduled(placement), .. } => (placement.node.to_string(), placement.writes),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn unplaced(scheduler: &mut Scheduler, now: Duration) -> String {
    match scheduler.schedule_one(now).expect("a pod to try").outcome {
        Outcome::Unschedulable(unplaced) => unplaced.message,
        Outcome::Error(message) => message,
        other => panic!("{other:?}"),
    }
}

fn devices(write: &Write) -> Vec<String> {
    match write {
        Write::UseResourceClaim { allocation: Some(allocation), .. }
        | Write::CreateResourceClaim { allocation, .. } => {
            let results = allocation.devices.results.iter();
            results.map(|it| format!("{}/{}", it.pool, it.device)).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The claim as it is written.
fn with(claim: &Arc<ResourceClaim>, write: &Write, pod: &str) -> Arc<ResourceClaim> {
    let mut claim = claim.as_ref().clone();
    if let Write::UseResourceClaim { allocation: Some(allocation), .. } = write {
        claim.status.allocation = Some(allocation.as_ref().clone());
    }
    claim.status.reserved_for.push(read(&format!(r#"{{"resource": "pods", "name": "{pod}", "uid": "{pod}"}}"#)));
    Arc::new(claim)
}

#[test]
fn devices_are_taken_before_they_are_written_and_given_back_when_that_fails() {
    let mut scheduler = scheduler(dra::Features::ALL);
    add_node(&mut scheduler, "n", 2);
    let (a, b) = (claim("a", 2, ""), claim("b", 1, ""));
    set_claim(&mut scheduler, &a, START);
    set_claim(&mut scheduler, &b, START);
    add_pod(&mut scheduler, "pa", r#""resourceClaimName": "a""#);
    add_pod(&mut scheduler, "pb", r#""resourceClaimName": "b""#);
    let (node, writes) = placed(&mut scheduler, START);
    assert_eq!((node.as_str(), devices(&writes[0])), ("n", vec!["n/gpu-0".to_owned(), "n/gpu-1".to_owned()]));
    let message = unplaced(&mut scheduler, START);
    assert!(message.starts_with("0/1 nodes are available: 1 cannot allocate all claims."), "{message}");
    scheduler.binding_failed("pa", START);
    set_claim(&mut scheduler, &claim("c", 1, ""), START);
    scheduler.remove_pod("pa", START);
    scheduler.remove_object(ObjectKind::ResourceClaim, "default", "a", START);
    // After any wake-up, the devices are free again.
    add_node(&mut scheduler, "m", 0);
    let (node, writes) = placed(&mut scheduler, LATER);
    assert_eq!((node.as_str(), devices(&writes[0])), ("n", vec!["n/gpu-0".to_owned()]));
}

#[test]
fn pods_share_a_claim_where_its_devices_are() {
    let mut scheduler = scheduler(dra::Features::ALL);
    add_node(&mut scheduler, "m", 0);
    add_node(&mut scheduler, "n", 1);
    let shared = claim("a", 1, "");
    set_claim(&mut scheduler, &shared, START);
    add_pod(&mut scheduler, "one", r#""resourceClaimName": "a""#);
    let (node, writes) = placed(&mut scheduler, START);
    assert_eq!(node, "n");
    let shared = with(&shared, &writes[0], "one");
    scheduler.bound("one");
    set_claim(&mut scheduler, &shared, START);
    add_pod(&mut scheduler, "two", r#""resourceClaimName": "a""#);
    let (node, writes) = placed(&mut scheduler, START);
    assert_eq!(node, "n");
    assert!(matches!(writes.as_slice(), [Write::UseResourceClaim { allocation: None, .. }]));
}

#[test]
fn a_pod_waits_for_its_claim_and_class() {
    let mut scheduler = scheduler(dra::Features::ALL);
    add_node(&mut scheduler, "n", 1);
    add_pod(&mut scheduler, "generated", r#""resourceClaimTemplateName": "t""#);
    // Not tried at all: the claim is not created yet.
    assert!(scheduler.schedule_one(START).is_none());
    add_pod(&mut scheduler, "p", r#""resourceClaimName": "a""#);
    let message = unplaced(&mut scheduler, START);
    assert!(message.contains(r#"resourceclaim.resource.k8s.io "a" not found"#), "{message}");
    scheduler.remove_object(ObjectKind::DeviceClass, "", "gpu", START);
    set_claim(&mut scheduler, &claim("a", 1, ""), LATER);
    let message = unplaced(&mut scheduler, LATER);
    assert!(message.contains("request r: device class gpu does not exist"), "{message}");
}

#[test]
fn a_constraint_over_the_set_is_satisfied_or_its_gate_is_named() {
    let constraint = r#", "constraints": [{"cel": {"expression":
        "devices.map(d, d.attributes['gpu.example.com'].id).sum() == 5"}}]"#;
    for (features, expected) in [
        (dra::Features::ALL, None),
        (
            dra::Features { cel_constraints: false, ..dra::Features::ALL },
            Some(
                "0/1 nodes are available: resource claim default/a, constraint #0: device constraint CEL expressions require feature gate DRACELDeviceConstraint.",
            ),
        ),
    ] {
        let mut scheduler = scheduler(features);
        add_node(&mut scheduler, "n", 4);
        set_claim(&mut scheduler, &claim("a", 2, constraint), START);
        add_pod(&mut scheduler, "p", r#""resourceClaimName": "a""#);
        match expected {
            None => assert_eq!(devices(&placed(&mut scheduler, START).1[0]), ["n/gpu-2", "n/gpu-3"]),
            Some(message) => {
                let found = unplaced(&mut scheduler, START);
                assert!(found.starts_with(message), "{found}");
            }
        }
    }
}

#[test]
fn an_idle_claim_on_the_wrong_node_is_freed() {
    let mut scheduler = scheduler(dra::Features::ALL);
    add_node(&mut scheduler, "m", 1);
    let idle = claim("a", 1, "");
    set_claim(&mut scheduler, &idle, START);
    add_pod(&mut scheduler, "one", r#""resourceClaimName": "a""#);
    let (_, writes) = placed(&mut scheduler, START);
    let mut idle = with(&idle, &writes[0], "one").as_ref().clone();
    idle.status.reserved_for.clear();
    scheduler.remove_pod("one", START);
    set_claim(&mut scheduler, &Arc::new(idle), START);
    scheduler.remove_node("m", START);
    add_node(&mut scheduler, "n", 1);
    add_pod(&mut scheduler, "two", r#""resourceClaimName": "a""#);
    match scheduler.schedule_one(START).expect("a pod to try").outcome {
        Outcome::Unschedulable(unplaced) => {
            assert!(unplaced.message.contains("resourceclaim not available on the node"), "{}", unplaced.message);
            assert!(unplaced.message.contains("deallocation of ResourceClaim completed"), "{}", unplaced.message);
            assert!(matches!(unplaced.writes.as_slice(), [Write::FreeResourceClaim { claim, .. }] if claim == "a"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn ids_of_shares_are_uuids() {
    let id = share_id("pod", 1);
    assert_ne!(id, share_id("pod", 2));
    assert_ne!(id, share_id("other", 1));
    let lengths: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12]);
}

/// A constraint that no set satisfies and that does not allow pruning.
const UNPRUNABLE: &str = r#", "constraints": [{"cel": {"expression":
    "devices.map(d, d.attributes['gpu.example.com'].id).sum() % 7 == 9"}}]"#;

/// The same with limits: on the search within an attempt, and on the total cost of an attempt.
fn impatient(patience: impl Into<Option<u64>>, cost_limit: u64) -> Scheduler {
    let patience = patience.into();
    scheduler_with(dra::Features::ALL, |devices| (devices.patience, devices.cost_limit) = (patience, cost_limit))
}

#[track_caller]
fn deferred(scheduler: &mut Scheduler, now: Duration) -> crate::aside::DeviceSearch {
    match scheduler.schedule_one(now).expect("a pod to try").outcome {
        Outcome::Deferred(search) => *search,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_search_that_cannot_be_cut_holds_up_no_other_pod() {
    let mut scheduler = impatient(10_000, 200_000);
    add_node(&mut scheduler, "n", 40);
    let roomy = r#"{"metadata": {"name": "m", "labels": {"for": "others"}},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}}"#;
    scheduler.set_node(&read(roomy), START);
    set_claim(&mut scheduler, &claim("costly", 8, UNPRUNABLE), START);
    add_pod(&mut scheduler, "costly", r#""resourceClaimName": "costly""#);
    let search = deferred(&mut scheduler, START);
    for number in 0..100 {
        let pod = format!(
            r#"{{"metadata": {{"name": "p{number}", "namespace": "default", "uid": "p{number}"}},
                "spec": {{"nodeSelector": {{"for": "others"}}, "containers": [{{"name": "c"}}]}}}}"#
        );
        scheduler.set_pod(&read(&pod), START);
        placed(&mut scheduler, START);
    }
    assert!(scheduler.schedule_one(START).is_none(), "the pod waits for its search");
    let attempt = scheduler.searched(search.run(), START).expect("the attempt is over");
    let Outcome::Error(message) = &attempt.outcome else { panic!("{attempt:?}") };
    assert_eq!(message, "filter operation aborted: device constraints cost more than 200000 in one scheduling attempt");
    let spent = attempt.devices.unwrap();
    assert!((200_000..201_000).contains(&spent.effort.cost), "all runs count, and the last one ends it: {spent:?}");
    // After its back-off it is tried again, with a new budget.
    let search = deferred(&mut scheduler, LATER);
    assert!(matches!(scheduler.searched(search.run(), LATER).unwrap().outcome, Outcome::Error(_)));
}

#[test]
fn background_search_agrees_with_the_attempt() {
    let three = r#", "constraints": [{"cel": {"expression":
        "devices.map(d, d.attributes['gpu.example.com'].id).sum() == 111"}}]"#;
    let found = |patience: Option<u64>| {
        let mut scheduler = impatient(patience, Budget::COST_LIMIT);
        add_node(&mut scheduler, "n", 40);
        set_claim(&mut scheduler, &claim("a", 3, three), START);
        add_pod(&mut scheduler, "pa", r#""resourceClaimName": "a""#);
        if patience.is_some() {
            let search = deferred(&mut scheduler, START);
            assert!(scheduler.searched(search.run(), START).is_none());
        }
        let attempt = scheduler.schedule_one(START).unwrap();
        assert_eq!(attempt.attempts, 1);
        let Outcome::Scheduled(placement) = attempt.outcome else { panic!("{attempt:?}") };
        (devices(&placement.writes[0]), attempt.devices.unwrap().effort.evaluations)
    };
    let (set, evaluations) = found(None);
    assert_eq!(set, ["n/gpu-34", "n/gpu-38", "n/gpu-39"]);
    let (aside, evaluations_aside) = found(Some(300));
    assert_eq!(aside, set);
    assert!(evaluations_aside >= evaluations, "what was done before counts as well");
}

#[test]
fn time_of_a_search_aside_counts_without_its_pauses() {
    let time = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let tick = move |by: u64| Duration::from_millis(time.fetch_add(by, std::sync::atomic::Ordering::Relaxed));
    let clock = tick.clone();
    let mut scheduler = scheduler_with(dra::Features::ALL, |devices| {
        (devices.patience, devices.cost_limit) = (Some(300), u64::MAX);
        devices.clock = Some(Arc::new(move || clock(100)));
    });
    add_node(&mut scheduler, "n", 40);
    set_claim(&mut scheduler, &claim("costly", 20, UNPRUNABLE), START);
    add_pod(&mut scheduler, "costly", r#""resourceClaimName": "costly""#);
    let search = deferred(&mut scheduler, START);
    let pause = || {
        tick(100_000);
        Duration::from_secs(100)
    };
    let attempt = scheduler.searched(search.run_in_turn(&pause), START).expect("the attempt is over");
    let Outcome::Error(message) = &attempt.outcome else { panic!("{attempt:?}") };
    assert!(message.contains("timed out trying to allocate devices after 10s"), "{message}");
    let taken = attempt.devices.unwrap().time_aside.as_secs();
    assert!((10..=14).contains(&taken), "{taken} s");
    // A search that ended at its limit is not tried again at once, and then later each time.
    assert_eq!(scheduler.next_wake_up(START), Some(START + Duration::from_secs(10)));
}

#[test]
fn a_search_ends_when_its_pod_is_gone() {
    let mut scheduler = impatient(10_000, u64::MAX);
    add_node(&mut scheduler, "n", 40);
    set_claim(&mut scheduler, &claim("costly", 20, UNPRUNABLE), START);
    add_pod(&mut scheduler, "costly", r#""resourceClaimName": "costly""#);
    let search = deferred(&mut scheduler, START);
    scheduler.remove_pod("costly", START);
    assert!(scheduler.searched(search.run(), START).is_none());
    assert!(scheduler.schedule_one(LATER).is_none());
}

#[test]
fn pods_that_ask_the_same_share_searches() {
    let mut scheduler = scheduler(dra::Features::ALL);
    for number in 0..8 {
        add_node(&mut scheduler, &format!("n{number}"), 4);
    }
    let mut searches = 0;
    for number in 0..16 {
        let name = format!("c{number}");
        set_claim(&mut scheduler, &claim(&name, 2, ""), START);
        add_pod(&mut scheduler, &name, &format!(r#""resourceClaimName": "{name}""#));
        let attempt = scheduler.schedule_one(START).unwrap();
        assert!(matches!(attempt.outcome, Outcome::Scheduled(_)), "{attempt:?}");
        searches += attempt.devices.unwrap().searches;
    }
    // States: no devices taken, the first two, all four.
    assert!(searches <= 3, "{searches}");
}

#[test]
fn claim_wakes_only_its_users() {
    let mut scheduler = scheduler(dra::Features::ALL);
    add_node(&mut scheduler, "n", 4);
    for name in ["a", "b", "c"] {
        add_pod(&mut scheduler, name, &format!(r#""resourceClaimName": "{name}""#));
        assert!(unplaced(&mut scheduler, START).contains("not found"));
    }
    // One that is made for a pod, which another pod names.
    add_pod(&mut scheduler, "owner", r#""resourceClaimTemplateName": "t""#);
    assert_eq!((scheduler.lengths().unschedulable, scheduler.lengths().gated), (3, 1));
    set_claim(&mut scheduler, &claim("a", 1, ""), LATER);
    assert_eq!(scheduler.lengths().unschedulable, 2);
    let mut made = claim("b", 1, "").as_ref().clone();
    made.metadata.owner_references =
        read(r#"[{"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": "owner", "controller": true}]"#);
    set_claim(&mut scheduler, &Arc::new(made), LATER);
    assert_eq!((scheduler.lengths().unschedulable, scheduler.lengths().gated), (1, 1));
    // Devices that are free again concern everybody.
    let (_, writes) = placed(&mut scheduler, LATER);
    let (used, free) = (with(&claim("a", 1, ""), &writes[0], "a"), claim("a", 1, ""));
    set_claim(&mut scheduler, &claim("c", 9, ""), LATER);
    placed(&mut scheduler, LATER);
    assert!(unplaced(&mut scheduler, LATER).contains("cannot allocate all claims"));
    set_claim(&mut scheduler, &used, LATER);
    assert_eq!(scheduler.lengths().unschedulable, 1);
    set_claim(&mut scheduler, &free, LATER);
    assert_eq!(scheduler.lengths().unschedulable, 0);
}

#[test]
fn a_pod_waits_for_the_claim_that_its_status_names_already() {
    let mut scheduler = scheduler(dra::Features::ALL);
    add_node(&mut scheduler, "n", 1);
    let pod = r#"{"metadata": {"name": "p", "namespace": "default", "uid": "p"}, "spec": {"containers": [{"name": "c"}],
        "resourceClaims": [{"name": "x", "resourceClaimTemplateName": "t"}]},
        "status": {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]}}"#;
    scheduler.set_pod(&read(pod), START);
    assert!(scheduler.schedule_one(START).is_none());
    assert_eq!(scheduler.lengths().gated, 1);
    let mut made = claim("made", 1, "").as_ref().clone();
    made.metadata.owner_references =
        read(r#"[{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": true}]"#);
    set_claim(&mut scheduler, &Arc::new(made), START);
    assert_eq!(placed(&mut scheduler, START).0, "n");
}

const GPU: &str = r#"{"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}"#;

fn extended(scheduler: &mut Scheduler) {
    scheduler.set_object(&Object::DeviceClass(Arc::new(read(GPU))), START);
}

fn add_extended_pod(scheduler: &mut Scheduler, name: &str, requests: &str) {
    let pod = format!(
        r#"{{"metadata": {{"name": "{name}", "namespace": "default", "uid": "{name}"}}, "spec": {{"containers":
            [{{"name": "c", "resources": {{"requests": {requests}}}}}]}}}}"#
    );
    scheduler.set_pod(&read(&pod), START);
}

/// The claim as the API has it after the writes of the pod.
fn created(write: &Write, uid: &str) -> Arc<ResourceClaim> {
    let Write::CreateResourceClaim { claim, allocation, .. } = write else { panic!("{write:?}") };
    let mut claim = claim.as_ref().clone();
    claim.metadata.name = format!("{}x", claim.metadata.generate_name).into();
    claim.metadata.uid = uid.into();
    claim.status.allocation = Some(allocation.as_ref().clone());
    Arc::new(claim)
}

#[test]
fn extended_resource_gets_devices_of_its_class() {
    let mut scheduler = scheduler(dra::Features::ALL);
    extended(&mut scheduler);
    add_node(&mut scheduler, "n", 3);
    add_extended_pod(&mut scheduler, "one", r#"{"cpu": "1", "example.com/gpu": "2"}"#);
    let (node, writes) = placed(&mut scheduler, START);
    assert_eq!((node.as_str(), devices(&writes[0])), ("n", vec!["n/gpu-0".to_owned(), "n/gpu-1".to_owned()]));
    let Write::CreateResourceClaim { claim, mappings, .. } = &writes[0] else { panic!("{writes:?}") };
    assert_eq!(claim.metadata.generate_name, "one-extended-resources-");
    assert_eq!(claim.extended_resources_of(), Some(&"one".into()));
    let expected: Vec<ContainerExtendedResourceRequest> =
        read(r#"[{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-1"}]"#);
    assert_eq!(*mappings, expected);
    // The devices are allocated before the claim is observed and while it exists, and free after its deletion.
    add_extended_pod(&mut scheduler, "two", r#"{"deviceclass.resource.kubernetes.io/gpu": "2"}"#);
    assert!(unplaced(&mut scheduler, START).starts_with("0/1 nodes are available: 1 cannot allocate all claims."));
    set_claim(&mut scheduler, &created(&writes[0], "u1"), START);
    scheduler.bound("one");
    scheduler.remove_pod("one", LATER);
    assert!(unplaced(&mut scheduler, LATER).contains("1 cannot allocate all claims"));
    scheduler.remove_object(ObjectKind::ResourceClaim, "default", "one-extended-resources-x", LATER);
    let (_, writes) = placed(&mut scheduler, LATER + LATER);
    assert_eq!(devices(&writes[0]), ["n/gpu-0", "n/gpu-1"]);
}

#[test]
fn nodes_with_the_resource_itself_need_no_devices() {
    let mut scheduler = scheduler(dra::Features::ALL);
    extended(&mut scheduler);
    let node = r#"{"metadata": {"name": "own"}, "status": {"allocatable":
        {"cpu": "8", "memory": "8Gi", "pods": "10", "example.com/gpu": "1"}}}"#;
    scheduler.set_node(&read(node), START);
    add_extended_pod(&mut scheduler, "one", r#"{"example.com/gpu": "1"}"#);
    assert_eq!(placed(&mut scheduler, START), ("own".to_owned(), Vec::new()));
    // The node has no more, and its devices do not help out.
    add_node(&mut scheduler, "other", 0);
    add_extended_pod(&mut scheduler, "two", r#"{"example.com/gpu": "1"}"#);
    let message = unplaced(&mut scheduler, START);
    assert!(message.contains("1 Insufficient example.com/gpu, 1 cannot allocate all claims"), "{message}");
    add_extended_pod(&mut scheduler, "three", r#"{"example.com/gpu": "1", "example.com/none": "1"}"#);
    let message = unplaced(&mut scheduler, START);
    assert!(message.contains("2 Insufficient example.com/none"), "{message}");
}

#[test]
fn claim_of_a_failed_attempt_is_deleted_first() {
    let mut scheduler = scheduler(dra::Features::ALL);
    extended(&mut scheduler);
    add_node(&mut scheduler, "n", 1);
    add_extended_pod(&mut scheduler, "one", r#"{"example.com/gpu": "1"}"#);
    let (_, writes) = placed(&mut scheduler, START);
    let left = created(&writes[0], "u1");
    set_claim(&mut scheduler, &left, START);
    scheduler.binding_failed("one", START);
    match scheduler.schedule_one(LATER).expect("a pod to try").outcome {
        Outcome::Unschedulable(unplaced) => {
            assert!(unplaced.message.contains("1 cannot schedule extended resource claim"), "{}", unplaced.message);
            assert!(unplaced.message.contains("deletion of ResourceClaim completed"), "{}", unplaced.message);
            assert!(matches!(unplaced.writes.as_slice(), [Write::DeleteResourceClaim { uid, .. }] if uid == "u1"));
        }
        other => panic!("{other:?}"),
    }
    scheduler.remove_object(ObjectKind::ResourceClaim, "default", &left.metadata.name, LATER);
    assert_eq!(devices(&placed(&mut scheduler, LATER + LATER).1[0]), ["n/gpu-0"]);
}

#[test]
fn newest_class_serves_a_resource() {
    let mut scheduler = scheduler(dra::Features::ALL);
    let class = |name: &str, second: u8| {
        let text = format!(
            r#"{{"metadata": {{"name": "{name}", "creationTimestamp": "2026-01-01T00:00:0{second}Z"}},
                "spec": {{"extendedResourceName": "example.com/gpu"}}}}"#
        );
        Object::DeviceClass(Arc::new(read(&text)))
    };
    for class in [class("b", 1), class("a", 1), class("old", 0)] {
        scheduler.set_object(&class, START);
    }
    let name = |scheduler: &Scheduler| {
        extended::class_of(scheduler.cluster(), "example.com/gpu").map(|class| class.metadata.name.to_string())
    };
    assert_eq!(name(&scheduler).as_deref(), Some("a"));
    scheduler.set_object(&class("old", 2), START);
    assert_eq!(name(&scheduler).as_deref(), Some("old"));
}
