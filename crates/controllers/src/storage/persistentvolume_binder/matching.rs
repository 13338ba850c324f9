//! Matching of volumes and claims.
//!
//! Pure. Follows `FindMatchingVolume` in Kubernetes `staging/src/k8s.io/component-helpers/storage/volume`, and
//! `persistentVolumeOrderedIndex`: volumes with the fewest access modes first, then the smallest.

use std::collections::BTreeMap;

use api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use api::json::Text;
use api::quantity::Quantity;
use api::well_known::ANNOTATION_STORAGE_CLASS_BETA;

/// The class that a claim requests, empty if none.
pub(crate) fn claim_class(claim: &PersistentVolumeClaim) -> &str {
    let annotated = claim.metadata.annotations.get(ANNOTATION_STORAGE_CLASS_BETA);
    annotated.or(claim.spec.storage_class_name.as_ref()).map_or("", Text::as_str)
}

/// The class of a volume, empty if none.
pub(crate) fn volume_class(volume: &PersistentVolume) -> &str {
    volume.metadata.annotations.get(ANNOTATION_STORAGE_CLASS_BETA).unwrap_or(&volume.spec.storage_class_name)
}

/// Whether a volume is bound to a claim, or reserved for it.
pub(crate) fn is_bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|it| {
        it.name == claim.metadata.name
            && it.namespace == claim.metadata.namespace
            && (it.uid.is_empty() || it.uid == claim.metadata.uid)
    })
}

fn storage(list: &api::core::v1::ResourceList) -> Quantity {
    list.get("storage").cloned().unwrap_or_default()
}

pub(super) fn modes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let mode = |it: &Option<Text>| it.clone().unwrap_or_else(|| "Filesystem".into());
    mode(&volume.spec.volume_mode) != mode(&claim.spec.volume_mode)
}

fn attributes_differ(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let name = |it: &Option<Text>| it.clone().unwrap_or_default();
    name(&volume.spec.volume_attributes_class_name) != name(&claim.spec.volume_attributes_class_name)
}

fn offers_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

/// Returns the volume of a claim; with `delayed` only one that is reserved for it.
pub(crate) fn find<'a, V: std::ops::Deref<Target = PersistentVolume>>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [V],
    delayed: bool,
) -> Option<&'a V> {
    let mut by_modes: BTreeMap<(usize, Vec<Text>), Vec<&'a V>> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| offers_modes(volume, claim)) {
        let mut modes = volume.spec.access_modes.clone();
        modes.sort();
        by_modes.entry((modes.len(), modes)).or_default().push(volume);
    }
    by_modes.values().find_map(|group| find_among(claim, group, delayed))
}

fn find_among<'a, V: std::ops::Deref<Target = PersistentVolume>>(
    claim: &PersistentVolumeClaim,
    volumes: &[&'a V],
    delayed: bool,
) -> Option<&'a V> {
    let selector = match claim.spec.selector.as_ref().map(api::meta::v1::LabelSelector::to_selector) {
        None => None,
        Some(Ok(selector)) => Some(selector),
        // An unreadable selector selects nothing.
        Some(Err(_)) => return None,
    };
    let wanted = storage(&claim.spec.resources.requests);
    let mut best: Option<(Quantity, &'a V)> = None;
    for volume in volumes {
        let size = storage(&volume.spec.capacity);
        if volume.spec.claim_ref.is_some() && !is_bound_to(volume, claim)
            || size < wanted
            || modes_differ(volume, claim)
            || attributes_differ(volume, claim)
            || volume.metadata.is_deleting()
        {
            continue;
        }
        if is_bound_to(volume, claim) {
            return Some(volume);
        }
        let fits = !delayed
            && volume.status.phase == "Available"
            && selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels))
            && volume_class(volume) == claim_class(claim);
        let is_better = best.as_ref().is_none_or(|(known, other)| {
            size < *known || (size == *known && volume.metadata.name < other.metadata.name)
        });
        if fits && is_better {
            best = Some((size, volume));
        }
    }
    best.map(|(_, volume)| volume)
}

/// Returns the reason why a volume that a claim names is unsuitable.
pub(crate) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let why = if volume.metadata.is_deleting() {
        return Some(format!("the volume is marked for deletion \"{}\"", volume.metadata.name));
    } else if storage(&volume.spec.capacity) < storage(&claim.spec.resources.requests) {
        "requested PV is too small"
    } else if volume_class(volume) != claim_class(claim) {
        "storageClassName does not match"
    } else if attributes_differ(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if modes_differ(volume, claim) {
        "incompatible volumeMode"
    } else if !offers_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}
