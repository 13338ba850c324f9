//! Allocations equal those of Kubernetes' allocator, its order of devices and its errors included.

use std::collections::BTreeSet;

use crate::setting::{Programs, Setting, cases, texts};
use api::json::{self, Value};
use dra::search::Effort;
use dra::{Budget, Error, Features, Search};

/// The result of a case, as it is recorded: outcome, allocations, error, and steps of the search.
fn run(case: &Value, programs: &Programs) -> Value {
    let setting = Setting::new(case, programs, features(case));
    let mut budget = Budget::by_cost();
    let (outcome, effort) = match setting.pools() {
        Err(error) => (Err(error), Effort::default()),
        Ok(pools) => {
            let search = Search::new(&pools, &setting.allocated, &setting.claims, &mut budget, None);
            let (found, effort) = search.run();
            let allocations = found.and_then(|found| {
                let write =
                    |solution: dra::search::Solution| solution.allocations(&setting.claims, &pools, &mut || "*".into());
                found.map(write).transpose()
            });
            (allocations, effort)
        }
    };
    let mut document = Value::object();
    let found = document.as_object_mut().unwrap();
    found.insert("steps", effort.steps as i64);
    match outcome {
        Ok(Some(allocations)) => {
            found.insert("outcome", "allocated");
            if !allocations.is_empty() {
                found.insert("allocations", Value::Array(allocations.iter().map(shown).collect()));
            }
        }
        Ok(None) => {
            found.insert("outcome", "none");
        }
        Err(error) => {
            found.insert("outcome", if error.is_about_node() { "error-on-node" } else { "error" });
            found.insert("error", error.to_string());
        }
    }
    document.sort_keys();
    document
}

/// The recorded result of one of Kubernetes' allocators; none if it rejects the features of the case.
fn recorded(case: &Value, variant: &str) -> Option<Value> {
    let entry = expectation(case, variant)?;
    let mut document = Value::object();
    let wanted = document.as_object_mut().unwrap();
    for key in ["outcome", "allocations", "error"] {
        if let Some(value) = entry.get(key) {
            wanted.insert(key, value.clone());
        }
    }
    let index = texts(entry.get("variants")).iter().position(|it| it == variant).unwrap();
    wanted.insert("steps", entry.get("steps").unwrap().as_array().unwrap()[index].as_i64().unwrap());
    document.sort_keys();
    Some(document)
}

/// The parts of a result that can be compared with those of another allocator.
fn comparable(result: &Value, variant: &str, varies: bool) -> Value {
    let mut result = result.clone();
    let fields = result.as_object_mut().unwrap();
    // The stable allocator searches in another way: the number of its steps differs where its result is the same.
    if variant == "stable" {
        fields.remove("steps");
    }
    // It tries the pools in random order: only the outcome is recorded where that shows.
    if varies {
        fields.remove("allocations");
        fields.remove("error");
    }
    result
}

/// An allocation as Kubernetes writes it: `devices` also where there are none.
fn shown(allocation: &api::resource::v1::AllocationResult) -> Value {
    let mut document = json::to_value(allocation).unwrap();
    if document.get("devices").is_none() {
        document.as_object_mut().unwrap().insert("devices", Value::object());
    }
    document
}

fn expectation<'c>(case: &'c Value, variant: &str) -> Option<&'c Value> {
    let all = case.get("expect").unwrap().as_array().unwrap();
    all.iter().find(|it| texts(it.get("variants")).iter().any(|it| it == variant))
}

fn features(case: &Value) -> Features {
    let names: BTreeSet<String> = texts(case.get("features")).into_iter().collect();
    let on = |name: &str| names.contains(name);
    Features {
        admin_access: on("AdminAccess"),
        compatibility_groups: on("CompatibilityGroups"),
        consumable_capacity: on("ConsumableCapacity"),
        derived_attributes: on("DerivedAttributes"),
        device_binding_and_status: on("DeviceBindingAndStatus"),
        device_taints: on("DeviceTaints"),
        fractional_capacity_range: on("FractionalCapacityRange"),
        list_type_attributes: on("ListTypeAttributes"),
        optional_node_operations: on("OptionalNodeOperations"),
        partitionable_devices: on("PartitionableDevices"),
        prioritized_list: on("PrioritizedList"),
        cel_constraints: true,
    }
}

/// Cases in which another allocator of Kubernetes has a different result than `experimental`, which `dra` follows.
const VARIANT_GAPS: &[(&str, &str)] = &[
    // `incubating` lacks DRAOptionalNodeOperations: `skipNodeOperations` of a slice does not keep it from being used.
    ("dra-skip-ops-004", "incubating"),
    ("dra-skip-ops-007", "incubating"),
    ("dra-skip-ops-010", "incubating"),
    // `stable` lacks DRAConsumableCapacity: it ignores a request for capacity instead of rejecting it.
    ("dra-capacity-071", "stable"),
];

#[test]
fn allocations_equal_those_of_kubernetes() {
    let mut failures = Vec::new();
    let mut compared = [("experimental", 0), ("incubating", 0), ("stable", 0)];
    let programs = Programs::new();
    for case in &cases(include_str!("data/allocator.jsonl")) {
        let id = case.str_at(&["id"]).unwrap();
        let found = run(case, &programs);
        for (variant, count) in &mut compared {
            let Some(expected) = recorded(case, variant) else { continue };
            *count += 1;
            let varies = expectation(case, variant).unwrap().get("varies").is_some();
            let (expected, found) = (comparable(&expected, variant, varies), comparable(&found, variant, varies));
            if (expected == found) == VARIANT_GAPS.contains(&(id, *variant)) {
                let (expected, found) = (json::to_string(&expected), json::to_string(&found));
                failures.push(format!("{id} {variant}\n  {expected}\n  {found}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {compared:?}\n{}", failures.len(), failures.join("\n"));
    assert_eq!(compared, [("experimental", 571), ("incubating", 454), ("stable", 288)]);
}

#[test]
fn a_claim_with_an_expression_is_refused_without_its_gate() {
    let case = json::parse(
        br#"{"node":{"metadata":{"name":"n"}},"claims":[{"metadata":{"namespace":"ns","name":"c"},"spec":{"devices":{
            "requests":[{"name":"r","exactly":{"deviceClassName":"any","allocationMode":"ExactCount","count":1}}],
            "constraints":[{"cel":{"expression":"true"}}]}}}],"deviceClasses":[{"metadata":{"name":"any"}}]}"#,
    )
    .unwrap();
    let setting = Setting::new(&case, &Programs::new(), Features { cel_constraints: false, ..Features::ALL });
    let pools = setting.pools().unwrap();
    let mut budget = Budget::by_cost();
    let (found, _) = Search::new(&pools, &setting.allocated, &setting.claims, &mut budget, None).run();
    let error: Error = found.unwrap_err();
    assert_eq!(
        error.to_string(),
        "claim ns/c, constraint #0: device constraint CEL expressions require feature gate DRACELDeviceConstraint"
    );
}
