//! One daemon set brought to its wanted state.

use locks::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::apps::v1::{ControllerRevision, DaemonSet};
use api::core::v1::{Node, Pod};
use api::json::Text;
use api::meta::v1::Object as _;
use api::metadata;
use api::well_known::LABEL_CONTROLLER_REVISION_HASH;
use client::Document;
use client::controller::Next;
use client::costly::{CostlyWork, RetryAfter};
use client::events::Severity;
use client::informer::{Informer, Key};
use client::objects::{Deletion, Patch};
use client::resources::ServedView as _;
use matching::{CompileCache, Features, taints};

use super::backoff::Backoff;
use super::demands::Demands;
use super::history::{self, History, Revision};
use super::placement::{Demand, Placement, PlacementDecision};
use super::pods::{by_node, new_pod};
use super::rule::{Change, ObservedState, manage, replace};
use super::status;
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::history::new_revision;
use crate::machinery::ownership::{Controller, INDEX, orphans_of};
use crate::machinery::placement::{OVER_BUDGET, over_budget, report};
use crate::machinery::pods::{PODS, next_available};

const REVISIONS: client::Resource = ControllerRevision::RESOURCE;
const SETS: client::Resource = DaemonSet::RESOURCE;
/// At most this many pods are made or deleted at a time.
const BURST: usize = 250;

/// The controller.
pub(super) struct Daemons {
    pub(super) sets: Informer<Document<DaemonSet>>,
    pub(super) revisions: Informer<Document<ControllerRevision>>,
    pub(super) pods: Informer<Pod>,
    pub(super) nodes: Informer<Node>,
    pub(super) executor: Executor,
    pub(super) cache: Arc<CompileCache>,
    pub(super) features: Features,
    pub(super) taints: Arc<taints::Sets>,
    pub(super) demands: Mutex<Demands>,
    pub(super) costly: CostlyWork,
    pub(super) backoff: Mutex<Backoff>,
}

impl Daemons {
    pub(super) async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(set) = self.sets.store().get_key(&key) else {
            self.executor.forget(&key);
            self.demands().forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        if set.metadata().is_deleting() {
            return Ok(Next::Done);
        }
        let generation = set.metadata().generation;
        if set.status.observed_generation != generation
            && let Some(template) = set.value().at(&["spec", "template"])
            && let Some(after) = self.executor.postponed(&key, &PODS, template, generation)
        {
            return Ok(Next::After(after));
        }
        let controller = Controller { resource: &SETS, metadata: set.metadata() };
        let selector = set.spec.selector.as_ref().and_then(|selector| selector.to_selector().ok());
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.executor.recorder().event(controller.about(), Severity::Warning, "SelectingAll", message);
            return Ok(Next::Done);
        };
        let candidates = candidates(&self.pods, &set);
        let claims = controller.claim(&selector, candidates, |pod| &pod.metadata);
        let mut pods = self.executor.carry_out(&key, controller, claims, &PODS, |pod| &pod.metadata, &[]).await?;
        let candidates = candidates_of_revisions(&self.revisions, &set);
        let claims = controller.claim(&selector, candidates, |it| it.metadata());
        let revisions = self.executor.carry_out(&key, controller, claims, &REVISIONS, |it| it.metadata(), &[]).await?;
        let history = History::new(set.value(), revisions);
        let Some(hash) = self.present_revision(&key, &set, controller, &history, &pods).await? else {
            return Ok(Next::After(UNSETTLED));
        };

