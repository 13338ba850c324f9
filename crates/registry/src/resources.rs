//! The table of resources: one row per kind.

use crate::strategy::{Resource, Strategy};
use crate::{apiextensions, apps, batch, coordination, core, resource, scheduling, storage};

const fn cluster(group: &'static str, version: &'static str, kind: &'static str, strategy: Strategy) -> Resource {
    Resource { group, version, kind, is_namespaced: false, strategy }
}

const fn namespaced(group: &'static str, version: &'static str, kind: &'static str, strategy: Strategy) -> Resource {
    Resource { group, version, kind, is_namespaced: true, strategy }
}

/// All kinds whose meaning is known here.
pub static RESOURCES: &[Resource] = &[
    namespaced("", "v1", "ConfigMap", core::config::CONFIG_MAP),
    namespaced("", "v1", "Event", core::event::CORE),
    cluster("", "v1", "Namespace", core::namespace::STRATEGY),
    cluster("", "v1", "Node", core::node::STRATEGY),
    cluster("", "v1", "PersistentVolume", core::persistent_volume::STRATEGY),
    namespaced("", "v1", "PersistentVolumeClaim", core::persistent_volume_claim::STRATEGY),
    namespaced("", "v1", "Pod", core::pod::STRATEGY),
    namespaced("", "v1", "Secret", core::config::SECRET),
    cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", apiextensions::DEFINITION),
    namespaced("apps", "v1", "DaemonSet", apps::DAEMON_SET),
    namespaced("apps", "v1", "Deployment", apps::DEPLOYMENT),
    namespaced("apps", "v1", "ReplicaSet", apps::REPLICA_SET),
    namespaced("apps", "v1", "StatefulSet", apps::STATEFUL_SET),
    namespaced("batch", "v1", "CronJob", batch::CRON_JOB),
    namespaced("batch", "v1", "Job", batch::JOB),
    namespaced("coordination.k8s.io", "v1", "Lease", coordination::LEASE),
    namespaced("events.k8s.io", "v1", "Event", core::event::EVENTS),
    cluster("resource.k8s.io", "v1", "DeviceClass", resource::DEVICE_CLASS),
    namespaced("resource.k8s.io", "v1", "ResourceClaim", resource::CLAIM),
    namespaced("resource.k8s.io", "v1", "ResourceClaimTemplate", resource::CLAIM_TEMPLATE),
    cluster("resource.k8s.io", "v1", "ResourceSlice", resource::RESOURCE_SLICE),
    cluster("scheduling.k8s.io", "v1", "PriorityClass", scheduling::PRIORITY_CLASS),
    cluster("storage.k8s.io", "v1", "StorageClass", storage::STORAGE_CLASS),
];

/// The row of a kind.
#[must_use]
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|it| it.kind == kind && it.group == group && it.version == version)
}

/// The row of objects with this `apiVersion` and `kind`.
#[must_use]
pub fn find_by_api_version(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    find(group, version, kind)
}
