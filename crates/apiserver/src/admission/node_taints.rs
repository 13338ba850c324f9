//! `TaintNodesByCondition`: a new node is not ready until its kubelet reports it.

use api::json::Value;
use api::well_known::{EFFECT_NO_SCHEDULE, TAINT_NOT_READY};

use super::{Attributes, Operation, Plugin, Verdict, done};

/// The plugin.
pub(super) struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_for("", "nodes")
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, node: &'a mut Value) -> Verdict<'a> {
        mutate(node);
        done(Ok(()))
    }
}

/// Adds the taint.
fn mutate(node: &mut Value) {
    let Some(fields) = node.as_object_mut() else { return };
    let spec = fields.get_or_insert("spec", Value::object);
    let Some(spec) = spec.as_object_mut() else { return };
    let Some(taints) = spec.get_or_insert("taints", || Value::Array(Vec::new())).as_array_mut() else { return };
    let is_there = |taint: &Value| {
        taint.str_at(&["key"]) == Some(TAINT_NOT_READY) && taint.str_at(&["effect"]) == Some(EFFECT_NO_SCHEDULE)
    };
    if !taints.iter().any(is_there) {
        taints.push(api::json!({"key": TAINT_NOT_READY, "effect": EFFECT_NO_SCHEDULE}));
    }
}
