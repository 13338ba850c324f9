//! NodeResourcesFit: a node must have the requested resources, and is scored by its utilization.

use std::borrow::Cow;
use std::collections::BTreeSet;

use api::field::{Errors, Path};
use api::json::{Text, Value};
use api::resource::v1::IMPLICIT_RESOURCE_PREFIX;
use matching::Matcher;
use matching::resources::{Resources, is_extended};

use super::args::{self, ArgsError};
use super::dynamic_resources::class_of;
use super::scoring_strategy::{Strategy, StrategyArgs, used};
use crate::cluster::{Cluster, NodeId, NodeInfo, NodeObject, PodInfo};
use crate::framework::{
    Action, Change, Code, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, PreScore, Resource, Score,
    Status,
};

pub(crate) const NAME: &str = "NodeResourcesFit";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

#[derive(Debug)]
struct NodeResourcesFit {
    ignored: BTreeSet<Text>,
    ignored_groups: BTreeSet<Text>,
    strategy: Strategy,
}

#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Args {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_resources: Vec<Text>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_resource_groups: Vec<Text>,
    scoring_strategy: Option<StrategyArgs>,
}

/// The arguments with their defaults.
pub(super) fn write_args(given: &Value) -> Result<Value, ArgsError> {
    let args: Args = args::read(given)?;
    args::write(&Args { scoring_strategy: Some(StrategyArgs::with_defaults(args.scoring_strategy)), ..args })
}

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    let args: Args = args::read(args)?;
    let mut errors = Errors::new();
    let all = Path::new("ignoredResources");
    for (index, name) in args.ignored_resources.iter().enumerate() {
        check_name(name, all.index(index), &mut errors);
    }
    let all = Path::new("ignoredResourceGroups");
    for (index, group) in args.ignored_resource_groups.iter().enumerate() {
        if group.contains('/') {
            errors.invalid(all.index(index), group.as_str(), "resource group name can't contain '/'");
        }
        check_name(group, all.index(index), &mut errors);
    }
    let strategy = Strategy::new(args.scoring_strategy, Path::new("scoringStrategy"), &mut errors);
    args::check(&errors)?;
    Ok(Box::new(NodeResourcesFit {
        ignored: args.ignored_resources.into_iter().collect(),
        ignored_groups: args.ignored_resource_groups.into_iter().collect(),
        strategy,
    }))
}

fn check_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    for complaint in api::names::qualified_name(name) {
        errors.invalid(at, name, complaint);
    }
}

impl Plugin for NodeResourcesFit {
    fn events(&self) -> Vec<Event> {
        vec![
            Event::new(Resource::AssignedPod, Action::DELETE.or(Action::UPDATE_POD_SCALE_DOWN)),
            Event::new(Resource::TargetPod, Action::UPDATE_POD_SCALE_DOWN),
            Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_ALLOCATABLE)),
            Event::new(Resource::DeviceClass, Action::ADD.or(Action::UPDATE)),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: Event, change: Change<'_>, cluster: &Cluster) -> Hint {
        let helps = match change {
            Change::Pod { .. } if event.resource == Resource::TargetPod => true,
            Change::Pod { old: Some(deleted), new: None } => {
                !deleted.node_name.is_empty() || !deleted.nominated_node.is_empty()
            }
            Change::Pod { old: Some(old), new: Some(new) } => frees(pod, old, new),
            Change::Node { old, new: Some(new) } => node_helps(pod, old, new, cluster),
            Change::DeviceClass { old, new: Some(new) } => {
                let name = |class: &api::resource::v1::DeviceClass| class.spec.extended_resource_name.clone();
                let requests = &pod.demand().requests;
                let implicit = format!("{IMPLICIT_RESOURCE_PREFIX}{}", new.metadata.name);
                let is_new = match old {
                    Some(old) if name(old) == name(new) => return Hint::Skip,
                    Some(_) => false,
                    None => requests.scalar(&implicit).is_some(),
                };
                is_new || name(new).is_some_and(|name| requests.scalar(&name).is_some())
            }
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster) -> PreFilter<'c> {
        PreFilter::Ask(Box::new(FitFilter { plugin: self, pod, cluster }))
    }

    fn pre_score<'c>(&'c self, pod: &'c PodInfo, cluster: &'c Cluster, _: Option<&[NodeId]>) -> PreScore<'c> {
        PreScore::Ask(Box::new(FitFilter { plugin: self, pod, cluster }))
    }
}

/// Whether a change of a pod on a node releases resources that the waiting pod requests.
fn frees(pod: &PodInfo, old: &PodInfo, new: &PodInfo) -> bool {
    let (before, after) = (&old.demand().requests, &new.demand().requests);
    let wanted = &pod.demand().requests;
    let less = |name: &str| wanted.get(name) != 0 && before.get(name) > after.get(name);
    !new.node_name.is_empty()
        && (["cpu", "memory", "ephemeral-storage"].into_iter().any(less)
            || wanted.scalars().any(|(name, _)| less(name)))
}

