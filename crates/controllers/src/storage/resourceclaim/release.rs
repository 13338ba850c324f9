//! Release of a claim when its pods have ended.
//!
//! Pure. Follows `syncClaim` in Kubernetes `pkg/controller/resourceclaim/controller.go`.

use api::json::Value;
use api::resource::v1::ResourceClaim;
use client::Document;
use client::objects::Deletion;
use client::resources::ServedView as _;

use super::FINALIZER;
use crate::machinery::action::Action;

/// The pod that a claim was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerPod {
    /// None was.
    None,
    /// The pod needs the claim, or was deleted together with it.
    Keeps,
    /// The pod will not run any more, or was replaced.
    Done,
}

/// Returns the actions; `keeps` is true if a consumer, by its index in the list, still needs the claim.
pub(crate) fn release(claim: &Document<ResourceClaim>, keeps: impl Fn(usize) -> bool, owner: OwnerPod) -> Vec<Action> {
    let resource = ResourceClaim::RESOURCE;
    let consumers = claim.value().list_at(&["status", "reservedFor"]);
    let remaining: Vec<Value> =
        consumers.iter().enumerate().filter(|(index, _)| keeps(*index)).map(|(_, it)| it.clone()).collect();
    let ours = claim.metadata.finalizers.iter().any(|it| it == FINALIZER);
    let mut actions = Vec::new();
    let mut object = claim.to_value();
    let is_free = remaining.is_empty();
    if remaining.len() < consumers.len() {
        if is_free {
            object.remove_at(&["status", "reservedFor"]);
            if ours {
                object.remove_at(&["status", "allocation"]);
            }
        } else {
            object.set_at(&["status", "reservedFor"], remaining);
        }
        actions.push(Action::UpdateStatus { resource: resource.clone(), object: object.clone() });
        if ours && object.at(&["status", "allocation"]).is_none() {
            actions.push(without_finalizer(object));
        }
    } else if ours && claim.metadata.is_deleting() && is_free {
        if object.remove_at(&["status", "allocation"]).is_some() {
            actions.push(Action::UpdateStatus { resource: resource.clone(), object: object.clone() });
        }
        actions.push(without_finalizer(object));
    }
    if is_free && owner == OwnerPod::Done && !claim.metadata.is_deleting() {
        actions.push(Action::Delete {
            resource,
            namespace: claim.metadata.namespace.clone(),
            name: claim.metadata.name.clone(),
            uid: claim.metadata.uid.clone(),
            how: Deletion::default(),
        });
    }
    actions
}

fn without_finalizer(mut object: Value) -> Action {
    object.make_list_at(&["metadata", "finalizers"]).retain(|it| it.as_str() != Some(FINALIZER));
    Action::Update { resource: ResourceClaim::RESOURCE, object }
}
