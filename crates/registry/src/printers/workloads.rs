//! Deployments, replica sets, stateful and daemon sets, jobs.

use api::age::human_duration;
use api::json::Value;
use api::time::Timestamp;

use super::Description::{Field, Text};
use super::{
    AGE, Column, NAME, PLAIN, Printer, age, is_deleting, joined, label_text, name, number, or_none, selector_text,
    since, text, wide,
};

const CONTAINERS: Column = wide("Containers", Text("Names of each container in the template."));
const IMAGES: Column = wide("Images", Text("Images referenced by each container in the template."));

fn containers(object: &Value, field: &str) -> Value {
    joined(object.list_at(&["spec", "template", "spec", "containers"]), field).into()
}

fn selector(object: &Value) -> Value {
    let selector = object.at(&["spec", "selector"]);
    // Replication controllers have bare labels.
    if object.str_at(&["kind"]) == Some("ReplicationController") {
        return label_text(selector).into();
    }
    selector_text(selector).into()
}

pub(crate) const DEPLOYMENTS: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", Text("Number of the pod with ready state")),
        text("Up-to-date", Field("io.k8s.api.apps.v1.DeploymentStatus", "updatedReplicas")),
        text("Available", Field("io.k8s.api.apps.v1.DeploymentStatus", "availableReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Field("io.k8s.api.apps.v1.DeploymentSpec", "selector")),
    ],
    cells: |it, now| {
        let ready = format!("{}/{}", it.int_at(&["status", "readyReplicas"]), it.int_at(&["spec", "replicas"]));
        vec![
            name(it),
            ready.into(),
            it.int_at(&["status", "updatedReplicas"]).into(),
            it.int_at(&["status", "availableReplicas"]).into(),
            age(it, now),
            containers(it, "name"),
            containers(it, "image"),
            selector(it),
        ]
    },
    ..PLAIN
};

