//! Conversion between the stored version of objects and the version of a client.
//!
//! Most resources have one version. Events have two groups with different names for the same fields; the older
//! versions of `resource.k8s.io` nest requests and devices differently; autoscaling v1 has only one metric.

mod metrics;

use api::json::{Object, Value};

use self::metrics::Side;
use crate::resources::Resource;

/// The `apiVersion` that objects of a resource are stored with.
#[must_use]
pub fn stored_api_version(resource: &Resource<'_>) -> String {
    if is_new_event(resource) { "v1".to_owned() } else { resource.api_version(resource.storage_version()) }
}

/// Whether a version is the stored one.
#[must_use]
pub fn is_stored(resource: &Resource<'_>, version: &str) -> bool {
    // Custom resources are converted where their objects are read and written.
    resource.custom.is_some() || version == resource.storage_version() && !is_new_event(resource)
}

fn is_new_event(resource: &Resource<'_>) -> bool {
    resource.group == "events.k8s.io"
}

/// Turns an object of `version` into one of the stored version.
pub fn to_stored(resource: &Resource<'_>, version: &str, object: &mut Value) {
    if is_stored(resource, version) {
        return;
    }
    set_api_version(object, &stored_api_version(resource));
    match (resource.group, version, resource.kind) {
        ("events.k8s.io", ..) => rename(object, &EVENT_FIELDS.map(|(core, new)| (new, core))),
        ("resource.k8s.io", "v1beta1", "ResourceClaim") => requests(object.get_mut("spec"), nest_request),
        ("resource.k8s.io", "v1beta1", "ResourceClaimTemplate") => {
            requests(object.get_mut("spec").and_then(|spec| spec.get_mut("spec")), nest_request);
        }
        ("resource.k8s.io", "v1beta1", "ResourceSlice") => devices(object, flatten_device),
        ("autoscaling", "v1", _) => autoscaler_to_stored(object),
        _ => {}
    }
}

/// Turns a stored object into one of `version`.
pub fn from_stored(resource: &Resource<'_>, version: &str, object: &mut Value) {
    if is_stored(resource, version) {
        return;
    }
    set_api_version(object, &resource.api_version(version));
    match (resource.group, version, resource.kind) {
        ("events.k8s.io", ..) => rename(object, &EVENT_FIELDS),
        ("resource.k8s.io", "v1beta1", "ResourceClaim") => requests(object.get_mut("spec"), flatten_request),
        ("resource.k8s.io", "v1beta1", "ResourceClaimTemplate") => {
            requests(object.get_mut("spec").and_then(|spec| spec.get_mut("spec")), flatten_request);
        }
        ("resource.k8s.io", "v1beta1", "ResourceSlice") => devices(object, nest_device),
        ("autoscaling", "v1", _) => autoscaler_from_stored(object),
        _ => {}
    }
}

fn set_api_version(object: &mut Value, api_version: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion", api_version);
    }
}

/// Fields of events in core and in `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(object: &mut Value, names: &[(&str, &str)]) {
    let Some(fields) = object.as_object_mut() else { return };
    let renamed = std::mem::take(fields).into_iter().map(|(key, value)| {
        let new = names.iter().find(|(old, _)| key == *old).map(|(_, new)| *new);
        (new.map_or(key, Into::into), value)
    });
    *fields = renamed.collect();
}

fn requests(spec: Option<&mut Value>, change: fn(Object) -> Object) {
    let requests = spec.and_then(|spec| spec.get_mut("devices")).and_then(|devices| devices.get_mut("requests"));
    for request in requests.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(fields) = request {
            *fields = change(std::mem::take(fields));
        }
    }
}

/// v1beta1 has the fields of `exactly` in the request itself.
fn flatten_request(request: Object) -> Object {
    let mut flat = Object::new();
    for (key, value) in request {
        match (key.as_str(), value) {
            ("exactly", Value::Object(fields)) => {
                for (key, value) in fields {
                    flat.insert(key, value);
                }
            }
            (_, value) => {
                flat.insert(key, value);
            }
        }
    }
    flat
}

