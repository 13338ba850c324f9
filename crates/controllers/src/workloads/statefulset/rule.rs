//! One round: pods and claims to create, change or delete, and the status.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::apps::v1::{StatefulSet, StatefulSetStatus};
use api::core::v1::{PersistentVolumeClaim, Pod};
use api::json::{Text, Value};
use api::time::Timestamp;
use client::Document;

use super::{claims, identity, status};
use crate::machinery::history::Revision;
use crate::machinery::pods::{PODS, is_available, is_ready};

/// Input of a round.
pub(super) struct ObservedState {
    pub(super) set: Arc<Document<StatefulSet>>,
    /// The revision that most pods have, and the one that they shall have.
    pub(super) current: Revision,
    pub(super) update: Revision,
    pub(super) pods: Vec<Arc<Pod>>,
    /// The claims of the namespace, by name.
    pub(super) claims: HashMap<Text, Arc<Document<PersistentVolumeClaim>>>,
    pub(super) now: Timestamp,
}

/// One thing to be done; a failure ends the round.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    CreateClaim {
        claim: Value,
        pod: String,
    },
    UpdateClaim {
        claim: Value,
    },
    CreatePod {
        pod: Value,
    },
    /// Records an event for an update of a pod or its claims; updates its labels, if given.
    UpdatePod {
        pod: Arc<Pod>,
        labels: Option<Value>,
    },
    DeletePod {
        pod: Arc<Pod>,
    },
    /// The pod must wait until its claim is deleted; an event is recorded if the pod is about to be created.
    Wait {
        claim: Text,
        pod: String,
        is_reported: bool,
    },
}

/// Steps of a round, and its resulting status.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) status: StatefulSetStatus,
    /// Delay after which to check again without an observed change.
    pub(super) again: Option<Duration>,
}

/// A place: its number, and the pod that has it.
type Place = (i32, Option<Arc<Pod>>);

struct Round<'a> {
    seen: &'a ObservedState,
    set: &'a Document<StatefulSet>,
    /// Whether pods are created one at a time, in order.
    is_ordered: bool,
    steps: Vec<Step>,
    /// Pods of the old revision that this round deletes.
    updated: i32,
    again: Option<Duration>,
}

/// Claims that are about to go are looked for again after this time.
const STALE: Duration = Duration::from_secs(1);

pub(super) fn plan(seen: &ObservedState) -> Plan {
    let set = &*seen.set;
    let is_ordered = set.spec.pod_management_policy != "Parallel";
    let mut round = Round { seen, set, is_ordered, steps: Vec::new(), updated: 0, again: None };
    if !set.metadata().is_deleting() {
        round.run();
    }
    let mut status = status::counted(seen);
    status.current_replicas = status.current_replicas.saturating_sub(round.updated);
    status::complete(set, &mut status);
    Plan { steps: round.steps, status, again: round.again }
}

