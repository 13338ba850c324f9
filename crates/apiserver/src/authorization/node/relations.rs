//! Objects that concern a node: its pods, and the objects they reference.
//!
//! No index is kept: the watch cache finds the pods of a node, and those few are searched when the node
//! requests an object that only they give it access to. Writing a pod has no extra cost.

use std::sync::Arc;

use api::json::Value;
use api::well_known::ANNOTATION_CONFIG_MIRROR;

use super::references::{References, volume_secrets};
use crate::resources::{self, Resource};
use api::metadata;
use cache::stored::ServedObject;
use cache::{Cache, IndexKey, Interest};

/// Kinds of objects that a node may access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
    VolumeClaim,
    Volume,
    DeviceClaim,
    Attachment,
    ServiceAccount,
    Slice,
    Pod,
    CertificateRequest,
}

pub(super) struct Relations {
    cache: Arc<Cache>,
}

impl Relations {
    pub(super) fn new(cache: Arc<Cache>) -> Self {
        Self { cache }
    }

    /// Whether an object concerns a node.
    pub(super) fn concerns(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let node_of = |group: &str, plural: &str| {
            let object = self.object(resources::find(group, "v1", plural)?, namespace, name)?;
            Some(object.str_at(&["spec", "nodeName"])? == node)
        };
        match kind {
            Kind::Pod => node_of("", "pods") == Some(true),
            Kind::Attachment => node_of("storage.k8s.io", "volumeattachments") == Some(true),
            Kind::Slice => node_of("resource.k8s.io", "resourceslices") == Some(true),
            Kind::CertificateRequest => node_of("certificates.k8s.io", "podcertificaterequests") == Some(true),
            Kind::Volume => {
                self.object(resources::PERSISTENT_VOLUMES, "", name).is_some_and(|it| self.mounts(node, &it))
            }
            Kind::Secret => self.mentions(node, namespace, name, kind) || self.by_volume(node, namespace, name),
            _ => self.mentions(node, namespace, name, kind),
        }
    }

    fn object(&self, row: &Resource<'_>, namespace: &str, name: &str) -> Option<Value> {
        self.cache.resource(&row.prefix()).get(&row.key(namespace, name)).map(|object| object.decode())
    }

    /// The pods of a node, in one namespace or in all.
    fn pods_on(&self, node: &str, namespace: &str) -> Vec<Arc<ServedObject>> {
        let row = resources::PODS;
        let prefix = if namespace.is_empty() { row.prefix() } else { row.key(namespace, "") };
        let interest = Interest::Value { range: prefix, by: IndexKey::node(), value: node.to_owned() };
        let found = self.cache.resource(&row.prefix()).find(&interest, 0);
        found.objects.iter().map(|(_, pod)| pod.clone()).collect()
    }

    /// Whether a pod of the node references an object of its own namespace.
    fn mentions(&self, node: &str, namespace: &str, name: &str, kind: Kind) -> bool {
        self.pods_on(node, namespace).into_iter().any(|pod| {
            // The name of a claim that is made for a pod does not stand in it.
            let may = if kind == Kind::VolumeClaim { may_claim_volumes(&pod) } else { pod.contains(name.as_bytes()) };
            if !may {
                return false;
            }
            let pod = pod.decode();
            if pod.str_at(&["spec", "nodeName"]) != Some(node) || is_mirror(&pod) {
                return false;
            }
            let named = References::of_pod(&pod);
            match kind {
                Kind::Secret => named.secrets.contains(&name),
                Kind::ConfigMap => named.config_maps.contains(&name),
                Kind::VolumeClaim => named.volume_claims.iter().any(|it| it == name),
                Kind::DeviceClaim => named.device_claims.contains(&name),
                Kind::ServiceAccount => named.service_account == name,
                _ => false,
            }
        })
    }

    /// Whether a pod of the node uses the claim to which a volume is bound.
    fn mounts(&self, node: &str, volume: &Value) -> bool {
        let at = |field: &str| volume.text_at(&["spec", "claimRef", field]);
        let (namespace, name) = (at("namespace"), at("name"));
        !namespace.is_empty() && !name.is_empty() && self.mentions(node, namespace, name, Kind::VolumeClaim)
    }

    /// Whether a volume that a pod of the node uses names a secret.
    fn by_volume(&self, node: &str, namespace: &str, name: &str) -> bool {
        let mut claims: Vec<(String, String)> = Vec::new();
        for pod in self.pods_on(node, "").iter().filter(|pod| may_claim_volumes(pod)).map(|pod| pod.decode()) {
            if pod.str_at(&["spec", "nodeName"]) == Some(node) && !is_mirror(&pod) {
                let of_pod = metadata::namespace(&pod);
                let all = References::of_pod(&pod).volume_claims.into_iter();
                claims.extend(all.map(|claim| (of_pod.to_owned(), claim)));
            }
        }
        let gives = |volume: &Value| {
            let at = |field: &str| volume.text_at(&["spec", "claimRef", field]);
            let is_used = claims.iter().any(|(namespace, claim)| at("namespace") == namespace && at("name") == claim);
            is_used && volume_secrets(volume).contains(&(namespace, name))
        };
        let is_named = claims.iter().any(|(namespace, claim)| {
            let claim = self.object(resources::PERSISTENT_VOLUME_CLAIMS, namespace, claim);
            let volume = claim.as_ref().and_then(|claim| claim.str_at(&["spec", "volumeName"]));
            let volume = volume.and_then(|volume| self.object(resources::PERSISTENT_VOLUMES, "", volume));
            volume.is_some_and(|volume| gives(&volume))
        });
        is_named || !claims.is_empty() && self.volumes_with(name).iter().any(|volume| gives(&volume.decode()))
    }

    /// Volumes whose text contains a name. A volume names its claim, even if the claim does not name it yet.
    fn volumes_with(&self, name: &str) -> Vec<Arc<ServedObject>> {
        let row = resources::PERSISTENT_VOLUMES;
        let volumes = self.cache.resource(&row.prefix());
        let found = volumes.list(&row.prefix(), None, 0, |_, volume| volume.contains(name.as_bytes()));
        found.objects.into_iter().map(|(_, volume)| volume).collect()
    }
}

/// Whether a pod can have claims to volumes; others need not be decoded.
fn may_claim_volumes(pod: &ServedObject) -> bool {
    pod.contains(b"\"persistentVolumeClaim\":") || pod.contains(b"\"ephemeral\":")
}

/// Whether the pod is a mirror pod. Those grant their node no permissions, because the node itself creates them.
fn is_mirror(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", ANNOTATION_CONFIG_MIRROR]).is_some()
}
