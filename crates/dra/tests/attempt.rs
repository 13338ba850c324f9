//! Attempts over many nodes: one search for all equivalent ones, and decisions that count before they are
//! written.

use std::sync::Arc;

use api::json::{self, Text, Value};
use api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use dra::narration::Step;
use dra::pools::Target;
use dra::{Attempt, Budget, Claims, Error, Features, Inventory};

use crate::setting::Programs;

struct World {
    programs: Programs,
    inventory: Inventory,
    nodes: Vec<matching::Node>,
}

impl World {
    /// Nodes with four devices each, in separate pools.
    fn new(nodes: usize, change: impl Fn(usize, &mut Value)) -> Self {
        let programs = Programs::new();
        let mut inventory = Inventory::new(programs.matcher.clone(), Features::ALL);
        let mut list = Vec::new();
        for number in 0..nodes {
            let name = format!("node-{number}");
            let devices =
                (0..4).map(|id| api::json!({"name": (format!("d{id}")), "attributes": {"id": {"int": (id as i64)}}}));
            let mut slice = api::json!({
                "metadata": {"name": (format!("slice-{number}"))},
                "spec": {
                    "driver": "a.example.com",
                    "nodeName": (name.clone()),
                    "pool": {"name": (name.clone()), "generation": 1, "resourceSliceCount": 1},
                    "devices": (Value::Array(devices.collect()))
                }
            });
            change(number, &mut slice);
            inventory.set_slice(&json::from_value::<ResourceSlice>(&slice).unwrap());
            list.push(matching::Node { name: name.into(), ..matching::Node::default() });
        }
        World { programs, inventory, nodes: list }
    }

    fn attempt(&self, spec: &str) -> Attempt<'_> {
        self.attempt_within(spec, Budget::by_cost())
    }

    fn attempt_within<'w>(&'w self, spec: &str, budget: Budget<'w>) -> Attempt<'w> {
        let spec = json::parse(spec.as_bytes()).unwrap();
        let claim = api::json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c"}, "spec": {"devices": (spec)}});
        let claim = Arc::new(json::from_value::<ResourceClaim>(&claim).unwrap());
        let class = |_: &str| Some(Arc::new(DeviceClass::default()));
        let claims = Claims::new(&[claim], &class, &self.programs.expressions, Features::ALL);
        Attempt::new(&self.inventory, claims, budget, None)
    }

    fn allocate(&self, attempt: &mut Attempt<'_>, node: usize) -> Result<Option<AllocationResult>, Error> {
        let found = attempt.ask(Target::new(&self.nodes[node], &[]))?;
        let mut allocations =
            found.map_or_else(Vec::new, |found| attempt.allocations(&found, &mut || "share".into()).unwrap());
        Ok(allocations.pop())
    }
}

const TWO: &str =
    r#"{"requests":[{"name":"r","exactly":{"deviceClassName":"x","allocationMode":"ExactCount","count":2}}]}"#;

fn names(allocation: Option<AllocationResult>) -> Vec<String> {
    let results = allocation.into_iter().flat_map(|it| it.devices.results);
    results.map(|it| format!("{}/{}", it.pool, it.device)).collect()
}

#[test]
fn nodes_that_look_alike_share_one_search() {
    let mut world = World::new(50, |_, _| {});
    let mut attempt = world.attempt(TWO);
    for node in 0..50 {
        let found = world.allocate(&mut attempt, node).unwrap();
        assert_eq!(names(found), [format!("node-{node}/d0"), format!("node-{node}/d1")]);
    }
    assert_eq!(attempt.searches(), 1);
    let taken = world.allocate(&mut attempt, 7).unwrap().unwrap();
    drop(attempt);
    let uid = Text::from("claim-7");
    world.inventory.assume(&uid, taken.clone());
    let mut attempt = world.attempt(TWO);
    let all: Vec<_> = (0..50).map(|node| names(world.allocate(&mut attempt, node).unwrap())).collect();
    assert_eq!(all[7], ["node-7/d2", "node-7/d3"]);
    assert_eq!(all[8], ["node-8/d0", "node-8/d1"]);
    assert_eq!(attempt.searches(), 1, "what the others came to is known from the attempt before");
    drop(attempt);
    // An older state of the claim does not revert the decision; observing the decision itself changes nothing.
    world.inventory.see_claim(&uid, None);
    assert!(world.inventory.is_assumed(&uid));
    world.inventory.see_claim(&uid, Some(&taken));
    assert!(!world.inventory.is_assumed(&uid));
    assert_eq!(world.inventory.allocated().dedicated().len(), 2);
    world.inventory.see_claim(&uid, None);
    assert!(world.inventory.allocated().dedicated().is_empty());
}

#[test]
fn reverted_devices_are_free_again() {
    let mut world = World::new(1, |_, _| {});
    let taken = world.allocate(&mut world.attempt(TWO), 0).unwrap().unwrap();
    let uid = Text::from("u");
    world.inventory.assume(&uid, taken.clone());
    world.inventory.take_back(&uid);
    assert!(world.inventory.allocated().dedicated().is_empty());
    world.inventory.assume(&uid, taken);
    world.inventory.remove_claim(&uid);
    assert!(world.inventory.allocated().dedicated().is_empty());
}

