//! Results of the scheduler itself: every plugin on every node, its actions, and the changes that would help.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use api::core::v1::{Node, PersistentVolumeClaim, Pod};
use api::features::Features;
use api::json::Text;
use api::quantity::Quantity;
use api::well_known::{ANNOTATION_BIND_COMPLETED, LABEL_ARCH, LABEL_HOSTNAME, LABEL_INSTANCE_TYPE, LABEL_OS};
use matching::Matcher;
use scheduling::Scheduler;
use scheduling::cluster::{Devices, Object};
use scheduling::config::Configuration;
use scheduling::explain::Explanation;
use scheduling::explain::remedies::{self, Remedy};

use super::cluster::Cluster;

/// Labels that nodes set on themselves.
const OF_THE_NODE: [&str; 4] = [LABEL_HOSTNAME, LABEL_OS, LABEL_ARCH, LABEL_INSTANCE_TYPE];

/// Results of the scheduler.
#[derive(Debug)]
pub(super) struct SchedulerResult {
    pub(super) known: Explanation,
    /// Changes of which each alone would let the pod run.
    pub(super) remedies: Vec<Remedy>,
    /// Whether some nodes have no allocatable resources.
    pub(super) has_boundless_nodes: bool,
    /// Fields of the pod that have no effect because their feature gate is off in the scheduler.
    pub(super) closed_fields: Vec<String>,
}

/// Runs a scheduler with the cluster.
pub(super) fn ask(cluster: &Cluster, configuration: &Configuration, features: Features) -> Result<SchedulerResult> {
    let started = Instant::now();
    let clock = Arc::new(move || started.elapsed());
    let capacity = NonZeroUsize::new(4096).context("a capacity is not zero")?;
    let matcher = Arc::new(Matcher::new(capacity, clock.clone(), features.into())?);
    let devices = Devices::new(
        dra::Inventory::new(matcher.clone(), features.into()),
        Arc::new(dra::Expressions::new(capacity, clock)?),
    );
    let profiles = configuration.make_profiles(&matcher)?;
    let mut scheduler = Scheduler::new(profiles, configuration.backoff(), matcher, 1).with_devices(devices);
    let now = Duration::ZERO;
    let nodes: Vec<Node> = cluster.nodes.iter().map(|node| with_room(node, &cluster.pod)).collect();
    for object in &cluster.objects {
        scheduler.set_object(&bound(object), now);
    }
    for node in &nodes {
        scheduler.set_node(node, now);
    }
    // Pods that wait take no room yet, unless it is being made for them.
    for pod in cluster.pods.iter().filter(|pod| takes_room(pod)) {
        scheduler.set_pod(pod, now);
    }
    let pod = &cluster.pod;
    let view = scheduler.view(pod);
    if let Some(why) = &view.rejection {
        return Err(anyhow!("{why}"));
    }
    if scheduler.profile(&view).is_none() {
        let name = &pod.spec.scheduler_name;
        return Err(anyhow!(
            "no profile for scheduler name \"{name}\": give its configuration with --scheduler-config"
        ));
    }
    let known = scheduler.explain(pod).map_err(|status| anyhow!("{}", status.message()))?;
    let fits_nowhere = known.gate.is_none() && known.fitting() == 0;
    let mut remedies = if fits_nowhere { remedies::find(&mut scheduler, pod, &nodes, &known) } else { Vec::new() };
    // Labels that a node sets on itself would be restored.
    remedies.retain(|it| !matches!(it, Remedy::Label { key, .. } if OF_THE_NODE.contains(&key.as_str())));
    let has_boundless_nodes = cluster.nodes.iter().any(|node| node.status.allocatable.is_empty());
    let closed = cluster.gated_fields.iter().filter(|(_, needs)| !needs.are_met(features));
    let closed_fields =
        closed.map(|(path, needs)| format!("{path} has no effect: {} is off in the scheduler", needs.text())).collect();
    Ok(SchedulerResult { known, remedies, has_boundless_nodes, closed_fields })
}

fn takes_room(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() || !pod.status.nominated_node_name.is_empty()
}

/// A node of a file without allocatable resources gets sufficient ones.
fn with_room(node: &Node, pod: &Pod) -> Node {
    let mut node = node.clone();
    if node.status.allocatable.is_empty() {
        let requested = pod.spec.containers.iter().chain(&pod.spec.init_containers);
        let requested = requested.flat_map(|container| container.resources.requests.keys());
        let usual = ["pods", "cpu", "memory", "ephemeral-storage"].map(Text::from);
        for resource in requested.cloned().chain(usual) {
            if let Ok(plenty) = Quantity::parse("1P") {
                node.status.allocatable.insert(resource, plenty);
            }
        }
    }
    node
}

/// A claim that names its volume has it, as the volume binder of a cluster would see to.
fn bound(object: &Object) -> Object {
    let Object::Claim(claim) = object else { return object.clone() };
    if claim.spec.volume_name.is_empty() || claim.metadata.annotations.contains_key(ANNOTATION_BIND_COMPLETED) {
        return object.clone();
    }
    let mut bound = PersistentVolumeClaim::clone(claim);
    bound.metadata.annotations.insert(ANNOTATION_BIND_COMPLETED.into(), "yes".into());
    Object::Claim(Arc::new(bound))
}
