//! Counting of ended pods: recorded in the status, then the finalizer is removed, then the number is
//! incremented.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::batch::v1::{Job, JobCondition, JobStatus};
use api::core::v1::{ObjectReference, Pod};
use api::json::{Text, Value};
use client::Document;
use client::events::Severity;
use client::resources::ServedView as _;

use super::is_tracked;
use super::policy::verdict;
use super::rule::{State, condition, has_failed, is_indexed};
use crate::machinery::action::{Action, Event};
use crate::machinery::edit;
use crate::machinery::ownership::Controller;

/// Maximum number of UIDs in a status.
const UNCOUNTED_MAX: usize = 500;

/// The writes that follow from a round.
pub(super) struct Tracking {
    job: Document<Job>,
    about: ObjectReference,
    status: JobStatus,
    /// Whether the first status is written.
    flush: bool,
    /// Pods that have ended and keep the finalizer for now.
    tracked: BTreeSet<Text>,
    /// Pods whose finalizer is removed.
    pods: Vec<Arc<Pod>>,
    /// Final condition of the Job, once everything is counted.
    end: Option<JobCondition>,
    /// Whether more pods have ended than fit into a status.
    is_full: bool,
    suspension: Option<&'static str>,
    changed: bool,
}

impl Tracking {
    pub(super) fn new(state: &mut State<'_>) -> Self {
        let (job, now) = (state.job, state.seen.now);
        let controller = Controller { resource: &Job::RESOURCE, metadata: job.metadata() };
        let tracked: BTreeSet<Text> =
            state.seen.pods.iter().filter(|pod| is_tracked(pod)).map(|pod| pod.metadata.uid.clone()).collect();
        let mut status = state.status.clone();
        count(&mut status, &tracked);
        let mut tracking = Self {
            about: controller.about(),
            job: job.clone(),
            status,
            flush: false,
            tracked,
            pods: Vec::new(),
            end: None,
            is_full: false,
            suspension: state.suspension,
            changed: false,
        };
        tracking.note_ends(state);
        match state.decided.take() {
            Some(decided) if decided.condition_type == "FailureTarget" => {
                tracking.end = Some(condition("Failed", "True", &decided.reason, &decided.message, now));
                tracking.status.conditions.push(decided);
            }
            Some(decided) if decided.condition_type == "SuccessCriteriaMet" => {
                tracking.end = Some(condition("Complete", "True", &decided.reason, &decided.message, now));
                if !tracking.status.conditions.iter().any(|it| it.condition_type == "SuccessCriteriaMet") {
                    tracking.status.conditions.push(decided);
                }
            }
            decided => tracking.end = decided,
        }
        // Kubernetes: neither the first start nor an empty list of UIDs triggers a separate write.
        let compared = JobStatus {
            start_time: job.status.start_time.or(tracking.status.start_time),
            uncounted_terminated_pods: tracking
                .status
                .uncounted_terminated_pods
                .clone()
                .filter(|uids| job.status.uncounted_terminated_pods.is_some() || *uids != Default::default()),
            ..tracking.status.clone()
        };
        tracking.flush = compared != job.status || state.suspension.is_some();
        tracking
    }

    /// Records ended pods, and those whose finalizer can be removed.
    fn note_ends(&mut self, state: &State<'_>) {
        let job = state.job;
        let decided = state.decided.as_ref().map(|it| it.condition_type.as_str());
        let has_failed_job = decided.is_some_and(|decided| decided != "SuccessCriteriaMet");
        let mut pods = state.seen.pods.clone();
        if is_indexed(job) {
            pods.sort_by_key(|pod| state.valid_index(pod).map_or(-1, i64::from));
        }
        let mut new_indexes: Vec<i32> = Vec::new();
        for pod in pods.iter().filter(|pod| is_tracked(pod)) {
            let failed = has_failed(pod, job);
            let has_succeeded = pod.status.phase == "Succeeded";
            let waits = state
                .valid_index(pod)
                .is_some_and(|index| state.delayed.get(&index).is_some_and(|it| it.metadata.uid == pod.metadata.uid));
            let may_go = job.metadata().is_deleting() || decided.is_some() || has_succeeded || (failed && !waits);
            if !may_go {
                continue;
            }
            self.pods.push(pod.clone());
            let uid = &pod.metadata.uid;
            let uncounted = self.status.uncounted_terminated_pods.get_or_insert_default();
            if has_succeeded && !state.uncounted_failed.contains(uid) {
                if is_indexed(job) {
                    let new = state.valid_index(pod).filter(|index| !state.counted_indexes.has(*index));
                    new_indexes.extend(new);
                } else if !state.uncounted_succeeded.contains(uid) {
                    uncounted.succeeded.push(uid.clone());
                }
            } else if failed || has_failed_job {
                let is_ours = !is_indexed(job) || state.valid_index(pod).is_some();
                if is_ours && !state.uncounted_failed.contains(uid) && verdict(job, pod).counts() {
                    uncounted.failed.push(uid.clone());
                }
            }
            let noted = uncounted.succeeded.len().saturating_add(uncounted.failed.len());
            if noted.saturating_add(new_indexes.len()) >= UNCOUNTED_MAX {
                self.is_full = true;
                break;
            }
        }
        if is_indexed(job) {
            let succeeded = if self.is_full {
                state.counted_indexes.with(new_indexes)
            } else {
                state.succeeded_indexes.with(new_indexes)
            };
            self.status.succeeded = succeeded.total();
            self.status.completed_indexes = succeeded.to_string().into();
            self.status.failed_indexes = state.failed_indexes.as_ref().map(|failed| failed.to_string().into());
        }
    }