        let nodes = match self.placements(&key, &set, controller).await {
            Ok(nodes) => nodes,
            Err(wait) => return Ok(Next::After(wait)),
        };
        let seen =
            ObservedState { set: &set, nodes: &nodes, pods: &by_node(&pods), hash: &hash, now: self.executor.now() };
        let mut change = manage(&seen, &mut self.backoff.lock());
        if change.create.is_empty() && change.delete.is_empty() {
            let again = change.again;
            change = Change { again, ..replace(&seen) };
        }
        let again = change.again;
        let failure = self.carry_out(&key, &set, controller, &hash, change, &mut pods).await;
        if failure.is_none() {
            self.clean_up(&key, &history, &set, &pods).await?;
        }
        let seen = ObservedState { pods: &by_node(&pods), now: self.executor.now(), ..seen };
        if let Some(object) = status::updated(&seen, set.value()) {
            self.executor.perform(&key, vec![Action::UpdateStatus { resource: SETS, object }]).await?;
        }
        if let Some(failure) = failure {
            return failure.held().map(Next::After).ok_or(failure);
        }
        let available = next_available(&pods, set.spec.min_ready_seconds, self.executor.now());
        Ok(again.into_iter().chain(available).min().map_or(Next::Done, Next::After))
    }

    /// Returns the decision about each node; or how long to wait if the expressions exceeded the budget.
    async fn placements(
        &self,
        key: &Key,
        set: &Document<DaemonSet>,
        controller: Controller<'_>,
    ) -> Result<BTreeMap<Text, Placement>, Duration> {
        let demand = self.demands().get(set, || Demand::new(&set.spec.template.spec, &self.cache, &self.features));
        let (nodes, sets) = (self.nodes.store().list(), self.taints.clone());
        let decide = move || demand.placements(nodes.iter().map(Arc::as_ref), &sets);
        let decided = if self.demands().has_expressions(key) {
            self.costly.run(&key.namespace, decide).await.map_err(|RetryAfter(wait)| wait)?
        } else {
            decide()
        };
        let mut demands = self.demands();
        match decided {
            Ok(PlacementDecision { placements, complaints }) => {
                if demands.succeeded(key, &complaints) {
                    report(self.executor.recorder(), &controller.about(), &complaints);
                }
                Ok(placements)
            }
            Err(excess) => {
                let wait = demands.failed(key);
                let message = over_budget(excess, wait);
                self.executor.recorder().event(controller.about(), Severity::Warning, OVER_BUDGET, &message);
                Err(wait)
            }
        }
    }

    fn demands(&self) -> MutexGuard<'_, Demands> {
        self.demands.lock()
    }

    /// Creates and deletes pods; created ones are added to `pods`. Returns the reason of a failure.
    async fn carry_out(
        &self,
        key: &Key,
        set: &Document<DaemonSet>,
        controller: Controller<'_>,
        hash: &str,
        change: Change,
        pods: &mut Vec<Arc<Pod>>,
    ) -> Option<Failure> {
        for (severity, reason, message) in &change.events {
            self.executor.recorder().event(controller.about(), *severity, reason, message);
        }
        let owner = Owner { about: controller.about(), generation: set.metadata().generation };
        let wanted = change.create.iter().take(BURST);
        let wanted = wanted.map(|node| new_pod(set, set.value(), controller, hash, node)).collect();
        let created = self.executor.create_pods(key, &owner, wanted).await;
        pods.extend(created.objects.iter().filter_map(|pod| Pod::read(pod).ok()).map(Arc::new));
        let surplus: Vec<Arc<Pod>> = change.delete.into_iter().take(BURST).collect();
        let deleted = self.executor.delete_pods(key, &controller.about(), &surplus).await;
        // A namespace that ends takes the set with it.
        created.failure.filter(|failure| !failure.is_ending_namespace()).or(deleted.err())
    }

    /// The hash of the revision of the present template, which is made or brought to the front if need be. Nothing if
    /// that has to be seen first.
    async fn present_revision(
        &self,
        key: &Key,
        set: &Document<DaemonSet>,
        controller: Controller<'_>,
        history: &History,
        pods: &[Arc<Pod>],
    ) -> Result<Option<Text>, Failure> {
        let number = history.number();
        let Some(newest) = history.newest() else {
            return self.make_revision(key, set, controller, number).await;
        };
        let hash = history::hash_of(newest);
        let doubles = history.current.iter().filter(|it| it.metadata().name != newest.metadata().name);
        let doubles: Vec<&Revision> = doubles.collect();
        if !doubles.is_empty() {
            self.join(key, &doubles, &hash, pods).await?;
        }
        if newest.revision < number {
            let mut object = newest.to_value();
            object.set_at(&["revision"], number);
            self.executor.perform(key, vec![Action::Update { resource: REVISIONS, object }]).await?;
        }
        Ok(Some(hash))
    }

    async fn make_revision(
        &self,
        key: &Key,
        set: &Document<DaemonSet>,
        controller: Controller<'_>,
        number: i64,
    ) -> Result<Option<Text>, Failure> {
        let collisions = set.status.collision_count.unwrap_or(0);
        let object = new_revision(controller, set.value(), number, collisions, LABEL_CONTROLLER_REVISION_HASH);
        let hash = object.text_at(&["metadata", "labels", LABEL_CONTROLLER_REVISION_HASH]).into();
        let create = Action::Create { resource: REVISIONS, object: object.clone() };
        match self.executor.perform(key, vec![create]).await {
            Ok(()) => return Ok(Some(hash)),
            Err(failure) if failure.is_already_exists() => {}
            Err(failure) => return Err(failure),
        }
        let revisions = self.executor.client().documents(REVISIONS);
        let found = revisions.get(&key.namespace, metadata::name(&object)).await?;
        if found.get("data") == object.get("data") {
            return Ok(Some(hash));
        }
        // Another template has this hash: the incremented count yields a new one.
        let mut document = set.to_value();
        document.set_at(&["status", "collisionCount"], collisions.saturating_add(1));
        self.executor.perform(key, vec![Action::UpdateStatus { resource: SETS, object: document }]).await?;
        Ok(None)
    }

    /// Joins revisions of one template: their pods get the hash of the one that stays.
    async fn join(&self, key: &Key, doubles: &[&Revision], hash: &Text, pods: &[Arc<Pod>]) -> Result<(), Failure> {
        let others = pods.iter().filter(|pod| pod.metadata.labels.get(LABEL_CONTROLLER_REVISION_HASH) != Some(hash));
        let relabel = others.map(|pod| Action::Patch {
            resource: PODS,
            namespace: key.namespace.clone(),
            name: pod.metadata.name.clone(),
            subresource: "",
            kind: Patch::Merge,
            patch: api::json!({"metadata": {"labels": {LABEL_CONTROLLER_REVISION_HASH: (hash.clone())}}}),
        });
        let delete = doubles.iter().map(|revision| deletion(revision));
        self.executor.perform(key, relabel.chain(delete).collect()).await
    }

    async fn clean_up(&self, key: &Key, history: &History, set: &DaemonSet, pods: &[Arc<Pod>]) -> Result<(), Failure> {
        let surplus = history.surplus(set, pods);
        self.executor.perform(key, surplus.into_iter().map(deletion).collect()).await
    }
}

fn deletion(revision: &Revision) -> Action {
    let metadata = revision.metadata();
    Action::Delete {
        resource: REVISIONS,
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        how: Deletion::default(),
    }
}

fn candidates(pods: &Informer<Pod>, set: &Document<DaemonSet>) -> Vec<Arc<Pod>> {
    let mut candidates = pods.store().by_index(INDEX, &set.metadata().uid);
    candidates.extend(pods.store().by_index(INDEX, &orphans_of(&set.metadata().namespace)));
    candidates
}

fn candidates_of_revisions(
    revisions: &Informer<Document<ControllerRevision>>,
    set: &Document<DaemonSet>,
) -> Vec<Revision> {
    let mut candidates = revisions.store().by_index(INDEX, &set.metadata().uid);
    candidates.extend(revisions.store().by_index(INDEX, &orphans_of(&set.metadata().namespace)));
    candidates
}
