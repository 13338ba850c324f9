//! Kubernetes' kubelet and ours admit the same pods, and say the same about the others.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::{Value, from_value};
use kubelet::admission::admit;
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
