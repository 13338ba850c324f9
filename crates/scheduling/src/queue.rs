//! Pods that wait: to be tried, for the end of their back-off, for something to change, or for their gates to open.
//!
//! A rejected pod waits until an event may help it: the plugins that rejected it name these events and judge
//! each change. Pods of one shape that were rejected by the same plugins are judged once. Regardless of the
//! hints, a pod that has waited too long is tried again. Follows Kubernetes' `backend/queue`.

mod backoff;
mod counts;
mod lane;
mod waiting;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::json::Text;
pub use backoff::Backoff;
pub use counts::Cause;
use counts::Counts;
use lane::Lane;
use waiting::{Kind, WaitingPods};

use crate::cluster::{CarriedEffort, PodInfo};
use crate::complaints::ReportedComplaints;
use crate::framework::{Event, Resource, Status};

/// Plugins as bits, by their place in the list of all plugins.
pub type PluginSet = u64;

/// A pod that waits, or is being tried.
#[derive(Debug, Clone)]
pub struct QueuedPod {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// Time at which it was added, or returned from its last attempt.
    pub since: Duration,
    /// Time of the first attempt.
    pub first_attempt: Option<Duration>,
    /// Number of attempts.
    pub attempts: u32,
    /// Number of rejections by plugins.
    rejections: u32,
    /// Number of consecutive errors.
    errors: u32,
    /// The plugins that rejected it.
    pub rejected_by: PluginSet,
    /// Those of them that wait for an operation in progress.
    pub pending_on: PluginSet,
    /// Whether it was tried again only because it had waited too long.
    pub was_flushed: bool,
    /// Status of the closed gate, if the pod may not be tried.
    gated: Option<Status>,
    /// Number of consecutive device searches without a result.
    searches_without_answer: u32,
    /// Whether an attempt exceeded the budget for expressions.
    is_costly: bool,
    /// Reported complaints about the pod's expressions and their values.
    pub(crate) complaints_told: ReportedComplaints,
    /// Effort of this attempt's background searches.
    pub(crate) carried: CarriedEffort,
    /// Rank, time and number: the position in the queue.
    order: Order,
}

type Order = (i64, Duration, u64);

/// Part of the queue in which a pod waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Active,
    /// To be tried, in turn with others whose expressions are costly.
    Costly,
    Backoff(Duration),
    Unschedulable,
    Gated,
    InFlight,
}

impl Place {
    /// The name in metrics.
    fn name(self) -> &'static str {
        match self {
            Place::Active | Place::Costly => "active",
            Place::Backoff(_) => "backoff",
            Place::Unschedulable => "unschedulable",
            Place::Gated => "gated",
            Place::InFlight => "inflight",
        }
    }
}

/// Number of pods in each part of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// To be tried.
    pub active: usize,
    /// For the end of their back-off.
    pub backoff: usize,
    /// For something to change.
    pub unschedulable: usize,
    /// For their gates to open.
    pub gated: usize,
}

/// Result of an attempt that returns a pod to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// The plugins that rejected it; none if something went wrong.
    pub by: PluginSet,
    /// Those of them that wait for an operation in progress.
    pub pending: PluginSet,
}

/// Urgency of a move, for the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Urgency {
    AfterBackoff,
    Immediately,
}

/// Pods that wait.
#[derive(Debug)]
pub struct Queue {
    pods: HashMap<Text, (QueuedPod, Place)>,
    active: BTreeSet<(Order, Text)>,
    costly: Lane,
    tried_costly_last: bool,
    backoff: BTreeSet<(Duration, Order, Text)>,
    waiting: WaitingPods,
    /// By the time since when they wait.
    oldest: BTreeSet<(Duration, Text)>,
    /// By the namespace and name of a claim to devices that they name themselves.
    naming: HashMap<(Text, Text), BTreeSet<Text>>,
    gated: usize,
    in_flight: usize,
    timing: Backoff,
    last_number: u64,
    counts: Counts,
}

impl QueuedPod {
    /// Closes the pod's gates, or opens them.
    fn close(&mut self, gate: Option<(PluginSet, Status)>) {
        match gate {
            Some((by, status)) => {
                self.rejected_by = by;
                self.gated = Some(status);
            }
            None => {
                if self.gated.take().is_some() {
                    self.rejected_by = 0;
                }
            }
        }
    }
}

