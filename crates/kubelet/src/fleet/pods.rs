//! Looking after pods: admitting, starting, watching and ending them, one at a time and as often as needed.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::{Text, Value};
use client::Error;
use client::informer::Key;
use client::objects::{Deletion, Patch};
use tracing::{debug, info};

use super::Inner;
use super::member::{Member, address_of};
use crate::admission::{self, Rejection};
use crate::container_events;
use crate::deadline;
use crate::pod_status::{self, Addresses};
use crate::preemption;
use crate::runtime::{Observation, Runtime, Stopping};
use crate::static_pods;
use crate::volumes::{self, NotMounted};

/// A pod that starts sooner than this gets one status, not two.
const WORTH_TELLING: Duration = Duration::from_secs(1);
/// How soon and how late volumes are looked at again that were not in order.
const MOUNT_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

impl<R: Runtime> Inner<R> {
    pub(super) async fn work_on_pods(self: Arc<Self>) {
        while let Some(item) = self.pod_queue.get().await {
            match self.look_after(&item).await {
                Ok(None) => item.done(),
                // The clock of pods may be behind the timer's by a fraction.
                Ok(Some(next)) => item.again_after(next.max(Duration::from_millis(1))),
                Err(error) => {
                    debug!(pod = %*item, err = %error, "Could not write the status of the pod");
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

    pub(super) fn forget(&self, pod: &Pod) {
        if let Some(member) = self.members.get(&pod.spec.node_name) {
            member.state().forget(&pod.metadata.uid);
            self.runtime.forget(&pod.metadata.uid);
        }
    }

    /// Brings the pods of a name further: one of the server's, and one from a file. Answers when to look again.
    async fn look_after(&self, key: &Key) -> Result<Option<Duration>, Error> {
        if self.static_pods.get(key).is_none() {
            return self.look_after_bound(key).await;
        }
        let own = self.look_after_static(key).await?;
        let is_shown = self.pods.store().get_key(key).is_none_or(|pod| static_pods::is_mirror(&pod));
        let other = if is_shown { None } else { self.look_after_bound(key).await? };
        Ok(own.into_iter().chain(other).min())
    }

    /// Brings a pod of the server's further. Answers when to look again.
    async fn look_after_bound(&self, key: &Key) -> Result<Option<Duration>, Error> {
        let Some(pod) = self.pods.store().get_key(key).map(of_server) else { return Ok(None) };
        let Some(member) = self.members.get(&pod.spec.node_name).filter(|it| it.is_alive()) else { return Ok(None) };
        let Some(node) = self.nodes.store().get("", &member.name) else { return Ok(Some(WORTH_TELLING)) };
        if static_pods::is_mirror(&pod) {
            return self.end_mirror(&pod, &member).await;
        }
        // What this node has written since comes with the next change.
        if member.state().has_written_since(&pod) {
            return Ok(None);
        }
        let now = (self.clock)();
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
        let mut objections = self.admit(&pod, &member, &node);
        if !objections.is_empty() {
            // The scheduler may have seen a newer state of the node than the one that is known here.
            let newest = member.client.objects::<Node>().get("", &member.name).await?;
            objections = self.admit(&pod, &member, &newest);
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
        let next = self.bring_further(&pod, &member, &node).await?;
        Ok(next.into_iter().chain(left).min())
    }

    /// Mounts, prepares and starts, and says how the containers are. Answers when to look again.
    async fn bring_further(&self, pod: &Arc<Pod>, member: &Member, node: &Node) -> Result<Option<Duration>, Error> {
        let now = (self.clock)();
        if let Err(NotMounted(why)) = self.mount(pod, member, node).await? {
            member.warn(pod, "FailedMount", &why);
            let seen = Observation::not_started(pod);
            let addresses = addresses(pod, member, node, false);
            if let Some(patch) = pod_status::patch(pod, &seen, &addresses, now) {
                self.write_status(pod, member, &patch).await?;
            }
            // The longer a pod waits, the rarer it is looked at.
            let waited = pod.status.start_time.unwrap_or(now).until(now);
            return Ok(Some(waited.clamp(MOUNT_PAUSES.0, MOUNT_PAUSES.1)));
        }
        if let Some(again) = self.prepare(pod, member).await? {
            let addresses = addresses(pod, member, node, false);
            if let Some(patch) = pod_status::patch(pod, &Observation::not_started(pod), &addresses, now) {
                self.write_status(pod, member, &patch).await?;
            }
            return Ok(Some(again));
        }
        let seen = self.runtime.sync(pod, now).await;
        let is_soon = seen.next.is_some_and(|next| next < WORTH_TELLING);
        if !seen.has_sandbox && is_soon {
            return Ok(seen.next);
        }
        let addresses = addresses(pod, member, node, seen.has_sandbox);
        if let Some(patch) = pod_status::patch(pod, &seen, &addresses, now) {
            self.write_status(pod, member, &patch).await?;
            if self.tells() {
                member.tell(pod, container_events::news(pod, &seen));
            }
        }
        Ok(seen.next)
    }

    /// Ends a pod whose time is up.
    async fn end_overdue(&self, pod: &Pod, member: &Member) -> Result<Option<Duration>, Error> {
        let now = (self.clock)();
        if self.tells() && member.state().ending.insert(pod.metadata.uid.clone()) {
            member.tell(pod, container_events::overdue(pod));
        }
        match self.runtime.stop(pod, now).await {
            Stopping::Wait(wait) => Ok(Some(wait)),
            Stopping::Never => Ok(None),
            Stopping::Ended(seen) => {
                info!(pod = %pod.metadata.name, node = %member.name, "Ended pod whose time is up");
                self.write_status(pod, member, &pod_status::overdue(pod, &seen, now)).await?;
                Ok(None)
            }
        }
    }

    /// What is against running the pod here. Nothing, once it was admitted: from then on it occupies what it asked for.
    pub(super) fn admit(&self, pod: &Arc<Pod>, member: &Member, node: &Node) -> Vec<Rejection> {
        let mut state = member.state();
        if state.admitted.contains_key(&pod.metadata.uid) {
            return Vec::new();
        }
        let others = state.admitted.values().map(|other| &**other);
        let objections = admission::objections(pod, node, others, &self.cache, &self.features);
        if objections.is_empty() {
            state.admitted.insert(pod.metadata.uid.clone(), pod.clone());
        }
        objections
    }

    /// Admits a critical pod though there is too little of something: others give way.
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
        info!(pod = %key, node = %member.name, "Ended pod for a critical one");
        member.warn(&pod, preemption::REASON, preemption::MESSAGE);
        let now = (self.clock)();
        let seen = match self.runtime.stop(&pod, now).await {
            Stopping::Ended(seen) => Some(seen),
            Stopping::Wait(_) | Stopping::Never => None,
        };
        let patch = pod_status::preempted(&pod, seen.as_ref(), preemption::REASON, preemption::MESSAGE, now);
        if let Err(error) = self.write_status(&pod, member, &patch).await {
            // It is no longer admitted: when it is looked at again, it is rejected.
            debug!(pod = %key, err = %error, "Could not write the status of the pod");
            self.pod_queue.add(key);
        }
    }

    /// Whether the pod's volumes are in order. Asked until they are, and not again.
    async fn mount(&self, pod: &Pod, member: &Member, node: &Node) -> Result<Result<(), NotMounted>, Error> {
        if !volumes::has_claims(pod) || member.state().mounted.contains(&pod.metadata.uid) {
            return Ok(Ok(()));
        }
        // Noted before it is looked at, so that no change of the node goes unnoticed.
        let key = Key::new(pod.metadata.namespace.clone(), pod.metadata.name.clone());
        member.state().unmounted.insert(pod.metadata.uid.clone(), key);
        let newest = self.nodes.store().get("", &member.name);
        let node = newest.as_deref().unwrap_or(node);
        let outcome = volumes::check(&self.client, pod, node, &self.cache, &self.features).await?;
        if outcome.is_ok() {
            let mut state = member.state();
            state.unmounted.remove(&pod.metadata.uid);
            state.mounted.insert(pod.metadata.uid.clone());
        }
        Ok(outcome)
    }

    /// Ends a pod that is to be deleted, and then deletes it for good.
    async fn end(&self, pod: &Pod, member: &Member, node: &Node) -> Result<Option<Duration>, Error> {
        let is_final = pod.metadata.deletion_grace_period_seconds == Some(0);
        if is_final && pod.is_terminal() && !pod.metadata.finalizers.is_empty() {
            // Others have to let go of it.
            member.state().release(&pod.metadata.uid);
            return Ok(None);
        }
        let now = (self.clock)();
        if !pod.is_terminal() {
            if self.tells() && member.state().ending.insert(pod.metadata.uid.clone()) {
                member.tell(pod, container_events::killing(pod));
            }
            match self.runtime.stop(pod, now).await {
                Stopping::Wait(wait) => return Ok(Some(wait)),
                Stopping::Never => return Ok(None),
                Stopping::Ended(seen) => {
                    // Who still looks at the pod is told how it ended; for the others it is gone.
                    let addresses = addresses(pod, member, node, false);
                    if is_looked_at(pod)
                        && let Some(patch) = pod_status::patch(pod, &seen, &addresses, now)
                    {
                        self.write_status(pod, member, &patch).await?;
                    }
                }
            }
        }
        member.state().release(&pod.metadata.uid);
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
            // The pod is gone, or it is another one by now: its change tells.
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A pod that the server sends is none of the node's own, whatever it says of itself.
fn of_server(mut pod: Arc<Pod>) -> Arc<Pod> {
    if pod.metadata.annotations.contains_key(static_pods::SOURCE) {
        Arc::make_mut(&mut pod).metadata.annotations.insert(static_pods::SOURCE.into(), "api".into());
    }
    pod
}

/// Whether somebody waits for the pod's end: its object stays, or a Job counts it.
fn is_looked_at(pod: &Pod) -> bool {
    !pod.metadata.finalizers.is_empty() || pod.metadata.controller().is_some_and(|owner| owner.kind == "Job")
}

pub(super) fn addresses(pod: &Pod, member: &Member, node: &Node, has_sandbox: bool) -> Addresses {
    let host = address_of(node);
    if pod.spec.host_network {
        return Addresses { pod: host.clone(), host };
    }
    let address = if has_sandbox {
        let taken = member.state().addresses.take(&pod.metadata.uid, &pod.status.pod_ip);
        taken.map(|it| it.to_string()).unwrap_or_default()
    } else {
        pod.status.pod_ip.to_string()
    };
    Addresses { host, pod: address }
}
