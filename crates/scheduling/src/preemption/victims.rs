//! The fewest and least important pods of a node that have to go.

use std::cmp::Reverse;
use std::sync::Arc;

use api::time::Timestamp;

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::cycle::Filters;
use crate::framework::Status;

/// The pods that have to go, most important first.
#[derive(Debug)]
pub(super) struct Victims {
    pub(super) pods: Vec<Arc<PodInfo>>,
    /// Number of victims that a disruption budget protects.
    pub(super) violations: usize,
}

/// Start time of a pod as a sort key; pods that have not started come last.
pub(super) fn start_time(pod: &PodInfo) -> (bool, Option<Timestamp>) {
    (pod.start_time.is_none(), pod.start_time)
}

fn importance(pod: &PodInfo) -> (Reverse<i32>, (bool, Option<Timestamp>)) {
    (Reverse(pod.priority()), start_time(pod))
}

/// The pods that have to go from a node.
pub(super) fn select(
    filters: &Filters<'_>,
    pod: &PodInfo,
    node: &NodeInfo,
    cluster: &Cluster,
) -> Result<Victims, Status> {
    let mut possible: Vec<Arc<PodInfo>> =
        node.pods.iter().filter(|other| other.priority() < pod.priority()).cloned().collect();
    if possible.is_empty() {
        return Err(Status::unresolvable("No preemption victims found for incoming pod"));
    }
    let mut filters = filters.copy();
    let mut node = node.clone();
    for victim in &possible {
        node.remove_pod(&victim.uid);
        filters.pod_removed(victim, &node);
    }
    filters.ask_with_nominated(pod, &node, cluster)?;
    possible.sort_by_key(|victim| importance(victim));
    let (protected, free) = by_budget(&possible, cluster);
    let count_protected = protected.len();
    let has_both = !protected.is_empty() && !free.is_empty();
    let mut victims = Vec::new();
    let mut violations: usize = 0;
    for (index, victim) in protected.into_iter().chain(free).enumerate() {
        node.add_pod(victim.clone());
        filters.pod_added(&victim, &node);
        if filters.ask_with_nominated(pod, &node, cluster).is_ok() {
            continue;
        }
        node.remove_pod(&victim.uid);
        filters.pod_removed(&victim, &node);
        if index < count_protected {
            violations = violations.saturating_add(1);
        }
        victims.push(victim);
    }
    if has_both {
        victims.sort_by_key(|victim| importance(victim));
    }
    Ok(Victims { pods: victims, violations })
}

/// Pods that a disruption budget protects, and the others.
fn by_budget(pods: &[Arc<PodInfo>], cluster: &Cluster) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let budgets = cluster.objects.disruption_budgets.values();
    // A budget that selects nothing in particular protects nothing; neither does one that cannot be read.
    let mut budgets: Vec<_> = budgets
        .filter_map(|budget| {
            let selector = budget.spec.selector.as_ref()?.to_selector().ok()?;
            (!selector.is_empty()).then_some((budget, selector, i64::from(budget.status.disruptions_allowed)))
        })
        .collect();
    let (mut protected, mut free) = (Vec::new(), Vec::new());
    for pod in pods {
        // The first budget that is used up settles it: those after it are not drawn on.
        let violates = !pod.labels().is_empty()
            && budgets.iter_mut().any(|(budget, selector, allowed)| {
                let applies = budget.metadata.namespace == *pod.namespace()
                    && selector.matches(pod.labels())
                    // It is already being evicted, and was counted.
                    && !budget.status.disrupted_pods.contains_key(&pod.name);
                if applies {
                    *allowed = allowed.saturating_sub(1);
                }
                applies && *allowed < 0
            });
        if violates { protected.push(pod.clone()) } else { free.push(pod.clone()) }
    }
    (protected, free)
}
