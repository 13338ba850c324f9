//! The claims of a pod's volumes, which four plugins look at.

use std::sync::Arc;

use api::core::v1::{PersistentVolumeClaim, Volume};
use api::json::Text;
use api::storage::v1::StorageClass;

use crate::cluster::{Cluster, PodInfo};

/// A volume that refers to a claim.
#[derive(Debug, Clone)]
pub(super) struct ClaimUse {
    pub(super) name: Text,
    /// Whether the claim was created for the pod and is deleted with it.
    pub(super) is_ephemeral: bool,
}

/// The claim of a volume.
pub(super) fn claim_of(volume: &Volume, pod: &PodInfo) -> Option<ClaimUse> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(ClaimUse { name: source.claim_name.clone(), is_ephemeral: false }),
        (None, Some(_)) => Some(ClaimUse { name: format!("{}-{}", pod.name, volume.name).into(), is_ephemeral: true }),
        (None, None) => None,
    }
}

/// The claims of a pod's volumes.
pub(super) fn claims_of(pod: &PodInfo) -> impl Iterator<Item = ClaimUse> {
    pod.spec().volumes.iter().filter_map(|volume| claim_of(volume, pod))
}

/// A claim of the pod's namespace.
pub(super) fn find<'c>(cluster: &'c Cluster, pod: &PodInfo, name: &Text) -> Option<&'c Arc<PersistentVolumeClaim>> {
    cluster.objects.claims.get(&(pod.namespace().clone(), name.clone()))
}

/// A class of storage.
pub(super) fn class<'c>(cluster: &'c Cluster, name: &str) -> Option<&'c StorageClass> {
    cluster.objects.storage_classes.get(&(Text::default(), name.into())).map(Arc::as_ref)
}

/// A claim that is made for a pod must belong to it.
pub(super) fn check_owner(pod: &PodInfo, claim: &PersistentVolumeClaim) -> Result<(), String> {
    let is_owned = claim.metadata.controller().is_some_and(|owner| owner.uid == pod.uid);
    if is_owned {
        return Ok(());
    }
    let (namespace, name) = (pod.namespace(), &claim.metadata.name);
    Err(format!("PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)", pod.name))
}

/// Kubernetes' message for a missing claim.
pub(super) fn claim_not_found(name: &str) -> String {
    format!("persistentvolumeclaim \"{name}\" not found")
}

/// Whether the class binds its volumes only when a pod needs them.
pub(super) fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}
