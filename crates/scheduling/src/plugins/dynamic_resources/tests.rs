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
    let size = NonZeroUsize::new(64).unwrap();
    let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
    let matcher = Arc::new(Matcher::new(size, clock.clone(), Features::ALL).unwrap());
    let profile = plugins::default_profile(&matcher).unwrap();
    let devices =
        Devices::new(Inventory::new(matcher.clone(), features), Arc::new(Expressions::new(size, clock).unwrap()));
    let mut scheduler = Scheduler::new(vec![profile], Backoff::default(), matcher, 1).with_devices(devices);
    let class = read(r#"{"metadata": {"name": "gpu"}}"#);
    scheduler.set_object(&Object::DeviceClass(Arc::new(class)), START);
    scheduler
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
    json::from_value(&json::parse(text.as_bytes()).unwrap()).unwrap()
}

/// A node with some devices of its own.
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
        Write::UseResourceClaim { allocation: Some(allocation), .. } => {
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
    // Whatever wakes it: what was taken is free again.
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
