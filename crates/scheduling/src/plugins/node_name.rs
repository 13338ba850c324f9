//! NodeName: a pod that names its node can run only there.

use std::collections::BTreeSet;

use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Action, Dependencies, Event, Filter, Plugin, Point, PreFilter, Resource, Status};

pub(super) const NAME: &str = "NodeName";

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter];

#[derive(Debug)]
struct NodeName;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(NodeName) as Box<dyn Plugin>)
}

impl Plugin for NodeName {
    fn events(&self) -> Vec<Event> {
        vec![Event::new(Resource::Node, Action::ADD)]
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster) -> PreFilter<'c> {
        let filter = Box::new(NodeNameFilter(pod));
        if pod.node_name.is_empty() {
            PreFilter::Ask(filter)
        } else {
            PreFilter::AskAbout(filter, BTreeSet::from([pod.node_name.clone()]))
        }
    }
}

#[derive(Clone, Copy)]
struct NodeNameFilter<'c>(&'c PodInfo);

impl Filter for NodeNameFilter<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        if self.0.node_name.is_empty() || self.0.node_name == *node.name() {
            return Ok(());
        }
        Err(Status::unresolvable("node(s) didn't match the requested node name"))
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(*self)
    }

    fn depends_on(&self) -> Dependencies {
        // The name is not part of the shape.
        if self.0.node_name.is_empty() { Dependencies::NODE } else { Dependencies::UNKNOWN }
    }
}
