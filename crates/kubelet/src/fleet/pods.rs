//! Looking after pods: admitting, starting, watching and ending them, one at a time and as often as needed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod, PodCondition};
use api::json::{Text, Value};
use api::time::Timestamp;
use client::Error;
use client::costly::{RetryAfter, thread_time};
use client::informer::Key;
use client::objects::{Deletion, Patch};
use matching::Meter;
use telemetry::logs::chain;
use tracing::{debug, info};

use super::Inner;
use super::member::{Member, address_of};
use super::shutdown;
use crate::admission::{self, Judgment, Rejection};
use crate::container_events;
use crate::containers::pressure;
use crate::deadline;
use crate::pod_status::{self, Addresses};
use crate::preemption;
use crate::runtime::{Observation, Runtime, StopProgress, Termination};
use crate::static_pods;
use crate::volumes::{self, NotMounted};

/// Reason of pods that are ended for the sake of the node.
pub(crate) const EVICTED: &str = "Evicted";
/// A pod that starts sooner than this gets one status, not two.
const STATUS_DELAY_MIN: Duration = Duration::from_secs(1);
/// Delay before a node without an address is checked again.
const ADDRESS_PAUSE: Duration = Duration::from_millis(100);
/// Time between the last status of a pod with finalizers and its deletion.
const SETTLING: Duration = Duration::from_secs(1);
/// Minimum and maximum delay before invalid volumes are checked again.
const MOUNT_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Delay before a resize that waits for room is tried again.
const RESIZE_PAUSE: Duration = Duration::from_secs(10);
/// Minimum and maximum delay before a pod whose expressions exceeded the budget is judged again.
const JUDGMENT_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

impl<R: Runtime> Inner<R> {
    pub(super) async fn work_on_pods(self: Arc<Self>) {
        while let Some(item) = self.pod_queue.get().await {
            match self.look_after(&item).await {
                Ok(None) => item.done(),
                // The clock of pods may be behind the timer's by a fraction.
                Ok(Some(next)) => item.again_after(next.max(Duration::from_millis(1))),
                Err(error) => {
                    debug!(pod = %*item, err = %chain(&error), "Could not write the status of the pod");
                    item.retry();
                }
            }
        }
    }

    /// Pods that ran when the last process ended run on, whatever has changed since.
    pub(super) fn adopt_running(&self) {
        for pod in self.pods.store().list() {
            let Some(member) = self.members.get(&pod.spec.node_name) else { continue };
            if pod.status.start_time.is_some() && !pod.is_terminal() && !static_pods::is_mirror(&pod) {
                let mut state = member.state();
                state.addresses.take(&pod.metadata.uid, &pod.status.pod_ip);
                state.admitted.insert(pod.metadata.uid.clone(), pod.clone());
                if !pod.status.pod_ip.is_empty() {
                    state.mounted.insert(pod.metadata.uid.clone());
                    state.prepared.insert(pod.metadata.uid.clone());
                }
            }
        }
    }

    /// Runs the background work of the runtime.
    pub(super) async fn run_runtime(self: Arc<Self>) {
        let queue = self.pod_queue.clone();
        self.runtime.run(Arc::new(move |key| queue.add(key))).await;
    }

    /// Releases resources of pods that were deleted while no agent was running.
    pub(super) fn retain_pods(&self) {
        let mut uids: HashSet<Text> = self.pods.store().list().iter().map(|pod| pod.metadata.uid.clone()).collect();
        uids.extend(self.static_pods.uids());
        self.runtime.retain(&uids);
    }

    pub(super) fn forget(&self, pod: &Pod) {
        if let Some(member) = self.members.get(&pod.spec.node_name) {
            member.state().forget(&pod.metadata.uid);
            self.runtime.forget(&pod.metadata.uid);
        }
    }

