//! Objects of a running cluster, as manifests: what the tools read from files, they read from a server as well.

use anyhow::Context as _;
use api::json::{self, Value};
use client::{Client, Resource};

use crate::manifests::Manifests;

/// Everything that the scheduler looks at.
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

/// Who may use gated fields.
pub(crate) const GATED: &[Resource] = &[
    Resource::new("", "v1", "pods", "Pod"),
    Resource::new("", "v1", "podtemplates", "PodTemplate"),
    Resource::new("", "v1", "replicationcontrollers", "ReplicationController"),
    Resource::new("", "v1", "persistentvolumes", "PersistentVolume"),
    Resource::new("apps", "v1", "daemonsets", "DaemonSet"),
    Resource::new("apps", "v1", "deployments", "Deployment"),
    Resource::new("apps", "v1", "replicasets", "ReplicaSet"),
    Resource::new("apps", "v1", "statefulsets", "StatefulSet"),
    Resource::new("batch", "v1", "cronjobs", "CronJob"),
    Resource::new("batch", "v1", "jobs", "Job"),
    Resource::new("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
];

/// All objects of these resources in the cluster of a connection.
pub(crate) fn read(
    connect: impl AsyncFnOnce() -> anyhow::Result<Client>,
    resources: &[Resource],
) -> anyhow::Result<Manifests> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let objects = runtime.block_on(async { list(&connect().await?, resources).await })?;
    let list = api::json!({"apiVersion": "v1", "kind": "List", "items": (Value::Array(objects))});
    Ok(Manifests::parse("<cluster>".to_owned(), json::to_pretty_string(&list, "  ")))
}

async fn list(client: &Client, resources: &[Resource]) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for resource in resources {
        let found = client.documents(resource.clone()).list(&Default::default()).await;
        let found = found.with_context(|| format!("cannot list {}", resource.plural))?;
        for mut object in found.items {
            if let Some(fields) = object.as_object_mut() {
                // Objects in a list do not say what they are.
                fields.insert("apiVersion", resource.api_version());
                fields.insert("kind", resource.kind.as_ref());
            }
            objects.push(object);
        }
    }
    Ok(objects)
}
