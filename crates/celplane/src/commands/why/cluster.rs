//! The pod in question, and the cluster around it, from files or from a server.

use std::collections::HashMap;

use std::sync::Arc;

use anyhow::{Context as _, bail};
use api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec};
use api::features::Features;
use api::json::{Value, from_value};
use api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use api::storage::v1::StorageClass;
use api::well_known::LABEL_HOSTNAME;
use scheduling::cluster::Object;

use crate::connection::ConnectionArguments;
use crate::gated_uses::{self, Needs, pod_spec_path};
use crate::live;
use crate::manifests::{self, Manifest, merged};
use crate::scheduling_objects::object_of;

/// A pod and its surroundings.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    /// Paths of the pod's fields that depend on feature gates.
    pub(super) gated_fields: Vec<(String, Needs)>,
    /// Kind, namespace and name of what holds the pod's specification.
    pub(super) title: String,
    /// The pod's namespace.
    pub(super) namespace: String,
    /// Spec of the pod.
    pub(super) spec: PodSpec,
    /// The pod as one that waits.
    pub(super) pod: Pod,
    /// The node that it has already.
    pub(super) runs_on: Option<String>,
    /// The other pods.
    pub(super) pods: Vec<Pod>,
    /// All other objects that affect placement.
    pub(super) objects: Vec<Object>,
    /// The values of priority classes.
    priorities: HashMap<String, i32>,
    /// Templates of device claims.
    claim_templates: Vec<ResourceClaimTemplate>,
    /// The nodes, in the order of the files.
    pub(super) nodes: Vec<Node>,
    /// The volumes.
    pub(super) volumes: Vec<PersistentVolume>,
    /// The claims.
    pub(super) claims: Vec<PersistentVolumeClaim>,
    /// The classes.
    pub(super) classes: Vec<StorageClass>,
    /// The gates of the cluster's scheduler, if it publishes them.
    pub(super) gates: Option<Features>,
}

/// The requested pod and cluster.
#[derive(Debug)]
pub(super) struct PodQuery<'a> {
    /// A file with the pod; without, it is one of the cluster.
    pub(super) pod: Option<&'a str>,
    /// Kind in the cluster: a pod, or its workload.
    pub(super) kind: &'a str,
    /// Name, if it is not the first of its file.
    pub(super) name: Option<&'a str>,
    /// Namespace in the cluster; that of the context by default.
    pub(super) namespace: Option<&'a str>,
    /// Files with the cluster.
    pub(super) filenames: &'a [String],
    /// The server of the cluster.
    pub(super) connection: &'a ConnectionArguments,
    /// Whether the server is used in any case, not only if the files contain no cluster.
    pub(super) is_live: bool,
}

