//! What a volume needs.
//!
//! Pure. Follows `syncVolume` in Kubernetes `pkg/controller/volume/persistentvolume/pv_controller.go`.

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::Value;
use client::Document;
use client::resources::Served as _;

use super::BOUND_BY_CONTROLLER;
use crate::action::{Action, Decision};
use crate::edit;

/// What is to be done for a volume, given the claim that it names, if that exists.
pub(crate) fn sync(volume: &Document<PersistentVolume>, claim: Option<&PersistentVolumeClaim>) -> Decision {
    let mut decision = Decision::default();
    let actions = &mut decision.actions;
    let Some(reference) = &volume.spec.claim_ref else {
        actions.extend(phase(volume.value(), "Available"));
        return decision;
    };
    if reference.uid.is_empty() {
        // It is meant for a claim that has not come yet.
        actions.extend(phase(volume.value(), "Available"));
        return decision;
    }
    let Some(claim) = claim.filter(|claim| claim.metadata.uid == reference.uid) else {
        if !matches!(volume.status.phase.as_str(), "Released" | "Failed") {
            actions.extend(phase(volume.value(), "Released"));
        }
        if volume.spec.persistent_volume_reclaim_policy == "Recycle" {
            let about = client::events::reference(&**volume);
            let message = "no volume plugin matched".to_owned();
            actions.push(Action::warning(&about, "VolumeFailedRecycle", message));
        }
        return decision;
    };
    if claim.spec.volume_name.is_empty() {
        // The claim is about to be bound to it.
        return decision;
    }
    if claim.spec.volume_name == volume.metadata.name {
        actions.extend(phase(volume.value(), "Bound"));
        return decision;
    }
    actions.extend(unbind(volume));
    decision
}

/// The volume with another phase; nothing if it has it.
pub(crate) fn phase(volume: &Value, phase: &str) -> Option<Action> {
    if volume.str_at(&["status", "phase"]) == Some(phase) {
        return None;
    }
    let mut object = volume.clone();
    edit::set(&mut object, &["status", "phase"], phase);
    edit::remove(&mut object, &["status", "message"]);
    Some(Action::UpdateStatus { resource: PersistentVolume::RESOURCE, object })
}

/// Takes back a binding to a claim that got another volume. What the user had meant stays meant.
fn unbind(volume: &Document<PersistentVolume>) -> Vec<Action> {
    let mut object = volume.to_value();
    if volume.metadata.annotations.contains_key(BOUND_BY_CONTROLLER) {
        edit::remove(&mut object, &["spec", "claimRef"]);
        edit::remove(&mut object, &["metadata", "annotations", BOUND_BY_CONTROLLER]);
    } else {
        edit::remove(&mut object, &["spec", "claimRef", "uid"]);
        edit::remove(&mut object, &["spec", "claimRef", "resourceVersion"]);
    }
    let mut actions = vec![Action::Update { resource: PersistentVolume::RESOURCE, object: object.clone() }];
    actions.extend(phase(&object, "Available"));
    actions
}
