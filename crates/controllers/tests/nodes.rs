//! Placement of daemon pods and eviction times: recorded results of Kubernetes' controllers.

use std::sync::Arc;
use std::time::Duration;

use api::apps::v1::DaemonSet;
use api::core::v1::{Node, Taint, Toleration};
use api::json::{Value, from_value};
use api::time::Timestamp;
use controllers::nodes::taint_eviction::plan::{Plan, Step, revise};
use controllers::workloads::daemonset::placement::Demand;
use matching::tolerations::{StayDuration, Tolerations};
use matching::{CompileCache, Features, taints};

fn cache() -> CompileCache {
    CompileCache::new(64.try_into().unwrap(), Arc::new(|| Duration::ZERO)).unwrap()
}

/// Runs `answer` for each case of a file and compares the results with the expected ones.
fn check(file: &str, answer: impl Fn(&Value, Features) -> Value) {
    let path = format!("{}/tests/data/{file}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let case = api::json::parse(line.as_bytes()).unwrap();
        let off = case.at(&["gates", "TaintTolerationComparisonOperators"]) == Some(&Value::Bool(false));
        let features = Features { comparison: !off, ..Features::default() };
        let (given, expected) = (answer(&case, features), case.get("expect").unwrap());
        if given != *expected {
            wrong.push(format!("{}: {given}, not {expected}", case.str_at(&["id"]).unwrap()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "{count} cases");
}

#[test]
fn daemon_pods_run_where_they_should() {
    let (cache, sets) = (cache(), taints::Sets::new());
    check("daemonset", |case, features| {
        let set: DaemonSet = from_value(case.get("daemonSet").unwrap()).unwrap();
        let node: Node = from_value(case.get("node").unwrap()).unwrap();
        let demand = Demand::new(&set.spec.template.spec, &cache, &features);
        let placement = demand.placement(&matching::Node::new(&node, &sets));
        api::json!({"shouldContinue": (placement.should_continue), "shouldRun": (placement.should_run)})
    });
}

fn list<T: serde::de::DeserializeOwned>(step: &Value, field: &str) -> Vec<T> {
    step.get(field).map(|it| from_value(it).unwrap()).unwrap_or_default()
}

#[test]
fn pods_are_evicted_when_they_should() {
    let cache = cache();
    check("taint_eviction", |case, features| {
        let mut plan: Option<Plan> = None;
        let mut answer = Value::Null;
        for step in case.get("steps").unwrap().as_array().unwrap() {
            let now = Timestamp { seconds: step.get("atSeconds").unwrap().as_i64().unwrap(), nanos: 0 };
            let taints: Vec<Taint> = list(step, "taints");
            let tolerations: Vec<Toleration> = list(step, "tolerations");
            let taints: Vec<Taint> = taints.into_iter().filter(taints::is_no_execute).collect();
            let stay = match taints.as_slice() {
                [] => StayDuration::Forever,
                taints => Tolerations::new(&tolerations, &cache, &features).stay(taints),
            };
            let next = revise(plan, stay, now);
            plan = match next {
                Step::Nothing => plan,
                Step::Cancel | Step::EvictNow { .. } => None,
                Step::Schedule { plan, .. } => Some(plan),
            };
            answer = match (next, plan) {
                (Step::EvictNow { .. }, _) => api::json!({"action": "evict", "afterSeconds": 0}),
                (_, None) => api::json!({"action": "never"}),
                (_, Some(plan)) => {
                    let after = plan.fires_at.seconds.saturating_sub(now.seconds);
                    api::json!({"action": "evict", "afterSeconds": after, "fireAtSeconds": (plan.fires_at.seconds)})
                }
            };
        }
        answer
    });
}
