//! Jobs that are over go after their time: `ttlSecondsAfterFinished`.
//!
//! It watches Jobs. Before a deletion the server is queried again, because the time may have been changed.
//! Follows Kubernetes' `pkg/controller/ttlafterfinished`.

use std::sync::Arc;
use std::time::Duration;

use api::batch::v1::Job;
use api::time::Timestamp;
use client::Document;
use client::controller::{Controller as Runner, Next, own};
use client::informer::{Informer, Key};
use client::objects::Deletion;
use client::resources::ServedView as _;

use crate::machinery::executor::{Executor, Failure};
use crate::machinery::expectations::UNSETTLED;
use crate::machinery::pods::until;
use crate::manager::Context;
use crate::workloads::job::finished_at;

/// Number of concurrent workers.
const WORKERS: usize = 5;

struct Expiry {
    jobs: Informer<Document<Job>>,
    executor: Executor,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let jobs = context.informers.all::<Document<Job>>();
    let executor = context.executor();
    executor.expectations().follow(&jobs, &Job::RESOURCE.plural);
    let runner = Runner::new(context.name, &context.runtime).watch(&jobs, own).workers(WORKERS);
    let controller = Arc::new(Expiry { jobs, executor });
    let reconcile = move |key| {
        let controller = controller.clone();
        async move { controller.reconcile(key).await }
    };
    runner.run(reconcile).await;
}

/// Returns the remaining time of a Job that has ended and has a time to live.
fn left(job: &Job, now: Timestamp) -> Option<Duration> {
    if job.metadata.is_deleting() {
        return None;
    }
    let seconds = job.spec.ttl_seconds_after_finished?;
    let ended = finished_at(job)?.last_transition_time?;
    Some(until(ended.plus_seconds(i64::from(seconds)), now))
}

impl Expiry {
    async fn reconcile(&self, key: Key) -> Result<Next, Failure> {
        let Some(job) = self.jobs.store().get_key(&key) else {
            self.executor.forget(&key);
            return Ok(Next::Done);
        };
        if !self.executor.settled(&key) {
            return Ok(Next::After(UNSETTLED));
        }
        match left(&job, self.executor.now()) {
            None => return Ok(Next::Done),
            Some(left) if !left.is_zero() => return Ok(Next::After(left)),
            Some(_) => {}
        }
        let fresh = match self.executor.client().objects::<Job>().get(&key.namespace, &key.name).await {
            Err(error) if error.is_not_found() => return Ok(Next::Done),
            result => result?,
        };
        match left(&fresh, self.executor.now()) {
            None => return Ok(Next::Done),
            Some(left) if !left.is_zero() => return Ok(Next::After(left)),
            Some(_) => {}
        }
        let uid = &fresh.metadata.uid;
        let how =
            Deletion { uid: Some(uid.to_string()), propagation_policy: Some("Foreground"), ..Deletion::default() };
        self.executor.delete(&key, &Job::RESOURCE, &key.namespace, &key.name, uid, &how).await?;
        Ok(Next::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finished_jobs_with_ttl_are_deleted() {
        let now = Timestamp { seconds: 100, nanos: 0 };
        let mut job = Job::default();
        job.spec.ttl_seconds_after_finished = Some(30);
        assert_eq!(left(&job, now), None);
        job.status.conditions.push(api::batch::v1::JobCondition {
            condition_type: "Failed".into(),
            status: "True".into(),
            last_transition_time: Some(Timestamp { seconds: 80, nanos: 0 }),
            ..Default::default()
        });
        assert_eq!(left(&job, now), Some(Duration::from_secs(10)));
        job.spec.ttl_seconds_after_finished = Some(0);
        assert_eq!(left(&job, now), Some(Duration::ZERO));
        job.spec.ttl_seconds_after_finished = None;
        assert_eq!(left(&job, now), None);
    }
}
