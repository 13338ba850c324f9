//! Protects volumes, claims and classes in use by a finalizer that is removed with the last user.
//!
//! Three controllers: claims are used by pods (reported in the condition `Unused`), volumes by claims,
//! attribute classes by both. Follows Kubernetes
//! `pkg/controller/volume/{pvcprotection,pvprotection,vacprotection}`.

mod claim;

use std::sync::Arc;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::Value;
use api::meta::v1::ObjectMeta;
use api::storage::v1::VolumeAttributesClass;
use api::well_known::{FINALIZER_VOLUME, FINALIZER_VOLUME_ATTRIBUTES_CLASS};
use client::controller::{Controller, Next, own};
use client::informer::Key;
use client::resources::ServedView as _;
use client::{Document, Resource};

use crate::machinery::action::Action;
use crate::machinery::executor::Failure;
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::outcome;
use crate::manager::Context;

pub use claim::run as run_claims;
pub(crate) use claim::{claim_name, index_by_claim, is_for};

/// Adds the finalizer to existing objects, and removes it from unused ones that are being deleted.
fn protect(
    resource: Resource,
    object: &Value,
    metadata: &ObjectMeta,
    finalizer: &str,
    in_use: impl FnOnce() -> bool,
) -> Vec<Action> {
    let has = metadata.finalizers.iter().any(|it| it == finalizer);
    let mut new = object.clone();
    match (metadata.is_deleting(), has) {
        (true, true) if !in_use() => {
            new.make_list_at(&["metadata", "finalizers"]).retain(|it| it.as_str() != Some(finalizer));
        }
        (false, false) => {
            new.make_list_at(&["metadata", "finalizers"]).push(finalizer.into());
        }
        _ => return Vec::new(),
    }
    vec![Action::Update { resource, object: new }]
}

/// Whether a change can matter: it lacks the finalizer, or is to go.
fn is_candidate(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.is_deleting() == metadata.finalizers.iter().any(|it| it == finalizer)
}

/// Protects volumes until shutdown.
pub async fn run_volumes(context: Context) {
    let volumes = context.informers.all::<Document<PersistentVolume>>();
    let executor = context.executor();
    executor.expectations().follow(&volumes, &PersistentVolume::RESOURCE.plural);
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&volumes, |it| own(it).filter(|_| is_candidate(it.metadata(), FINALIZER_VOLUME)));
    runner
        .run(move |key: Key| {
            let (volumes, executor) = (volumes.clone(), executor.clone());
            async move {
                let Some(volume) = volumes.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                if !executor.settled(&key) {
                    return Ok(Next::After(UNSETTLED));
                }
                let in_use = || volume.status.phase == "Bound";
                let actions =
                    protect(PersistentVolume::RESOURCE, volume.value(), volume.metadata(), FINALIZER_VOLUME, in_use);
                outcome::next(executor.perform(&key, actions).await)
            }
        })
        .await;
}

/// Protects attribute classes until shutdown.
pub async fn run_classes(context: Context) {
    let informers = &context.informers;
    let classes = informers.all::<Document<VolumeAttributesClass>>();
    let (volumes, claims) = (informers.all::<PersistentVolume>(), informers.all::<PersistentVolumeClaim>());
    let executor = context.executor();
    executor.expectations().follow(&classes, &VolumeAttributesClass::RESOURCE.plural);
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&classes, |it| own(it).filter(|_| is_candidate(it.metadata(), FINALIZER_VOLUME_ATTRIBUTES_CLASS)))
        .watch(&volumes, |it| it.spec.volume_attributes_class_name.clone().map(|name| Key::new("", name)))
        .watch(&claims, |it| classes_of(it).into_iter().map(|name| Key::new("", name)).collect::<Vec<_>>());
    let controller = Arc::new((classes, volumes, claims, executor));
    runner
        .run(move |key: Key| {
            let controller = controller.clone();
            async move {
                let (classes, volumes, claims, executor) = &*controller;
                let Some(class) = classes.store().get_key(&key) else { return Ok::<_, Failure>(Next::Done) };
                if !executor.settled(&key) {
                    return Ok(Next::After(UNSETTLED));
                }
                let name = &key.name;
                let in_use = || {
                    let by_volume =
                        |it: &Arc<PersistentVolume>| it.spec.volume_attributes_class_name.as_ref() == Some(name);
                    volumes.store().list().iter().any(by_volume)
                        || claims.store().list().iter().any(|it| classes_of(it).contains(&name.as_str()))
                };
                let actions = protect(
                    VolumeAttributesClass::RESOURCE,
                    class.value(),
                    class.metadata(),
                    FINALIZER_VOLUME_ATTRIBUTES_CLASS,
                    in_use,
                );
                outcome::next(executor.perform(&key, actions).await)
            }
        })
        .await;
}

/// The classes that a claim requests, has, or is being changed to.
fn classes_of(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let wanted = claim.spec.volume_attributes_class_name.as_deref();
    let current = claim.status.current_volume_attributes_class_name.as_deref();
    let target = claim.status.modify_volume_status.as_ref().map(|it| it.target_volume_attributes_class_name.as_str());
    [wanted, current, target].into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(deleting: bool, finalizers: &[&str], in_use: bool, after: Option<&[&str]>) {
        let list = |names: &[&str]| Value::Array(names.iter().map(|it| (*it).into()).collect());
        let mut object = api::json!({"metadata": {"name": "v", "finalizers": (list(finalizers))}});
        if deleting {
            object.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        }
        let metadata: ObjectMeta = api::json::from_value(object.get("metadata").expect("metadata")).expect("metadata");
        let actions = protect(PersistentVolume::RESOURCE, &object, &metadata, FINALIZER_VOLUME, || in_use);
        match (actions.as_slice(), after) {
            ([], None) => {}
            ([Action::Update { object, .. }], Some(after)) => {
                assert_eq!(object.at(&["metadata", "finalizers"]), Some(&list(after)));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_finalizer_comes_and_goes() {
        check(false, &["a"], false, Some(&["a", FINALIZER_VOLUME]));
        check(false, &[FINALIZER_VOLUME], false, None);
        check(true, &[FINALIZER_VOLUME, "a"], false, Some(&["a"]));
        check(true, &[FINALIZER_VOLUME], true, None);
        check(true, &["a"], false, None);
    }
}
