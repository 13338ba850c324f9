//! Nodes.
//!
//! Follows `ValidateNode` and `ValidateNodeUpdate`. Bad taints are reported below `metadata`, as Kubernetes does.

use api::field::{BadValue, Error, ErrorType, Errors, Path};
use api::json::{self, Value};
use api::names;

use super::addresses;
use super::pod::placement::{positive, validate_taint_effect};
use super::resource_names::{amounts, validate_amount};
use crate::meta::{self, validate_label_name};
use crate::render;
use crate::seen::{SeenKeys, repeats};
use crate::strategy::{Context, PLAIN, Part, Strategy};

pub(crate) const STRATEGY: Strategy = Strategy {
    prepare_create: |node, _| {
        node.make("spec").unset("configSource");
        node.make("status").unset("config");
        drop_disabled_fields(node);
    },
    validate_create,
    prepare_update: |node, old, _| {
        node.set("status", old.field("status").clone());
        if !old.field("spec").has("configSource") {
            node.make("spec").unset("configSource");
        }
        drop_disabled_fields(node);
    },
    validate_update: |node, old, context, errors| {
        validate_create(node, context, errors);
        validate_update(node, old, context, errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: |node, old, _| {
                node.set("spec", old.field("spec").clone());
                if !old.field("status").has("config") {
                    node.make("status").unset("config");
                }
                drop_disabled_fields(node);
            },
            validate: validate_update,
        },
    )],
    warn: |node, _, _| {
        let spec = node.field("spec");
        let mut warnings = Vec::new();
        if spec.has("configSource") {
            warnings.push("spec.configSource: the feature is removed".to_owned());
        }
        if !spec.text("externalID").is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        let list = Path::new("spec.podCIDRs");
        for (index, range) in spec.texts("podCIDRs").enumerate() {
            warnings.extend(addresses::warn_range(range, &list.index(index)));
        }
        warnings
    },
    ..PLAIN
};

/// Drops the fields of upstream features that are disabled here.
fn drop_disabled_fields(node: &mut Value) {
    node.make("spec").unset("podPreemptionPolicy");
    if let Some(info) = node.make("status").get_mut("nodeInfo") {
        info.unset("runningInUserNamespace");
    }
}

fn validate_create(node: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate(node, false, names::dns1123_subdomain, errors);
    validate_annotations(node, errors);
    let at = Path::new("metadata");
    validate_taints(node.field("spec").list("taints"), &at.child("taints"), errors);
    validate_amounts(node, errors);
    if let Some(capacity) = node.field("status").field("nodeInfo").field("swap").optional_int("capacity") {
        positive(capacity, at.child("nodeSwapStatus").child("capacity"), errors);
    }
    validate_declared_features(node, errors);
    validate_ranges(node, errors);
}

fn validate_update(node: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(node, old, errors);
    validate_annotations(node, errors);
    validate_amounts(node, errors);
    validate_declared_features(node, errors);
    let list = Path::new("status.addresses");
    let found = node.field("status").list("addresses");
    let keys = found.iter().map(|address| (address.text("type"), address.text("address")));
    for (index, address) in repeats(keys).filter_map(|index| Some((index, found.get(index)?))) {
        errors.duplicate(list.index(index), render::core("NodeAddress", address));
    }
    let (spec, old_spec, at) = (node.field("spec"), old.field("spec"), Path::new("spec"));
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    let (ranges, old_ranges) = (spec.list("podCIDRs"), old_spec.list("podCIDRs"));
    if !old_ranges.is_empty() {
        if ranges.len() != old_ranges.len() {
            errors.forbidden(at.child("podCIDRs"), detail);
        } else {
            for _ in ranges.iter().zip(old_ranges).filter(|(new, old)| new != old) {
                errors.forbidden(at.child("podCIDRs"), detail);
            }
        }
    }
    let (provider, old_provider) = (spec.text("providerID"), old_spec.text("providerID"));
    if !old_provider.is_empty() && provider != old_provider {
        let detail =
            if provider.is_empty() { "field cannot be cleared once set" } else { "field cannot be modified once set" };
        errors.invalid(at.child("providerID"), Value::Null, detail);
    }
    validate_taints(spec.list("taints"), &Path::new("metadata").child("taints"), errors);
    if spec.text("externalID") != old_spec.text("externalID") {
        errors.forbidden(at.child("externalID"), "may not be updated");
    }
}