impl Cluster {
    /// Reads the pod and the cluster.
    pub(super) fn load(asked: &PodQuery<'_>) -> anyhow::Result<Self> {
        let mut cluster = Cluster::default();
        let mut found = None;
        let is_named = |manifest: &Manifest| {
            asked.name.is_none_or(|name| manifest.value.str_at(&["metadata", "name"]) == Some(name))
        };
        for source in manifests::sources(asked.pod.map(ToOwned::to_owned).as_slice())? {
            for manifest in merged(source.read()?)? {
                if found.is_none() && is_named(&manifest) && pod_spec_path(manifest.kind()).is_some() {
                    found = Some(manifest);
                } else {
                    cluster.add(&manifest)?;
                }
            }
        }
        let lacks_cluster = asked.filenames.is_empty() && cluster.nodes.is_empty();
        let is_live = asked.is_live || lacks_cluster && asked.connection.is_in_environment();
        let namespace = match asked.namespace {
            Some(namespace) => namespace.to_owned(),
            None if is_live => asked.connection.namespace()?.unwrap_or_else(|| "default".to_owned()),
            None => "default".to_owned(),
        };
        if is_live {
            cluster.gates = asked.connection.scheduler_gates()?;
            for manifest in merged(asked.connection.read(&live::around(asked.kind))?)? {
                let is_it = asked.pod.is_none()
                    && manifest.kind() == asked.kind
                    && is_named(&manifest)
                    && manifest.value.str_at(&["metadata", "namespace"]) == Some(namespace.as_str());
                if is_it {
                    found = Some(manifest);
                } else {
                    cluster.add(&manifest)?;
                }
            }
        } else if lacks_cluster {
            bail!("no cluster given: specify files with -f, or a server with --kubeconfig, --context or KUBECONFIG");
        }
        let Some(manifest) = found else {
            match (asked.pod, asked.name) {
                (Some(pod), Some(name)) => bail!("`{pod}` contains no pod `{name}`"),
                (Some(pod), None) => bail!("`{pod}` contains neither a pod nor a workload"),
                (None, name) => {
                    let kind = asked.kind.to_ascii_lowercase();
                    bail!("there is no {kind} `{namespace}/{}`", name.unwrap_or_default())
                }
            }
        };
        let spec = pod_spec_path(manifest.kind()).and_then(|path| manifest.value.at(path));
        cluster.spec = spec.map(from_value).transpose().with_context(|| manifest.title())?.unwrap_or_default();
        cluster.title = manifest.title();
        cluster.gated_fields = gated_uses::find(&manifest.value).into_iter().map(|it| (it.path, it.needs)).collect();
        cluster.namespace = manifest.value.str_at(&["metadata", "namespace"]).unwrap_or("default").to_owned();
        for source in manifests::sources(asked.filenames)? {
            for manifest in merged(source.read()?)? {
                cluster.add(&manifest)?;
            }
        }
        cluster.pod = cluster.waiting_pod(&manifest)?;
        let own_uid = cluster.pod.metadata.uid.clone();
        cluster.pods.retain(|pod| pod.metadata.uid != own_uid);
        cluster.make_claims()?;
        Ok(cluster)
    }

    /// The pending pod of a manifest: the pod itself, or one that the workload creates.
    fn waiting_pod(&mut self, manifest: &Manifest) -> anyhow::Result<Pod> {
        let mut pod = match manifest.kind() {
            "Pod" => view::<Pod>(&manifest.value).with_context(|| manifest.title())?,
            kind => {
                // The template stands around the specification.
                let template = pod_spec_path(kind).and_then(|path| path.split_last()).map(|(_, template)| template);
                let of_template = |field| template.and_then(|path| manifest.value.at(path)?.at(&["metadata", field]));
                let (labels, annotations) = (of_template("labels"), of_template("annotations"));
                let mut pod = Pod { spec: self.spec.clone(), ..Pod::default() };
                pod.metadata.name = manifest.value.text_at(&["metadata", "name"]).into();
                pod.metadata.labels = labels.map(from_value).transpose()?.unwrap_or_default();
                pod.metadata.annotations = annotations.map(from_value).transpose()?.unwrap_or_default();
                pod
            }
        };
        pod.metadata.namespace = self.namespace.as_str().into();
        prepare(&mut pod, &self.priorities);
        self.runs_on = Some(std::mem::take(&mut pod.spec.node_name).into()).filter(|node: &String| !node.is_empty());
        Ok(pod)
    }

    /// Makes the claims to devices that would be made for the pod.
    fn make_claims(&mut self) -> anyhow::Result<()> {
        let (owner, uid) = (self.pod.metadata.name.as_str().to_owned(), self.pod.metadata.uid.as_str().to_owned());
        let mut statuses = Vec::new();
        for wanted in &self.pod.spec.resource_claims {
            let is_reported = self.pod.status.resource_claim_statuses.iter().any(|it| it.name == wanted.name);
            let is_it = |template: &&ResourceClaimTemplate| {
                Some(&template.metadata.name) == wanted.resource_claim_template_name.as_ref()
                    && template.metadata.namespace == self.namespace.as_str()
            };
            let Some(template) = self.claim_templates.iter().find(is_it).filter(|_| !is_reported) else { continue };
            let name = format!("{owner}-{}", wanted.name);
            let metadata = api::json!({
                "name": (name.as_str()), "namespace": (self.namespace.as_str()), "uid": (format!("{uid}/{name}")),
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": (owner.as_str()), "uid": (uid.as_str()), "controller": true}]
            });
            let mut claim: ResourceClaim = view(&api::json!({"metadata": (metadata)}))?;
            claim.metadata.annotations = template.spec.metadata.annotations.clone();
            claim.spec = template.spec.spec.clone();
            self.objects.push(Object::ResourceClaim(Arc::new(claim)));
            let reported = api::json!({"name": (wanted.name.as_str()), "resourceClaimName": (name.as_str())});
            statuses.push(from_value(&reported)?);
        }
        self.pod.status.resource_claim_statuses.extend(statuses);
        Ok(())
    }

