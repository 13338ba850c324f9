//! Objects of a running cluster, as manifests: what the tools read from files, they read from a server as well.

use anyhow::Context as _;
use api::json::{self, Value};
use client::{Client, Resource};

use crate::gated_uses;
use crate::manifests::Manifests;

/// The name of a running cluster in reports.
pub(crate) const CLUSTER: &str = "<cluster>";

/// All resources that the scheduler reads.
pub(crate) const SCHEDULING: &[Resource] = &[
    Resource::new("", "v1", "namespaces", "Namespace"),
    Resource::new("", "v1", "nodes", "Node"),
    Resource::new("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass"),
    Resource::new("", "v1", "pods", "Pod"),
    Resource::new("", "v1", "persistentvolumes", "PersistentVolume"),
    Resource::new("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Resource::new("", "v1", "services", "Service"),
    Resource::new("", "v1", "replicationcontrollers", "ReplicationController"),
    Resource::new("apps", "v1", "replicasets", "ReplicaSet"),
    Resource::new("apps", "v1", "statefulsets", "StatefulSet"),
    Resource::new("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Resource::new("storage.k8s.io", "v1", "storageclasses", "StorageClass"),
    Resource::new("storage.k8s.io", "v1", "csinodes", "CSINode"),
    Resource::new("storage.k8s.io", "v1", "csidrivers", "CSIDriver"),
    Resource::new("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    Resource::new("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment"),
    Resource::new("resource.k8s.io", "v1", "deviceclasses", "DeviceClass"),
    Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Resource::new("resource.k8s.io", "v1", "resourceslices", "ResourceSlice"),
    Resource::new("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule"),
];

/// All resources that the scheduler reads, and the workloads of a kind.
pub(crate) fn around(kind: &str) -> Vec<Resource> {
    let mut resources = SCHEDULING.to_vec();
    let workloads = [
        Resource::new("apps", "v1", "deployments", "Deployment"),
        Resource::new("apps", "v1", "daemonsets", "DaemonSet"),
        Resource::new("batch", "v1", "jobs", "Job"),
        Resource::new("batch", "v1", "cronjobs", "CronJob"),
    ];
    resources.extend(workloads.into_iter().filter(|it| it.kind == kind));
    resources
}

/// All built-in kinds whose objects can use gated fields, in the version that servers store.
pub(crate) fn gated() -> Vec<Resource> {
    let all = registry::resources::all().iter();
    let config = registry::resources::RuntimeConfig::default();
    let carriers = all.filter(|resource| {
        let version = resource.storage_version();
        config.serves(resource.group, version) && resource.object_type(version).is_some_and(gated_uses::can_use)
    });
    let resource =
        |it: &registry::resources::Resource<'static>| Resource::new(it.group, it.storage_version(), it.plural, it.kind);
    carriers.filter(|it| it.verbs.contains(&"list")).map(resource).collect()
}

/// All objects of these resources in the cluster of a connection.
pub(crate) fn read(
    connect: impl AsyncFnOnce() -> anyhow::Result<Client>,
    resources: &[Resource],
) -> anyhow::Result<Manifests> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let objects = runtime.block_on(async { list(&connect().await?, resources).await })?;
    let list = api::json!({"apiVersion": "v1", "kind": "List", "items": (Value::Array(objects))});
    Ok(Manifests::parse(CLUSTER.to_owned(), json::to_pretty_string(&list, "  ")))
}

/// All objects of these resources. A resource that the server does not have, as an older Kubernetes lacks some, has none.
pub(crate) async fn list(client: &Client, resources: &[Resource]) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for resource in resources {
        let found = client.documents(resource.clone()).list(&Default::default()).await;
        if found.as_ref().is_err_and(client::Error::is_not_found) {
            continue;
        }
        let found = found.with_context(|| format!("cannot list {}", resource.plural))?;
        for mut object in found.items {
            if let Some(fields) = object.as_object_mut() {
                // Objects in a list have no type.
                fields.insert("apiVersion", resource.api_version());
                fields.insert("kind", resource.kind.as_ref());
            }
            objects.push(object);
        }
    }
    Ok(objects)
}
