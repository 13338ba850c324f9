//! Status of a Deployment: counts, availability, and progress.

use std::time::Duration;

use api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use api::time::Timestamp;

use super::rule::Round;
use super::sets::{self, max_unavailable, size, sum};
use crate::machinery::pods::until;

pub(super) const PROGRESSING: &str = "Progressing";
const FAILURE: &str = "ReplicaFailure";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const COMPLETE: &str = "NewReplicaSetAvailable";

pub(super) fn condition<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().find(|condition| condition.condition_type == kind)
}

pub(super) fn new_condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        condition_type: kind.into(),
        status: status.into(),
        last_update_time: Some(now),
        last_transition_time: Some(now),
        reason: reason.into(),
        message: message.into(),
    }
}

/// Sets a condition, at the end of the list, unless status and reason are unchanged.
pub(super) fn set_condition(status: &mut DeploymentStatus, mut new: DeploymentCondition) {
    if let Some(known) = condition(status, &new.condition_type) {
        if known.status == new.status && known.reason == new.reason {
            return;
        }
        if known.status == new.status {
            new.last_transition_time = known.last_transition_time;
        }
    }
    status.conditions.retain(|condition| condition.condition_type != new.condition_type);
    status.conditions.push(new);
}

fn remove_condition(status: &mut DeploymentStatus, kind: &str) {
    status.conditions.retain(|condition| condition.condition_type != kind);
}

/// Whether all pods are new and serve.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = sets::wanted(deployment);
    status.updated_replicas == wanted
        && status.replicas == wanted
        && status.available_replicas == wanted
        && status.observed_generation >= deployment.metadata.generation
}

/// Whether there are more new, fewer old or more serving pods than before.
fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let outdated = |status: &DeploymentStatus| status.replicas.saturating_sub(status.updated_replicas);
    new.updated_replicas > old.updated_replicas
        || outdated(new) < outdated(old)
        || new.ready_replicas > old.ready_replicas
        || new.available_replicas > old.available_replicas
}

/// The counts of all sets, and whether enough pods serve.
pub(super) fn counted(round: &Round<'_>) -> DeploymentStatus {
    let all = || round.sets.all();
    let available = sum(all(), |set| set.status.available_replicas);
    let mut status = DeploymentStatus {
        observed_generation: round.deployment.metadata().generation,
        replicas: sum(all(), |set| set.status.replicas),
        updated_replicas: sum(round.sets.new.iter(), |set| set.status.replicas),
        ready_replicas: sum(all(), |set| set.status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: sum(all(), size).saturating_sub(available).max(0),
        terminating_replicas: terminating(round),
        conditions: round.deployment.status.conditions.clone(),
        collision_count: round.deployment.status.collision_count,
    };
    let enough = available >= round.wanted().saturating_sub(max_unavailable(round.deployment));
    let (is, reason, message) = if enough {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, new_condition("Available", is, reason, message, round.seen.now));
    status
}

/// Number of terminating pods; unknown if one of the sets does not report it.
fn terminating(round: &Round<'_>) -> Option<i32> {
    let mut total = 0_i32;
    for set in round.sets.all() {
        match set.status.terminating_replicas {
            Some(count) => total = total.saturating_add(count),
            // A set that was never reconciled has no pods.
            None if set.status.observed_generation == 0 => {}
            None => return None,
        }
    }
    Some(total)
}

/// The counts, and whether the rollout progresses, is complete, or has stalled.
pub(super) fn rollout(round: &Round<'_>) -> DeploymentStatus {
    let deployment = round.deployment;
    let mut status = counted(round);
    let current = condition(&deployment.status, PROGRESSING);
    let deadline = sets::progress_deadline(deployment);
    if deadline.is_none() {
        remove_condition(&mut status, PROGRESSING);
    }
    let was_complete = current.is_some_and(|current| current.reason == COMPLETE);
    let is_over = status.replicas == status.updated_replicas && was_complete;
    if let Some(deadline) = deadline.filter(|_| !is_over) {
        let subject = match &round.sets.new {
            Some(set) => format!("ReplicaSet \"{}\"", set.metadata().name),
            None => format!("Deployment \"{}\"", deployment.metadata().name),
        };
        let new =
            |is, reason, end: &str| new_condition(PROGRESSING, is, reason, &format!("{subject} {end}"), round.seen.now);
        if is_complete(deployment, &status) {
            set_condition(&mut status, new("True", COMPLETE, "has successfully progressed."));
        } else if is_progressing(&deployment.status, &status) {
            let mut moves = new("True", "ReplicaSetUpdated", "is progressing.");
            if let Some(current) = current {
                if current.status == "True" {
                    moves.last_transition_time = current.last_transition_time;
                }
                // The time of the last progress counts, so that the condition is always new.
                remove_condition(&mut status, PROGRESSING);
            }
            set_condition(&mut status, moves);
        } else if has_timed_out(&status, deadline, round.seen.now) {
            set_condition(&mut status, new("False", TIMED_OUT, "has timed out progressing."));
        }
    }
    match failure(round) {
        Some(failure) => set_condition(&mut status, failure),
        None => remove_condition(&mut status, FAILURE),
    }
    status
}

fn has_timed_out(status: &DeploymentStatus, deadline: i32, now: Timestamp) -> bool {
    let Some(condition) = condition(status, PROGRESSING) else { return false };
    match condition.reason.as_str() {
        COMPLETE => false,
        TIMED_OUT => true,
        _ => condition.last_update_time.is_some_and(|since| since.plus_seconds(i64::from(deadline)) < now),
    }
}

/// Returns the condition of a set that cannot create pods: of the newest set, or of any other.
fn failure(round: &Round<'_>) -> Option<DeploymentCondition> {
    let sets = round.sets.new.iter().chain(&round.sets.old);
    let mut failures = sets.flat_map(|set| &set.status.conditions).filter(|it| it.condition_type == FAILURE);
    failures.next().map(|failure| DeploymentCondition {
        condition_type: failure.condition_type.clone(),
        status: failure.status.clone(),
        last_update_time: failure.last_transition_time,
        last_transition_time: failure.last_transition_time,
        reason: failure.reason.clone(),
        message: failure.message.clone(),
    })
}

/// Returns the time of the next check of the progress deadline.
pub(super) fn next_check(round: &Round<'_>, status: &DeploymentStatus) -> Option<Duration> {
    let current = condition(&round.deployment.status, PROGRESSING)?;
    let deadline = sets::progress_deadline(round.deployment)?;
    if is_complete(round.deployment, status) || current.reason == TIMED_OUT {
        return None;
    }
    let at = current.last_update_time?.plus_seconds(i64::from(deadline));
    // The time has no fractions, and the deadline must have passed.
    Some(until(at, round.seen.now).saturating_add(Duration::from_millis(10)))
}
