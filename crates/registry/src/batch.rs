//! Kinds of the group batch: Jobs and CronJobs.
//!
//! Follows `pkg/apis/batch/validation` and the strategies of both.

mod cron;
mod policies;

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use crate::core::pod::options::Options;
use crate::core::pod::prepare::{count_generation, drop_disabled_fields};
use crate::core::pod::{spec as pod_spec, warnings as pod_warnings};
use crate::document::same;
use crate::meta::{self, IMMUTABLE, non_negative};
use crate::render;
use crate::selectors::Selection;
use crate::strategy::{Context, PLAIN, Part, Strategy};
use crate::workload::{self, template_options};

const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

pub(crate) const JOB: Strategy = Strategy {
    prepare_create: |job, context| {
        generate_selector(job);
        workload::prepare_create(job, context);
        job.make("spec").unset("scheduling");
    },
    validate_create: |job, context, errors| {
        meta::validate(job, true, names::dns1123_subdomain, errors);
        validate_generated_selector(job, true, errors);
        let options = template_options(None, context);
        validate_spec(job.field("spec"), &options, &Path::new("spec"), errors);
        validate_name(job, errors);
    },
    prepare_update: |job, old, context| {
        if !old.field("spec").has("scheduling") {
            job.make("spec").unset("scheduling");
        }
        workload::prepare_update(job, old, context);
    },
    validate_update,
    warn: |job, old, _| {
        let mut warnings = workload::warn_name(job, old);
        if is_changed(job, old) {
            warnings.extend(warn_spec(job.field("spec"), &Path::new("spec")));
        }
        warnings
    },
    subresources: &[(
        "status",
        Part {
            prepare: |it, old, _| workload::keep_spec(it, old),
            validate: |job, old, _, errors| meta::validate_update(job, old, errors),
        },
    )],
    ..PLAIN
};

pub(crate) const CRON_JOB: Strategy = Strategy {
    prepare_create: |cron_job, _| {
        cron_job.set("status", Value::object());
        cron_job.make("metadata").set("generation", 1_i64);
        drop_job_template_fields(cron_job, None);
    },
    validate_create: |cron_job, context, errors| {
        meta::validate(cron_job, true, names::dns1123_subdomain, errors);
        validate_cron_job(cron_job, None, context, errors);
        let name = cron_job.field("metadata").text("name");
        if name.len() > 52 {
            errors.invalid(Path::new("metadata.name"), name, "must be no more than 52 characters");
        }
        require_schedule(cron_job, errors);
    },
    prepare_update: |cron_job, old, _| {
        cron_job.set("status", old.field("status").clone());
        drop_job_template_fields(cron_job, Some(old));
        count_generation(cron_job, old);
    },
    validate_update: |cron_job, old, context, errors| {
        meta::validate_update(cron_job, old, errors);
        validate_cron_job(cron_job, Some(old), context, errors);
        require_schedule(cron_job, errors);
    },
    warn: |cron_job, old, _| {
        let mut warnings = workload::warn_name(cron_job, old);
        let spec = cron_job.field("spec");
        if is_changed(cron_job, old) {
            warnings.extend(warn_spec(spec.field("jobTemplate").field("spec"), &Path::new("spec.jobTemplate.spec")));
        }
        if old.is_some() && spec.text("schedule").contains("TZ") {
            warnings.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".to_owned());
        }
        warnings
    },
    subresources: &[(
        "status",
        Part {
            prepare: |it, old, _| workload::keep_spec(it, old),
            validate: |cron_job, old, _, errors| meta::validate_update(cron_job, old, errors),
        },
    )],
    ..PLAIN
};

fn is_changed(object: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| old.field("metadata").int("generation") != object.field("metadata").int("generation"))
}

/// Returns the warnings for the spec of a job.
fn warn_spec(spec: &Value, at: &Path<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_large = spec.int("completions") > 100_000 && spec.int("parallelism") > 10_000;
    if spec.text("completionMode") == "Indexed" && is_large {
        warnings.push(format!("{at}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"));
    }
    warnings.extend(pod_warnings::template(spec.field("template"), &at.child("template")));
    warnings
}

fn drop_job_template_fields(cron_job: &mut Value, old: Option<&Value>) {
    const PATH: [&str; 5] = ["spec", "jobTemplate", "spec", "template", "spec"];
    let old = old.and_then(|old| old.at(&PATH));
    let job = cron_job.make("spec").make("jobTemplate").make("spec");
    job.unset("scheduling");
    if let Some(spec) = job.make("template").get_mut("spec") {
        drop_disabled_fields(spec, old);
    }
}