    /// Advances the pods of a name: one from the server, and a static one. Returns the time until the next
    /// check.
    async fn look_after(&self, key: &Key) -> Result<Option<Duration>, Error> {
        if self.static_pods.get(key).is_none() {
            return self.look_after_bound(key).await;
        }
        let own = self.look_after_static(key).await?;
        let is_shown = self.pods.store().get_key(key).is_none_or(|pod| static_pods::is_mirror(&pod));
        let other = if is_shown { None } else { self.look_after_bound(key).await? };
        Ok(own.into_iter().chain(other).min())
    }

    /// Advances a pod from the server. Returns the time until the next check.
    async fn look_after_bound(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(pod) = self.pods.store().get_key(key).map(of_server) else { return Ok(None) };
        let Some(member) = self.members.get(&pod.spec.node_name).filter(|it| it.is_alive()) else { return Ok(None) };
        let Some(node) = self.nodes.store().get("", &member.name) else { return Ok(Some(STATUS_DELAY_MIN)) };
        // A node that joins writes its address first: a pod's status without one is invalid.
        if address_of(&node).is_empty() {
            return Ok(Some(ADDRESS_PAUSE));
        }
        if static_pods::is_mirror(&pod) {
            return self.end_mirror(&pod, &member).await;
        }
        // Later writes of this node arrive with the next change.
        if member.state().has_written_since(&pod) {
            return Ok(None);
        }
        let now = self.clock.now();
        let slow = member.faults().slow;
        if !slow.is_zero() {
            let since = pod.metadata.deletion_timestamp.or(pod.metadata.creation_timestamp).unwrap_or(now);
            let wait = slow.saturating_sub(since.until(now));
            if !wait.is_zero() {
                return Ok(Some(wait));
            }
        }
        if pod.metadata.is_deleting() {
            return self.end(&pod, &member, &node).await;
        }
        if pod.is_terminal() {
            member.state().release(&pod.metadata.uid);
            return Ok(None);
        }
        if let Some(ending) = self.runtime.ending(&pod.metadata.uid) {
            return self.end_by_node(&pod, &member, &ending).await;
        }
        let is_admitted = member.state().admitted.contains_key(&pod.metadata.uid);
        if !is_admitted && self.runtime.is_shutting_down() {
            let (reason, message) = shutdown::REFUSAL;
            member.warn(&pod, reason, message);
            self.write_status(&pod, &member, &pod_status::rejection(&pod, reason, message, now)).await?;
            return Ok(None);
        }
        let refusal = pressure::refusal(&pod, self.runtime.pressure(), i64::from(pod.spec.priority.unwrap_or(0)));
        if let Some(message) = refusal.filter(|_| !is_admitted) {
            member.warn(&pod, EVICTED, &message);
            let patch = pod_status::rejection(&pod, EVICTED, &message, now);
            self.write_status(&pod, &member, &patch).await?;
            return Ok(None);
        }
        let judgment = match self.judge(&pod, &member, &node).await {
            Ok(judgment) => judgment,
            Err(wait) => return Ok(Some(wait)),
        };
        let mut objections = self.admit(&pod, &member, &node, judgment);
        if !objections.is_empty() {
            // The scheduler may have observed a newer state of the node.
            let newest = Arc::new(member.client.objects::<Node>().get("", &member.name).await?);
            let judgment = match self.judge(&pod, &member, &newest).await {
                Ok(judgment) => judgment,
                Err(wait) => return Ok(Some(wait)),
            };
            let complaints = judgment.as_ref().map(|it| it.complaints.clone()).unwrap_or_default();
            objections = self.admit(&pod, &member, &newest, judgment);
            if !objections.is_empty() {
                member.complain(&pod, &complaints);
            }
        }
        if let Err(rejection) = self.make_room(&pod, &member, objections).await {
            info!(pod = %key, node = %member.name, reason = %rejection.reason, "Rejected pod");
            member.warn(&pod, &rejection.reason, &rejection.message);
            let patch = pod_status::rejection(&pod, &rejection.reason, &rejection.message, now);
            self.write_status(&pod, &member, &patch).await?;
            return Ok(None);
        }
        let left = deadline::left(&pod, now);
        if left.is_some_and(|left| left.is_zero()) {
            return self.end_overdue(&pod, &member).await;
        }
        let resize = self.resize(&pod, &member, &node).await;
        let next = self.bring_further(&pod, &member, &node).await?;
        Ok(next.into_iter().chain(left).chain(resize).min())
    }

