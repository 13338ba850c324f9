//! Volumes that a pod's claims have, or would get on a node.
//!
//! Follows `binder.go` of Kubernetes' scheduler. Decisions that are not yet written count as if they were.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::Text;
use api::meta::v1::LabelSelector;
use api::quantity::Quantity;
use api::storage::v1::{CSIStorageCapacity, StorageClass};
use api::well_known::{ANNOTATION_BIND_COMPLETED, ANNOTATION_SELECTED_NODE, NO_PROVISIONER};
use matching::topology;
use matching::volumes::{self, Seeker, VolumeMatcher, class_of_claim, class_of_volume};

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::plugins::built_in_disks;
use crate::plugins::volume_claims::{check_owner, claims_of, class, find, waits_for_consumer};

pub(super) const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// The claims of a pod.
#[derive(Clone, Default)]
pub(super) struct Claims<'c> {
    bound: Vec<(&'c PersistentVolumeClaim, Option<Arc<MigrationStatus>>)>,
    /// Get their volume when the pod has a node; smallest first.
    waiting: Vec<&'c PersistentVolumeClaim>,
    /// Whether some claims with immediate binding are not bound yet.
    pub(super) has_unbound_immediate: bool,
}

/// A volume of a built-in driver on nodes where a CSI driver does the work.
struct MigrationStatus {
    driver: &'static str,
    reach: Result<VolumeMatcher, String>,
}

impl MigrationStatus {
    fn of(claim: &PersistentVolumeClaim, cluster: &Cluster) -> Option<Arc<Self>> {
        let volume = cluster.objects.volumes.get(&(Text::default(), claim.spec.volume_name.clone()))?;
        let migrated = built_in_disks::migrated(volume)?;
        let reach = migrated.volume.map(|volume| cluster.matcher.volume(&volume));
        Some(Arc::new(MigrationStatus { driver: migrated.driver, reach }))
    }

    /// Whether a CSI driver does the work on the node.
    fn is_on(&self, node: &NodeInfo, cluster: &Cluster) -> bool {
        let csi_node = cluster.objects.csi_nodes.get(&(Text::default(), node.name().clone()));
        let migrated = csi_node.and_then(|it| it.metadata.annotations.get(MIGRATED_PLUGINS));
        migrated.is_some_and(|drivers| drivers.split(',').any(|driver| driver == self.driver))
    }
}

/// Effect of a node on the claims.
#[derive(Default)]
pub(super) struct VolumeFit<'c> {
    pub(super) bindings: Vec<(&'c PersistentVolumeClaim, &'c PersistentVolume)>,
    /// Volumes to be made, with the storage they come from where that is known.
    pub(super) provisions: Vec<(&'c PersistentVolumeClaim, Option<&'c CSIStorageCapacity>)>,
    /// Reasons to reject the node.
    pub(super) reasons: Vec<&'static str>,
}

impl<'c> Claims<'c> {
    pub(super) fn of(pod: &PodInfo, cluster: &'c Cluster) -> Result<Self, String> {
        let mut claims = Claims::default();
        for used in claims_of(pod) {
            let full_name = || format!("{}/{}", pod.namespace(), used.name);
            let claim = find(cluster, pod, &used.name);
            let claim = claim.ok_or_else(|| format!("error getting PVC \"{}\": not found", full_name()))?;
            if used.is_ephemeral {
                check_owner(pod, claim)?;
            }
            let has_volume = !claim.spec.volume_name.is_empty();
            if has_volume && claim.metadata.annotations.contains_key(ANNOTATION_BIND_COMPLETED) {
                claims.bound.push((claim, MigrationStatus::of(claim, cluster)));
            } else if !has_volume && waits(claim, cluster)? {
                claims.waiting.push(claim);
            } else {
                claims.has_unbound_immediate = true;
            }
        }
        claims.waiting.sort_by_cached_key(|claim| wanted(claim));
        Ok(claims)
    }

