//! Policies of admission and their bindings: for what they are asked, with which parameters, and what follows.
//!
//! Follows `pkg/apis/admissionregistration/validation`. Expressions must be there; those of conditions
//! must compile. Nothing evaluates them here.

use std::collections::BTreeSet;

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;

use crate::document::Read;
use crate::expressions::{self, Place};
use crate::generic;
use crate::meta;
use crate::strategy::{Context, Strategy};
use crate::webhooks;

pub(crate) const VALIDATING: Strategy = Strategy {
    validate_create: |policy, context, errors| validate_validating(policy, None, context, errors),
    validate_update: |policy, old, context, errors| {
        meta::validate_update(policy, old, errors);
        validate_validating(policy, Some(old), context, errors);
    },
    ..generic::WITH_GENERATION_AND_STATUS_ALONE
};

pub(crate) const MUTATING: Strategy = Strategy {
    validate_create: |policy, context, errors| validate_mutating(policy, None, context, errors),
    validate_update: |policy, old, context, errors| {
        meta::validate_update(policy, old, errors);
        validate_mutating(policy, Some(old), context, errors);
    },
    ..generic::COUNTED
};

pub(crate) const VALIDATING_BINDING: Strategy = Strategy {
    validate_create: |binding, _, errors| validate_binding(binding, true, errors),
    validate_update: |binding, old, _, errors| {
        meta::validate_update(binding, old, errors);
        validate_binding(binding, true, errors);
    },
    ..generic::COUNTED
};

pub(crate) const MUTATING_BINDING: Strategy = Strategy {
    validate_create: |binding, _, errors| validate_binding(binding, false, errors),
    validate_update: |binding, old, _, errors| {
        meta::validate_update(binding, old, errors);
        validate_binding(binding, false, errors);
    },
    ..generic::COUNTED
};

const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// What is deleted cannot be changed on its way.
const MUTATED: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const AUDIT_EXPRESSION_MAX: usize = 5 * 1024;
const MATCH_CONDITIONS_MAX: usize = 64;

