//! Kinds of the group apps: Deployments, ReplicaSets, DaemonSets, StatefulSets, ControllerRevisions.
//!
//! Follows `pkg/apis/apps/validation`. What all workloads do with their template is in [`workload`](crate::workload).

mod controller_revision;

use api::field::{BadValue, Errors, Path};
use api::int_or_string::IntOrString;
use api::json::Value;
use api::names;

use crate::core::pod::options::Options;
use crate::core::pod::{spec as pod_spec, warnings};
use crate::core::volume_claim::{self, Lenience};
use crate::document::same;
use crate::meta::{self, immutable, invalid, non_negative};
use crate::render;
use crate::seen::SeenKeys;
use crate::selectors::Selection;
use crate::strategy::{Context, PLAIN, Part, Strategy};
use crate::workload::{self, template_options};

pub(crate) use self::controller_revision::CONTROLLER_REVISION;

pub(crate) const DEPLOYMENT: Strategy = Strategy {
    prepare_create: workload::prepare_create,
    validate_create: |deployment, context, errors| {
        meta::validate(deployment, true, names::dns1123_subdomain, errors);
        validate_deployment(deployment, None, context, errors);
    },
    prepare_update: |deployment, old, context| {
        workload::prepare_update(deployment, old, context);
        let annotations = |it: &Value| it.field("metadata").field("annotations").clone();
        if !same(&annotations(deployment), &annotations(old)) {
            let generation = old.field("metadata").int("generation").saturating_add(1);
            deployment.make("metadata").set("generation", generation);
        }
    },
    validate_update: |deployment, old, context, errors| {
        meta::validate_update(deployment, old, errors);
        validate_deployment(deployment, Some(old), context, errors);
        validate_fixed_selector(deployment, old, errors);
    },
    warn: workload::warn_with_name,
    subresources: &[(
        "status",
        Part {
            prepare: |deployment, old, _| {
                workload::keep_spec(deployment, old);
                let labels = old.field("metadata").field("labels").clone();
                deployment.make("metadata").set("labels", labels);
            },
            validate: |it, old, _, errors| {
                validate_replica_status(it, old, "cannot be greater than readyReplicas", errors)
            },
        },
    )],
    ..PLAIN
};

pub(crate) const REPLICA_SET: Strategy = Strategy {
    prepare_create: workload::prepare_create,
    validate_create: |set, context, errors| {
        meta::validate(set, true, names::dns1123_subdomain, errors);
        validate_replica_set(set, None, context, errors);
    },
    prepare_update: workload::prepare_update,
    validate_update: |set, old, context, errors| {
        meta::validate_update(set, old, errors);
        validate_replica_set(set, Some(old), context, errors);
        validate_fixed_selector(set, old, errors);
    },
    warn: workload::warn_with_name,
    subresources: &[(
        "status",
        Part {
            prepare: |it, old, _| workload::keep_spec(it, old),
            validate: |it, old, _, errors| {
                validate_replica_status(it, old, "cannot be greater than readyReplicas", errors)
            },
        },
    )],
    ..PLAIN
};

pub(crate) const DAEMON_SET: Strategy = Strategy {
    prepare_create: |set, context| {
        workload::prepare_create(set, context);
        let generation = template_generation(set).max(1);
        set_template_generation(set, generation);
    },
    validate_create: |set, context, errors| {
        meta::validate(set, true, names::dns1123_subdomain, errors);
        validate_daemon_set(set, None, context, errors);
    },
    prepare_update: |set, old, context| {
        workload::prepare_update(set, old, context);
        let template = |it: &Value| it.field("spec").field("template").clone();
        let is_same = same(&template(set), &template(old));
        let generation = template_generation(old).saturating_add(i64::from(!is_same));
        set_template_generation(set, generation);
    },
    validate_update: |set, old, context, errors| {
        meta::validate_update(set, old, errors);
        validate_fixed_selector(set, old, errors);
        validate_daemon_set(set, Some(old), context, errors);
    },
    warn: |set, old, _| {
        let template = |it: &Value| it.field("spec").field("template").clone();
        if old.is_some_and(|old| same(&template(old), &template(set))) {
            return Vec::new();
        }
        warnings::template(&template(set), &Path::new("spec.template"))
    },
    subresources: &[(
        "status",
        Part { prepare: |it, old, _| workload::keep_spec(it, old), validate: validate_daemon_set_status },
    )],
    ..PLAIN
};