    /// Has the runtime take over changed resources of an admitted pod, if the node has room. Returns the time until the next
    /// attempt.
    async fn resize(&self, pod: &Arc<Pod>, member: &Member, node: &Node) -> Option<Duration> {
        let now = self.clock.now();
        let admit = || {
            let mut state = member.state();
            let others = state.admitted.values().filter(|other| other.metadata.uid != pod.metadata.uid);
            let shortage = admission::shortages(pod, node, others.map(|other| &**other)).into_iter().next();
            shortage.map_or(Ok(()), Err)?;
            // From now on the pod occupies the changed resources.
            state.admitted.insert(pod.metadata.uid.clone(), pod.clone());
            Ok(())
        };
        self.runtime.resize(pod, now, admit).await.then_some(RESIZE_PAUSE)
    }

    /// Mounts, prepares and starts, and writes the state of the containers. Returns the time until the next
    /// check.
    async fn bring_further(&self, pod: &Arc<Pod>, member: &Member, node: &Node) -> Result<Option<Duration>, Error> {
        let now = self.clock.now();
        // Starting real containers takes a while: until then the status reports that they are being created.
        if !R::IS_SIMULATED && pod.status.start_time.is_none() {
            return self.sync(pod, member, node).await;
        }
        if let Err(NotMounted(why)) = self.mount(pod, member, node).await? {
            member.warn(pod, "FailedMount", &why);
            let seen = not_started::<R>(pod);
            let addresses = addresses(pod, member, node, &Observation::default());
            if let Some(patch) = pod_status::patch(pod, &seen, &addresses, now) {
                self.write_status(pod, member, &patch).await?;
            }
            // The longer a pod waits, the less often it is checked.
            let waited = pod.status.start_time.unwrap_or(now).until(now);
            return Ok(Some(waited.clamp(MOUNT_PAUSES.0, MOUNT_PAUSES.1)));
        }
        let unprepared = self.prepare(pod, member).await?;
        // Containers that run keep their devices while a driver is away.
        let is_waiting = R::IS_SIMULATED || pod.status.pod_ip.is_empty();
        if let Some(again) = unprepared.filter(|_| is_waiting) {
            let addresses = addresses(pod, member, node, &Observation::default());
            if let Some(patch) = pod_status::patch(pod, &not_started::<R>(pod), &addresses, now) {
                self.write_status(pod, member, &patch).await?;
            }
            return Ok(Some(again));
        }
        self.sync(pod, member, node).await
    }

    /// Advances the containers of a pod and writes their state. Returns the time until the next check.
    async fn sync(&self, pod: &Arc<Pod>, member: &Member, node: &Node) -> Result<Option<Duration>, Error> {
        let now = self.clock.now();
        let seen = self.runtime.sync(pod, None, now).await;
        let is_soon = seen.next.is_some_and(|next| next < STATUS_DELAY_MIN);
        if seen.is_stale || R::IS_SIMULATED && !seen.has_sandbox && is_soon {
            return Ok(seen.next);
        }
        let addresses = addresses(pod, member, node, &seen);
        if let Some(patch) = pod_status::patch(pod, &seen, &addresses, now) {
            self.write_status(pod, member, &patch).await?;
            if self.reports() {
                member.report(pod, container_events::news(pod, &seen));
            }
        }
        Ok(seen.next)
    }