fn validate_taints(taints: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, taint) in taints.iter().enumerate() {
        let here = at.index(index);
        let (key, value, effect) = (taint.text("key"), taint.text("value"), taint.text("effect"));
        validate_label_name(key, here.child("key"), errors);
        let complaints = names::label_value(value);
        if !complaints.is_empty() {
            errors.invalid(here.child("value"), value, complaints.join(";"));
        }
        validate_taint_effect(effect, here.child("effect"), errors);
        if seen.contains(&(key, effect)) {
            let shown = render::core("Taint", taint);
            let detail = "taints must be unique by key and effect pair";
            errors.push(Error::new(ErrorType::Duplicate, &here, shown, detail));
        } else {
            seen.insert((key, effect));
        }
    }
}

fn validate_amounts(node: &Value, errors: &mut Errors) {
    let at = Path::new("status");
    for list in ["capacity", "allocatable"] {
        let here = at.child(list);
        for (name, amount) in amounts(node.field("status").map(list)) {
            validate_amount(name, &amount, here.child(name), errors);
        }
    }
}

/// Annotations that once were fields.
fn validate_annotations(node: &Value, errors: &mut Errors) {
    let metadata = Path::new("metadata");
    let at = metadata.child("annotations");
    let annotations = node.field("metadata").map("annotations");
    let text = |key: &str| annotations.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let taints = "scheduler.alpha.kubernetes.io/taints";
    if let Some(value) = text(taints) {
        match json::parse(value.as_bytes()) {
            Err(error) => errors.invalid(at, taints, error.to_string()),
            Ok(parsed) => validate_taints(parsed.as_array().unwrap_or_default(), &at.child(taints), errors),
        }
    }
    let avoid = "scheduler.alpha.kubernetes.io/preferAvoidPods";
    if let Some(value) = text(avoid) {
        match json::parse(value.as_bytes()) {
            Err(error) => errors.invalid(at.child("AvoidPods"), avoid, error.to_string()),
            Ok(parsed) if !matches!(parsed, Value::Object(_) | Value::Null) => {
                let detail = format!("json: cannot unmarshal {} into Go value of type v1.AvoidPods", parsed.kind());
                errors.invalid(at.child("AvoidPods"), avoid, detail);
            }
            Ok(parsed) => {
                let list = at.child(avoid);
                for (index, entry) in parsed.list("preferAvoidPods").iter().enumerate() {
                    let here = list.index(index);
                    let here = here.child("PodSignature");
                    match entry.field("podSignature").optional("podController") {
                        None => errors.required(here, ""),
                        Some(controller) if !controller.flag("controller") => {
                            let here = here.child("PodController");
                            errors.invalid(here.child("Controller"), false, "must point to a controller");
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }
}

fn validate_declared_features(node: &Value, errors: &mut Errors) {
    let status = Path::new("status");
    let at = status.child("declaredFeatures");
    let features: Vec<&str> = node.field("status").texts("declaredFeatures").collect();
    let mut previous: Option<&str> = None;
    for (index, feature) in features.iter().enumerate() {
        if let Some(previous) = previous {
            if previous == *feature {
                errors.duplicate(at.index(index), *feature);
            } else if previous > *feature {
                errors.invalid(at.index(index), *feature, "list must be sorted alphabetically");
            }
        }
        previous = Some(feature);
        let quoted = api::go_text::quote(feature);
        if feature.len() > 253 {
            let detail = format!("invalid feature name {quoted}: must be no more than 253 characters");
            errors.invalid(at.index(index), *feature, detail);
        } else if !is_feature_name(feature) {
            let detail = format!(
                "invalid feature name {quoted}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            );
            errors.invalid(at.index(index), *feature, detail);
        }
    }
}

fn is_feature_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.split('/').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

fn validate_ranges(node: &Value, errors: &mut Errors) {
    let spec = Path::new("spec");
    let at = spec.child("podCIDRs");
    let ranges: Vec<&str> = node.field("spec").texts("podCIDRs").collect();
    for (index, range) in ranges.iter().enumerate() {
        addresses::validate_range(range, at.index(index), errors);
    }
    if ranges.len() > 1 {
        let hosts = ranges.iter().map(|range| range.split('/').next().unwrap_or_default());
        let mut is_dual = addresses::is_dual_stack(hosts);
        let bad = ranges.iter().enumerate().find(|(_, it)| addresses::parse_range(it).is_none());
        if let Some((index, bad)) = bad {
            is_dual = None;
            errors.internal(
                at,
                format!("invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {bad})"),
            );
        }
        if is_dual != Some(true) || ranges.len() > 2 {
            let shown = BadValue::Value(node.field("spec").field("podCIDRs").clone());
            errors.invalid(at, shown, "may specify no more than one CIDR for each IP family");
        }
    }
}
