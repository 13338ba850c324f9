//! Preparation of a pod before validation: status, conditions, merged selectors, gated fields.
//!
//! Fields of upstream features that are alpha here are dropped as an API server drops them whose gates are off. Our own
//! features are not dropped but refused, in validation.

use std::cmp::Ordering;

use api::json::{Object, Value};
use api::well_known::CONDITION_POD_SCHEDULED;

use super::profiles;
use super::resources::aggregate;
use crate::core::resource_names::{is_huge_page, is_overcommit_allowed, is_pod_level};
use crate::document::same;
use crate::strategy::Context;

pub(super) fn create(pod: &mut Value, context: &Context<'_>) {
    pod.make("metadata").set("generation", 1_i64);
    pod.set("status", api::json!({"phase": "Pending"}));
    drop_disabled_fields(pod.make("spec"), None);
    if !pod.field("spec").list("schedulingGates").is_empty() {
        pod.make("status").set(
            "conditions",
            vec![api::json!({
                "type": CONDITION_POD_SCHEDULED,
                "status": "False",
                "lastTransitionTime": (context.now),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates"
            })],
        );
    }
    let labels = pod.field("metadata").map("labels").clone();
    merge_label_keys(pod.make("spec"), &labels);
    profiles::copy_annotations(pod);
    default_pod_resources(pod.make("spec"));
    let class = qos_class(pod.field("spec"));
    pod.make("status").set("qosClass", class);
}

pub(super) fn update(pod: &mut Value, old: &Value, _: &Context<'_>) {
    pod.set("status", old.field("status").clone());
    if !pod.field("spec").has("resources") && old.field("spec").has("resources") {
        let resources = old.field("spec").field("resources").clone();
        pod.make("spec").set("resources", resources);
    }
    drop_disabled_fields(pod.make("spec"), Some(old.field("spec")));
    count_generation(pod, old);
}

/// The generation counts changes of the spec.
pub(crate) fn count_generation(object: &mut Value, old: &Value) {
    if !same(object.field("spec"), old.field("spec")) {
        let generation = old.field("metadata").int("generation").saturating_add(1);
        object.make("metadata").set("generation", generation);
    }
}

pub(super) fn status(pod: &mut Value, old: &Value, _: &Context<'_>) {
    pod.set("spec", old.field("spec").clone());
    let owners = old.field("metadata").field("ownerReferences").clone();
    let metadata = pod.make("metadata");
    metadata.unset("deletionTimestamp");
    metadata.set("ownerReferences", owners);
    let old_status = old.field("status");
    let status = pod.make("status");
    status.set_default("qosClass", old_status.field("qosClass").clone());
    for name in [
        "resourceClaimStatuses",
        "extendedResourceClaimStatus",
        "nodeAllocatableResourceClaimStatuses",
        "observedGeneration",
    ] {
        if !status.has(name) && old_status.has(name) {
            status.set(name, old_status.field(name).clone());
        }
    }
    // Conditions without a generation keep the old one.
    let mut used = vec![false; old_status.list("conditions").len()];
    for condition in status.list_mut("conditions") {
        let kind = condition.text("type").to_owned();
        let previous =
            old_status.list("conditions").iter().zip(&mut used).find(|(it, used)| !**used && it.text("type") == kind);
        if let Some((previous, used)) = previous {
            *used = true;
            let generation = previous.int("observedGeneration");
            if condition.int("observedGeneration") == 0 && generation != 0 {
                condition.set("observedGeneration", generation);
            }
        }
    }
}

/// Only the ephemeral containers are taken over.
pub(super) fn ephemeral(pod: &mut Value, old: &Value, _: &Context<'_>) {
    let containers = pod.field("spec").field("ephemeralContainers").clone();
    reset_metadata(pod, old);
    pod.set("spec", old.field("spec").clone());
    pod.set("status", old.field("status").clone());
    pod.make("spec").set("ephemeralContainers", containers);
    drop_disabled_fields(pod.make("spec"), Some(old.field("spec")));
    count_generation(pod, old);
}

