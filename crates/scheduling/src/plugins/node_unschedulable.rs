//! NodeUnschedulable: a cordoned node accepts only pods that tolerate the corresponding taint.

use api::json::Value;
use matching::{Matcher, taints};

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, Resource, Status};

pub(crate) const NAME: &str = "NodeUnschedulable";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

#[derive(Debug)]
struct NodeUnschedulable;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(NodeUnschedulable) as Box<dyn Plugin>)
}

fn tolerates(pod: &PodInfo) -> bool {
    pod.matcher.tolerations().tolerate(&taints::unschedulable())
}

impl Plugin for NodeUnschedulable {
    fn events(&self) -> Vec<Event> {
        vec![
            Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_TAINT)),
            Event::new(Resource::TargetPod, Action::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let helps = match change {
            Change::Node { old, new } => {
                old.is_none_or(|old| old.unschedulable) && new.is_some_and(|new| !new.unschedulable)
            }
            _ => tolerates(pod),
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster) -> PreFilter<'c> {
        PreFilter::Ask(Box::new(Cordons(pod)))
    }
}

#[derive(Clone, Copy)]
struct Cordons<'c>(&'c PodInfo);

impl Filter for Cordons<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        if !node.object.unschedulable || tolerates(self.0) {
            return Ok(());
        }
        Err(Status::unresolvable("node(s) were unschedulable"))
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(*self)
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}
