//! NodeVolumeLimits: a storage driver can attach only a number of volumes to a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::core::v1::{PersistentVolumeClaim, Volume};
use api::json::{Text, Value};
use api::storage::v1::CSINode;
use matching::Matcher;
use matching::volumes::class_of_claim;

use super::args::{self, ArgsError};
use super::built_in_disks;
use super::volume_claims::{check_owner, claim_not_found, claim_of, claims_of, class, find};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, Resource, Status};

pub(super) const NAME: &str = "NodeVolumeLimits";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

#[derive(Debug)]
struct NodeVolumeLimits;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(NodeVolumeLimits) as Box<dyn Plugin>)
}

impl Plugin for NodeVolumeLimits {
    fn events(&self) -> Vec<Event> {
        vec![
            Event::new(Resource::CSINode, Action::ADD.or(Action::UPDATE)),
            Event::new(Resource::AssignedPod, Action::DELETE),
            Event::new(Resource::PersistentVolumeClaim, Action::ADD),
            Event::new(Resource::VolumeAttachment, Action::DELETE),
        ]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let helps = match change {
            Change::CsiNode { old: Some(old), new: Some(new) } => {
                let before = limits(Some(old));
                let count = |driver: &str| before.get(driver).copied().unwrap_or(0);
                limits(Some(new)).into_iter().any(|(driver, limit)| limit > count(&driver))
            }
            Change::Pod { old: Some(deleted), .. } => {
                let is_placed = !deleted.node_name.is_empty() || !deleted.nominated_node.is_empty();
                is_placed && deleted.spec().volumes.iter().any(counts)
            }
            Change::Claim { new: Some(claim), .. } => {
                let is_it = |name: &Text| *name == claim.metadata.name;
                claim.metadata.namespace == *pod.namespace() && claims_of(pod).any(|used| is_it(&used.name))
            }
            Change::VolumeAttachment { old: Some(deleted), .. } => {
                let attaches = |volume: &Volume| match built_in_disks::of_pod(volume) {
                    Ok(disk) => disk.is_some_and(|(driver, _)| driver == deleted.spec.attacher),
                    // When in doubt, try.
                    Err(_) => true,
                };
                pod.spec().volumes.iter().any(|volume| volume.persistent_volume_claim.is_some() || attaches(volume))
            }
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        if pod.spec().volumes.iter().any(counts) {
            PreFilter::Ask(Box::new(Limits { pod, cluster }))
        } else {
            PreFilter::Skip
        }
    }
}

/// Whether a volume may have to be attached.
fn counts(volume: &Volume) -> bool {
    volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || built_in_disks::is_disk(volume)
}

/// Maximum number of volumes of each driver on a node.
fn limits(node: Option<&CSINode>) -> BTreeMap<Text, i32> {
    let drivers = node.map(|node| node.spec.drivers.as_slice()).unwrap_or_default();
    let count = |driver: &api::storage::v1::CsiNodeDriver| driver.allocatable.as_ref().and_then(|it| it.count);
    drivers.iter().filter_map(|driver| Some((driver.name.clone(), count(driver)?))).collect()
}

#[derive(Clone, Copy)]
struct Limits<'c> {
    pod: &'c PodInfo,
    cluster: &'c Cluster,
}

/// Volumes, identified by the driver and its name of the volume.
type AttachedVolumes = BTreeSet<(Text, Text)>;