impl Round<'_> {
    fn is_unavailable(&self, pod: &Pod) -> bool {
        !is_available(pod, self.set.spec.min_ready_seconds, self.seen.now) || pod.metadata.is_deleting()
    }

    fn delete(&mut self, pod: &Arc<Pod>) {
        self.steps.push(Step::DeletePod { pod: pod.clone() });
    }

    fn run(&mut self) {
        let first = identity::first(self.set);
        let last = first.saturating_add(identity::replicas(self.set));
        let place = |ordinal: i32| {
            let pod = self.seen.pods.iter().find(|pod| identity::ordinal_of(pod) == Some(ordinal));
            (ordinal, pod.cloned())
        };
        let wanted: Vec<Place> = (first..last).map(place).collect();
        let is_condemned =
            |pod: &&Arc<Pod>| identity::ordinal_of(pod).is_some_and(|ordinal| !identity::is_wanted(self.set, ordinal));
        let mut condemned: Vec<Arc<Pod>> = self.seen.pods.iter().filter(is_condemned).cloned().collect();
        condemned.sort_by_key(|pod| std::cmp::Reverse(identity::ordinal_of(pod)));
        for (ordinal, pod) in &wanted {
            let waits = self.tend(*ordinal, pod.as_ref());
            if waits && self.is_ordered {
                return;
            }
        }
        for pod in &condemned {
            self.own_claims(pod);
        }
        let first_unavailable = {
            let missing = wanted.iter().any(|(_, pod)| pod.is_none());
            let mut unavailable = wanted.iter().filter_map(|(_, pod)| pod.as_ref()).chain(condemned.iter().rev());
            if missing { None } else { unavailable.find(|pod| self.is_unavailable(pod)).cloned() }
        };
        for pod in &condemned {
            if self.dismiss(pod, first_unavailable.as_ref()) && self.is_ordered {
                return;
            }
        }
        if !matches!(self.set.spec.update_strategy.strategy_type.as_str(), "OnDelete") {
            self.replace_old(&wanted);
        }
    }

    /// Reconciles one ordinal. Returns whether the next ones must wait.
    fn tend(&mut self, ordinal: i32, pod: Option<&Arc<Pod>>) -> bool {
        let Some(pod) = pod else {
            self.create(ordinal);
            return true;
        };
        if pod.is_terminal() {
            if !pod.metadata.is_deleting() {
                self.delete(pod);
            }
            return true;
        }
        if pod.status.phase == "Pending" {
            self.create_claims(ordinal, &pod.metadata.name, false);
            self.own_claims(pod);
        }
        let serves = pod.status.phase == "Running" && is_ready(pod);
        let waits =
            pod.metadata.is_deleting() || !serves || !is_available(pod, self.set.spec.min_ready_seconds, self.seen.now);
        if waits && self.is_ordered {
            return true;
        }
        let has_new_owner = pod.status.phase != "Pending" && self.own_claims(pod);
        let labels = identity::missing_label(self.set, pod);
        if has_new_owner || labels.is_some() {
            self.steps.push(Step::UpdatePod { pod: pod.clone(), labels });
        }
        false
    }

    /// Makes the pod of a place, and its claims before it.
    fn create(&mut self, ordinal: i32) {
        let set = self.set;
        let name = identity::pod_name(set, ordinal);
        // A claim of an earlier pod of this name is about to go: the new pod must not take it.
        let pod = api::meta::v1::ObjectMeta { name: name.as_str().into(), ..Default::default() };
        let policy = set.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
        let deletes = policy.when_scaled == "Delete";
        if deletes
            && self.claims_of(ordinal).any(|(_, claim)| claim.is_some_and(|it| claims::is_stale(it, &PODS, &pod)))
        {
            self.again = Some(STALE);
            return;
        }
        if self.create_claims(ordinal, &name, true) {
            return;
        }
        let partition = set.spec.update_strategy.rolling_update.as_ref().map(|rolling| rolling.partition.unwrap_or(0));
        let is_rolling = set.spec.update_strategy.strategy_type == "RollingUpdate";
        let index = ordinal.saturating_sub(identity::first(set));
        let is_old = match partition {
            None => is_rolling && index < set.status.current_replicas,
            Some(partition) => index < partition,
        };
        let revision = if is_old { &self.seen.current } else { &self.seen.update };
        let template = super::with_template(set, revision);
        let pod = identity::pod(set, &template, &revision.metadata().name, ordinal);
        self.steps.push(Step::CreatePod { pod });
    }

    /// The claims of a place: the number of the template, and the claim if it exists.
    fn claims_of(&self, ordinal: i32) -> impl Iterator<Item = (usize, Option<&Arc<Document<PersistentVolumeClaim>>>)> {
        let (set, claims) = (self.set, &self.seen.claims);
        set.spec.volume_claim_templates.iter().enumerate().map(move |(index, template)| {
            let name = identity::claim_name(set, &template.metadata.name, ordinal);
            (index, claims.get(name.as_str()))
        })
    }

    /// Creates missing claims. Returns whether one is being deleted.
    fn create_claims(&mut self, ordinal: i32, pod: &str, is_new: bool) -> bool {
        let all: Vec<(usize, Option<Text>)> = self
            .claims_of(ordinal)
            .filter(|(_, claim)| claim.is_none_or(|claim| claim.metadata().is_deleting()))
            .map(|(index, claim)| (index, claim.map(|claim| claim.metadata().name.clone())))
            .collect();
        for (index, _) in all.iter().filter(|(_, going)| going.is_none()) {
            if let Some(claim) = claims::new_claim(self.set, *index, ordinal) {
                self.steps.push(Step::CreateClaim { claim, pod: pod.to_owned() });
            }
        }
        let Some(claim) = all.into_iter().find_map(|(_, going)| going) else { return false };
        self.steps.push(Step::Wait { claim, pod: pod.to_owned(), is_reported: is_new });
        true
    }

    /// Sets the owners of a pod's claims according to the policy. Returns whether one had another owner.
    fn own_claims(&mut self, pod: &Pod) -> bool {
        let Some(ordinal) = identity::ordinal_of(pod) else { return false };
        let updates: Vec<Value> = self
            .claims_of(ordinal)
            .filter_map(|(_, claim)| claims::with_owner(self.set, &pod.metadata, ordinal, claim?))
            .collect();
        let changed = !updates.is_empty();
        self.steps.extend(updates.into_iter().map(|claim| Step::UpdateClaim { claim }));
        changed
    }

    /// Deletes a pod whose ordinal is out of range. Returns whether the next ones must wait.
    fn dismiss(&mut self, pod: &Arc<Pod>, first_unavailable: Option<&Arc<Pod>>) -> bool {
        if pod.metadata.is_deleting() {
            return true;
        }
        let serves = pod.status.phase == "Running" && is_ready(pod);
        let is_first = first_unavailable.is_some_and(|it| it.metadata.name == pod.metadata.name);
        let is_available = is_available(pod, self.set.spec.min_ready_seconds, self.seen.now);
        // One that has ended will never serve: to wait for that would be to wait forever.
        let may_go = is_first || pod.is_terminal() || (serves && is_available);
        if self.is_ordered && !may_go {
            return true;
        }
        self.delete(pod);
        true
    }

    /// Deletes pods of other revisions, from the last to the first, as many as may be missing.
    fn replace_old(&mut self, wanted: &[Place]) {
        let set = self.set;
        let rolling = set.spec.update_strategy.rolling_update.clone().unwrap_or_default();
        let partition = usize::try_from(rolling.partition.unwrap_or(0)).unwrap_or(0);
        let total = i64::from(identity::replicas(set));
        let most = rolling.max_unavailable.map_or(1, |most| most.scaled(total, false).unwrap_or(1)).max(1);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let is_old = |pod: &Pod| identity::revision_of(pod) != self.seen.update.metadata().name;
        let unavailable = |(_, pod): &&Place| pod.as_ref().is_none_or(|pod| self.is_unavailable(pod));
        let missing = wanted.iter().filter(unavailable).count();
        let candidates: Vec<Arc<Pod>> =
            wanted.iter().skip(partition).rev().filter_map(|(_, pod)| pod.clone()).collect();
        let is_broken = |pod: &&Arc<Pod>| is_old(pod) && !pod.metadata.is_deleting() && self.is_unavailable(pod);
        let budget = most.saturating_sub(missing);
        let mut chosen: Vec<Arc<Pod>> = Vec::new();
        if self.is_ordered {
            let old = candidates.iter().filter(|pod| is_old(pod) && !pod.metadata.is_deleting());
            chosen.extend(old.take(budget).cloned());
        } else {
            // Deleting unavailable pods does not reduce availability.
            chosen.extend(candidates.iter().filter(is_broken).cloned());
            let serving = candidates.iter().filter(|pod| is_old(pod) && !self.is_unavailable(pod));
            chosen.extend(serving.take(budget).cloned());
        }
        for pod in &chosen {
            self.delete(pod);
            self.updated = self.updated.saturating_add(1);
        }
    }
}

/// Whether the pod of an ordinal has been created on the server.
pub(super) fn is_created(pod: &Pod) -> bool {
    !pod.status.phase.is_empty()
}

#[cfg(test)]
mod tests;
