//! Daemon pods to create and to delete.
//!
//! [`manage`] keeps one pod (two while surging) on every node that should have one; [`replace`] exchanges pods of old
//! templates within the limits of the update strategy. Follows `podsShouldBeOnNode` and `rollingUpdate` of Kubernetes'
//! DaemonSet controller, nodes in the order of their names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::apps::v1::DaemonSet;
use api::core::v1::Pod;
use api::int_or_string::IntOrString;
use api::json::Text;
use api::time::Timestamp;
use api::well_known::LABEL_CONTROLLER_REVISION_HASH;
use client::events::Severity;

use super::backoff::Backoff;
use super::placement::Placement;
use super::pods::{PodsByNode, by_age, is_updated};
use crate::machinery::pods::{is_available, is_ready};

/// Input of the decision.
#[derive(Debug, Clone, Copy)]
pub struct ObservedState<'s> {
    /// The set.
    pub set: &'s DaemonSet,
    /// Decision about each node.
    pub nodes: &'s BTreeMap<Text, Placement>,
    /// Pods of the set.
    pub pods: &'s PodsByNode,
    /// Hash of the revision of the current template.
    pub hash: &'s str,
    /// Current time.
    pub now: Timestamp,
}

/// The decision.
#[derive(Debug, Default)]
pub struct Change {
    /// On these nodes pods are to be made.
    pub create: Vec<Text>,
    /// These pods are to go.
    pub delete: Vec<Arc<Pod>>,
    /// Events to record.
    pub events: Vec<(Severity, &'static str, String)>,
    /// Delay after which the object is reconciled again even without a change.
    pub again: Option<Duration>,
}

impl ObservedState<'_> {
    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds, self.now)
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        is_updated(pod, self.set, self.hash)
    }

    /// Number of nodes that should have a pod.
    #[must_use]
    pub fn desired(&self) -> usize {
        self.nodes.values().filter(|placement| placement.should_run).count()
    }
}

/// Keeps one pod on every node that should have one.
pub fn manage(seen: &ObservedState<'_>, backoff: &mut Backoff) -> Change {
    let mut change = Change::default();
    for (node, placement) in seen.nodes {
        let pods = seen.pods.get(node);
        match pods {
            None if placement.should_run => change.create.push(node.clone()),
            None => {}
            Some(pods) if placement.should_continue => keep_one(seen, node, *placement, pods, backoff, &mut change),
            Some(pods) => change.delete.extend(pods.iter().filter(|pod| !pod.metadata.is_deleting()).cloned()),
        }
    }
    // A pod that waits for a deleted node will never be bound, and is deleted by no other controller.
    let lost = seen.pods.iter().filter(|(node, _)| !seen.nodes.contains_key(*node));
    change.delete.extend(lost.flat_map(|(_, pods)| pods).filter(|pod| pod.spec.node_name.is_empty()).cloned());
    change
}

fn keep_one(
    seen: &ObservedState<'_>,
    node: &Text,
    placement: Placement,
    pods: &[Arc<Pod>],
    backoff: &mut Backoff,
    change: &mut Change,
) {
    let mut running: Vec<&Arc<Pod>> = Vec::new();
    for pod in pods.iter().filter(|pod| !pod.metadata.is_deleting()) {
        let name = pod.metadata.key();
        match pod.status.phase.as_str() {
            // The node may refuse the pod again and again: that must not become a race.
            "Failed" => match backoff.ask(seen.set, node, seen.now) {
                Some(wait) => change.again = Some(change.again.map_or(wait, |known| known.min(wait))),
                None => {
                    let message = format!("Found failed daemon pod {name} on node {node}, will try to kill it");
                    change.events.push((Severity::Warning, "FailedDaemonPod", message));
                    change.delete.push(pod.clone());
                }
            },
            "Succeeded" => {
                let message = format!("Found succeeded daemon pod {name} on node {node}, will try to delete it");
                change.events.push((Severity::Normal, "SucceededDaemonPod", message));
                change.delete.push(pod.clone());
            }
            _ => running.push(pod),
        }
    }
    running.sort_by(|left, right| by_age(left, right));
    let surges = surge(seen.set, 1) > 0;
    match running.as_slice() {
        [] if surges && placement.should_run => change.create.push(node.clone()),
        [] | [_] => {}
        [_, surplus @ ..] if !surges => change.delete.extend(surplus.iter().map(|pod| Arc::clone(pod))),
        all => {
            // A ready old pod may stay until the new one is ready.
            let of_hash = |pod: &&&Arc<Pod>| {
                pod.metadata.labels.get(LABEL_CONTROLLER_REVISION_HASH).is_some_and(|hash| hash == seen.hash)
            };
            let new = all.iter().find(of_hash);
            let old = all.iter().find(|pod| !of_hash(pod));
            let stays = |pod: &&&Arc<Pod>| {
                let is = |other: Option<&&Arc<Pod>>| other.is_some_and(|other| Arc::ptr_eq(other, pod));
                is(new) || is(old)
            };
            change.delete.extend(all.iter().filter(|pod| !stays(pod)).map(|pod| Arc::clone(pod)));
            if let (Some(new), Some(old)) = (new, old)
                && (!is_ready(old) || seen.is_available(new))
            {
                change.delete.push(Arc::clone(old));
            }
        }
    }
}

