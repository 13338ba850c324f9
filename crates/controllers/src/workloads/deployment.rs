//! Deployments: pods that are replaced step by step when their template changes.
//!
//! It watches Deployments, ReplicaSets and (for `Recreate`) pods. A Deployment creates one ReplicaSet per
//! template and moves replicas from the old ones to the new one. In reading order: `rule` decides one round,
//! `sets` are the ReplicaSets in the form of the rule, `revision` finds or creates the newest, `scale` changes
//! sizes, `rollout` replaces old by new, `progress` reports, `rollback` restores an old template. Follows
//! Kubernetes' `pkg/controller/deployment`.

mod progress;
mod revision;
mod rollback;
mod rollout;
mod rule;
mod scale;
mod sets;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use api::apps::v1::{Deployment, ReplicaSet};
use api::core::v1::Pod;
use client::Document;
use client::controller::{Controller as Runner, Next, own};
use client::informer::{Informer, Key};
use client::resources::ServedView as _;

use self::revision::Outcome;
use self::rule::{ObservedState, Round, Step};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::ownership::{self, Controller, INDEX, orphans_of};
use crate::manager::Context;

/// Number of concurrent workers.
const WORKERS: usize = 5;

struct Deployments {
    deployments: Informer<Document<Deployment>>,
    sets: Informer<Document<ReplicaSet>>,
    pods: Informer<Pod>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let deployments = context.informers.all::<Document<Deployment>>();
    let sets = context.informers.all::<Document<ReplicaSet>>();
    let pods = context.informers.all::<Pod>();
    let executor = context.executor();
    executor.expectations().follow(&deployments, &Deployment::RESOURCE.plural);
    executor.expectations().follow(&sets, &ReplicaSet::RESOURCE.plural);
    sets.store().add_index(INDEX, |set| ownership::index_of(set.metadata()));
    pods.store().add_index(INDEX, |pod| ownership::index_of(&pod.metadata));
    let (known, known_sets) = (deployments.clone(), sets.clone());
    let runner = Runner::new(context.name, &context.runtime)
        .watch(&deployments, own)
        .watch(&sets, move |set| keys_of(&known, set))
        .watch_changes(&pods, move |change| match change {
            // The last old pod of a `Recreate` has ended: the new ones may be created.
            client::informer::Change::Deleted(pod) => deployment_of(&known_sets, pod),
            _ => None,
        })
        .workers(WORKERS);
    let controller = Arc::new(Deployments { deployments, sets, pods, executor });
    let reconcile = move |key| {
        let controller = controller.clone();
        async move { controller.reconcile(key).await }
    };
    runner.run(reconcile).await;
}

/// The deployments that a set means: its controller, or those that may adopt it.
fn keys_of(deployments: &Informer<Document<Deployment>>, set: &Document<ReplicaSet>) -> Vec<Key> {
    let metadata = set.metadata();
    if let Some(controller) = metadata.controller() {
        let is_ours = ownership::refers_to(controller, &Deployment::RESOURCE);
        return is_ours.then(|| Key::new(metadata.namespace.clone(), controller.name.clone())).into_iter().collect();
    }
    if metadata.labels.is_empty() {
        return Vec::new();
    }
    let may_adopt = |deployment: &Document<Deployment>| {
        let selector = deployment.spec.selector.clone().unwrap_or_default().to_selector();
        deployment.metadata().namespace == metadata.namespace
            && selector.is_ok_and(|selector| !selector.is_empty() && selector.matches(&metadata.labels))
    };
    let all = deployments.store().list();
    all.iter().filter(|deployment| may_adopt(deployment)).filter_map(|deployment| own(&**deployment)).collect()
}

