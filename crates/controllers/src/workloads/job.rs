//! Jobs: pods that run to an end.
//!
//! It watches Jobs and pods. Every pod has a finalizer until its end is counted: its UID is recorded in the
//! status, then the finalizer is removed, then the number is incremented, so that no crash loses or repeats
//! one. In reading order: `rule` decides the state of a Job and the pods it needs, `indexes` and `policy`
//! evaluate indexes and policies, `backoff` delays replacements, `template` builds the pods, `tracking` counts
//! ends. Follows Kubernetes' `pkg/controller/job`.

mod backoff;
mod indexes;
mod policy;
mod rule;
mod template;
#[cfg(test)]
mod tests;
mod tracking;

use locks::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::batch::v1::Job;
use api::core::v1::Pod;
use api::json;
use client::Document;
use client::controller::{Controller as Runner, Next};
use client::informer::{Change, Informer, Key};
use client::objects::Patch;
use client::resources::ServedView as _;
use futures::future::join_all;

use self::backoff::Backoff;
use self::rule::{ObservedState, Outcome, Work};
use crate::machinery::action::{Action, Event};
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::ownership::{self, Controller, INDEX, orphans_of};
use crate::machinery::pods::PODS;
use crate::manager::Context;

/// Number of concurrent workers.
const WORKERS: usize = 5;
/// Changes of pods are gathered for this long, so that the status is written once for several of them.
const BATCH: Duration = Duration::from_secs(1);
/// Finalizer that keeps a pod until it is counted.
const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// An item to reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Item {
    Job(Key),
    /// A pod with the finalizer whose Job was deleted or has ended.
    Orphan(Key),
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Job(key) => write!(f, "{key}"),
            Item::Orphan(key) => write!(f, "pod {key}"),
        }
    }
}

struct Jobs {
    jobs: Informer<Document<Job>>,
    pods: Informer<Pod>,
    executor: Executor,
    backoffs: Mutex<HashMap<Key, Backoff>>,
}

/// Whether a pod has the finalizer.
fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
}

/// Whether a Job has finished.
#[must_use]
pub fn is_finished(job: &Job) -> bool {
    finished_at(job).is_some()
}

/// Whether another controller manages a Job and its pods.
fn is_foreign(job: &Job) -> bool {
    job.spec.managed_by.as_deref().is_some_and(|by| by != "kubernetes.io/job-controller")
}

/// Returns the condition with which a Job ended.
pub(crate) fn finished_at(job: &Job) -> Option<&api::batch::v1::JobCondition> {
    let is_end = |it: &&api::batch::v1::JobCondition| {
        matches!(it.condition_type.as_str(), "Complete" | "Failed") && it.status == "True"
    };
    job.status.conditions.iter().find(is_end)
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let jobs = context.informers.all::<Document<Job>>();
    let pods = context.informers.all::<Pod>();
    let executor = context.executor();
    executor.expectations().follow(&jobs, &Job::RESOURCE.plural);
    executor.expectations().follow(&pods, &Pod::RESOURCE.plural);
    pods.store().add_index(INDEX, |pod| ownership::index_of(&pod.metadata));
    let runner = Runner::<Item>::new(context.name, &context.runtime);
    let queue = Arc::downgrade(runner.queue());
    let later = move |item: Item| {
        if let Some(queue) = queue.upgrade() {
            queue.add_after(item, BATCH);
        }
    };
    let later_too = later.clone();
    let known = jobs.clone();
    let runner = runner
        .watch_changes(&jobs, move |change| {
            let metadata = change.newest().metadata();
            let item = Item::Job(Key::new(metadata.namespace.clone(), metadata.name.clone()));
            match change {
                Change::Updated { old, new } if old.metadata().generation == new.metadata().generation => {
                    later(item);
                    None
                }
                _ => Some(item),
            }
        })
        .watch_changes(&pods, move |change| {
            let before = if let Change::Updated { old, .. } = change { items_of(&known, old) } else { Vec::new() };
            let now = items_of(&known, change.newest());
            before.into_iter().chain(now).for_each(&later_too);
            None
        })
        .workers(WORKERS);
    let runner = context.watch_accounts(runner, &executor, Item::Job);
    let controller = Arc::new(Jobs { jobs, pods, executor, backoffs: Mutex::default() });
    let reconcile = move |item| {
        let controller = controller.clone();
        async move {
            match item {
                Item::Job(key) => controller.reconcile(key).await,
                Item::Orphan(key) => controller.free(key).await,
            }
        }
    };
    runner.run(reconcile).await;
}

