//! Kubernetes' kubelet and ours admit the same pods, and reject others with the same reasons.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::{Value, from_value};
use kubelet::admission::{Judgment, admit};
use matching::{CompileCache, Features};

fn list<T: serde::de::DeserializeOwned>(case: &Value, field: &str) -> Vec<T> {
    case.get(field).map(|it| from_value(it).unwrap()).unwrap_or_default()
}

#[test]
fn golden_cases_agree() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/kubelet_admission.jsonl"));
    let cache = CompileCache::new(64.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in text.unwrap().lines() {
        let case = api::json::parse(line.as_bytes()).unwrap();
        let node: Node = from_value(case.get("node").unwrap()).unwrap();
        let pod: Pod = from_value(case.get("pod").unwrap()).unwrap();
        let others: Vec<Pod> = list(&case, "otherPods");
        let off = case.at(&["gates", "TaintTolerationComparisonOperators"]) == Some(&Value::Bool(false));
        let features = Features { comparison: !off, ..Features::default() };
        let answer = match admit(&pod, &node, others.iter(), &cache, &features) {
            Ok(()) => api::json!({"admit": true}),
            Err(why) => api::json!({"admit": false, "message": (why.message), "reason": (why.reason)}),
        };
        let expected = case.get("expect").unwrap();
        if answer != *expected {
            wrong.push(format!("{}: {answer}, not {expected}", case.str_at(&["id"]).unwrap()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} cases");
}

#[test]
fn judgment_names_expressions_without_an_answer() {
    let pod = api::json!({"metadata": {"name": "p"}, "spec": {
        "tolerations": [{"expression": "semver(taint.value).major() > 1"}],
        "containers": [{"name": "c", "image": "i"}],
    }});
    let node = api::json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "k", "value": "zzz", "effect": "NoExecute"}]}});
    let (pod, node) = (api::json::from_value(&pod).unwrap(), api::json::from_value(&node).unwrap());
    let cache = CompileCache::new(16.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap();
    let judgment = Judgment::new(&pod, &node, &cache, &Features::ALL);
    let messages: Vec<String> = judgment.complaints.iter().map(|it| it.message()).collect();
    let start = "expression \"semver(taint.value).major() > 1\" failed on node n for taint k=zzz:NoExecute: ";
    assert!(messages.len() == 1 && messages[0].starts_with(start), "{messages:?}");
}
