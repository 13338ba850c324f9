//! CronJobs: Jobs at given times.
//!
//! It watches CronJobs and Jobs. Each time of the schedule starts one Job whose name contains the minute, so
//! that none is started twice; missed times are made up once. In reading order: `schedule` computes the times,
//! `missed` selects the one that is due, `rule` decides one round. Follows Kubernetes'
//! `pkg/controller/cronjob`; schedules are parsed like its library `robfig/cron` does.

mod missed;
mod rule;
mod schedule;

use std::sync::Arc;

use api::batch::v1::{CronJob, Job};
use api::core::v1::ObjectReference;
use api::json::Value;
use api::metadata;
use client::Document;
use client::controller::{Controller as Runner, Next, controlled_by, own};
use client::events::Severity;
use client::informer::{Change, Informer, Key};
use client::resources::ServedView as _;

use self::rule::{ObservedState, Plan, Start};
use crate::machinery::action::Action;
use crate::machinery::edit;
use crate::machinery::executor::{Executor, Failure, Owner};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::ownership::{self, Controller, INDEX};
use crate::manager::Context;

/// Number of concurrent workers.
const WORKERS: usize = 5;

struct CronJobs {
    crons: Informer<Document<CronJob>>,
    jobs: Informer<Document<Job>>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let crons = context.informers.all::<Document<CronJob>>();
    let jobs = context.informers.all::<Document<Job>>();
    let executor = context.executor();
    executor.expectations().follow(&crons, &CronJob::RESOURCE.plural);
    executor.expectations().follow(&jobs, &Job::RESOURCE.plural);
    jobs.store().add_index(INDEX, |job| ownership::index_of(job.metadata()));
    let runner = Runner::new(context.name, &context.runtime);
    let queue = Arc::downgrade(runner.queue());
    let clock = context.runtime.clock.clone();
    let runner = runner
        .watch_changes(&crons, move |change| match change {
            // Kubernetes: a changed schedule applies from the next time on; earlier times are not made up.
            Change::Updated { old, new } if rule::was_rescheduled(old, new) => {
                if let (Some(queue), Some(wait), Some(key)) =
                    (queue.upgrade(), rule::wait(new, clock.now()), own(&**new))
                {
                    queue.add_after(key, wait);
                }
                None
            }
            _ => own(&**change.newest()),
        })
        .watch(&jobs, controlled_by("CronJob"))
        .workers(WORKERS);
    let controller = Arc::new(CronJobs { crons, jobs, executor });
    let reconcile = move |key| {
        let controller = controller.clone();
        async move { controller.reconcile(key).await }
    };
    runner.run(reconcile).await;
}

impl CronJobs {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(cron) = self.crons.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        let jobs = self.jobs.store().by_index(INDEX, &cron.metadata().uid);
        let active = cron.status.active.iter();
        let known: Vec<_> = active.filter_map(|it| self.jobs.store().get(&it.namespace, &it.name)).collect();
        let seen = ObservedState { cron: cron.clone(), jobs, known, now: self.executor.now() };
        let lost = cron.status.active.len() > seen.known.len();
        if lost && !self.executor.lives(CronJob::RESOURCE, cron.metadata()).await? {
            return Ok(Next::Done);
        }
        let Plan { actions, mut status, start, again } = rule::plan(&seen);
        self.executor.perform(&key, actions).await?;
        let mut failure = None;
        if let Some(start) = start {
            match self.start(&key, &cron, &start).await {
                Ok(Some(job)) => {
                    status.active.push(job);
                    status.last_schedule_time = Some(start.at);
                }
                Ok(None) => {}
                Err(failed) => failure = Some(failed),
            }
        }
        if status != cron.status {
            let mut object = cron.to_value();
            object.set_at(&["status"], edit::document(&status));
            self.executor.perform(&key, vec![Action::UpdateStatus { resource: CronJob::RESOURCE, object }]).await?;
        }
        match failure {
            Some(failure) => failure.held().map(Next::After).ok_or(failure),
            None => Ok(again.map_or(Next::Done, Next::After)),
        }
    }

    /// Starts a Job; gives back a reference to it unless it was known.
    async fn start(
        &self,
        key: &Key,
        cron: &Document<CronJob>,
        start: &Start,
    ) -> Result<Option<ObjectReference>, Failure> {
        let controller = Controller { resource: &CronJob::RESOURCE, metadata: cron.metadata() };
        let about = controller.about();
        let owner = Owner { about: about.clone(), generation: cron.metadata().generation };
        let recorder = self.executor.recorder();
        let created = self.executor.create_all(key, &owner, &Job::RESOURCE, vec![start.job.clone()]).await;
        let job = match created.failure {
            None => {
                let message = format!("Created job {}", metadata::name(&start.job));
                recorder.event(about, Severity::Normal, "SuccessfulCreate", &message);
                created.objects.into_iter().next().unwrap_or_default()
            }
            Some(failure) if failure.is_already_exists() => {
                // An earlier round was interrupted, or another object has the name.
                let jobs = self.executor.client().objects::<Document<Job>>();
                let job = jobs.get(&key.namespace, metadata::name(&start.job)).await?;
                let is_known = cron.status.active.iter().any(|it| it.uid == job.metadata().uid);
                if !controller.controls(job.metadata()) || is_known {
                    return Ok(None);
                }
                job.to_value()
            }
            Some(failure) => {
                if created.is_news && !failure.is_ending_namespace() {
                    let message = format!("Error creating job: {failure}");
                    recorder.event(about, Severity::Warning, "FailedCreate", &message);
                }
                return Err(failure);
            }
        };
        Ok(Some(reference(&job)))
    }
}

/// Returns the status entry of a running Job.
fn reference(job: &Value) -> ObjectReference {
    let text = |field: &str| job.text_at(&["metadata", field]).into();
    ObjectReference {
        kind: "Job".into(),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        api_version: "batch/v1".into(),
        resource_version: text("resourceVersion"),
        field_path: Default::default(),
    }
}
