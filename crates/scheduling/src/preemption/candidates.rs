//! The nodes on which room could be made, and which of them costs the least.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::json::Text;

use super::victims::{Victims, select, start_time};
use crate::cluster::{Cluster, NodeId, PodInfo};
use crate::cycle::{Filters, filter_failed};
use crate::framework::{Code, Status};
use crate::profile::Profile;

/// A node on which room could be made.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The node.
    pub node: Text,
    /// The pods that would have to go, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// Number of victims that a disruption budget protects.
    pub violations: usize,
}

/// Rejections of nodes.
type Statuses = Vec<(NodeId, Arc<Status>)>;

/// The nodes on which room could be made: at most `enough`, from `start` on.
///
/// # Errors
/// Something went wrong, and no node was found.
pub fn candidates(
    profile: &Profile,
    pod: &PodInfo,
    cluster: &Cluster,
    potential: &[NodeId],
    start: usize,
    enough: usize,
) -> Result<(Vec<Candidate>, Statuses), Status> {
    let (mut without, mut with): (Vec<Candidate>, Vec<Candidate>) = (Vec::new(), Vec::new());
    let mut statuses = Statuses::new();
    let mut errors: Vec<String> = Vec::new();
    let Ok(filters) = Filters::new(profile, pod, cluster) else { return Ok((Vec::new(), statuses)) };
    let (before, after) = potential.split_at_checked(start).unwrap_or((&[], potential));
    for node in after.iter().chain(before).filter_map(|id| cluster.cache.node(*id)) {
        match select(&filters, pod, node, cluster) {
            Ok(Victims { pods, violations }) if !pods.is_empty() => {
                let found = Candidate { node: node.name().clone(), victims: pods, violations };
                if violations == 0 {
                    without.push(found)
                } else {
                    with.push(found)
                }
                if !without.is_empty() && without.len().saturating_add(with.len()) >= enough {
                    break;
                }
            }
            Ok(_) => {
                errors.push(format!("expected at least one victim pod on node \"{}\"", node.name()));
            }
            Err(status) => {
                if status.code == Code::Error {
                    errors.push(filter_failed(status.clone()).message());
                }
                statuses.push((node.id, Arc::new(status)));
            }
        }
    }
    without.append(&mut with);
    if without.is_empty() && !errors.is_empty() {
        return Err(Status::error(all_of(errors)));
    }
    Ok((without, statuses))
}

/// One message as it is, several distinct ones in brackets.
fn all_of(mut messages: Vec<String>) -> String {
    let mut seen = BTreeSet::new();
    messages.retain(|message| seen.insert(message.clone()));
    match messages.as_slice() {
        [only] => only.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The candidates that cost the least; several only if they tie in everything.
pub fn best(candidates: &[Candidate]) -> Vec<&Candidate> {
    let cost = |candidate: &Candidate| {
        let highest = candidate.victims.first().map_or(i32::MIN, |pod| pod.priority());
        // Raised so that a node with few victims of negative priority is not beaten by one with many.
        let raised = |pod: &Arc<PodInfo>| i64::from(pod.priority()).saturating_add(1 << 31);
        let sum = candidate.victims.iter().map(raised).fold(0, i64::saturating_add);
        let top = candidate.victims.iter().map(|pod| pod.priority()).max();
        let of_top = candidate.victims.iter().filter(|pod| Some(pod.priority()) == top);
        let earliest = of_top.map(|pod| start_time(pod)).min();
        (candidate.violations, highest, sum, candidate.victims.len(), std::cmp::Reverse(earliest))
    };
    let least = candidates.iter().map(cost).min();
    candidates.iter().filter(|candidate| Some(cost(candidate)) == least).collect()
}