fn nest_request(request: Object) -> Object {
    let (mut nested, mut exactly) = (Object::new(), Object::new());
    for (key, value) in request {
        match key.as_str() {
            "name" | "firstAvailable" => nested.insert(key, value),
            _ => exactly.insert(key, value),
        };
    }
    // A request without a class chooses among subrequests; Go then writes no `exactly`.
    let is_set = exactly.values().any(|value| !matches!(value, Value::String(text) if text.is_empty()));
    if is_set {
        nested.insert("exactly", exactly);
    }
    nested
}

fn devices(object: &mut Value, change: fn(Object) -> Object) {
    let devices = object.get_mut("spec").and_then(|spec| spec.get_mut("devices"));
    for device in devices.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Object(fields) = device {
            *fields = change(std::mem::take(fields));
        }
    }
}

/// v1beta1 has everything but the name of a device in `basic`.
fn nest_device(device: Object) -> Object {
    let (mut nested, mut basic) = (Object::new(), Object::new());
    for (key, value) in device {
        if key == "name" {
            nested.insert(key, value);
        } else {
            basic.insert(key, value);
        }
    }
    nested.insert("basic", basic);
    nested
}

fn flatten_device(device: Object) -> Object {
    let mut flat = Object::new();
    for (key, value) in device {
        match (key.as_str(), value) {
            ("basic", Value::Object(fields)) => {
                for (key, value) in fields {
                    flat.insert(key, value);
                }
            }
            ("basic", _) => {}
            (_, value) => {
                flat.insert(key, value);
            }
        }
    }
    flat
}

const CPU_TARGET: &str = "targetCPUUtilizationPercentage";
const CPU_CURRENT: &str = "currentCPUUtilizationPercentage";

/// Autoscaling v1 has one metric, the average use of CPU, and keeps the others in annotations.
fn autoscaler_from_stored(object: &mut Value) {
    let is_cpu = |metric: &Value| {
        metric.str_at(&["type"]) == Some("Resource")
            && metric.str_at(&["resource", "name"]) == Some("cpu")
            && (metric.at(&["resource", "target", "averageUtilization"]).is_some()
                || metric.at(&["resource", "current", "averageUtilization"]).is_some())
    };
    let parts = [("spec", "metrics", "target", CPU_TARGET), ("status", "currentMetrics", "current", CPU_CURRENT)];
    let mut annotations = Object::new();
    for (part, list, side, flat) in parts {
        let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut) else { continue };
        let Some(Value::Array(metrics)) = fields.remove(list) else { continue };
        let (cpu, others): (Vec<Value>, Vec<Value>) = metrics.into_iter().partition(is_cpu);
        let cpu = cpu.first().and_then(|metric| metric.at(&["resource", side, "averageUtilization"]));
        if let Some(percent) = cpu {
            fields.insert(flat, percent.clone());
        }
        if !others.is_empty() {
            let name = if part == "spec" { "metrics" } else { "current-metrics" };
            let side = if part == "spec" { Side::Target } else { Side::Current };
            let others = others.iter().map(|metric| metrics::to_annotation(metric, side)).collect();
            let text = api::json::to_string(&Value::Array(others));
            annotations.insert(format!("autoscaling.alpha.kubernetes.io/{name}"), text);
        }
    }
    for (part, field, name) in [("status", "conditions", "conditions"), ("spec", "behavior", "behavior")] {
        let value = object.get_mut(part).and_then(Value::as_object_mut).and_then(|fields| fields.remove(field));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            annotations.insert(format!("autoscaling.alpha.kubernetes.io/{name}"), api::json::to_string(&value));
        }
    }
    if annotations.is_empty() {
        return;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let all = metadata.get_or_insert("annotations", Value::object);
        if let Some(all) = all.as_object_mut() {
            for (key, value) in annotations {
                all.insert(key, value);
            }
            all.sort();
        }
    }
}

