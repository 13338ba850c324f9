//! The core as its caller sees it: changes in, decisions out.

mod budget;
mod changes;
mod outcome;
mod searches;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::Pod;
use api::json::Text;
use api::well_known::DEFAULT_SCHEDULER;
use matching::{Matcher, Meter};
pub use outcome::{Attempt, FitError, Outcome, Placement};

use crate::cluster::{Cluster, Devices, NodeInfo, PodInfo, Shapes};
use crate::complaints;
use crate::cycle::{Choice, ChosenNode, NoNode, Search, over_budget};
use crate::diagnosis::Diagnosis;
use crate::framework::{Code, Point, Status};
use crate::memory::Memory;
use crate::plugins;
use crate::preemption::{Nomination, PostFilter};
use crate::profile::{EnabledPlugin, Profile};
use crate::queue::{Backoff, Cause, Lengths, PluginSet, Queue, QueuedPod, Rejection};
use crate::random::Random;
use crate::timing::{Clock, EventTiming, EventTimings, SAMPLED, SUCCESS, Timer, status_of};
use crate::writes::Write;

/// Message if there are no nodes.
pub(crate) const NO_NODES: &str = "no nodes available to schedule pods";

/// The scheduler's core.
#[derive(Debug)]
pub struct Scheduler {
    cluster: Cluster,
    shapes: Shapes,
    queue: Queue,
    profiles: Vec<Profile>,
    random: Random,
    /// Position in the order of nodes at which the next search begins.
    start: usize,
    /// Answers about nodes, by shape.
    memory: Memory,
    /// Pods that were given a node and are being bound.
    binding: HashMap<Text, Binding>,
    /// Pods whose attempt waits for a background search, which ends when this is dropped.
    searching: HashMap<Text, Arc<()>>,
    /// Measures plugins.
    clock: Option<Clock>,
    event_timings: EventTimings,
    /// Whether every plugin is measured in every attempt.
    is_profiled: bool,
    /// Number of attempts.
    attempts: u64,
}

#[derive(Debug)]
struct Binding {
    queued: QueuedPod,
    writes: Vec<Write>,
}

impl Scheduler {
    /// A scheduler for the pods of these profiles. `seed` decides ties.
    pub fn new(profiles: Vec<Profile>, backoff: Backoff, matcher: Arc<Matcher>, seed: u64) -> Self {
        Scheduler {
            cluster: Cluster::new(matcher),
            shapes: Shapes::default(),
            queue: Queue::new(backoff),
            profiles,
            random: Random::new(seed),
            start: 0,
            memory: Memory::default(),
            binding: HashMap::new(),
            searching: HashMap::new(),
            clock: None,
            event_timings: EventTimings::default(),
            is_profiled: false,
            attempts: 0,
        }
    }

    /// Adds devices to the scheduler. Without them, pods with claims to devices are not placed.
    #[must_use]
    pub fn with_devices(mut self, devices: Devices) -> Self {
        self.cluster.objects.devices = Some(devices);
        self
    }

    /// Adds a clock for measuring plugins; see [`timing`](crate::timing).
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Measures every plugin in every attempt, or no longer.
    pub fn set_profiled(&mut self, is_profiled: bool) {
        self.is_profiled = is_profiled;
    }

    /// A pod as plugins see it.
    pub fn view(&mut self, pod: &Pod) -> PodInfo {
        PodInfo::new(pod, &mut self.shapes, &self.cluster.matcher)
    }

    /// State of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The profile that decides about a pod; nothing for pods of other schedulers.
    pub fn profile(&self, pod: &PodInfo) -> Option<&Profile> {
        profile_of(&self.profiles, pod)
    }

    /// Number of pods in each part of the queue.
    pub fn lengths(&self) -> Lengths {
        self.queue.lengths()
    }

    /// Pods that wait for claims which are not created yet, with the reason; pods with scheduling gates say so themselves.
    pub fn awaiting_claims(&self) -> impl Iterator<Item = (&QueuedPod, &Status)> {
        let gated = self.queue.pods().filter_map(|(pod, gate)| Some((pod, gate?)));
        gated.filter(|(_, gate)| gate.plugin == crate::plugins::DYNAMIC_RESOURCES)
    }

    /// Returns the moves of pods in the queue since the last call: target queue, cause and number.
    pub fn take_moves(&mut self) -> impl Iterator<Item = (&'static str, Cause, u64)> + use<> {
        self.queue.take_moves()
    }

    /// Returns the durations of event handling since the last call, if there is a clock.
    pub fn take_event_timings(&mut self) -> Vec<EventTiming> {
        self.event_timings.take()
    }

