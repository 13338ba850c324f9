//! Pods of a Job.

use api::batch::v1::Job;
use api::core::v1::Pod;
use api::json;
use api::json::Value;
use api::well_known::ANNOTATION_JOB_COMPLETION_INDEX;
use client::Document;
use client::resources::ServedView as _;

use super::FINALIZER;
use super::policy::verdict;
use crate::machinery::ownership::Controller;
use crate::machinery::pods::from_template;

const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
const VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The server adds five letters, and names are at most 63 long.
const PREFIX_MAX: usize = 58;

/// The index of a pod.
pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.get(ANNOTATION_JOB_COMPLETION_INDEX)?.parse().ok().filter(|index| *index >= 0)
}

fn count(pod: &Pod, annotation: &str) -> u32 {
    pod.metadata.annotations.get(annotation).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Number of earlier failures of a pod's index that count.
pub(super) fn failures_of(pod: &Pod) -> u32 {
    count(pod, FAILURES)
}

/// Number of all earlier failures of a pod's index.
pub(super) fn all_failures_of(pod: &Pod) -> u32 {
    count(pod, FAILURES).saturating_add(count(pod, IGNORED))
}

/// A pod without an index.
pub(super) fn pod(job: &Document<Job>) -> Value {
    let controller = Controller { resource: &Job::RESOURCE, metadata: job.metadata() };
    let template = job.value().at(&["spec", "template"]).cloned().unwrap_or_default();
    let mut pod = from_template(&template, controller);
    let finalizers = pod.make_list_at(&["metadata", "finalizers"]);
    if !finalizers.iter().any(|it| it.as_str() == Some(FINALIZER)) {
        finalizers.push(FINALIZER.into());
    }
    pod
}

/// The pod of an index; `before` is the failed pod that it replaces.
pub(super) fn pod_of_index(job: &Document<Job>, index: i32, before: Option<&Pod>) -> Value {
    let mut pod = pod(job);
    let name = &job.metadata().name;
    let number = index.to_string();
    pod.set_at(&["metadata", "annotations", ANNOTATION_JOB_COMPLETION_INDEX], number.as_str());
    pod.set_at(&["metadata", "labels", ANNOTATION_JOB_COMPLETION_INDEX], number.as_str());
    let ending = format!("-{number}-");
    let kept = name.get(..PREFIX_MAX.saturating_sub(ending.len())).unwrap_or(name);
    pod.set_at(&["metadata", "generateName"], format!("{kept}{ending}"));
    pod.set_at(&["spec", "hostname"], format!("{name}-{number}"));
    if job.spec.backoff_limit_per_index.is_some() {
        let (mut failures, mut ignored) = before.map_or((0, 0), |pod| (count(pod, FAILURES), count(pod, IGNORED)));
        if let Some(before) = before {
            if verdict(job, before).counts() {
                failures = failures.saturating_add(1);
            } else {
                ignored = ignored.saturating_add(1);
            }
        }
        pod.set_at(&["metadata", "annotations", FAILURES], failures.to_string());
        if ignored > 0 {
            pod.set_at(&["metadata", "annotations", IGNORED], ignored.to_string());
        }
    }
    for list in ["initContainers", "containers"] {
        let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(publish_index);
    }
    pod
}

/// Adds the index to a container's environment, unless it is already set.
fn publish_index(container: &mut Value) {
    let variables = container.make_list_at(&["env"]);
    if !variables.iter().any(|variable| variable.str_at(&["name"]) == Some(VARIABLE)) {
        let path = format!("metadata.labels['{ANNOTATION_JOB_COMPLETION_INDEX}']");
        variables.push(json!({"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
    }
}
