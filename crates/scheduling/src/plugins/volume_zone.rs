//! VolumeZone: volumes that are labeled with a zone or region can be used only from there.

use std::collections::BTreeSet;

use api::core::v1::PersistentVolume;
use api::json::{Text, Value};
use api::well_known::{LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_ZONE};
use matching::Matcher;
use matching::volumes::class_of_claim;

use super::args::{self, ArgsError};
use super::volume_claims::{claim_not_found, class, find, waits_for_consumer};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, Resource, Status};

pub(super) const NAME: &str = "VolumeZone";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

/// Labels that name a zone or region; the old ones and their present names.
const LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", LABEL_TOPOLOGY_ZONE),
    ("failure-domain.beta.kubernetes.io/region", LABEL_TOPOLOGY_REGION),
    (LABEL_TOPOLOGY_ZONE, LABEL_TOPOLOGY_ZONE),
    (LABEL_TOPOLOGY_REGION, LABEL_TOPOLOGY_REGION),
];

/// Between the zones of a volume that is in several.
const DELIMITER: &str = "__";

#[derive(Debug)]
struct VolumeZone;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(VolumeZone) as Box<dyn Plugin>)
}

impl Plugin for VolumeZone {
    fn events(&self) -> Vec<Event> {
        let set = Action::ADD.or(Action::UPDATE);
        vec![
            Event::new(Resource::StorageClass, Action::ADD),
            Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_LABEL)),
            Event::new(Resource::PersistentVolumeClaim, set),
            Event::new(Resource::PersistentVolume, set),
        ]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let helps = match change {
            Change::StorageClass { new: Some(class), .. } => waits_for_consumer(class),
            Change::Claim { new: Some(claim), .. } => {
                claim.metadata.namespace == *pod.namespace() && named(pod).any(|name| *name == claim.metadata.name)
            }
            Change::Volume { old: Some(old), new: Some(new) } => zones(old) != zones(new),
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        match required(pod, cluster) {
            Ok(zones) if zones.is_empty() => PreFilter::Skip,
            Ok(zones) => PreFilter::Ask(Box::new(Zones(zones))),
            Err(text) => PreFilter::Reject(Status::unresolvable(text)),
        }
    }
}

fn named(pod: &PodInfo) -> impl Iterator<Item = &Text> {
    pod.spec().volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref()).map(|it| &it.claim_name)
}

/// A label, its present name, and the accepted values.
type Zone = (&'static str, &'static str, BTreeSet<String>);

/// The zones of the pod's volumes.
fn required(pod: &PodInfo, cluster: &Cluster) -> Result<Vec<Zone>, String> {
    let mut all = Vec::new();
    for name in named(pod) {
        if name.is_empty() {
            return Err("PersistentVolumeClaim had no name".to_owned());
        }
        let claim = find(cluster, pod, name).ok_or_else(|| claim_not_found(name))?;
        let volume = &claim.spec.volume_name;
        if !volume.is_empty() {
            let found = cluster.objects.volumes.get(&(Text::default(), volume.clone()));
            all.extend(zones(found.ok_or_else(|| format!("persistentvolume \"{volume}\" not found"))?));
            continue;
        }
        let class_name = class_of_claim(claim);
        if class_name.is_empty() {
            return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
        }
        let class = class(cluster, class_name);
        let class = class.ok_or_else(|| format!("storageclass.storage.k8s.io \"{class_name}\" not found"))?;
        if class.volume_binding_mode.is_none() {
            return Err(format!("VolumeBindingMode not set for StorageClass \"{class_name}\""));
        }
        // A volume that does not exist yet will be created near the pod.
        if !waits_for_consumer(class) {
            return Err("PersistentVolume had no name".to_owned());
        }
    }
    Ok(all)
}

/// The zones in a volume's labels. Malformed labels are ignored.
fn zones(volume: &PersistentVolume) -> Vec<Zone> {
    let labels = LABELS.into_iter().filter_map(|(label, now)| Some((label, now, volume.metadata.labels.get(label)?)));
    let zones = labels.filter_map(|(label, now, value)| {
        let zones: BTreeSet<String> = value.split(DELIMITER).map(|zone| zone.trim().to_owned()).collect();
        (!zones.contains("")).then_some((label, now, zones))
    });
    zones.collect()
}

#[derive(Clone)]
struct Zones(Vec<Zone>);

impl Filter for Zones {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        let labels = &node.object.matching.labels;
        // A cluster of one zone need not label its nodes.
        if LABELS.into_iter().all(|(label, _)| labels.get(label).is_none()) {
            return Ok(());
        }
        let fits = |(label, now, values): &Zone| {
            labels.get(label).or_else(|| labels.get(now)).is_some_and(|value| values.contains(value))
        };
        if self.0.iter().all(fits) {
            return Ok(());
        }
        Err(Status::unresolvable("node(s) had no available volume zone"))
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(self.clone())
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::VOLUMES)
    }
}
