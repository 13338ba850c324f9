//! Making room: which pods of lower priority would have to go so that a pod fits.
//!
//! Follows Kubernetes' `framework/preemption` and `plugins/defaultpreemption`: on each node that might help, all less
//! important pods are imagined away, and brought back one by one, most important first, as long as the pod still fits.

mod candidates;
mod victims;

use std::sync::Arc;

use api::json::Text;
pub use candidates::{Candidate, best, candidates};

use crate::cluster::{Cluster, PodInfo};
use crate::diagnosis::Diagnosis;
use crate::framework::{Code, Status};
use crate::profile::Profile;
use crate::random::Random;
use crate::writes::Write;

/// A pod that fits nowhere, and all that is known about it.
#[derive(Debug)]
pub struct PostFilter<'a, 'c> {
    /// The pod.
    pub pod: &'c PodInfo,
    /// The cluster.
    pub cluster: &'c Cluster,
    /// The plugins.
    pub profile: &'c Profile,
    /// Reasons why the pod fits nowhere.
    pub diagnosis: &'a Diagnosis,
    /// For choices between equals.
    pub random: &'a mut Random,
}

/// Result of preemption.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// For the pod's events.
    pub message: String,
    /// Node on which pods are preempted, if there is one.
    pub nomination: Option<Nomination>,
    /// Whether an existing nomination is still valid.
    pub keeps_nomination: bool,
    /// Objects to write.
    pub writes: Vec<Write>,
}

/// A node on which pods are preempted for a pod.
#[derive(Debug, Clone)]
pub struct Nomination {
    /// The node.
    pub node: Text,
    /// The pods that have to go, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// Less important pods for which room was being made there: they must look elsewhere.
    pub displaced: Vec<Arc<PodInfo>>,
}

/// Limits on the number of nodes to try.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// In percent of those that might help.
    pub percentage: usize,
    /// At least.
    pub absolute: usize,
}

impl Limits {
    fn of(self, nodes: usize) -> usize {
        nodes.saturating_mul(self.percentage).checked_div(100).unwrap_or(0).max(self.absolute).min(nodes)
    }
}

/// Looks for a node where room can be made.
pub fn preempt(failed: &mut PostFilter<'_, '_>, limits: Limits) -> Answer {
    let (pod, cluster) = (failed.pod, failed.cluster);
    let say = |message: &str| Answer { message: message.to_owned(), keeps_nomination: true, ..Answer::default() };
    if pod.spec().preemption_policy.as_deref() == Some("Never") {
        return say("not eligible due to preemptionPolicy=Never.");
    }
    if waits_for_victims(pod, cluster, failed.diagnosis) {
        return say("not eligible due to a terminating pod on the nominated node.");
    }
    let potential = failed.diagnosis.resolvable(cluster.cache.order().iter().copied());
    let start = failed.random.below(potential.len());
    let found = candidates(failed.profile, pod, cluster, &potential, start, limits.of(potential.len()));
    let chosen = match found {
        Ok((candidates, _)) if !candidates.is_empty() => best(&candidates).into_iter().next().cloned(),
        Ok((_, statuses)) => {
            let others = Status::new(Code::UnschedulableAndUnresolvable, "Preemption is not helpful for scheduling");
            let diagnosis = Diagnosis {
                nodes: cluster.cache.order().len(),
                by_node: statuses,
                others: Some(Arc::new(others)),
                ..Diagnosis::default()
            };
            return Answer { message: diagnosis.message(), ..Answer::default() };
        }
        Err(status) => return say(&status.message()),
    };
    let Some(Candidate { node, victims, .. }) = chosen else { return say("no candidate node for preemption") };
    let message = format!("found a potential placement for pod on node {node}, preempting {} victims", victims.len());
    let less_important = |other: &&Arc<PodInfo>| other.uid != pod.uid && other.priority() < pod.priority();
    let displaced = cluster.nominated.on(&node).iter().filter(less_important).cloned().collect();
    Answer {
        message,
        nomination: Some(Nomination { node, victims, displaced }),
        keeps_nomination: true,
        ..Answer::default()
    }
}

/// Whether the pod is nominated and its victims are terminating.
fn waits_for_victims(pod: &PodInfo, cluster: &Cluster, diagnosis: &Diagnosis) -> bool {
    let nominated = cluster.nominated.node_of(&pod.uid).unwrap_or(&pod.nominated_node);
    let Some(node) = cluster.cache.node_named(nominated) else { return false };
    diagnosis.code_of(node.id) != Some(Code::UnschedulableAndUnresolvable)
        && node.pods.iter().any(|other| other.priority() < pod.priority() && other.is_deleting && other.is_preempted)
}