pub(crate) const STATEFUL_SET: Strategy = Strategy {
    prepare_create: workload::prepare_create,
    validate_create: |set, context, errors| {
        meta::validate(set, true, names::dns1123_label, errors);
        let skip = SkippedParts { template: false, claims: false, service_name: false };
        validate_stateful_set(set, None, context, skip, errors);
    },
    prepare_update: workload::prepare_update,
    validate_update: validate_stateful_set_update,
    warn: |set, old, context| {
        let mut warnings = workload::warn_template(set, old, context);
        if set.field("spec").int("revisionHistoryLimit") < 0 {
            warnings.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
        }
        warnings
    },
    subresources: &[(
        "status",
        Part {
            prepare: |it, old, _| workload::keep_spec(it, old),
            validate: |it, old, _, errors| {
                validate_replica_status(it, old, "cannot be greater than status.readyReplicas", errors);
            },
        },
    )],
    ..PLAIN
};

/// The annotation that counts changes of a DaemonSet's template.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Number of changes of a DaemonSet's template; an internal field of Kubernetes, stored as an annotation.
fn template_generation(set: &Value) -> i64 {
    let text = set.field("metadata").map("annotations").get(TEMPLATE_GENERATION).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    set.make("metadata").make("annotations").set(TEMPLATE_GENERATION, generation.to_string());
}

/// A strategy as internal structs hold it: some fields are not pointers there.
fn shown_strategy(kind: &str, strategy: &Value, names: &[&str]) -> BadValue {
    let mut strategy = strategy.clone();
    if let Some(rolling) = strategy.get_mut("rollingUpdate") {
        for name in names {
            rolling.set_missing(name, 0_i64);
        }
    }
    render::internal("k8s.io/api/apps/v1", kind, &strategy)
}

fn validate_fixed_selector(object: &Value, old: &Value, errors: &mut Errors) {
    let selector = |it: &Value| it.field("spec").field("selector").clone();
    immutable(&selector(object), &selector(old), Path::new("spec").child("selector"), errors);
}

/// A selector that is required and must select something.
fn validate_selector(spec: &Value, kind: &str, at: &Path<'_>, errors: &mut Errors) {
    match spec.optional("selector") {
        None => errors.required(*at, ""),
        Some(selector) => {
            meta::validate_selector(selector, false, at, errors);
            if selector.map("matchLabels").is_empty() && selector.list("matchExpressions").is_empty() {
                errors.invalid(*at, selector.clone(), format!("empty selector is invalid for {kind}"));
            }
        }
    }
}

/// The template of a Deployment or ReplicaSet.
fn validate_template(spec: &Value, options: &Options<'_>, bad_selector: &str, at: &Path<'_>, errors: &mut Errors) {
    let selection = Selection::new(spec.field("selector"));
    if matches!(selection, Selection::Bad) {
        errors.invalid(at.child("selector"), spec.field("selector").clone(), bad_selector);
        return;
    }
    let (template, here) = (spec.field("template"), at.child("template"));
    validate_selected(&selection, template, &here, errors);
    pod_spec::validate_template(template, options, &here, errors);
    validate_long_running(template, "ReplicaSet", &here, errors);
}

/// Rejects a workload whose selector does not match the labels of its template.
fn validate_selected(selection: &Selection, template: &Value, at: &Path<'_>, errors: &mut Errors) {
    let labels = template.field("metadata").map("labels");
    // Kubernetes' selector of nothing counts as not empty.
    if !selection.is_empty() && !selection.matches(labels) {
        let shown = match template.field("metadata").field("labels") {
            Value::Null => BadValue::Rendered("null".to_owned()),
            labels => labels.clone().into(),
        };
        let here = at.child("metadata");
        errors.invalid(here.child("labels"), shown, "`selector` does not match template `labels`");
    }
}

/// Pods of these workloads run until they are deleted.
pub(crate) fn validate_long_running(template: &Value, kind: &str, at: &Path<'_>, errors: &mut Errors) {
    let (spec, here) = (template.field("spec"), at.child("spec"));
    let policy = spec.text("restartPolicy");
    if policy != "Always" {
        errors.not_supported(here.child("restartPolicy"), policy, &["Always"]);
    }
    if spec.has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(here.child("activeDeadlineSeconds"), detail);
    }
}

