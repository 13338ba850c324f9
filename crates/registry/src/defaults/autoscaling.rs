//! Defaults of autoscalers, in both of their versions.

use api::json;
use api::json::Value;

pub(super) fn apply(version: &str, autoscaler: &mut Value) {
    let spec = autoscaler.make("spec");
    spec.set_missing("minReplicas", 1_i64);
    if version == "v1" {
        // The metric depends on annotations; see [`crate::conversion`].
        return;
    }
    if spec.list("metrics").is_empty() {
        spec.set("metrics", vec![cpu_metric()]);
    }
    if spec.has("behavior") {
        let behavior = spec.make("behavior");
        let policy = |name: &str, value: i64| json!({"type": name, "value": value, "periodSeconds": 15_i64});
        let up = behavior.make("scaleUp");
        up.set_missing("stabilizationWindowSeconds", 0_i64);
        complete(up, vec![policy("Pods", 4), policy("Percent", 100)]);
        complete(behavior.make("scaleDown"), vec![policy("Percent", 100)]);
    }
}

/// Default metric.
pub(crate) fn cpu_metric() -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": 80_i64});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

fn complete(rules: &mut Value, policies: Vec<Value>) {
    rules.set_missing("selectPolicy", "Max");
    rules.set_missing("policies", policies);
}