impl Limits<'_> {
    /// Adds the volumes of a pod that have to be attached.
    fn volumes(
        &self,
        pod: &PodInfo,
        node: Option<&CSINode>,
        is_new: bool,
        all: &mut AttachedVolumes,
    ) -> Result<(), Status> {
        for volume in &pod.spec().volumes {
            let Some(used) = claim_of(volume, pod) else {
                // Only where CSI drivers are known to run.
                if node.is_some()
                    && let Some((driver, disk)) = built_in_disks::of_pod(volume).map_err(Status::error)?
                {
                    all.insert((driver.into(), disk));
                }
                continue;
            };
            if used.name.is_empty() {
                return Err(Status::error("PersistentVolumeClaim had no name"));
            }
            let Some(claim) = find(self.cluster, pod, &used.name) else {
                if is_new {
                    let why = claim_not_found(&used.name);
                    let text = format!("looking up PVC {}/{}: {why}", pod.namespace(), used.name);
                    return Err(Status::unresolvable(text));
                }
                continue;
            };
            if used.is_ephemeral {
                check_owner(pod, claim).map_err(Status::error)?;
            }
            all.extend(self.attached(claim, node));
        }
        Ok(())
    }

    /// Returns the driver of a claim's volume, and its name of the volume. A volume that does not exist yet is
    /// identified by its claim.
    fn attached(&self, claim: &PersistentVolumeClaim, node: Option<&CSINode>) -> Option<(Text, Text)> {
        let volume = &claim.spec.volume_name;
        let found = self.cluster.objects.volumes.get(&(Text::default(), volume.clone()));
        if let Some(found) = found.filter(|_| !volume.is_empty()) {
            let Some(source) = found.spec.csi.as_ref() else {
                let disk = built_in_disks::of_volume(found).filter(|_| node.is_some());
                return disk.map(|(driver, disk)| (driver.into(), disk));
            };
            let (driver, handle) = (source.text("driver"), source.text("volumeHandle"));
            return (!driver.is_empty() && !handle.is_empty()).then(|| (driver.into(), handle.into()));
        }
        let class = class(self.cluster, class_of_claim(claim))?;
        let provisioner = class.provisioner.as_str();
        let driver = match built_in_disks::is_built_in(provisioner) {
            true => built_in_disks::driver_of(provisioner).filter(|_| node.is_some())?,
            false => provisioner,
        };
        let handle = format!("\u{0}{}/{}", claim.metadata.namespace, claim.metadata.name);
        (!driver.is_empty()).then(|| (driver.into(), handle.into()))
    }

    /// Whether a driver that requires pods to avoid nodes without it is missing on the node.
    fn is_missing(&self, driver: &Text, node: Option<&CSINode>) -> bool {
        let found = self.cluster.objects.csi_drivers.get(&(Text::default(), driver.clone()));
        let asks = found.is_some_and(|it| it.spec.prevent_pod_scheduling_if_missing == Some(true));
        asks && !node.is_some_and(|node| node.spec.drivers.iter().any(|it| it.name == *driver))
    }
}

