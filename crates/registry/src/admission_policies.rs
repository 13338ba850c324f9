//! Admission policies and their bindings: matched requests, parameters and actions.
//!
//! Follows `pkg/apis/admissionregistration/validation`. Expressions must compile; [`crate::admission`] evaluates them.

use std::collections::BTreeSet;

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::json_path::JsonPath;
use api::names;
use cel_kubernetes::environments::admission::{CompileError, Compiler, PolicyCompiler, ResultKind, Scope};

use crate::conditions;
use crate::generic;
use crate::meta;
use crate::seen::SeenKeys;
use crate::strategy::{Context, Part, Strategy};
use crate::webhooks;

pub(crate) const VALIDATING: Strategy = Strategy {
    validate_create: |policy, context, errors| validate_validating(policy, None, context, errors),
    validate_update: |policy, old, context, errors| {
        meta::validate_update(policy, old, errors);
        validate_validating(policy, Some(old), context, errors);
    },
    subresources: &[("status", Part { prepare: generic::prepare_status_alone, validate: validate_status })],
    ..generic::WITH_GENERATION_AND_STATUS_ALONE
};

fn validate_status(policy: &Value, old: &Value, _: &Context<'_>, errors: &mut Errors) {
    meta::validate_update(policy, old, errors);
    let (status, at) = (policy.field("status"), Path::new("status"));
    let (checking, list) = (at.child("typeChecking"), status.field("typeChecking").list("expressionWarnings"));
    let list_at = checking.child("expressionWarnings");
    for (index, warning) in list.iter().enumerate() {
        let here = list_at.index(index);
        if warning.text("warning").is_empty() {
            errors.required(here.child("warning"), "");
        }
        match warning.text("fieldRef").trim() {
            "" => errors.required(here.child("fieldRef"), ""),
            reference => {
                if let Err(error) = JsonPath::parse_template(&format!("{{{reference}}}")) {
                    errors.invalid(here.child("fieldRef"), reference, format!("invalid JSONPath: {error}"));
                }
            }
        }
    }
    conditions::validate(status.list("conditions"), &at.child("conditions"), errors);
}

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
/// Operations that can be mutated: a deletion cannot.
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

