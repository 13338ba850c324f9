//! DynamicResources: a pod goes where its claims have their devices, or can have them.
//!
//! The devices are selected in `dra`; this plugin decides when to search, and produces messages and writes.
//! Follows Kubernetes' `plugins/dynamicresources`. Devices are allocated when a node is reserved; the caller
//! writes the allocation to the claims before the pod is bound. Constraints over sets follow KEP-5254.

mod claims;
mod extended;
mod hints;

use std::cell::RefCell;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::ContainerExtendedResourceRequest;
use api::field::{Errors, Path};
use api::json::{Text, Value};
use api::resource::v1::{DeviceClass, ResourceClaim};
use dra::attempt::Attempt;
use dra::constraints::look_ahead::LookAhead;
use dra::pools::Target;
use dra::{Budget, Claims, Narration};
use matching::Matcher;

use self::claims::PodClaims;
pub(in crate::plugins) use self::extended::class_of;
use self::extended::{ExtendedFilter, PendingClaim};
use super::args::{self, ArgsError};
use crate::aside;
use crate::cluster::{Cluster, Devices, NodeId, NodeInfo, PodInfo};
use crate::framework::{
    Action, Change, Event, Filter, Hint, Plugin, Point, PreFilter, PreScore, Resource, Score, Status, default_normalize,
};
use crate::preemption::{Answer, PostFilter};
use crate::writes::Write;

pub(super) const NAME: &str = "DynamicResources";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[
    Point::PreEnqueue,
    Point::PreFilter,
    Point::Filter,
    Point::PostFilter,
    Point::PreScore,
    Point::Score,
    Point::Reserve,
    Point::PreBind,
];

/// The number of failed expressions that one attempt logs.
const PROBLEMS_MAX: usize = 8;

/// Maximum number of alternatives of a request.
const ALTERNATIVES_MAX: i64 = 8;

#[derive(Debug)]
struct DynamicResources {
    /// `None` for no limit.
    filter_timeout: Option<Duration>,
    /// Time limit for the readiness of the devices.
    binding_timeout: Duration,
}

/// Limits on time.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    /// Looking for devices takes at most this long in one attempt.
    filter_timeout: Text,
    /// A pod waits at most this long for devices that must be made ready.
    binding_timeout: Text,
}

impl Default for Args {
    fn default() -> Self {
        Args { filter_timeout: "10s".into(), binding_timeout: "10m0s".into() }
    }
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    args::write(&args::read::<Args>(given)?)
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let mut errors = Errors::new();
    let mut read = |field: &str, text: &Text, least: Duration, why: &str| {
        let nanos = api::duration::Duration::parse(text).ok().and_then(|it| u64::try_from(it.nanos).ok());
        let time = nanos.map(Duration::from_nanos).filter(|time| *time >= least);
        if time.is_none() {
            errors.invalid(Path::new(field), text.as_str(), why);
        }
        time.unwrap_or(least)
    };
    let timeout = read("filterTimeout", &args.filter_timeout, Duration::ZERO, "must be zero or positive");
    let second = Duration::from_secs(1);
    let binding_timeout = read("bindingTimeout", &args.binding_timeout, second, "must be at least 1 second");
    args::check(&errors)?;
    let filter_timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
    Ok(Box::new(DynamicResources { filter_timeout, binding_timeout }))
}

impl Plugin for DynamicResources {
    fn events(&self) -> Vec<Event> {
        let node = Action::ADD.or(Action::UPDATE_NODE_LABEL).or(Action::UPDATE_NODE_ALLOCATABLE);
        let any = Action::ADD.or(Action::UPDATE).or(Action::DELETE);
        vec![
            Event::new(Resource::Node, node),
            Event::new(Resource::ResourceClaim, any),
            Event::new(Resource::TargetPod, Action::UPDATE_POD_GENERATED_RESOURCE_CLAIM),
            Event::new(Resource::DeviceClass, Action::ADD.or(Action::UPDATE)),
            Event::new(Resource::ResourceSlice, Action::ADD.or(Action::UPDATE)),
        ]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, cluster: &Cluster) -> Hint {
        hints::hint(pod, change, cluster)
    }

