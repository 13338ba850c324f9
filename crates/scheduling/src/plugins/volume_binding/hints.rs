//! Whether a change may help a pod whose volumes could not be had.

use api::json::Text;
use api::storage::v1::CSINode;

use super::binder::{MIGRATED_PLUGINS, limit};
use crate::cluster::PodInfo;
use crate::framework::Change;
use crate::plugins::volume_claims::claims_of;

pub(super) fn helps(pod: &PodInfo, change: Change<'_>) -> bool {
    match change {
        Change::CsiNode { old: Some(old), new: Some(new) } => {
            let migrated = |node: &CSINode| {
                node.metadata.annotations.get(MIGRATED_PLUGINS).map(Text::as_str).unwrap_or_default().to_owned()
            };
            migrated(old) != migrated(new)
        }
        Change::Claim { new: Some(claim), .. } => {
            claim.metadata.namespace == *pod.namespace() && claims_of(pod).any(|used| used.name == claim.metadata.name)
        }
        Change::StorageClass { old: Some(old), new: Some(new) } => old.allowed_topologies != new.allowed_topologies,
        Change::CsiStorageCapacity { old: Some(old), new: Some(new) } => match (limit(old), limit(new)) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(old), Some(new)) => new.value() > old.value(),
        },
        Change::CsiDriver { old: Some(old), new: Some(new) } => {
            let tracks = |driver: &api::storage::v1::CSIDriver| driver.spec.storage_capacity == Some(true);
            let uses = pod.spec().volumes.iter().filter_map(|volume| volume.csi.as_ref());
            let mut drivers = uses.filter_map(|source| source.get("driver").and_then(api::json::Value::as_str));
            tracks(old) && !tracks(new) && drivers.any(|driver| driver == new.metadata.name)
        }
        _ => true,
    }
}
