//! One ReplicaSet (or ReplicationController) brought to its wanted state.

use std::sync::Arc;

use api::core::v1::Pod;
use api::json::Text;
use client::Document;
use client::controller::{Controller as Runner, Next, own};
use client::informer::{Informer, Key};
use client::resources::ServedView as _;
use telemetry::logs::chain;
use tracing::warn;

use super::ReplicatedKind;
use super::rule::{Change, decide};
use super::status::{ObservedPods, updated};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::ownership::{self, Controller, INDEX, orphans_of};
use crate::machinery::pods;
use crate::manager::Context;

/// Number of concurrent workers.
const WORKERS: usize = 5;

/// The controller of one kind.
struct Replicas<T: ReplicatedKind> {
    sets: Informer<Document<T>>,
    pods: Informer<Pod>,
    executor: Executor,
}

/// Runs the controller of a kind until shutdown.
pub(crate) async fn run<T: ReplicatedKind>(context: Context) {
    let (sets, pods) = (context.informers.all::<Document<T>>(), context.informers.all::<Pod>());
    let executor = context.executor();
    executor.expectations().follow(&sets, &T::RESOURCE.plural);
    executor.expectations().follow(&pods, &Pod::RESOURCE.plural);
    sets.store().add_index(INDEX, |set| ownership::index_of(set.metadata()));
    pods.store().add_index(INDEX, |pod| ownership::index_of(&pod.metadata));
    let known = sets.clone();
    let runner = Runner::new(context.name, &context.runtime)
        .watch(&sets, own)
        .watch(&pods, move |pod| keys_of(&known, pod))
        .workers(WORKERS);
    let runner = context.watch_accounts(runner, &executor, |key| key);
    let replicas = Arc::new(Replicas { sets, pods, executor });
    runner
        .run(move |key| {
            let replicas = replicas.clone();
            async move { replicas.reconcile(key).await }
        })
        .await;
}

/// The sets that a pod means: its controller, or those that may adopt it.
fn keys_of<T: ReplicatedKind>(sets: &Informer<Document<T>>, pod: &Pod) -> Vec<Key> {
    let namespace = &pod.metadata.namespace;
    if let Some(controller) = pod.metadata.controller() {
        let is_set = ownership::refers_to(controller, &T::RESOURCE);
        return if is_set { vec![Key::new(namespace.clone(), controller.name.clone())] } else { Vec::new() };
    }
    if pod.metadata.labels.is_empty() {
        return Vec::new();
    }
    let may_adopt = |set: &Document<T>| {
        let selector = set.selector();
        set.metadata().namespace == *namespace
            && selector.is_ok_and(|selector| !selector.is_empty() && selector.matches(&pod.metadata.labels))
    };
    let sets = sets.store().list();
    sets.iter().filter(|set| may_adopt(set)).filter_map(|set| own(&**set)).collect()
}

impl<T: ReplicatedKind> Replicas<T> {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(set) = self.sets.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let selector = match set.selector() {
            Ok(selector) => selector,
            Err(error) => {
                // The server does not accept such a set: it will not get better by trying.
                warn!(object = %key, err = %chain(&error), "Selector is not valid");
                return Ok(Next::Done);
            }
        };
        let metadata = set.metadata();
        if set.counts().observed_generation != metadata.generation
            && let Some(template) = set.value().at(&["spec", "template"])
            && let Some(after) = self.executor.postponed(&key, &pods::PODS, template, metadata.generation)
        {
            return Ok(Next::After(after));
        }
        let controller = Controller { resource: &T::RESOURCE, metadata };
        let orphans = orphans_of(&metadata.namespace);
        let mut candidates = self.pods_of(&metadata.uid);
        candidates.extend(self.pods_of(&orphans));
        let (active, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|pod| pods::is_active(pod));
        let is_ours = |pod: &Pod| controller.controls(&pod.metadata) && selector.matches(&pod.metadata.labels);
        let terminating = others.iter().filter(|pod| pods::is_terminating(pod) && is_ours(pod)).count();
        let claims = controller.claim(&selector, active, |pod| &pod.metadata);
        let active = self.executor.carry_out(&key, controller, claims, &pods::PODS, |pod| &pod.metadata, &[]).await?;
        // Pods of a deleted set are deleted with it, and may disappear first.
        let had_more = usize::try_from(set.counts().replicas).is_ok_and(|known| active.len() < known);
        let wants_more = usize::try_from(set.replicas()).is_ok_and(|wanted| active.len() < wanted);
        let may_be_gone = had_more && wants_more && !metadata.is_deleting();
        if may_be_gone && !self.executor.lives(T::RESOURCE, metadata).await? {
            return Ok(Next::Done);
        }
        let failure = if metadata.is_deleting() { None } else { self.manage(&key, &set, controller, &active).await };
        let seen = ObservedPods { active: &active, terminating, failure: failure.as_ref().and_then(Failure::reported) };
        if let Some(object) = updated(&set, &seen, self.executor.now()) {
            self.executor.perform(&key, vec![Action::UpdateStatus { resource: T::RESOURCE, object }]).await?;
        }
        match failure {
            Some(failure) => failure.held().map(Next::After).ok_or(failure),
            None => Ok(pods::next_available(&active, set.min_ready_seconds(), self.executor.now())
                .map_or(Next::Done, Next::After)),
        }
    }

    fn pods_of(&self, value: &Text) -> Vec<Arc<Pod>> {
        self.pods.store().by_index(INDEX, value)
    }

    /// Creates or deletes pods; returns the reason of a failure.
    async fn manage(
        &self,
        key: &Key,
        set: &Document<T>,
        controller: Controller<'_>,
        active: &[Arc<Pod>],
    ) -> Option<Failure> {
        match decide(set.replicas(), active, &self.related(set), self.executor.now()) {
            Change::None => None,
            Change::Create(count) => {
                let template = set.value().at(&["spec", "template"])?;
                let pod = pods::from_template(template, controller);
                let owner = Owner { about: controller.about(), generation: set.metadata().generation };
                let created = self.executor.create_pods(key, &owner, vec![pod; count]).await;
                // A namespace that ends takes the set with it.
                created.failure.filter(|failure| !failure.is_ending_namespace())
            }
            Change::Delete(surplus) => self.executor.delete_pods(key, &controller.about(), &surplus).await.err(),
        }
    }

    /// The pods of all sets that have the same controller as this one.
    fn related(&self, set: &Document<T>) -> Vec<Arc<Pod>> {
        let Some(controller) = set.metadata().controller() else { return Vec::new() };
        let sets = self.sets.store().by_index(INDEX, &controller.uid);
        sets.iter().flat_map(|set| self.pods_of(&set.metadata().uid)).collect()
    }
}
