//! Autoscalers: what is scaled, by which metrics, how fast.
//!
//! Follows `pkg/apis/autoscaling/validation`.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::core::resource_names::validate_container_name;
use crate::generic;
use crate::meta::{self, NEGATIVE, invalid, non_negative};
use crate::strategy::{Part, Strategy};

pub(crate) const AUTOSCALER: Strategy = Strategy {
    validate_create: |autoscaler, _, errors| {
        meta::validate(autoscaler, true, names::dns1123_subdomain, errors);
        validate_spec(autoscaler.field("spec"), None, errors);
    },
    validate_update: |autoscaler, old, _, errors| {
        meta::validate_update(autoscaler, old, errors);
        validate_spec(autoscaler.field("spec"), Some(old.field("spec")), errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: |autoscaler, old, _| autoscaler.set("spec", old.field("spec").clone()),
            validate: |autoscaler, old, _, errors| {
                meta::validate_update(autoscaler, old, errors);
                let (status, at) = (autoscaler.field("status"), Path::new("status"));
                let conditions = at.child("conditions");
                for (index, condition) in status.list("conditions").iter().enumerate() {
                    let here = conditions.index(index);
                    non_negative(condition.int("observedGeneration"), here.child("observedGeneration"), errors);
                }
                for name in ["currentReplicas", "desiredReplicas"] {
                    non_negative(status.int(name), at.child(name), errors);
                }
            },
        },
    )],
    ..generic::WITH_GENERATION
};

/// Accepted `apiVersion` values of a reference.
#[derive(Clone, Copy, PartialEq)]
enum ApiVersion {
    Any,
    /// The group may be empty.
    Parsed,
    WithGroup,
}

fn validate_spec(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let at = Path::new("spec");
    let (min, max) = (spec.optional_int("minReplicas"), spec.int("maxReplicas"));
    if min.is_some_and(|min| max < min) {
        errors.invalid(at.child("maxReplicas"), max, "must be greater than or equal to `minReplicas`");
    }
    let target = |spec: &Value| {
        let reference = spec.field("scaleTargetRef");
        (reference.text("apiVersion").to_owned(), reference.text("kind").to_owned())
    };
    let accepted = if old.is_some_and(|old| target(old) == target(spec)) {
        ApiVersion::Any
    } else if spec.field("scaleTargetRef").text("kind") == "ReplicationController" {
        ApiVersion::Parsed
    } else {
        ApiVersion::WithGroup
    };
    validate_reference(spec.field("scaleTargetRef"), accepted, &at.child("scaleTargetRef"), errors);
    validate_metrics(spec, old, &at.child("metrics"), errors);
    if let Some(behavior) = spec.optional("behavior") {
        let here = at.child("behavior");
        for name in ["scaleUp", "scaleDown"] {
            if let Some(rules) = behavior.optional(name) {
                validate_rules(rules, &here.child(name), errors);
            }
        }
    }
    // The declarative rules are evaluated last.
    if let Some(min) = min.filter(|min| *min < 0) {
        errors.invalid(at.child("minReplicas"), min, "must be greater than or equal to 0");
    }
    match max {
        0 => errors.required(at.child("maxReplicas"), ""),
        ..0 => errors.invalid(at.child("maxReplicas"), max, "must be greater than or equal to 1"),
        _ => {}
    }
}

fn validate_reference(reference: &Value, accepted: ApiVersion, at: &Path<'_>, errors: &mut Errors) {
    for field in ["kind", "name"] {
        let text = reference.text(field);
        if text.is_empty() {
            errors.required(at.child(field), "");
        } else {
            invalid(names::path_segment(text), text, at.child(field), errors);
        }
    }
    if let Some(complaint) = wrong_api_version(reference, accepted) {
        errors.invalid(at.child("apiVersion"), reference.text("apiVersion"), complaint);
    }
}

fn wrong_api_version(reference: &Value, accepted: ApiVersion) -> Option<String> {
    let text = reference.text("apiVersion");
    if accepted == ApiVersion::Any {
        return None;
    }
    if text.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {text}"));
    }
    let has_group = text.split_once('/').is_some_and(|(group, _)| !group.is_empty());
    (accepted == ApiVersion::WithGroup && !has_group).then(|| "apiVersion must specify API group".to_owned())
}

/// The types of metrics and their fields, in the order in which they are validated.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

fn validate_metrics(spec: &Value, old: Option<&Value>, at: &Path<'_>, errors: &mut Errors) {
    let metrics = spec.list("metrics");
    let is_wrong = |metric: &Value| {
        metric.text("type") == "Object"
            && wrong_api_version(metric.field("object").field("describedObject"), ApiVersion::Parsed).is_some()
    };
    let keeps_wrong = old.is_some_and(|old| old.list("metrics").iter().any(is_wrong));
    let accepted = if keeps_wrong { ApiVersion::Any } else { ApiVersion::Parsed };
    for (index, metric) in metrics.iter().enumerate() {
        validate_metric(metric, accepted, &at.index(index), errors);
    }
    let scales_from_zero = metrics.iter().any(|metric| matches!(metric.text("type"), "Object" | "External"));
    if spec.optional_int("minReplicas") == Some(0) && !scales_from_zero {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(*at, detail);
    }
}

