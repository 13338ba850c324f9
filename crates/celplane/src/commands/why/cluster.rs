//! The pod in question, and the nodes, volumes and claims around it, from files or from a server.

use std::path::Path;

use anyhow::{Context as _, bail};
use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec};
use api::json::{self, Text, Value};
use api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use api::storage::v1::StorageClass;

use crate::gated_uses::pod_spec_path;
use crate::live;
use crate::manifests::{self, Manifest, Manifests};

/// A pod and its surroundings.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// Kind, namespace and name of what holds the pod's specification.
    pub(super) title: String,
    /// The pod's namespace.
    pub(super) namespace: String,
    /// What the pod asks for.
    pub(super) spec: PodSpec,
    /// The nodes, in the order of the files.
    pub(super) nodes: Vec<Node>,
    /// The volumes.
    pub(super) volumes: Vec<PersistentVolume>,
    /// The claims.
    pub(super) claims: Vec<PersistentVolumeClaim>,
    /// The classes.
    pub(super) classes: Vec<StorageClass>,
    /// The devices.
    pub(super) slices: Vec<ResourceSlice>,
    /// The classes of devices.
    pub(super) device_classes: Vec<DeviceClass>,
    /// The claims to devices.
    pub(super) device_claims: Vec<ResourceClaim>,
    /// What such claims are made from.
    pub(super) claim_templates: Vec<ResourceClaimTemplate>,
    /// The names of claims that were made for the pod, by the pod's names for them.
    pub(super) claim_names: Vec<(Text, Text)>,
}

/// Which pod, and which cluster.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    /// A file with the pod; without, it is one of the cluster.
    pub(super) pod: Option<&'a str>,
    /// Its name, if it is not the first of its file.
    pub(super) name: Option<&'a str>,
    /// Its namespace in the cluster.
    pub(super) namespace: &'a str,
    /// Files with the cluster.
    pub(super) filenames: &'a [String],
    /// Names the server of the cluster.
    pub(super) kubeconfig: Option<&'a Path>,
}

impl Cluster {
    /// Reads the pod and the cluster.
    pub(super) fn load(asked: &Asked<'_>) -> anyhow::Result<Self> {
        let mut cluster = Cluster::default();
        let mut found = None;
        let is_named = |manifest: &Manifest| {
            asked.name.is_none_or(|name| manifest.value.str_at(&["metadata", "name"]) == Some(name))
        };
        for source in manifests::sources(asked.pod.map(ToOwned::to_owned).as_slice())? {
            for manifest in readable(source.read()?)? {
                if found.is_none() && is_named(&manifest) && pod_spec_path(manifest.kind()).is_some() {
                    found = Some(manifest);
                } else {
                    cluster.add(&manifest)?;
                }
            }
        }
        if let Some(kubeconfig) = asked.kubeconfig {
            for manifest in readable(live::read(kubeconfig, live::PLACEMENT)?)? {
                let is_it = asked.pod.is_none()
                    && manifest.kind() == "Pod"
                    && is_named(&manifest)
                    && manifest.value.str_at(&["metadata", "namespace"]) == Some(asked.namespace);
                if is_it {
                    found = Some(manifest);
                } else {
                    cluster.add(&manifest)?;
                }
            }
        }
        let Some(manifest) = found else {
            match (asked.pod, asked.name) {
                (Some(pod), Some(name)) => bail!("`{pod}` holds no pod `{name}`"),
                (Some(pod), None) => bail!("`{pod}` holds no pod and nothing that makes pods"),
                (None, name) => bail!("there is no pod `{}/{}`", asked.namespace, name.unwrap_or_default()),
            }
        };
        let spec = pod_spec_path(manifest.kind()).and_then(|path| manifest.value.at(path));
        cluster.spec = spec.map(view).transpose().with_context(|| manifest.title())?.unwrap_or_default();
        if manifest.kind() == "Pod" {
            let pod: Pod = view(&manifest.value).with_context(|| manifest.title())?;
            let made = pod.status.resource_claim_statuses.into_iter();
            cluster.claim_names = made.filter_map(|it| Some((it.name, it.resource_claim_name?))).collect();
        }
        cluster.title = manifest.title();
        cluster.namespace = manifest.value.str_at(&["metadata", "namespace"]).unwrap_or("default").to_owned();
        for source in manifests::sources(asked.filenames)? {
            for manifest in readable(source.read()?)? {
                cluster.add(&manifest)?;
            }
        }
        Ok(cluster)
    }

    fn add(&mut self, manifest: &Manifest) -> anyhow::Result<()> {
        let context = || manifest.title();
        match manifest.kind() {
            "Node" => self.nodes.push(view(&manifest.value).with_context(context)?),
            "PersistentVolume" => self.volumes.push(view(&manifest.value).with_context(context)?),
            "PersistentVolumeClaim" => self.claims.push(view(&manifest.value).with_context(context)?),
            "StorageClass" => self.classes.push(view(&manifest.value).with_context(context)?),
            kind if manifest.api_version().starts_with("resource.k8s.io/") => {
                let value = in_stored_version(manifest).with_context(context)?;
                match kind {
                    "ResourceSlice" => self.slices.push(view(&value).with_context(context)?),
                    "DeviceClass" => self.device_classes.push(view(&value).with_context(context)?),
                    "ResourceClaim" => self.device_claims.push(view(&value).with_context(context)?),
                    "ResourceClaimTemplate" => self.claim_templates.push(view(&value).with_context(context)?),
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The claims of the pod's volumes: their names, and the claims if they are there.
    pub(super) fn claims_of_pod(&self) -> impl Iterator<Item = (&str, Option<&PersistentVolumeClaim>)> {
        let sources = self.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        sources.map(|source| {
            let is_it = |claim: &&PersistentVolumeClaim| {
                let namespace = claim.metadata.namespace.as_str();
                let namespace = if namespace.is_empty() { "default" } else { namespace };
                claim.metadata.name == source.claim_name && namespace == self.namespace
            };
            (source.claim_name.as_str(), self.claims.iter().find(is_it))
        })
    }
}

/// The objects, if all could be read.
fn readable(file: Manifests) -> anyhow::Result<Vec<Manifest>> {
    match &file.error {
        Some(error) => bail!("{}:{}: {}", file.name, file.position(error.offset).line, error.message),
        None => Ok(file.objects),
    }
}

/// What is written in an older version means what the server would make of it; defaults included.
fn in_stored_version(manifest: &Manifest) -> anyhow::Result<Value> {
    let mut value = manifest.value.clone();
    let version = manifest.api_version().split_once('/').map_or("", |(_, version)| version);
    match registry::resources::find_by_api_version(manifest.api_version(), manifest.kind()) {
        Some(resource) => {
            registry::conversion::to_stored(resource, version, &mut value);
            Ok(registry::admit::read(resource, &value, "2000-01-01T00:00:00Z")?.object)
        }
        None => Ok(value),
    }
}

fn view<T: serde::de::DeserializeOwned>(value: &Value) -> anyhow::Result<T> {
    Ok(json::from_value(value)?)
}
