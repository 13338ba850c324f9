//! Storage of an ordinal: claims created with the pod, and their owners.
//!
//! According to the retention policy a claim is owned by the set (and deleted with it), by the pod that is
//! scaled down (and deleted with that), or has no owner.

use api::apps::v1::StatefulSet;
use api::core::v1::PersistentVolumeClaim;
use api::json::Value;
use api::meta::v1::{ObjectMeta, OwnerReference};
use api::metadata;
use client::resources::ServedView as _;
use client::{Document, Resource};

use super::identity::{claim_name, is_wanted};
use crate::machinery::edit;
use crate::machinery::ownership::Controller;
use crate::machinery::pods::PODS;

/// A claim to be made for a place, from a template of the set.
pub(super) fn new_claim(set: &Document<StatefulSet>, template: usize, ordinal: i32) -> Option<Value> {
    let templates = set.value().at(&["spec", "volumeClaimTemplates"])?.as_array()?;
    let mut claim = templates.get(template)?.clone();
    let name = claim_name(set, metadata::name(&claim), ordinal);
    claim.set_at(&["apiVersion"], "v1");
    claim.set_at(&["kind"], "PersistentVolumeClaim");
    claim.set_at(&["metadata", "name"], name);
    claim.set_at(&["metadata", "namespace"], set.metadata().namespace.clone());
    for (key, value) in &set.spec.selector.as_ref()?.match_labels {
        claim.set_at(&["metadata", "labels", key], value.clone());
    }
    claim.remove_at(&["status"]);
    Some(claim)
}

/// Desired owner of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedOwner {
    Nobody,
    Set,
    Pod,
}

fn wanted(set: &StatefulSet, ordinal: i32) -> WantedOwner {
    let policy = set.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
    let (on_delete, on_scale) = (policy.when_deleted == "Delete", policy.when_scaled == "Delete");
    match (on_delete, on_scale, is_wanted(set, ordinal)) {
        (_, true, false) => WantedOwner::Pod,
        (true, _, _) => WantedOwner::Set,
        _ => WantedOwner::Nobody,
    }
}

/// Whether a reference names an object, whatever its uid.
fn names(reference: &OwnerReference, resource: &Resource, metadata: &ObjectMeta) -> bool {
    reference.api_version == resource.api_version()
        && reference.kind == resource.kind.as_ref()
        && reference.name == metadata.name
}

/// Whether a claim belongs to an earlier object of the same name, and will be deleted with it.
pub(super) fn is_stale(claim: &PersistentVolumeClaim, resource: &Resource, metadata: &ObjectMeta) -> bool {
    let mut references = claim.metadata.owner_references.iter();
    references.any(|it| names(it, resource, metadata) && it.uid != metadata.uid)
}

/// Returns the claim with the owner that the policy requires; `None` if it already has it. `pod` is that of the
/// claim's ordinal.
pub(super) fn with_owner(
    set: &Document<StatefulSet>,
    pod: &ObjectMeta,
    ordinal: i32,
    claim: &Document<PersistentVolumeClaim>,
) -> Option<Value> {
    let sets = StatefulSet::RESOURCE;
    let owner = set.metadata();
    if is_stale(claim, &sets, owner) || is_stale(claim, &PODS, pod) {
        return None;
    }
    let references = &claim.metadata().owner_references;
    let is_set = |it: &OwnerReference| names(it, &sets, owner);
    let is_pod = |it: &OwnerReference| names(it, &PODS, pod);
    let wanted = wanted(set, ordinal);
    let policy = set.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
    let deletes = policy.when_deleted == "Delete" || policy.when_scaled == "Delete";
    let is_foreign = |it: &&OwnerReference| it.controller == Some(true) && !is_set(it) && !is_pod(it);
    // Kubernetes: another controller keeps the claim, and ours are taken off.
    let conflicts = deletes && references.iter().any(|it| is_foreign(&it));
    let wanted = if conflicts { WantedOwner::Nobody } else { wanted };
    let has = |is: &dyn Fn(&OwnerReference) -> bool| references.iter().any(|it| is(it) && it.controller == Some(true));
    let has_any = |is: &dyn Fn(&OwnerReference) -> bool| references.iter().any(is);
    let is_right = match wanted {
        WantedOwner::Nobody => !has_any(&is_set) && !has_any(&is_pod),
        WantedOwner::Set => has(&is_set) && !has_any(&is_pod),
        WantedOwner::Pod => has(&is_pod) && !has_any(&is_set),
    };
    if is_right {
        return None;
    }
    let new = match wanted {
        WantedOwner::Nobody => None,
        WantedOwner::Set => Some(Controller { resource: &sets, metadata: owner }.reference()),
        WantedOwner::Pod => Some(Controller { resource: &PODS, metadata: pod }.reference()),
    };
    let mut object = claim.to_value();
    let others = references.iter().filter(|it| !is_set(it) && !is_pod(it));
    let kept: Vec<Value> = others.map(edit::document).chain(new).collect();
    if kept.is_empty() {
        object.remove_at(&["metadata", "ownerReferences"]);
    } else {
        object.set_at(&["metadata", "ownerReferences"], kept);
    }
    Some(object)
}