/// Exchanges pods of old templates, as many at a time as the strategy allows.
#[must_use]
pub fn replace(seen: &ObservedState<'_>) -> Change {
    if seen.set.spec.update_strategy.strategy_type != "RollingUpdate" {
        return Change::default();
    }
    let desired = seen.desired();
    let surge = surge(seen.set, desired);
    if surge > 0 {
        return replace_surging(seen, desired, surge);
    }
    let unavailable_max = unavailable(seen.set, desired);
    // Where neither is allowed, nothing would ever happen.
    let unavailable_max = if unavailable_max == 0 && desired > 0 { 1 } else { unavailable_max };
    let mut unavailable = 0_usize;
    let mut change = Change::default();
    let mut candidates = Vec::new();
    for (_, pods) in with_empty_nodes(seen) {
        let counts = match new_and_old(seen, pods) {
            Some((Some(new), None)) => !seen.is_available(new),
            Some((None, Some(old))) if !seen.is_available(old) => {
                change.delete.push(old.clone());
                true
            }
            Some((None, Some(old))) => {
                candidates.push(old.clone());
                false
            }
            // Surplus or missing pods are handled elsewhere.
            _ => true,
        };
        unavailable = unavailable.saturating_add(usize::from(counts));
    }
    change.delete.extend(candidates.into_iter().take(unavailable_max.saturating_sub(unavailable)));
    change
}

/// New pods come before old ones go.
fn replace_surging(seen: &ObservedState<'_>, desired: usize, surge_max: usize) -> Change {
    let mut change = Change::default();
    let (mut surging, mut available) = (0_usize, 0_usize);
    let (mut candidates, mut unwanted) = (Vec::new(), Vec::new());
    for (node, pods) in with_empty_nodes(seen) {
        let Some((new, old)) = new_and_old(seen, pods) else {
            surging = surging.saturating_add(1);
            continue;
        };
        available = available.saturating_add(usize::from(old.or(new).is_some_and(|pod| seen.is_available(pod))));
        let should_run = seen.nodes.get(node).is_some_and(|placement| placement.should_run);
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (seen.is_available(old), should_run) {
                (false, false) => change.delete.push(old.clone()),
                (false, true) => change.create.push(node.clone()),
                (true, false) => unwanted.push(old.clone()),
                (true, true) => candidates.push(node.clone()),
            },
            (Some(new), Some(_)) if !seen.is_available(new) => surging = surging.saturating_add(1),
            (Some(_), Some(old)) => change.delete.push(old.clone()),
        }
    }
    // Surplus pods are deleted when others have replaced them.
    change.delete.extend(unwanted.into_iter().take(available.saturating_sub(desired)));
    change.create.extend(candidates.into_iter().take(surge_max.saturating_sub(surging)));
    change
}

/// The pods of all nodes that have or should have one.
fn with_empty_nodes<'s>(seen: &ObservedState<'s>) -> BTreeMap<&'s Text, &'s [Arc<Pod>]> {
    let wanting = seen.nodes.iter().filter(|(_, placement)| placement.should_run).map(|(node, _)| (node, &[][..]));
    wanting.chain(seen.pods.iter().map(|(node, pods)| (node, pods.as_slice()))).collect()
}

type PodPair<'p> = (Option<&'p Arc<Pod>>, Option<&'p Arc<Pod>>);

/// The one new and the one old pod of a node; nothing if there are more.
fn new_and_old<'p>(seen: &ObservedState<'_>, pods: &'p [Arc<Pod>]) -> Option<PodPair<'p>> {
    let (mut new, mut old) = (None, None);
    for pod in pods.iter().filter(|pod| !pod.metadata.is_deleting()) {
        let slot = if seen.is_updated(pod) { &mut new } else { &mut old };
        if slot.replace(pod).is_some() {
            return None;
        }
    }
    Some((new, old))
}

/// Maximum number of additional pods.
fn surge(set: &DaemonSet, desired: usize) -> usize {
    limit(set, desired, |rolling| rolling.max_surge.as_ref())
}

/// Maximum number of unavailable pods.
fn unavailable(set: &DaemonSet, desired: usize) -> usize {
    limit(set, desired, |rolling| rolling.max_unavailable.as_ref())
}

fn limit(
    set: &DaemonSet,
    desired: usize,
    field: impl Fn(&api::apps::v1::RollingUpdate) -> Option<&IntOrString>,
) -> usize {
    let strategy = &set.spec.update_strategy;
    let rolling = strategy.rolling_update.as_ref().filter(|_| strategy.strategy_type == "RollingUpdate");
    let desired = i64::try_from(desired).unwrap_or(i64::MAX);
    // The server accepts only valid values: an invalid one allows nothing.
    let count = rolling.and_then(field).and_then(|value| value.scaled(desired, true).ok()).unwrap_or(0);
    usize::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests;
