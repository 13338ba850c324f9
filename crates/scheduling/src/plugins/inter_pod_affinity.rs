//! InterPodAffinity: pods that must, or would rather, be together or apart within a topology.
//!
//! Terms are compiled with the shape of a pod, and pods of one shape are matched once: the work depends on the
//! number of shapes and of nodes with them, not on the number of pods.

mod hints;
mod scoring;
mod topology;

use api::field::{Errors, Path};
use api::json::Value;
use api::meta::v1::StringMap;
use matching::Matcher;
use matching::pod_affinity::AffinityTerm;

use self::topology::Topology;
use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo, Shape};
use crate::framework::{
    Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, PreScore, Resource, Status,
};

pub(crate) const NAME: &str = "InterPodAffinity";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

#[derive(Debug)]
struct InterPodAffinity {
    /// Weight of an existing pod's required term that matches the new pod.
    hard_weight: i32,
    ignores_existing_preferences: bool,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    hard_pod_affinity_weight: i32,
    ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for Args {
    fn default() -> Self {
        Args { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    args::write(&args::read::<Args>(given)?)
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let hard_weight = args.hard_pod_affinity_weight;
    let mut errors = Errors::new();
    if !(0..=100).contains(&hard_weight) {
        errors.invalid(Path::new("hardPodAffinityWeight"), hard_weight, "not in valid range [0, 100]");
    }
    args::check(&errors)?;
    Ok(Box::new(InterPodAffinity {
        hard_weight,
        ignores_existing_preferences: args.ignore_preferred_terms_of_existing_pods,
    }))
}

impl Plugin for InterPodAffinity {
    fn events(&self) -> Vec<Event> {
        let pods = Action::ADD.or(Action::UPDATE_POD_LABEL).or(Action::DELETE);
        vec![
            Event::new(Resource::AssignedPod, pods),
            Event::new(Resource::TargetPod, Action::UPDATE_POD_LABEL),
            Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_LABEL)),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: Event, change: Change<'_>, _: &Cluster) -> Hint {
        if hints::helps(pod, event, change) { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        if let Some(error) = pod.affinity.error() {
            return PreFilter::Reject(Status::unresolvable(format!("parsing pod: {error}")));
        }
        let together = AffinityFilter::new(pod, cluster);
        let has_terms = !pod.affinity.required.is_empty() || !pod.affinity.required_anti.is_empty();
        if !has_terms && together.existing_anti.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Ask(Box::new(together))
    }

    fn pre_score<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster, nodes: Option<&[NodeId]>) -> PreScore<'c> {
        let prefers = !pod.affinity.preferred.is_empty() || !pod.affinity.preferred_anti.is_empty();
        if self.ignores_existing_preferences && !prefers {
            return PreScore::Skip;
        }
        match scoring::Preference::new(pod, cluster, self.hard_weight, prefers, nodes.is_none()) {
            Some(_) if nodes.is_none() => PreScore::Together,
            Some(preference) => PreScore::Ask(Box::new(preference)),
            None => PreScore::Skip,
        }
    }
}

/// The labels of a namespace; none if it is not known.
fn namespace_labels<'c>(cluster: &'c Cluster, namespace: &str) -> Option<&'c StringMap> {
    let name = (api::json::Text::default(), namespace.into());
    cluster.objects.namespaces.get(&name).map(|namespace| &namespace.metadata.labels)
}

fn resolved(term: &AffinityTerm, cluster: &Cluster) -> AffinityTerm {
    let namespaces = cluster.objects.namespaces.iter();
    term.resolved(namespaces.map(|((_, name), namespace)| (name, &namespace.metadata.labels)))
}

/// Whether there are terms and all of them mean the pod. Their namespaces must be resolved.
fn all_match(terms: &[AffinityTerm], shape: &Shape) -> bool {
    !terms.is_empty() && terms.iter().all(|term| matches(term, shape))
}

fn matches(term: &AffinityTerm, shape: &Shape) -> bool {
    term.matches(shape.namespace(), shape.labels(), &StringMap::new())
}

#[derive(Clone)]
struct AffinityFilter<'c> {
    pod: &'c PodInfo,
    namespace_labels: StringMap,
    required: Vec<AffinityTerm>,
    required_anti: Vec<AffinityTerm>,
    /// Existing pods with anti-affinity to this one.
    existing_anti: Topology,
    /// Pods that this one must be together with.
    affinity: Topology,
    /// Pods that this one must be apart from.
    anti: Topology,
}

impl<'c> AffinityFilter<'c> {
    fn new(pod: &'c PodInfo, cluster: &Cluster) -> Self {
        let resolve = |terms: &[AffinityTerm]| terms.iter().map(|term| resolved(term, cluster)).collect::<Vec<_>>();
        let mut together = AffinityFilter {
            pod,
            namespace_labels: namespace_labels(cluster, pod.namespace()).cloned().unwrap_or_default(),
            required: resolve(&pod.affinity.required),
            required_anti: resolve(&pod.affinity.required_anti),
            existing_anti: Topology::default(),
            affinity: Topology::default(),
            anti: Topology::default(),
        };
        for (shape, nodes) in cluster.cache.shapes() {
            for (node, count) in nodes {
                let Some(node) = cluster.cache.node(*node) else { continue };
                if !together.count(shape, node, i64::from(count.all)) {
                    break;
                }
            }
        }
        together
    }

    /// Counts pods of a shape on a node; returns false if they are irrelevant to this pod on every node.
    fn count(&mut self, shape: &Shape, node: &NodeInfo, by: i64) -> bool {
        let mut counts = false;
        for term in &shape.affinity.required_anti {
            if term.matches(self.pod.namespace(), self.pod.labels(), &self.namespace_labels) {
                self.existing_anti.add(node, &term.topology_key, by);
                counts = true;
            }
        }
        if all_match(&self.required, shape) {
            for term in &self.required {
                self.affinity.add(node, &term.topology_key, by);
            }
            counts = true;
        }
        for term in self.required_anti.iter().filter(|term| matches(term, shape)) {
            self.anti.add(node, &term.topology_key, by);
            counts = true;
        }
        counts
    }

    fn satisfies_affinity(&self, node: &NodeInfo) -> bool {
        let mut all_there = true;
        for term in &self.required {
            match node.object.matching.labels.get(&term.topology_key) {
                Some(value) => all_there &= self.affinity.at(&term.topology_key, value) > 0,
                None => return false,
            }
        }
        // Otherwise the first pod of a group with affinity to itself would wait forever.
        all_there || (self.affinity.is_empty() && all_match(&self.required, self.pod))
    }
}

impl Filter for AffinityFilter<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        if !self.satisfies_affinity(node) {
            return Err(Status::unresolvable("node(s) didn't match pod affinity rules"));
        }
        if self.anti.any_on(node) {
            return Err(Status::unschedulable("node(s) didn't match pod anti-affinity rules"));
        }
        if self.existing_anti.any_on(node) {
            return Err(Status::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }

    fn pod_added(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.count(pod, node, 1);
    }

    fn pod_removed(&mut self, pod: &PodInfo, node: &NodeInfo) {
        self.count(pod, node, -1);
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(self.clone())
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::PODS)
    }
}
