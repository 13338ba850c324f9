//! VolumeRestrictions: disks that only one node or one pod can have at a time.

use std::collections::BTreeSet;

use api::core::v1::Volume;
use api::json::{Text, Value};
use matching::Matcher;

use super::args::{self, ArgsError};
use super::volume_claims::{claim_not_found, find};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, Resource, Status};

pub(super) const NAME: &str = "VolumeRestrictions";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

#[derive(Debug)]
struct VolumeRestrictions;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(VolumeRestrictions) as Box<dyn Plugin>)
}

impl Plugin for VolumeRestrictions {
    fn events(&self) -> Vec<Event> {
        vec![
            Event::new(Resource::AssignedPod, Action::DELETE),
            Event::new(Resource::Node, Action::ADD),
            Event::new(Resource::PersistentVolumeClaim, Action::ADD),
        ]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let helps = match change {
            Change::Claim { new: Some(claim), .. } => {
                claim.metadata.namespace == *pod.namespace() && named(pod).any(|name| *name == claim.metadata.name)
            }
            Change::Pod { old: Some(deleted), .. } => {
                deleted.namespace() == pod.namespace()
                    && (conflicts(pod, deleted) || named(pod).any(|name| named(deleted).any(|other| other == name)))
            }
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        let mut exclusive = BTreeSet::new();
        for name in named(pod) {
            let Some(claim) = find(cluster, pod, name) else {
                return PreFilter::Reject(Status::unresolvable(claim_not_found(name)));
            };
            if claim.spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod") {
                exclusive.insert(name.clone());
            }
        }
        let users = exclusive.iter().filter(|name| cluster.cache.is_claim_used(pod.namespace(), name)).count();
        let users = i64::try_from(users).unwrap_or(i64::MAX);
        if users == 0 && !pod.spec().volumes.iter().any(is_restricted) {
            return PreFilter::Skip;
        }
        PreFilter::Ask(Box::new(Restrictions { pod, exclusive, users }))
    }
}

/// The claims that the pod names itself.
fn named(pod: &PodInfo) -> impl Iterator<Item = &Text> {
    pod.spec().volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref()).map(|it| &it.claim_name)
}

fn is_restricted(volume: &Volume) -> bool {
    volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.rbd.is_some()
        || volume.iscsi.is_some()
}

/// Whether two pods cannot be on one node because of their disks.
fn conflicts(pod: &PodInfo, other: &PodInfo) -> bool {
    let restricted = pod.spec().volumes.iter().filter(|volume| is_restricted(volume));
    restricted.into_iter().any(|volume| other.spec().volumes.iter().any(|taken| conflict(volume, taken)))
}

fn conflict(volume: &Volume, taken: &Volume) -> bool {
    let both = |left: &Option<Value>, right: &Option<Value>, same: &dyn Fn(&Value, &Value) -> bool| match (left, right)
    {
        (Some(left), Some(right)) => same(left, right),
        _ => false,
    };
    let same = |left: &Value, right: &Value, key: &str| left.text(key) == right.text(key);
    let are_read_only = |left: &Value, right: &Value| is_read_only(left) && is_read_only(right);
    both(&volume.gce_persistent_disk, &taken.gce_persistent_disk, &|left, right| {
        same(left, right, "pdName") && !are_read_only(left, right)
    }) || both(&volume.aws_elastic_block_store, &taken.aws_elastic_block_store, &|left, right| {
        same(left, right, "volumeID")
    }) || both(&volume.iscsi, &taken.iscsi, &|left, right| same(left, right, "iqn") && !are_read_only(left, right))
        || both(&volume.rbd, &taken.rbd, &|left, right| {
            let shares_monitor = monitors(left).any(|monitor| monitors(right).any(|other| other == monitor));
            shares_monitor && same(left, right, "pool") && same(left, right, "image") && !are_read_only(left, right)
        })
}

fn is_read_only(source: &Value) -> bool {
    source.get("readOnly").and_then(Value::as_bool).unwrap_or(false)
}

fn monitors(source: &Value) -> impl Iterator<Item = &str> {
    let monitors = source.get("monitors").and_then(Value::as_array).unwrap_or_default();
    monitors.iter().filter_map(Value::as_str)
}

#[derive(Clone)]
struct Restrictions<'c> {
    pod: &'c PodInfo,
    exclusive: BTreeSet<Text>,
    /// Number of the exclusive claims that are in use.
    users: i64,
}

impl Restrictions<'_> {
    fn uses(&self, pod: &PodInfo) -> i64 {
        let uses = named(pod).filter(|name| self.exclusive.contains(*name)).count();
        i64::try_from(uses).unwrap_or(i64::MAX)
    }
}

impl Filter for Restrictions<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        if node.pods.iter().any(|other| conflicts(self.pod, other)) {
            return Err(Status::unschedulable("node(s) had no available disk"));
        }
        if self.users > 0 {
            let text = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
            return Err(Status::unschedulable(text));
        }
        Ok(())
    }

    fn pod_added(&mut self, pod: &PodInfo, _: &NodeInfo) {
        self.users = self.users.saturating_add(self.uses(pod));
    }

    fn pod_removed(&mut self, pod: &PodInfo, _: &NodeInfo) {
        self.users = self.users.saturating_sub(self.uses(pod));
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(self.clone())
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::PODS).and(Dependencies::VOLUMES)
    }
}