impl Queue {
    /// An empty queue.
    pub fn new(timing: Backoff) -> Self {
        Queue {
            pods: HashMap::new(),
            active: BTreeSet::new(),
            costly: Lane::default(),
            tried_costly_last: false,
            backoff: BTreeSet::new(),
            waiting: WaitingPods::default(),
            oldest: BTreeSet::new(),
            naming: HashMap::new(),
            gated: 0,
            in_flight: 0,
            timing,
            last_number: 0,
            counts: Counts::default(),
        }
    }

    /// Adds a pod; `gate` is set if it may not be tried.
    pub fn add(&mut self, pod: Arc<PodInfo>, rank: i64, gate: Option<(PluginSet, Status)>, now: Duration) {
        self.remove(&pod.uid);
        let number = self.next_number();
        let mut queued = QueuedPod {
            pod,
            since: now,
            first_attempt: None,
            attempts: 0,
            rejections: 0,
            errors: 0,
            rejected_by: 0,
            pending_on: 0,
            was_flushed: false,
            gated: None,
            searches_without_answer: 0,
            is_costly: false,
            complaints_told: ReportedComplaints::new(),
            carried: CarriedEffort::default(),
            order: (rank, now, number),
        };
        queued.close(gate);
        self.insert(queued, Urgency::Immediately, Cause::Added, now);
    }

    /// A pod that waits or is being tried.
    pub fn get(&self, uid: &str) -> Option<&QueuedPod> {
        self.pods.get(uid).map(|(pod, _)| pod)
    }

