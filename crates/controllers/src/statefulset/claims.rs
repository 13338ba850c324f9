//! The storage of a place: claims that are made with the pod, and who owns them.
//!
//! By the retention policy a claim belongs to the set (and goes with it), to the pod that is scaled away (and goes with
//! that), or to nobody.

use api::apps::v1::StatefulSet;
use api::core::v1::PersistentVolumeClaim;
use api::json::Value;
use api::meta::v1::{ObjectMeta, OwnerReference};
use client::resources::Served as _;
use client::{Document, Resource};

use super::identity::{claim_name, is_wanted};
use crate::edit;
use crate::ownership::Controller;
use crate::pods::PODS;

/// A claim to be made for a place, from a template of the set.
pub(super) fn new_claim(set: &Document<StatefulSet>, template: usize, ordinal: i32) -> Option<Value> {
    let templates = set.value().at(&["spec", "volumeClaimTemplates"])?.as_array()?;
    let mut claim = templates.get(template)?.clone();
    let name = claim_name(set, edit::name(&claim), ordinal);
    edit::set(&mut claim, &["apiVersion"], "v1");
    edit::set(&mut claim, &["kind"], "PersistentVolumeClaim");
    edit::set(&mut claim, &["metadata", "name"], name);
    edit::set(&mut claim, &["metadata", "namespace"], set.metadata().namespace.clone());
    for (key, value) in &set.spec.selector.as_ref()?.match_labels {
        edit::set(&mut claim, &["metadata", "labels", key], value.clone());
    }
    edit::remove(&mut claim, &["status"]);
    Some(claim)
}

/// Who shall own a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Nobody,
    Set,
    Pod,
}

fn wanted(set: &StatefulSet, ordinal: i32) -> Wanted {
    let policy = set.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
    let (on_delete, on_scale) = (policy.when_deleted == "Delete", policy.when_scaled == "Delete");
    match (on_delete, on_scale, is_wanted(set, ordinal)) {
        (_, true, false) => Wanted::Pod,
        (true, _, _) => Wanted::Set,
        _ => Wanted::Nobody,
    }
}

/// Whether a reference names an object, whatever its uid.
fn names(reference: &OwnerReference, resource: &Resource, metadata: &ObjectMeta) -> bool {
    reference.api_version == resource.api_version()
        && reference.kind == resource.kind.as_ref()
        && reference.name == metadata.name
}

/// Whether a claim belongs to an earlier object of the same name, and will go with it.
pub(super) fn is_stale(claim: &PersistentVolumeClaim, resource: &Resource, metadata: &ObjectMeta) -> bool {
    let mut references = claim.metadata.owner_references.iter();
    references.any(|it| names(it, resource, metadata) && it.uid != metadata.uid)
}

/// The claim with the owner that the policy wants, nothing if it has it. `pod` is the one of the claim's place.
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
    let wanted = if conflicts { Wanted::Nobody } else { wanted };
    let has = |is: &dyn Fn(&OwnerReference) -> bool| references.iter().any(|it| is(it) && it.controller == Some(true));
    let has_any = |is: &dyn Fn(&OwnerReference) -> bool| references.iter().any(is);
    let is_right = match wanted {
        Wanted::Nobody => !has_any(&is_set) && !has_any(&is_pod),
        Wanted::Set => has(&is_set) && !has_any(&is_pod),
        Wanted::Pod => has(&is_pod) && !has_any(&is_set),
    };
    if is_right {
        return None;
    }
    let new = match wanted {
        Wanted::Nobody => None,
        Wanted::Set => Some(Controller { resource: &sets, metadata: owner }.reference()),
        Wanted::Pod => Some(Controller { resource: &PODS, metadata: pod }.reference()),
    };
    let mut object = claim.to_value();
    let others = references.iter().filter(|it| !is_set(it) && !is_pod(it));
    let kept: Vec<Value> = others.map(edit::document).chain(new).collect();
    if kept.is_empty() {
        edit::remove(&mut object, &["metadata", "ownerReferences"]);
    } else {
        edit::set(&mut object, &["metadata", "ownerReferences"], kept);
    }
    Some(object)
}
