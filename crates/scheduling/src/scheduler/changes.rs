//! Changes from the API, and the pods that they wake.
//!
//! Each call is the newest state of one object: the same may come twice, and states in between may be missed.

use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::Text;
use api::resource::v1::ResourceClaim;

use super::Scheduler;
use crate::cluster::{NodeObject, Object, ObjectKind, PodInfo, changes_of_pod, object_change};
use crate::framework::{Action, Change, Event, Hint, Point, Resource, Status};
use crate::queue::PluginSet;

impl Scheduler {
    /// A node was added or changed.
    pub fn set_node(&mut self, node: &Node, now: Duration) {
        let new = NodeObject::new(node, &self.cluster.matcher);
        let old = self.cluster.cache.set_node(new);
        let Some(new) = self.cluster.cache.node_named(&node.metadata.name).map(|node| node.object.clone()) else {
            return;
        };
        let action = old.as_ref().map_or(Action::ADD, |old| old.changes(&new));
        self.happened(Event::new(Resource::Node, action), Change::Node { old: old.as_deref(), new: Some(&new) }, now);
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str, now: Duration) {
        if let Some(old) = self.cluster.cache.remove_node(name) {
            let change = Change::Node { old: Some(&old), new: None };
            self.happened(Event::new(Resource::Node, Action::DELETE), change, now);
        }
    }

    /// A pod was added or changed. Pods of other schedulers count on their nodes, too.
    pub fn set_pod(&mut self, pod: &Pod, now: Duration) {
        if pod.is_terminal() {
            self.remove_pod(&pod.metadata.uid, now);
            return;
        }
        let info = Arc::new(PodInfo::new(pod, &mut self.shapes, &self.cluster.matcher));
        if info.node_name.is_empty() { self.set_waiting_pod(info, now) } else { self.set_assigned_pod(info, now) }
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, uid: &str, now: Duration) {
        let kept = self.queue.remove(uid).and_then(|queued| self.nominate(&queued.pod, ""));
        self.cluster.nominated.remove(uid);
        self.room_given_up(kept, now);
        self.searching.remove(uid);
        if let Some(binding) = self.binding.remove(uid) {
            self.take_back(&binding.writes);
        } else if let Some(devices) = &mut self.cluster.objects.devices {
            // Its claim was created and deleted without being observed.
            devices.inventory.remove_claim(&crate::cluster::pending_claim(&uid.into()));
        }
        if let Some(old) = self.cluster.cache.remove_pod(uid) {
            self.assigned_pod_gone(&old, now);
        }
    }

    /// Adds or changes another object.
    pub fn set_object(&mut self, object: &Object, now: Duration) {
        let old = self.cluster.objects.set(object, &self.cluster.matcher.clone());
        let action = if old.is_some() { Action::UPDATE } else { Action::ADD };
        self.object_happened(object.kind(), action, old.as_ref(), Some(object), now);
    }

    /// Removes another object.
    pub fn remove_object(&mut self, kind: ObjectKind, namespace: &str, name: &str, now: Duration) {
        if let Some(old) = self.cluster.objects.remove(kind, namespace, name) {
            // Removing a rule changes devices, as adding one does.
            let action = if kind == ObjectKind::DeviceTaintRule { Action::UPDATE } else { Action::DELETE };
            self.object_happened(kind, action, Some(&old), None, now);
        }
    }

    /// Room is kept for a pod on another node than before, or on none; the pod as it was where that was elsewhere.
    pub(super) fn nominate(&mut self, pod: &Arc<PodInfo>, node: &str) -> Option<PodInfo> {
        let before = self.cluster.nominated.node_of(&pod.uid).cloned();
        self.cluster.nominated.set(pod, node);
        let nominated_node = before.filter(|before| before != node)?;
        Some(PodInfo { nominated_node, ..pod.as_ref().clone() })
    }

    /// Releases resources that were reserved for a nominated pod, as if the pod had been deleted.
    pub(super) fn room_given_up(&mut self, kept: Option<PodInfo>, now: Duration) {
        if let Some(kept) = kept {
            self.assigned_pod_gone(&kept, now);
        }
    }

    pub(super) fn assigned_pod_gone(&mut self, old: &PodInfo, now: Duration) {
        let change = Change::Pod { old: Some(old), new: None };
        self.happened(Event::new(Resource::AssignedPod, Action::DELETE), change, now);
    }

    fn set_assigned_pod(&mut self, info: Arc<PodInfo>, now: Duration) {
        self.queue.remove(&info.uid);
        let kept = self.nominate(&info, "").filter(|kept| kept.nominated_node != info.node_name);
        self.room_given_up(kept, now);
        let was_assumed = self.cluster.cache.is_assumed(&info.uid);
        let assumed_node = self.cluster.cache.pod(&info.uid).map(|pod| pod.node_name.clone());
        let old = self.cluster.cache.set_pod(info.clone());
        let (event, old) = match old {
            // Bound elsewhere than it was put: its place is free.
            Some(old) if was_assumed && assumed_node.as_ref() != Some(&info.node_name) => {
                self.assigned_pod_gone(&old, now);
                (Action::ADD, None)
            }
            Some(_) if was_assumed => (Action::ADD, None),
            Some(old) => (changes_of_pod(&old, &info), Some(old)),
            None => (Action::ADD, None),
        };
        let change = Change::Pod { old: old.as_deref(), new: Some(&info) };
        self.happened(Event::new(Resource::AssignedPod, event), change, now);
    }

