//! Labels, fields and attributes that an expression can depend on.

use super::{Keys, Reads};
use crate::environments::{Dialect, device, devices, node_affinity, toleration};

#[track_caller]
fn label_keys(expression: &str) -> Vec<String> {
    let environment = node_affinity::environment(Dialect::CELPLANE).unwrap();
    let compiled = environment.compile(expression).unwrap();
    match Reads::of(compiled.typed()).keys_of(&["node", "labels"]) {
        Keys::Some(keys) => keys.into_iter().map(str::to_owned).collect(),
        Keys::All => vec!["*".to_owned()],
    }
}

#[track_caller]
fn taint_fields(expression: &str) -> Vec<String> {
    let compiled = toleration::environment(Dialect::CELPLANE).unwrap().compile(expression).unwrap();
    match Reads::of(compiled.typed()).keys_of(&["taint"]) {
        Keys::Some(keys) => keys.into_iter().map(str::to_owned).collect(),
        Keys::All => vec!["*".to_owned()],
    }
}

#[test]
fn named_keys_are_reported() {
    assert_eq!(label_keys("node.labels['zone'] == 'a' || has(node.labels.rack)"), ["rack", "zone"]);
    assert_eq!(label_keys("'gpu' in node.labels && node.labels[?'arch'].orValue('') != 'arm'"), ["arch", "gpu"]);
    assert_eq!(label_keys("node.labels.?tier.hasValue()"), ["tier"]);
    assert!(label_keys("1 < 2").is_empty());
}

#[test]
fn undecided_reads_are_everything() {
    assert_eq!(label_keys("node.labels.exists(k, k.startsWith('gpu.') && node.labels[k] == 'true')"), ["*"]);
    assert_eq!(label_keys("size(node.labels) > 3"), ["*"]);
    assert_eq!(label_keys("node.labels['a' + 'b'] == 'c'"), ["*"]);
    assert_eq!(label_keys("dyn(node) == dyn(node)"), ["*"]);
}

#[test]
fn computed_key_reads_its_inputs() {
    assert_eq!(label_keys("{'a': 1}[node.labels['x']] == 1"), ["x"]);
}

#[test]
fn taint_fields_are_reported() {
    assert_eq!(taint_fields("taint.key.startsWith('a') && taint.effect == 'NoExecute'"), ["effect", "key"]);
    assert_eq!(taint_fields("has(taint.timeAdded)"), ["timeAdded"]);
    assert_eq!(taint_fields("[taint].all(t, t.key == 'a')"), ["*"]);
}

#[test]
fn device_attributes_are_reported_by_domain_and_name() {
    let expression = "device.attributes['gpu.example.com'].model == 'a100' && device.driver == 'gpu.example.com'";
    let compiled = device::environment(Dialect::CELPLANE).unwrap().compile(expression).unwrap();
    let reads = Reads::of(compiled.typed());
    let paths: Vec<String> = reads.paths().map(|path| path.join("/")).collect();
    assert_eq!(paths, ["device/attributes/gpu.example.com/model", "device/driver"]);
}

#[track_caller]
fn device_paths(expression: &str, expected: &[&str]) {
    let compiled = devices::environment(Dialect::CELPLANE).unwrap().compile(expression).unwrap();
    let reads = Reads::of(compiled.typed());
    let paths: Vec<String> = reads.paths().map(|path| path.join("/")).collect();
    assert_eq!(paths, expected, "{expression}");
}

#[test]
fn comprehensions_over_lists_are_looked_through() {
    let id = "devices/[]/attributes/a/id";
    device_paths("devices.all(d, d.attributes['a'].id > 1)", &[id]);
    device_paths("devices.map(d, d.attributes['a'].id).max() > 1 && size(devices) == 2", &[id]);
    device_paths(
        "devices.all(d, devices.exists(e, d.attributes['a'].id < e.driver.size()))",
        &[id, "devices/[]/driver"],
    );
    device_paths("devices.filter(d, d.attributes['a'].id > 1).size() > 1", &[id]);
    device_paths("devices.filter(d, d.attributes['a'].id > 1).all(e, e.driver == 'a')", &[id, "devices/[]/driver"]);
    device_paths("devices[0].attributes['a'].id == 1", &[id]);
    device_paths("devices.exists_one(i, d, d.attributes['a'].id == i)", &[id]);
    device_paths("cel.bind(x, devices[0], x.driver == 'a')", &["devices/[]/driver"]);
    device_paths("cel.bind(l, devices.filter(d, d.driver == 'a'), l.size() > 1)", &["devices/[]/driver"]);
}

#[test]
fn elements_that_are_taken_as_they_are_are_read_as_a_whole() {
    device_paths("devices.all(d, devices.exists_one(e, e == d))", &["devices/[]"]);
    device_paths("devices.filter(d, d.driver == 'a') == devices", &["devices", "devices/[]", "devices/[]/driver"]);
    device_paths("devices.all(d, d.attributes.size() > 1)", &["devices/[]/attributes"]);
    device_paths("devices.map(d, d).size() > 1", &[]);
    device_paths("devices.map(d, [d]).size() > 1", &["devices/[]"]);
}
