//! The cluster that is simulated: nodes, pods and the other objects, each as the server would have it.
//!
//! What comes from a server (it has a uid) is taken as it is. What does not is admitted as the server would admit it, with
//! defaults, and a workload stands for the pods that it would make.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use api::well_known::ANNOTATION_BIND_COMPLETED;
use api::annotations::REJECTED;
use api::core::v1::{Node, PersistentVolumeClaim, Pod};
use api::features::Features;
use api::json::{Text, Value};
use api::meta::v1::Object as _;
use api::resource::v1::ResourceClaim;
use api::scheduling::v1::PriorityClass;
use api::time::Timestamp;
use kubelet::template::Template;
use registry::admit;
use registry::expressions::Environments;
use registry::resources::Resource;
use registry::strategy::Context;
use scheduling::cluster::Object;

use super::expand;
use crate::manifests::Manifest;
use controlplane::replicas;
use crate::scheduling_objects;

/// A cluster from which a simulation starts.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    features: Features,
    environments: Option<Environments>,
    /// Nodes, with the number of identical copies of each.
    pub(super) nodes: Vec<(Node, Option<usize>)>,
    /// Pods, and how many are like each.
    pub(super) pods: Vec<(Pod, Option<usize>)>,
    /// All other objects.
    pub(super) objects: Vec<Object>,
    /// ResourceClaimTemplates by namespace and name.
    pub(super) claim_templates: HashMap<(Text, Text), Value>,
    classes: Vec<PriorityClass>,
}

impl Cluster {
    /// An empty one.
    pub(super) fn new(features: Features) -> Result<Self> {
        Ok(Self { features, environments: Some(Environments::new()?), ..Self::default() })
    }

    /// Adds objects. Workloads of `--add` are always expanded to pods, even if they come from a server.
    pub(super) fn add(&mut self, manifests: Vec<Manifest>, is_more: bool) -> Result<()> {
        for manifest in manifests {
            self.add_one(&manifest, is_more).with_context(|| manifest.title())?;
        }
        Ok(())
    }

    fn add_one(&mut self, manifest: &Manifest, is_more: bool) -> Result<()> {
        let (version, kind) = (manifest.api_version(), manifest.kind());
        if kind.is_empty() {
            bail!("Object 'Kind' is missing");
        }
        // Kinds that do not affect placement are skipped.
        if !KINDS.contains(&kind) && !scheduling_objects::KINDS.contains(&kind) {
            return Ok(());
        }
        let Some(resource) = registry::resources::find_by_api_version(version, kind) else {
            bail!("no matches for kind \"{kind}\" in version \"{version}\"");
        };
        let is_live = manifest.value.str_at(&["metadata", "uid"]).is_some() && !is_more;
        let copies = if matches!(kind, "Node" | "Pod") { replicas::of(&manifest.value)? } else { None };
        let object = if is_live { read(resource, &manifest.value)? } else { self.admit(resource, &manifest.value)? };
        match kind {
            "Node" => {
                // What a manifest leaves out is as `celplane up` would play the node.
                let object = if is_live { object } else { completed(object)? };
                self.nodes.push((Node::read(&object)?, copies));
            }
            "Pod" => self.pods.push((own_name(Pod::read(&object)?, is_live), copies)),
            "PriorityClass" => self.classes.push(PriorityClass::read(&object)?),
            "ResourceClaimTemplate" => {
                let text = |field| Text::from(object.text_at(&["metadata", field]));
                if let Some(why) = object.str_at(&["spec", "metadata", "annotations", REJECTED]) {
                    bail!("{why}");
                }
                let spec = object.at(&["spec", "spec"]).cloned().unwrap_or_default();
                self.claim_templates.insert((text("namespace"), text("name")), spec);
            }
            "Deployment" | "DaemonSet" | "Job" | "CronJob" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => {
                self.objects.extend(object_of(kind, &object)?);
                if !is_live {
                    let made = expand::expand(kind, &object)?;
                    for (pod, copies) in made.pods {
                        let pod = self.admit(expand::pods()?, &pod).context("the pods of its template")?;
                        self.pods.push((own_name(Pod::read(&pod)?, false), copies));
                    }
                    for claim in made.claims {
                        self.objects.extend(object_of("PersistentVolumeClaim", &claim)?);
                    }
                }
            }
            kind => self.objects.extend(object_of(kind, &object)?),
        }
        Ok(())
    }

