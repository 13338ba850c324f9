//! The shape of a pod: everything about it that decides where it can run, compiled once and shared by all pods alike.
//!
//! Pods of one workload have one shape. What is worked out for a shape holds for all its pods: programs, requests, hints,
//! and the verdicts about nodes.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use api::core::v1::{Pod, PodSpec, Volume};
use api::json::Text;
use api::meta::v1::{OwnerReference, StringMap};
use matching::host_ports::{self, HostPort};
use matching::pod_affinity::PodAffinity;
use matching::resources::Demand;
use matching::{Matcher, PodMatcher};

/// The number of a shape; never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ShapeId(pub(crate) u64);

/// The shape of a pod.
#[derive(Debug)]
pub struct Shape {
    /// Its number.
    pub id: ShapeId,
    key: Key,
    /// What the pod asks of nodes.
    pub matcher: PodMatcher,
    /// What it takes of a node.
    pub demand: Demand,
    /// The ports of the host that it takes.
    pub ports: Vec<HostPort>,
    /// Its rules about other pods.
    pub affinity: PodAffinity,
}

/// What makes two pods alike.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    namespace: Text,
    labels: StringMap,
    owner: Option<OwnerReference>,
    spec: PodSpec,
    /// The pod's name, where its claims to volumes are named after it.
    name: Text,
}

/// All shapes that are in use.
#[derive(Debug, Default)]
pub struct Shapes {
    known: HashMap<u64, Vec<Weak<Shape>>>,
    last: u64,
    /// Shapes that nobody uses any more are cleared away when this many were made since the last time.
    clear_at: u64,
}

impl Shape {
    /// The pod's namespace.
    pub fn namespace(&self) -> &Text {
        &self.key.namespace
    }

    /// The pod's labels.
    pub fn labels(&self) -> &StringMap {
        &self.key.labels
    }

    /// The owner that controls the pod.
    pub fn owner(&self) -> Option<&OwnerReference> {
        self.key.owner.as_ref()
    }

    /// What is wanted, without the node and without volumes that have no say.
    pub fn spec(&self) -> &PodSpec {
        &self.key.spec
    }
}

impl Key {
    fn of(pod: &Pod) -> Self {
        let mut spec = pod.spec.clone();
        spec.node_name = Text::default();
        // Tokens and configuration have names of their own in each pod, and are the same to all nodes.
        spec.volumes.retain(has_say);
        spec.hostname = Text::default();
        // What pods have in common is copied only if it must be changed.
        if !spec.subdomain.is_empty() {
            spec.subdomain = Text::default();
        }
        let is_named = spec.volumes.iter().any(|volume| volume.ephemeral.is_some());
        Key {
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            owner: pod.metadata.controller().cloned(),
            spec,
            name: if is_named { pod.metadata.name.clone() } else { Text::default() },
        }
    }

    /// A few fields that differ between most workloads; equal hashes are compared in full.
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.namespace, &self.labels, &self.name, &self.spec.node_selector).hash(&mut hasher);
        self.owner.as_ref().map(|owner| &owner.uid).hash(&mut hasher);
        (self.spec.priority, &self.spec.scheduler_name).hash(&mut hasher);
        for container in &self.spec.containers {
            container.image.hash(&mut hasher);
            for (name, amount) in &container.resources.requests {
                (name, amount.milli_value()).hash(&mut hasher);
            }
        }
        for toleration in &self.spec.tolerations {
            (&toleration.key, &toleration.value, &toleration.expression).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Whether the scheduler looks at a volume.
fn has_say(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some()
        || volume.ephemeral.is_some()
        || volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.iscsi.is_some()
        || volume.rbd.is_some()
        || volume.azure_disk.is_some()
        || volume.azure_file.is_some()
        || volume.cinder.is_some()
        || volume.portworx_volume.is_some()
        || volume.vsphere_volume.is_some()
        || volume.csi.is_some()
        || volume.image.is_some()
}

impl Shapes {
    /// The one shape of pods like this.
    pub fn intern(&mut self, pod: &Pod, matcher: &Matcher) -> Arc<Shape> {
        let key = Key::of(pod);
        let bucket = self.known.entry(key.hash()).or_default();
        if let Some(shape) = bucket.iter().filter_map(Weak::upgrade).find(|shape| shape.key == key) {
            return shape;
        }
        self.last = self.last.saturating_add(1);
        // A shape is what the pod asks for; what a running one has beside that is the pod's own.
        let wanted = Pod { spec: key.spec.clone(), ..Pod::default() };
        let shape = Arc::new(Shape {
            id: ShapeId(self.last),
            matcher: matcher.pod(&key.spec),
            demand: Demand::of(&wanted),
            ports: host_ports::of_pod(&key.spec).collect(),
            affinity: PodAffinity::new(&key.spec, &key.namespace),
            key,
        });
        bucket.push(Arc::downgrade(&shape));
        if self.last >= self.clear_at {
            self.known.retain(|_, bucket| {
                bucket.retain(|shape| shape.strong_count() > 0);
                !bucket.is_empty()
            });
            self.clear_at = self.last.saturating_add((self.known.len() as u64).max(256));
        }
        shape
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use super::*;

    #[test]
    fn pods_of_one_template_have_one_shape() {
        let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
        let matcher = Matcher::new(NonZeroUsize::new(4).unwrap(), clock, matching::Features::ALL).unwrap();
        let mut shapes = Shapes::default();
        // As admission leaves them: the volume of the token has a name of its own in each.
        let mut shape = |name: &str, cpu: &str| {
            let text = format!(
                r#"{{"metadata": {{"name": "{name}", "namespace": "d", "uid": "{name}"}}, "spec": {{"hostname": "{name}",
                "containers": [{{"name": "c", "image": "i", "resources": {{"requests": {{"cpu": "{cpu}"}}}},
                    "volumeMounts": [{{"name": "kube-api-access-{name}", "mountPath": "/token"}}]}}],
                "volumes": [{{"name": "kube-api-access-{name}", "projected": {{}}}}]}}}}"#
            );
            let pod: Pod = api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
            shapes.intern(&pod, &matcher)
        };
        let first = shape("a", "1");
        assert_eq!(first.id, shape("b", "1").id);
        assert_ne!(first.id, shape("c", "2").id);
    }
}