/// Labels by which a job finds its pods.
fn generate_selector(job: &mut Value) {
    if job.field("spec").flag("manualSelector") {
        return;
    }
    let metadata = job.field("metadata");
    let (name, uid) = (metadata.text("name").to_owned(), metadata.text("uid").to_owned());
    let template = job.field("spec").field("template").field("metadata").map("labels");
    // Labels that were taken over from the template are one map with it in Kubernetes.
    let is_shared = !template.is_empty() && metadata.map("labels") == template;
    let spec = job.make("spec");
    let labels = spec.make("template").make("metadata").make("labels");
    for key in NAME_LABELS {
        labels.set_missing(key, name.as_str());
    }
    for key in UID_LABELS {
        labels.set_missing(key, uid.as_str());
    }
    let shared = is_shared.then(|| labels.clone());
    if let Some(labels) = shared {
        job.make("metadata").set("labels", labels);
    }
    let spec = job.make("spec");
    spec.make("selector").make("matchLabels").set_missing("batch.kubernetes.io/controller-uid", uid);
}

fn validate_generated_selector(job: &Value, with_prefixed: bool, errors: &mut Errors) {
    let (spec, metadata) = (job.field("spec"), job.field("metadata"));
    if spec.flag("manualSelector") || !spec.has("selector") {
        return;
    }
    let (name, uid) = (metadata.text("name"), metadata.text("uid"));
    let template = Path::new("spec.template.metadata");
    let at = template.child("labels");
    let labels = spec.field("template").field("metadata").map("labels");
    let mut expected = api::json::Object::new();
    let pairs = [(UID_LABELS[0], uid), (NAME_LABELS[0], name), (UID_LABELS[1], uid), (NAME_LABELS[1], name)];
    for (index, (key, value)) in pairs.into_iter().enumerate() {
        if index >= 2 && !with_prefixed {
            break;
        }
        expected.insert(key, value);
        match labels.get(key).and_then(Value::as_str) {
            None => errors.required(at.key(key), format!("must be '{value}'")),
            Some(found) if found != value => {
                errors.invalid(at.key(key), Value::Object(labels.clone()), format!("must be '{value}'"));
            }
            Some(_) => {}
        }
    }
    let selection = Selection::new(spec.field("selector"));
    if !matches!(selection, Selection::Bad) && !selection.matches(&expected) {
        errors.invalid(Path::new("spec.selector"), spec.field("selector").clone(), "`selector` not auto-generated");
    }
}

/// Pods of indexed jobs are named after the job and their index.
fn validate_name(job: &Value, errors: &mut Errors) {
    let spec = job.field("spec");
    let completions = spec.int("completions");
    if spec.text("completionMode") != "Indexed" || completions <= 0 {
        return;
    }
    let name = job.field("metadata").text("name");
    let longest = format!("{name}-{}", completions.saturating_sub(1));
    if !names::dns1123_label(&longest).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.invalid(Path::new("metadata.name"), name, detail);
    }
}

fn validate_spec(spec: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    validate_job_spec(spec, options, at, errors);
    match spec.optional("selector") {
        None => errors.required(at.child("selector"), ""),
        Some(selector) => {
            let allow = options.allow_bad_selector_values;
            meta::validate_selector(selector, allow, &at.child("selector"), errors);
        }
    }
    let selection = Selection::new(spec.field("selector"));
    let metadata = spec.field("template").field("metadata");
    if !matches!(selection, Selection::Bad) && !selection.matches(metadata.map("labels")) {
        let shown = match metadata.field("labels") {
            Value::Null => BadValue::Rendered("null".to_owned()),
            labels => labels.clone().into(),
        };
        let here = at.child("template");
        let here = here.child("metadata");
        errors.invalid(here.child("labels"), shown, "`selector` does not match template `labels`");
    }
}

