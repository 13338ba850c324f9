//! One round: which Jobs have ended, which are deleted, and whether one is started.

use std::sync::Arc;
use std::time::Duration;

use api::batch::v1::{CronJob, CronJobStatus, Job};
use api::json;
use api::json::Value;
use api::metadata;
use api::time::Timestamp;
use client::Document;
use client::objects::Deletion;
use client::resources::ServedView as _;

use super::missed;
use super::schedule::{self, Schedule};
use crate::machinery::action::Action;
use crate::machinery::ownership::Controller;
use crate::machinery::pods::until;
use crate::workloads::job::finished_at;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// Delay after a scheduled time, because clocks differ a little.
const DELTA: Duration = Duration::from_millis(100);

/// Input of a round.
pub(super) struct ObservedState {
    pub(super) cron: Arc<Document<CronJob>>,
    /// The Jobs that it controls.
    pub(super) jobs: Vec<Arc<Document<Job>>>,
    /// The Jobs that its status names and that exist.
    pub(super) known: Vec<Arc<Document<Job>>>,
    pub(super) now: Timestamp,
}

/// A Job to be started, and the time it is for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Start {
    pub(super) job: Value,
    pub(super) at: Timestamp,
}

/// Result of a round.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) status: CronJobStatus,
    pub(super) start: Option<Start>,
    pub(super) again: Option<Duration>,
}

struct Round<'a> {
    seen: &'a ObservedState,
    cron: &'a Document<CronJob>,
    about: api::core::v1::ObjectReference,
    plan: Plan,
}

/// Whether two forms of a CronJob have other times.
pub(super) fn was_rescheduled(old: &CronJob, new: &CronJob) -> bool {
    old.spec.schedule != new.spec.schedule || old.spec.time_zone != new.spec.time_zone
}

/// Returns the time until the next start of a schedule; `None` if it cannot be determined.
pub(super) fn wait(cron: &CronJob, now: Timestamp) -> Option<Duration> {
    let times = Schedule::parse(&cron.spec.schedule, cron.spec.time_zone.as_deref()).ok()?;
    missed::next(cron, &times, now).map(|next| until(next, now).saturating_add(DELTA))
}

pub(super) fn plan(seen: &ObservedState) -> Plan {
    let cron = &*seen.cron;
    let about = Controller { resource: &CronJob::RESOURCE, metadata: cron.metadata() }.about();
    let plan = Plan { actions: Vec::new(), status: cron.status.clone(), start: None, again: None };
    let mut round = Round { seen, cron, about, plan };
    round.clean_up();
    round.note_ends();
    if !cron.metadata().is_deleting() {
        round.schedule();
    }
    round.plan
}

