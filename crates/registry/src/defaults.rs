//! Defaults: what Kubernetes fills in when a field is left out, by the type of the struct it stands in.
//!
//! Go registers one function per type and calls them from the outside in; so does this walk over the table of types.
//! What depends on more than one object, or on admission, is left to preparation and to the server.

mod admission;
mod apps;
pub(crate) mod autoscaling;
mod core;
mod image;

use api::Quantity;
use api::json::{self, Value};
use api::types::{Field, Kind, Type};

/// Fills in the defaults of an object in normal form. `now` is the time as text, for fields that default to it.
pub fn apply(object_type: &'static Type, object: &mut Value, now: &str) {
    if object.as_object().is_none() {
        return;
    }
    let package = object_type.package.strip_prefix("k8s.io/api/").unwrap_or(object_type.package);
    match package {
        "core/v1" => core::apply(object_type.name, object),
        "apps/v1" | "batch/v1" => apps::apply(object_type.name, object),
        "admissionregistration/v1" => admission::apply(object_type.name, object),
        _ => others(package, object_type.name, object, now),
    }
    for field in object_type.fields.iter().filter(|_| object_type.has_defaults) {
        if let Some(text) = field.default.filter(|_| !object.has(field.name) || !field.pointer) {
            set_declared(object, field, text);
        }
    }
    let Some(fields) = object.as_object_mut() else { return };
    let mut next = 0;
    for (key, value) in fields.iter_mut() {
        let Some((index, field)) = object_type.find_from(next, key) else { continue };
        next = index.saturating_add(1);
        if matches!(field.kind, Kind::Struct(_) | Kind::List(_) | Kind::Map(_)) {
            descend(&field.kind, value, now, field.go_type.ends_with("ResourceList"));
        }
    }
}

/// Sets a default that the type declares.
fn set_declared(object: &mut Value, field: &Field, text: &str) {
    let is_set = match object.field(field.name) {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Int(number) => *number != 0,
        _ => true,
    };
    if is_set {
        return;
    }
    if let Ok(default) = json::parse(text.as_bytes()) {
        object.set(field.name, default);
    }
}

fn descend(kind: &'static Kind, value: &mut Value, now: &str, is_resource_list: bool) {
    match (kind, value) {
        (Kind::Struct(of), value) => apply(of, value, now),
        (Kind::List(inner), Value::Array(items)) if inner.struct_type().is_some() => {
            items.iter_mut().for_each(|item| descend(inner, item, now, false));
        }
        (Kind::Map(inner), Value::Object(fields)) if inner.struct_type().is_some() => {
            fields.values_mut().for_each(|value| descend(inner, value, now, false));
        }
        (Kind::Map(Kind::Quantity), Value::Object(fields)) if is_resource_list => {
            fields.values_mut().for_each(round_up_to_milli);
        }
        _ => {}
    }
}

/// Amounts of resources are kept in thousandths at most.
fn round_up_to_milli(value: &mut Value) {
    if value.as_str().is_some_and(Quantity::is_usual) {
        return;
    }
    let Some(mut quantity) = value.as_str().and_then(|text| Quantity::parse(text).ok()) else { return };
    if !quantity.round_up(-3) {
        *value = Value::from(quantity.to_string());
    }
}