pub(crate) const REPLICA_SETS: Printer = Printer {
    columns: &[
        NAME,
        number("Desired", Field("io.k8s.api.apps.v1.ReplicaSetSpec", "replicas")),
        number("Current", Field("io.k8s.api.apps.v1.ReplicaSetStatus", "replicas")),
        number("Ready", Field("io.k8s.api.apps.v1.ReplicaSetStatus", "readyReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Field("io.k8s.api.apps.v1.ReplicaSetSpec", "selector")),
    ],
    cells: |it, now| {
        vec![
            name(it),
            it.int_at(&["spec", "replicas"]).into(),
            it.int_at(&["status", "replicas"]).into(),
            it.int_at(&["status", "readyReplicas"]).into(),
            age(it, now),
            containers(it, "name"),
            containers(it, "image"),
            selector(it),
        ]
    },
    ..PLAIN
};

pub(crate) const REPLICATION_CONTROLLERS: Printer = Printer {
    columns: &[
        NAME,
        number("Desired", Field("io.k8s.api.core.v1.ReplicationControllerSpec", "replicas")),
        number("Current", Field("io.k8s.api.core.v1.ReplicationControllerStatus", "replicas")),
        number("Ready", Field("io.k8s.api.core.v1.ReplicationControllerStatus", "readyReplicas")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Field("io.k8s.api.core.v1.ReplicationControllerSpec", "selector")),
    ],
    ..REPLICA_SETS
};

pub(crate) const STATEFUL_SETS: Printer = Printer {
    columns: &[NAME, text("Ready", Text("Number of the pod with ready state")), AGE, CONTAINERS, IMAGES],
    cells: |it, now| {
        let ready = format!("{}/{}", it.int_at(&["status", "readyReplicas"]), it.int_at(&["spec", "replicas"]));
        vec![name(it), ready.into(), age(it, now), containers(it, "name"), containers(it, "image")]
    },
    ..PLAIN
};

pub(crate) const DAEMON_SETS: Printer = Printer {
    columns: &[
        NAME,
        number("Desired", Field("io.k8s.api.apps.v1.DaemonSetStatus", "desiredNumberScheduled")),
        number("Current", Field("io.k8s.api.apps.v1.DaemonSetStatus", "currentNumberScheduled")),
        number("Ready", Field("io.k8s.api.apps.v1.DaemonSetStatus", "numberReady")),
        number("Up-to-date", Field("io.k8s.api.apps.v1.DaemonSetStatus", "updatedNumberScheduled")),
        number("Available", Field("io.k8s.api.apps.v1.DaemonSetStatus", "numberAvailable")),
        text("Node Selector", Field("io.k8s.api.core.v1.PodSpec", "nodeSelector")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Field("io.k8s.api.apps.v1.DaemonSetSpec", "selector")),
    ],
    cells: |it, now| {
        vec![
            name(it),
            it.int_at(&["status", "desiredNumberScheduled"]).into(),
            it.int_at(&["status", "currentNumberScheduled"]).into(),
            it.int_at(&["status", "numberReady"]).into(),
            it.int_at(&["status", "updatedNumberScheduled"]).into(),
            it.int_at(&["status", "numberAvailable"]).into(),
            label_text(it.at(&["spec", "template", "spec", "nodeSelector"])).into(),
            age(it, now),
            containers(it, "name"),
            containers(it, "image"),
            selector(it),
        ]
    },
    ..PLAIN
};

pub(crate) const JOBS: Printer = Printer {
    columns: &[
        NAME,
        text("Status", Text("Status of the job.")),
        text("Completions", Field("io.k8s.api.batch.v1.JobStatus", "succeeded")),
        text("Duration", Text("Time required to complete the job.")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Field("io.k8s.api.batch.v1.JobSpec", "selector")),
    ],
    cells: |it, now| {
        vec![
            name(it),
            job_status(it).into(),
            completions(it).into(),
            duration(it, now).into(),
            age(it, now),
            containers(it, "name"),
            containers(it, "image"),
            selector(it),
        ]
    },
    ..PLAIN
};

fn job_status(job: &Value) -> &'static str {
    let has = |name: &str| super::condition(job, name) == Some("True");
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if is_deleting(job) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = job.int_at(&["status", "succeeded"]);
    let parallelism = job.int_at(&["spec", "parallelism"]);
    match job.i64_at(&["spec", "completions"]) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, now: Timestamp) -> String {
    let time = |field: &str| job.str_at(&["status", field]).and_then(|text| Timestamp::parse(text).ok());
    match (time("startTime"), time("completionTime")) {
        (None, _) => String::new(),
        (Some(start), None) => human_duration(now.seconds.saturating_sub(start.seconds)),
        (Some(start), Some(end)) => human_duration(end.seconds.saturating_sub(start.seconds)),
    }
}

pub(crate) const CRON_JOBS: Printer = Printer {
    columns: &[
        NAME,
        text("Schedule", Field("io.k8s.api.batch.v1.CronJobSpec", "schedule")),
        text("Timezone", Field("io.k8s.api.batch.v1.CronJobSpec", "timeZone")),
        Column {
            name: "Suspend",
            kind: "boolean",
            description: Field("io.k8s.api.batch.v1.CronJobSpec", "suspend"),
            priority: 0,
        },
        number("Active", Field("io.k8s.api.batch.v1.CronJobStatus", "active")),
        text("Last Schedule", Field("io.k8s.api.batch.v1.CronJobStatus", "lastScheduleTime")),
        AGE,
        CONTAINERS,
        IMAGES,
        wide("Selector", Field("io.k8s.api.batch.v1.JobSpec", "selector")),
    ],
    cells: |it, now| {
        let last = match it.str_at(&["status", "lastScheduleTime"]) {
            Some(time) => since(Some(time), now),
            None => "<none>".to_owned(),
        };
        let template = it.at(&["spec", "jobTemplate"]).cloned().unwrap_or_default();
        let suspend = match it.bool_at(&["spec", "suspend"]) {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        };
        vec![
            name(it),
            or_none(it, &["spec", "schedule"]),
            or_none(it, &["spec", "timeZone"]),
            suspend.into(),
            i64::try_from(it.list_at(&["status", "active"]).len()).unwrap_or(i64::MAX).into(),
            last.into(),
            age(it, now),
            containers(&template, "name"),
            containers(&template, "image"),
            selector(&template),
        ]
    },
    ..PLAIN
};
