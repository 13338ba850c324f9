//! What came of an attempt.

use std::time::Duration;

use api::json::Text;

use crate::aside::DeviceSearch;
use crate::cluster::{PodKey, Spent};
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
    /// Which of all pods of that name.
    pub uid: Text,
    /// The profile that decided; empty for the default one.
    pub scheduler_name: Text,
    /// How often it was tried, this attempt included.
    pub attempts: u32,
    /// When it was first tried.
    pub first_attempt: Option<Duration>,
    /// It was tried again only because it had waited too long.
    pub was_flushed: bool,
    /// How many nodes were looked at.
    pub evaluated_nodes: usize,
    /// How many of them fit.
    pub feasible_nodes: usize,
    /// How often plugins were asked, and what they said.
    pub evaluations: Vec<Evaluation>,
    /// How much plugins like the node, where there was a choice.
    pub score: Option<ScoreOf>,
    /// How long plugins took, where the caller gave a clock.
    pub timings: Vec<Timing>,
    /// What was wrong with expressions and values, where it was not told before.
    pub complaints: Vec<Complaint>,
    /// What looking for devices took; nothing if none were looked for.
    pub devices: Option<Spent>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// The pod can be bound, and counts on its node from now on. The caller writes and binds, then says
    /// [`bound`](crate::Scheduler::bound) or [`binding_failed`](crate::Scheduler::binding_failed).
    Scheduled(Placement),
    /// The pod fits nowhere: event `FailedScheduling`, condition `PodScheduled` false with reason `Unschedulable`.
    Unschedulable(Unplaced),
    /// Something went wrong: event `FailedScheduling`, condition reason `SchedulerError`. It is tried again.
    Error(String),
    /// The attempt goes on when a search has been carried out: see [`DeviceSearch`].
    Deferred(Box<DeviceSearch>),
}

/// Where a pod goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The node.
    pub node: Text,
    /// What has to be written before the pod is bound, in this order.
    pub writes: Vec<Write>,
}

/// Why a pod fits nowhere.
#[derive(Debug, Clone, Default)]
pub struct Unplaced {
    /// Kubernetes' sentence.
    pub message: String,
    /// Where room is being made: the caller deletes the victims and sets `status.nominatedNodeName`.
    pub nomination: Option<Nomination>,
    /// Room that is being made already is still needed; otherwise `status.nominatedNodeName` is cleared.
    pub keeps_nomination: bool,
    /// The plugins that rejected it.
    pub plugins: Vec<&'static str>,
    /// What the caller has to write so that the pod may fit.
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
