//! The table of resources: one row per kind.

use crate::strategy::{Resource, Strategy};
use crate::{
    apiextensions, apps, batch, certificates, coordination, core, generic, networking, policy, rbac, resource,
    scheduling, storage, storage_migration,
};

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
    namespaced("", "v1", "Service", core::service_given::STRATEGY),
    cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", apiextensions::DEFINITION),
    namespaced("apps", "v1", "DaemonSet", apps::DAEMON_SET),
    namespaced("apps", "v1", "Deployment", apps::DEPLOYMENT),
    namespaced("apps", "v1", "ReplicaSet", apps::REPLICA_SET),
    namespaced("apps", "v1", "StatefulSet", apps::STATEFUL_SET),
    namespaced("batch", "v1", "CronJob", batch::CRON_JOB),
    namespaced("batch", "v1", "Job", batch::JOB),
    cluster("certificates.k8s.io", "v1", "CertificateSigningRequest", certificates::SIGNING_REQUEST),
    cluster("certificates.k8s.io", "v1", "ClusterTrustBundle", certificates::TRUST_BUNDLE),
    namespaced("coordination.k8s.io", "v1", "Lease", coordination::LEASE),
    namespaced("events.k8s.io", "v1", "Event", core::event::EVENTS),
    cluster("networking.k8s.io", "v1", "IPAddress", networking::ADDRESS),
    namespaced("policy", "v1", "PodDisruptionBudget", policy::DISRUPTION_BUDGET),
    cluster("rbac.authorization.k8s.io", "v1", "ClusterRole", rbac::CLUSTER_ROLE),
    cluster("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", rbac::CLUSTER_ROLE_BINDING),
    namespaced("rbac.authorization.k8s.io", "v1", "Role", rbac::ROLE),
    namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", rbac::ROLE_BINDING),
    cluster("resource.k8s.io", "v1", "DeviceClass", resource::DEVICE_CLASS),
    namespaced("resource.k8s.io", "v1", "ResourceClaim", resource::CLAIM),
    namespaced("resource.k8s.io", "v1", "ResourceClaimTemplate", resource::CLAIM_TEMPLATE),
    cluster("resource.k8s.io", "v1", "ResourceSlice", resource::RESOURCE_SLICE),
    cluster("scheduling.k8s.io", "v1", "PriorityClass", scheduling::PRIORITY_CLASS),
    cluster("storage.k8s.io", "v1", "StorageClass", storage::STORAGE_CLASS),
    cluster("storagemigration.k8s.io", "v1", "StorageVersionMigration", storage_migration::MIGRATION),
    // Of the kinds from here on only metadata and schema are checked.
    namespaced("", "v1", "Endpoints", generic::NAMED),
    namespaced("", "v1", "LimitRange", generic::NAMED),
    namespaced("", "v1", "PodTemplate", generic::NAMED),
    namespaced("", "v1", "ReplicationController", generic::WITH_GENERATION),
    namespaced("", "v1", "ResourceQuota", generic::WITH_STATUS),
    namespaced("", "v1", "ServiceAccount", generic::NAMED),
    cluster("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", generic::COUNTED),
    cluster(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        generic::WITH_GENERATION_AND_STATUS_ALONE,
    ),
    cluster("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", generic::COUNTED),
    cluster("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", generic::COUNTED),
    cluster("apiregistration.k8s.io", "v1", "APIService", generic::WITH_STATUS_ALONE),
    namespaced("apps", "v1", "ControllerRevision", generic::NAMED),
    namespaced("autoscaling", "v1", "HorizontalPodAutoscaler", generic::WITH_GENERATION),
    namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", generic::WITH_GENERATION),
    namespaced("discovery.k8s.io", "v1", "EndpointSlice", generic::COUNTED_WITH_LABELS),
    namespaced("networking.k8s.io", "v1", "Ingress", generic::WITH_GENERATION),
    cluster("networking.k8s.io", "v1", "IngressClass", generic::COUNTED),
    namespaced("networking.k8s.io", "v1", "NetworkPolicy", generic::WITH_GENERATION),
    cluster("node.k8s.io", "v1", "RuntimeClass", generic::NAMED),
    cluster("storage.k8s.io", "v1", "CSIDriver", generic::NAMED),
    cluster("storage.k8s.io", "v1", "CSINode", generic::NAMED),
    namespaced("storage.k8s.io", "v1", "CSIStorageCapacity", generic::NAMED),
    cluster("storage.k8s.io", "v1", "VolumeAttachment", generic::WITH_STATUS_ALONE),
    cluster("storage.k8s.io", "v1", "VolumeAttributesClass", generic::NAMED),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_type_and_stands_once() {
        let mut seen = std::collections::HashSet::new();
        for resource in RESOURCES {
            assert!(resource.object_type().is_some(), "{}", resource.qualified_kind());
            assert!(seen.insert((resource.group, resource.version, resource.kind)), "{}", resource.qualified_kind());
        }
    }
}
