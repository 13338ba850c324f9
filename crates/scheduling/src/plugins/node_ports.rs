//! NodePorts: two pods on a node cannot have the same port of the host.

use api::json::Value;
use matching::Matcher;
use matching::host_ports::HostPort;

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, Resource, Status};

pub(crate) const NAME: &str = "NodePorts";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

#[derive(Debug)]
struct NodePorts;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(NodePorts) as Box<dyn Plugin>)
}

impl Plugin for NodePorts {
    fn events(&self) -> Vec<Event> {
        vec![Event::new(Resource::AssignedPod, Action::DELETE), Event::new(Resource::Node, Action::ADD)]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let Change::Pod { old: Some(deleted), .. } = change else { return Hint::Queue };
        if deleted.node_name.is_empty() && deleted.nominated_node.is_empty() {
            return Hint::Skip;
        }
        let conflicts = |port: &HostPort| deleted.ports.iter().any(|other| other.conflicts_with(port));
        if pod.ports.iter().any(conflicts) { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster) -> PreFilter<'c> {
        if pod.ports.is_empty() { PreFilter::Skip } else { PreFilter::Ask(Box::new(Ports(pod))) }
    }
}

#[derive(Clone, Copy)]
struct Ports<'c>(&'c PodInfo);

impl Filter for Ports<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        if self.0.ports.iter().any(|port| node.ports.conflict_with(port)) {
            return Err(Status::unschedulable("node(s) didn't have free ports for the requested pod ports"));
        }
        Ok(())
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(*self)
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}
