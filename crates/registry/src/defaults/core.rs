//! Defaults of the core group.

use api::json::{Object, Value};
use api::well_known::{DEFAULT_SCHEDULER, LABEL_METADATA_NAME};

use super::image;
use crate::core::config::merge_string_data;

pub(super) fn apply(name: &str, object: &mut Value) {
    match name {
        "Pod" => pod(object),
        "PodSpec" => pod_spec(object),
        "PodStatus" => same_first(object, "podIP", "podIPs", Some("ip")),
        "NodeSpec" => same_first(object, "podCIDR", "podCIDRs", None),
        "Container" | "EphemeralContainer" => container(object),
        "Volume" => volume(object),
        "Probe" => {
            for (name, value) in
                [("timeoutSeconds", 1_i64), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                object.set_default(name, value);
            }
        }
        "SecretVolumeSource" | "ConfigMapVolumeSource" | "DownwardAPIVolumeSource" | "ProjectedVolumeSource" => {
            object.set_missing("defaultMode", 0o644_i64);
        }
        "ServiceAccountTokenProjection" => object.set_missing("expirationSeconds", 3600_i64),
        "HostPathVolumeSource" => object.set_missing("type", ""),
        "HTTPGetAction" => {
            object.set_default("path", "/");
            object.set_default("scheme", "HTTP");
        }
        "GRPCAction" => object.set_missing("service", ""),
        "ObjectFieldSelector" => object.set_default("apiVersion", "v1"),
        "PersistentVolume" => {
            object.make("status").set_default("phase", "Pending");
            let spec = object.make("spec");
            spec.set_default("persistentVolumeReclaimPolicy", "Retain");
            spec.set_missing("volumeMode", "Filesystem");
        }
        "PersistentVolumeClaim" => object.make("status").set_default("phase", "Pending"),
        "PersistentVolumeClaimSpec" => object.set_missing("volumeMode", "Filesystem"),
        "Namespace" => {
            let name = object.map("metadata").get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            if !name.is_empty() {
                object.make("metadata").make("labels").set(LABEL_METADATA_NAME, name);
            }
        }
        "NamespaceStatus" => object.set_default("phase", "Active"),
        "NodeStatus" if !object.has("allocatable") && object.has("capacity") => {
            let capacity = object.field("capacity").clone();
            object.set("allocatable", capacity);
        }
        "Secret" => {
            object.set_default("type", "Opaque");
            merge_string_data(object);
        }
        "Service" => service(object),
        "EndpointPort" => object.set_default("protocol", "TCP"),
        "ReplicationController" => replication_controller(object),
        "LimitRangeItem" => limit_range_item(object),
        _ => {}
    }
}

fn container(container: &mut Value) {
    if container.text("imagePullPolicy").is_empty() {
        let is_latest = image::tag(container.text("image")) == Some("latest");
        container.set("imagePullPolicy", if is_latest { "Always" } else { "IfNotPresent" });
    }
    container.set_default("terminationMessagePath", "/dev/termination-log");
    container.set_default("terminationMessagePolicy", "File");
}

fn volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|fields| fields.iter().any(|(name, _)| name != "name"));
    if !has_source {
        volume.set("emptyDir", Value::object());
    }
    if let Some(source) = volume.get_mut("image") {
        let is_latest = image::tag(source.text("reference")) == Some("latest");
        source.set_default("pullPolicy", if is_latest { "Always" } else { "IfNotPresent" });
    }
}

fn pod(pod: &mut Value) {
    let spec = pod.make("spec");
    if spec.optional_int("terminationGracePeriodSeconds").is_some_and(|it| it < 0) {
        spec.set("terminationGracePeriodSeconds", 1_i64);
    }
    spec.set_missing("enableServiceLinks", true);
    let is_host_network = spec.flag("hostNetwork");
    for kind in ["containers", "initContainers"] {
        for container in spec.list_mut(kind) {
            default_requests(container.make("resources"));
            if is_host_network {
                for port in container.list_mut("ports") {
                    let number = port.int("containerPort");
                    if port.int("hostPort") == 0 && number != 0 {
                        port.set("hostPort", number);
                    }
                }
            }
        }
    }
}