fn validate_deployment(deployment: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let options = template_options(old, context);
    let (spec, at) = (deployment.field("spec"), Path::new("spec"));
    non_negative(spec.int("replicas"), at.child("replicas"), errors);
    validate_selector(spec, "deployment", &at.child("selector"), errors);
    validate_template(spec, &options, "invalid label selector", &at, errors);
    validate_deployment_strategy(spec.field("strategy"), &at.child("strategy"), errors);
    for name in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        non_negative(spec.int(name), at.child(name), errors);
    }
    if let Some(seconds) = spec.optional_int("progressDeadlineSeconds")
        && seconds <= spec.int("minReadySeconds")
    {
        let detail = "must be greater than minReadySeconds";
        errors.invalid(at.child("progressDeadlineSeconds"), seconds, detail);
    }
}

fn validate_deployment_strategy(strategy: &Value, at: &Path<'_>, errors: &mut Errors) {
    match strategy.text("type") {
        "Recreate" => {
            if strategy.has("rollingUpdate") {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.forbidden(at.child("rollingUpdate"), detail);
            }
        }
        "RollingUpdate" => {
            let Some(rolling) = strategy.optional("rollingUpdate") else {
                errors.required(at.child("rollingUpdate"), "this should be defaulted and never be nil");
                return;
            };
            let at = at.child("rollingUpdate");
            let unavailable = rolling.field("maxUnavailable");
            validate_share(unavailable, at.child("maxUnavailable"), errors);
            validate_share(rolling.field("maxSurge"), at.child("maxSurge"), errors);
            if share(unavailable) == 0 && share(rolling.field("maxSurge")) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.invalid(at.child("maxUnavailable"), shown_share(unavailable), detail);
            }
            validate_at_most_all(unavailable, at.child("maxUnavailable"), errors);
        }
        _ => errors.not_supported(
            *at,
            shown_strategy("DeploymentStrategy", strategy, &["maxUnavailable", "maxSurge"]),
            &["Recreate", "RollingUpdate"],
        ),
    }
}

/// A number that is not negative, or a percentage.
pub(crate) fn validate_share(value: &Value, at: Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(text) => {
            for complaint in names::percent(text) {
                errors.invalid(at, text.clone(), complaint);
            }
        }
        other => non_negative(other.as_i64().unwrap_or_default(), at, errors),
    }
}

fn percent(value: &Value) -> Option<i64> {
    let text = value.as_str()?;
    if names::percent(text).is_empty() { text.strip_suffix('%')?.parse().ok() } else { None }
}

fn share(value: &Value) -> i64 {
    percent(value).unwrap_or_else(|| IntOrString::from_value(value).map_or(0, |it| i64::from(it.int_value())))
}

fn shown_share(value: &Value) -> BadValue {
    if value.is_null() { BadValue::from(0_i64) } else { value.clone().into() }
}

pub(crate) fn validate_at_most_all(value: &Value, at: Path<'_>, errors: &mut Errors) {
    if percent(value).is_some_and(|it| it > 100) {
        errors.invalid(at, value.clone(), "must not be greater than 100%");
    }
}

fn validate_replica_set(set: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let options = template_options(old, context);
    let (spec, at) = (set.field("spec"), Path::new("spec"));
    non_negative(spec.int("replicas"), at.child("replicas"), errors);
    non_negative(spec.int("minReadySeconds"), at.child("minReadySeconds"), errors);
    validate_selector(spec, "deployment", &at.child("selector"), errors);
    validate_template(spec, &options, "invalid label selector", &at, errors);
}

fn validate_daemon_set(set: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    let mut options = template_options(old, context);
    options.allow_bad_selector_values |=
        old.is_some_and(|old| meta::has_bad_values(old.field("spec").field("selector")));
    let (spec, at) = (set.field("spec"), Path::new("spec"));
    let selector = spec.field("selector");
    meta::validate_selector(selector, options.allow_bad_selector_values, &at.child("selector"), errors);
    let (template, here) = (spec.field("template"), at.child("template"));
    let selection = Selection::new(selector);
    let labels = template.field("metadata").map("labels");
    if !matches!(selection, Selection::Bad) && !selection.matches(labels) {
        let shown = match template.field("metadata").field("labels") {
            Value::Null => BadValue::Rendered("null".to_owned()),
            labels => labels.clone().into(),
        };
        let here = here.child("metadata");
        errors.invalid(here.child("labels"), shown, "`selector` does not match template `labels`");
    }
    let is_empty = selector.map("matchLabels").is_empty() && selector.list("matchExpressions").is_empty();
    if !selector.is_null() && is_empty {
        errors.invalid(at.child("selector"), selector.clone(), "empty selector is invalid for daemonset");
    }
    pod_spec::validate_template(template, &options, &here, errors);
    validate_long_running(template, "DaemonSet", &here, errors);
    non_negative(spec.int("minReadySeconds"), at.child("minReadySeconds"), errors);
    validate_daemon_set_strategy(spec.field("updateStrategy"), &at.child("updateStrategy"), errors);
    non_negative(spec.int("revisionHistoryLimit"), at.child("revisionHistoryLimit"), errors);
}