    /// Whether the pod is being tried or bound.
    pub fn is_in_flight(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|(_, place)| *place == Place::InFlight)
    }

    /// A waiting pod changed. It stays where it is, unless that helps; then it is tried again after its back-off.
    pub fn update(
        &mut self,
        pod: Arc<PodInfo>,
        rank: i64,
        gate: Option<(PluginSet, Status)>,
        helps: Option<Event>,
        now: Duration,
    ) {
        let Some((mut queued, place)) = self.take(&pod.uid) else { return };
        queued.pod = pod;
        queued.order.0 = rank;
        let was_gated = queued.gated.is_some();
        if was_gated || gate.is_some() {
            queued.close(gate);
        }
        match place {
            Place::InFlight => self.put(queued, place),
            Place::Gated if queued.gated.is_some() => self.put(queued, place),
            _ if was_gated || queued.gated.is_some() || helps.is_some() => {
                let cause = helps.map_or(Cause::Changed, Cause::Event);
                self.insert(queued, Urgency::AfterBackoff, cause, now)
            }
            place => self.put(queued, place),
        }
    }

    /// Removes a pod.
    pub fn remove(&mut self, uid: &str) -> Option<QueuedPod> {
        self.take(uid).map(|(pod, _)| pod)
    }

    /// The next pod to be tried. It is in flight until [`finish`](Self::finish) or [`reject`](Self::reject).
    pub fn pop(&mut self, now: Duration) -> Option<QueuedPod> {
        self.flush(now);
        self.costly.attempt_begun();
        // Costly pods and others take turns, so that neither waits for more than one of the other kind.
        let is_costly_turn = !std::mem::take(&mut self.tried_costly_last);
        let first = if is_costly_turn { self.costly.next(now) } else { None };
        let uid = match first.or_else(|| self.first_active(now)).or_else(|| self.costly.next(now)) {
            Some(uid) => uid,
            None => self.early(now).cloned()?,
        };
        self.tried_costly_last = self.pods.get(&uid).is_some_and(|(_, place)| *place == Place::Costly);
        let (mut queued, _) = self.take(&uid)?;
        queued.attempts = queued.attempts.saturating_add(1);
        queued.first_attempt.get_or_insert(now);
        queued.rejected_by = 0;
        queued.pending_on = 0;
        self.put(queued.clone(), Place::InFlight);
        Some(queued)
    }

    /// The first pod to be tried that does not belong among the costly ones, to which others are moved.
    fn first_active(&mut self, now: Duration) -> Option<Text> {
        loop {
            let uid = self.active.first()?.1.clone();
            if self.costly.is_unused() || !self.pods.get(&uid).is_some_and(|(queued, _)| self.is_costly(queued, now)) {
                return Some(uid);
            }
            let (queued, _) = self.take(&uid)?;
            self.put(queued, Place::Costly);
        }
    }

    /// Whether a pod is tried among those whose expressions are costly.
    fn is_costly(&self, queued: &QueuedPod, now: Duration) -> bool {
        let has_expressions = queued.is_costly || queued.pod.matcher.has_expressions();
        has_expressions && self.costly.is_overdrawn(queued.pod.namespace(), now)
    }

    /// The expressions of an attempt had this cost.
    pub(crate) fn spent(&mut self, namespace: &Text, cost: u64, now: Duration) {
        self.costly.spent(namespace, cost, now);
    }

    /// An attempt has ended, whatever came of it.
    pub(crate) fn attempt_ended(&mut self, now: Duration) {
        self.costly.attempt_ended(now);
    }

    /// Whether a pod that waits belongs to a namespace that has overdrawn its allowance, and has expressions.
    pub(crate) fn is_overdrawn(&self, uid: &str, now: Duration) -> bool {
        self.pods.get(uid).is_some_and(|(queued, _)| self.is_costly(queued, now))
    }

    /// Returns a pod whose device search ended without a result: it waits longer each time.
    pub(crate) fn search_ended(&mut self, mut queued: QueuedPod, now: Duration) {
        queued.searches_without_answer = queued.searches_without_answer.saturating_add(1);
        self.reject(queued, Rejection { by: 0, pending: 0 }, now);
    }

    /// Returns a pod whose attempt exceeded the budget for expressions: it is tried again after a back-off.
    pub(crate) fn postpone(&mut self, mut queued: QueuedPod, now: Duration) {
        queued.is_costly = true;
        self.reject(queued, Rejection { by: 0, pending: 0 }, now);
    }

    /// A pod whose attempt was only interrupted is tried again in its old place; it is the same attempt.
    pub(crate) fn resume(&mut self, uid: &str, carried: CarriedEffort) {
        if !self.is_in_flight(uid) {
            return;
        }
        if let Some((mut queued, _)) = self.take(uid) {
            queued.attempts = queued.attempts.saturating_sub(1);
            queued.carried = carried;
            self.put(queued, Place::Active);
        }
    }

    /// A pod was given a node: it waits no longer.
    pub fn finish(&mut self, uid: &str) -> Option<QueuedPod> {
        if self.is_in_flight(uid) { self.remove(uid) } else { None }
    }

    /// Returns a pod to the queue. If plugins rejected it, it waits for a change; after an error, it is tried
    /// again.
    pub fn reject(&mut self, mut queued: QueuedPod, rejection: Rejection, now: Duration) {
        self.take(&queued.pod.uid);
        queued.since = now;
        queued.carried = CarriedEffort::default();
        queued.order.1 = now;
        queued.order.2 = self.next_number();
        queued.rejected_by = rejection.by;
        queued.pending_on = rejection.pending;
        if rejection.by == 0 {
            queued.errors = queued.errors.saturating_add(1);
            self.insert(queued, Urgency::AfterBackoff, Cause::ScheduleAttemptFailure, now);
        } else {
            queued.errors = 0;
            queued.searches_without_answer = 0;
            queued.rejections = queued.rejections.saturating_add(1);
            self.counts.moved(Place::Unschedulable.name(), Cause::ScheduleAttemptFailure);
            self.put(queued, Place::Unschedulable);
        }
    }

    /// Processes an event. `helps` is called once per shape and set of plugins, with a pod of that shape; it
    /// returns the plugins that may accept the pod after the change.
    pub fn happened(
        &mut self,
        event: Event,
        listeners: PluginSet,
        mut helps: impl FnMut(&PodInfo, PluginSet) -> PluginSet,
        gate: impl Fn(&PodInfo) -> Option<(PluginSet, Status)>,
        now: Duration,
    ) -> usize {
        let mut moved: usize = 0;
        for group in self.waiting.groups(listeners) {
            let Some(uid) = self.waiting.any_of(&group) else { continue };
            let Some((queued, _)) = self.pods.get(uid) else { continue };
            let asked = group.0 & listeners;
            // Changes of nodes require the evaluation of expressions: a pod that has overdrawn its allowance is
            // tried instead.
            let is_left_out = event.resource == Resource::Node && self.is_costly(queued, now);
            let won = if is_left_out { asked } else { helps(&queued.pod, asked) };
            if won == 0 {
                continue;
            }
            for uid in self.waiting.all_of(&group) {
                self.wake(&uid, won, event, &gate, now);
                moved = moved.saturating_add(1);
            }
        }
        moved
    }

    /// Processes an event that concerns only some pods.
    pub fn happened_to(
        &mut self,
        uids: impl IntoIterator<Item = Text>,
        event: Event,
        listeners: PluginSet,
        mut helps: impl FnMut(&PodInfo, PluginSet) -> PluginSet,
        gate: impl Fn(&PodInfo) -> Option<(PluginSet, Status)>,
        now: Duration,
    ) {
        for uid in uids {
            let Some((queued, Place::Unschedulable | Place::Gated)) = self.pods.get(&uid) else { continue };
            let asked = queued.rejected_by & listeners;
            let won = if asked == 0 { 0 } else { helps(&queued.pod, asked) };
            if won != 0 {
                self.wake(&uid, won, event, &gate, now);
            }
        }
    }

    /// Pods that name a claim to devices themselves.
    pub fn naming(&self, namespace: &Text, claim: &Text) -> impl Iterator<Item = &Text> {
        self.naming.get(&(namespace.clone(), claim.clone())).into_iter().flatten()
    }

    /// Moves a waiting pod on that some of its plugins are won over for.
    fn wake(
        &mut self,
        uid: &str,
        won: PluginSet,
        event: Event,
        gate: &impl Fn(&PodInfo) -> Option<(PluginSet, Status)>,
        now: Duration,
    ) {
        let Some((mut queued, place)) = self.take(uid) else { return };
        let is_pending = queued.pending_on & won != 0;
        if place == Place::Gated {
            queued.close(gate(&queued.pod));
        }
        let urgency = if is_pending { Urgency::Immediately } else { Urgency::AfterBackoff };
        self.insert(queued, urgency, Cause::Event(event), now);
    }

    /// Tries a waiting pod again, regardless of its plugins.
    pub fn activate(&mut self, uid: &str, now: Duration) {
        if let Some((_, Place::Unschedulable | Place::Backoff(_))) = self.pods.get(uid)
            && let Some((queued, _)) = self.take(uid)
        {
            self.insert(queued, Urgency::Immediately, Cause::ForceActivate, now);
        }
    }

    /// Moves pods that have waited long enough.
    pub fn flush(&mut self, now: Duration) {
        while let Some((until, _, uid)) = self.backoff.first()
            && *until <= now
        {
            let uid = uid.clone();
            let Some((queued, _)) = self.take(&uid) else { break };
            self.insert(queued, Urgency::Immediately, Cause::BackoffComplete, now);
        }
        while let Some((since, uid)) = self.oldest.first()
            && since.saturating_add(self.timing.max_unschedulable) <= now
        {
            let uid = uid.clone();
            let Some((mut queued, _)) = self.take(&uid) else { break };
            queued.was_flushed = true;
            self.insert(queued, Urgency::AfterBackoff, Cause::UnschedulableTimeout, now);
        }
    }

    /// Time of the next action if there are no events; now if a pod can be tried.
    pub fn next_wake_up(&self, now: Duration) -> Option<Duration> {
        if !self.active.is_empty() || self.early(now).is_some() {
            return Some(now);
        }
        let costly = self.costly.wake_up(now);
        let backoff = self.backoff.first().map(|(until, ..)| *until);
        let flush = self.oldest.first().map(|(since, _)| since.saturating_add(self.timing.max_unschedulable));
        [costly, backoff, flush].into_iter().flatten().min()
    }

    /// Number of pods in each part of the queue.
    pub fn lengths(&self) -> Lengths {
        Lengths {
            active: self.active.len().saturating_add(self.costly.len()),
            backoff: self.backoff.len(),
            unschedulable: self.oldest.len(),
            gated: self.gated,
        }
    }

    /// Returns the moves of pods since the last call: target queue, cause and number.
    pub fn take_moves(&mut self) -> impl Iterator<Item = (&'static str, Cause, u64)> + use<> {
        self.counts.take_moves()
    }

    /// Number of pods that a plugin keeps waiting: scheduler name, index in the list of all plugins, and
    /// number.
    pub fn rejected_by(&self) -> impl Iterator<Item = (&Text, usize, usize)> {
        self.counts.rejected_by()
    }

    /// All pods that wait, with the reason where their gates are closed.
    pub fn pods(&self) -> impl Iterator<Item = (&QueuedPod, Option<&Status>)> {
        self.pods.values().map(|(pod, _)| (pod, pod.gated.as_ref()))
    }

    /// Whether a pod waits for something to change.
    #[cfg(test)]
    pub(crate) fn is_waiting(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|(_, place)| *place == Place::Unschedulable)
    }

    /// With nothing else to do, a pod that plugins rejected need not wait out its back-off; after an error it must.
    fn early(&self, now: Duration) -> Option<&Text> {
        let may = |queued: &QueuedPod| queued.errors == 0 && !self.is_costly(queued, now);
        let waits = |uid: &Text| self.pods.get(uid).is_some_and(|(queued, _)| may(queued));
        self.backoff.iter().map(|(.., uid)| uid).find(|uid| waits(uid))
    }

    fn next_number(&mut self) -> u64 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// Inserts a pod into the matching part of the queue.
    fn insert(&mut self, queued: QueuedPod, urgency: Urgency, cause: Cause, now: Duration) {
        let until = self.timing.end(&queued);
        let place = if queued.gated.is_some() {
            Place::Gated
        } else if urgency == Urgency::AfterBackoff && until > now {
            Place::Backoff(until)
        } else {
            Place::Active
        };
        self.counts.moved(place.name(), cause);
        self.put(queued, place);
    }

    fn put(&mut self, queued: QueuedPod, place: Place) {
        let uid = queued.pod.uid.clone();
        for claim in named_claims(&queued.pod) {
            self.naming.entry(claim).or_default().insert(uid.clone());
        }
        let order = queued.order;
        match place {
            Place::Active => {
                self.active.insert((order, uid.clone()));
            }
            Place::Costly => self.costly.insert(queued.pod.namespace(), order, uid.clone()),
            Place::Backoff(until) => {
                self.backoff.insert((until, order, uid.clone()));
            }
            Place::Unschedulable => {
                self.waiting.insert(queued.rejected_by, Kind::of(&queued.pod), uid.clone());
                self.oldest.insert((queued.since, uid.clone()));
                self.counts.waits(&queued.pod.spec().scheduler_name, queued.rejected_by);
            }
            Place::Gated => {
                self.waiting.insert(queued.rejected_by, Kind::of(&queued.pod), uid.clone());
                self.gated = self.gated.saturating_add(1);
                self.counts.waits(&queued.pod.spec().scheduler_name, queued.rejected_by);
            }
            Place::InFlight => self.in_flight = self.in_flight.saturating_add(1),
        }
        self.pods.insert(uid, (queued, place));
    }

    fn take(&mut self, uid: &str) -> Option<(QueuedPod, Place)> {
        let (queued, place) = self.pods.remove(uid)?;
        let order = queued.order;
        let uid = queued.pod.uid.clone();
        for claim in named_claims(&queued.pod) {
            if let Some(pods) = self.naming.get_mut(&claim) {
                pods.remove(&uid);
                if pods.is_empty() {
                    self.naming.remove(&claim);
                }
            }
        }
        match place {
            Place::Active => {
                self.active.remove(&(order, uid));
            }
            Place::Costly => self.costly.remove(queued.pod.namespace(), order, uid),
            Place::Backoff(until) => {
                self.backoff.remove(&(until, order, uid));
            }
            Place::Unschedulable => {
                self.waiting.remove(queued.rejected_by, &Kind::of(&queued.pod), &uid);
                self.oldest.remove(&(queued.since, uid));
                self.counts.waits_no_longer(&queued.pod.spec().scheduler_name, queued.rejected_by);
            }
            Place::Gated => {
                self.waiting.remove(queued.rejected_by, &Kind::of(&queued.pod), &uid);
                self.gated = self.gated.saturating_sub(1);
                self.counts.waits_no_longer(&queued.pod.spec().scheduler_name, queued.rejected_by);
            }
            Place::InFlight => self.in_flight = self.in_flight.saturating_sub(1),
        }
        Some((queued, place))
    }
}

/// The claims to devices that a pod names itself.
fn named_claims(pod: &PodInfo) -> impl Iterator<Item = (Text, Text)> {
    let names = pod.spec().resource_claims.iter().filter_map(|claim| claim.resource_claim_name.clone());
    names.map(|name| (pod.namespace().clone(), name))
}

#[cfg(test)]
mod tests;