/// Returns the items to reconcile after a change of a pod.
fn items_of(jobs: &Informer<Document<Job>>, pod: &Pod) -> Vec<Item> {
    let metadata = &pod.metadata;
    let orphan = || Item::Orphan(Key::new(metadata.namespace.clone(), metadata.name.clone()));
    if let Some(controller) = metadata.controller() {
        if !ownership::refers_to(controller, &Job::RESOURCE) {
            return Vec::new();
        }
        let key = Key::new(metadata.namespace.clone(), controller.name.clone());
        let lives =
            jobs.store().get_key(&key).is_some_and(|job| job.metadata().uid == controller.uid && !is_finished(&job));
        return if lives || !is_tracked(pod) { vec![Item::Job(key)] } else { vec![orphan()] };
    }
    let mut items = Vec::new();
    if is_tracked(pod) {
        items.push(orphan());
    }
    if !metadata.labels.is_empty() {
        let may_adopt = |job: &Document<Job>| {
            let selector = job.spec.selector.clone().map(|selector| selector.to_selector());
            job.metadata().namespace == metadata.namespace
                && matches!(selector, Some(Ok(selector)) if !selector.is_empty() && selector.matches(&metadata.labels))
        };
        let all = jobs.store().list();
        let adopters = all.iter().filter(|job| may_adopt(job));
        items.extend(
            adopters.map(|job| Item::Job(Key::new(job.metadata().namespace.clone(), job.metadata().name.clone()))),
        );
    }
    items
}