impl Round<'_> {
    fn report(&mut self, is_normal: bool, reason: &'static str, message: String) {
        let event = if is_normal { Action::normal } else { Action::warning };
        let event = event(&self.about, reason, message);
        self.plan.actions.push(event);
    }

    fn delete(&mut self, job: &Document<Job>) {
        let metadata = job.metadata();
        self.plan.actions.push(Action::Delete {
            resource: Job::RESOURCE,
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            how: Deletion { propagation_policy: Some("Background"), ..Deletion::default() },
        });
        self.plan.status.active.retain(|active| active.uid != metadata.uid);
        self.report(true, "SuccessfulDelete", format!("Deleted job {}", metadata.name));
    }

    /// Deletes the oldest Jobs that have ended, beyond the limits of the history.
    fn clean_up(&mut self) {
        let spec = &self.cron.spec;
        let limits = [("Complete", spec.successful_jobs_history_limit), ("Failed", spec.failed_jobs_history_limit)];
        for (kind, limit) in limits {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { continue };
            let is_one = |job: &&Arc<Document<Job>>| {
                finished_at(job).is_some_and(|end| end.condition_type == kind) && !job.metadata().is_deleting()
            };
            let mut ended: Vec<_> = self.seen.jobs.iter().filter(is_one).cloned().collect();
            ended.sort_by_key(|job| {
                (job.status.start_time.is_none(), job.status.start_time, job.metadata().name.clone())
            });
            let surplus = ended.len().saturating_sub(limit);
            for job in ended.iter().take(surplus) {
                self.delete(job);
            }
        }
    }

    /// Removes Jobs that have ended or were deleted from the list.
    fn note_ends(&mut self) {
        for job in &self.seen.jobs {
            let is_active = self.plan.status.active.iter().any(|active| active.uid == job.metadata().uid);
            if finished_at(job).is_some() {
                self.note_end(job);
            } else if !is_active {
                let message =
                    format!("Saw a job that the controller did not create or forgot: {}", job.metadata().name);
                self.report(false, "UnexpectedJob", message);
            }
        }
        let is_there = |name: &str| self.seen.known.iter().any(|job| job.metadata().name == name);
        let controls = |uid: &str| self.seen.jobs.iter().any(|job| job.metadata().uid == uid);
        let active = self.plan.status.active.clone();
        let (kept, missing): (Vec<_>, Vec<_>) =
            active.into_iter().partition(|active| controls(&active.uid) || is_there(&active.name));
        self.plan.status.active = kept;
        for job in missing {
            self.report(true, "MissingJob", format!("Active job went missing: {}", job.name));
        }
    }

    fn note_end(&mut self, job: &Document<Job>) {
        let Some(end) = finished_at(job) else { return };
        let metadata = job.metadata();
        let before = self.plan.status.active.len();
        self.plan.status.active.retain(|active| active.uid != metadata.uid);
        if self.plan.status.active.len() < before {
            let message = format!("Saw completed job: {}, condition: {}", metadata.name, end.condition_type);
            self.report(true, "SawCompletedJob", message);
        }
        if end.condition_type == "Complete" {
            let last = &mut self.plan.status.last_successful_time;
            *last = (*last).max(job.status.completion_time);
        }
    }

    fn schedule(&mut self) {
        let (cron, now) = (self.cron, self.seen.now);
        let spec = &cron.spec;
        let zone = match schedule::zone(spec.time_zone.as_deref()) {
            Ok(zone) => zone,
            Err(error) => {
                let name = spec.time_zone.as_deref().unwrap_or_default();
                self.report(false, "UnknownTimeZone", format!("invalid timeZone: \"{name}\": {error}"));
                return;
            }
        };
        if spec.suspend == Some(true) {
            return;
        }
        let times = match Schedule::parse(&spec.schedule, spec.time_zone.as_deref()) {
            Ok(times) => times,
            Err(error) => {
                let message = format!("unparseable schedule: \"{}\" : {error}", spec.schedule);
                self.report(false, "UnparseableSchedule", message);
                return;
            }
        };
        if times.next(now).is_none() {
            // Such as the 31st of February. Kubernetes: the text comes from its arithmetic.
            let why = "time difference between two schedules is less than 1 second";
            self.report(false, "InvalidSchedule", format!("invalid schedule: {} : {why}", spec.schedule));
            return;
        }
        self.plan.again = missed::next(cron, &times, now).map(|next| until(next, now).saturating_add(DELTA));
        let due = missed::due(cron, &times, now, true);
        let Some(at) = due.at else { return };
        if due.many() {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.report(false, "TooManyMissedTimes", message.to_owned());
        }
        if spec.starting_deadline_seconds.is_some_and(|seconds| at.plus_seconds(seconds) < now) {
            self.report(false, "MissSchedule", format!("Missed scheduled time to start a job: {}", mail_time(at)));
            return;
        }
        let job = self.job(at, &zone);
        let name = metadata::name(&job);
        let is_active = self.plan.status.active.iter().any(|active| active.name == name);
        if is_active || self.plan.status.last_schedule_time == Some(at) {
            return;
        }
        if spec.concurrency_policy == "Forbid" && !self.plan.status.active.is_empty() {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            self.report(true, "JobAlreadyActive", message.to_owned());
            return;
        }
        if spec.concurrency_policy == "Replace" {
            let running = self.plan.status.active.clone();
            for job in self.seen.known.iter().filter(|job| running.iter().any(|it| it.name == job.metadata().name)) {
                self.delete(job);
            }
        }
        self.plan.start = Some(Start { job, at });
        // After a start the next time is counted from it.
        let next = times.next(at).map(|next| until(next, now).saturating_add(DELTA));
        self.plan.again = next.or(self.plan.again);
    }

    /// The Job for a time.
    fn job(&self, at: Timestamp, zone: &jiff::tz::TimeZone) -> Value {
        let metadata = self.cron.metadata();
        let minutes = at.seconds.div_euclid(60);
        let (name, namespace) = (format!("{}-{minutes}", metadata.name), metadata.namespace.clone());
        let template = self.cron.value().at(&["spec", "jobTemplate"]).cloned().unwrap_or_default();
        let controller = Controller { resource: &CronJob::RESOURCE, metadata };
        let mut object = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace, "ownerReferences": [(controller.reference())]},
            "spec": (template.get("spec").cloned().unwrap_or_default()),
        });
        for field in ["labels", "annotations"] {
            if let Some(value) = template.at(&["metadata", field]) {
                object.set_at(&["metadata", field], value.clone());
            }
        }
        object.set_at(&["metadata", "annotations", SCHEDULED], Schedule::written(at, zone));
        object
    }
}

