//! Extended resources that devices stand for.
//!
//! Kubernetes makes a claim to such devices by itself. Here devices go to claims only, so that a pod which asks for such a
//! resource runs where the node has the resource itself, and nowhere else: it must not run without its devices.

use super::Asking;
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::{Filter, Status};
use crate::plugins::node_resources_fit::is_device_class;

/// The resources that a pod asks for and devices stand for.
pub(super) fn of<'c>(pod: &'c PodInfo, cluster: &Cluster) -> Vec<&'c str> {
    let wanted = pod.shape.demand.requests.scalars().filter(|(_, amount)| *amount > 0);
    wanted.map(|(name, _)| name.as_str()).filter(|name| is_device_class(cluster, name)).collect()
}

/// A pod that asks for such resources, and perhaps for devices by claims as well.
pub(super) struct Backed<'c> {
    pub(super) resources: Vec<&'c str>,
    pub(super) claims: Option<Asking<'c>>,
}

impl Backed<'_> {
    fn judge(&self, node: &NodeInfo) -> Result<(), Status> {
        let missing = self.resources.iter().find(|name| node.object.allocatable.get(name) <= 0);
        if let Some(name) = missing {
            let reason = format!("node(s) had no {name}, and devices of its class are given to claims only");
            return Err(Status::unresolvable(reason));
        }
        self.claims.as_ref().map_or(Ok(()), |claims| claims.judge(node))
    }
}

impl Filter for Backed<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        self.judge(node)
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(Same(self))
    }
}

/// The same answers, whichever pods are imagined away.
struct Same<'s, 'c>(&'s Backed<'c>);

impl Filter for Same<'_, '_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        self.0.judge(node)
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(Same(self.0))
    }
}