    /// Determines the effect of a node.
    pub(super) fn find(&self, node: &NodeInfo, cluster: &'c Cluster) -> Result<VolumeFit<'c>, String> {
        let mut found = VolumeFit::default();
        let (mut reaches_bound, mut has_bound) = (true, true);
        for (claim, migrated) in &self.bound {
            let name = &claim.spec.volume_name;
            let reach = match migrated.as_ref().filter(|migrated| migrated.is_on(node, cluster)) {
                Some(migrated) => Some(migrated.reach.as_ref().map_err(Clone::clone)?),
                None => cluster.objects.reach.get(name),
            };
            match reach {
                Some(matcher) if matcher.check(&node.object.matching.labels).is_ok() => continue,
                Some(_) => reaches_bound = false,
                None => has_bound = false,
            }
            break;
        }
        let (satisfied, has_room) = self.find_waiting(node, cluster, &mut found)?;
        let reasons = [
            (reaches_bound, "node(s) didn't match PersistentVolume's node affinity"),
            (satisfied, "node(s) didn't find available persistent volumes to bind"),
            (has_room, "node(s) did not have enough free storage"),
            (has_bound, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
        ];
        found.reasons = reasons.into_iter().filter(|(holds, _)| !holds).map(|(_, reason)| reason).collect();
        Ok(found)
    }

    /// Whether all claims that wait get a volume, and whether there is room for those that must be made.
    fn find_waiting(
        &self,
        node: &NodeInfo,
        cluster: &'c Cluster,
        found: &mut VolumeFit<'c>,
    ) -> Result<(bool, bool), String> {
        let mut to_match = Vec::new();
        let mut to_make = Vec::new();
        for claim in &self.waiting {
            let name = (claim.metadata.namespace.clone(), claim.metadata.name.clone());
            let assumed = cluster.objects.assumed.provisioned.get(&name);
            match claim.metadata.annotations.get(ANNOTATION_SELECTED_NODE).or(assumed) {
                Some(selected) if selected != node.name() => return Ok((false, true)),
                Some(_) => to_make.push(*claim),
                None => to_match.push(*claim),
            }
        }
        let mut chosen: BTreeSet<Text> = BTreeSet::new();
        for claim in to_match {
            match matching_volume(claim, node, cluster, &chosen)? {
                Some(volume) => {
                    chosen.insert(volume.metadata.name.clone());
                    found.bindings.push((claim, volume));
                }
                None => to_make.push(claim),
            }
        }
        for claim in to_make {
            let class_name = class_of_claim(claim);
            if class_name.is_empty() {
                let name = format!("{}/{}", claim.metadata.namespace, claim.metadata.name);
                return Err(format!("no class for claim \"{name}\""));
            }
            let class = class(cluster, class_name);
            let class = class.ok_or_else(|| format!("failed to find storage class \"{class_name}\""))?;
            let can_make = !class.provisioner.is_empty() && class.provisioner != NO_PROVISIONER;
            if !can_make || !topology::allows(&class.allowed_topologies, &node.object.matching.labels) {
                return Ok((false, true));
            }
            match room(claim, class, node, cluster) {
                Ok(capacity) => found.provisions.push((claim, capacity)),
                Err(NoRoom) => return Ok((true, false)),
            }
        }
        Ok((true, true))
    }
}

struct NoRoom;

/// The volume that a claim would get.
fn matching_volume<'c>(
    claim: &PersistentVolumeClaim,
    node: &NodeInfo,
    cluster: &'c Cluster,
    chosen: &BTreeSet<Text>,
) -> Result<Option<&'c PersistentVolume>, String> {
    let objects = &cluster.objects;
    let wanted_class = class_of_claim(claim);
    let candidates = objects.volumes.values().filter(|volume| class_of_volume(volume) == wanted_class);
    let with_reach: Vec<(&PersistentVolume, &VolumeMatcher)> = candidates
        .filter_map(|volume| Some((Arc::as_ref(volume), objects.reach.get(&volume.metadata.name)?)))
        .collect();
    let is_taken = |volume: &PersistentVolume| {
        let name = &volume.metadata.name;
        let own = (&claim.metadata.namespace, &claim.metadata.name);
        chosen.contains(name) || objects.assumed.bound.get(name).is_some_and(|(space, name)| (space, name) != own)
    };
    volumes::find(claim, with_reach, Seeker::Scheduler(&node.object.matching.labels), is_taken).map_err(|error| {
        let (namespace, name) = (&claim.metadata.namespace, &claim.metadata.name);
        format!("error creating internal label selector for claim: {namespace}/{name}: {error}")
    })
}

/// Returns the storage for a new volume, if its driver publishes the capacity.
fn room<'c>(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    node: &NodeInfo,
    cluster: &'c Cluster,
) -> Result<Option<&'c CSIStorageCapacity>, NoRoom> {
    let Some(size) = claim.spec.resources.requests.get("storage") else { return Ok(None) };
    let driver = cluster.objects.csi_drivers.get(&(Text::default(), class.provisioner.clone()));
    if driver.and_then(|driver| driver.spec.storage_capacity) != Some(true) {
        return Ok(None);
    }
    let has_access = |selector: &LabelSelector| {
        let labels = node.object.matching.labels.iter().map(|(key, value)| (key.into(), value.into())).collect();
        let labels: api::meta::v1::StringMap = labels;
        selector.to_selector().is_ok_and(|selector| selector.matches(&labels))
    };
    let capacities = cluster.objects.csi_storage_capacities.values().map(Arc::as_ref);
    let fits = |capacity: &&CSIStorageCapacity| {
        capacity.storage_class_name == class.metadata.name
            && limit(capacity).is_some_and(|limit| limit.value() >= size.value())
            && capacity.node_topology.as_ref().is_some_and(has_access)
    };
    capacities.into_iter().find(fits).map(Some).ok_or(NoRoom)
}

/// Maximum size of a volume.
pub(super) fn limit(capacity: &CSIStorageCapacity) -> Option<&Quantity> {
    capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref())
}

/// Whether a claim's class binds only when a pod needs the volume.
fn waits(claim: &PersistentVolumeClaim, cluster: &Cluster) -> Result<bool, String> {
    let name = class_of_claim(claim);
    if name.is_empty() {
        return Ok(false);
    }
    let Some(class) = class(cluster, name) else { return Ok(false) };
    if class.volume_binding_mode.is_none() {
        return Err(format!("VolumeBindingMode not set for StorageClass \"{name}\""));
    }
    Ok(waits_for_consumer(class))
}

fn wanted(claim: &PersistentVolumeClaim) -> Quantity {
    claim.spec.resources.requests.get("storage").cloned().unwrap_or_default()
}
