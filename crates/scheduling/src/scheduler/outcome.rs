//! Results of attempts.

use std::time::Duration;

use api::json::Text;

use crate::aside::DeviceSearch;
use crate::cluster::{DeviceEffort, PodKey};
use crate::complaints::Complaint;
use crate::cycle::{Evaluation, ScoreOf};
use crate::preemption::Nomination;
use crate::queue::QueuedPod;
use crate::timing::Timing;
use crate::writes::Write;

/// An attempt to place a pod.
#[derive(Debug)]
pub struct Attempt {
    /// The pod.
    pub pod: PodKey,
    /// UID of the pod.
    pub uid: Text,
    /// The profile that decided; empty for the default one.
    pub scheduler_name: Text,
    /// Number of attempts, including this one.
    pub attempts: u32,
    /// Time of the first attempt.
    pub first_attempt: Option<Duration>,
    /// Whether it was tried again only because it had waited too long.
    pub was_flushed: bool,
    /// Number of evaluated nodes.
    pub evaluated_nodes: usize,
    /// Number of nodes that fit.
    pub feasible_nodes: usize,
    /// Number of plugin results, by plugin and status.
    pub evaluations: Vec<Evaluation>,
    /// Score of the node, if there was a choice.
    pub score: Option<ScoreOf>,
    /// Durations of plugin calls, if the caller gave a clock.
    pub timings: Vec<Timing>,
    /// Faulty expressions and values that were not reported before.
    pub complaints: Vec<Complaint>,
    /// Effort of the device search; `None` if there was none.
    pub devices: Option<DeviceEffort>,
    /// Result of the attempt.
    pub outcome: Outcome,
}

/// Result of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// The pod can be bound, and counts on its node from now on. The caller writes and binds, then calls
    /// [`bound`](crate::Scheduler::bound) or [`binding_failed`](crate::Scheduler::binding_failed).
    Scheduled(Placement),
    /// The pod fits nowhere: event `FailedScheduling`, condition `PodScheduled` false with reason `Unschedulable`.
    Unschedulable(FitError),
    /// An error: event `FailedScheduling`, condition reason `SchedulerError`. The pod is tried again.
    Error(String),
    /// The attempt continues after a background search: see [`DeviceSearch`].
    Deferred(Box<DeviceSearch>),
}

/// Node of a pod, and the writes before its binding.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The node.
    pub node: Text,
    /// Writes that must precede the binding, in this order.
    pub writes: Vec<Write>,
}

/// Reasons why a pod fits nowhere.
#[derive(Debug, Clone, Default)]
pub struct FitError {
    /// Kubernetes' message.
    pub message: String,
    /// Node on which pods are preempted: the caller deletes the victims and sets `status.nominatedNodeName`.
    pub nomination: Option<Nomination>,
    /// Whether an existing nomination is still valid; otherwise `status.nominatedNodeName` is cleared.
    pub keeps_nomination: bool,
    /// The plugins that rejected it.
    pub plugins: Vec<&'static str>,
    /// Writes that may allow the pod to fit.
    pub writes: Vec<Write>,
}

impl Attempt {
    pub(super) fn new(queued: &QueuedPod) -> Self {
        Attempt {
            pod: queued.pod.key(),
            uid: queued.pod.uid.clone(),
            scheduler_name: queued.pod.spec().scheduler_name.clone(),
            attempts: queued.attempts,
            first_attempt: queued.first_attempt,
            was_flushed: queued.was_flushed,
            evaluated_nodes: 0,
            feasible_nodes: 0,
            evaluations: Vec::new(),
            score: None,
            timings: Vec::new(),
            complaints: Vec::new(),
            devices: None,
            outcome: Outcome::Error(String::new()),
        }
    }
}