    /// The object as the server would store it.
    fn admit(&self, resource: &Resource<'_>, document: &Value) -> Result<Value> {
        let environments = self.environments.as_ref().context("expressions cannot be compiled")?;
        let namespace = document.str_at(&["metadata", "namespace"]).unwrap_or("default");
        let context = Context {
            features: self.features,
            expressions: environments,
            namespace: if resource.namespaced { namespace } else { "" },
            now: "2000-01-01T00:00:00Z",
            uid: "00000000-0000-4000-8000-000000000001",
            name_suffix: "bcdfg",
            namespace_allows_admin_access: false,
        };
        let accepted = admit::create(resource, document, &context)?;
        match accepted.strict_errors.first() {
            Some(error) => bail!("strict decoding error: {error}"),
            None => {
                let mut object = accepted.object;
                // A file may describe objects that are already at work: a pod on a node, an allocated claim.
                if let (Some(fields), Some(status)) = (object.as_object_mut(), document.get("status")) {
                    fields.insert("status", status.clone());
                }
                Ok(object)
            }
        }
    }

    /// All objects are there: what follows from several of them is worked out.
    pub(super) fn finish(mut self, needs_nodes: bool) -> Result<Self> {
        if needs_nodes && self.nodes.is_empty() {
            bail!("there are no nodes");
        }
        for (pod, _) in &mut self.pods {
            prioritize(pod, &self.classes)?;
        }
        self.bind_chosen_volumes();
        Ok(self)
    }

    /// A claim that names its volume gets it, as the volume binder of a cluster would see to.
    fn bind_chosen_volumes(&mut self) {
        for object in &mut self.objects {
            let Object::Claim(claim) = object else { continue };
            if !claim.spec.volume_name.is_empty() && !claim.metadata.annotations.contains_key(ANNOTATION_BIND_COMPLETED) {
                let mut bound = PersistentVolumeClaim::clone(claim);
                bound.metadata.annotations.insert(ANNOTATION_BIND_COMPLETED.into(), "yes".into());
                *claim = Arc::new(bound);
            }
        }
    }
}


/// Kinds that affect placement, besides those that are passed to the scheduler's core unchanged.
const KINDS: &[&str] =
    &["Node", "Pod", "PriorityClass", "ResourceClaimTemplate", "Deployment", "DaemonSet", "Job", "CronJob"];

fn completed(node: Value) -> Result<Value> {
    let name = node.text_at(&["metadata", "name"]).to_owned();
    Ok(Template::new(node)?.node(&name, 0, None, Timestamp { seconds: 0, nanos: 0 }))
}

fn read(resource: &Resource<'_>, document: &Value) -> Result<Value> {
    Ok(admit::read(resource, document, "2000-01-01T00:00:00Z")?.object)
}

/// Pods that were admitted here all have the same UID, which is meaningless.
fn own_name(mut pod: Pod, is_live: bool) -> Pod {
    if !is_live {
        pod.metadata.uid = Text::default();
    }
    pod
}

fn object_of(kind: &str, value: &Value) -> Result<Option<Object>> {
    let mut object = scheduling_objects::object_of(kind, value)?;
    if let Some(Object::ResourceClaim(claim)) = &mut object
        && claim.metadata.uid == "00000000-0000-4000-8000-000000000001"
    {
        let uid = format!("claim-{}-{}", claim.metadata.namespace, claim.metadata.name);
        let mut own = ResourceClaim::clone(claim);
        own.metadata.uid = uid.into();
        *claim = Arc::new(own);
    }
    Ok(object)
}

/// Gives a pod the priority of its class, as admission does.
fn prioritize(pod: &mut Pod, classes: &[PriorityClass]) -> Result<()> {
    if pod.spec.priority.is_some() {
        return Ok(());
    }
    let name = pod.spec.priority_class_name.clone();
    let class = match name.as_str() {
        "" => classes.iter().find(|class| class.global_default),
        name => classes.iter().find(|class| class.metadata.name == name),
    };
    let value = match (class, name.as_str()) {
        (Some(class), _) => {
            if pod.spec.preemption_policy.is_none() {
                pod.spec.preemption_policy = class.preemption_policy.clone();
            }
            class.value
        }
        (None, "") => 0,
        (None, "system-cluster-critical") => 2_000_000_000,
        (None, "system-node-critical") => 2_000_001_000,
        (None, name) => {
            return Err(anyhow!("no PriorityClass with name {name} was found").context(format!("Pod {}", pod.metadata.name)));
        }
    };
    pod.spec.priority = Some(value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::{Manifests, readable};

    #[test]
    fn every_kind_that_the_core_knows_is_taken() {
        let rule = api::json!({
            "apiVersion": "resource.k8s.io/v1alpha3", "kind": "DeviceTaintRule", "metadata": {"name": "r", "uid": "u"},
            "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "k", "effect": "NoExecute"}}
        });
        let manifests = Manifests::parse("rule.json".to_owned(), api::json::to_string(&rule));
        let mut cluster = Cluster::new(Features::default()).unwrap();
        cluster.add(readable(manifests).unwrap(), false).unwrap();
        assert!(matches!(cluster.objects.as_slice(), [Object::DeviceTaintRule(_)]));
    }
}
