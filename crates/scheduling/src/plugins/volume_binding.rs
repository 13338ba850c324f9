//! VolumeBinding: the volumes of a pod must be reachable from its node, and claims that wait for it get theirs there.

mod binder;
mod hints;

use std::collections::BTreeMap;
use std::time::Duration;

use api::core::v1::PersistentVolumeClaim;
use api::field::{Errors, Path};
use api::json::{Text, Value};
use matching::Matcher;
use matching::volumes::class_of_claim;

use self::binder::{Claims, VolumeFit};
use super::args::{self, ArgsError};
use super::scoring_strategy::{ShapeArgs, linear, rounded, share};
use super::volume_claims::{check_owner, claim_not_found, claims_of, find};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::framework::{
    Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, PreScore, Resource, Score, Status,
};
use crate::writes::Write;

pub(super) const NAME: &str = "VolumeBinding";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] =
    &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score, Point::Reserve, Point::PreBind];

#[derive(Debug)]
struct VolumeBinding {
    /// Scoring of storage utilization.
    shape: Vec<(i64, i64)>,
    /// Time limit for the volumes of a pod.
    timeout: Duration,
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    bind_timeout_seconds: i64,
    shape: Vec<ShapeArgs>,
}

impl Default for Args {
    fn default() -> Self {
        Args { bind_timeout_seconds: 600, shape: ShapeArgs::emptier_is_better() }
    }
}

fn read(given: &Value) -> Result<Args, ArgsError> {
    let args: Args = args::read(given)?;
    Ok(if args.shape.is_empty() { Args { shape: ShapeArgs::emptier_is_better(), ..args } } else { args })
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    args::write(&read(given)?)
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args = read(args)?;
    let mut errors = Errors::new();
    let seconds = u64::try_from(args.bind_timeout_seconds);
    if seconds.is_err() {
        let why = "invalid BindTimeoutSeconds, should not be a negative value";
        errors.invalid(Path::new("bindTimeoutSeconds"), args.bind_timeout_seconds, why);
    }
    ShapeArgs::check(&args.shape, Path::new("shape"), &mut errors);
    args::check(&errors)?;
    let timeout = Duration::from_secs(seconds.unwrap_or(0));
    Ok(Box::new(VolumeBinding { shape: ShapeArgs::scaled(&args.shape), timeout }))
}

impl Plugin for VolumeBinding {
    fn events(&self) -> Vec<Event> {
        let set = Action::ADD.or(Action::UPDATE);
        vec![
            Event::new(Resource::StorageClass, set),
            Event::new(Resource::PersistentVolumeClaim, set),
            Event::new(Resource::PersistentVolume, set),
            Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_LABEL)),
            Event::new(Resource::CSINode, set),
            Event::new(Resource::CSIDriver, Action::UPDATE),
            Event::new(Resource::CSIStorageCapacity, set),
        ]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        if hints::helps(pod, change) { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        match check_claims(pod, cluster) {
            Ok(false) => return PreFilter::Skip,
            Ok(true) => {}
            Err(text) => return PreFilter::Reject(Status::unresolvable(text)),
        }
        match Claims::of(pod, cluster) {
            Ok(claims) if claims.has_unbound_immediate => {
                PreFilter::Reject(Status::unresolvable("pod has unbound immediate PersistentVolumeClaims"))
            }
            Ok(claims) => PreFilter::Ask(Box::new(Volumes { claims, cluster })),
            Err(text) => PreFilter::Reject(Status::error(text)),
        }
    }

    fn pre_score<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster, _: Option<&[NodeId]>) -> PreScore<'c> {
        let claims = Claims::of(pod, cluster).unwrap_or_default();
        PreScore::Ask(Box::new(Fullness { shape: &self.shape, claims, cluster }))
    }

    fn reserve(&self, pod: &PodInfo, node: &NodeInfo, cluster: &Cluster) -> Result<Vec<Write>, Status> {
        if claims_of(pod).next().is_none() {
            return Ok(Vec::new());
        }
        let claims = Claims::of(pod, cluster).map_err(Status::error)?;
        let found = claims.find(node, cluster).map_err(Status::error)?;
        if !found.reasons.is_empty() {
            return Err(Status::unresolvable(found.reasons.join(", ")));
        }
        let name = |claim: &PersistentVolumeClaim| (claim.metadata.namespace.clone(), claim.metadata.name.clone());
        let bind = found.bindings.iter().map(|(claim, volume)| {
            let (namespace, claim) = name(claim);
            Write::BindVolume { volume: volume.metadata.name.clone(), namespace, claim, timeout: self.timeout }
        });
        let provision = found.provisions.iter().map(|(claim, _)| {
            let (namespace, claim) = name(claim);
            Write::ProvisionVolume { namespace, claim, node: node.name().clone(), timeout: self.timeout }
        });
        Ok(bind.chain(provision).collect())
    }
}

