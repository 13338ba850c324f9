//! Accessibility of a disk from nodes, in the labels of the CSI driver that replaces a built-in one.
//!
//! Follows `translateTopologyFromInTreeToCSI` of Kubernetes' `csi-translation-lib`: the volume's zone is
//! expressed with the driver's label; without node affinity, the volume's own labels count.

use std::collections::BTreeSet;

use api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume};
use api::json::Text;
use api::well_known::{LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE};

use super::{AWS, CINDER, DELIMITER, GCE};

/// Labels for zone and region: the newer ones, and the older ones.
const NEW: (&str, &str) = (LABEL_TOPOLOGY_ZONE, LABEL_TOPOLOGY_REGION);
const OLD: (&str, &str) = ("failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region");

/// The volume with the zones as the CSI driver labels them. Some drivers have no zones.
pub(super) fn moved(volume: &PersistentVolume, driver: &str) -> PersistentVolume {
    let mut volume = volume.clone();
    let label = match driver {
        AWS => "topology.ebs.csi.aws.com/zone",
        GCE => "topology.gke.io/zone",
        CINDER => "topology.cinder.csi.openstack.org/zone",
        _ => return volume,
    };
    let (zone, region) = labels_of(&volume);
    let names_zones = requirements(&mut volume).any(|it| it.key == zone && it.values.iter().flatten().next().is_some());
    if names_zones {
        rename(&mut volume, zone, label);
    } else if let Some(zones) = volume.metadata.labels.get(zone).cloned() {
        add(&mut volume, label, &zones);
    }
    if region == OLD.1 {
        rename(&mut volume, region, NEW.1);
    }
    volume
}

/// Returns the newer or the older zone labels, as used by the volume's node affinity, or else by its own
/// labels.
fn labels_of(volume: &PersistentVolume) -> (&'static str, &'static str) {
    let required = volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
    let terms = required.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default();
    let asks = |key: &str| terms.iter().flat_map(|term| &term.match_expressions).any(|it| it.key == key);
    let is_labeled = |key: &str| volume.metadata.labels.contains_key(key);
    match () {
        () if asks(NEW.0) => NEW,
        () if asks(OLD.0) => OLD,
        () if is_labeled(NEW.0) => NEW,
        () if is_labeled(OLD.0) => OLD,
        () => NEW,
    }
}

fn requirements(volume: &mut PersistentVolume) -> impl Iterator<Item = &mut NodeSelectorRequirement> {
    let required = volume.spec.node_affinity.as_mut().and_then(|affinity| affinity.required.as_mut());
    let terms = required.into_iter().flat_map(|required| &mut required.node_selector_terms);
    terms.flat_map(|term| &mut term.match_expressions)
}

/// A requirement without values keeps its label if no other names a value, as in Kubernetes.
fn rename(volume: &mut PersistentVolume, from: &str, to: &str) {
    let has_values = requirements(volume).any(|it| it.key == from && it.values.iter().flatten().next().is_some());
    if has_values {
        requirements(volume).filter(|it| it.key == from).for_each(|it| it.key = to.into());
    }
}

/// Adds the zones to every term.
fn add(volume: &mut PersistentVolume, label: &str, zones: &str) {
    let zones: BTreeSet<&str> = zones.split(DELIMITER).map(str::trim).filter(|zone| !zone.is_empty()).collect();
    if zones.is_empty() {
        return;
    }
    let zones: Vec<Text> = zones.into_iter().map(Text::from).collect();
    let required = volume.spec.node_affinity.get_or_insert_default().required.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        let (key, operator) = (label.into(), "In".into());
        term.match_expressions.push(NodeSelectorRequirement { key, operator, values: Some(zones.clone()) });
    }
}