    fn document(&self) -> Value {
        let mut object = self.job.to_value();
        object.set_at(&["status"], edit::document(&self.status));
        object
    }

    /// Events before the first write.
    pub(super) fn events(&self) -> Vec<Action> {
        let message = |reason: &str| if reason == "Suspended" { "Job suspended" } else { "Job resumed" };
        let event = self.suspension.map(|reason| Action::normal(&self.about, reason, message(reason).to_owned()));
        event.into_iter().collect()
    }

    /// The status with the UIDs of ended pods, if it has changed.
    pub(super) fn first_status(&self) -> Option<Value> {
        self.flush.then(|| self.document())
    }

    /// Pods whose finalizer is then removed.
    pub(super) fn pods(&self) -> &[Arc<Pod>] {
        &self.pods
    }

    /// Records that the finalizer of a pod was removed.
    pub(super) fn freed(&mut self, pod: &Pod) {
        self.tracked.remove(&pod.metadata.uid);
    }

    /// Returns the status with the counts, if it has changed; `all` is true if all finalizers were removed.
    pub(super) fn last_status(&mut self, all: bool) -> Option<Value> {
        let counted = count(&mut self.status, &self.tracked);
        let uncounted = self.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let is_open = !uncounted.succeeded.is_empty() || !uncounted.failed.is_empty();
        let waits = is_open || self.status.terminating.unwrap_or(0) > 0 || self.is_full || !all;
        let end = self.end.take().filter(|_| !waits);
        if let Some(end) = end {
            if end.condition_type == "Complete" {
                self.status.completion_time = end.last_transition_time;
            }
            self.status.conditions.push(end.clone());
            self.end = Some(end);
            self.changed = true;
        }
        (counted || self.changed).then(|| self.document())
    }

    /// Events after the end of the Job.
    pub(super) fn end(&self) -> Vec<Event> {
        let Some(end) = self.end.as_ref().filter(|_| self.changed) else { return Vec::new() };
        let event = |severity, reason, message: &str| Event {
            about: self.about.clone(),
            severity,
            reason,
            message: message.to_owned(),
        };
        if end.condition_type == "Complete" {
            let mut events = Vec::new();
            if self.job.spec.completions.is_some_and(|completions| self.status.succeeded > completions) {
                let message = "Too many succeeded pods running after completion count reached";
                events.push(event(Severity::Warning, "TooManySucceededPods", message));
            }
            events.push(event(Severity::Normal, "Completed", "Job completed"));
            return events;
        }
        vec![event(Severity::Warning, reason(&end.reason), &end.message)]
    }
}

/// The reasons for which a Job fails.
fn reason(text: &str) -> &'static str {
    const REASONS: [&str; 5] =
        ["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"];
    REASONS.iter().find(|reason| **reason == text).copied().unwrap_or("Failed")
}

/// Moves UIDs whose pods have no finalizer any more to the counts. Returns whether there were any.
fn count(status: &mut JobStatus, tracked: &BTreeSet<Text>) -> bool {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let settle = |uids: &mut Vec<Text>, number: &mut i32| {
        let before = uids.len();
        uids.retain(|uid| tracked.contains(uid));
        let counted = i32::try_from(before.saturating_sub(uids.len())).unwrap_or(i32::MAX);
        *number = number.saturating_add(counted);
        counted > 0
    };
    let succeeded = settle(&mut uncounted.succeeded, &mut status.succeeded);
    let failed = settle(&mut uncounted.failed, &mut status.failed);
    succeeded || failed
}
