//! Nodes.

use api::json::Value;
use api::time::Timestamp;

use super::Description::{Field, Text};
use super::{AGE, NAME, PLAIN, Printer, age, condition, name, or, text, wide};

pub(crate) const PRINTER: Printer = Printer {
    columns: &[
        NAME,
        text("Status", Text("The status of the node")),
        text("Roles", Text("The roles of the node")),
        AGE,
        text("Version", Field("io.k8s.api.core.v1.NodeSystemInfo", "kubeletVersion")),
        wide("Internal-IP", Field("io.k8s.api.core.v1.NodeStatus", "addresses")),
        wide("External-IP", Field("io.k8s.api.core.v1.NodeStatus", "addresses")),
        wide("OS-Image", Field("io.k8s.api.core.v1.NodeSystemInfo", "osImage")),
        wide("Kernel-Version", Field("io.k8s.api.core.v1.NodeSystemInfo", "kernelVersion")),
        wide("Container-Runtime", Field("io.k8s.api.core.v1.NodeSystemInfo", "containerRuntimeVersion")),
    ],
    cells,
    ..PLAIN
};

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match condition(node, "Ready") {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node.bool_at(&["spec", "unschedulable"]) == Some(true) {
        status.push_str(",SchedulingDisabled");
    }
    let info = |field: &str, other: &str| or(node, &["status", "nodeInfo", field], other);
    vec![
        name(node),
        status.into(),
        roles(node).into(),
        age(node, now),
        info("kubeletVersion", ""),
        address(node, "InternalIP").into(),
        address(node, "ExternalIP").into(),
        info("osImage", "<unknown>"),
        kernel(node).into(),
        info("containerRuntimeVersion", "<unknown>"),
    ]
}

fn kernel(node: &Value) -> String {
    let info = |field: &str| node.text_at(&["status", "nodeInfo", field]);
    match (info("kernelVersion"), info("architecture")) {
        ("", _) => "<unknown>".to_owned(),
        (kernel, "") => kernel.to_owned(),
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    }
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in node.object_at(&["metadata", "labels"]).into_iter().flat_map(|it| it.iter()) {
        if let Some(role) = key.strip_prefix("node-role.kubernetes.io/") {
            roles.extend(Some(role).filter(|role| !role.is_empty()));
        } else if key == "kubernetes.io/role" {
            roles.extend(value.as_str().filter(|role| !role.is_empty()));
        }
    }
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    let addresses = node.list_at(&["status", "addresses"]);
    let found = addresses.iter().find(|it| it.str_at(&["type"]) == Some(kind));
    found.and_then(|it| it.str_at(&["address"])).unwrap_or("<none>")
}