fn validate_metric(metric: &Value, accepted: ApiVersion, at: &Path<'_>, errors: &mut Errors) {
    let of = metric.text("type");
    if of.is_empty() {
        errors.required(at.child("type"), "must specify a metric source type");
    }
    let supported = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    let expected = SOURCES.iter().find(|(name, _)| *name == of).map(|(_, field)| *field);
    if expected.is_none() {
        errors.not_supported(at.child("type"), of, &supported);
    }
    let present: Vec<&str> = SOURCES.iter().map(|(_, field)| *field).filter(|field| metric.has(field)).collect();
    if let Some(first) = present.first() {
        validate_source(metric.field(first), first, accepted, &at.child(first), errors);
    }
    match expected {
        Some(field) if !metric.has(field) => {
            errors.required(at.child(field), "must populate information for the given metric source");
        }
        Some(_) => {}
        None => errors.not_supported(at.child("type"), of, &supported),
    }
    if present.len() != 1 {
        for field in present.into_iter().filter(|field| Some(*field) != expected) {
            errors.forbidden(at.child(field), "must populate the given metric source only");
        }
    }
}

fn validate_source(source: &Value, of: &str, accepted: ApiVersion, at: &Path<'_>, errors: &mut Errors) {
    let (target, target_at) = (source.field("target"), at.child("target"));
    match of {
        "object" => {
            validate_reference(source.field("describedObject"), accepted, &at.child("describedObject"), errors);
        }
        "containerResource" => {
            let (name, container) = (source.text("name"), source.text("container"));
            if name.is_empty() {
                errors.required(at.child("name"), "must specify a resource name");
            } else {
                validate_container_name(name, at.child("name"), errors);
            }
            if container.is_empty() {
                errors.required(at.child("container"), "must specify a container");
            } else {
                invalid(names::dns1123_label(container), container, at.child("container"), errors);
            }
        }
        "resource" if source.text("name").is_empty() => {
            errors.required(at.child("name"), "must specify a resource name");
        }
        _ => {}
    }
    if matches!(of, "object" | "external" | "pods") {
        let here = at.child("metric");
        let name = source.field("metric").text("name");
        if name.is_empty() {
            errors.required(here.child("name"), "must specify a metric name");
        } else {
            invalid(names::path_segment(name), name, here.child("name"), errors);
        }
    }
    validate_target(target, &target_at, errors);
    let has = |field: &str| target.has(field);
    match of {
        "object" if !has("value") && !has("averageValue") => {
            errors.required(target_at.child("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !has("value") && !has("averageValue") => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(target_at.child("averageValue"), detail);
        }
        "external" if has("value") && has("averageValue") => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(target_at.child("value"), detail);
        }
        "pods" if !has("averageValue") => {
            errors.required(target_at.child("averageValue"), "must specify a positive target averageValue");
        }
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(target_at.child("averageUtilization"), detail);
        }
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(target_at.child("averageValue"), detail);
        }
        _ => {}
    }
}

fn validate_target(target: &Value, at: &Path<'_>, errors: &mut Errors) {
    let of = target.text("type");
    if of.is_empty() {
        errors.required(at.child("type"), "must specify a metric target type");
    }
    if !matches!(of, "Utilization" | "Value" | "AverageValue") {
        errors.invalid(at.child("type"), of, "must be either Utilization, Value, or AverageValue");
    }
    for name in ["value", "averageValue"] {
        if let Some(amount) = target.quantity(name).filter(|amount| amount.sign() <= 0) {
            errors.invalid(at.child(name), amount.to_string(), "must be positive");
        }
    }
    if let Some(percent) = target.optional_int("averageUtilization").filter(|percent| *percent < 1) {
        errors.invalid(at.child("averageUtilization"), percent, "must be greater than 0");
    }
}

fn validate_rules(rules: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = rules.optional_int("stabilizationWindowSeconds") {
        let here = at.child("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.invalid(here, seconds, "must be greater than or equal to zero");
        }
        if seconds > 3600 {
            errors.invalid(here, seconds, "must be less than or equal to 3600");
        }
    }
    if let Some(policy) = rules.optional_text("selectPolicy")
        && !matches!(policy, "Max" | "Min" | "Disabled")
    {
        errors.not_supported(at.child("selectPolicy"), policy, &["Disabled", "Max", "Min"]);
    }
    let policies = at.child("policies");
    if rules.list("policies").is_empty() {
        errors.required(policies, "must specify at least one Policy");
    }
    for (index, policy) in rules.list("policies").iter().enumerate() {
        let here = policies.index(index);
        let of = policy.text("type");
        if !matches!(of, "Pods" | "Percent") {
            errors.not_supported(here.child("type"), of, &["Percent", "Pods"]);
        }
        for name in ["value", "periodSeconds"] {
            if policy.int(name) <= 0 {
                errors.invalid(here.child(name), policy.int(name), "must be greater than zero");
            }
        }
        if policy.int("periodSeconds") > 1800 {
            let detail = "must be less than or equal to 1800";
            errors.invalid(here.child("periodSeconds"), policy.int("periodSeconds"), detail);
        }
    }
    if let Some(tolerance) = rules.quantity("tolerance").filter(|it| it.sign() < 0) {
        errors.invalid(at.child("tolerance"), tolerance.to_string(), NEGATIVE);
    }
}
