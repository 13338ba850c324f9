//! Removal of parts of another cluster's objects before they are created here.

use std::collections::{BTreeSet, HashMap};

use api::json::{Object, Value};
use api::well_known::{ANNOTATION_CONFIG_MIRROR, TAINT_UNSCHEDULABLE};

use crate::nodes;

/// Set by servers; of no use to another one.
const OF_THE_SERVER: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"];

/// Returns the reason why an object is not loaded.
pub(super) fn harm(object: &Value, kind: &str) -> Option<&'static str> {
    if object.at(&["metadata", "deletionTimestamp"]).is_some() {
        return Some("that is being deleted");
    }
    if kind == "Job" {
        // Its pods are not loaded, so that it would run again.
        let conditions = object.list_at(&["status", "conditions"]);
        let is_end = |it: &Value| matches!(it.text("type"), "Complete" | "Failed") && it.text("status") == "True";
        return conditions.iter().any(is_end).then_some("that has ended");
    }
    if kind != "Pod" {
        return None;
    }
    if object.at(&["metadata", "annotations", ANNOTATION_CONFIG_MIRROR]).is_some() {
        return Some("that a node made by itself");
    }
    matches!(object.str_at(&["status", "phase"]), Some("Succeeded" | "Failed")).then_some("that has ended")
}

/// Makes an object fit to be created; what was dropped of it that its owner might miss.
pub(super) fn clean(
    object: &mut Value,
    kind: &str,
    uids: &HashMap<String, String>,
    known: &BTreeSet<String>,
) -> Vec<String> {
    let mut dropped = Vec::new();
    let Some(fields) = object.as_object_mut() else { return dropped };
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in OF_THE_SERVER {
            metadata.remove(field);
        }
        if metadata.remove("finalizers").is_some() {
            dropped.push(format!("finalizers of a {kind}"));
        }
        if let Some(owners) = metadata.remove("ownerReferences") {
            let owners = owners.as_array().unwrap_or_default();
            let known: Vec<Value> = owners.iter().filter_map(|owner| renewed(owner, uids)).collect();
            if known.len() < owners.len() {
                dropped.push(format!("owner of a {kind} that is not in the dump"));
            }
            metadata.insert("ownerReferences", Value::Array(known));
        }
    }
    if let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) {
        match kind {
            "Pod" => pod(spec, known, &mut dropped),
            "Service" => ["clusterIP", "clusterIPs", "healthCheckNodePort"].iter().for_each(|field| {
                spec.remove(field);
            }),
            "Job" if spec.get("manualSelector") != Some(&Value::Bool(true)) => {
                // The server makes a selector from the new uid.
                spec.remove("selector");
                let labels =
                    spec.get_mut("template").and_then(|it| it.get_mut("metadata")).and_then(|it| it.get_mut("labels"));
                if let Some(labels) = labels.and_then(Value::as_object_mut) {
                    labels.retain(|label, _| !label.ends_with("controller-uid"));
                }
            }
            "PersistentVolume" => {
                if let Some(claim) = spec.get_mut("claimRef") {
                    renew_uids(claim, uids);
                }
            }
            "Node" => {
                if let Some(Value::Array(taints)) = spec.get_mut("taints") {
                    taints.retain(|taint| !is_of_lifecycle(taint));
                }
            }
            _ => {}
        }
    }
    match kind {
        "Node" => nodes::played(object),
        "Pod" => {
            let ran = object.str_at(&["status", "phase"]) == Some("Running");
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            if ran {
                annotate_loaded(object);
            }
        }
        "ResourceClaim" => {}
        _ => {
            fields.remove("status");
        }
    }
    dropped
}

/// The same owner under its new uid.
fn renewed(owner: &Value, uids: &HashMap<String, String>) -> Option<Value> {
    let uid = uids.get(owner.str_at(&["uid"])?)?;
    let mut owner = owner.clone();
    owner.as_object_mut()?.insert("uid", uid.as_str());
    Some(owner)
}

/// Replaces all uids that are known, however deep.
pub(super) fn renew_uids(value: &mut Value, uids: &HashMap<String, String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| renew_uids(item, uids)),
        Value::Object(fields) => {
            fields.remove("resourceVersion");
            for (name, value) in fields.iter_mut() {
                match value {
                    Value::String(uid) if name == "uid" => {
                        if let Some(new) = uids.get(uid.as_str()) {
                            *uid = new.as_str().into();
                        }
                    }
                    value => renew_uids(value, uids),
                }
            }
        }
        _ => {}
    }
}

fn pod(spec: &mut Object, known: &BTreeSet<String>, dropped: &mut Vec<String>) {
    // Admission computes both again from the class.
    spec.remove("priority");
    spec.remove("preemptionPolicy");
    let class = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default();
    if !class.is_empty() && !known.contains(&format!("class/{class}")) {
        dropped.push(format!("priority class {class} of a Pod, which is not in the dump"));
        spec.remove("priorityClassName");
    }
}

/// Marks a running pod: it continues to run here even if its restart policy implies that it ends.
fn annotate_loaded(pod: &mut Value) {
    let metadata = pod.as_object_mut().map(|fields| fields.get_or_insert("metadata", Value::object));
    let annotations = metadata.and_then(Value::as_object_mut).map(|it| it.get_or_insert("annotations", Value::object));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.insert(kubelet::annotations::full("loaded"), "true");
    }
}

/// Set by the node lifecycle controller, which decides again.
fn is_of_lifecycle(taint: &Value) -> bool {
    let key = taint.text("key");
    key.starts_with("node.kubernetes.io/") && key != TAINT_UNSCHEDULABLE
}