impl Jobs {
    fn backoffs(&self) -> locks::MutexGuard<'_, HashMap<Key, Backoff>> {
        self.backoffs.lock()
    }

    fn forget(&self, key: &Key) {
        self.executor.forget(key);
        self.backoffs().remove(key);
    }

    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(job) = self.jobs.store().get_key(&key) else {
            self.forget(&key);
            return Ok(Next::Done);
        };
        if is_foreign(&job) {
            return Ok(Next::Done);
        }
        if is_finished(&job) {
            self.forget(&key);
            return Ok(Next::Done);
        }
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        if job.status.start_time.is_none()
            && let Some(template) = job.value().at(&["spec", "template"])
            && let Some(after) = self.executor.postponed(&key, &PODS, template, job.metadata().generation)
        {
            return Ok(Next::After(after));
        }
        let controller = Controller { resource: &Job::RESOURCE, metadata: job.metadata() };
        let pods = self.pods_of(&key, &job, controller).await?;
        if !self.executor.settled(&key) {
            // Objects were adopted or released: the informers will show it soon.
            return Ok(Next::After(UNSETTLED));
        }
        let backoff = self.backoffs().get(&key).cloned().unwrap_or_default();
        let seen = ObservedState { job: job.clone(), pods, backoff, now: self.executor.now() };
        let mut state = rule::assess(&seen);
        let (outcome, failure) = self.work(&key, &job, controller, state.work()).await;
        let tracking = state.conclude(&outcome);
        let backoff = state.backoff();
        self.track(&key, tracking, backoff).await?;
        let again = state.again();
        match failure {
            Some(failure) => failure.held().map(Next::After).ok_or(failure),
            None => Ok(again.map_or(Next::Done, Next::After)),
        }
    }

    async fn pods_of(
        &self,
        key: &Key,
        job: &Document<Job>,
        controller: Controller<'_>,
    ) -> Result<Vec<Arc<Pod>>, Failure> {
        let metadata = job.metadata();
        let mut candidates = self.pods.store().by_index(INDEX, &metadata.uid);
        let Some(Ok(selector)) = job.spec.selector.clone().map(|selector| selector.to_selector()) else {
            return Ok(candidates);
        };
        if !selector.is_empty() {
            candidates.extend(self.pods.store().by_index(INDEX, &orphans_of(&metadata.namespace)));
        }
        let claims = controller.claim(&selector, candidates, |pod| &pod.metadata);
        self.executor.carry_out(key, controller, claims, &PODS, |pod| &pod.metadata, &[FINALIZER]).await
    }

    /// Makes or takes away pods.
    async fn work(
        &self,
        key: &Key,
        job: &Document<Job>,
        controller: Controller<'_>,
        work: Work,
    ) -> (Outcome, Option<Failure>) {
        match work {
            Work::None => (Outcome::default(), None),
            Work::Create(pods) => {
                let owner = Owner { about: controller.about(), generation: job.metadata().generation };
                let created = self.executor.create_pods(key, &owner, pods).await;
                let outcome = Outcome { created: created.objects.len(), removed: Vec::new() };
                (outcome, created.failure.filter(|failure| !failure.is_ending_namespace()))
            }
            Work::End(pods) => {
                let about = controller.about();
                let result = self.executor.delete_pods(key, &about, &pods).await;
                let removed = if result.is_ok() { pods } else { Vec::new() };
                (Outcome { created: 0, removed }, result.err())
            }
            Work::GiveUp(pods) => {
                let freed = join_all(pods.iter().map(|pod| self.remove_finalizer(key, pod))).await;
                if let Some(failure) = freed.into_iter().find_map(Result::err) {
                    return (Outcome::default(), Some(failure));
                }
                let about = controller.about();
                let result = self.executor.delete_pods(key, &about, &pods).await;
                let removed = if result.is_ok() { pods } else { Vec::new() };
                (Outcome { created: 0, removed }, result.err())
            }
        }
    }

    /// Removes the finalizer from a pod; a deleted pod has none.
    async fn remove_finalizer(&self, key: &Key, pod: &Pod) -> Result<(), Failure> {
        if !is_tracked(pod) {
            return Ok(());
        }
        let patch = Action::Patch {
            resource: PODS,
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            subresource: "",
            kind: Patch::StrategicMerge,
            patch: json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}),
        };
        match self.executor.perform(key, vec![patch]).await {
            Err(failure) if failure.code() == 404 => Ok(()),
            result => result,
        }
    }

    /// Writes the counts: first the UIDs, then without the finalizers, then the numbers.
    async fn track(&self, key: &Key, mut tracking: tracking::Tracking, backoff: Backoff) -> Result<(), Failure> {
        self.executor.perform(key, tracking.events()).await?;
        let mut version = None;
        if let Some(object) = tracking.first_status() {
            let written = self.executor.write_status(key, Job::RESOURCE, object).await?;
            version = written.str_at(&["metadata", "resourceVersion"]).map(ToOwned::to_owned);
            self.backoffs().insert(key.clone(), backoff);
        }
        let freed = join_all(tracking.pods().iter().map(|pod| self.remove_finalizer(key, pod))).await;
        let mut failure = None;
        for (pod, result) in tracking.pods().to_vec().iter().zip(freed) {
            match result {
                Ok(()) => tracking.freed(pod),
                Err(failed) => failure = Some(failed),
            }
        }
        let last = tracking.last_status(failure.is_none());
        if let Some(mut object) = last {
            if let Some(version) = version {
                object.set_at(&["metadata", "resourceVersion"], version);
            }
            self.executor.perform(key, vec![Action::UpdateStatus { resource: Job::RESOURCE, object }]).await?;
            let events: Vec<Event> = tracking.end();
            self.executor.perform(key, events.into_iter().map(Action::Event).collect()).await?;
        }
        failure.map_or(Ok(()), Err)
    }

    /// Takes the finalizer off a pod that no Job will count.
    async fn free(&self, key: Key) -> Result<Next, Failure> {
        let Some(pod) = self.pods.store().get_key(&key).filter(|pod| is_tracked(pod)) else { return Ok(Next::Done) };
        if let Some(owner) = pod.metadata.controller().filter(|owner| ownership::refers_to(owner, &Job::RESOURCE)) {
            let job = self.jobs.store().get(&pod.metadata.namespace, &owner.name);
            // An informer may be outdated: only the server decides that a Job was deleted.
            if let Some(job) = job {
                if job.metadata().uid == owner.uid && (!is_finished(&job) || is_foreign(&job)) {
                    return Ok(Next::Done);
                }
            } else {
                let jobs = self.executor.client().objects::<Job>();
                match jobs.get(&pod.metadata.namespace, &owner.name).await {
                    Ok(job) if job.metadata.uid == owner.uid && (!is_finished(&job) || is_foreign(&job)) => {
                        return Ok(Next::Done);
                    }
                    Err(error) if !error.is_not_found() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        self.remove_finalizer(&key, &pod).await?;
        self.executor.forget(&key);
        Ok(Next::Done)
    }
}
