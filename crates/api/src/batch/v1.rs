//! `batch/v1`: jobs.

use crate::core::v1::PodTemplateSpec;
use crate::json::{Text, Value};
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
    }
}

view! {
    /// What is wanted of a job.
    pub struct JobSpec {
        pub parallelism: Option<i32>,
        pub completions: Option<i32>,
        pub active_deadline_seconds: Option<i64>,
        pub backoff_limit: Option<i32>,
        pub selector: Option<LabelSelector>,
        pub manual_selector: Option<bool>,
        pub template: PodTemplateSpec,
        pub ttl_seconds_after_finished: Option<i32>,
        pub completion_mode: Option<Text>,
        pub suspend: Option<bool>,
        pub pod_replacement_policy: Option<Text>,
        pub managed_by: Option<Text>,
    }

    /// How a job is doing.
    pub struct JobStatus {
        pub conditions: Vec<JobCondition>,
        pub start_time: Option<Timestamp>,
        pub completion_time: Option<Timestamp>,
        pub active: i32,
        pub succeeded: i32,
        pub failed: i32,
        pub terminating: Option<i32>,
        pub completed_indexes: Text,
        pub uncounted_terminated_pods: Option<Value>,
        pub ready: Option<i32>,
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

    /// When to start jobs, and which.
    pub struct CronJobSpec {
        pub schedule: Text,
        pub suspend: Option<bool>,
        pub job_template: JobTemplateSpec,
    }

    /// A job to be.
    pub struct JobTemplateSpec {
        pub metadata: ObjectMeta,
        pub spec: JobSpec,
    }
}
