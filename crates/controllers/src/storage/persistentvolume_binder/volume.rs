//! Reconciliation of a volume.
//!
//! Pure. Follows `syncVolume` in Kubernetes `pkg/controller/volume/persistentvolume/pv_controller.go`.

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::Value;
use api::well_known::ANNOTATION_PROVISIONED_BY;
use client::Document;
use client::resources::ServedView as _;

use super::BOUND_BY_CONTROLLER;
use super::matching::modes_differ;
use super::reclaim::reclaim;
use crate::machinery::action::{Action, Decision};

/// Returns the decision about a volume, given the claim that it references, if that exists.
pub(crate) fn sync(volume: &Document<PersistentVolume>, claim: Option<&PersistentVolumeClaim>) -> Decision {
    let mut decision = Decision::default();
    let actions = &mut decision.actions;
    let Some(reference) = &volume.spec.claim_ref else {
        actions.extend(phase(volume.value(), "Available"));
        return decision;
    };
    if reference.uid.is_empty() {
        // It is reserved for a claim that does not exist yet.
        actions.extend(phase(volume.value(), "Available"));
        return decision;
    }
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == reference.uid) else {
        actions.extend(release(volume));
        return decision;
    };
    if claim.spec.volume_name.is_empty() {
        // The claim is about to be bound to it, unless it never can be.
        if modes_differ(volume, claim) {
            let (of_volume, of_claim) = (client::events::reference(&**volume), client::events::reference(claim));
            let what = |name: &str, kind: &str, other: &str| {
                format!("Cannot bind PersistentVolume{name} to requested {kind}{other} due to incompatible volumeMode.")
            };
            let message = what("", "PersistentVolumeClaim ", &format!("\"{}\"", claim.metadata.name));
            actions.push(Action::warning(&of_volume, "VolumeMismatch", message));
            let message = what(&format!(" \"{}\"", volume.metadata.name), "PersistentVolumeClaim", "");
            actions.push(Action::warning(&of_claim, "VolumeMismatch", message));
        }
        return decision;
    }
    if claim.spec.volume_name == volume.metadata.name {
        actions.extend(phase(volume.value(), "Bound"));
        return decision;
    }
    let was_made_for_it = volume.metadata.annotations.contains_key(ANNOTATION_PROVISIONED_BY);
    if was_made_for_it && volume.spec.persistent_volume_reclaim_policy == "Delete" {
        // The claim has found another one.
        actions.extend(release(volume));
        return decision;
    }
    actions.extend(unbind(volume));
    decision
}

/// Returns the actions for a volume without a claim. A failed phase is kept.
fn release(volume: &Document<PersistentVolume>) -> Vec<Action> {
    let is_reported = matches!(volume.status.phase.as_str(), "Released" | "Failed");
    let mut actions: Vec<Action> = Vec::new();
    let mut released = volume.to_value();
    if !is_reported && let Some(Action::UpdateStatus { resource, object }) = phase(volume.value(), "Released") {
        released = object.clone();
        actions.push(Action::UpdateStatus { resource, object });
    }
    actions.extend(reclaim(volume, &released));
    actions
}

/// The volume with another phase; nothing if it has it.
pub(crate) fn phase(volume: &Value, phase: &str) -> Option<Action> {
    if volume.str_at(&["status", "phase"]) == Some(phase) {
        return None;
    }
    let mut object = volume.clone();
    object.set_at(&["status", "phase"], phase);
    object.remove_at(&["status", "message"]);
    Some(Action::UpdateStatus { resource: PersistentVolume::RESOURCE, object })
}

/// Unbinds a volume from a claim that has another one. A reservation by the user is kept.
fn unbind(volume: &Document<PersistentVolume>) -> Vec<Action> {
    let mut object = volume.to_value();
    if volume.metadata.annotations.contains_key(BOUND_BY_CONTROLLER) {
        object.remove_at(&["spec", "claimRef"]);
        object.remove_at(&["metadata", "annotations", BOUND_BY_CONTROLLER]);
    } else {
        object.remove_at(&["spec", "claimRef", "uid"]);
    }
    let mut actions = vec![Action::Update { resource: PersistentVolume::RESOURCE, object: object.clone() }];
    actions.extend(phase(&object, "Available"));
    actions
}
