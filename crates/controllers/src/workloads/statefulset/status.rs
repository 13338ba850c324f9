//! Status of a StatefulSet.

use api::apps::v1::{StatefulSet, StatefulSetStatus};
use api::json::Value;
use client::Document;

use super::identity::{self, revision_of};
use super::rule::{ObservedState, is_created};
use crate::machinery::edit;
use crate::machinery::pods::{is_available, is_ready};

/// The counts of all pods.
pub(super) fn counted(seen: &ObservedState) -> StatefulSetStatus {
    let set = &seen.set;
    let (current, update) = (&seen.current.metadata().name, &seen.update.metadata().name);
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata().generation,
        current_revision: current.clone(),
        update_revision: update.clone(),
        collision_count: Some(set.status.collision_count.unwrap_or(0)),
        conditions: set.status.conditions.clone(),
        ..StatefulSetStatus::default()
    };
    let add = |count: &mut i32, counts: bool| *count = count.saturating_add(i32::from(counts));
    for pod in seen.pods.iter().filter(|pod| identity::ordinal_of(pod).is_some()) {
        let serves = pod.status.phase == "Running" && is_ready(pod);
        let lives = is_created(pod) && !pod.metadata.is_deleting();
        add(&mut status.replicas, is_created(pod));
        add(&mut status.ready_replicas, serves);
        add(&mut status.available_replicas, serves && is_available(pod, set.spec.min_ready_seconds, seen.now));
        add(&mut status.current_replicas, lives && revision_of(pod) == current);
        add(&mut status.updated_replicas, lives && revision_of(pod) == update);
    }
    status
}

/// Once all pods are of the new revision and serve, it is the current one.
pub(super) fn complete(set: &StatefulSet, status: &mut StatefulSetStatus) {
    let wanted = identity::replicas(set);
    let is_done = [status.updated_replicas, status.ready_replicas, status.replicas].iter().all(|it| *it == wanted);
    if is_done {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
}

/// The set with its new status, nothing if that is as it was.
pub(super) fn updated(set: &Document<StatefulSet>, status: StatefulSetStatus) -> Option<Value> {
    let old = &set.status;
    // Kubernetes: the count of collisions alone is not worth a write.
    let compared = StatefulSetStatus { collision_count: old.collision_count, ..status.clone() };
    if compared == *old {
        return None;
    }
    let mut object = set.to_value();
    let mut document = edit::document(&status);
    // These are written even if they are zero.
    document.set_at(&["replicas"], status.replicas);
    document.set_at(&["availableReplicas"], status.available_replicas);
    object.set_at(&["status"], document);
    Some(object)
}
