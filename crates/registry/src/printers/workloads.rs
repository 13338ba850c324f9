//! Deployments, replica sets, stateful and daemon sets, jobs.

use api::age::human_duration;
use api::json::Value;
use api::time::Timestamp;

use super::{
    AGE, NAME, PLAIN, Printer, age, is_deleting, joined, label_text, name, number, or_none, selector_text, since, text,
    wide,
};

const CONTAINERS: super::Column = wide("Containers", "The names of the containers.");
const IMAGES: super::Column = wide("Images", "The images of the containers.");
const SELECTOR: super::Column = wide("Selector", "Which pods belong to it.");

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
        text("Ready", "How many pods are ready, of how many."),
        text("Up-to-date", "How many pods have the last template."),
        text("Available", "How many pods are available."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
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
        number("Desired", "How many pods there should be."),
        number("Current", "How many pods there are."),
        number("Ready", "How many pods are ready."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
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

pub(crate) const STATEFUL_SETS: Printer = Printer {
    columns: &[NAME, text("Ready", "How many pods are ready, of how many."), AGE, CONTAINERS, IMAGES],
    cells: |it, now| {
        let ready = format!("{}/{}", it.int_at(&["status", "readyReplicas"]), it.int_at(&["spec", "replicas"]));
        vec![name(it), ready.into(), age(it, now), containers(it, "name"), containers(it, "image")]
    },
    ..PLAIN
};

pub(crate) const DAEMON_SETS: Printer = Printer {
    columns: &[
        NAME,
        number("Desired", "On how many nodes a pod should run."),
        number("Current", "On how many one does."),
        number("Ready", "How many pods are ready."),
        number("Up-to-date", "How many pods have the last template."),
        number("Available", "How many pods are available."),
        text("Node Selector", "On which nodes."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
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
        text("Status", "The state of the job."),
        text("Completions", "How many pods succeeded, of how many."),
        text("Duration", "How long it took, or takes."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
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
        text("Schedule", "When it runs."),
        text("Timezone", "In which zone."),
        super::Column { name: "Suspend", kind: "boolean", description: "Whether it pauses.", priority: 0 },
        number("Active", "How many jobs run."),
        text("Last Schedule", "When it ran last."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
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
