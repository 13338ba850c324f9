//! Status of a daemon set: numbers of nodes that should have a pod, have one, and have a ready one.

use api::apps::v1::DaemonSetStatus;
use api::json::Value;

use super::pods::{by_age, is_updated};
use super::rule::ObservedState;
use crate::machinery::edit;
use crate::machinery::pods::{is_available, is_ready};

/// Returns the new status.
#[must_use]
pub fn count(seen: &ObservedState<'_>) -> DaemonSetStatus {
    let mut status = DaemonSetStatus { observed_generation: seen.set.metadata.generation, ..seen.set.status.clone() };
    let counts = [
        &mut status.desired_number_scheduled,
        &mut status.current_number_scheduled,
        &mut status.number_misscheduled,
        &mut status.number_ready,
        &mut status.updated_number_scheduled,
        &mut status.number_available,
        &mut status.number_unavailable,
    ];
    for count in counts {
        *count = 0;
    }
    let add = |count: &mut i32, holds: bool| *count = count.saturating_add(i32::from(holds));
    for (node, placement) in seen.nodes {
        let pods = seen.pods.get(node).map(Vec::as_slice).unwrap_or_default();
        add(&mut status.desired_number_scheduled, placement.should_run);
        let Some(oldest) = pods.iter().min_by(|left, right| by_age(left, right)) else { continue };
        if !placement.should_run {
            add(&mut status.number_misscheduled, true);
            continue;
        }
        add(&mut status.current_number_scheduled, true);
        add(&mut status.number_ready, is_ready(oldest));
        add(&mut status.number_available, is_available(oldest, seen.set.spec.min_ready_seconds, seen.now));
        add(&mut status.updated_number_scheduled, is_updated(oldest, seen.set, seen.hash));
    }
    status.number_unavailable = status.desired_number_scheduled.saturating_sub(status.number_available);
    status
}

/// Returns the set's document with this status; `None` if it is unchanged.
#[must_use]
pub fn updated(seen: &ObservedState<'_>, document: &Value) -> Option<Value> {
    let status = count(seen);
    let known = &seen.set.status;
    if status == *known {
        return None;
    }
    let mut document = document.clone();
    // The first four are always written, the others only if they are not zero.
    document.set_at(&["status", "currentNumberScheduled"], status.current_number_scheduled);
    document.set_at(&["status", "numberMisscheduled"], status.number_misscheduled);
    document.set_at(&["status", "desiredNumberScheduled"], status.desired_number_scheduled);
    document.set_at(&["status", "numberReady"], status.number_ready);
    document.set_at(&["status", "observedGeneration"], status.observed_generation);
    edit::set_count(&mut document, &["status", "updatedNumberScheduled"], status.updated_number_scheduled);
    edit::set_count(&mut document, &["status", "numberAvailable"], status.number_available);
    edit::set_count(&mut document, &["status", "numberUnavailable"], status.number_unavailable);
    Some(document)
}