/// Only resources and resize policies are taken over.
pub(super) fn resize(pod: &mut Value, old: &Value, _: &Context<'_>) {
    let (spec, old_spec) = (pod.field("spec").clone(), old.field("spec"));
    let is_same_length = |kind: &str| spec.list(kind).len() == old_spec.list(kind).len();
    if is_same_length("containers") && is_same_length("initContainers") {
        let mut merged = old_spec.clone();
        merged.set("resources", spec.field("resources").clone());
        for kind in ["containers", "initContainers"] {
            let names =
                |spec: &Value| -> Vec<String> { spec.list(kind).iter().map(|it| it.text("name").to_owned()).collect() };
            if names(&spec) != names(old_spec) {
                // Renamed or reordered containers are refused later.
                merged.set(kind, spec.field(kind).clone());
                continue;
            }
            for (container, new) in merged.list_mut(kind).iter_mut().zip(spec.list(kind)) {
                for name in ["resources", "resizePolicy"] {
                    container.set(name, new.field(name).clone());
                }
            }
        }
        reset_metadata(pod, old);
        pod.set("spec", merged);
        pod.set("status", old.field("status").clone());
    }
    if !pod.field("spec").has("resources") && old_spec.has("resources") {
        pod.make("spec").set("resources", old_spec.field("resources").clone());
    }
    if pod.field("spec").has("resources") {
        default_pod_resources(pod.make("spec"));
    }
    drop_disabled_fields(pod.make("spec"), Some(old_spec));
    count_generation(pod, old);
}

/// Restores the parts of the metadata that a subresource update must not change.
pub(crate) fn reset_metadata(object: &mut Value, old: &Value) {
    let old = old.field("metadata");
    let metadata = object.make("metadata");
    for name in
        ["deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers", "ownerReferences"]
    {
        metadata.set(name, old.field(name).clone());
    }
}

/// Drops what belongs to upstream features that are off here and that the old spec does not use.
pub(crate) fn drop_disabled_fields(spec: &mut Value, old: Option<&Value>) {
    let null = Value::Null;
    let old = old.unwrap_or(&null);
    for name in ["schedulingGroup", "evictionResponders"] {
        if !old.has(name) {
            spec.unset(name);
        }
    }
    for volume in spec.list_mut("volumes") {
        if let Some(source) = volume.get_mut("emptyDir") {
            source.unset("mode");
        }
        for kind in ["secret", "configMap", "downwardAPI", "projected"] {
            if let Some(source) = volume.get_mut(kind) {
                drop_users(source);
            }
        }
    }
    for kind in ["containers", "initContainers", "ephemeralContainers"] {
        for container in spec.list_mut(kind) {
            for mount in container.list_mut("volumeMounts") {
                mount.unset("bindMountOptions");
            }
            if let Some(lifecycle) = container.get_mut("lifecycle") {
                let had_signal = lifecycle.has("stopSignal");
                lifecycle.unset("stopSignal");
                for name in ["postStart", "preStop"] {
                    drop_protocol(lifecycle.get_mut(name));
                }
                if had_signal && !lifecycle.has("postStart") && !lifecycle.has("preStop") {
                    container.unset("lifecycle");
                }
            }
            for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
                drop_protocol(container.get_mut(name));
            }
        }
    }
}

fn drop_protocol(handler: Option<&mut Value>) {
    let Some(handler) = handler else { return };
    if let Some(action) = handler.get_mut("httpGet") {
        action.unset("protocol");
    }
    if let Some(action) = handler.get_mut("grpc") {
        action.unset("mode");
    }
}

fn drop_users(source: &mut Value) {
    source.unset("defaultUser");
    for item in source.list_mut("items") {
        item.unset("user");
    }
    for source in source.list_mut("sources") {
        if let Some(fields) = source.as_object_mut() {
            for inner in fields.values_mut() {
                inner.unset("user");
                for item in inner.list_mut("items") {
                    item.unset("user");
                }
            }
        }
    }
}