impl Filter for Limits<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        let csi_node = self.cluster.objects.csi_nodes.get(&(Text::default(), node.name().clone())).map(Arc::as_ref);
        let mut new = AttachedVolumes::new();
        self.volumes(self.pod, csi_node, true, &mut new)?;
        if let Some((driver, _)) = new.iter().find(|(driver, _)| self.is_missing(driver, csi_node)) {
            return Err(Status::unschedulable(format!("{driver} CSI driver is not installed on the node")));
        }
        let limits = limits(csi_node);
        if new.is_empty() || limits.is_empty() {
            return Ok(());
        }
        let mut there = AttachedVolumes::new();
        for other in &node.pods {
            self.volumes(other, csi_node, false, &mut there)?;
        }
        new.retain(|volume| !there.contains(volume));
        for attachment in self.cluster.objects.volume_attachments.values() {
            let spec = &attachment.spec;
            if spec.node_name != *node.name() || spec.attacher.is_empty() {
                continue;
            }
            let Some(volume) = &spec.source.persistent_volume_name else { continue };
            let found = self.cluster.objects.volumes.get(&(Text::default(), volume.clone()));
            if let Some(source) = found.and_then(|volume| volume.spec.csi.as_ref()) {
                there.insert((spec.attacher.clone(), source.text("volumeHandle").into()));
            }
        }
        let count =
            |volumes: &AttachedVolumes, driver: &Text| volumes.iter().filter(|(name, _)| name == driver).count();
        for (driver, limit) in &limits {
            let wanted = count(&new, driver);
            let total = i64::try_from(wanted.saturating_add(count(&there, driver))).unwrap_or(i64::MAX);
            if wanted > 0 && total > i64::from(*limit) {
                return Err(Status::unschedulable("node(s) exceed max volume count"));
            }
        }
        Ok(())
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(*self)
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::VOLUMES)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::time::Duration;

    use api::json::{from_value, parse};
    use matching::Features;

    use super::*;
    use crate::cluster::Object;
    use crate::queue::Backoff;
    use crate::{Outcome, Scheduler, plugins};

    fn object<T: serde::de::DeserializeOwned>(text: &str) -> T {
        from_value(&parse(text.as_bytes()).unwrap()).unwrap()
    }

    /// Places pods with a disk each on a node that can have one volume of the CSI driver that does the disks' work.
    #[track_caller]
    fn check(disks: [&str; 2], second: Result<&str, &str>) {
        let clock: Arc<dyn Fn() -> Duration + Send + Sync> = Arc::new(|| Duration::ZERO);
        let matcher = Arc::new(Matcher::new(NonZeroUsize::new(4).unwrap(), clock, Features::ALL).unwrap());
        let profile = plugins::default_profile(&matcher).unwrap();
        let mut scheduler = Scheduler::new(vec![profile], Backoff::default(), matcher, 1);
        let now = Duration::ZERO;
        let node = r#"{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}}"#;
        scheduler.set_node(&object(node), now);
        let limit = r#"{"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "pd.csi.storage.gke.io", "nodeID": "n", "allocatable": {"count": 1}}]}}"#;
        scheduler.set_object(&Object::CsiNode(Arc::new(object(limit))), now);
        let volume = r#"{"metadata": {"name": "y"}, "spec": {"gcePersistentDisk": {"pdName": "y"}}}"#;
        scheduler.set_object(&Object::Volume(Arc::new(object(volume))), now);
        let claim = r#"{"metadata": {"name": "y", "namespace": "d", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": "y"}}"#;
        scheduler.set_object(&Object::Claim(Arc::new(object(claim))), now);
        let mut outcomes = Vec::new();
        for (name, disk) in ["a", "b"].into_iter().zip(disks) {
            let pod = format!(
                r#"{{"metadata": {{"name": "{name}", "namespace": "d", "uid": "{name}"}},
                    "spec": {{"containers": [{{"name": "c"}}], "volumes": [{{"name": "v", {disk}}}]}}}}"#
            );
            scheduler.set_pod(&object(&pod), now);
            outcomes.push(match scheduler.schedule_one(now).unwrap().outcome {
                Outcome::Scheduled(placement) => Ok(placement.node.to_string()),
                Outcome::Unschedulable(unplaced) => Err(unplaced.message),
                Outcome::Error(message) => Err(message),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(outcomes[0].as_deref(), Ok("n"));
        match (&outcomes[1], second) {
            (Ok(node), Ok(expected)) => assert_eq!(node, expected),
            (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn disks_of_built_in_drivers_count_for_their_csi_driver() {
        let gce = |name: &str| format!(r#""gcePersistentDisk": {{"pdName": "{name}", "readOnly": true}}"#);
        check([&gce("x"), &gce("y")], Err("exceed max volume count"));
        check([&gce("x"), &gce("x")], Ok("n"));
        check([&gce("x"), r#""awsElasticBlockStore": {"volumeID": "y"}"#], Ok("n"));
        check([&gce("x"), r#""emptyDir": {}"#], Ok("n"));
        // The same applies behind a claim; a disk has the same identity in both cases.
        let claim = |name: &str| format!(r#""persistentVolumeClaim": {{"claimName": "{name}"}}"#);
        check([&gce("x"), &claim("y")], Err("exceed max volume count"));
        check([&gce("y"), &claim("y")], Ok("n"));
        let azure = r#""azureDisk": {"diskName": "z", "diskURI": "z", "kind": "Shared"}"#;
        check([&gce("x"), azure], Err("converting volume(v) from inline to csi: kind(Shared) is not supported"));
    }
}
