//! Writes of a decision besides the binding, applied to the copy of the cluster.

use std::sync::Arc;
use std::time::Duration;

use api::well_known::ANNOTATION_BIND_COMPLETED;
use api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use api::json::Text;
use api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use scheduling::Scheduler;
use scheduling::cluster::{Object, ObjectKind};
use scheduling::writes::Write;


/// The devices that are given to claims.
pub(super) fn devices(writes: &[Write]) -> Vec<(Text, Vec<String>)> {
    let names = |allocation: &AllocationResult| {
        let results = allocation.devices.results.iter();
        results.map(|it| format!("{}/{}/{}", it.driver, it.pool, it.device)).collect()
    };
    let of = |write: &Write| match write {
        Write::UseResourceClaim { claim, allocation: Some(allocation), .. } => {
            Some((claim.metadata.name.clone(), names(allocation)))
        }
        Write::CreateResourceClaim { allocation, .. } => Some(("extended resources".into(), names(allocation))),
        _ => None,
    };
    writes.iter().filter_map(of).collect()
}

/// Carries out what has to be written for a pod.
pub(super) fn carry_out(core: &mut Scheduler, writes: &[Write], pod: &Text, uid: &Text, now: Duration) {
    for write in writes {
        match write {
            Write::UseResourceClaim { claim, allocation, .. } => {
                change_claim(core, &claim.metadata.namespace, &claim.metadata.name, now, |claim| {
                    if let Some(allocation) = allocation {
                        claim.status.allocation = Some(allocation.as_ref().clone());
                    }
                    claim.status.reserved_for.push(consumer(pod, uid));
                });
            }
            Write::FreeResourceClaim { namespace, claim, .. } => {
                change_claim(core, namespace, claim, now, |claim| claim.status = Default::default());
            }
            Write::CreateResourceClaim { claim, allocation, .. } => {
                let mut claim = ResourceClaim::clone(claim);
                let name = format!("{}0", claim.metadata.generate_name);
                claim.metadata.name = name.into();
                claim.metadata.uid = format!("claim-{}", claim.metadata.uid).into();
                claim.status.allocation = Some(allocation.as_ref().clone());
                claim.status.reserved_for.push(consumer(pod, uid));
                core.set_object(&Object::ResourceClaim(Arc::new(claim)), now);
            }
            Write::DeleteResourceClaim { namespace, claim, .. } => {
                core.remove_object(ObjectKind::ResourceClaim, namespace, claim, now);
            }
            Write::BindVolume { volume, namespace, claim, .. } => bind(core, volume, (namespace, claim), now),
            // The volume counts as created: the core tracks its location.
            Write::ProvisionVolume { .. } => {}
        }
    }
}

fn consumer(pod: &Text, uid: &Text) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        resource: "pods".into(),
        name: pod.clone(),
        uid: uid.clone(),
        ..ResourceClaimConsumerReference::default()
    }
}

fn change_claim(
    core: &mut Scheduler,
    namespace: &Text,
    name: &Text,
    now: Duration,
    change: impl FnOnce(&mut ResourceClaim),
) {
    let found = core.cluster().objects.resource_claims.get(&(namespace.clone(), name.clone()));
    let Some(mut claim) = found.map(|claim| ResourceClaim::clone(claim)) else { return };
    change(&mut claim);
    core.set_object(&Object::ResourceClaim(Arc::new(claim)), now);
}

fn bind(core: &mut Scheduler, volume: &Text, (namespace, name): (&Text, &Text), now: Duration) {
    let objects = &core.cluster().objects;
    let found = objects.volumes.get(&(Text::default(), volume.clone())).map(|it| PersistentVolume::clone(it));
    let claim = objects.claims.get(&(namespace.clone(), name.clone())).map(|it| PersistentVolumeClaim::clone(it));
    let (Some(mut volume), Some(mut claim)) = (found, claim) else { return };
    claim.spec.volume_name = volume.metadata.name.clone();
    claim.metadata.annotations.insert(ANNOTATION_BIND_COMPLETED.into(), "yes".into());
    volume.spec.claim_ref = Some(ObjectReference {
        kind: "PersistentVolumeClaim".into(),
        namespace: namespace.clone(),
        name: name.clone(),
        uid: claim.metadata.uid.clone(),
        ..ObjectReference::default()
    });
    core.set_object(&Object::Volume(Arc::new(volume)), now);
    core.set_object(&Object::Claim(Arc::new(claim)), now);
}