    fn add(&mut self, manifest: &Manifest) -> anyhow::Result<()> {
        let context = || manifest.title();
        let mut value = in_stored_version(manifest).with_context(context)?;
        let is_namespaced = !matches!(
            manifest.kind(),
            "Node"
                | "PersistentVolume"
                | "StorageClass"
                | "Namespace"
                | "DeviceClass"
                | "ResourceSlice"
                | "CSINode"
                | "CSIDriver"
                | "VolumeAttachment"
                | "PriorityClass"
        );
        if is_namespaced
            && value.str_at(&["metadata", "namespace"]).is_none()
            && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.insert("namespace", "default");
        }
        if manifest.kind() == "Node" {
            add_hostname(&mut value);
        }
        self.objects.extend(object_of(manifest.kind(), &value).with_context(context)?);
        match manifest.kind() {
            "Pod" => {
                let mut pod: Pod = view(&value).with_context(context)?;
                prepare(&mut pod, &self.priorities);
                self.pods.push(pod);
            }
            "PriorityClass" => {
                let name = manifest.value.text_at(&["metadata", "name"]).to_owned();
                let class: i64 = manifest.value.get("value").and_then(Value::as_i64).unwrap_or(0);
                self.priorities.insert(name, i32::try_from(class).unwrap_or(i32::MAX));
            }
            "Node" => self.nodes.push(view(&value).with_context(context)?),
            "PersistentVolume" => self.volumes.push(view(&manifest.value).with_context(context)?),
            "PersistentVolumeClaim" => self.claims.push(view(&manifest.value).with_context(context)?),
            "StorageClass" => self.classes.push(view(&manifest.value).with_context(context)?),
            "ResourceClaimTemplate" => self.claim_templates.push(view(&value).with_context(context)?),
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

/// Sets the fields of a pod from a file that the server would set: its uid, and the priority of its class.
fn prepare(pod: &mut Pod, priorities: &HashMap<String, i32>) {
    if pod.metadata.uid.is_empty() {
        pod.metadata.uid = format!("{}/{}", pod.metadata.namespace, pod.metadata.name).into();
    }
    let class = pod.spec.priority_class_name.as_str();
    if pod.spec.priority.is_none() {
        pod.spec.priority = priorities.get(class).copied();
    }
}

/// Every node that runs has this label; one that was only written down may lack it.
fn add_hostname(node: &mut Value) {
    let Some(name) = node.str_at(&["metadata", "name"]).map(ToOwned::to_owned) else { return };
    if let Some(metadata) = node.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(labels) = metadata.get_or_insert("labels", Value::object).as_object_mut()
        && labels.get(LABEL_HOSTNAME).is_none()
    {
        labels.insert(LABEL_HOSTNAME, name.as_str());
    }
}

/// Converts objects in an older version of `resource.k8s.io` as the server would, including defaults.
fn in_stored_version(manifest: &Manifest) -> anyhow::Result<Value> {
    let mut value = manifest.value.clone();
    let (group, version) = manifest.api_version().split_once('/').unwrap_or_default();
    match registry::resources::find_by_api_version(manifest.api_version(), manifest.kind()) {
        Some(resource) if group == "resource.k8s.io" => {
            registry::conversion::to_stored(resource, version, &mut value);
            Ok(registry::admit::read(resource, &value, "2000-01-01T00:00:00Z")?.object)
        }
        _ => Ok(value),
    }
}

fn view<T: api::meta::v1::Object>(value: &Value) -> anyhow::Result<T> {
    Ok(T::read(value)?)
}
