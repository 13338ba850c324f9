//! `DefaultTolerationSeconds`: pods stay for five minutes on a node that is not ready or cannot be reached.

use api::json::Value;

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

/// Adds the tolerations that a pod does not have.
pub(super) fn mutate(pod: &mut Value) {
    let tolerations = pod.at(&["spec", "tolerations"]).and_then(Value::as_array).unwrap_or_default();
    let missing: Vec<Value> = TAINTS
        .iter()
        .filter(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
        .map(|taint| {
            api::json!({"key": (*taint), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS})
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut)
        && let Some(list) = spec.get_or_insert("tolerations", || Value::Array(Vec::new())).as_array_mut()
    {
        list.extend(missing);
    }
}

/// Whether a toleration is about a taint. One with an expression is its own kind and never tolerates everything.
fn tolerates(toleration: &Value, taint: &str) -> bool {
    let text = |field: &str| toleration.str_at(&[field]).unwrap_or_default();
    if !text("expression").is_empty() {
        return false;
    }
    let effect = matches!(text("effect"), "" | "NoExecute");
    effect && (text("key") == taint || text("key").is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tolerations: Value, added: usize) {
        let before = tolerations.as_array().map_or(0, <[Value]>::len);
        let mut pod = api::json!({"spec": {"tolerations": tolerations}});
        mutate(&mut pod);
        let list = pod.at(&["spec", "tolerations"]).and_then(Value::as_array).unwrap();
        assert_eq!(list.len(), before.saturating_add(added));
    }

    #[test]
    fn only_what_is_missing_is_added() {
        check(api::json!([]), 2);
        check(api::json!([{"operator": "Exists"}]), 0);
        check(api::json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]), 1);
        check(api::json!([{"operator": "Exists", "effect": "NoSchedule"}]), 2);
    }

    #[test]
    fn an_expression_does_not_tolerate_everything() {
        check(api::json!([{"expression": "true"}]), 2);
    }
}
