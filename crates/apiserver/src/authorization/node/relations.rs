//! Which objects concern a node: its pods, and what they mention.
//!
//! All that is kept is which pods run on which node, and it is brought up to date when a node asks: a pod is decoded
//! once, when it has got its node, and not at all while no node asks for what only its pods give it a right to. The rest
//! is read from the watch cache.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use api::json::Value;

use super::references::{References, volume_secrets};
use crate::objects::metadata;
use crate::resources::{self, Resource};
use crate::storage::cache::{Cache, ChangeKind, ResourceCache};
use crate::storage::stored::Served;

/// What kinds of objects can concern a node.
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

/// What stands in every pod that has a node, and in few that have none.
const NODE_FIELD: &[u8] = br#""nodeName":""#;

pub(super) struct Relations {
    cache: Arc<Cache>,
    pods: Option<Arc<ResourceCache>>,
    bound: Mutex<Bound>,
}

/// Pods by their nodes.
#[derive(Default)]
struct Bound {
    /// From where in the list of changes to go on; none if everything must be read.
    place: Option<u64>,
    nodes: HashMap<Arc<str>, Box<str>>,
    pods: HashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl Bound {
    fn see(&mut self, key: &Arc<str>, pod: &Served) {
        // A pod stays on its node until it is deleted.
        if self.nodes.contains_key(key) || !pod.contains(NODE_FIELD) {
            return;
        }
        let pod = pod.decode();
        let node = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
        if !node.is_empty() {
            self.nodes.insert(key.clone(), node.into());
            self.pods.entry(node.into()).or_default().insert(key.clone());
        }
    }

    fn forget(&mut self, key: &str) {
        let Some(node) = self.nodes.remove(key) else { return };
        if let Some(pods) = self.pods.get_mut(&node) {
            pods.remove(key);
            if pods.is_empty() {
                self.pods.remove(&node);
            }
        }
    }

    /// Learns what has happened since the last question.
    fn catch_up(&mut self, cache: &ResourceCache) {
        while let Some(place) = self.place {
            // Who fell behind reads everything again.
            let Ok(changes) = cache.changes(place) else { break };
            if changes.is_empty() {
                return;
            }
            self.place = place.checked_add(u64::try_from(changes.len()).unwrap_or(u64::MAX));
            for change in changes {
                if change.kind == ChangeKind::Deleted {
                    self.forget(&change.key);
                } else {
                    self.see(&change.key, &change.object);
                }
            }
        }
        let prefix = pods_row().map(Resource::prefix).unwrap_or_default();
        let (snapshot, place) = cache.list_and_place(&prefix, 0);
        *self = Self { place: Some(place), ..Self::default() };
        for (key, pod) in &snapshot.objects {
            self.see(key, pod);
        }
    }
}

fn pods_row() -> Option<&'static Resource> {
    resources::find("", "v1", "pods")
}

impl Relations {
    pub(super) fn new(cache: Arc<Cache>) -> Self {
        let pods = pods_row().map(|row| cache.resource(&row.prefix()));
        Self { cache, pods, bound: Mutex::default() }
    }

    /// Whether an object concerns a node.
    pub(super) fn concerns(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let node_of = |group: &str, plural: &str| {
            let object = self.object(group, plural, namespace, name)?;
            Some(object.str_at(&["spec", "nodeName"])? == node)
        };
        match kind {
            Kind::Pod => node_of("", "pods") == Some(true),
            Kind::Attachment => node_of("storage.k8s.io", "volumeattachments") == Some(true),
            Kind::Slice => node_of("resource.k8s.io", "resourceslices") == Some(true),
            Kind::CertificateRequest => node_of("certificates.k8s.io", "podcertificaterequests") == Some(true),
            Kind::Volume => self.object("", "persistentvolumes", "", name).is_some_and(|it| self.mounts(node, &it)),
            Kind::Secret => self.mentions(node, namespace, name, kind) || self.by_volume(node, namespace, name),
            _ => self.mentions(node, namespace, name, kind),
        }
    }

    fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let row = resources::find(group, "v1", plural)?;
        self.cache.resource(&row.prefix()).get(&row.key(namespace, name)).map(|object| object.decode())
    }

    /// The pods of a node, in one namespace or in all.
    fn pods_on(&self, node: &str, namespace: &str) -> Vec<Arc<Served>> {
        let (Some(cache), Some(row)) = (&self.pods, pods_row()) else { return Vec::new() };
        let prefix = if namespace.is_empty() { row.prefix() } else { row.key(namespace, "") };
        let mut bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        bound.catch_up(cache);
        let keys: Vec<Arc<str>> = bound.pods.get(node).into_iter().flatten().cloned().collect();
        drop(bound);
        keys.iter().filter(|key| key.starts_with(&prefix)).filter_map(|key| cache.get(key)).collect()
    }

    /// Whether a pod of the node names an object of its own namespace.
    fn mentions(&self, node: &str, namespace: &str, name: &str, kind: Kind) -> bool {
        self.pods_on(node, namespace).into_iter().any(|pod| {
            // The name of a claim that is made for a pod does not stand in it.
            if kind != Kind::VolumeClaim && !pod.contains(name.as_bytes()) {
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
        let at = |field: &str| volume.str_at(&["spec", "claimRef", field]).unwrap_or_default();
        let (namespace, name) = (at("namespace"), at("name"));
        !namespace.is_empty() && !name.is_empty() && self.mentions(node, namespace, name, Kind::VolumeClaim)
    }

    /// Whether a volume that a pod of the node uses names a secret.
    fn by_volume(&self, node: &str, namespace: &str, name: &str) -> bool {
        self.pods_on(node, "").into_iter().any(|pod| {
            let pod = pod.decode();
            if pod.str_at(&["spec", "nodeName"]) != Some(node) || is_mirror(&pod) {
                return false;
            }
            let pod_namespace = metadata::text(&pod, "namespace");
            References::of_pod(&pod).volume_claims.iter().any(|claim| {
                let Some(found) = self.object("", "persistentvolumeclaims", pod_namespace, claim) else { return false };
                let volume = found.str_at(&["spec", "volumeName"]).filter(|it| !it.is_empty());
                let volume = volume.and_then(|volume| self.object("", "persistentvolumes", "", volume));
                volume.is_some_and(|volume| {
                    let at = |field: &str| volume.str_at(&["spec", "claimRef", field]);
                    at("namespace") == Some(pod_namespace)
                        && at("name") == Some(claim)
                        && volume_secrets(&volume).contains(&(namespace, name))
                })
            })
        })
    }
}

/// Mirror pods give their node no rights: it makes them itself.
fn is_mirror(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some()
}
