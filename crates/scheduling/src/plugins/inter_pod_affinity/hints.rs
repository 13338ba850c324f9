//! Whether a change may help a pod that could not be together with some, or apart from others.

use matching::pod_affinity::{AffinityTerm, TermKind};

use super::{all_match, matches};
use crate::cluster::{NodeObject, PodInfo};
use crate::framework::{Change, Event, Resource};

pub(super) fn helps(pod: &PodInfo, event: Event, change: Change<'_>) -> bool {
    if event.resource == Resource::TargetPod {
        return true;
    }
    match change {
        Change::Pod { old, new } => pod_helps(pod, old, new),
        Change::Node { old, new: Some(new) } => node_helps(pod, old, new),
        _ => true,
    }
}

/// Whether terms are unreadable: in that case the pod is tried.
fn is_in_doubt(pod: &PodInfo) -> bool {
    pod.affinity.fails(TermKind::Required) || pod.affinity.fails(TermKind::RequiredAnti)
}

fn pod_helps(pod: &PodInfo, old: Option<&PodInfo>, new: Option<&PodInfo>) -> bool {
    let is_unplaced = |other: &PodInfo| other.node_name.is_empty() && other.nominated_node.is_empty();
    if [old, new].into_iter().flatten().any(is_unplaced) {
        return false;
    }
    if is_in_doubt(pod) {
        return true;
    }
    let wants = |other: &PodInfo| all_match(&pod.affinity.required, other);
    let avoids = |other: &PodInfo| pod.affinity.required_anti.iter().any(|term| matches(term, other));
    match (old, new) {
        (Some(old), Some(new)) => (!wants(old) && wants(new)) || (avoids(old) && !avoids(new)),
        (None, Some(new)) => wants(new),
        (Some(old), None) => {
            let other = &old.affinity;
            avoids(old)
                || other.fails(TermKind::RequiredAnti)
                || other.required_anti.iter().any(|term| matches(term, pod))
        }
        (None, None) => true,
    }
}

fn node_helps(pod: &PodInfo, old: Option<&NodeObject>, new: &NodeObject) -> bool {
    let value =
        |node: &NodeObject, term: &AffinityTerm| node.matching.labels.get(&term.topology_key).map(str::to_owned);
    let affinity = pod.affinity.required.iter().any(|term| match old.map(|old| value(old, term)) {
        None => value(new, term).is_some(),
        Some(before) => value(new, term).is_some_and(|after| before != Some(after)),
    });
    // A node without the label always satisfies anti-affinity.
    let anti = pod.affinity.required_anti.iter().any(|term| match old.map(|old| value(old, term)) {
        None => true,
        Some(before) => before.is_some() && before != value(new, term),
    });
    affinity || anti || is_in_doubt(pod)
}