fn autoscaler_to_stored(object: &mut Value) {
    let mut kept: Vec<(String, Value)> = Vec::new();
    if let Some(annotations) = object.get_mut("metadata").and_then(|it| it.get_mut("annotations")) {
        for name in ["metrics", "current-metrics", "conditions", "behavior"] {
            let key = format!("autoscaling.alpha.kubernetes.io/{name}");
            let text = annotations.as_object_mut().and_then(|fields| fields.remove(&key));
            let value = text.and_then(|text| api::json::parse(text.as_str()?.as_bytes()).ok());
            kept.extend(value.map(|value| (name.to_owned(), value)));
        }
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && metadata.get("annotations").and_then(Value::as_object).is_some_and(Object::is_empty)
    {
        metadata.remove("annotations");
    }
    let mut restored = |name: &str| {
        let at = kept.iter().position(|(it, _)| it == name)?;
        Some(kept.swap_remove(at).1)
    };
    let parts = [
        ("spec", "metrics", "metrics", "target", CPU_TARGET),
        ("status", "currentMetrics", "current-metrics", "current", CPU_CURRENT),
    ];
    for (part, list, name, side, flat) in parts {
        let mut metrics = match restored(name) {
            Some(Value::Array(metrics)) => {
                let side = if part == "spec" { Side::Target } else { Side::Current };
                metrics.iter().map(|metric| metrics::from_annotation(metric, side)).collect()
            }
            _ => Vec::new(),
        };
        let Some(fields) = object.get_mut(part).and_then(Value::as_object_mut) else { continue };
        if let Some(percent) = fields.remove(flat) {
            let mut target = Object::new();
            if side == "target" {
                target.insert("type", "Utilization");
            } else {
                target.insert("averageValue", "0");
            }
            target.insert("averageUtilization", percent);
            let mut resource = Object::new();
            resource.insert("name", "cpu");
            resource.insert(side, target);
            metrics.insert(0, api::json!({"type": "Resource", "resource": resource}));
        }
        if metrics.is_empty() && part == "spec" {
            metrics.push(crate::defaults::autoscaling::cpu_metric());
        }
        match (metrics.is_empty(), part) {
            (false, _) => drop(fields.insert(list, metrics)),
            // Go's encoder: a list that was never made is null, and v2 omits a count of zero that v1 writes.
            (true, "status") => {
                fields.insert(list, Value::Null);
                if fields.get("currentReplicas").and_then(Value::as_i64) == Some(0) {
                    fields.remove("currentReplicas");
                }
            }
            (true, _) => {}
        }
    }
    for (part, field) in [("status", "conditions"), ("spec", "behavior")] {
        let value = restored(field);
        if let (Some(value), Some(fields)) = (value, object.get_mut(part).and_then(Value::as_object_mut)) {
            fields.insert(field, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources;

    #[track_caller]
    fn round_trip(group: &str, version: &str, plural: &str, stored: Value, shown: &Value) {
        let resource = resources::find(group, version, plural).unwrap();
        let mut object = stored.clone();
        from_stored(resource, version, &mut object);
        assert_eq!(&object, shown);
        to_stored(resource, version, &mut object);
        assert_eq!(object, stored);
    }

    #[test]
    fn shapes_differ_and_nothing_is_lost() {
        round_trip(
            "events.k8s.io",
            "v1",
            "events",
            api::json!({"apiVersion": "v1", "involvedObject": {"name": "a"}, "message": "m", "count": 2, "reason": "R"}),
            &api::json!({"apiVersion": "events.k8s.io/v1", "regarding": {"name": "a"}, "note": "m", "deprecatedCount": 2, "reason": "R"}),
        );
        let request = api::json!({"name": "r", "exactly": {"deviceClassName": "c", "count": 1}});
        let flat = api::json!({"name": "r", "deviceClassName": "c", "count": 1});
        round_trip(
            "resource.k8s.io",
            "v1beta1",
            "resourceclaims",
            api::json!({"apiVersion": "resource.k8s.io/v1", "spec": {"devices": {"requests": [request]}}}),
            &api::json!({"apiVersion": "resource.k8s.io/v1beta1", "spec": {"devices": {"requests": [flat]}}}),
        );
        let device = api::json!({"name": "d", "attributes": {"a": {"int": 1}}});
        let nested = api::json!({"name": "d", "basic": {"attributes": {"a": {"int": 1}}}});
        round_trip(
            "resource.k8s.io",
            "v1beta1",
            "resourceslices",
            api::json!({"apiVersion": "resource.k8s.io/v1", "spec": {"devices": [device]}}),
            &api::json!({"apiVersion": "resource.k8s.io/v1beta1", "spec": {"devices": [nested]}}),
        );
        let metric = api::json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
        round_trip(
            "autoscaling",
            "v1",
            "horizontalpodautoscalers",
            api::json!({"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 3, "metrics": [metric]}}),
            &api::json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}}),
        );
    }
}