/// Whether the pod would fit the empty node, and a resource that it requests has increased.
fn node_helps(pod: &PodInfo, old: Option<&NodeObject>, new: &NodeObject, cluster: &Cluster) -> bool {
    let wanted = &pod.demand().requests;
    let empty = Resources::default();
    let nothing = BTreeSet::new();
    let room = ResourceShortage { wanted, allocatable: &new.allocatable, requested: &empty, pods: 0, cluster };
    if room.find(&nothing, &nothing, |_, _| true) {
        return false;
    }
    let Some(old) = old else { return true };
    let (before, after) = (&old.allocatable, &new.allocatable);
    let more = |name: &str| wanted.get(name) > 0 && after.get(name) > before.get(name);
    after.pods > before.pods
        || ["cpu", "memory", "ephemeral-storage"].into_iter().any(more)
        || wanted.scalars().any(|(name, amount)| {
            amount != 0 && (more(name) || (after.get(name) <= 0 && is_device_class(cluster, name)))
        })
}

/// Whether the resource is backed by a device class: DynamicResources then checks its availability.
fn is_device_class(cluster: &Cluster, resource: &str) -> bool {
    class_of(cluster, resource).is_some()
}

#[derive(Clone, Copy)]
struct FitFilter<'c> {
    plugin: &'c NodeResourcesFit,
    pod: &'c PodInfo,
    cluster: &'c Cluster,
}

/// Requested and available resources.
struct ResourceShortage<'m> {
    wanted: &'m Resources,
    allocatable: &'m Resources,
    requested: &'m Resources,
    pods: usize,
    cluster: &'m Cluster,
}

impl ResourceShortage<'_> {
    /// Calls `found` with each missing resource, and whether the node could never have enough of it, until it
    /// stops the iteration.
    fn find(
        &self,
        ignored: &BTreeSet<Text>,
        ignored_groups: &BTreeSet<Text>,
        mut stop: impl FnMut(&str, bool) -> bool,
    ) -> bool {
        let pods = i64::try_from(self.pods).unwrap_or(i64::MAX).saturating_add(1);
        if pods > self.allocatable.pods && stop("pods", false) {
            return true;
        }
        let lacks = |name: &str| {
            let (wanted, all) = (self.wanted.get(name), self.allocatable.get(name));
            let free = all.saturating_sub(self.requested.get(name));
            (wanted > 0 && wanted > free).then_some(wanted > all)
        };
        for name in ["cpu", "memory", "ephemeral-storage"] {
            if let Some(never) = lacks(name)
                && stop(name, never)
            {
                return true;
            }
        }
        for (name, _) in self.wanted.scalars() {
            let group = || name.split('/').next().unwrap_or_default();
            if is_extended(name) && (ignored.contains(name) || ignored_groups.contains(group())) {
                continue;
            }
            if let Some(never) = lacks(name)
                && !(self.allocatable.get(name) <= 0 && is_device_class(self.cluster, name))
                && stop(name, never)
            {
                return true;
            }
        }
        false
    }
}

impl Filter for FitFilter<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        let mut reasons: Vec<Cow<'static, str>> = Vec::new();
        let mut code = Code::Unschedulable;
        let missing = ResourceShortage {
            wanted: &self.pod.shape.demand.requests,
            allocatable: &node.object.allocatable,
            requested: &node.requested,
            pods: node.pods.len(),
            cluster: self.cluster,
        };
        missing.find(&self.plugin.ignored, &self.plugin.ignored_groups, |name, never| {
            reasons.push(match name {
                "pods" => Cow::Borrowed("Too many pods"),
                "cpu" => Cow::Borrowed("Insufficient cpu"),
                "memory" => Cow::Borrowed("Insufficient memory"),
                "ephemeral-storage" => Cow::Borrowed("Insufficient ephemeral-storage"),
                other => Cow::Owned(format!("Insufficient {other}")),
            });
            if never {
                code = Code::UnschedulableAndUnresolvable;
            }
            false
        });
        if reasons.is_empty() { Ok(()) } else { Err(Status { code, reasons, plugin: "" }) }
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(*self)
    }

    fn depends_on(&self) -> Dependencies {
        // Device classes can back extended resources.
        let has_scalars = self.pod.shape.demand.requests.scalars().len() > 0;
        if has_scalars { Dependencies::NODE.and(Dependencies::CLASSES) } else { Dependencies::NODE }
    }
}

impl Score for FitFilter<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        let strategy = &self.plugin.strategy;
        Ok(strategy.score(used(&strategy.resources, self.pod, node, true)))
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}
