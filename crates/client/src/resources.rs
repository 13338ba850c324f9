//! Paths of the objects of a kind.

use std::borrow::Cow;

use api::meta::v1::Object;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A resource, as in the path of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The API group, empty for core.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// The plural, in lower case.
    pub plural: Cow<'static, str>,
    /// The kind.
    pub kind: Cow<'static, str>,
}

const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl Resource {
    /// A resource of a built-in kind.
    #[must_use]
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str, kind: &'static str) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            plural: Cow::Borrowed(plural),
            kind: Cow::Borrowed(kind),
        }
    }

    /// `GROUP/VERSION`, or the version alone in core.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of the collection, of an object or of its subresource; empty parts are omitted.
    #[must_use]
    pub fn path(&self, namespace: &str, name: &str, subresource: &str) -> String {
        let mut path = if self.group.is_empty() { "/api/".to_owned() } else { format!("/apis/{}/", self.group) };
        path.push_str(&self.version);
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.extend(utf8_percent_encode(namespace, PATH));
        }
        path.push('/');
        path.push_str(&self.plural);
        for part in [name, subresource] {
            if !part.is_empty() {
                path.push('/');
                path.extend(utf8_percent_encode(part, PATH));
            }
        }
        path
    }
}

/// Encodes a query parameter for a URL.
pub(crate) fn encode(value: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(value, PATH)
}

/// A typed view of objects that the server serves.
pub trait ServedView: Object + Send + Sync + 'static {
    /// Path of the resource.
    const RESOURCE: Resource;
}

macro_rules! served {
    ($($type:ty => $plural:literal,)*) => {
        $(impl ServedView for $type {
            const RESOURCE: Resource = Resource::new(<$type>::GROUP, <$type>::VERSION, $plural, <$type>::KIND);
        })*
    };
}

served! {
    api::admissionregistration::v1::ValidatingAdmissionPolicy => "validatingadmissionpolicies",
    api::apiextensions::v1::CustomResourceDefinition => "customresourcedefinitions",
    api::apps::v1::ControllerRevision => "controllerrevisions",
    api::apps::v1::DaemonSet => "daemonsets",
    api::apps::v1::Deployment => "deployments",
    api::apps::v1::ReplicaSet => "replicasets",
    api::apps::v1::StatefulSet => "statefulsets",
    api::autoscaling::v2::HorizontalPodAutoscaler => "horizontalpodautoscalers",
    api::batch::v1::CronJob => "cronjobs",
    api::batch::v1::Job => "jobs",
    api::certificates::v1::CertificateSigningRequest => "certificatesigningrequests",
    api::coordination::v1::Lease => "leases",
    api::core::v1::ConfigMap => "configmaps",
    api::core::v1::Endpoints => "endpoints",
    api::core::v1::Event => "events",
    api::core::v1::Namespace => "namespaces",
    api::core::v1::Node => "nodes",
    api::core::v1::PersistentVolume => "persistentvolumes",
    api::core::v1::PersistentVolumeClaim => "persistentvolumeclaims",
    api::core::v1::Pod => "pods",
    api::core::v1::ReplicationController => "replicationcontrollers",
    api::core::v1::ResourceQuota => "resourcequotas",
    api::core::v1::Secret => "secrets",
    api::core::v1::Service => "services",
    api::core::v1::ServiceAccount => "serviceaccounts",
    api::discovery::v1::EndpointSlice => "endpointslices",
    api::policy::v1::PodDisruptionBudget => "poddisruptionbudgets",
    api::rbac::v1::ClusterRole => "clusterroles",
    api::resource::v1::DeviceClass => "deviceclasses",
    api::resource::v1::DeviceTaintRule => "devicetaintrules",
    api::resource::v1::ResourceClaim => "resourceclaims",
    api::resource::v1::ResourceClaimTemplate => "resourceclaimtemplates",
    api::resource::v1::ResourceSlice => "resourceslices",
    api::scheduling::v1::PriorityClass => "priorityclasses",
    api::storage::v1::CSIDriver => "csidrivers",
    api::storage::v1::CSINode => "csinodes",
    api::storage::v1::CSIStorageCapacity => "csistoragecapacities",
    api::storage::v1::StorageClass => "storageclasses",
    api::storage::v1::VolumeAttachment => "volumeattachments",
    api::storage::v1::VolumeAttributesClass => "volumeattributesclasses",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_group_namespace_object_and_part() {
        let pods = api::core::v1::Pod::RESOURCE;
        assert_eq!(pods.path("", "", ""), "/api/v1/pods");
        assert_eq!(pods.path("a", "b", "status"), "/api/v1/namespaces/a/pods/b/status");
        let slices = api::resource::v1::ResourceSlice::RESOURCE;
        assert_eq!(slices.path("", "x/y", ""), "/apis/resource.k8s.io/v1/resourceslices/x%2Fy");
    }
}
