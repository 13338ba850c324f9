//! Binds claims and volumes to each other, and reports their state.
//!
//! One worker, so that no volume is bound twice: `claim` finds the best volume and binds in four writes,
//! `volume` follows its claim, `reclaim` applies the reclaim policy. Nothing is provisioned or recycled here;
//! claims of other provisioners are annotated for them, and classes that wait for a pod are bound by the
//! scheduler. Follows Kubernetes `pkg/controller/volume/persistentvolume`.

mod claim;
mod matching;
mod reclaim;
#[cfg(test)]
mod tests;
mod volume;

use std::sync::Arc;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use api::storage::v1::StorageClass;
use client::Document;
use client::controller::{Controller, Next, own};
use client::informer::{Informer, Key};
use client::resources::ServedView as _;

use self::claim::ClaimContext;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::outcome;
use crate::manager::Context;
use crate::settings::Settings;

const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The component of its events, which is Kubernetes'.
const COMPONENT: &str = "persistentvolume-controller";
/// The index of pods by the claims that they name.
const BY_CLAIM: &str = "claim";

struct Binder {
    volumes: Informer<Document<PersistentVolume>>,
    claims: Informer<Document<PersistentVolumeClaim>>,
    classes: Informer<StorageClass>,
    pods: Informer<Pod>,
    executor: Executor,
    settings: Arc<Settings>,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let informers = &context.informers;
    let volumes = informers.all::<Document<PersistentVolume>>();
    let claims = informers.all::<Document<PersistentVolumeClaim>>();
    let (classes, pods) = (informers.all::<StorageClass>(), informers.all::<Pod>());
    crate::storage::volume_protection::index_by_claim(&pods, BY_CLAIM);
    let executor = Executor::new(COMPONENT, context.client.clone(), context.refusals.clone());
    executor.expectations().follow(&volumes, &PersistentVolume::RESOURCE.plural);
    executor.expectations().follow(&claims, &PersistentVolumeClaim::RESOURCE.plural);
    let known = claims.clone();
    // Keys without namespace are volumes'. A volume that becomes free concerns every claim that waits.
    let runner = Controller::new(context.name, &context.runtime)
        .watch(&volumes, move |volume: &Document<PersistentVolume>| {
            let mut keys: Vec<Key> = own(volume).into_iter().collect();
            match &volume.spec.claim_ref {
                Some(claim) => keys.push(Key::new(claim.namespace.clone(), claim.name.clone())),
                None => {
                    let all = known.store().list();
                    let waiting = all.iter().filter(|claim| !claim.metadata.annotations.contains_key(BIND_COMPLETED));
                    keys.extend(waiting.filter_map(|claim| own(&**claim)));
                }
            }
            keys
        })
        .watch(&claims, |claim: &Document<PersistentVolumeClaim>| {
            let mut keys: Vec<Key> = own(claim).into_iter().collect();
            if !claim.spec.volume_name.is_empty() {
                keys.push(Key::new("", claim.spec.volume_name.clone()));
            }
            keys
        });
    let settings = context.settings.clone();
    let binder = Arc::new(Binder { volumes, claims, classes, pods, executor, settings });
    runner
        .run(move |key| {
            let binder = binder.clone();
            async move { binder.reconcile(key).await }
        })
        .await;
}

impl Binder {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let (decision, waits) = if key.namespace.is_empty() {
            let Some(volume) = self.volumes.store().get_key(&key) else {
                self.executor.forget(&key);
                return Ok(Next::Done);
            };
            let reference = volume.spec.claim_ref.as_ref();
            let claim = reference.and_then(|it| self.claims.store().get(&it.namespace, &it.name));
            let claim = match (reference, claim) {
                // The informer may be outdated: the server decides whether the claim was deleted.
                (Some(it), claim) if !it.uid.is_empty() && claim.as_ref().is_none_or(|c| c.metadata.uid != it.uid) => {
                    let claims = self.executor.client().objects::<Document<PersistentVolumeClaim>>();
                    match claims.get(&it.namespace, &it.name).await {
                        Ok(claim) => Some(Arc::new(claim)),
                        Err(error) if error.is_not_found() => None,
                        Err(error) => return Err(error.into()),
                    }
                }
                (_, claim) => claim,
            };
            (volume::sync(&volume, claim.as_deref().map(|claim| &**claim.view())), false)
        } else {
            let Some(claim) = self.claims.store().get_key(&key) else {
                self.executor.forget(&key);
                return Ok(Next::Done);
            };
            let volumes: Vec<Document<PersistentVolume>> =
                self.volumes.store().list().iter().map(|volume| (**volume).clone()).collect();
            let classes: Vec<StorageClass> =
                self.classes.store().list().iter().map(|class| (**class).clone()).collect();
            let pods = self.pods.store().by_index(BY_CLAIM, &key.to_string());
            let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
            let seen = ClaimContext { volumes: &volumes, classes: &classes, pods: &pods };
            (claim::sync(&claim, &seen), !claim.metadata.annotations.contains_key(BIND_COMPLETED))
        };
        match outcome::next(self.executor.perform(&key, decision.actions).await)? {
            // A waiting claim gets an event from time to time.
            Next::Done if waits => Ok(Next::After(self.settings.binder_period)),
            next => Ok(next),
        }
    }
}