    fn set_waiting_pod(&mut self, info: Arc<PodInfo>, now: Duration) {
        if self.profile(&info).is_none() {
            return;
        }
        if let Some(binding) = self.binding.get_mut(&info.uid) {
            // It already counts on its node; if the binding fails, it is requeued in its present state.
            binding.queued.pod = info;
            return;
        }
        if self.cluster.cache.pod(&info.uid).is_some() {
            // The API's answer to the binding was seen, and this is older.
            return;
        }
        if !info.nominated_node.is_empty() || self.cluster.nominated.node_of(&info.uid).is_some() {
            let node = match self.cluster.nominated.node_of(&info.uid) {
                // Decided here, and not yet seen by the API.
                Some(node) if info.nominated_node.is_empty() => node.clone(),
                _ => info.nominated_node.clone(),
            };
            let kept = self.nominate(&info, &node);
            self.room_given_up(kept, now);
        }
        let rank = self.rank(&info);
        let gate = self.gate(&info);
        match self.queue.get(&info.uid) {
            Some(queued) => {
                let old = queued.pod.clone();
                let rejected = queued.rejected_by;
                let change = Change::Pod { old: Some(&old), new: Some(&info) };
                self.begin_change_budget();
                let changes = changes_of_pod(&old, &info);
                let mut events = changes.singles().map(|change| Event::new(Resource::TargetPod, change));
                // A pod that has overdrawn its allowance is tried instead: its expressions are not evaluated here.
                let is_left_out = rejected != 0 && self.queue.is_overdrawn(&info.uid, now);
                let helps = events.find(|event| is_left_out || self.helps(&info, rejected, *event, change) != 0);
                self.queue.update(info, rank, gate, helps, now);
            }
            None => self.queue.add(info, rank, gate, now),
        }
    }

    fn object_happened(
        &mut self,
        kind: ObjectKind,
        action: Action,
        old: Option<&Object>,
        new: Option<&Object>,
        now: Duration,
    ) {
        let Some(resource) = kind.resource() else { return };
        let (event, change) = (Event::new(resource, action), object_change(kind, old, new));
        match new {
            // There are as many claims as pods: only the users of a claim are woken, unless it releases
            // devices.
            Some(Object::ResourceClaim(claim)) if !leaves_devices(old, claim) => {
                let owner = claim.metadata.controller().map(|owner| owner.uid.clone());
                let naming = self.queue.naming(&claim.metadata.namespace, &claim.metadata.name).cloned();
                let users = naming.chain(owner).collect::<Vec<_>>();
                self.wake(event, change, Some(users), now);
            }
            _ => self.happened(event, change, now),
        }
    }

    /// Requeues the pods that a change may help, separately for each kind of change.
    fn happened(&mut self, event: Event, change: Change<'_>, now: Duration) {
        for action in event.action.singles() {
            self.wake(Event::new(event.resource, action), change, None, now);
        }
    }

    /// Wakes only some pods.
    fn wake(&mut self, event: Event, change: Change<'_>, among: Option<Vec<Text>>, now: Duration) {
        let listeners = self.profiles.iter().flat_map(|profile| profile.listeners(event));
        let listeners = listeners.fold(0, |set, enabled| set | enabled.bit);
        if listeners == 0 {
            return;
        }
        self.begin_change_budget();
        let mut queue = std::mem::replace(&mut self.queue, crate::queue::Queue::new(Default::default()));
        let wake = || {
            let helps = |pod: &PodInfo, rejected| self.helps(pod, rejected, event, change);
            let gate = |pod: &PodInfo| self.gate(pod);
            match among {
                Some(uids) => queue.happened_to(uids, event, listeners, helps, gate, now),
                None => {
                    queue.happened(event, listeners, helps, gate, now);
                }
            }
        };
        self.event_timings.measure(self.clock.as_ref(), wake, |_| (event, None));
        self.queue = queue;
    }

    /// Returns the plugins among those that rejected a pod that may accept it after a change.
    pub(super) fn helps(&self, pod: &PodInfo, rejected: PluginSet, event: Event, change: Change<'_>) -> PluginSet {
        let Some(profile) = self.profile(pod) else { return 0 };
        let asked = profile.listeners(event).filter(|enabled| enabled.bit & rejected != 0);
        let won = asked.filter(|it| {
            let ask = || it.plugin.hint(pod, event, change, &self.cluster);
            let reported = |hint: &Hint| (event, Some((it.name(), *hint)));
            // Past the budget, nothing is known: when in doubt, try.
            self.event_timings.measure(self.clock.as_ref(), ask, reported) == Hint::Queue
                || pod.matcher.is_over_budget()
        });
        won.fold(0, |set, enabled| set | enabled.bit)
    }

    /// Returns the reason why a pod may not be tried.
    fn gate(&self, pod: &PodInfo) -> Option<(PluginSet, Status)> {
        let profile = self.profile(pod)?;
        profile.at(Point::PreEnqueue).find_map(|enabled| {
            let closed = enabled.plugin.pre_enqueue(pod, &self.cluster).err()?;
            Some((enabled.bit, closed.by(enabled.name())))
        })
    }

    /// Position of a pod in the queue.
    fn rank(&self, pod: &PodInfo) -> i64 {
        let profile = self.profile(pod);
        let sort = profile.and_then(|profile| profile.at(Point::QueueSort).next());
        sort.map_or(0, |enabled| enabled.plugin.rank(pod))
    }
}

/// Whether a claim had devices and has none any more.
fn leaves_devices(old: Option<&Object>, new: &ResourceClaim) -> bool {
    matches!(old, Some(Object::ResourceClaim(old)) if old.status.allocation.is_some() && new.status.allocation.is_none())
}
