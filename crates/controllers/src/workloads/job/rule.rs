//! State of a Job, and the pods it needs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::batch::v1::{Job, JobCondition, JobStatus};
use api::core::v1::Pod;
use api::json::{Text, Value};
use api::time::Timestamp;
use client::Document;

use super::backoff::{self, Backoff};
use super::indexes::Intervals;
use super::policy::{self, Verdict, verdict};
use super::template::{self, index_of};
use super::tracking::Tracking;
use super::{BATCH, is_tracked};
use crate::machinery::pods::{is_active, is_ready, is_terminating, sort_newest_first, until};

/// No more pods than this are made or deleted at a time.
const BURST: usize = 500;

/// Input of a round.
pub(super) struct ObservedState {
    pub(super) job: Arc<Document<Job>>,
    /// The pods that the Job controls.
    pub(super) pods: Vec<Arc<Pod>>,
    /// Failures before this round.
    pub(super) backoff: Backoff,
    pub(super) now: Timestamp,
}

/// Work on pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Work {
    None,
    Create(Vec<Value>),
    /// Deletes pods of a Job that is decided; they count as failed.
    End(Vec<Arc<Pod>>),
    /// Deletes pods that are not needed; they do not count.
    GiveUp(Vec<Arc<Pod>>),
}

/// Result of the work.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) created: usize,
    pub(super) removed: Vec<Arc<Pod>>,
}

/// State of a Job.
pub(super) struct State<'a> {
    pub(super) seen: &'a ObservedState,
    pub(super) job: &'a Document<Job>,
    /// The status to be, so far.
    pub(super) status: JobStatus,
    active: Vec<Arc<Pod>>,
    pub(super) uncounted_failed: BTreeSet<Text>,
    pub(super) uncounted_succeeded: BTreeSet<Text>,
    succeeded: i32,
    /// Indexes that were counted as succeeded before, and all that have.
    pub(super) counted_indexes: Intervals,
    pub(super) succeeded_indexes: Intervals,
    pub(super) failed_indexes: Option<Intervals>,
    /// Failed pods that wait for their replacement, by index.
    pub(super) delayed: HashMap<i32, Arc<Pod>>,
    /// Final condition of the Job.
    pub(super) decided: Option<JobCondition>,
    backoff: Backoff,
    work: Work,
    again: Option<Duration>,
    pub(super) suspension: Option<&'static str>,
}

pub(super) fn is_suspended(job: &Job) -> bool {
    job.spec.suspend == Some(true)
}

pub(super) fn is_indexed(job: &Job) -> bool {
    job.spec.completion_mode.as_deref() == Some("Indexed")
}

fn only_replaces_failed(job: &Job) -> bool {
    job.spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Whether a pod counts as failed: by default also while it is still ending.
pub(super) fn has_failed(pod: &Pod, job: &Job) -> bool {
    match pod.status.phase.as_str() {
        "Failed" => true,
        "Succeeded" => false,
        _ => !only_replaces_failed(job) && pod.metadata.is_deleting(),
    }
}

pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        condition_type: kind.into(),
        status: status.into(),
        last_probe_time: Some(now),
        last_transition_time: Some(now),
        reason: reason.into(),
        message: message.into(),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

pub(super) fn assess(seen: &ObservedState) -> State<'_> {
    let job = &*seen.job;
    let mut status = job.status.clone();
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default().clone();
    let active: Vec<Arc<Pod>> = seen.pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    status.ready = Some(number(active.iter().filter(|pod| is_ready(pod)).count()));
    status.terminating = Some(number(seen.pods.iter().filter(|pod| is_terminating(pod)).count()));
    if status.start_time.is_none() && !is_suspended(job) {
        status.start_time = Some(seen.now);
    }
    let mut state = State {
        seen,
        job,
        status,
        active,
        uncounted_failed: uncounted.failed.into_iter().collect(),
        uncounted_succeeded: uncounted.succeeded.into_iter().collect(),
        succeeded: 0,
        counted_indexes: Intervals::default(),
        succeeded_indexes: Intervals::default(),
        failed_indexes: None,
        delayed: HashMap::new(),
        decided: None,
        backoff: Backoff::default(),
        work: Work::None,
        again: None,
        suspension: None,
    };
    state.judge();
    state.plan();
    state
}