fn validate_daemon_set_strategy(strategy: &Value, at: &Path<'_>, errors: &mut Errors) {
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let Some(rolling) = strategy.optional("rollingUpdate") else {
                errors.required(at.child("rollingUpdate"), "");
                return;
            };
            let at = at.child("rollingUpdate");
            let (unavailable, surge) = (rolling.field("maxUnavailable"), rolling.field("maxSurge"));
            validate_share(unavailable, at.child("maxUnavailable"), errors);
            validate_share(surge, at.child("maxSurge"), errors);
            validate_at_most_all(unavailable, at.child("maxUnavailable"), errors);
            validate_at_most_all(surge, at.child("maxSurge"), errors);
            match (share(unavailable) != 0, share(surge) != 0) {
                (true, true) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.invalid(at.child("maxSurge"), shown_share(surge), detail);
                }
                (false, false) => errors.required(at.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => errors.not_supported(
            *at,
            shown_strategy("DaemonSetUpdateStrategy", strategy, &["maxUnavailable", "maxSurge"]),
            &["RollingUpdate", "OnDelete"],
        ),
    }
}

fn validate_daemon_set_status(set: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(set, old, errors);
    let (status, at) = (set.field("status"), Path::new("status"));
    for name in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ] {
        non_negative(status.int(name), at.child(name), errors);
    }
    validate_collisions(set, old, errors);
}

fn validate_collisions(object: &Value, old: &Value, errors: &mut Errors) {
    let count = |it: &Value| it.field("status").int("collisionCount");
    if count(object) < count(old) {
        errors.invalid(Path::new("status.collisionCount"), count(object), "cannot be decremented");
    }
}

pub(crate) fn validate_replica_status(object: &Value, old: &Value, not_ready: &str, errors: &mut Errors) {
    meta::validate_update(object, old, errors);
    let (status, at) = (object.field("status"), Path::new("status"));
    let names = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "currentReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    for name in names {
        non_negative(status.int(name), at.child(name), errors);
    }
    let replicas = status.int("replicas");
    for name in ["updatedReplicas", "fullyLabeledReplicas", "readyReplicas", "currentReplicas", "availableReplicas"] {
        if status.int(name) > replicas {
            errors.invalid(at.child(name), status.int(name), "cannot be greater than status.replicas");
        }
    }
    let available = status.int("availableReplicas");
    if available > status.int("readyReplicas") {
        errors.invalid(at.child("availableReplicas"), available, not_ready);
    }
    validate_collisions(object, old, errors);
}

/// Parts that are not validated again.
#[derive(Clone, Copy)]
struct SkippedParts {
    template: bool,
    claims: bool,
    service_name: bool,
}

fn validate_stateful_set(
    set: &Value,
    old: Option<&Value>,
    context: &Context<'_>,
    skip: SkippedParts,
    errors: &mut Errors,
) {
    let options = template_options(old, context);
    let (spec, at) = (set.field("spec"), Path::new("spec"));
    match spec.text("podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => errors.required(at.child("podManagementPolicy"), ""),
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(at.child("podManagementPolicy"), other, detail);
        }
    }
    validate_stateful_set_strategy(spec.field("updateStrategy"), &at.child("updateStrategy"), errors);
    if let Some(policy) = spec.optional("persistentVolumeClaimRetentionPolicy") {
        let here = at.child("persistentVolumeClaimRetentionPolicy");
        for name in ["whenDeleted", "whenScaled"] {
            if !matches!(policy.text(name), "Retain" | "Delete") {
                errors.not_supported(here.child(name), policy.text(name), &["Retain", "Delete"]);
            }
        }
    }
    if !skip.claims {
        let list = at.child("volumeClaimTemplates");
        for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
            let here = list.index(index);
            volume_claim::validate_spec(claim.field("spec"), Lenience::default(), &here.child("spec"), errors);
        }
    }
    non_negative(spec.int("replicas"), at.child("replicas"), errors);
    non_negative(spec.int("minReadySeconds"), at.child("minReadySeconds"), errors);
    non_negative(spec.field("ordinals").int("start"), at.child("ordinals.start"), errors);
    let service = spec.text("serviceName");
    if !skip.service_name && !service.is_empty() {
        invalid(names::dns1123_label(service), service, at.child("serviceName"), errors);
    }
    validate_selector(spec, "statefulset", &at.child("selector"), errors);
    let template = template_with_claims(spec);
    let here = at.child("template");
    match Selection::new(spec.field("selector")) {
        Selection::Bad => errors.invalid(at.child("selector"), spec.field("selector").clone(), ""),
        selection => {
            validate_selected(&selection, &template, &here, errors);
            if !skip.template {
                pod_spec::validate_template(&template, &options, &here, errors);
            }
            let metadata = template.field("metadata");
            let annotations = here.child("annotations");
            meta::validate_labels(metadata.map("labels"), &here.child("labels"), errors);
            meta::validate_annotations(metadata.map("annotations"), &annotations, errors);
            let pod = template.field("spec");
            pod_spec::validate_annotations(metadata.map("annotations"), pod, &options, &annotations, errors);
        }
    }
    validate_long_running(spec.field("template"), "StatefulSet", &here, errors);
}