fn validate_job_spec(spec: &Value, options: &Options<'_>, at: &Path<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        non_negative(spec.int(name), at.child(name), errors);
    }
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        errors.required(at.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec.optional_text("managedBy") {
        policies::validate_manager(manager, at.child("managedBy"), errors);
    }
    validate_completion_mode(spec, at, errors);
    if spec.has("podFailurePolicy") {
        policies::validate_failure(spec, &at.child("podFailurePolicy"), errors);
    }
    if let Some(policy) = spec.optional("successPolicy") {
        if spec.text("completionMode") == "Indexed" {
            policies::validate_success(spec, &at.child("successPolicy"), errors);
        } else {
            let shown = render::internal("k8s.io/api/batch/v1", "SuccessPolicy", policy);
            errors.invalid(at.child("successPolicy"), shown, "requires indexed completion mode");
        }
    }
    if let Some(policy) = spec.optional_text("podReplacementPolicy") {
        let supported: &[&str] =
            if spec.has("podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        if !supported.contains(&policy) {
            errors.not_supported(at.child("podReplacementPolicy"), policy, supported);
        }
    }
    let here = at.child("template");
    pod_spec::validate_template(spec.field("template"), options, &here, errors);
    let pod = here.child("spec");
    let here = pod.child("restartPolicy");
    match spec.field("template").field("spec").text("restartPolicy") {
        "Always" | "" => errors.required(here, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" => {
            if spec.has("podFailurePolicy") {
                let detail = "only \"Never\" is supported when podFailurePolicy is specified";
                errors.invalid(here, "OnFailure", detail);
            }
        }
        other => errors.not_supported(here, other, &["OnFailure", "Never"]),
    }
}

fn validate_completion_mode(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mode = spec.optional_text("completionMode");
    let completions = spec.optional_int("completions");
    let parallelism = spec.optional_int("parallelism");
    let failed = spec.optional_int("maxFailedIndexes");
    if let Some(mode) = mode.filter(|it| !matches!(*it, "NonIndexed" | "Indexed")) {
        errors.not_supported(at.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if mode == Some("Indexed") {
        if completions.is_none() {
            errors.required(at.child("completions"), "when completion mode is Indexed");
        }
        if let Some(parallelism) = parallelism.filter(|it| *it > 100_000) {
            let detail = "must be less than or equal to 100000 when completion mode is Indexed";
            errors.invalid(at.child("parallelism"), parallelism, detail);
        }
        if let (Some(completions), Some(failed)) = (completions, failed)
            && failed > completions
        {
            errors.invalid(at.child("maxFailedIndexes"), failed, "must be less than or equal to completions");
        }
        if let Some(failed) = failed.filter(|it| *it > 100_000) {
            errors.invalid(at.child("maxFailedIndexes"), failed, "must be less than or equal to 100000");
        }
        if completions.is_some_and(|it| it > 100_000) && spec.has("backoffLimitPerIndex") {
            let detail = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
            if failed.is_none() {
                let detail = "must be specified when completions is above 100000";
                errors.required(at.child("maxFailedIndexes"), detail);
            }
            if let Some(parallelism) = parallelism.filter(|it| *it > 10_000) {
                errors.invalid(at.child("parallelism"), parallelism, detail);
            }
            if let Some(failed) = failed.filter(|it| *it > 10_000) {
                errors.invalid(at.child("maxFailedIndexes"), failed, detail);
            }
        }
    }
    if matches!(mode, None | Some("NonIndexed")) {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = spec.optional_int(name) {
                errors.invalid(at.child(name), value, "requires indexed completion mode");
            }
        }
    }
}

fn validate_update(job: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(job, old, errors);
    let mut options = template_options(Some(old), context);
    options.allow_bad_selector_values |= meta::has_bad_values(old.field("spec").field("selector"));
    let (spec, old_spec, at) = (job.field("spec"), old.field("spec"), Path::new("spec"));
    validate_spec(spec, &options, &at, errors);
    validate_completions(spec, old_spec, at.child("completions"), errors);
    meta::immutable(spec.field("selector"), old_spec.field("selector"), at.child("selector"), errors);
    validate_template_update(spec, old_spec, old, &at, errors);
    for name in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        let value = spec.field(name);
        if !same(value, old_spec.field(name)) {
            let shown = match (name, value) {
                (_, Value::Null) => BadValue::Rendered("null".to_owned()),
                ("podFailurePolicy", value) => render::internal("k8s.io/api/batch/v1", "PodFailurePolicy", value),
                ("successPolicy", value) => render::internal("k8s.io/api/batch/v1", "SuccessPolicy", value),
                (_, value) => value.clone().into(),
            };
            errors.invalid(at.child(name), shown, IMMUTABLE);
        }
    }
    validate_name(job, errors);
}

/// Validates a change of completions: for an indexed job together with its parallelism; for others it is
/// immutable.
fn validate_completions(spec: &Value, old: &Value, at: Path<'_>, errors: &mut Errors) {
    let (new, old) = (spec.field("completions"), old.field("completions"));
    if new == old {
        return;
    }
    if spec.text("completionMode") != "Indexed" {
        let shown = if new.is_null() { BadValue::Rendered("null".to_owned()) } else { new.clone().into() };
        errors.invalid(at, shown, IMMUTABLE);
    } else if !new.is_null() && new != spec.field("parallelism") {
        errors.invalid(at, new.clone(), "can only be modified in tandem with spec.parallelism");
    }
}

