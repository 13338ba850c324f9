//! Evaluating the predicates that placement runs most takes no memory.

use cel::program::Verdict;
use cel::value::Value;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::Devices;
use cel_kubernetes::environments::node_affinity::{Labels, Node};
use cel_kubernetes::environments::toleration::Taint;
use cel_kubernetes::environments::{Dialect, devices, node_affinity, toleration};

/// Number of allocations of the second evaluation: the first one may build a regular expression.
fn allocations(mut evaluate: impl FnMut() -> Verdict, expected: Verdict) -> u64 {
    assert_eq!(evaluate(), expected);
    let mut verdict = Verdict::NONE;
    let counted = allocation_counter::measure(|| verdict = evaluate());
    assert_eq!(verdict, expected);
    counted.count_total
}

#[test]
fn predicates_about_taints_allocate_nothing() {
    let environment = toleration::environment(Dialect::KUBERNETES).unwrap();
    let taint = Taint { key: "env.example.com/staging", value: "v1.29.3", effect: "NoSchedule", time_added: None };
    for expression in [
        "taint.key.startsWith('env.example.com/')",
        "taint.key == 'dedicated' || taint.key == 'env.example.com/staging'",
        "taint.key in ['dedicated', 'env.example.com/staging'] && taint.effect != 'NoExecute'",
        r"taint.value.matches('^v[0-9]+\\.[0-9]+\\.[0-9]+$')",
        "taint.value.size() > 3 && taint.value.contains('.29.')",
    ] {
        let compiled = environment.compile(expression).unwrap();
        assert_eq!(allocations(|| compiled.eval(&taint).verdict(), Verdict::TRUE), 0, "{expression}");
    }
}

#[test]
fn predicates_about_labels_allocate_nothing() {
    let environment = node_affinity::environment(Dialect::KUBERNETES).unwrap();
    let pairs: Vec<(String, String)> = (0..33).map(|number| (format!("label-{number}"), "true".to_owned())).collect();
    let labels: Labels = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    for (expression, expected) in [
        ("node.labels.exists(k, k.startsWith('gpu.') && node.labels[k] == 'true')", Verdict::FALSE),
        ("node.labels.all(k, node.labels[k] == 'true')", Verdict::TRUE),
        ("'label-7' in node.labels && node.labels['label-7'] == 'true'", Verdict::TRUE),
        ("has(node.labels.zone) || node.labels.size() == 33", Verdict::TRUE),
    ] {
        let compiled = environment.compile(expression).unwrap();
        let count = allocations(|| compiled.eval(&Node { labels: &labels }).verdict(), expected);
        assert_eq!(count, 0, "{expression}");
    }
}

#[test]
fn constraints_over_sets_allocate_only_the_lists_that_they_make() {
    let environment = devices::environment(Dialect::CELPLANE).unwrap();
    let device = |id: i64| {
        let mut device = Device::new("a.example.com");
        device.set_attribute("a/id", Value::Int(id));
        device.set_attribute("a/root", Value::str("pcie-0"));
        device
    };
    let owned: Vec<Device> = (0..8).map(device).collect();
    let set: Vec<&Device> = owned.iter().collect();
    let set = Devices(&set);
    for (expression, count) in [
        ("devices.all(d, d.attributes['a'].root == devices[0].attributes['a'].root)", 0),
        ("devices.all(d, devices.exists_one(e, e.attributes['a'].id == d.attributes['a'].id))", 0),
        ("size(devices) == 8 && devices.exists(d, d.attributes['a'].id == 7)", 0),
        // The list that `map` makes, which grows once, and nothing for its elements.
        ("devices.map(d, d.attributes['a'].id).sum() == 28", 3),
        ("devices.map(d, d.attributes['a'].id).max() - devices.map(d, d.attributes['a'].id).min() == 7", 6),
    ] {
        let compiled = environment.compile(expression).unwrap();
        assert!(allocations(|| compiled.eval(&set).verdict(), Verdict::TRUE) <= count, "{expression}");
    }
}