/// The template as its pods will be: with volumes for the claims, and names that the controller gives.
fn template_with_claims(spec: &Value) -> Value {
    let mut template = spec.field("template").clone();
    let claims = spec.list("volumeClaimTemplates");
    let pod = template.make("spec");
    pod.unset("subdomain");
    pod.unset("hostname");
    if claims.is_empty() {
        return template;
    }
    let name = |claim: &Value| claim.field("metadata").text("name").to_owned();
    let mut volumes: Vec<Value> = Vec::with_capacity(claims.len());
    let mut seen = SeenKeys::default();
    for claim in claims {
        let name = name(claim);
        if seen.insert(name.clone()) {
            volumes
                .push(api::json!({"name": (name.as_str()), "persistentVolumeClaim": {"claimName": (name.as_str())}}));
        }
    }
    let own = pod.list("volumes").iter().filter(|it| !seen.contains(&it.text("name").to_owned()));
    let own: Vec<Value> = own.cloned().collect();
    volumes.extend(own);
    pod.set("volumes", volumes);
    template
}

fn validate_stateful_set_strategy(strategy: &Value, at: &Path<'_>, errors: &mut Errors) {
    let rolling = strategy.optional("rollingUpdate");
    match (strategy.text("type"), rolling) {
        ("", _) => errors.required(*at, ""),
        ("OnDelete", Some(rolling)) => {
            let mut rolling = rolling.clone();
            rolling.set_missing("partition", 0_i64);
            let shown = render::internal("k8s.io/api/apps/v1", "RollingUpdateStatefulSetStrategy", &rolling);
            errors.invalid(at.child("rollingUpdate"), shown, "only allowed for updateStrategy 'RollingUpdate'");
        }
        ("RollingUpdate", Some(rolling)) => {
            let at = at.child("rollingUpdate");
            non_negative(rolling.int("partition"), at.child("partition"), errors);
            if let Some(unavailable) = rolling.optional("maxUnavailable") {
                let here = at.child("maxUnavailable");
                validate_share(unavailable, here, errors);
                if share(unavailable) == 0 {
                    errors.invalid(here, unavailable.clone(), "cannot be 0");
                }
                validate_at_most_all(unavailable, here, errors);
            }
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            let shown = shown_strategy("StatefulSetUpdateStrategy", strategy, &["partition"]);
            errors.invalid(*at, shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn validate_stateful_set_update(set: &Value, old: &Value, context: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(set, old, errors);
    let skip = SkippedParts { template: false, claims: true, service_name: true };
    let mut old_errors = Errors::new();
    validate_stateful_set(old, Some(old), context, skip, &mut old_errors);
    // A template that was accepted once stays as it is.
    let skip = SkippedParts { template: !old_errors.is_empty(), ..skip };
    validate_stateful_set(set, Some(old), context, skip, errors);
    let (spec, old_spec, at) = (set.field("spec"), old.field("spec"), Path::new("spec"));
    for name in ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"] {
        if !same(spec.field(name), old_spec.field(name)) {
            let value = spec.field(name);
            let shown = match name {
                "volumeClaimTemplates" if !value.is_null() => {
                    let claims = spec.list(name);
                    render::list("k8s.io/api/core/v1", "PersistentVolumeClaim", claims)
                }
                "serviceName" => spec.text(name).into(),
                _ => value.clone().into(),
            };
            errors.invalid(at.child(name), shown, meta::IMMUTABLE);
        }
    }
}