    fn pre_enqueue(&self, pod: &PodInfo, cluster: &Cluster) -> Result<(), Status> {
        claims::are_made(pod, cluster).map_err(Status::unresolvable)
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        let resources = extended::of(pod, cluster);
        if pod.spec().resource_claims.is_empty() && resources.is_empty() {
            return PreFilter::Skip;
        }
        match ClaimFilter::new(pod, cluster, self.filter_timeout) {
            Ok(_) if !resources.is_empty() => {
                PreFilter::Ask(Box::new(ExtendedFilter::new(pod, cluster, resources, self.filter_timeout)))
            }
            Ok(None) => PreFilter::Skip,
            Ok(Some(asking)) => PreFilter::Ask(Box::new(asking)),
            Err(status) => PreFilter::Reject(status),
        }
    }

    fn post_filter(&self, failed: &mut PostFilter<'_, '_>) -> Option<Answer> {
        if let Some(claim) = extended::stale_claim(failed.pod, failed.cluster) {
            return Some(Answer {
                message: "deletion of ResourceClaim completed".to_owned(),
                writes: vec![Write::DeleteResourceClaim {
                    namespace: claim.metadata.namespace.clone(),
                    claim: claim.metadata.name.clone(),
                    uid: claim.metadata.uid.clone(),
                }],
                ..Answer::default()
            });
        }
        let asking = ClaimFilter::new(failed.pod, failed.cluster, self.filter_timeout).ok().flatten()?;
        let is_idle = |claim: &ResourceClaim| match claim.status.reserved_for.as_slice() {
            [] => true,
            [one] => one.uid == failed.pod.uid,
            _ => false,
        };
        // A claim with devices that some node cannot use: elsewhere others may be had.
        let claim = asking.claims.allocated().find(|(claim, nodes)| {
            let is_elsewhere = |node: &NodeInfo| !nodes.contain(&node.object.matching);
            is_idle(claim) && failed.cluster.cache.nodes().any(is_elsewhere)
        });
        let (claim, _) = claim?;
        Some(Answer {
            message: "deallocation of ResourceClaim completed".to_owned(),
            writes: vec![Write::FreeResourceClaim {
                namespace: claim.metadata.namespace.clone(),
                claim: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                resource_version: claim.metadata.resource_version.clone(),
            }],
            ..Answer::default()
        })
    }

    fn pre_score<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster, _: Option<&[NodeId]>) -> PreScore<'c> {
        if pod.spec().resource_claims.is_empty() {
            return PreScore::Skip;
        }
        match ClaimFilter::new(pod, cluster, self.filter_timeout) {
            // Only alternatives make a difference.
            Ok(Some(asking)) if asking.claims.have_alternatives() => match extended::of(pod, cluster) {
                names if names.is_empty() => PreScore::Ask(Box::new(asking)),
                names => PreScore::Ask(Box::new(ExtendedFilter::new(pod, cluster, names, self.filter_timeout))),
            },
            Ok(_) => PreScore::Skip,
            Err(status) => PreScore::Fail(status),
        }
    }

    fn reserve(&self, pod: &PodInfo, node: &NodeInfo, cluster: &Cluster) -> Result<Vec<Write>, Status> {
        let resources = extended::of(pod, cluster);
        let asking = if resources.is_empty() {
            if pod.spec().resource_claims.is_empty() {
                return Ok(Vec::new());
            }
            ClaimFilter::new(pod, cluster, self.filter_timeout)?.map(Rc::new)
        } else {
            ExtendedFilter::new(pod, cluster, resources, self.filter_timeout).on(node)?
        };
        let Some(asking) = asking else { return Ok(Vec::new()) };
        let mut allocations = asking.allocate(node)?.into_iter();
        let mut writes = Vec::new();
        for claim in asking.claims.all() {
            let allocation = match &claim.status.allocation {
                Some(_) => None,
                None => Some(allocations.next().ok_or_else(|| Status::error("claim allocation not found for node"))?),
            };
            if let (true, Some(allocation)) = (extended::is_in_memory(claim), &allocation) {
                writes.push(Write::CreateResourceClaim {
                    claim: claim.clone(),
                    allocation: Arc::new(allocation.clone()),
                    mappings: asking.mappings.clone(),
                    timeout: self.binding_timeout,
                });
                continue;
            }
            if allocation.is_none() && claim.status.reserved_for.iter().any(|user| user.uid == pod.uid) {
                continue;
            }
            writes.push(Write::UseResourceClaim {
                claim: claim.clone(),
                allocation: allocation.map(Arc::new),
                timeout: self.binding_timeout,
            });
        }
        Ok(writes)
    }
}