#[test]
fn an_error_names_the_node_and_its_devices() {
    let world = World::new(3, |number, slice| {
        if number == 2 {
            let devices = slice.get_mut("spec").and_then(|spec| spec.get_mut("devices")).unwrap();
            let attributes = devices.as_array_mut().unwrap()[0].get_mut("attributes").unwrap();
            attributes.as_object_mut().unwrap().insert("numa", api::json!({"int": 1}));
        }
    });
    let spec = r#"{"requests":[{"name":"r","exactly":{"deviceClassName":"x","allocationMode":"ExactCount","count":1}}],
        "constraints":[{"cel":{"expression":"devices[0].attributes['a.example.com'].numa == 1"}}]}"#;
    let mut attempt = world.attempt(spec);
    for node in 0..2 {
        let error = world.allocate(&mut attempt, node).unwrap_err();
        assert!(error.is_about_node());
        let text = error.to_string();
        let start = format!(
            "node node-{node}: claim ns/c: constraint #0 on devices a.example.com/node-{node}/d0: CEL runtime error: no such key: numa"
        );
        assert!(text.starts_with(&start), "{text}");
        // Nodes with equal failures are counted in one reason.
        let summary = "node(s): constraint #0 of claim ns/c failed: CEL runtime error: no such key: numa";
        assert!(error.summary().starts_with(summary), "{}", error.summary());
    }
    assert_eq!(attempt.searches(), 1);
    assert_eq!(names(world.allocate(&mut attempt, 2).unwrap()), ["node-2/d0"]);
}

#[test]
fn earlier_alternatives_score_higher() {
    let world = World::new(2, |_, _| {});
    let spec = r#"{"requests":[{"name":"r","firstAvailable":[
        {"name":"many","deviceClassName":"x","allocationMode":"ExactCount","count":COUNT},
        {"name":"few","deviceClassName":"x","allocationMode":"ExactCount","count":1}]}]}"#;
    let score = |count: &str| {
        let mut attempt = world.attempt(&spec.replace("COUNT", count));
        let found = attempt.ask(Target::new(&world.nodes[0], &[])).unwrap().unwrap();
        attempt.score(&found)
    };
    assert_eq!((score("4"), score("5")), (8, 7));
}

#[test]
fn a_slice_that_changes_is_noticed() {
    let mut world = World::new(2, |_, _| {});
    assert!(world.allocate(&mut world.attempt(TWO), 0).unwrap().is_some());
    world.inventory.remove_slice("slice-0");
    let mut attempt = world.attempt(TWO);
    assert!(world.allocate(&mut attempt, 0).unwrap().is_none());
    assert!(world.allocate(&mut attempt, 1).unwrap().is_some());
}

#[test]
fn the_budget_is_one_for_all_nodes() {
    let new = || {
        World::new(2, |number, slice| {
            let devices = slice.get_mut("spec").and_then(|spec| spec.get_mut("devices")).unwrap();
            let attributes = devices.as_array_mut().unwrap()[0].get_mut("attributes").unwrap();
            attributes.as_object_mut().unwrap().insert("id", api::json!({"int": (number as i64)}));
        })
    };
    let (world, again) = (new(), new());
    let spec = TWO.replace("]}", r#"],"constraints":[{"cel":{"expression":"size(devices) > 5"}}]}"#);
    let mut attempt = world.attempt(&spec);
    assert!(world.allocate(&mut attempt, 0).unwrap().is_none());
    let cost = attempt.effort().cost;
    let mut attempt = again.attempt(&spec).with_cost_limit(cost + 1);
    assert!(again.allocate(&mut attempt, 0).unwrap().is_none());
    let error = again.allocate(&mut attempt, 1).unwrap_err();
    assert!(!error.is_about_node());
    assert!(error.to_string().contains("cost more than"), "{error}");
}

/// KEP-5254, "Allocation Example": four contiguous of eight devices, in the order of the example. After device2
/// and device3, no fourth is compatible with device7; it is removed, and device5 and device4 complete the set.
#[test]
fn the_example_of_the_proposal_step_by_step() {
    let order = [2_i64, 3, 7, 5, 4, 0, 1, 6];
    let world = World::new(1, |_, slice| {
        let devices = order.iter().enumerate().map(
            |(place, id)| api::json!({"name": (format!("{place}-device{id}")), "attributes": {"id": {"int": (*id)}}}),
        );
        let devices = Value::Array(devices.collect());
        slice.get_mut("spec").and_then(Value::as_object_mut).unwrap().insert("devices", devices);
    });
    let ids = "devices.map(d, d.attributes['a.example.com'].id)";
    let claim = format!(
        r#"{{"requests": [{{"name": "r", "exactly": {{"deviceClassName": "x", "allocationMode": "ExactCount", "count": 4}}}}],
            "constraints": [{{"cel": {{"expression": "{ids}.max() - {ids}.min() == 3"}}}}]}}"#
    );
    let narrated = Budget { narration: Some(dra::Narration::default()), ..Budget::by_cost() };
    let mut attempt = world.attempt_within(&claim, narrated);
    let found = names(world.allocate(&mut attempt, 0).unwrap());
    assert_eq!(found, ["node-0/0-device2", "node-0/1-device3", "node-0/3-device5", "node-0/4-device4"]);
    let told = attempt.take_narration().unwrap();
    let steps: Vec<String> = told
        .steps
        .iter()
        .map(|step| match step {
            Step::Collecting { current, expected } => format!("{current} of {expected}"),
            Step::Evaluating { devices, .. } => {
                let ids = devices.split(", ").map(|name| name.rsplit("device").next().unwrap());
                format!("[{}]", ids.collect::<Vec<_>>().join(" "))
            }
            Step::NotSatisfied { .. } => "no".to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = "0 of 4, 1 of 4, 2 of 4, 3 of 4, [2 3 7 5], no, [2 3 7 4], no, [2 3 7 0], no, [2 3 7 1], no, [2 3 7 6], no, \
                    3 of 4, [2 3 5 4]";
    assert_eq!(steps.join(", "), expected);
    assert_eq!(attempt.effort().evaluations, 6, "at most 70, which is all there are");
}
