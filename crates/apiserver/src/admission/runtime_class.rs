//! `RuntimeClass`: applies the overhead and the node restrictions of a pod's class.

use std::sync::Arc;

use api::Quantity;
use api::core::v1::Toleration;
use api::go_text::quote;
use api::json::{Object, Value, from_value};
use matching::tolerations::not_included;

use super::{Attributes, Cluster, Operation, Plugin, Verdict, done};
use crate::resources;
use crate::wire::status::{Failure, Result};

/// The plugin.
pub(super) struct RuntimeClass(pub(super) Arc<dyn Cluster>);

impl Plugin for RuntimeClass {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create && attributes.is_for("", "pods")
    }

    fn mutate<'a>(&'a self, _: &'a Attributes<'a>, pod: &'a mut Value) -> Verdict<'a> {
        done(mutate(&*self.0, pod))
    }

    fn validate<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        done(attributes.object.map_or(Ok(()), |pod| validate(&*self.0, pod)))
    }
}

/// Applies the class to a new pod.
///
/// # Errors
/// 403 if there is no such class, or the pod contradicts it.
fn mutate(cluster: &dyn Cluster, pod: &mut Value) -> Result<()> {
    let Some(class) = class_of(cluster, pod)? else { return Ok(()) };
    if let Some(overhead) = class.object_at(&["overhead", "podFixed"]).filter(|it| !it.is_empty()) {
        let own = pod.object_at(&["spec", "overhead"]).filter(|it| !it.is_empty());
        if own.is_some_and(|own| !same_amounts(own, overhead)) {
            return refuse(pod, MISMATCH);
        }
        let overhead = overhead.clone();
        if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("overhead", overhead);
        }
    }
    let Some(scheduling) = class.get("scheduling").filter(|it| !it.is_null()) else { return Ok(()) };
    let mut selector = pod.object_at(&["spec", "nodeSelector"]).cloned().unwrap_or_default();
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
            spec.insert("tolerations", merged(tolerations));
        }
    }
    Ok(())
}

const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Checks the overhead of a new pod.
///
/// # Errors
/// 403 if it is not that of its class.
fn validate(cluster: &dyn Cluster, pod: &Value) -> Result<()> {
    let own = pod.object_at(&["spec", "overhead"]).filter(|it| !it.is_empty());
    let class = class_of(cluster, pod)?;
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
fn class_of(cluster: &dyn Cluster, pod: &Value) -> Result<Option<Value>> {
    let Some(name) = pod.str_at(&["spec", "runtimeClassName"]) else { return Ok(None) };
    let class = cluster.object(resources::RUNTIME_CLASSES, "", name);
    if class.is_none() {
        refuse(pod, &format!("pod rejected: RuntimeClass {} not found", quote(name)))?;
    }
    Ok(class)
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
fn merged(all: Vec<Value>) -> Vec<Value> {
    let Ok(tolerations) = all.iter().map(from_value::<Toleration>).collect::<std::result::Result<Vec<_>, _>>() else {
        return all;
    };
    let kept = not_included(&tolerations);
    all.into_iter().enumerate().filter(|(position, _)| kept.contains(position)).map(|(_, it)| it).collect()
}
