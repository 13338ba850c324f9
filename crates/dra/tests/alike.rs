//! Equivalent devices are tried once: the same result for less work.

use api::json::Value;
use dra::constraints::look_ahead::LookAhead;
use dra::{Budget, Effort, Features, Search};

use crate::setting::{Programs, Setting};

/// Number of devices with weight three.
const LIGHT: &str = "devices.filter(d, d.attributes['a.example.com'].w == 3).size()";

/// Devices of one slice with distinct numbers, first those with weight 3, then those with weight 5.
fn devices(count: i64) -> Value {
    let device = |id: i64| {
        let weight: i64 = if id < count / 2 { 3 } else { 5 };
        let attributes = api::json!({"w": {"int": weight}, "id": {"int": id}});
        let capacity = api::json!({"m": {"value": (weight.to_string())}});
        api::json!({"name": (format!("d{id:02}")), "attributes": attributes, "capacity": capacity})
    };
    Value::Array((0..count).map(device).collect())
}

/// Runs a search for these requests; returns its result and effort.
fn search(devices: &Value, requests: &[i64], expression: &str) -> (Option<Vec<String>>, Effort) {
    let requests = requests.iter().enumerate().map(|(index, count)| {
        let exactly = api::json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": (*count)});
        api::json!({"name": (format!("r{index}")), "exactly": exactly})
    });
    let case = api::json!({
        "node": {"metadata": {"name": "n"}},
        "deviceClasses": [{"metadata": {"name": "any"}}],
        "resourceSlices": [{"metadata": {"name": "s"}, "spec": {
            "driver": "a.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": (devices.clone())
        }}],
        "claims": [{"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {
            "requests": (Value::Array(requests.collect())), "constraints": [{"cel": {"expression": expression}}]
        }}}]
    });
    let setting = Setting::new(&case, &Programs::new(), Features::ALL);
    let pools = setting.pools().unwrap();
    let (mut budget, mut ahead) = (Budget::by_cost(), LookAhead::default());
    let (found, effort) = Search::new(&pools, &setting.allocated, &setting.claims, &mut budget, Some(&mut ahead)).run();
    let allocations = found.unwrap().map(|it| it.allocations(&setting.claims, &pools, &mut || "share".into()).unwrap());
    let names = allocations.map(|it| it[0].devices.results.iter().map(|it| it.device.to_string()).collect());
    (names, effort)
}

const SUM: &str = "devices.map(d, d.attributes['a.example.com'].w).sum()";
const CAPACITY: &str = "devices.map(d, d.capacity['a.example.com'].m.asInteger()).sum()";

/// Runs the same search twice; the second time the expression reads an attribute that is unique to each device.
#[track_caller]
fn compare(requests: &[i64], expression: &str) -> (Option<Vec<String>>, Effort, Effort) {
    let devices = devices(16);
    let (found, effort) = search(&devices, requests, expression);
    let telling = format!("{expression} && devices.all(d, d.attributes['a.example.com'].id >= 0)");
    let (expected, without) = search(&devices, requests, &telling);
    assert_eq!(found, expected, "{expression}");
    (found, effort, without)
}

#[test]
fn failed_branch_skips_equivalent_devices() {
    let parity = format!("{LIGHT} % 2 == 1 && {LIGHT} % 4 == 0");
    for (requests, expression) in [
        (&[5][..], parity.clone()),
        (&[5], format!("{SUM} == 18")),
        (&[5], format!("{SUM} % 2 == 0")),
        (&[5], format!("{CAPACITY} % 2 == 0")),
        (&[2, 2], parity),
    ] {
        let (found, with, without) = compare(requests, &expression);
        assert_eq!(found, None, "{expression}");
        assert!(with.steps * 5 < without.steps && with.cost * 5 < without.cost, "{expression}: {with:?}, {without:?}");
    }
}

#[test]
fn of_32_devices_of_two_kinds_8_are_looked_for_in_few_steps() {
    for expression in [format!("{SUM} == 25"), format!("{CAPACITY} % 2 == 1")] {
        let (found, effort) = search(&devices(32), &[8], &expression);
        assert_eq!(found, None, "{expression}");
        assert!(effort.steps < 400, "{expression}: {effort:?}");
    }
}

#[test]
fn a_set_that_is_there_is_the_same_set() {
    for (requests, expression) in [
        (&[5][..], format!("{LIGHT} % 4 == 0 && {LIGHT} > 0")),
        (&[5], format!("{SUM} == 23")),
        (&[2, 2], format!("{LIGHT} == 1 && {SUM} == 18")),
    ] {
        assert_ne!(compare(requests, &expression).0, None, "{expression}");
    }
}

/// The overflow of a sum depends on the order of adding, and with several requests devices change their places.
#[test]
fn sums_over_several_requests_are_tried_with_every_device() {
    let (found, with, without) = compare(&[2, 2], &format!("{SUM} % 2 == 1"));
    assert_eq!((found, with.steps), (None, without.steps));
}