/// The claims of a pod, and the device search for them.
struct ClaimFilter<'c> {
    claims: PodClaims,
    devices: &'c Devices,
    /// `None` if all claims are allocated.
    attempt: Option<RefCell<Attempt<'c>>>,
    /// Time limit for the device search.
    timeout: Option<Duration>,
    pod: Text,
    /// The containers that the claim in memory serves, if there is one.
    mappings: Vec<ContainerExtendedResourceRequest>,
}

impl<'c> ClaimFilter<'c> {
    /// Prepares the claims of a pod; `None` if it has none.
    fn new(pod: &PodInfo, cluster: &'c Cluster, timeout: Option<Duration>) -> Result<Option<Self>, Status> {
        Self::with(pod, cluster, timeout, None)
    }

    /// Prepares the claims of a pod, and the one in memory for its extended resources.
    fn with(
        pod: &PodInfo,
        cluster: &'c Cluster,
        timeout: Option<Duration>,
        pending: Option<PendingClaim>,
    ) -> Result<Option<Self>, Status> {
        let mut claims = PodClaims::of(pod, cluster).map_err(Status::unresolvable)?;
        let mut mappings = Vec::new();
        if let Some(pending) = pending {
            claims.push(pending.claim);
            mappings = pending.mappings;
        }
        if claims.is_empty() {
            return Ok(None);
        }
        let Some(devices) = &cluster.objects.devices else {
            return Err(Status::unresolvable("dynamic resource allocation is not available in this scheduler"));
        };
        let waiting: Vec<Arc<ResourceClaim>> = claims.to_allocate().cloned().collect();
        for claim in &waiting {
            claims::check(claim, devices, cluster)?;
        }
        let attempt = (!waiting.is_empty()).then(|| RefCell::new(attempt(&waiting, devices, cluster, timeout)));
        Ok(Some(ClaimFilter { claims, devices, attempt, timeout, pod: pod.uid.clone(), mappings }))
    }

    /// Devices for all claims that need some.
    fn allocate(&self, node: &NodeInfo) -> Result<Vec<api::resource::v1::AllocationResult>, Status> {
        let Some(attempt) = &self.attempt else { return Ok(Vec::new()) };
        let mut attempt = attempt.borrow_mut();
        let found = attempt.ask(target(node)).map_err(|error| self.fail(&error))?;
        let found = found.ok_or_else(|| Status::unresolvable("cannot allocate all claims"))?;
        let mut shares = 0_u64;
        let mut share_id = || {
            shares = shares.wrapping_add(1);
            share_id(&self.pod, shares)
        };
        attempt.allocations(&found, &mut share_id).map_err(|error| self.fail(&error))
    }

    /// Errors about a node leave the others; other errors end the attempt. Errors of expressions are recorded.
    fn fail(&self, error: &dra::Error) -> Status {
        if error.is_about_expression() {
            self.devices.note(|spent| {
                // Of nodes with equal failures, the first is logged.
                let is_known = spent.problems.iter().any(|known| known.summary() == error.summary());
                if !is_known && spent.problems.len() < PROBLEMS_MAX {
                    spent.problems.push(error.clone());
                }
            });
        }
        if error.is_about_node() { Status::unresolvable(error.summary()) } else { Status::error(error.to_string()) }
    }

