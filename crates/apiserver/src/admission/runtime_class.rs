//! `RuntimeClass`: a pod that names a class runs as the class says: with its overhead, where it can be run.

use std::sync::Arc;

use api::Quantity;
use api::go_text::quote;
use api::json::{Object, Value};

use crate::http::status::{Failure, Result};
use crate::resources;
use crate::server::Server;

/// Writes into a new pod what its class says.
///
/// # Errors
/// 403 if there is no such class, or the pod contradicts it.
pub(super) fn mutate(server: &Arc<Server>, pod: &mut Value) -> Result<()> {
    let Some(class) = class_of(server, pod)? else { return Ok(()) };
    if let Some(overhead) = class.at(&["overhead", "podFixed"]).and_then(Value::as_object).filter(|it| !it.is_empty()) {
        let own = pod.at(&["spec", "overhead"]).and_then(Value::as_object).filter(|it| !it.is_empty());
        if own.is_some_and(|own| !same_amounts(own, overhead)) {
            return refuse(pod, MISMATCH);
        }
        let overhead = overhead.clone();
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("overhead", overhead);
        }
    }
    let Some(scheduling) = class.get("scheduling").filter(|it| !it.is_null()) else { return Ok(()) };
    let mut selector = pod.at(&["spec", "nodeSelector"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let wanted = scheduling.get("nodeSelector").and_then(Value::as_object);
    for (key, value) in wanted.into_iter().flat_map(Object::iter) {
        let value = value.as_str().unwrap_or_default();
        let own = selector.get(key).and_then(Value::as_str).unwrap_or(value);
        if own != value {
            let why = format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
            );
            return refuse(pod, &why);
        }
        selector.insert(key, value);
    }
    let list = |value: Option<&Value>| value.and_then(Value::as_array).map(<[Value]>::to_vec).unwrap_or_default();
    let mut tolerations = list(pod.at(&["spec", "tolerations"]));
    tolerations.extend(list(scheduling.get("tolerations")));
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        if !selector.is_empty() {
            spec.insert("nodeSelector", selector);
        }
        if !tolerations.is_empty() {
            spec.insert("tolerations", merged(&tolerations));
        }
    }
    Ok(())
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Checks the overhead of a new pod.
///
/// # Errors
/// 403 if it is not that of its class.
pub(super) fn validate(server: &Arc<Server>, pod: &Value) -> Result<()> {
    let own = pod.at(&["spec", "overhead"]).and_then(Value::as_object).filter(|it| !it.is_empty());
    let class = class_of(server, pod)?;
    let wanted = class.as_ref().and_then(|class| class.at(&["overhead", "podFixed"])).and_then(Value::as_object);
    match (own, wanted.filter(|it| !it.is_empty())) {
        (None, None) => Ok(()),
        (Some(own), Some(wanted)) if same_amounts(own, wanted) => Ok(()),
        (Some(_), None) => {
            refuse(pod, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        }
        _ => refuse(pod, MISMATCH),
    }
}

fn refuse(pod: &Value, why: &str) -> Result<()> {
    Err(Failure::forbidden("", "pods", super::shown_name(pod), why))
}

/// The class that a pod names.
fn class_of(server: &Arc<Server>, pod: &Value) -> Result<Option<Value>> {
    let Some(name) = pod.str_at(&["spec", "runtimeClassName"]) else { return Ok(None) };
    let Some(row) = resources::find("node.k8s.io", "v1", "runtimeclasses") else { return Ok(None) };
    match server.cache.resource(&row.prefix()).get(&row.key("", name)) {
        Some(class) => Ok(Some(class.decode())),
        None => {
            refuse(pod, &format!("pod rejected: RuntimeClass {} not found", quote(name)))?;
            Ok(None)
        }
    }
}

/// Whether two lists of amounts are the same, however they are written.
fn same_amounts(left: &Object, right: &Object) -> bool {
    let amount = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
    left.len() == right.len()
        && left.iter().all(|(name, value)| match (amount(value), right.get(name).and_then(amount)) {
            (Some(left), Some(right)) => left == right,
            _ => false,
        })
}

/// Tolerations without those that another one includes.
fn merged(all: &[Value]) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::new();
    for (index, it) in all.iter().enumerate() {
        let later = all.iter().skip(index.saturating_add(1));
        let is_included = kept.iter().any(|other| includes(other, it))
            || later.into_iter().any(|other| other != it && includes(other, it));
        if !is_included {
            kept.push(it.clone());
        }
    }
    kept
}

/// Whether one toleration tolerates everything that another one does.
fn includes(more: &Value, less: &Value) -> bool {
    if more == less {
        return true;
    }
    let text = |it: &Value, field: &str| it.str_at(&[field]).unwrap_or_default().to_owned();
    let has_expression = |it: &Value| !text(it, "expression").is_empty();
    if has_expression(more) || has_expression(less) {
        return false;
    }
    let operator = text(more, "operator");
    if text(less, "key") != text(more, "key") && (!text(more, "key").is_empty() || operator != "Exists") {
        return false;
    }
    if text(less, "effect") != text(more, "effect") && !text(more, "effect").is_empty() {
        return false;
    }
    let seconds = |it: &Value| it.get("tolerationSeconds").and_then(Value::as_i64);
    if text(more, "effect") == "NoExecute"
        && let Some(limit) = seconds(more)
        && seconds(less).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match operator.as_str() {
        "Equal" | "" => text(less, "operator") == "Equal" && text(less, "value") == text(more, "value"),
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tolerations: &str, kept: &str) {
        let parse = |text: &str| api::json::parse(text.as_bytes()).unwrap();
        assert_eq!(Value::Array(merged(parse(tolerations).as_array().unwrap())), parse(kept));
    }

    #[test]
    fn tolerations_that_another_one_includes_are_left_out() {
        check(
            r#"[{"key":"a","operator":"Equal","value":"x"},{"key":"a","operator":"Exists"}]"#,
            r#"[{"key":"a","operator":"Exists"}]"#,
        );
        check(
            r#"[{"key":"a","operator":"Exists"},{"key":"a","operator":"Exists"}]"#,
            r#"[{"key":"a","operator":"Exists"}]"#,
        );
        // What an expression tolerates is not known.
        let both = r#"[{"operator":"Exists"},{"expression":"true"}]"#;
        check(both, both);
    }
}