    /// Ends a pod whose time is up.
    async fn end_overdue(&self, pod: &Pod, member: &Member) -> Result<Option<Duration>, Error> {
        let now = self.clock.now();
        if (self.reports() || !R::IS_SIMULATED) && member.state().ending.insert(pod.metadata.uid.clone()) {
            let mut events = container_events::overdue(pod);
            if !R::IS_SIMULATED {
                // A runtime reports the end of its containers by itself.
                events.truncate(1);
                self.write_status(pod, member, &pod_status::expiring(pod, now)).await?;
            }
            member.report(pod, events);
        }
        match self.runtime.stop(pod, now).await {
            StopProgress::Wait(wait) => Ok(Some(wait)),
            StopProgress::Never => Ok(None),
            StopProgress::Ended(seen) => {
                info!(pod = %pod.metadata.name, node = %member.name, "Ended pod at its active deadline");
                self.write_status(pod, member, &pod_status::overdue(pod, &seen, now)).await?;
                Ok(None)
            }
        }
    }

    /// Ends a pod for the sake of the node.
    async fn end_by_node(&self, pod: &Pod, member: &Member, ending: &Termination) -> Result<Option<Duration>, Error> {
        let now = self.clock.now();
        if member.state().ending.insert(pod.metadata.uid.clone()) {
            // Kubernetes: a shutdown has no event of its own.
            if ending.reason == EVICTED {
                member.warn(pod, EVICTED, &ending.message);
            }
            self.write_status(pod, member, &pod_status::expiring(pod, now)).await?;
        }
        match self.runtime.stop(pod, now).await {
            StopProgress::Wait(wait) => Ok(Some(wait)),
            StopProgress::Never => Ok(None),
            StopProgress::Ended(seen) => {
                info!(pod = %pod.metadata.name, node = %member.name, reason = ending.reason, "Ended pod");
                let patch = pod_status::ended_by_node(pod, &seen, ending.reason, &ending.message, now);
                self.write_status(pod, member, &patch).await?;
                Ok(None)
            }
        }
    }

    /// Evaluates a pod with expressions on a separate thread; `None` for other pods, and for those that were
    /// admitted before. The error is the time to wait: the expressions exceeded the budget.
    async fn judge(&self, pod: &Arc<Pod>, member: &Member, node: &Arc<Node>) -> Result<Option<Judgment>, Duration> {
        if !admission::has_expressions(pod) || member.state().admitted.contains_key(&pod.metadata.uid) {
            return Ok(None);
        }
        let meter = Arc::new(Meter::new(Arc::new(thread_time)));
        let (cache, features) = (self.cache.metered(meter.clone()), self.features);
        let (judged, node) = (pod.clone(), node.clone());
        let judge = move || {
            let judgment = Judgment::new(&judged, &node, &cache, &features);
            meter.excess().map_or(Ok(judgment), Err)
        };
        match self.costly.run(&pod.metadata.namespace, judge).await {
            Err(RetryAfter(wait)) => Err(wait),
            Ok(Ok(judgment)) => Ok(Some(judgment)),
            Ok(Err(excess)) => {
                let message = format!(
                    "Expressions exceeded the budget of one admission ({excess}); verdicts are kept, and the next one continues"
                );
                member.warn(pod, "ExpressionBudgetExceeded", &message);
                // The longer a pod waits, the less often it is checked.
                let now = self.clock.now();
                let waited = pod.metadata.creation_timestamp.unwrap_or(now).until(now);
                Err(waited.clamp(JUDGMENT_PAUSES.0, JUDGMENT_PAUSES.1))
            }
        }
    }

    /// Returns the objection to running the pod here. `None` once it was admitted: from then on it occupies its
    /// resources.
    pub(super) fn admit(
        &self,
        pod: &Arc<Pod>,
        member: &Member,
        node: &Node,
        judgment: Option<Judgment>,
    ) -> Vec<Rejection> {
        let mut state = member.state();
        if state.admitted.contains_key(&pod.metadata.uid) {
            return Vec::new();
        }
        let others = state.admitted.values().map(|other| &**other);
        let judgment = judgment.unwrap_or_else(|| Judgment::new(pod, node, &self.cache, &self.features));
        let objections = admission::objections(pod, node, others, &judgment);
        if objections.is_empty() {
            state.admitted.insert(pod.metadata.uid.clone(), pod.clone());
        }
        objections
    }

