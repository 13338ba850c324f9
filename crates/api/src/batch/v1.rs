//! `batch/v1`: jobs, and jobs at given times.

use crate::core::v1::{ObjectReference, PodTemplateSpec};
use crate::json::Text;
use crate::meta::v1::{LabelSelector, ObjectMeta};
use crate::time::Timestamp;
use crate::view::{object, view};

object! {
    /// Pods that run to an end.
    pub struct Job("batch", "v1") {
        pub spec: JobSpec,
        pub status: JobStatus,
    }

    /// Jobs at given times.
    pub struct CronJob("batch", "v1") {
        pub spec: CronJobSpec,
        pub status: CronJobStatus,
    }
}

view! {
    /// Desired state of a Job.
    pub struct JobSpec {
        pub parallelism: Option<i32>,
        pub completions: Option<i32>,
        pub active_deadline_seconds: Option<i64>,
        pub pod_failure_policy: Option<PodFailurePolicy>,
        pub success_policy: Option<SuccessPolicy>,
        pub backoff_limit: Option<i32>,
        pub backoff_limit_per_index: Option<i32>,
        pub max_failed_indexes: Option<i32>,
        pub selector: Option<LabelSelector>,
        pub manual_selector: Option<bool>,
        pub template: PodTemplateSpec,
        pub ttl_seconds_after_finished: Option<i32>,
        pub completion_mode: Option<Text>,
        pub suspend: Option<bool>,
        pub pod_replacement_policy: Option<Text>,
        pub managed_by: Option<Text>,
    }

    /// Observed state of a Job.
    pub struct JobStatus {
        pub conditions: Vec<JobCondition>,
        pub start_time: Option<Timestamp>,
        pub completion_time: Option<Timestamp>,
        pub active: i32,
        pub succeeded: i32,
        pub failed: i32,
        pub terminating: Option<i32>,
        pub completed_indexes: Text,
        pub failed_indexes: Option<Text>,
        pub uncounted_terminated_pods: Option<UncountedTerminatedPods>,
        pub ready: Option<i32>,
    }

    /// The uids of pods that have ended and are not counted yet.
    pub struct UncountedTerminatedPods {
        pub succeeded: Vec<Text>,
        pub failed: Vec<Text>,
    }

    /// Effect of pod failures on the job.
    pub struct PodFailurePolicy {
        pub rules: Vec<PodFailurePolicyRule>,
    }

    /// Action for failures of one kind. The first matching rule applies.
    pub struct PodFailurePolicyRule {
        pub action: Text,
        pub on_exit_codes: Option<OnExitCodes>,
        pub on_pod_conditions: Vec<OnPodCondition>,
    }

    /// Matches exit codes.
    pub struct OnExitCodes {
        pub container_name: Option<Text>,
        pub operator: Text,
        pub values: Vec<i32>,
    }

    /// Matches a pod condition.
    pub struct OnPodCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
    }

    /// Conditions under which a job succeeds before all indexes have.
    pub struct SuccessPolicy {
        pub rules: Vec<SuccessPolicyRule>,
    }

    /// Indexes that must succeed, and their number.
    pub struct SuccessPolicyRule {
        pub succeeded_indexes: Option<Text>,
        pub succeeded_count: Option<i32>,
    }

    /// One aspect of a job's state.
    pub struct JobCondition {
        #[serde(rename = "type")]
        pub condition_type: Text,
        pub status: Text,
        pub last_probe_time: Option<Timestamp>,
        pub last_transition_time: Option<Timestamp>,
        pub reason: Text,
        pub message: Text,
    }

    /// Schedule and template of jobs.
    pub struct CronJobSpec {
        pub schedule: Text,
        pub time_zone: Option<Text>,
        pub starting_deadline_seconds: Option<i64>,
        pub concurrency_policy: Text,
        pub suspend: Option<bool>,
        pub job_template: JobTemplateSpec,
        pub successful_jobs_history_limit: Option<i32>,
        pub failed_jobs_history_limit: Option<i32>,
    }

    /// Active jobs, and the time of the last start.
    pub struct CronJobStatus {
        pub active: Vec<ObjectReference>,
        pub last_schedule_time: Option<Timestamp>,
        pub last_successful_time: Option<Timestamp>,
    }

    /// A job to be.
    pub struct JobTemplateSpec {
        pub metadata: ObjectMeta,
        pub spec: JobSpec,
    }
}
