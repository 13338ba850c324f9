//! Whether a change may help a pod that would have spread unevenly.

use matching::topology_spread::SpreadConstraint;

use crate::cluster::{NodeObject, PodInfo};
use crate::framework::{Change, Event, Resource};

pub(super) fn helps(pod: &PodInfo, constraints: &[SpreadConstraint], event: Event, change: Change<'_>) -> bool {
    match change {
        Change::Pod { old: Some(old), new: Some(new) } if event.resource == Resource::TargetPod => {
            let has_toleration = old.spec().tolerations != new.spec().tolerations;
            (has_toleration && constraints.iter().any(|it| it.honors_taints)) || relabeled(constraints, old, new)
        }
        Change::Pod { old, new } => {
            let counts = |other: &PodInfo| {
                let is_placed = !other.node_name.is_empty() || !other.nominated_node.is_empty();
                is_placed && other.namespace() == pod.namespace()
            };
            if [old, new].into_iter().flatten().any(|other| !counts(other)) {
                return false;
            }
            match (old, new) {
                (Some(old), Some(new)) => relabeled(constraints, old, new),
                (one, other) => {
                    let changed = one.or(other);
                    changed.is_some_and(|it| constraints.iter().any(|constraint| constraint.selects(it.labels())))
                }
            }
        }
        Change::Node { old, new } => node_helps(constraints, old, new),
        _ => true,
    }
}

/// Whether the pod counts now and did not before, or the other way round.
fn relabeled(constraints: &[SpreadConstraint], old: &PodInfo, new: &PodInfo) -> bool {
    old.labels() != new.labels() && constraints.iter().any(|it| it.selects(old.labels()) != it.selects(new.labels()))
}

fn node_helps(constraints: &[SpreadConstraint], old: Option<&NodeObject>, new: Option<&NodeObject>) -> bool {
    let label = |node: &NodeObject, key: &str| node.matching.labels.get(key).map(str::to_owned);
    let has_keys = |node: &NodeObject| constraints.iter().all(|it| label(node, &it.topology_key).is_some());
    match (old, new) {
        (Some(old), Some(new)) if has_keys(old) != has_keys(new) => true,
        (Some(old), Some(new)) => {
            let moved = constraints.iter().any(|it| label(old, &it.topology_key) != label(new, &it.topology_key));
            has_keys(new) && (moved || old.matching.taints.taints() != new.matching.taints.taints())
        }
        (one, other) => one.or(other).is_some_and(has_keys),
    }
}
