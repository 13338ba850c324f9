//! Defaults of workloads: the groups apps and batch.

use api::json::Value;

use crate::apps::TEMPLATE_GENERATION;

pub(super) fn apply(name: &str, object: &mut Value) {
    match name {
        "Deployment" => {
            let spec = object.make("spec");
            spec.set_missing("replicas", 1_i64);
            let strategy = spec.make("strategy");
            strategy.set_default("type", "RollingUpdate");
            if strategy.text("type") == "RollingUpdate" {
                let rolling = strategy.make("rollingUpdate");
                rolling.set_missing("maxUnavailable", "25%");
                rolling.set_missing("maxSurge", "25%");
            }
            spec.set_missing("revisionHistoryLimit", 10_i64);
            spec.set_missing("progressDeadlineSeconds", 600_i64);
        }
        "DaemonSet" => {
            let spec = object.make("spec");
            let strategy = spec.make("updateStrategy");
            strategy.set_default("type", "RollingUpdate");
            if strategy.text("type") == "RollingUpdate" {
                let rolling = strategy.make("rollingUpdate");
                rolling.set_missing("maxUnavailable", 1_i64);
                rolling.set_missing("maxSurge", 0_i64);
            }
            spec.set_missing("revisionHistoryLimit", 10_i64);
            // A field inside Kubernetes: it is always there, and preparation counts it.
            object.make("metadata").make("annotations").set_missing(TEMPLATE_GENERATION, "0");
        }
        "StatefulSet" => stateful_set(object.make("spec")),
        "ReplicaSet" => object.make("spec").set_missing("replicas", 1_i64),
        "Job" => job(object),
        "CronJob" => {
            let spec = object.make("spec");
            spec.set_default("concurrencyPolicy", "Allow");
            spec.set_missing("suspend", false);
            spec.set_missing("successfulJobsHistoryLimit", 3_i64);
            spec.set_missing("failedJobsHistoryLimit", 1_i64);
        }
        "PodFailurePolicyOnPodConditionsPattern" => object.set_default("status", "True"),
        _ => {}
    }
}

fn stateful_set(spec: &mut Value) {
    spec.set_default("podManagementPolicy", "OrderedReady");
    let strategy = spec.make("updateStrategy");
    if strategy.text("type").is_empty() {
        strategy.set("type", "RollingUpdate");
        strategy.make("rollingUpdate");
    }
    if strategy.text("type") == "RollingUpdate" && strategy.has("rollingUpdate") {
        let rolling = strategy.make("rollingUpdate");
        rolling.set_missing("partition", 0_i64);
        rolling.set_missing("maxUnavailable", 1_i64);
    }
    let retention = spec.make("persistentVolumeClaimRetentionPolicy");
    retention.set_default("whenDeleted", "Retain");
    retention.set_default("whenScaled", "Retain");
    spec.set_missing("replicas", 1_i64);
    spec.set_missing("revisionHistoryLimit", 10_i64);
    for claim in spec.list_mut("volumeClaimTemplates") {
        claim.set("kind", "PersistentVolumeClaim");
        claim.set("apiVersion", "v1");
    }
}

fn job(job: &mut Value) {
    let labels = job.at(&["spec", "template", "metadata", "labels"]).cloned();
    let spec = job.make("spec");
    if !spec.has("completions") && !spec.has("parallelism") {
        spec.set("completions", 1_i64);
    }
    spec.set_missing("parallelism", 1_i64);
    let backoff = if spec.has("backoffLimitPerIndex") { i64::from(i32::MAX) } else { 6 };
    spec.set_missing("backoffLimit", backoff);
    spec.set_missing("completionMode", "NonIndexed");
    spec.set_missing("suspend", false);
    let replacement = if spec.has("podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    spec.set_missing("podReplacementPolicy", replacement);
    spec.set_missing("manualSelector", false);
    let metadata = job.make("metadata");
    if let (true, Some(labels)) = (metadata.map("labels").is_empty(), labels) {
        metadata.set("labels", labels);
    }
}
