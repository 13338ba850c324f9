//! The pod in question, and the nodes, volumes and claims around it, from files.

use anyhow::{Context as _, bail};
use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PodSpec};
use api::json::{self, Value};
use api::storage::v1::StorageClass;

use crate::gated_uses::pod_spec_path;
use crate::manifests::{self, Manifest};

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
}

impl Cluster {
    /// Reads the pod and the cluster.
    pub(super) fn load(pod: &str, name: Option<&str>, filenames: &[String]) -> anyhow::Result<Self> {
        let mut cluster = Cluster::default();
        let mut found = None;
        for source in manifests::sources(&[pod.to_owned()])? {
            let file = source.read()?;
            if let Some(error) = &file.error {
                bail!("{}:{}: {}", file.name, file.position(error.offset).line, error.message);
            }
            for manifest in file.objects {
                let is_wanted = name.is_none_or(|name| manifest.value.str_at(&["metadata", "name"]) == Some(name));
                if found.is_none() && is_wanted && pod_spec_path(manifest.kind()).is_some() {
                    found = Some(manifest);
                } else {
                    cluster.add(&manifest)?;
                }
            }
        }
        let Some(manifest) = found else {
            match name {
                Some(name) => bail!("`{pod}` holds no pod `{name}`"),
                None => bail!("`{pod}` holds no pod and nothing that makes pods"),
            }
        };
        let spec = pod_spec_path(manifest.kind()).and_then(|path| manifest.value.at(path));
        cluster.spec = spec.map(view).transpose().with_context(|| manifest.title())?.unwrap_or_default();
        cluster.title = manifest.title();
        cluster.namespace = manifest.value.str_at(&["metadata", "namespace"]).unwrap_or("default").to_owned();
        for source in manifests::sources(filenames)? {
            let file = source.read()?;
            if let Some(error) = &file.error {
                bail!("{}:{}: {}", file.name, file.position(error.offset).line, error.message);
            }
            for manifest in &file.objects {
                cluster.add(manifest)?;
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

fn view<T: serde::de::DeserializeOwned>(value: &Value) -> anyhow::Result<T> {
    Ok(json::from_value(value)?)
}
