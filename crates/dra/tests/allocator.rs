//! Allocations equal those of Kubernetes' allocator, its order of devices and its errors included.

use std::collections::BTreeSet;

use crate::setting::{Programs, Setting, cases, texts};
use api::json::{self, Value};
use dra::search::Effort;
use dra::{Budget, Error, Features, Search};

/// Returns the expected and the actual result of a case.
fn run(case: &Value, programs: &Programs) -> (Value, Value) {
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
    let steps = |of: &str| {
        let entry = expectation(case, of);
        let index = texts(entry.get("variants")).iter().position(|it| it == of).unwrap();
        entry.get("steps").unwrap().as_array().unwrap()[index].as_i64().unwrap()
    };
    let expected = expectation(case, "experimental");
    let mut expected_document = Value::object();
    let mut found_document = Value::object();
    let (wanted, found) = (expected_document.as_object_mut().unwrap(), found_document.as_object_mut().unwrap());
    for key in ["outcome", "allocations", "error"] {
        if let Some(value) = expected.get(key) {
            wanted.insert(key, value.clone());
        }
    }
    wanted.insert("steps", steps("experimental"));
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
    expected_document.sort_keys();
    found_document.sort_keys();
    (expected_document, found_document)
}

/// An allocation as Kubernetes writes it: `devices` also where there are none.
fn shown(allocation: &api::resource::v1::AllocationResult) -> Value {
    let mut document = json::to_value(allocation).unwrap();
    if document.get("devices").is_none() {
        document.as_object_mut().unwrap().insert("devices", Value::object());
    }
    document
}

fn expectation<'c>(case: &'c Value, variant: &str) -> &'c Value {
    let all = case.get("expect").unwrap().as_array().unwrap();
    all.iter().find(|it| texts(it.get("variants")).iter().any(|it| it == variant)).unwrap()
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

#[test]
fn allocations_equal_those_of_kubernetes() {
    let mut failures = Vec::new();
    let cases = cases(include_str!("data/allocator.jsonl"));
    assert!(cases.len() > 500);
    let programs = Programs::new();
    for case in &cases {
        let (expected, found) = run(case, &programs);
        if expected != found {
            let id = case.str_at(&["id"]).unwrap();
            failures.push(format!("{id}\n  {}\n  {}", json::to_string(&expected), json::to_string(&found)));
        }
    }
    assert!(failures.is_empty(), "{} of {}\n{}", failures.len(), cases.len(), failures.join("\n"));
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
