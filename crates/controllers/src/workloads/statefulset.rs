//! StatefulSets: pods with stable names, ordinals and storage.
//!
//! It watches StatefulSets, pods, claims and revisions. Pods are created in order, each when the previous one
//! is ready (or all at once), and replaced from the last to the first. In reading order: `identity` builds the
//! pod of an ordinal, `claims` its storage and ownership, `rule` decides one round, `status` reports. Follows
//! Kubernetes' `pkg/controller/statefulset`; templates are kept as in [`history`].

mod claims;
mod identity;
mod rule;
mod status;

use std::collections::HashMap;
use std::sync::Arc;

use api::apps::v1::{ControllerRevision, StatefulSet};
use api::core::v1::{PersistentVolumeClaim, Pod};
use api::json::{Text, Value};
use api::labels::Selector;
use api::meta::v1::ObjectMeta;
use api::metadata;
use client::Document;
use client::controller::{Controller as Runner, Next, own};
use client::events::Severity;
use client::informer::{Informer, Key};
use client::objects::Deletion;
use client::resources::ServedView as _;

use self::rule::{ObservedState, Plan, Step};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::history::{self, Revision};
use crate::machinery::ownership::{self, Controller, INDEX, orphans_of};
use crate::machinery::pods::{self, PODS};
use crate::manager::Context;

/// Number of concurrent workers.
const WORKERS: usize = 5;
/// The label of a revision that holds its hash.
const HASH_LABEL: &str = "controller.kubernetes.io/hash";

struct StatefulSets {
    sets: Informer<Document<StatefulSet>>,
    pods: Informer<Pod>,
    claims: Informer<Document<PersistentVolumeClaim>>,
    revisions: Informer<Document<ControllerRevision>>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let sets = context.informers.all::<Document<StatefulSet>>();
    let pods = context.informers.all::<Pod>();
    let claims = context.informers.all::<Document<PersistentVolumeClaim>>();
    let revisions = context.informers.all::<Document<ControllerRevision>>();
    let executor = context.executor();
    executor.expectations().follow(&sets, &StatefulSet::RESOURCE.plural);
    executor.expectations().follow(&pods, &Pod::RESOURCE.plural);
    executor.expectations().follow(&claims, &PersistentVolumeClaim::RESOURCE.plural);
    executor.expectations().follow(&revisions, &ControllerRevision::RESOURCE.plural);
    pods.store().add_index(INDEX, |pod| ownership::index_of(&pod.metadata));
    revisions.store().add_index(INDEX, |revision| ownership::index_of(revision.metadata()));
    let known = sets.clone();
    let runner = Runner::new(context.name, &context.runtime)
        .watch(&sets, own)
        .watch(&pods, move |pod| keys_of(&known, pod))
        .watch(&revisions, client::controller::controlled_by("StatefulSet"))
        // Changes of claims trigger no reconciliation, but claims must be cached.
        .watch(&claims, |_| None)
        .workers(WORKERS);
    let runner = context.watch_accounts(runner, &executor, |key| key);
    let controller = Arc::new(StatefulSets { sets, pods, claims, revisions, executor });
    let reconcile = move |key| {
        let controller = controller.clone();
        async move { controller.reconcile(key).await }
    };
    runner.run(reconcile).await;
}

/// The sets that a pod means: its controller, or those that may adopt it.
fn keys_of(sets: &Informer<Document<StatefulSet>>, pod: &Pod) -> Vec<Key> {
    let namespace = &pod.metadata.namespace;
    if let Some(controller) = pod.metadata.controller() {
        let is_set = ownership::refers_to(controller, &StatefulSet::RESOURCE);
        return is_set.then(|| Key::new(namespace.clone(), controller.name.clone())).into_iter().collect();
    }
    let Some((parent, _)) = identity::parent_and_ordinal(&pod.metadata.name) else { return Vec::new() };
    sets.store().get(namespace, parent).iter().filter_map(|set| own(&**set)).collect()
}