/// Whether the pod has claims, all of which exist and are usable.
fn check_claims(pod: &PodInfo, cluster: &Cluster) -> Result<bool, String> {
    let mut has_claims = false;
    for used in claims_of(pod) {
        has_claims = true;
        let Some(claim) = find(cluster, pod, &used.name) else {
            return Err(if used.is_ephemeral {
                format!("waiting for ephemeral volume controller to create the persistentvolumeclaim \"{}\"", used.name)
            } else {
                claim_not_found(&used.name)
            });
        };
        let name = &claim.metadata.name;
        if claim.status.phase == "Lost" {
            let volume = &claim.spec.volume_name;
            return Err(format!(
                "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
            ));
        }
        if claim.metadata.is_deleting() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        if used.is_ephemeral {
            check_owner(pod, claim)?;
        }
    }
    Ok(has_claims)
}

#[derive(Clone)]
struct Volumes<'c> {
    claims: Claims<'c>,
    cluster: &'c Cluster,
}

impl Filter for Volumes<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        let found = self.claims.find(node, self.cluster).map_err(Status::error)?;
        if found.reasons.is_empty() {
            return Ok(());
        }
        let reasons = found.reasons.into_iter().map(Into::into).collect();
        Err(Status { reasons, ..Status::unresolvable("") })
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(self.clone())
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::VOLUMES)
    }
}

struct Fullness<'c> {
    shape: &'c [(i64, i64)],
    claims: Claims<'c>,
    cluster: &'c Cluster,
}

impl Score for Fullness<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        let Ok(found) = self.claims.find(node, self.cluster) else { return Ok(0) };
        let classes = by_class(&found);
        let scores = classes.values().map(|(requested, capacity)| {
            let utilization = if *capacity == 0 || requested > capacity { 100 } else { share(*requested, *capacity) };
            linear(self.shape, utilization)
        });
        let sum = scores.fold(0, i64::saturating_add);
        let count = i64::try_from(classes.len()).unwrap_or(i64::MAX);
        Ok(if count == 0 { 0 } else { rounded(sum, count) })
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE.and(Dependencies::VOLUMES)
    }
}

/// Returns requested and available storage by storage class: of the volumes that would be bound, or else
/// provisioned.
fn by_class(found: &VolumeFit<'_>) -> BTreeMap<Text, (i64, i64)> {
    let mut classes: BTreeMap<Text, (i64, i64)> = BTreeMap::new();
    let wanted =
        |claim: &PersistentVolumeClaim| claim.spec.resources.requests.get("storage").map_or(0, |it| it.value());
    for (claim, volume) in &found.bindings {
        let capacity = volume.spec.capacity.get("storage").map_or(0, |it| it.value());
        let entry = classes.entry(volume.spec.storage_class_name.clone()).or_default();
        *entry = (entry.0.saturating_add(wanted(claim)), entry.1.saturating_add(capacity));
    }
    if found.bindings.is_empty() {
        for (claim, capacity) in &found.provisions {
            let Some(capacity) = capacity.as_ref().and_then(|it| it.capacity.as_ref()) else { continue };
            let entry = classes.entry(class_of_claim(claim).into()).or_default();
            *entry = (entry.0.saturating_add(wanted(claim)), capacity.value());
        }
    }
    classes
}