/// A time as events write it: `Mon, 02 Jan 2006 15:04:05 +0000`.
fn mail_time(at: Timestamp) -> String {
    match jiff::Timestamp::from_second(at.seconds) {
        Ok(time) => time.strftime("%a, %d %b %Y %H:%M:%S +0000").to_string(),
        Err(_) => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(spec: &str, status: &str) -> Arc<Document<CronJob>> {
        cron_at("* * * * *", spec, status)
    }

    fn cron_at(schedule: &str, spec: &str, status: &str) -> Arc<Document<CronJob>> {
        let text = format!(
            r#"{{"metadata":{{"name":"c","namespace":"ns","uid":"c","creationTimestamp":"2026-03-01T10:00:30Z"}},
            "spec":{{"schedule":"{schedule}","jobTemplate":{{"spec":{{"x":1}}}}{spec}}},"status":{status}}}"#
        );
        Arc::new(Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap())
    }

    fn job(name: &str, end: Option<&str>) -> Arc<Document<Job>> {
        let conditions = end.map_or(String::new(), |end| {
            format!(r#","conditions":[{{"type":"{end}","status":"True"}}],"completionTime":"2026-03-01T10:01:40Z""#)
        });
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"u-{name}"}},"status":{{"startTime":"2026-03-01T10:01:00Z"{conditions}}}}}"#
        );
        Arc::new(Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap())
    }

    fn run(cron: Arc<Document<CronJob>>, jobs: Vec<Arc<Document<Job>>>) -> Plan {
        let now = Timestamp::parse("2026-03-01T10:02:10Z").unwrap();
        plan(&ObservedState { cron, known: jobs.clone(), jobs, now })
    }

    fn reasons(plan: &Plan) -> Vec<&'static str> {
        let reason = |action: &Action| match action {
            Action::Event(event) => event.reason,
            Action::Delete { .. } => "delete",
            _ => "other",
        };
        plan.actions.iter().map(reason).collect()
    }

    const ACTIVE: &str =
        r#"{"lastScheduleTime":"2026-03-01T10:01:00Z","active":[{"name":"c-1","namespace":"ns","uid":"u-c-1"}]}"#;

    #[test]
    fn the_due_job_is_started_once() {
        let plan = run(cron("", "{}"), Vec::new());
        let start = plan.start.unwrap();
        assert_eq!(start.at.to_string(), "2026-03-01T10:02:00Z");
        assert_eq!(metadata::name(&start.job), format!("c-{}", start.at.seconds / 60));
        assert_eq!(metadata::annotation(&start.job, SCHEDULED), Some("2026-03-01T10:02:00Z"));
        assert_eq!(plan.again, Some(Duration::from_millis(50_100)));
        let done = r#"{"lastScheduleTime":"2026-03-01T10:02:00Z"}"#;
        assert_eq!(run(cron("", done), Vec::new()).start, None);
        assert_eq!(run(cron(r#","suspend":true"#, "{}"), Vec::new()).start, None);
    }

    #[test]
    fn policies_decide_about_jobs_that_run() {
        let running = || vec![job("c-1", None)];
        assert!(run(cron("", ACTIVE), running()).start.is_some());
        let forbid = run(cron(r#","concurrencyPolicy":"Forbid""#, ACTIVE), running());
        assert_eq!((forbid.start.is_none(), reasons(&forbid)), (true, vec!["JobAlreadyActive"]));
        assert_eq!(forbid.status, cron("", ACTIVE).status);
        let replace = run(cron(r#","concurrencyPolicy":"Replace""#, ACTIVE), running());
        assert_eq!((replace.start.is_some(), reasons(&replace)), (true, vec!["delete", "SuccessfulDelete"]));
        assert!(replace.status.active.is_empty());
    }

    #[test]
    fn jobs_that_ended_or_vanished_leave_the_list() {
        let plan = run(cron(r#","suspend":true"#, ACTIVE), vec![job("c-1", Some("Complete"))]);
        assert_eq!(reasons(&plan), ["SawCompletedJob"]);
        assert!(plan.status.active.is_empty() && plan.status.last_successful_time.is_some());
        let plan = run(cron(r#","suspend":true"#, ACTIVE), Vec::new());
        assert_eq!(reasons(&plan), ["MissingJob"]);
        let none =
            run(cron(r#","suspend":true,"successfulJobsHistoryLimit":0"#, "{}"), vec![job("c-1", Some("Complete"))]);
        assert_eq!(reasons(&none), ["delete", "SuccessfulDelete"]);
        // Kubernetes: the end of a Job that is deleted at once is not reported.
        let at_once =
            run(cron(r#","suspend":true,"successfulJobsHistoryLimit":0"#, ACTIVE), vec![job("c-1", Some("Complete"))]);
        assert_eq!(reasons(&at_once), ["delete", "SuccessfulDelete"]);
        assert!(at_once.status.active.is_empty() && at_once.status.last_successful_time.is_some());
        let forgotten = run(cron(r#","suspend":true"#, "{}"), vec![job("c-1", None)]);
        assert_eq!(reasons(&forgotten), ["UnexpectedJob"]);
    }

    #[test]
    fn impossible_schedule_is_reported() {
        let plan = run(cron_at("59 23 31 2 *", "", "{}"), Vec::new());
        assert_eq!((plan.start.is_none(), plan.again, reasons(&plan)), (true, None, vec!["InvalidSchedule"]));
        let Some(Action::Event(event)) = plan.actions.first() else { panic!("{:?}", plan.actions) };
        let wanted = "invalid schedule: 59 23 31 2 * : time difference between two schedules is less than 1 second";
        assert_eq!(event.message, wanted);
        assert_eq!(reasons(&run(cron_at("0 0 29 2 *", "", "{}"), Vec::new())), [""; 0]);
    }

    #[test]
    fn another_schedule_waits_for_its_next_time() {
        let (old, new) = (cron_at("0 0 * * *", "", "{}"), cron("", "{}"));
        assert!(was_rescheduled(&old, &new) && !was_rescheduled(&new, &new));
        assert!(was_rescheduled(&new, &cron(r#","timeZone":"Asia/Tokyo""#, "{}")));
        let now = Timestamp::parse("2026-03-01T10:02:10Z").unwrap();
        // 10:01 and 10:02 would have been due, and are not made up.
        assert_eq!(wait(&new, now), Some(Duration::from_millis(50_100)));
    }

    #[test]
    fn late_start_is_skipped() {
        let plan = run(cron(r#","startingDeadlineSeconds":5"#, "{}"), Vec::new());
        assert_eq!((plan.start, plan.actions.len()), (None, 0), "the deadline hides it");
        let message = mail_time(Timestamp::parse("2026-03-01T10:02:00Z").unwrap());
        assert_eq!(message, "Sun, 01 Mar 2026 10:02:00 +0000");
    }
}
