//! The shape of a pod: all of its properties that affect placement, compiled once and shared by equal pods.
//!
//! Pods of one workload have one shape. Computed results of a shape apply to all its pods: programs, requests,
//! hints, and the verdicts about nodes.

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
    /// ID of the shape.
    pub id: ShapeId,
    key: Key,
    /// Requirements of the pod on nodes.
    pub matcher: PodMatcher,
    /// Demand on a node.
    pub demand: Demand,
    /// The ports of the host that it takes.
    pub ports: Vec<HostPort>,
    /// Affinity terms between pods.
    pub affinity: PodAffinity,
}

/// Properties that two pods of one shape share.
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
    /// Unused shapes are removed when this many were created since the last time.
    clear_at: u64,
}

/// Number of shapes with equal hashes that a pod is compared with. Users can create any number of pods that
/// differ only in fields that are not hashed; beyond this, pods of one template may have several shapes, which
/// only costs memory and time.
const SIMILAR_MAX: usize = 32;

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

    /// The pod spec, without the node and without volumes that do not affect scheduling.
    pub fn spec(&self) -> &PodSpec {
        &self.key.spec
    }
}

impl Key {
    fn of(pod: &Pod) -> Self {
        let mut spec = pod.spec.clone();
        spec.node_name = Text::default();
        // Volumes for tokens and configuration have different names in each pod, and do not affect scheduling.
        spec.volumes.retain(has_say);
        spec.hostname = Text::default();
        // Shared parts of pods are copied only if they must be changed.
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

/// Whether a volume affects scheduling.
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
        let mut similar = bucket.iter().rev().take(SIMILAR_MAX).filter_map(Weak::upgrade);
        if let Some(shape) = similar.find(|shape| shape.key == key) {
            return shape;
        }
        self.last = self.last.saturating_add(1);
        // A shape contains the requirements of the spec; the state of a running pod is kept with the pod.
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
        // As left by admission: the token volume has a different name in each pod.
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

    #[test]
    fn pods_with_equal_hashes_are_compared_with_few_others() {
        let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
        let matcher = Matcher::new(NonZeroUsize::new(4).unwrap(), clock, matching::Features::ALL).unwrap();
        let mut shapes = Shapes::default();
        let mut kept = Vec::new();
        let mut shape = |number: usize| {
            // Affinity is not hashed.
            let text = format!(
                r#"{{"metadata": {{"name": "p", "namespace": "d"}}, "spec": {{"containers": [], "affinity": {{"nodeAffinity": {{
                "requiredDuringSchedulingIgnoredDuringExecution": {{"nodeSelectorTerms": [{{"matchExpressions":
                    [{{"key": "k{number}", "operator": "Exists"}}]}}]}}}}}}}}}}"#
            );
            let pod: Pod = api::json::from_value(&api::json::parse(text.as_bytes()).unwrap()).unwrap();
            kept.push(shapes.intern(&pod, &matcher));
            kept.last().unwrap().id
        };
        let first = shape(0);
        assert_eq!(first, shape(0));
        (1..=SIMILAR_MAX).for_each(|number| {
            shape(number);
        });
        assert_ne!(first, shape(0), "it was not compared with the first");
        assert_eq!(shapes.known.len(), 1);
    }
}