/// `matchLabelKeys` take the pod's labels into the selectors.
fn merge_label_keys(spec: &mut Value, labels: &Object) {
    if let Some(affinity) = spec.get_mut("affinity") {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(affinity) = affinity.get_mut(kind) else { continue };
            for term in affinity.list_mut("preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = term.get_mut("podAffinityTerm") {
                    merge_into_selector(term, labels);
                }
            }
            for term in affinity.list_mut("requiredDuringSchedulingIgnoredDuringExecution") {
                merge_into_selector(term, labels);
            }
        }
    }
    for constraint in spec.list_mut("topologySpreadConstraints") {
        merge_into_selector(constraint, labels);
    }
}

fn merge_into_selector(term: &mut Value, labels: &Object) {
    if !term.has("labelSelector") {
        return;
    }
    let mut added = Vec::new();
    for (name, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term.texts(name) {
            if let Some(value) = labels.get(key).and_then(Value::as_str) {
                added.push(api::json!({"key": key, "operator": operator, "values": [value]}));
            }
        }
    }
    if !added.is_empty() {
        let selector = term.make("labelSelector");
        let mut all = selector.list("matchExpressions").to_vec();
        all.extend(added);
        selector.set("matchExpressions", all);
    }
}

/// Derives missing pod-level resources from the containers.
fn default_pod_resources(spec: &mut Value) {
    let resources = spec.field("resources");
    if resources.map("requests").is_empty() && resources.map("limits").is_empty() {
        return;
    }
    let (requests, limits) = (aggregate(spec, "requests"), aggregate(spec, "limits"));
    let mut resources = resources.clone();
    for (name, amount) in limits.iter().filter(|(name, _)| is_huge_page(name)) {
        if !resources.map("requests").contains_key(name) {
            resources.make("limits").set_missing(name, amount.to_string());
        }
    }
    for (name, amount) in requests.iter().filter(|(name, _)| is_pod_level(name) && is_overcommit_allowed(name)) {
        resources.make("requests").set_missing(name, amount.to_string());
    }
    let of_pod = resources.map("limits").clone();
    for (name, amount) in of_pod {
        if is_pod_level(&name) {
            resources.make("requests").set_missing(&name, amount);
        }
    }
    // A limit follows from the containers' if all of them have one.
    let containers = || spec.list("containers").iter().chain(spec.list("initContainers"));
    let requested = resources.map("requests").clone();
    for (name, request) in requested.iter().filter(|(name, _)| is_pod_level(name)) {
        let all_limited = containers().all(|it| it.field("resources").map("limits").contains_key(name));
        if resources.map("limits").contains_key(name) || !all_limited {
            continue;
        }
        let Some(sum) = limits.get(name) else { continue };
        let request = request.as_quantity();
        let limit = request.filter(|it| it.cmp(sum) == Ordering::Greater).unwrap_or_else(|| sum.clone());
        resources.make("limits").set(name, limit.to_string());
    }
    spec.set("resources", resources);
}

/// Quality-of-service class of a pod.
pub(crate) fn qos_class(spec: &Value) -> &'static str {
    let of_pod = spec.field("resources");
    if !of_pod.map("requests").is_empty() || !of_pod.map("limits").is_empty() {
        return class_of(of_pod);
    }
    let mut found: Option<&'static str> = None;
    for container in spec.list("initContainers").iter().chain(spec.list("containers")) {
        let class = class_of(container.field("resources"));
        match found {
            _ if class == "Burstable" => return class,
            Some(previous) if previous != class => return "Burstable",
            _ => found = Some(class),
        }
    }
    found.unwrap_or("BestEffort")
}

fn class_of(resources: &Value) -> &'static str {
    if resources.map("requests").is_empty() && resources.map("limits").is_empty() {
        return "BestEffort";
    }
    let class = |name: &str| {
        let amount = |kind: &str| resources.field(kind).quantity(name).filter(|it| !it.is_zero());
        match (amount("requests"), amount("limits")) {
            (None, None) => "BestEffort",
            (Some(request), Some(limit)) if request.cmp(&limit) == Ordering::Equal => "Guaranteed",
            _ => "Burstable",
        }
    };
    let (cpu, memory) = (class("cpu"), class("memory"));
    if cpu == memory { cpu } else { "Burstable" }
}
