//! Evaluating the predicates that placement runs most takes no memory.

use cel::program::Verdict;
use cel_kubernetes::environments::node_affinity::{Labels, Node};
use cel_kubernetes::environments::toleration::Taint;
use cel_kubernetes::environments::{Dialect, node_affinity, toleration};

/// How often the allocator is asked by the second evaluation: the first may build a regular expression.
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