/// The deployment whose set controls a pod.
fn deployment_of(sets: &Informer<Document<ReplicaSet>>, pod: &Pod) -> Option<Key> {
    let controller = pod.metadata.controller().filter(|it| ownership::refers_to(it, &ReplicaSet::RESOURCE))?;
    let set = sets.store().get(&pod.metadata.namespace, &controller.name)?;
    let owner = set.metadata().controller().filter(|it| ownership::refers_to(it, &Deployment::RESOURCE))?;
    Some(Key::new(pod.metadata.namespace.clone(), owner.name.clone()))
}

impl Deployments {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(deployment) = self.deployments.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let metadata = deployment.metadata();
        if deployment.status.observed_generation != metadata.generation
            && let Some(after) =
                self.executor.postponed(&key, &ReplicaSet::RESOURCE, deployment.value(), metadata.generation)
        {
            return Ok(Next::After(after));
        }
        let controller = Controller { resource: &Deployment::RESOURCE, metadata };
        let selector = deployment.spec.selector.clone().unwrap_or_default();
        let sets = match selector.to_selector() {
            Ok(selector) if !selector.is_empty() => {
                let mut candidates = self.sets.store().by_index(INDEX, &metadata.uid);
                candidates.extend(self.sets.store().by_index(INDEX, &orphans_of(&metadata.namespace)));
                let claims = controller.claim(&selector, candidates, |set| set.metadata());
                let resource = ReplicaSet::RESOURCE;
                self.executor.carry_out(&key, controller, claims, &resource, |set| set.metadata(), &[]).await?
            }
            _ => Vec::new(),
        };
        if !self.executor.settled(&key) {
            // Objects were adopted or released: the informers will show it soon.
            return Ok(Next::After(UNSETTLED));
        }
        let pods_of = |set: &Arc<Document<ReplicaSet>>| {
            let uid = set.metadata().uid.clone();
            let pods = self.pods.store().by_index(INDEX, &uid);
            (uid, pods)
        };
        let pods: HashMap<_, _> = sets.iter().map(pods_of).collect();
        let seen = ObservedState { deployment: deployment.clone(), sets, pods, now: self.executor.now() };
        let mut round = Round::new(&seen);
        let decision = match round.decide() {
            Step::Do(decision) => decision,
            Step::Create(new) => {
                // A Deployment that had sets and has none may be deleted itself.
                let had_sets = metadata.annotations.contains_key(sets::REVISION);
                if had_sets && seen.sets.is_empty() && !self.executor.lives(Deployment::RESOURCE, metadata).await? {
                    return Ok(Next::Done);
                }
                let owner = Owner { about: controller.about(), generation: metadata.generation };
                let resource = ReplicaSet::RESOURCE;
                let created = self.executor.create_all(&key, &owner, &resource, vec![new.object.clone()]).await;
                let outcome = match created.failure {
                    None => Outcome::Created,
                    Some(failure) if failure.is_already_exists() => self.existing(&seen, &new).await?,
                    Some(failure) if failure.is_ending_namespace() => return Ok(Next::Done),
                    Some(Failure::Held { after, .. } | Failure::Early { after }) => return Ok(Next::After(after)),
                    Some(failure) => {
                        let mut actions = round.after_creation(&new, Outcome::Failed(failure.to_string())).actions;
                        // The same failure is not reported repeatedly.
                        actions.retain(|action| created.is_news || !matches!(action, Action::Event(_)));
                        self.executor.perform(&key, actions).await?;
                        return failure.held().map(Next::After).ok_or(failure);
                    }
                };
                round.after_creation(&new, outcome)
            }
        };
        self.executor.perform(&key, decision.actions).await?;
        Ok(decision.again.map_or(Next::Done, Next::After))
    }

    /// Classifies an existing set of the wanted name.
    async fn existing(&self, seen: &ObservedState, new: &revision::NewSet) -> Result<Outcome, Failure> {
        let sets = self.executor.client().objects::<Document<ReplicaSet>>();
        let set = sets.get(&seen.deployment.metadata().namespace, &new.name).await?;
        Ok(if revision::is_same(&seen.deployment, &set) { Outcome::Existed } else { Outcome::Collided })
    }
}