    /// Number of pods that each plugin keeps waiting: scheduler name, plugin, and number.
    pub fn rejected_by(&self) -> impl Iterator<Item = (&Text, &'static str, usize)> {
        self.queue.rejected_by().filter_map(|(name, place, count)| Some((name, plugins::ALL.get(place)?.name, count)))
    }

    /// Number of pods that are being bound.
    pub fn binding_count(&self) -> usize {
        self.binding.len()
    }

    /// Time at which [`schedule_one`](Self::schedule_one) has work if there are no events: `now` if it has
    /// already.
    pub fn next_wake_up(&self, now: Duration) -> Option<Duration> {
        self.queue.next_wake_up(now)
    }

    /// Tries to place one pod. Nothing if no pod is to be tried now.
    pub fn schedule_one(&mut self, now: Duration) -> Option<Attempt> {
        loop {
            let queued = self.queue.pop(now)?;
            let pod = queued.pod.clone();
            if pod.is_deleting || self.cluster.cache.pod(&pod.uid).is_some() {
                self.queue.finish(&pod.uid);
                continue;
            }
            let mut attempt = Attempt::new(&queued);
            let is_sampled = self.is_profiled || self.attempts.checked_rem(SAMPLED) == Some(0);
            self.attempts = self.attempts.wrapping_add(1);
            let mut timer = Timer::new(self.clock.clone(), is_sampled);
            self.carry(&queued);
            self.begin_budget();
            let placed = self.place(&queued, &mut attempt, &mut timer, now);
            let excess = self.settle_budget(&pod, now);
            attempt.outcome = match (placed, excess) {
                (Ok(placement), _) => Outcome::Scheduled(placement),
                (Err(_), Some(excess)) => self.postpone(queued, excess, now),
                (Err(failure), None) => match self.defer(&queued) {
                    Some(search) => Outcome::Deferred(Box::new(search)),
                    None => self.put_back(queued, failure, &mut attempt, &mut timer, now),
                },
            };
            attempt.devices = self.cluster.objects.devices.as_ref().and_then(Devices::take_spent);
            attempt.timings = timer.into_timings();
            return Some(attempt);
        }
    }

    /// Records that the API server stored a binding. The pod stays assumed on its node until an update shows it there.
    pub fn bound(&mut self, uid: &str) {
        self.binding.remove(uid);
    }

    /// The pod, or a write before its binding, failed: the decision is reverted, and the pod is tried again
    /// after a back-off.
    pub fn binding_failed(&mut self, uid: &str, now: Duration) {
        let Some(binding) = self.binding.remove(uid) else { return };
        self.take_back(&binding.writes);
        if self.cluster.cache.is_assumed(uid)
            && let Some(pod) = self.cluster.cache.remove_pod(uid)
        {
            // The room it took is free again, as if it had been deleted.
            self.assigned_pod_gone(&pod, now);
        }
        self.queue.reject(binding.queued, Rejection { by: 0, pending: 0 }, now);
    }

    fn place(
        &mut self,
        queued: &QueuedPod,
        attempt: &mut Attempt,
        timer: &mut Timer,
        now: Duration,
    ) -> Result<Placement, Failure> {
        let pod = &queued.pod;
        if let Some(why) = &pod.rejection {
            return Err(Failure::Rejected(why.clone()));
        }
        if self.cluster.cache.order().is_empty() {
            return Err(Failure::NoNodes);
        }
        let profile = profile_of(&self.profiles, pod).ok_or_else(|| Failure::Error(Status::error("no profile")))?;
        let search = Search { profile, cluster: &self.cluster, start: self.start };
        let choice = search.choose(pod, &mut self.memory, &mut self.random, timer);
        let Choice { evaluated, feasible, evaluations, mut node } = choice;
        if self.cluster.meter().is_some_and(Meter::is_exceeded) {
            node = Err(NoNode::Error(over_budget()));
        }
        (attempt.evaluated_nodes, attempt.feasible_nodes, attempt.evaluations) = (evaluated, feasible, evaluations);
        let next_start = self.start.saturating_add(evaluated);
        let next_start = next_start.checked_rem(self.cluster.cache.order().len()).unwrap_or(0);
        let ChosenNode { id, score } = node.map_err(|why| match why {
            NoNode::NoFit(diagnosis) => Failure::NoFit(diagnosis, next_start),
            NoNode::Error(status) => Failure::Error(status),
        })?;
        attempt.score = score;
        let node = self.cluster.cache.node(id);
        let node = node.ok_or_else(|| Failure::Error(Status::error("no node")))?;
        let begun = timer.begin();
        let writes = reserve(profile, pod, node, &self.cluster, timer);
        timer.end(begun, Point::Reserve, "", status_of(&writes));
        let writes = writes.map_err(Failure::Error)?;
        let begun = timer.begin();
        let permit = |it: &EnabledPlugin| it.plugin.permit(pod, node).map_err(|status| status.by(it.name()));
        let permitted = profile.at(Point::Permit).try_for_each(permit);
        timer.end(begun, Point::Permit, "", status_of(&permitted));
        permitted.map_err(Failure::Error)?;
        let node = node.name().clone();
        self.start = next_start;
        self.queue.finish(&pod.uid);
        let kept = self.nominate(pod, "");
        self.take(&writes);
        self.cluster.cache.assume(Arc::new(pod.on(&node)));
        self.binding.insert(pod.uid.clone(), Binding { queued: queued.clone(), writes: writes.clone() });
        self.room_given_up(kept.filter(|kept| kept.nominated_node != node), now);
        Ok(Placement { node, writes })
    }

