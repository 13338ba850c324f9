//! TaintToleration: a node's taints keep pods away that do not tolerate them, or count against the node.
//!
//! The reason names the taint, as the proposals require; everything else follows Kubernetes.

use api::json::Value;
use matching::Matcher;

use super::args::{self, ArgsError};
use crate::cluster::{Cluster, NodeId, NodeInfo, NodeObject, PodInfo};
use crate::framework::{
    Action, Change, Dependencies, Event, Filter, Hint, Plugin, Point, PreFilter, PreScore, Resource, Score, Status,
    default_normalize,
};

pub(crate) use crate::diagnosis::{TAINT_TOLERATION as NAME, UNTOLERATED_TAINT as REASON};

/// Extension points of the plugin.
pub(super) const POINTS: &[Point] = &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

#[derive(Debug)]
struct TaintToleration;

pub(super) fn new(args: &Value, _: &Matcher) -> Result<Box<dyn Plugin>, ArgsError> {
    args::none(args).map(|()| Box::new(TaintToleration) as Box<dyn Plugin>)
}

impl Plugin for TaintToleration {
    fn events(&self) -> Vec<Event> {
        vec![
            Event::new(Resource::Node, Action::ADD.or(Action::UPDATE_NODE_TAINT)),
            Event::new(Resource::TargetPod, Action::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint(&self, pod: &PodInfo, _: Event, change: Change<'_>, _: &Cluster) -> Hint {
        let Change::Node { old, new: Some(new) } = change else { return Hint::Queue };
        let rejects = |node: &NodeObject| pod.matcher.taints(&node.matching.taints).first_untolerated.is_some();
        if old.is_none_or(rejects) && !rejects(new) { Hint::Queue } else { Hint::Skip }
    }

    fn pre_filter<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster) -> PreFilter<'c> {
        PreFilter::Ask(Box::new(Taints(pod)))
    }

    fn pre_score<'c>(&'c self, pod: &'c PodInfo, _: &'c Cluster, _: Option<&[NodeId]>) -> PreScore<'c> {
        PreScore::Ask(Box::new(Taints(pod)))
    }
}

#[derive(Clone, Copy)]
struct Taints<'c>(&'c PodInfo);

impl Filter for Taints<'_> {
    fn filter(&self, node: &NodeInfo) -> Result<(), Status> {
        let set = &node.object.matching.taints;
        let Some(first) = self.0.matcher.taints(set).first_untolerated else { return Ok(()) };
        let taint = set.taints().get(usize::from(first));
        let named = taint.map(|taint| format!("{REASON} {{{}: {}}}", taint.key, taint.value));
        Err(Status::unresolvable(named.unwrap_or_else(|| REASON.to_owned())))
    }

    fn copy<'s>(&'s self) -> Box<dyn Filter + 's> {
        Box::new(*self)
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}

impl Score for Taints<'_> {
    fn score(&self, node: &NodeInfo) -> Result<i64, Status> {
        Ok(i64::from(self.0.matcher.taints(&node.object.matching.taints).intolerable_soft))
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn normalize(&self, scores: &mut [(NodeId, i64)]) {
        default_normalize(scores, true);
    }

    fn depends_on(&self) -> Dependencies {
        Dependencies::NODE
    }
}