    fn judge(&self, node: &NodeInfo) -> Result<(), Status> {
        if let Some(attempt) = &self.attempt {
            let found = attempt.borrow_mut().ask(target(node)).map_err(|error| self.fail(&error))?;
            if found.is_none() {
                return Err(Status::unresolvable("cannot allocate all claims"));
            }
        }
        let declares = |name: &str| node.object.declared_features.iter().any(|it| it == name);
        let is_available = self.claims.allocated().all(|(claim, nodes)| {
            let results = claim.status.allocation.iter().flat_map(|it| &it.devices.results);
            let skips = results.clone().any(|result| !result.skip_node_operations.is_empty());
            nodes.contain(&node.object.matching) && (!skips || declares("DRAOptionalNodeOperations"))
        });
        if is_available { Ok(()) } else { Err(Status::unresolvable("resourceclaim not available on the node")) }
    }
}

fn target(node: &NodeInfo) -> Target<'_> {
    Target::new(&node.object.matching, &node.object.declared_features)
}

impl Drop for ClaimFilter<'_> {
    fn drop(&mut self) {
        let Some(attempt) = &self.attempt else { return };
        let mut attempt = attempt.borrow_mut();
        self.devices.note(|spent| {
            spent.effort = spent.effort.and(attempt.effort());
            spent.searches = spent.searches.saturating_add(attempt.searches());
            if let Some(reported) = attempt.take_narration() {
                spent.narration.get_or_insert_default().extend(reported);
            }
            if let Some(deferred) = attempt.take_deferred() {
                spent.deferred = Some((deferred, self.timeout));
            }
        });
    }
}

fn attempt<'c>(
    claims: &[Arc<ResourceClaim>],
    devices: &'c Devices,
    cluster: &Cluster,
    timeout: Option<Duration>,
) -> Attempt<'c> {
    let class = |name: &str| -> Option<Arc<DeviceClass>> {
        cluster.objects.device_classes.get(&(Text::default(), name.into())).cloned()
    };
    let claims = Claims::new(claims, &class, &devices.programs, devices.inventory.features());
    let budget = Budget {
        cost_limit: devices.cost_limit,
        cost: devices.carried.effort.cost,
        narration: devices.narrates.then(Narration::default),
        interrupt: aside::limit(devices.clock.as_ref(), timeout, devices.carried.time),
        patience: devices.patience,
    };
    Attempt::new(&devices.inventory, claims, budget, Some(&|| Box::new(LookAhead::default())))
}

/// Returns an ID in the form of a UUID that is unique among the shares of the cluster, because pods have unique
/// IDs.
fn share_id(pod: &str, number: u64) -> Text {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, pod, number).hash(&mut hasher);
        hasher.finish()
    };
    let (high, low) = (half(0), half(1));
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xfff);
    let (d, e) = (((low >> 48) & 0x3fff) | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}").into()
}

impl Filter for ClaimFilter<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        self.judge(node)
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(UnchangedFilter(self))
    }
}

/// A filter with unchanged results: devices stay allocated to their claims, regardless of hypothetically
/// removed pods.
struct UnchangedFilter<'s, 'c>(&'s ClaimFilter<'c>);

impl Filter for UnchangedFilter<'_, '_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        self.0.judge(node)
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(UnchangedFilter(self.0))
    }
}

impl Score for ClaimFilter<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        let given = self.claims.alternatives_given();
        let given = given.map(|place| ALTERNATIVES_MAX.saturating_sub(i64::try_from(place).unwrap_or(0)));
        let given = given.fold(0, i64::saturating_add);
        let Some(attempt) = &self.attempt else { return Ok(given) };
        let mut attempt = attempt.borrow_mut();
        let found = attempt.ask(target(node)).map_err(|error| self.fail(&error))?;
        Ok(found.map_or(0, |found| attempt.score(&found).saturating_add(given)))
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [(NodeId, i64)]) {
        default_normalize(scores, false);
    }
}

#[cfg(test)]
mod tests;