    /// Returns a pod to the queue, after an attempt to preempt pods for it.
    fn put_back(
        &mut self,
        mut queued: QueuedPod,
        failure: Failure,
        attempt: &mut Attempt,
        timer: &mut Timer,
        now: Duration,
    ) -> Outcome {
        match failure {
            Failure::NoNodes => {
                self.queue.reject(queued, Rejection { by: 0, pending: 0 }, now);
                let message = NO_NODES.to_owned();
                Outcome::Unschedulable(FitError { message, ..FitError::default() })
            }
            Failure::Rejected(why) => {
                attempt.complaints = complaints::gates_off(&queued.pod, &mut queued.complaints_told);
                // Only a change of the pod helps, which this plugin is woken by.
                let by = plugins::bit(plugins::taint_toleration::NAME);
                self.queue.reject(queued, Rejection { by, pending: 0 }, now);
                let count = self.cluster.cache.order().len();
                let message = format!("0/{count} nodes are available: {why}.");
                Outcome::Unschedulable(FitError { message, ..FitError::default() })
            }
            Failure::Error(status) => {
                self.queue.reject(queued, Rejection { by: 0, pending: 0 }, now);
                Outcome::Error(status.message())
            }
            Failure::NoFit(mut diagnosis, next_start) => {
                self.start = next_start;
                self.begin_complaint_budget();
                attempt.complaints =
                    complaints::find(&queued.pod, &diagnosis, &self.cluster, &mut queued.complaints_told);
                attempt.complaints.extend(complaints::gates_off(&queued.pod, &mut queued.complaints_told));
                // Complaints that were omitted are reported by a later attempt.
                self.settle_budget(&queued.pod, now);
                self.begin_room_budget();
                let PostFilterResult { nomination, keeps_nomination, writes } =
                    self.make_room(&queued.pod, &mut diagnosis, timer);
                if let Some(excess) = self.settle_budget(&queued.pod, now) {
                    return self.postpone(queued, excess, now);
                }
                if let Some(search) = self.defer(&queued) {
                    return Outcome::Deferred(Box::new(search));
                }
                if let Some(nomination) = &nomination {
                    let kept = self.nominate(&queued.pod, &nomination.node);
                    self.room_given_up(kept, now);
                    for displaced in &nomination.displaced {
                        let kept = self.nominate(displaced, "");
                        self.room_given_up(kept, now);
                    }
                } else if !keeps_nomination {
                    let kept = self.nominate(&queued.pod, "");
                    self.room_given_up(kept, now);
                }
                let bits = |names: &[&'static str]| names.iter().fold(0, |set, name| set | plugins::bit(name));
                let pending = bits(&diagnosis.pending);
                let by: PluginSet = bits(&diagnosis.plugins) | pending;
                self.queue.reject(queued, Rejection { by, pending }, now);
                Outcome::Unschedulable(FitError {
                    message: diagnosis.message(),
                    nomination,
                    keeps_nomination,
                    plugins: diagnosis.plugins,
                    writes,
                })
            }
        }
    }

    /// Runs PostFilter plugins for a pod that fits nowhere.
    pub(crate) fn make_room(
        &mut self,
        pod: &PodInfo,
        diagnosis: &mut Diagnosis,
        timer: &mut Timer,
    ) -> PostFilterResult {
        let profile = profile_of(&self.profiles, pod).filter(|_| diagnosis.pre_filter.is_none());
        let Some(profile) = profile else { return PostFilterResult::default() };
        let mut room = PostFilterResult::default();
        let mut said = Vec::new();
        let all_begun = timer.begin();
        for enabled in profile.at(Point::PostFilter) {
            let mut failed = PostFilter { pod, cluster: &self.cluster, profile, diagnosis, random: &mut self.random };
            let begun = timer.begin();
            let answer = enabled.plugin.post_filter(&mut failed);
            let is_found = answer.as_ref().is_some_and(|answer| answer.nomination.is_some());
            timer.end(begun, Point::PostFilter, enabled.name(), found_status(is_found));
            let Some(answer) = answer else { continue };
            room.writes.extend(answer.writes);
            if let Some(nomination) = answer.nomination {
                said = vec![answer.message];
                room = PostFilterResult { nomination: Some(nomination), keeps_nomination: true, ..room };
                break;
            }
            room.keeps_nomination |= answer.keeps_nomination;
            said.push(answer.message);
        }
        timer.end(all_begun, Point::PostFilter, "", found_status(room.nomination.is_some()));
        if !said.is_empty() {
            diagnosis.post_filter = Some(said.join(", "));
        }
        room
    }

    /// Decisions about volumes and devices count from now on.
    fn take(&mut self, writes: &[Write]) {
        let (assumed, devices) = (&mut self.cluster.objects.assumed, &mut self.cluster.objects.devices);
        for write in writes {
            match write {
                Write::BindVolume { volume, namespace, claim, .. } => {
                    assumed.bound.insert(volume.clone(), (namespace.clone(), claim.clone()));
                }
                Write::ProvisionVolume { namespace, claim, node, .. } => {
                    assumed.provisioned.insert((namespace.clone(), claim.clone()), node.clone());
                }
                Write::UseResourceClaim { claim, allocation: Some(allocation), .. } => {
                    if let Some(devices) = devices {
                        devices.inventory.assume(&claim.metadata.uid, allocation.as_ref().clone());
                    }
                }
                Write::CreateResourceClaim { claim, allocation, .. } => {
                    if let Some(devices) = devices {
                        devices.inventory.assume(&claim.metadata.uid, allocation.as_ref().clone());
                    }
                }
                Write::UseResourceClaim { .. }
                | Write::FreeResourceClaim { .. }
                | Write::DeleteResourceClaim { .. } => {}
            }
        }
        if !writes.is_empty() {
            self.cluster.objects.touch_volumes();
        }
    }

    fn take_back(&mut self, writes: &[Write]) {
        let (assumed, devices) = (&mut self.cluster.objects.assumed, &mut self.cluster.objects.devices);
        for write in writes {
            match write {
                Write::BindVolume { volume, .. } => {
                    assumed.bound.remove(volume);
                }
                Write::ProvisionVolume { namespace, claim, .. } => {
                    assumed.provisioned.remove(&(namespace.clone(), claim.clone()));
                }
                Write::UseResourceClaim { claim, .. } => {
                    if let Some(devices) = devices {
                        devices.inventory.take_back(&claim.metadata.uid);
                    }
                }
                Write::CreateResourceClaim { claim, .. } => {
                    if let Some(devices) = devices {
                        devices.inventory.remove_claim(&claim.metadata.uid);
                    }
                }
                Write::FreeResourceClaim { .. } | Write::DeleteResourceClaim { .. } => {}
            }
        }
        if !writes.is_empty() {
            self.cluster.objects.touch_volumes();
        }
    }
}

/// Returns the writes that must precede the binding of the pod to the node.
fn reserve(
    profile: &Profile,
    pod: &PodInfo,
    node: &NodeInfo,
    cluster: &Cluster,
    timer: &mut Timer,
) -> Result<Vec<Write>, Status> {
    let mut writes = Vec::new();
    for enabled in profile.at(Point::Reserve) {
        let begun = timer.begin();
        let more = enabled.plugin.reserve(pod, node, cluster);
        timer.end(begun, Point::Reserve, enabled.name(), status_of(&more));
        writes.extend(more.map_err(|status| status.by(enabled.name()))?);
    }
    Ok(writes)
}

/// Status of a preemption.
fn found_status(is_found: bool) -> &'static str {
    if is_found { SUCCESS } else { Code::Unschedulable.name() }
}

fn profile_of<'p>(profiles: &'p [Profile], pod: &PodInfo) -> Option<&'p Profile> {
    // The API gives every pod a scheduler name; one without is the default scheduler's.
    let name = pod.spec().scheduler_name.as_str();
    let name = if name.is_empty() { DEFAULT_SCHEDULER } else { name };
    profiles.iter().find(|profile| profile.scheduler_name == name)
}

/// Result of PostFilter plugins.
#[derive(Debug, Default)]
pub(crate) struct PostFilterResult {
    /// Node on which pods are preempted.
    pub(crate) nomination: Option<Nomination>,
    /// Whether an existing nomination is still valid.
    keeps_nomination: bool,
    /// Objects to write.
    writes: Vec<Write>,
}

/// A reason why a pod was not placed.
#[derive(Debug)]
enum Failure {
    NoNodes,
    /// The pod itself is invalid.
    Rejected(Text),
    Error(Status),
    /// The diagnosis, and the position at which the next search begins.
    NoFit(Box<Diagnosis>, usize),
}

#[cfg(test)]
mod tests;