/// The template is immutable, except placement and resources while the job is suspended and has no pods.
fn validate_template_update(spec: &Value, old_spec: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) {
    let template = spec.field("template");
    let mut expected = old_spec.field("template").clone();
    let is_suspended = old_spec.flag("suspend");
    let mut conditions = old.field("status").list("conditions").iter();
    let says_suspended = conditions.any(|it| it.text("type") == "Suspended" && it.text("status") == "True");
    let is_mutable = is_suspended && (!old.field("status").has("startTime") || says_suspended);
    if is_mutable {
        let (new_pod, pod) = (template.field("spec"), expected.make("spec"));
        let affinity = new_pod.field("affinity").field("nodeAffinity").clone();
        if new_pod.has("affinity") {
            pod.make("affinity").set("nodeAffinity", affinity);
        } else if let Some(old) = pod.get_mut("affinity") {
            old.unset("nodeAffinity");
            if old.map("podAffinity").is_empty() && old.map("podAntiAffinity").is_empty() {
                pod.unset("affinity");
            }
        }
        for name in ["nodeSelector", "tolerations", "schedulingGates"] {
            pod.set(name, new_pod.field(name).clone());
        }
        for name in ["annotations", "labels"] {
            let value = template.field("metadata").field(name).clone();
            expected.make("metadata").set(name, value);
        }
    }
    let here = at.child("template");
    if !(is_suspended && is_mutable) {
        if !same(template, &expected) {
            errors.invalid(here, render::core("PodTemplateSpec", template), IMMUTABLE);
        }
        return;
    }
    let (new_pod, pod) = (template.field("spec"), expected.make("spec"));
    for kind in ["containers", "initContainers"] {
        if new_pod.list(kind).len() == pod.list(kind).len() {
            for (new, old) in new_pod.list(kind).iter().zip(pod.list_mut(kind)) {
                if new.text("name") == old.text("name") {
                    old.set("resources", new.field("resources").clone());
                }
            }
        }
    }
    if !same(new_pod, expected.field("spec")) {
        errors.invalid(at.child("template.spec"), render::core("PodSpec", new_pod), IMMUTABLE);
    }
}

/// A declared rule, which comes behind the written ones.
fn require_schedule(cron_job: &Value, errors: &mut Errors) {
    if cron_job.field("spec").text("schedule").is_empty() {
        errors.required(Path::new("spec.schedule"), "");
    }
}

fn validate_cron_job(cron_job: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let (spec, at) = (cron_job.field("spec"), Path::new("spec"));
    let old_spec = old.map(|old| old.field("spec"));
    let schedule = spec.text("schedule");
    if !schedule.is_empty() {
        let allows_zone = old_spec.is_some_and(|old| old.text("schedule").contains("TZ"));
        cron::validate(schedule, allows_zone, spec.has("timeZone"), at.child("schedule"), errors);
    }
    non_negative(spec.int("startingDeadlineSeconds"), at.child("startingDeadlineSeconds"), errors);
    if old_spec.is_none_or(|old| old.field("timeZone") != spec.field("timeZone"))
        && let Some(zone) = spec.optional_text("timeZone")
    {
        cron::validate_zone(zone, at.child("timeZone"), errors);
    }
    match spec.text("concurrencyPolicy") {
        "Allow" | "Forbid" | "Replace" => {}
        "" => errors.required(at.child("concurrencyPolicy"), ""),
        other => errors.not_supported(at.child("concurrencyPolicy"), other, &["Allow", "Forbid", "Replace"]),
    }
    let template = spec.field("jobTemplate").field("spec");
    let old_template = old_spec.map(|old| old.field("jobTemplate").field("spec").field("template"));
    let options = Options::new(
        old_template.map(|it| it.field("spec")),
        old_template.map(|it| it.field("metadata")),
        false,
        context,
    );
    let here = at.child("jobTemplate");
    let here = here.child("spec");
    validate_job_spec(template, &options, &here, errors);
    if let Some(selector) = template.optional("selector") {
        errors.invalid(here.child("selector"), selector.clone(), "`selector` will be auto-generated");
    }
    if template.flag("manualSelector") {
        errors.not_supported(here.child("manualSelector"), true, &["nil", "false"]);
    }
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        non_negative(spec.int(name), at.child(name), errors);
    }
}