impl StatefulSets {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(set) = self.sets.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let metadata = set.metadata();
        if set.status.observed_generation != metadata.generation
            && let Some(template) = set.value().at(&["spec", "template"])
            && let Some(after) = self.executor.postponed(&key, &PODS, template, metadata.generation)
        {
            return Ok(Next::After(after));
        }
        let controller = Controller { resource: &StatefulSet::RESOURCE, metadata };
        let Ok(selector) = set.spec.selector.clone().unwrap_or_default().to_selector() else {
            // The server does not accept such a set: it will not get better by trying.
            return Ok(Next::Done);
        };
        if metadata.is_deleting() && self.has_orphaned_revisions(metadata, &selector) {
            // Its revisions were released, and it adopts nothing any more: another one would be created without
            // use.
            return Ok(Next::Done);
        }
        let mut revisions = self.revisions_of(&key, controller, &selector).await?;
        let pods = self.pods_of(&key, controller, &selector).await?;
        history::sort(&mut revisions);
        let Some(update) = self.newest_revision(&key, &set, controller, &revisions).await? else {
            // It was renumbered: the informers will show it soon.
            return Ok(Next::After(UNSETTLED));
        };
        let named = |revision: &&Revision| revision.metadata().name == set.status.current_revision;
        let current = revisions.iter().find(named).cloned().unwrap_or_else(|| update.clone());
        let claims = self.claims_of(&set);
        let seen = ObservedState {
            set: set.clone(),
            current: current.clone(),
            update: update.clone(),
            pods,
            claims,
            now: self.executor.now(),
        };
        let Plan { steps, status, again } = rule::plan(&seen);
        let mut failure = None;
        for step in steps {
            if let Err(failed) = self.carry_out_step(&key, &set, controller, step).await {
                failure = Some(failed);
                break;
            }
        }
        if let Some(object) = status::updated(&set, status) {
            self.executor.perform(&key, vec![Action::UpdateStatus { resource: StatefulSet::RESOURCE, object }]).await?;
        }
        if let Some(failure) = failure {
            return failure.held().map(Next::After).ok_or(failure);
        }
        self.executor.perform(&key, surplus(&set, &seen.pods, &revisions, &current, &update)).await?;
        let available = pods::next_available(&seen.pods, set.spec.min_ready_seconds, seen.now);
        Ok(again.into_iter().chain(available).min().map_or(Next::Done, Next::After))
    }

    async fn pods_of(
        &self,
        key: &Key,
        controller: Controller<'_>,
        selector: &Selector,
    ) -> Result<Vec<Arc<Pod>>, Failure> {
        let metadata = controller.metadata;
        let mut candidates = self.pods.store().by_index(INDEX, &metadata.uid);
        candidates.extend(self.pods.store().by_index(INDEX, &orphans_of(&metadata.namespace)));
        candidates.retain(|pod| {
            identity::parent_and_ordinal(&pod.metadata.name).is_some_and(|(parent, _)| parent == metadata.name)
        });
        let claims = controller.claim(selector, candidates, |pod| &pod.metadata);
        self.executor.carry_out(key, controller, claims, &PODS, |pod| &pod.metadata, &[]).await
    }

    fn has_orphaned_revisions(&self, metadata: &ObjectMeta, selector: &Selector) -> bool {
        let orphans = self.revisions.store().by_index(INDEX, &orphans_of(&metadata.namespace));
        orphans.iter().any(|revision| selector.matches(&revision.metadata().labels))
    }

    async fn revisions_of(
        &self,
        key: &Key,
        controller: Controller<'_>,
        selector: &Selector,
    ) -> Result<Vec<Revision>, Failure> {
        let metadata = controller.metadata;
        let mut candidates = self.revisions.store().by_index(INDEX, &metadata.uid);
        candidates.extend(self.revisions.store().by_index(INDEX, &orphans_of(&metadata.namespace)));
        let mut claims = controller.claim(selector, candidates, |revision| revision.metadata());
        // Revisions are never released.
        claims.released.clear();
        let resource = ControllerRevision::RESOURCE;
        self.executor.carry_out(key, controller, claims, &resource, |revision| revision.metadata(), &[]).await
    }

    /// The claims of the set that exist, by name.
    fn claims_of(&self, set: &Document<StatefulSet>) -> HashMap<Text, Arc<Document<PersistentVolumeClaim>>> {
        let namespace = &set.metadata().namespace;
        if set.spec.volume_claim_templates.is_empty() {
            return HashMap::new();
        }
        let all = self.claims.store().list();
        let of_namespace = all.into_iter().filter(|claim| claim.metadata().namespace == *namespace);
        of_namespace.map(|claim| (claim.metadata().name.clone(), claim)).collect()
    }

    /// The revision of the set's template, made if need be; nothing if it had to be renumbered first.
    async fn newest_revision(
        &self,
        key: &Key,
        set: &Document<StatefulSet>,
        controller: Controller<'_>,
        revisions: &[Revision],
    ) -> Result<Option<Revision>, Failure> {
        let data = history::data_of(set.value());
        let number = history::next_number(revisions);
        let resource = ControllerRevision::RESOURCE;
        match history::find_equal(revisions, &data) {
            Some(equal) if revisions.last().is_some_and(|last| last.data == equal.data) => {
                Ok(revisions.last().cloned())
            }
            Some(equal) => {
                let mut object = equal.to_value();
                object.set_at(&["revision"], number);
                self.executor.perform(key, vec![Action::Update { resource, object }]).await?;
                Ok(None)
            }
            None => {
                let mut collisions = set.status.collision_count.unwrap_or(0);
                let owner = Owner { about: controller.about(), generation: set.metadata().generation };
                loop {
                    let object = history::new_revision(controller, set.value(), number, collisions, HASH_LABEL);
                    let created = self.executor.create_all(key, &owner, &resource, vec![object]).await;
                    match created.failure {
                        None => {
                            let made = created.objects.into_iter().next().map(Document::new);
                            return Ok(made.transpose().map_err(client::Error::from)?.map(Arc::new));
                        }
                        // Another template has the same hash.
                        Some(failure) if failure.is_already_exists() && collisions < 20 => {
                            collisions = collisions.saturating_add(1);
                        }
                        Some(failure) => return Err(failure),
                    }
                }
            }
        }
    }

    async fn carry_out_step(
        &self,
        key: &Key,
        set: &Document<StatefulSet>,
        controller: Controller<'_>,
        step: Step,
    ) -> Result<(), Failure> {
        let about = controller.about();
        let owner = Owner { about: about.clone(), generation: set.metadata().generation };
        let set_name = &set.metadata().name;
        let report = |verb: &str, what: &str, outcome: Result<(), (&Failure, bool)>| {
            let (severity, reason, message) = match outcome {
                Ok(()) => (Severity::Normal, "Successful", format!("{verb} {what} in StatefulSet {set_name} ")),
                // The same failure is not reported repeatedly.
                Err((_, false)) => return,
                Err((failure, true)) => {
                    let message = format!("{verb} {what} in StatefulSet {set_name} failed error: {failure}");
                    (Severity::Warning, "Failed", message)
                }
            };
            let success = if what.starts_with("Pod") { "successful" } else { "success" };
            let message = if outcome.is_ok() { format!("{message}{success}") } else { message };
            self.executor.recorder().event(about.clone(), severity, &format!("{reason}{verb}"), &message);
        };
        match step {
            Step::CreateClaim { claim, pod } => {
                let what = format!("Claim {} Pod {pod}", metadata::name(&claim));
                let resource = PersistentVolumeClaim::RESOURCE;
                let created = self.executor.create_all(key, &owner, &resource, vec![claim]).await;
                match created.failure {
                    None => report("Create", &what, Ok(())),
                    Some(failure) if failure.is_already_exists() => {}
                    Some(failure) => {
                        let what = what.replace(" Pod ", " for Pod ");
                        report("Create", &what, Err((&failure, created.is_news)));
                        return Err(failure);
                    }
                }
            }
            Step::UpdateClaim { claim } => {
                let resource = PersistentVolumeClaim::RESOURCE;
                self.executor.perform(key, vec![Action::Update { resource, object: claim }]).await?;
            }
            Step::CreatePod { pod } => {
                let what = format!("Pod {}", metadata::name(&pod));
                let created = self.executor.create_all(key, &owner, &PODS, vec![pod]).await;
                match created.failure {
                    None => report("Create", &what, Ok(())),
                    Some(failure) => {
                        let is_reported =
                            created.is_news && !failure.is_already_exists() && !failure.is_ending_namespace();
                        report("Create", &what, Err((&failure, is_reported)));
                        return Err(failure);
                    }
                }
            }
            Step::UpdatePod { pod, labels } => {
                let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
                if let Some(labels) = labels {
                    let mut object = self.executor.client().documents(PODS).get(namespace, name).await?;
                    object.set_at(&["metadata", "labels"], labels);
                    self.executor.perform(key, vec![Action::Update { resource: PODS, object }]).await?;
                }
                report("Update", &format!("Pod {name}"), Ok(()));
            }
            Step::Wait { claim, pod, is_reported } => {
                let failure = Failure::Waiting(format!("pvc {claim} is being deleted"));
                report("Create", &format!("Pod {pod}"), Err((&failure, is_reported)));
                return Err(failure);
            }
            Step::DeletePod { pod } => {
                let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
                let what = format!("Pod {name}");
                let how = Deletion::default();
                match self.executor.delete(key, &PODS, namespace, name, &pod.metadata.uid, &how).await {
                    Ok(_) => report("Delete", &what, Ok(())),
                    Err(failure) => {
                        report("Delete", &what, Err((&failure, true)));
                        return Err(failure);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Deletes the oldest revisions that nothing uses, beyond the limit of the history.
fn surplus(
    set: &Document<StatefulSet>,
    pods: &[Arc<Pod>],
    revisions: &[Revision],
    current: &Revision,
    update: &Revision,
) -> Vec<Action> {
    let limit = set.spec.revision_history_limit.unwrap_or(10);
    let is_live = |name: &str| {
        current.metadata().name == name
            || update.metadata().name == name
            || pods.iter().any(|pod| identity::revision_of(pod) == name)
    };
    let unused: Vec<&Revision> = revisions.iter().filter(|it| !is_live(&it.metadata().name)).collect();
    let Ok(limit) = usize::try_from(limit) else { return Vec::new() };
    let surplus = unused.len().saturating_sub(limit);
    let delete = |revision: &&Revision| Action::Delete {
        resource: ControllerRevision::RESOURCE,
        namespace: revision.metadata().namespace.clone(),
        name: revision.metadata().name.clone(),
        uid: revision.metadata().uid.clone(),
        how: Deletion::default(),
    };
    unused.iter().take(surplus).map(delete).collect()
}

/// A document of the set with another template.
fn with_template(set: &Document<StatefulSet>, revision: &Revision) -> Value {
    history::template_of(revision.value())
        .or_else(|| set.value().at(&["spec", "template"]).cloned())
        .unwrap_or_default()
}