fn others(package: &str, name: &str, object: &mut Value, now: &str) {
    match (package, name) {
        ("autoscaling/v1", "HorizontalPodAutoscaler") => autoscaling::apply("v1", object),
        ("autoscaling/v2", "HorizontalPodAutoscaler") => autoscaling::apply("v2", object),
        ("storage/v1", "StorageClass") => {
            object.set_missing("reclaimPolicy", "Delete");
            object.set_missing("volumeBindingMode", "Immediate");
        }
        ("storage/v1", "CSIDriverSpec") => {
            object.set_missing("attachRequired", true);
            for name in [
                "podInfoOnMount",
                "storageCapacity",
                "requiresRepublish",
                "seLinuxMount",
                "preventPodSchedulingIfMissing",
            ] {
                object.set_missing(name, false);
            }
            object.set_missing("fsGroupPolicy", "ReadWriteOnceWithFSType");
            object.set_default("volumeLifecycleModes", vec![Value::from("Persistent")]);
        }
        ("flowcontrol/v1", "FlowSchemaSpec") => object.set_default("matchingPrecedence", 1000_i64),
        ("flowcontrol/v1", "ExemptPriorityLevelConfiguration") => {
            object.set_missing("nominalConcurrencyShares", 0_i64);
            object.set_missing("lendablePercent", 0_i64);
        }
        ("flowcontrol/v1", "LimitedPriorityLevelConfiguration") => {
            object.set_missing("nominalConcurrencyShares", 30_i64);
            object.set_missing("lendablePercent", 0_i64);
        }
        ("flowcontrol/v1", "QueuingConfiguration") => {
            object.set_default("handSize", 8_i64);
            object.set_default("queues", 64_i64);
            object.set_default("queueLengthLimit", 50_i64);
        }
        ("scheduling/v1", "PriorityClass") => object.set_missing("preemptionPolicy", "PreemptLowerPriority"),
        ("rbac/v1", "ClusterRoleBinding" | "RoleBinding") => {
            object.make("roleRef").set_default("apiGroup", "rbac.authorization.k8s.io");
        }
        ("rbac/v1", "Subject") if matches!(object.text("kind"), "User" | "Group") => {
            object.set_default("apiGroup", "rbac.authorization.k8s.io");
        }
        ("networking/v1", "NetworkPolicyPort") => object.set_missing("protocol", "TCP"),
        ("networking/v1", "NetworkPolicySpec") if object.list("policyTypes").is_empty() => {
            let mut policy_types = vec![Value::from("Ingress")];
            if !object.list("egress").is_empty() {
                policy_types.push(Value::from("Egress"));
            }
            object.set("policyTypes", policy_types);
        }
        ("networking/v1", "IngressClassParametersReference") => object.set_missing("scope", "Cluster"),
        ("discovery/v1", "EndpointPort") => {
            object.set_missing("name", "");
            object.set_missing("protocol", "TCP");
        }
        ("resource/v1" | "resource/v1beta2", "ExactDeviceRequest") | (_, "DeviceSubRequest") => exact_count(object),
        ("resource/v1beta1", "DeviceRequest") if object.list("firstAvailable").is_empty() => exact_count(object),
        ("resource/v1" | "resource/v1beta1" | "resource/v1beta2" | "resource/v1alpha3", "DeviceTaint") => {
            object.set_missing("timeAdded", now);
        }
        ("k8s.io/kube-aggregator/pkg/apis/apiregistration/v1", "ServiceReference") => {
            object.set_missing("port", 443_i64)
        }
        ("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", name) => custom_resource_definition(name, object),
        _ => {}
    }
}

fn exact_count(request: &mut Value) {
    request.set_default("allocationMode", "ExactCount");
    if request.text("allocationMode") == "ExactCount" {
        request.set_default("count", 1_i64);
    }
}

fn custom_resource_definition(name: &str, object: &mut Value) {
    match name {
        "CustomResourceDefinition" => {
            let spec = object.make("spec");
            let kind = spec.map("names").get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
            let names = spec.make("names");
            names.set_default("singular", kind.to_lowercase());
            if !kind.is_empty() {
                names.set_default("listKind", format!("{kind}List"));
            }
            spec.set_missing("conversion", api::json!({"strategy": "None"}));
            let stored = spec.list("versions").iter().find(|version| version.flag("storage"));
            let stored = stored.map(|version| version.field("name").clone());
            let status = object.make("status");
            if let (true, Some(stored)) = (status.list("storedVersions").is_empty(), stored) {
                status.set("storedVersions", vec![stored]);
            }
        }
        "ServiceReference" => object.set_missing("port", 443_i64),
        _ => {}
    }
}