/// A text that must be there, and one of a few.
fn required_one_of(value: &Value, field: &str, supported: &[&str], at: &Path<'_>, errors: &mut Errors) {
    match value.text(field) {
        "" => errors.required(at.child(field), ""),
        text if !supported.contains(&text) => errors.not_supported(at.child(field), text, supported),
        _ => {}
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// What policies of both kinds have in common, before what they do.
fn validate_policy(policy: &Value, errors: &mut Errors) {
    meta::validate(policy, false, names::dns1123_subdomain, errors);
    let (spec, at) = (policy.field("spec"), Path::new("spec"));
    required_one_of(spec, "failurePolicy", &FAILURE_POLICIES, &at, errors);
    if let Some(kind) = spec.optional("paramKind") {
        validate_param_kind(kind, &at.child("paramKind"), errors);
    }
    let here = at.child("matchConstraints");
    match spec.optional("matchConstraints") {
        None => errors.required(here, ""),
        Some(matched) => {
            validate_match(matched, &here, errors);
            if matched.list("resourceRules").is_empty() {
                errors.required(here.child("resourceRules"), "");
            }
        }
    }
}

fn validate_conditions_and_variables(
    spec: &Value,
    old: Option<&Value>,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    // What was accepted once may stay.
    let is_stored = old
        .map(|old| old.field("spec"))
        .is_some_and(|old| ["paramKind", "matchConditions"].iter().all(|field| old.field(field) == spec.field(field)));
    if !is_stored {
        let (conditions, has_params) = (spec.list("matchConditions"), spec.has("paramKind"));
        validate_conditions(conditions, has_params, context, &at.child("matchConditions"), errors);
    }
    let list = at.child("variables");
    for (index, variable) in spec.list("variables").iter().enumerate() {
        let here = list.index(index);
        let name = variable.text("name");
        if is_blank(name) {
            errors.required(here.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(here.child("name"), name, "must be a valid CEL identifier");
        }
        if is_blank(variable.text("expression")) {
            errors.required(here.child("expression"), "expression is not specified");
        }
    }
}

/// Conditions under which a policy or a webhook is asked.
pub(crate) fn validate_conditions(
    conditions: &[Value],
    has_params: bool,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    if conditions.len() > MATCH_CONDITIONS_MAX {
        errors.too_many(*at, Some(conditions.len()), MATCH_CONDITIONS_MAX);
    }
    let mut seen = BTreeSet::new();
    for (index, condition) in conditions.iter().enumerate() {
        let here = at.index(index);
        match condition.text("expression").trim() {
            "" => errors.required(here.child("expression"), ""),
            expression => {
                let place = Place::MatchCondition { has_params };
                expressions::validate(context.expressions, place, expression, here.child("expression"), errors);
            }
        }
        let name = condition.text("name");
        if name.is_empty() {
            errors.required(here.child("name"), "");
            continue;
        }
        meta::validate_label_name(name, here.child("name"), errors);
        if !seen.insert(name) {
            errors.duplicate(here.child("name"), name);
        }
    }
}

fn is_identifier(text: &str) -> bool {
    // Kubernetes: a policy has one keyword more than the names of fields.
    let is_reserved = text == "try" || cel_kubernetes::names::is_keyword(text);
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.bytes().next().is_some_and(is_letter)
        && text.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
        && !is_reserved
}

fn validate_validating(policy: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    validate_policy(policy, errors);
    let (spec, at) = (policy.field("spec"), Path::new("spec"));
    validate_conditions_and_variables(spec, old, context, &at, errors);
    let (validations, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    let (validations_at, annotations_at) = (at.child("validations"), at.child("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(validations_at, detail);
        errors.required(annotations_at, detail);
        return;
    }
    for (index, validation) in validations.iter().enumerate() {
        validate_validation(validation, &validations_at.index(index), errors);
    }
    if annotations.len() > AUDIT_ANNOTATIONS_MAX {
        let shown = crate::render::list(PACKAGE, "AuditAnnotation", annotations);
        let detail = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(annotations_at, shown, detail);
    }
    let mut seen = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let here = annotations_at.index(index);
        let (name, key) = (policy.field("metadata").text("name"), annotation.text("key"));
        if name.is_empty() {
            errors.invalid(here.child("key"), key, "requires metadata.name be non-empty");
        } else {
            meta::validate_label_name(&format!("{name}/{key}"), here.child("key"), errors);
        }
        let expression = annotation.text("valueExpression").trim();
        if expression.is_empty() {
            errors.required(here.child("valueExpression"), "valueExpression is not specified");
        } else if expression.len() > AUDIT_EXPRESSION_MAX {
            let detail = format!("must not exceed {AUDIT_EXPRESSION_MAX} bytes in length");
            errors.required(here.child("valueExpression"), detail);
        }
        if !seen.insert(key) {
            errors.duplicate(here.child("key"), key);
        }
    }
}

const PACKAGE: &str = "k8s.io/api/admissionregistration/v1";

fn validate_validation(validation: &Value, at: &Path<'_>, errors: &mut Errors) {
    if is_blank(validation.text("expression")) {
        errors.required(at.child("expression"), "expression is not specified");
    }
    for field in ["messageExpression", "message"] {
        let text = validation.text(field);
        if !text.is_empty() && is_blank(text) {
            errors.invalid(at.child(field), text, "must be non-empty if specified");
        } else if field == "message" && text.trim().contains(['\r', '\n']) {
            errors.invalid(at.child(field), text, "must not contain line breaks");
        }
    }
    if let Some(reason) = validation.optional_text("reason").filter(|it| !REASONS.contains(it)) {
        errors.not_supported(at.child("reason"), reason, &REASONS);
    }
}

fn validate_mutating(policy: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    validate_policy(policy, errors);
    let (spec, at) = (policy.field("spec"), Path::new("spec"));
    validate_mutated(spec.field("matchConstraints"), &at.child("matchConstraints"), errors);
    validate_conditions_and_variables(spec, old, context, &at, errors);
    let list = at.child("mutations");
    if spec.list("mutations").is_empty() {
        errors.required(list, "mutations must contain at least one item");
    }
    for (index, mutation) in spec.list("mutations").iter().enumerate() {
        validate_mutation(mutation, &list.index(index), errors);
    }
    required_one_of(spec, "reinvocationPolicy", &["IfNeeded", "Never"], &at, errors);
}

fn validate_mutation(mutation: &Value, at: &Path<'_>, errors: &mut Errors) {
    let kinds = [("JSONPatch", "jsonPatch"), ("ApplyConfiguration", "applyConfiguration")];
    let kind = mutation.text("patchType");
    if kind.is_empty() {
        errors.required(at.child("patchType"), "");
        return;
    }
    if !kinds.iter().any(|(known, _)| *known == kind) {
        errors.not_supported(at.child("patchType"), kind, &["ApplyConfiguration", "JSONPatch"]);
        return;
    }
    for (known, field) in kinds {
        let here = at.child(field);
        match (known == kind, mutation.optional(field)) {
            (true, None) => errors.required(here, format!("must be specified when patchType is {kind}")),
            (true, Some(patch)) if is_blank(patch.text("expression")) => {
                errors.required(here.child("expression"), "");
            }
            (false, Some(_)) => {
                let shown = BadValue::from(format!("{{{field}}}"));
                errors.invalid(here, shown, format!("must not be specified when patchType is {kind}"));
            }
            _ => {}
        }
    }
}

fn validate_mutated(matched: &Value, at: &Path<'_>, errors: &mut Errors) {
    let rules = at.child("resourceRules");
    let operations = matched.list("resourceRules").iter().flat_map(|rule| rule.texts("operations"));
    for operation in operations.filter(|it| !MUTATED.contains(it)) {
        errors.not_supported(rules.child("operations"), operation, &MUTATED);
    }
}

fn validate_param_kind(kind: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (api_version, here) = (kind.text("apiVersion"), at.child("apiVersion"));
    let parts: Vec<&str> = api_version.split('/').collect();
    match parts.as_slice() {
        [""] => errors.required(here, ""),
        ["", ""] => errors.invalid(here, api_version, "version must be specified"),
        [version] => validate_group_version("", version, api_version, here, errors),
        [group, version] => validate_group_version(group, version, api_version, here, errors),
        _ => errors.invalid(here, api_version, format!("unexpected GroupVersion string: {api_version}")),
    }
    let (name, here) = (kind.text("kind"), at.child("kind"));
    let complaints = names::dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(here, "");
    } else if !complaints.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
        errors.invalid(here, name, detail);
    }
}

fn validate_group_version(group: &str, version: &str, whole: &str, at: Path<'_>, errors: &mut Errors) {
    let wrong_group = if group.is_empty() { Vec::new() } else { names::dns1123_subdomain(group) };
    if !wrong_group.is_empty() {
        errors.invalid(at, group, wrong_group.join(","));
    }
    let wrong_version = names::dns1035_label(version);
    if version.is_empty() {
        errors.invalid(at, whole, "version must be specified");
    } else if !wrong_version.is_empty() {
        errors.invalid(at, version, wrong_version.join(","));
    }
}

fn validate_match(matched: &Value, at: &Path<'_>, errors: &mut Errors) {
    required_one_of(matched, "matchPolicy", &["Equivalent", "Exact"], at, errors);
    for name in ["namespaceSelector", "objectSelector"] {
        match matched.optional(name) {
            None => errors.required(at.child(name), ""),
            Some(selector) => meta::validate_selector(selector, false, &at.child(name), errors),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let list = at.child(field);
        for (index, rule) in matched.list(field).iter().enumerate() {
            validate_named_rule(rule, &list.index(index), errors);
        }
    }
}

fn validate_named_rule(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list = at.child("resourceNames");
    let mut seen = BTreeSet::new();
    for (index, name) in rule.texts("resourceNames").enumerate() {
        meta::invalid(names::path_segment(name), name, list.index(index), errors);
        if !seen.insert(name) {
            errors.duplicate(list.index(index), name);
        }
    }
    webhooks::validate_rule(rule, at, errors);
}

fn validate_binding(binding: &Value, is_validating: bool, errors: &mut Errors) {
    meta::validate(binding, false, names::dns1123_subdomain, errors);
    let (spec, at) = (binding.field("spec"), Path::new("spec"));
    match spec.text("policyName") {
        "" if is_validating => {}
        "" => errors.required(at.child("policyName"), ""),
        name => meta::invalid(names::dns1123_subdomain(name), name, at.child("policyName"), errors),
    }
    if let Some(reference) = spec.optional("paramRef") {
        validate_param_ref(reference, &at.child("paramRef"), errors);
    }
    let here = at.child("matchResources");
    if let Some(matched) = spec.optional("matchResources") {
        validate_match(matched, &here, errors);
        if !is_validating {
            validate_mutated(matched, &here, errors);
        }
    }
    if is_validating {
        let actions = at.child("validationActions");
        validate_actions(spec, &actions, errors);
        // Declared rules come behind the written ones.
        if spec.text("policyName").is_empty() {
            errors.required(at.child("policyName"), "");
        }
        if spec.list("validationActions").is_empty() {
            errors.required(actions, "");
        }
    }
}

fn validate_param_ref(reference: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (name, selector) = (reference.text("name"), reference.optional("selector"));
    let exclusive = "name and selector are mutually exclusive";
    if !name.is_empty() {
        meta::invalid(names::path_segment(name), name, at.child("name"), errors);
        if selector.is_some() {
            errors.forbidden(at.child("name"), exclusive);
        }
    }
    match selector {
        Some(selector) => {
            meta::validate_selector(selector, false, &at.child("selector"), errors);
            if !name.is_empty() {
                errors.forbidden(at.child("selector"), exclusive);
            }
        }
        None if name.is_empty() => errors.required(*at, "one of name or selector must be specified"),
        None => {}
    }
    required_one_of(reference, "parameterNotFoundAction", &["Deny", "Allow"], at, errors);
}

fn validate_actions(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let actions: Vec<&str> = spec.texts("validationActions").collect();
    for (index, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(action) {
            errors.not_supported(at.index(index), *action, &ACTIONS);
        }
        if actions.iter().take(index).any(|it| it == action) {
            errors.duplicate(at.index(index), *action);
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                      API response and headers serves no purpose)";
        errors.invalid(*at, spec.field("validationActions").clone(), detail);
    }
}
