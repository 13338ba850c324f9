//! Statuses and events in the form of the recordings: without times, names and addresses of the machine.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

fn mask(text: &str) -> String {
    static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let masks = [
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
            (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<uid>"),
            (r"sha256:[0-9a-f]{64}", "sha256:<digest>"),
            (r"\b[0-9a-f]{64}\b", "<id>"),
            (r"\b127\.1\.\d+\.\d+\b", "<podIP>"),
            (r"\b127\.0\.0\.1\b", "<nodeIP>"),
            (r"in [0-9.]+m?s \([0-9.]+m?s including", "in <dur> (<dur> including"),
            (r"used: \d+, capacity: \d+", "used: <n>, capacity: <n>"),
            (r"below current usage \(\d+\)", "below current usage (<n>)"),
            (r"kube-api-access-[a-z0-9]{5}", "kube-api-access-<5>"),
            (r"[^ ]*/volumes/kubernetes.io~empty-dir/", "<path>/"),
        ];
        masks.into_iter().map(|(pattern, by)| (Regex::new(pattern).unwrap(), by)).collect()
    });
    MASKS.iter().fold(text.to_owned(), |text, (pattern, by)| pattern.replace_all(&text, *by).into_owned())
}

/// A text as the recordings have it.
pub(super) fn masked_text(text: &str, namespace: &str, directory: &str) -> String {
    mask(&text.replace(&format!("{directory}/mnt"), "/mnt").replace(namespace, "<ns>"))
}

/// A recorded status as it is compared. Amounts of whole pods depend on the cgroups of the machine that recorded them.
pub(super) fn expected_status(status: &Value) -> Value {
    let mut status: Value = serde_json::from_str(&mask(&status.to_string())).unwrap();
    if let Some(status) = status.as_object_mut() {
        status.remove("resources");
    }
    // Whether a finalizer is removed before or after the deletion of its pod is a race.
    if let Some(metadata) = status.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("finalizers");
    }
    status
}

/// The status of a pod as the recordings have it.
pub(super) fn masked_status(pod: &Value) -> Value {
    let mut status = pod["status"].clone();
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let fields = status.as_object_mut().unwrap();
    fields.remove("resources");
    let kept = ["generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let kept = kept.into_iter().filter_map(|it| Some((it.to_owned(), metadata.get(it)?.clone())));
    fields.insert("metadata".to_owned(), Value::Object(kept.collect()));
    if let Some(node) = spec.get("nodeName") {
        fields.insert("nodeName".to_owned(), node.clone());
    }
    for field in ["podIPs", "hostIPs"] {
        if let Some(list) = fields.get(field).and_then(Value::as_array) {
            let plain: Vec<Value> = list.iter().map(|it| it["ip"].clone()).collect();
            fields.insert(field.to_owned(), plain.into());
        }
    }
    let conditions = fields.entry("conditions").or_insert_with(|| json!([]));
    for condition in conditions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        condition.remove("lastProbeTime");
        condition.remove("lastTransitionTime");
    }
    let namespace = metadata["namespace"].as_str().unwrap();
    serde_json::from_str(&mask(&status.to_string().replace(namespace, "<ns>"))).unwrap()
}

/// Phases in order, with the deletion.
pub(super) fn phases(statuses: &[Value], is_deleted: bool) -> Vec<String> {
    let mut phases: Vec<String> =
        statuses.iter().map(|it| it["phase"].as_str().unwrap_or_default().to_owned()).collect();
    if is_deleted {
        phases.push("deleted".to_owned());
    }
    phases.dedup();
    phases
}

/// Events of the agent: type, reason, object and message, each once, by pod. The ends of containers are reported at
/// the same time, in any order.
pub(super) fn ordered(events: impl Iterator<Item = [String; 4]>) -> Vec<[String; 4]> {
    let mut all: Vec<[String; 4]> = Vec::new();
    for event in events {
        if !all.contains(&event) {
            all.push(event);
        }
    }
    let pod = |event: &[String; 4]| event[2].split(' ').next().unwrap().to_owned();
    all.sort_by_key(pod);
    for group in all.chunk_by_mut(|a, b| a[1] == "Killing" && b[1] == "Killing") {
        group.sort();
    }
    all
}

/// The differences between two documents, with paths.
pub(super) fn differences(expected: &Value, actual: &Value, path: &str, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let part = |of: &serde_json::Map<String, Value>| of.get(name).cloned().unwrap_or(Value::Null);
                differences(&part(a), &part(b), &format!("{path}.{name}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}[{index}]"), found);
            }
        }
        _ if expected == actual => {}
        _ => found.push(format!("{path}: expected {expected}, got {actual}")),
    }
}
