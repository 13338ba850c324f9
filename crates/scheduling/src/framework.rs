//! Plugins and extension points.
//!
//! Kubernetes' extension points, adapted to Rust: the state that a plugin prepares before the nodes are
//! evaluated (PreFilter, PreScore) is a value that it returns, and the evaluation of a node is a method of that
//! value. There is no shared state for lookups, and a plugin without work returns no value.

pub mod event;
mod status;

use std::collections::BTreeSet;
use std::fmt::{self, Debug};

use api::json::Text;
pub use event::{Action, Change, Event, Hint, Resource};
pub use status::{Code, Status};

use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::preemption::PostFilter;
use crate::writes::Write;

/// The highest score a node can get from a plugin after normalization.
pub const MAX_NODE_SCORE: i64 = 100;

/// An extension point. The names are those of Kubernetes' configuration files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are Kubernetes'")]
pub enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Dependencies of a cached result about a node, besides the node itself and the pod's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dependencies(u8);

impl Dependencies {
    /// The node and the pod's shape alone.
    pub const NODE: Dependencies = Dependencies(1);
    /// Pods on other nodes, and which nodes there are.
    pub const PODS: Dependencies = Dependencies(1 << 1);
    /// Volumes, claims, storage classes and drivers.
    pub const VOLUMES: Dependencies = Dependencies(1 << 2);
    /// The images of all nodes, and the number of nodes.
    pub const IMAGES: Dependencies = Dependencies(1 << 3);
    /// Device classes, which back extended resources.
    pub const CLASSES: Dependencies = Dependencies(1 << 4);
    /// Dependencies that cannot be tracked: the result is never cached.
    pub const UNKNOWN: Dependencies = Dependencies(1 << 7);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Dependencies) -> Dependencies {
        Dependencies(self.0 | other.0)
    }

    /// Whether nothing is declared.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub const fn include(self, other: Dependencies) -> bool {
        self.0 & other.0 != 0
    }
}

/// A plugin. It keeps the default method of an extension point that it does not implement. Its name and its points are
/// in its row of `plugins::ALL`.
pub trait Plugin: Debug + Send + Sync {
    /// Events that might help a pod that it rejected.
    fn events(&self) -> Vec<Event> {
        Vec::new()
    }

    /// Judges a change that may help a pod that the plugin rejected. When in doubt, it does.
    fn hint(&self, _pod: &PodInfo, _event: Event, _change: Change<'_>, _cluster: &Cluster) -> Hint {
        Hint::Queue
    }

    /// PreEnqueue: whether the pod may be tried at all.
    ///
    /// # Errors
    /// Why it may not.
    fn pre_enqueue(&self, _pod: &PodInfo, _cluster: &Cluster) -> Result<(), Status> {
        Ok(())
    }

    /// QueueSort: pods of lower rank come first, those of one rank in the order in which they came.
    fn rank(&self, _pod: &PodInfo) -> i64 {
        0
    }

    /// PreFilter and Filter.
    fn pre_filter<'c>(&'c self, _pod: &'c PodInfo, _cluster: &'c Cluster) -> PreFilter<'c> {
        PreFilter::Skip
    }

    /// PostFilter: actions when no node fits.
    fn post_filter(&self, _failed: &mut PostFilter<'_, '_>) -> Option<crate::preemption::Answer> {
        None
    }

    /// PreScore, Score and NormalizeScore. Called with the nodes that fit; with `None` while they are not
    /// known, for which the result must be the same or [`PreScore::Together`].
    fn pre_score<'c>(&'c self, _pod: &'c PodInfo, _cluster: &'c Cluster, _nodes: Option<&[NodeId]>) -> PreScore<'c> {
        PreScore::Skip
    }

    /// Reserve: returns the writes that must precede the binding. PreBind performs them, which is done by the
    /// caller.
    ///
    /// # Errors
    /// Why the node cannot be used after all.
    fn reserve(&self, _pod: &PodInfo, _node: &NodeInfo, _cluster: &Cluster) -> Result<Vec<Write>, Status> {
        Ok(Vec::new())
    }

    /// Permit: a last word before the pod is bound.
    ///
    /// # Errors
    /// Why it may not be bound.
    fn permit(&self, _pod: &PodInfo, _node: &NodeInfo) -> Result<(), Status> {
        Ok(())
    }
}

/// Result of PreFilter.
pub enum PreFilter<'c> {
    /// The plugin accepts every node.
    Skip,
    /// The filter must be run.
    Ask(Box<dyn Filter + 'c>),
    /// The filter must be run, and only on these nodes.
    AskAbout(Box<dyn Filter + 'c>, BTreeSet<Text>),
    /// The plugin rejects all nodes.
    Reject(Status),
}

/// A prepared filter for nodes.
pub trait Filter {
    /// Checks that the pod may run on the node.
    ///
    /// # Errors
    /// Why not.
    fn filter(&self, node: &NodeInfo) -> Result<(), Status>;

    /// A pod is imagined on a node.
    fn pod_added(&mut self, _pod: &PodInfo, _node: &NodeInfo) {}

    /// A pod is imagined away from a node.
    fn pod_removed(&mut self, _pod: &PodInfo, _node: &NodeInfo) {}

    /// A copy for another what-if evaluation.
    fn copy<'s>(&'s self) -> Box<dyn Filter + 's>;

    /// Dependencies of the result.
    fn depends_on(&self) -> Dependencies {
        Dependencies::UNKNOWN
    }
}

/// Result of PreScore.
pub enum PreScore<'c> {
    /// The plugin prefers no node.
    Skip,
    /// The scorer must be run.
    Ask(Box<dyn Score + 'c>),
    /// The scorer can be prepared only when the nodes that fit are known.
    Together,
    /// The attempt fails.
    Fail(Status),
}

/// A prepared scorer for nodes.
pub trait Score {
    /// A raw score.
    ///
    /// # Errors
    /// The reason why there is no score, which ends the attempt.
    fn score(&self, node: &NodeInfo) -> Result<i64, Status>;

    /// Normalizes raw scores to the range from 0 to [`MAX_NODE_SCORE`].
    fn normalize(&self, _scores: &mut [(NodeId, i64)]) {}

    /// Whether [`normalize`](Self::normalize) does something. If the raw score holds for a node whatever others there are,
    /// it looks only at which scores there are, not at how many nodes have them, or which.
    fn is_relative(&self) -> bool {
        false
    }

    /// Dependencies of the raw score.
    fn depends_on(&self) -> Dependencies {
        Dependencies::UNKNOWN
    }
}

/// Scales scores so that the highest becomes [`MAX_NODE_SCORE`]; reversed, the highest becomes zero.
pub(crate) fn default_normalize(scores: &mut [(NodeId, i64)], reverse: bool) {
    let highest = scores.iter().map(|(_, score)| *score).max().unwrap_or(0);
    for (_, score) in scores {
        let scaled = score.saturating_mul(MAX_NODE_SCORE).checked_div(highest);
        *score = match scaled {
            None if reverse => MAX_NODE_SCORE,
            None => *score,
            Some(scaled) if reverse => MAX_NODE_SCORE.saturating_sub(scaled),
            Some(scaled) => scaled,
        };
    }
}
