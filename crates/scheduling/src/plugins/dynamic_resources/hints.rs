//! Changes that may help a pod that waits for devices.

use api::resource::v1::ResourceClaim;

use super::claims;
use crate::cluster::{Cluster, PodInfo};
use crate::framework::{Change, Hint};

pub(super) fn hint(pod: &PodInfo, change: Change<'_>, cluster: &Cluster) -> Hint {
    let helps = match change {
        Change::ResourceClaim { old, new } => claim_helps(pod, old, new, cluster),
        Change::Pod { new: Some(new), .. } => claims::of_pod(new, cluster).is_ok(),
        _ => true,
    };
    if helps { Hint::Queue } else { Hint::Skip }
}

fn claim_helps(pod: &PodInfo, old: Option<&ResourceClaim>, new: Option<&ResourceClaim>, cluster: &Cluster) -> bool {
    let has_devices = |claim: &ResourceClaim| claim.status.allocation.is_some();
    let Some(new) = new else {
        // A deleted claim releases its devices, if it had any; the pod's own of an earlier attempt was in its way.
        return old.is_none_or(|old| has_devices(old) || old.extended_resources_of() == Some(&pod.uid));
    };
    let Ok(own) = claims::of_pod(pod, cluster) else { return false };
    match old {
        Some(old) if has_devices(old) && !has_devices(new) => true,
        _ if !own.iter().any(|claim| claim.metadata.uid == new.metadata.uid) => false,
        None => true,
        Some(old) => old.status != new.status,
    }
}