/// Limits become default requests.
fn default_requests(resources: &mut Value) {
    let limits = resources.map("limits").clone();
    if limits.is_empty() {
        return;
    }
    let requests = resources.make("requests");
    for (name, limit) in limits {
        requests.set_missing(&name, limit);
    }
}

fn pod_spec(spec: &mut Value) {
    if spec.text("serviceAccountName").is_empty() {
        let account = spec.text("serviceAccount").to_owned();
        spec.set("serviceAccountName", account);
    }
    let account = spec.text("serviceAccountName").to_owned();
    if account.is_empty() {
        spec.unset("serviceAccountName");
        spec.unset("serviceAccount");
    } else {
        spec.set("serviceAccount", account);
    }
    spec.set_default("dnsPolicy", "ClusterFirst");
    spec.set_default("restartPolicy", "Always");
    spec.set_missing("securityContext", Value::object());
    spec.set_missing("terminationGracePeriodSeconds", 30_i64);
    spec.set_default("schedulerName", DEFAULT_SCHEDULER);
}

/// The single field and the first item of the list are the same; the single one wins.
fn same_first(object: &mut Value, single: &str, list: &str, key: Option<&str>) {
    let text = object.text(single).to_owned();
    let first = object.list(list).first().map(|item| match key {
        Some(key) => item.text(key).to_owned(),
        None => item.as_str().unwrap_or_default().to_owned(),
    });
    match first {
        Some(first) if text.is_empty() => object.set(single, first),
        Some(first) if first == text => {}
        _ if text.is_empty() => {}
        _ => {
            let item = key
                .map_or_else(|| Value::from(&text), |key| Value::Object([(key, text.as_str())].into_iter().collect()));
            object.set(list, vec![item]);
        }
    }
}

fn replication_controller(controller: &mut Value) {
    let labels = controller.at(&["spec", "template", "metadata", "labels"]).cloned();
    if let Some(Value::Object(labels)) = labels {
        let spec = controller.make("spec");
        if spec.map("selector").is_empty() {
            spec.set("selector", labels.clone());
        }
        let metadata = controller.make("metadata");
        if metadata.map("labels").is_empty() {
            metadata.set("labels", labels);
        }
    }
}

fn service(service: &mut Value) {
    let spec = service.make("spec");
    spec.set_default("sessionAffinity", "None");
    if spec.text("sessionAffinity") == "None" {
        spec.unset("sessionAffinityConfig");
    } else if spec.text("sessionAffinity") == "ClientIP" {
        let has_timeout = spec.at(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]).is_some();
        if !has_timeout {
            spec.set("sessionAffinityConfig", api::json!({"clientIP": {"timeoutSeconds": 10800}}));
        }
    }
    spec.set_default("type", "ClusterIP");
    for port in spec.list_mut("ports") {
        port.set_default("protocol", "TCP");
        let number = port.int("port");
        port.set_default("targetPort", number);
    }
    let is_external = matches!(spec.text("type"), "LoadBalancer" | "NodePort")
        || (spec.text("type") == "ClusterIP" && !spec.list("externalIPs").is_empty());
    if is_external {
        spec.set_default("externalTrafficPolicy", "Cluster");
    }
    if matches!(spec.text("type"), "LoadBalancer" | "NodePort" | "ClusterIP") {
        spec.set_missing("internalTrafficPolicy", "Cluster");
    }
    if spec.text("type") == "LoadBalancer" {
        spec.set_missing("allocateLoadBalancerNodePorts", true);
        for ingress in service.make("status").make("loadBalancer").list_mut("ingress") {
            if !ingress.text("ip").is_empty() {
                ingress.set_missing("ipMode", "VIP");
            }
        }
    }
}

fn limit_range_item(item: &mut Value) {
    if item.text("type") != "Container" {
        return;
    }
    let fill = |item: &mut Value, from: &str, to: &str| {
        let amounts: Object = item.map(from).clone();
        if !amounts.is_empty() {
            let target = item.make(to);
            for (name, amount) in amounts {
                target.set_missing(&name, amount);
            }
        }
    };
    fill(item, "max", "default");
    fill(item, "default", "defaultRequest");
    fill(item, "min", "defaultRequest");
}
