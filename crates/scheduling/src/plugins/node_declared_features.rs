//! NodeDeclaredFeatures: a pod that uses a feature of the node agent goes only to nodes that declare it.

use std::collections::BTreeSet;

use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, Resource, Status};

pub(super) const NAME: &str = "NodeDeclaredFeatures";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

#[derive(Debug)]
struct NodeDeclaredFeatures;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(NodeDeclaredFeatures) as Box<dyn Plugin>)
}

/// The features that a pod uses.
fn needed(pod: &PodInfo) -> BTreeSet<&'static str> {
    let spec = pod.spec();
    let containers = || spec.containers.iter().chain(&spec.init_containers);
    let restarts_all =
        containers().flat_map(|it| &it.restart_policy_rules).any(|it| it.action == "RestartAllContainers");
    let shares_network = spec.host_network && spec.host_users == Some(false);
    let has_options = containers().flat_map(|it| &it.volume_mounts).any(|it| !it.bind_mount_options.is_empty());
    let uses = [
        ("RestartAllContainersOnContainerExits", restarts_all),
        ("UserNamespacesHostNetworkSupport", shares_network),
        ("VolumeBindMountOptions", has_options),
    ];
    uses.into_iter().filter(|(_, is_used)| *is_used).map(|(name, _)| name).collect()
}

impl Plugin for NodeDeclaredFeatures {
    fn events(&self) -> Vec<Event> {
        vec![
            Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_DECLARED_FEATURE)),
            Event::new(Resource::TargetPod, Action::UPDATE_ANY_POD),
        ]
    }

    fn hint(&self, _: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let helps = match change {
            Change::Node { old: Some(old), new: Some(new) } => old.declared_features != new.declared_features,
            Change::Pod { old: Some(old), new: Some(new) } => needed(old) != needed(new),
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster) -> PreFilter<'c> {
        let needed = needed(pod);
        if needed.is_empty() { PreFilter::Skip } else { PreFilter::Ask(Box::new(RequiredFeatures(needed))) }
    }
}

#[derive(Clone)]
struct RequiredFeatures(BTreeSet<&'static str>);

impl Filter for RequiredFeatures {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        let declares = |feature: &&'static str| node.object.declared_features.iter().any(|it| it == feature);
        if self.0.iter().all(declares) {
            return Ok(());
        }
        Err(Status::unresolvable("node(s) didn't match Pod's required features"))
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(self.clone())
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}