    /// Admits a critical pod in spite of insufficient resources: others are evicted.
    pub(super) async fn make_room(
        &self,
        pod: &Arc<Pod>,
        member: &Member,
        objections: Vec<Rejection>,
    ) -> Result<(), Rejection> {
        if objections.is_empty() {
            return Ok(());
        }
        let victims = {
            let mut state = member.state();
            let mut others: Vec<Arc<Pod>> = state.admitted.values().cloned().collect();
            others.sort_by_key(|it| (it.metadata.creation_timestamp, it.metadata.name.clone()));
            let chosen = preemption::victims(pod, objections, others.iter().map(|other| &**other))?;
            let uids: Vec<&Text> = chosen.iter().map(|victim| &victim.metadata.uid).collect();
            uids.iter().for_each(|uid| state.release(uid));
            state.admitted.insert(pod.metadata.uid.clone(), pod.clone());
            others.iter().filter(|other| uids.contains(&&other.metadata.uid)).cloned().collect::<Vec<_>>()
        };
        for victim in victims {
            self.give_way(&victim, member).await;
        }
        Ok(())
    }

    /// Ends a pod for a critical one.
    async fn give_way(&self, known: &Pod, member: &Member) {
        let key = Key::new(known.metadata.namespace.clone(), known.metadata.name.clone());
        if self.end_static_at_once(&key, known, member) {
            return;
        }
        let newest = self.pods.store().get_key(&key).filter(|it| it.metadata.uid == known.metadata.uid);
        let Some(pod) = newest else { return };
        info!(pod = %key, node = %member.name, "Ended pod to admit a critical pod");
        member.warn(&pod, preemption::REASON, preemption::MESSAGE);
        let now = self.clock.now();
        let seen = match self.runtime.stop(&pod, now).await {
            StopProgress::Ended(seen) => Some(seen),
            StopProgress::Wait(_) | StopProgress::Never => None,
        };
        let patch = pod_status::preempted(&pod, seen.as_ref(), preemption::REASON, preemption::MESSAGE, now);
        if let Err(error) = self.write_status(&pod, member, &patch).await {
            // It is no longer admitted: at the next check it is rejected.
            debug!(pod = %key, err = %chain(&error), "Could not write the status of the pod");
            self.pod_queue.add(key);
        }
    }

    /// Checks the pod's volumes until they are valid, and not again.
    async fn mount(&self, pod: &Pod, member: &Member, node: &Node) -> Result<Result<(), NotMounted>, Error> {
        if !volumes::has_claims(pod) || member.state().mounted.contains(&pod.metadata.uid) {
            return Ok(Ok(()));
        }
        // Recorded before the check, so that no change of the node is missed.
        let key = Key::new(pod.metadata.namespace.clone(), pod.metadata.name.clone());
        member.state().unmounted.insert(pod.metadata.uid.clone(), key);
        let newest = self.nodes.store().get("", &member.name);
        let node = newest.as_deref().unwrap_or(node);
        let outcome = volumes::check(&self.client, pod, node, &self.cache, &self.features, &self.costly).await?;
        if outcome.is_ok() {
            let mut state = member.state();
            state.unmounted.remove(&pod.metadata.uid);
            state.mounted.insert(pod.metadata.uid.clone());
        }
        Ok(outcome)
    }