/// As [`required_one_of`], where an empty text is not a missing one.
fn pointer_to_one_of(value: &Value, field: &str, supported: &[&str], at: &Path<'_>, errors: &mut Errors) {
    match value.optional_text(field) {
        None => errors.required(at.child(field), ""),
        Some(text) if !supported.contains(&text) => errors.not_supported(at.child(field), text, supported),
        Some(_) => {}
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Validates the common part of both kinds of policies.
fn validate_policy(policy: &Value, errors: &mut Errors) {
    meta::validate(policy, false, names::dns1123_subdomain, errors);
    let (spec, at) = (policy.field("spec"), Path::new("spec"));
    pointer_to_one_of(spec, "failurePolicy", &FAILURE_POLICIES, &at, errors);
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

/// The compiler of a policy's expressions: with variables, or without.
enum Sources<'c> {
    Plain(&'c Compiler, bool),
    Composed(PolicyCompiler<'c>),
}

impl Sources<'_> {
    /// Adds what is wrong with an expression, which is shown as `shown`.
    fn validate(
        &self,
        (text, shown): (&str, &str),
        yields: ResultKind,
        authorizer: bool,
        at: Path<'_>,
        errors: &mut Errors,
    ) {
        let patch_types = matches!(yields, ResultKind::Object | ResultKind::JsonPatch);
        let result = match self {
            Sources::Plain(compiler, params) => {
                compiler.compile(text, yields, Scope { params: *params, authorizer, patch_types })
            }
            Sources::Composed(compiler) => compiler.compile(text, yields, authorizer, patch_types),
        };
        report(result.err(), shown, at, errors);
    }
}

fn report(error: Option<CompileError>, shown: &str, at: Path<'_>, errors: &mut Errors) {
    match error {
        None => {}
        Some(CompileError::Invalid(why)) => errors.invalid(at, shown, why),
        Some(CompileError::Internal(why)) => errors.internal(at, why),
    }
}

fn validate_conditions_and_variables<'c>(
    spec: &Value,
    old: Option<&Value>,
    context: &Context<'c>,
    is_composed: bool,
    at: &Path<'_>,
    errors: &mut Errors,
) -> Option<Sources<'c>> {
    // What was accepted once may stay.
    let is_stored = old
        .map(|old| old.field("spec"))
        .is_some_and(|old| ["paramKind", "matchConditions"].iter().all(|field| old.field(field) == spec.field(field)));
    if !is_stored {
        let (conditions, has_params) = (spec.list("matchConditions"), spec.has("paramKind"));
        validate_conditions(conditions, has_params, context, &at.child("matchConditions"), errors);
    }
    let Some(compiler) = context.expressions.policies() else {
        errors.internal(*at, "the compiler of expressions cannot be made".to_owned());
        return None;
    };
    let has_params = spec.has("paramKind");
    if !is_composed && spec.list("variables").is_empty() {
        return Some(Sources::Plain(compiler, has_params));
    }
    let mut composed = compiler.policy(has_params);
    let list = at.child("variables");
    for (index, variable) in spec.list("variables").iter().enumerate() {
        let here = list.index(index);
        let name = variable.text("name");
        if is_blank(name) {
            errors.required(here.child("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(here.child("name"), name, "must be a valid CEL identifier");
        }
        let expression = variable.text("expression");
        if is_blank(expression) {
            errors.required(here.child("expression"), "expression is not specified");
        } else {
            let result = composed.add_variable(name, expression);
            report(result.err(), expression, here.child("expression"), errors);
        }
    }
    Some(Sources::Composed(composed))
}

/// Validates the match conditions of a policy or a webhook.
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
                let scope = Scope { params: has_params, authorizer: true, patch_types: false };
                let result = match context.expressions.policies() {
                    Some(compiler) => compiler.compile(expression, ResultKind::Bool, scope).map(drop),
                    None => Err(CompileError::Internal("the compiler of expressions cannot be made".to_owned())),
                };
                report(result.err(), expression, here.child("expression"), errors);
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
    let sources = validate_conditions_and_variables(spec, old, context, false, &at, errors);
    let (validations, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    let (validations_at, annotations_at) = (at.child("validations"), at.child("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(validations_at, detail);
        errors.required(annotations_at, detail);
        return;
    }
    for (index, validation) in validations.iter().enumerate() {
        validate_validation(validation, sources.as_ref(), &validations_at.index(index), errors);
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
        } else if let Some(sources) = &sources {
            let shown = annotation.text("valueExpression");
            let here = here.child("valueExpression");
            sources.validate((expression, shown), ResultKind::StringOrNull, true, here, errors);
        }
        if !seen.insert(key) {
            errors.duplicate(here.child("key"), key);
        }
    }
}

const PACKAGE: &str = "k8s.io/api/admissionregistration/v1";

fn validate_validation(validation: &Value, sources: Option<&Sources<'_>>, at: &Path<'_>, errors: &mut Errors) {
    let expression = validation.text("expression");
    if is_blank(expression) {
        errors.required(at.child("expression"), "expression is not specified");
    } else if let Some(sources) = sources {
        sources.validate((expression, expression), ResultKind::Bool, true, at.child("expression"), errors);
    }
    for field in ["messageExpression", "message"] {
        let text = validation.text(field);
        if !text.is_empty() && is_blank(text) {
            errors.invalid(at.child(field), text, "must be non-empty if specified");
        } else if field == "message" && text.trim().contains(['\r', '\n']) {
            errors.invalid(at.child(field), text, "must not contain line breaks");
        } else if field == "messageExpression"
            && !text.is_empty()
            && let Some(sources) = sources
        {
            sources.validate((text, text), ResultKind::String, false, at.child(field), errors);
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
    let sources = validate_conditions_and_variables(spec, old, context, true, &at, errors);
    let list = at.child("mutations");
    if spec.list("mutations").is_empty() {
        errors.required(list, "mutations must contain at least one item");
    }
    for (index, mutation) in spec.list("mutations").iter().enumerate() {
        validate_mutation(mutation, sources.as_ref(), &list.index(index), errors);
    }
    required_one_of(spec, "reinvocationPolicy", &["IfNeeded", "Never"], &at, errors);
}

fn validate_mutation(mutation: &Value, sources: Option<&Sources<'_>>, at: &Path<'_>, errors: &mut Errors) {
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
    // The field that belongs to the type comes first.
    let own_first =
        kinds.iter().filter(|(known, _)| *known == kind).chain(kinds.iter().filter(|(known, _)| *known != kind));
    for (known, field) in own_first {
        let here = at.child(field);
        match (*known == kind, mutation.optional(field)) {
            (true, None) => errors.required(here, format!("must be specified when patchType is {kind}")),
            (true, Some(patch)) => {
                let yields = if kind == "JSONPatch" { ResultKind::JsonPatch } else { ResultKind::Object };
                match (patch.text("expression").trim(), sources) {
                    ("", _) => errors.required(here.child("expression"), ""),
                    (text, Some(sources)) => {
                        sources.validate((text, text), yields, true, here.child("expression"), errors);
                    }
                    (_, None) => {}
                }
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
    pointer_to_one_of(matched, "matchPolicy", &["Equivalent", "Exact"], at, errors);
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
    let mut seen = SeenKeys::default();
    for (index, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(action) {
            errors.not_supported(at.index(index), *action, &ACTIONS);
        }
        if !seen.insert(*action) {
            errors.duplicate(at.index(index), *action);
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                      API response and headers serves no purpose)";
        errors.invalid(*at, spec.field("validationActions").clone(), detail);
    }
}
