//! `APIService` objects: which group and version this server serves itself, and in which order clients see them.
//!
//! The priorities are Kubernetes' (`controlplane/apiserver/aggregator.go`).

use api::json::Value;

use crate::clock;
use crate::resources::RuntimeConfig;

/// Groups by priority; of two with the same one, the versions decide.
const GROUPS: &[(&str, i64)] = &[
    ("", 18_000),
    ("apps", 17_800),
    ("events.k8s.io", 17_750),
    ("authentication.k8s.io", 17_700),
    ("authorization.k8s.io", 17_600),
    ("autoscaling", 17_500),
    ("batch", 17_400),
    ("certificates.k8s.io", 17_300),
    ("networking.k8s.io", 17_200),
    ("policy", 17_100),
    ("rbac.authorization.k8s.io", 17_000),
    ("storage.k8s.io", 16_800),
    ("apiextensions.k8s.io", 16_700),
    ("admissionregistration.k8s.io", 16_700),
    ("scheduling.k8s.io", 16_600),
    ("coordination.k8s.io", 16_500),
    ("node.k8s.io", 16_300),
    ("discovery.k8s.io", 16_200),
    ("resource.k8s.io", 16_200),
    ("flowcontrol.apiserver.k8s.io", 16_100),
    ("storagemigration.k8s.io", 15_800),
];

/// The priority of a version among those of its group.
fn version_priority(group: &str, version: &str) -> i64 {
    match (group, version) {
        ("", _) => 1,
        ("autoscaling", "v2") => 30,
        ("resource.k8s.io" | "flowcontrol.apiserver.k8s.io", "v1") => 21,
        (_, "v1" | "v1beta2") => 15,
        (_, it) if it.contains("beta") => 9,
        _ => 1,
    }
}

/// The objects of everything that is served here; the group of these objects is served by whom it describes.
pub(super) fn all(config: &RuntimeConfig) -> Vec<Value> {
    let groups = config.groups().filter(|(group, _)| *group != "apiregistration.k8s.io");
    groups.flat_map(|(group, versions)| versions.into_iter().map(move |version| one(group, version))).collect()
}

fn one(group: &str, version: &str) -> Value {
    let priority = GROUPS.iter().find(|(it, _)| *it == group).map_or(1000, |(_, priority)| *priority);
    let name = format!("{version}.{group}");
    let mut spec = api::json!({
        "version": version, "groupPriorityMinimum": priority, "versionPriority": (version_priority(group, version))
    });
    if let Some(spec) = spec.as_object_mut().filter(|_| !group.is_empty()) {
        spec.insert("group", group);
    }
    let condition = api::json!({
        "type": "Available", "status": "True", "lastTransitionTime": (clock::now().to_string()),
        "reason": "Local", "message": "Local APIServices are always available"
    });
    api::json!({
        "metadata": {"name": name, "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"}},
        "spec": spec, "status": {"conditions": [condition]}
    })
}