    /// Ends a pod that is being deleted, and then deletes it.
    async fn end(&self, pod: &Pod, member: &Member, node: &Node) -> Result<Option<Duration>, Error> {
        let is_final = pod.metadata.deletion_grace_period_seconds == Some(0);
        if is_final && pod.is_terminal() && !pod.metadata.finalizers.is_empty() {
            // Other components must release it first.
            member.state().release(&pod.metadata.uid);
            return Ok(None);
        }
        let now = self.clock.now();
        // Kubernetes' kubelet deletes a while after the last status: other components see that before.
        let settles = !R::IS_SIMULATED && !is_final && !pod.metadata.finalizers.is_empty();
        if !pod.is_terminal() {
            if self.reports() && member.state().ending.insert(pod.metadata.uid.clone()) {
                member.report(pod, container_events::killing(pod));
            }
            if !R::IS_SIMULATED
                && !is_final
                && let Some(patch) = pod_status::acknowledgment(pod)
            {
                self.write_status(pod, member, &patch).await?;
            }
            match self.runtime.stop(pod, now).await {
                StopProgress::Wait(wait) => return Ok(Some(wait)),
                StopProgress::Never => return Ok(None),
                StopProgress::Ended(seen) => {
                    // As with a kubelet, watchers see terminated containers, `Ready=False` and the final phase
                    // before the deletion. A pod without a grace period is deleted at once.
                    let addresses = addresses(pod, member, node, &Observation::default());
                    if (!is_final || is_looked_at(pod))
                        && let Some(patch) = pod_status::patch(pod, &seen, &addresses, now)
                    {
                        self.write_status(pod, member, &patch).await?;
                    }
                    if settles {
                        return Ok(Some(SETTLING));
                    }
                }
            }
        }
        member.state().release(&pod.metadata.uid);
        if settles && since_end(pod, now) < SETTLING {
            return Ok(Some(SETTLING));
        }
        let how =
            Deletion { grace_period_seconds: Some(0), uid: Some(pod.metadata.uid.to_string()), ..Deletion::default() };
        match member.client.objects::<Pod>().delete(&pod.metadata.namespace, &pod.metadata.name, &how).await {
            Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
            _ => Ok(None),
        }
    }

    pub(super) async fn write_status(&self, pod: &Pod, member: &Member, patch: &Value) -> Result<(), Error> {
        let pods = member.client.objects::<Pod>();
        let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
        match pods.patch(namespace, name, "status", Patch::StrategicMerge, patch).await {
            Ok(written) => {
                member.state().has_written(&written);
                Ok(())
            }
            // The pod was deleted or replaced: its change will arrive.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The time since the sandbox of a pod ended.
fn since_end(pod: &Pod, now: Timestamp) -> Duration {
    let ended = |it: &&PodCondition| it.condition_type == "PodReadyToStartContainers" && it.status == "False";
    let condition = pod.status.conditions.iter().find(ended);
    condition.and_then(|it| it.last_transition_time).map_or(Duration::MAX, |since| since.until(now))
}

/// A pod of which no container has been created.
fn not_started<R: Runtime>(pod: &Pod) -> Observation {
    Observation { is_real: !R::IS_SIMULATED, ..Observation::not_started(pod) }
}

/// A pod from the server is never a static pod, regardless of its annotations.
fn of_server(mut pod: Arc<Pod>) -> Arc<Pod> {
    if pod.metadata.annotations.contains_key(static_pods::SOURCE) {
        Arc::make_mut(&mut pod).metadata.annotations.insert(static_pods::SOURCE.into(), "api".into());
    }
    pod
}

/// Whether the end of the pod is awaited: it has finalizers, or a Job counts it.
fn is_looked_at(pod: &Pod) -> bool {
    !pod.metadata.finalizers.is_empty() || pod.metadata.controller().is_some_and(|owner| owner.kind == "Job")
}

pub(super) fn addresses(pod: &Pod, member: &Member, node: &Node, seen: &Observation) -> Addresses {
    let host = address_of(node);
    if pod.spec.host_network {
        return Addresses { pod: host.clone(), host };
    }
    if let Some(address) = seen.addresses.as_ref().and_then(|addresses| addresses.first()) {
        return Addresses { host, pod: address.clone() };
    }
    let address = if seen.has_sandbox && seen.addresses.is_none() {
        let taken = member.state().addresses.take(&pod.metadata.uid, &pod.status.pod_ip);
        taken.map(|it| it.to_string()).unwrap_or_default()
    } else {
        pod.status.pod_ip.to_string()
    };
    Addresses { host, pod: address }
}