impl State<'_> {
    /// Takes the planned work.
    pub(super) fn work(&mut self) -> Work {
        std::mem::replace(&mut self.work, Work::None)
    }

    pub(super) fn backoff(&self) -> Backoff {
        self.backoff.clone()
    }

    pub(super) fn again(&self) -> Option<Duration> {
        self.again
    }

    fn completions(&self) -> i32 {
        self.job.spec.completions.unwrap_or(0)
    }

    /// The index of a pod, if the Job has it.
    pub(super) fn valid_index(&self, pod: &Pod) -> Option<i32> {
        index_of(pod).filter(|index| *index < self.completions())
    }

    /// Pods that have ended and are not recorded yet.
    fn newly_ended(&self, noted: &BTreeSet<Text>, has_ended: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        let is_new = |pod: &&Arc<Pod>| {
            is_tracked(pod)
                && !noted.contains(&pod.metadata.uid)
                && (!is_indexed(self.job) || self.valid_index(pod).is_some())
                && has_ended(pod)
        };
        self.seen.pods.iter().filter(is_new).cloned().collect()
    }

    fn fails(&self, reason: &str, message: &str) -> Option<JobCondition> {
        Some(condition("FailureTarget", "True", reason, message, self.seen.now))
    }

    /// Counts pods, and decides whether the Job has finished.
    fn judge(&mut self) {
        let (job, now) = (self.job, self.seen.now);
        let succeeded = self.newly_ended(&self.uncounted_succeeded, |pod| pod.status.phase == "Succeeded");
        let failed = self.newly_ended(&self.uncounted_failed, |pod| has_failed(pod, job));
        let counted = failed.iter().filter(|pod| verdict(job, pod).counts()).count();
        self.succeeded = job.status.succeeded.saturating_add(number(succeeded.len()));
        self.succeeded = self.succeeded.saturating_add(number(self.uncounted_succeeded.len()));
        let failures = job.status.failed.saturating_add(number(counted));
        let failures = failures.saturating_add(number(self.uncounted_failed.len()));
        self.backoff = self.seen.backoff.after(&succeeded, &failed);
        let holds = |kind: &str| {
            let mut conditions = job.status.conditions.iter();
            conditions.find(|it| it.condition_type == kind && it.status == "True").cloned()
        };
        self.decided = holds("SuccessCriteriaMet").or_else(|| {
            let target = holds("FailureTarget")?;
            Some(condition("Failed", "True", &target.reason, &target.message, now))
        });
        if self.decided.is_none() {
            let fatal =
                self.seen.pods.iter().filter(|pod| has_failed(pod, job)).find_map(|pod| match verdict(job, pod) {
                    Verdict::FailJob(message) => Some(message),
                    _ => None,
                });
            self.decided = fatal.and_then(|message| self.fails("PodFailurePolicy", &message));
        }
        if self.decided.is_none() {
            let limit = job.spec.backoff_limit.unwrap_or(6);
            if failures > limit || self.restarted_too_often(limit) {
                self.decided = self.fails("BackoffLimitExceeded", "Job has reached the specified backoff limit");
            } else if let Some(deadline) = self.deadline() {
                let left = until(deadline, now);
                if left.is_zero() {
                    self.decided = self.fails("DeadlineExceeded", "Job was active longer than specified deadline");
                } else {
                    self.look_again(left);
                }
            }
        }
        if is_indexed(job) {
            self.judge_indexes();
        }
    }

    fn look_again(&mut self, delay: Duration) {
        self.again = Some(self.again.map_or(delay, |known| known.min(delay)));
    }

    /// Time at which the active deadline ends.
    fn deadline(&self) -> Option<Timestamp> {
        let seconds = self.job.spec.active_deadline_seconds.filter(|_| !is_suspended(self.job))?;
        Some(self.status.start_time?.plus_seconds(seconds))
    }

    /// Whether containers were restarted too often, where that is how failures show.
    fn restarted_too_often(&self, limit: i32) -> bool {
        if self.job.spec.template.spec.restart_policy != "OnFailure" {
            return false;
        }
        let runs = |pod: &&Arc<Pod>| matches!(pod.status.phase.as_str(), "Running" | "Pending");
        let containers = self
            .seen
            .pods
            .iter()
            .filter(runs)
            .flat_map(|pod| pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses));
        let restarts = containers.map(|status| status.restart_count).fold(0, i32::saturating_add);
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn judge_indexes(&mut self) {
        let job = self.job;
        let completions = self.completions();
        let tracked = || self.seen.pods.iter().filter(|pod| is_tracked(pod));
        self.counted_indexes = Intervals::parse(&job.status.completed_indexes, completions);
        let ended = tracked().filter(|pod| pod.status.phase == "Succeeded").filter_map(|pod| self.valid_index(pod));
        self.succeeded_indexes = self.counted_indexes.with(ended);
        self.succeeded = self.succeeded_indexes.total();
        if let Some(limit) = job.spec.backoff_limit_per_index {
            let limit = u32::try_from(limit).unwrap_or(0);
            let has_failed_for_good = |pod: &&Arc<Pod>| {
                has_failed(pod, job)
                    && match verdict(job, pod) {
                        Verdict::FailIndex => true,
                        verdict => verdict.counts() && template::failures_of(pod) >= limit,
                    }
            };
            let known = job.status.failed_indexes.as_deref().unwrap_or_default();
            let new = tracked().filter(has_failed_for_good).filter_map(|pod| self.valid_index(pod));
            let failed = Intervals::parse(known, completions).with(new);
            if self.decided.is_none() {
                let total = failed.total();
                if job.spec.max_failed_indexes.is_some_and(|max| total > max) {
                    let message = "Job has exceeded the specified maximal number of failed indexes";
                    self.decided = self.fails("MaxFailedIndexesExceeded", message);
                } else if total > 0 && total.saturating_add(self.succeeded) >= completions {
                    self.decided = self.fails("FailedIndexes", "Job has failed indexes");
                }
            }
            self.delayed = self.delayed_pods(&failed);
            self.failed_indexes = Some(failed);
        }
        if self.decided.is_none()
            && let Some(message) = policy::success(job, &self.succeeded_indexes)
        {
            self.decided = Some(condition("SuccessCriteriaMet", "True", "SuccessPolicy", &message, self.seen.now));
        }
    }

    /// The last failed pod of each index that has neither ended nor a pod.
    fn delayed_pods(&self, failed: &Intervals) -> HashMap<i32, Arc<Pod>> {
        let active: BTreeSet<i32> = self.active.iter().filter_map(|pod| index_of(pod)).collect();
        let mut delayed: HashMap<i32, Arc<Pod>> = HashMap::new();
        for pod in self.seen.pods.iter().filter(|pod| is_tracked(pod) && has_failed(pod, self.job)) {
            let Some(index) = self.valid_index(pod) else { continue };
            if self.succeeded_indexes.has(index) || failed.has(index) || active.contains(&index) {
                continue;
            }
            let rank = |pod: &Pod| (template::all_failures_of(pod), backoff::ended_at(pod));
            let is_later = delayed.get(&index).is_none_or(|known| rank(known) <= rank(pod));
            if is_later {
                delayed.insert(index, pod.clone());
            }
        }
        delayed
    }

    /// Plans the creation or deletion of pods.
    fn plan(&mut self) {
        let job = self.job;
        if self.decided.is_some() {
            self.work = Work::End(self.active.clone());
            return;
        }
        if job.metadata().is_deleting() {
            return;
        }
        let active = number(self.active.len());
        if is_suspended(job) {
            self.work = Work::GiveUp(self.surplus(self.active.len()));
            return;
        }
        let parallelism = job.spec.parallelism.unwrap_or(1);
        let wanted = match job.spec.completions {
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => completions.saturating_sub(self.succeeded).min(parallelism).max(0),
        };
        let least = usize::try_from(active.saturating_sub(wanted)).unwrap_or(0);
        let surplus = self.surplus(least);
        if !surplus.is_empty() {
            self.work = Work::GiveUp(surplus);
            return;
        }
        let ending = if only_replaces_failed(job) { self.status.terminating.unwrap_or(0) } else { 0 };
        let missing = wanted.saturating_sub(ending).saturating_sub(active);
        let missing = usize::try_from(missing).unwrap_or(0).min(BURST);
        if missing > 0 {
            self.create(missing);
        }
    }

    fn create(&mut self, count: usize) {
        let (job, now) = (self.job, self.seen.now);
        let per_index = job.spec.backoff_limit_per_index.is_some();
        let wait = if per_index { Duration::ZERO } else { self.backoff.remaining(now) };
        if !wait.is_zero() {
            self.look_again(wait.max(BATCH));
            return;
        }
        if !is_indexed(job) {
            self.work = Work::Create(vec![template::pod(job); count]);
            return;
        }
        let mut taken = self.succeeded_indexes.with(self.active.iter().filter_map(|pod| index_of(pod)));
        if only_replaces_failed(job) {
            let ending = self.seen.pods.iter().filter(|pod| is_terminating(pod));
            taken = taken.with(ending.filter_map(|pod| index_of(pod)));
        }
        if let Some(failed) = &self.failed_indexes {
            taken = taken.merged(failed);
        }
        let wait_of = |index: &i32| {
            let before = self.delayed.get(index).filter(|_| per_index)?;
            let failures = template::all_failures_of(before).saturating_add(1);
            Some(backoff::remaining(failures, backoff::ended_at(before), now)).filter(|wait| !wait.is_zero())
        };
        let indexes = taken.missing(count, self.completions());
        let (later, soon): (Vec<i32>, Vec<i32>) = indexes.into_iter().partition(|index| wait_of(index).is_some());
        let first = later.iter().filter_map(wait_of).min();
        if soon.is_empty()
            && let Some(wait) = first
        {
            self.look_again(wait.max(BATCH));
            return;
        }
        let pod = |index: i32| template::pod_of_index(job, index, self.delayed.get(&index).map(|pod| &**pod));
        self.work = Work::Create(soon.into_iter().map(pod).collect());
    }

    /// Active pods that are not needed: those of indexes that another has or that the Job no longer has, and then as many
    /// as it takes.
    fn surplus(&self, least: usize) -> Vec<Arc<Pod>> {
        let mut pods = self.active.clone();
        sort_newest_first(&mut pods);
        let mut chosen: Vec<Arc<Pod>> = Vec::new();
        if is_indexed(self.job) {
            let mut kept: BTreeSet<i32> = BTreeSet::new();
            let mut left = Vec::new();
            // The last in order is the one to keep.
            for pod in pods.into_iter().rev() {
                let is_needed = self.valid_index(&pod).is_some_and(|index| kept.insert(index));
                if is_needed { left.push(pod) } else { chosen.push(pod) }
            }
            left.reverse();
            pods = left;
        }
        let more = least.saturating_sub(chosen.len());
        chosen.extend(pods.into_iter().take(more));
        chosen.truncate(BURST);
        chosen
    }

    /// Continues with the result of the work.
    pub(super) fn conclude(&mut self, outcome: &Outcome) -> Tracking {
        let removed = number(outcome.removed.len());
        let removed_ready = number(outcome.removed.iter().filter(|pod| is_ready(pod)).count());
        let active = number(self.active.len()).saturating_add(number(outcome.created)).saturating_sub(removed);
        self.status.active = active;
        self.status.ready = self.status.ready.map(|ready| ready.saturating_sub(removed_ready));
        self.status.terminating = self.status.terminating.map(|count| count.saturating_add(removed));
        if self.decided.is_some() {
            if active > 0 {
                // Not all could be deleted: the next round decides again.
                self.decided = None;
            }
        } else {
            let complete = match self.job.spec.completions {
                None => self.succeeded > 0 && active == 0,
                Some(completions) => self.succeeded >= completions && active == 0,
            };
            if complete {
                let message = "Reached expected number of succeeded pods";
                self.decided =
                    Some(condition("SuccessCriteriaMet", "True", "CompletionsReached", message, self.seen.now));
            } else if !self.job.metadata().is_deleting() {
                self.note_suspension();
            }
        }
        Tracking::new(self)
    }

    /// Keeps the condition `Suspended` in step with the spec.
    fn note_suspension(&mut self) {
        let now = self.seen.now;
        let position = self.status.conditions.iter().position(|it| it.condition_type == "Suspended");
        let known = position.and_then(|position| self.status.conditions.get(position)).map(|it| it.status == "True");
        match (is_suspended(self.job), known) {
            (true, None | Some(false)) => {
                self.put(position, condition("Suspended", "True", "JobSuspended", "Job suspended", now));
                self.status.start_time = None;
                self.suspension = Some("Suspended");
            }
            (false, Some(true)) => {
                self.put(position, condition("Suspended", "False", "JobResumed", "Job resumed", now));
                self.status.start_time = Some(now);
                self.suspension = Some("Resumed");
            }
            _ => {}
        }
    }

    fn put(&mut self, position: Option<usize>, condition: JobCondition) {
        match position.and_then(|position| self.status.conditions.get_mut(position)) {
            Some(slot) => *slot = condition,
            None => self.status.conditions.push(condition),
        }
    }
}
