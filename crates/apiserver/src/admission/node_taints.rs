//! `TaintNodesByCondition`: a new node is not ready until its kubelet says so.

use api::json::Value;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Adds the taint.
pub(super) fn mutate(node: &mut Value) {
    let Some(fields) = node.as_object_mut() else { return };
    let spec = fields.get_or_insert("spec", Value::object);
    let Some(spec) = spec.as_object_mut() else { return };
    let Some(taints) = spec.get_or_insert("taints", || Value::Array(Vec::new())).as_array_mut() else { return };
    let is_there =
        |taint: &Value| taint.str_at(&["key"]) == Some(NOT_READY) && taint.str_at(&["effect"]) == Some("NoSchedule");
    if !taints.iter().any(is_there) {
        taints.push(api::json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}
