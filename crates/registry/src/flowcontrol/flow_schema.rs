//! Validation of FlowSchemas.

use api::field::{Errors, Path};
use api::json::{self, Value};
use api::names;

use super::{PACKAGE, validate_status};
use crate::document::same;
use crate::meta;
use crate::render;

const PRECEDENCE_MAX: i64 = 10_000;

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

/// The two schemas that every server has, whatever an administrator does: they cannot be other than this.
const EXEMPT: &str = r#"{"priorityLevelConfiguration":{"name":"exempt"},"matchingPrecedence":1,"rules":[{"subjects":[{"kind":"Group","group":{"name":"system:masters"}}],"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}"#;
const CATCH_ALL: &str = r#"{"priorityLevelConfiguration":{"name":"catch-all"},"matchingPrecedence":10000,"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"Group","group":{"name":"system:unauthenticated"}},{"kind":"Group","group":{"name":"system:authenticated"}}],"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}"#;

pub(super) fn validate(schema: &Value, errors: &mut Errors) {
    meta::validate(schema, false, names::dns1123_subdomain, errors);
    let name = schema.field("metadata").text("name");
    let spec = schema.field("spec");
    validate_spec(name, spec, errors);
    let fixed = match name {
        "exempt" => Some(EXEMPT),
        "catch-all" => Some(CATCH_ALL),
        _ => None,
    };
    if let Some(fixed) = fixed.and_then(|text| json::parse(text.as_bytes()).ok())
        && !same(spec, &fixed)
    {
        let detail = format!("spec of '{name}' must equal the fixed value");
        errors.invalid(Path::new("spec"), render::internal(PACKAGE, "FlowSchemaSpec", spec), detail);
    }
    validate_status(schema, errors);
}

fn validate_spec(name: &str, spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    let precedence = spec.int("matchingPrecedence");
    let precedence_at = at.child("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(precedence_at, precedence, "must be a positive value");
    }
    if precedence > PRECEDENCE_MAX {
        errors.invalid(precedence_at, precedence, format!("must not be greater than {PRECEDENCE_MAX}"));
    }
    if precedence == 1 && name != "exempt" {
        let detail = "only the schema named 'exempt' may have matchingPrecedence 1";
        errors.invalid(precedence_at, precedence, detail);
    }
    if let Some(method) = spec.optional("distinguisherMethod")
        && !matches!(method.text("type"), "ByNamespace" | "ByUser")
    {
        let shown = render::internal(PACKAGE, "FlowDistinguisherMethod", method);
        errors.not_supported(at.child("distinguisherMethod").child("type"), shown, &["ByNamespace", "ByUser"]);
    }
    let level_at = at.child("priorityLevelConfiguration");
    match spec.field("priorityLevelConfiguration").text("name") {
        "" => errors.required(level_at.child("name"), "must reference a priority level"),
        level => meta::invalid(names::dns1123_subdomain(level), level, level_at.child("name"), errors),
    }
    let rules_at = at.child("rules");
    for (index, rule) in spec.list("rules").iter().enumerate() {
        validate_rule(rule, &rules_at.index(index), errors);
    }
}

fn validate_rule(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let subjects_at = at.child("subjects");
    let subjects = rule.list("subjects");
    for (index, subject) in subjects.iter().enumerate() {
        validate_subject(subject, &subjects_at.index(index), errors);
    }
    if subjects.is_empty() {
        errors.required(subjects_at, "subjects must contain at least one value");
    }
    let (resources, paths) = (rule.list("resourceRules"), rule.list("nonResourceRules"));
    if resources.is_empty() && paths.is_empty() {
        errors.required(*at, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let resources_at = at.child("resourceRules");
    for (index, rule) in resources.iter().enumerate() {
        validate_resource_rule(rule, &resources_at.index(index), errors);
    }
    let paths_at = at.child("nonResourceRules");
    for (index, rule) in paths.iter().enumerate() {
        validate_path_rule(rule, &paths_at.index(index), errors);
    }
}

/// Field of each kind of subject.
const SUBJECTS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];

fn validate_subject(subject: &Value, at: &Path<'_>, errors: &mut Errors) {
    let kind = subject.text("kind");
    let Some((_, own)) = SUBJECTS.iter().find(|(known, _)| *known == kind) else {
        return errors.not_supported(at.child("kind"), kind, &["Group", "ServiceAccount", "User"]);
    };
    let here = at.child(own);
    match subject.optional(own) {
        None => errors.required(here, format!("{own} is required when subject kind is '{kind}'")),
        Some(it) if kind == "ServiceAccount" => validate_account(it, &here, errors),
        Some(it) if it.text("name").is_empty() => errors.required(here.child("name"), ""),
        Some(_) => {}
    }
    // Kubernetes: the fields of the other kinds, in this order.
    for (other, field) in SUBJECTS {
        if field != *own && subject.has(field) {
            errors.forbidden(at.child(field), format!("{field} is forbidden when subject kind is not '{other}'"));
        }
    }
}

fn validate_account(account: &Value, at: &Path<'_>, errors: &mut Errors) {
    match account.text("name") {
        "" => errors.required(at.child("name"), ""),
        "*" => {}
        name => meta::invalid(names::dns1123_subdomain(name), name, at.child("name"), errors),
    }
    match account.text("namespace") {
        "" => errors.required(at.child("namespace"), "must specify namespace for service account"),
        namespace => meta::invalid(names::dns1123_label(namespace), namespace, at.child("namespace"), errors),
    }
}

fn validate_verbs(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.child("verbs");
    let verbs = rule.list("verbs");
    if verbs.is_empty() {
        errors.required(at, "verbs must contain at least one value");
    } else if rule.texts("verbs").any(|verb| verb == "*") {
        if verbs.len() > 1 {
            errors.invalid(at, verbs.to_vec(), "if '*' is present, must not specify other verbs");
        }
    } else if !rule.texts("verbs").all(|verb| VERBS.contains(&verb)) {
        errors.not_supported(at, verbs.to_vec(), VERBS);
    }
}

fn validate_resource_rule(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, at, errors);
    for (field, one, many) in [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")] {
        let given = rule.list(field);
        if given.is_empty() {
            errors.required(at.child(field), format!("resource rules must supply at least one {one}"));
        } else if given.len() > 1 && rule.texts(field).any(|it| it == "*") {
            let detail = format!("if '*' is present, must not specify other {many}");
            errors.invalid(at.child(field), given.to_vec(), detail);
        }
    }
    let here = at.child("namespaces");
    let namespaces = rule.list("namespaces");
    if namespaces.is_empty() && !rule.flag("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(here, detail);
    } else if rule.texts("namespaces").any(|it| it == "*") {
        if namespaces.len() > 1 {
            errors.invalid(here, namespaces.to_vec(), "if '*' is present, must not specify other namespaces");
        }
    } else {
        for (index, namespace) in rule.texts("namespaces").enumerate() {
            for complaint in names::dns1123_label(namespace) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {complaint}");
                errors.invalid(here.index(index), namespace, detail);
            }
        }
    }
}

fn validate_path_rule(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_verbs(rule, at, errors);
    let here = at.child("nonResourceURLs");
    let paths = rule.list("nonResourceURLs");
    if paths.is_empty() {
        errors.required(here, "nonResourceURLs must contain at least one value");
    } else if rule.texts("nonResourceURLs").any(|it| it == "*") {
        if paths.len() > 1 {
            errors.invalid(here, paths.to_vec(), "if '*' is present, must not specify other non-resource URLs");
        }
    } else {
        for (index, path) in rule.texts("nonResourceURLs").enumerate() {
            if let Some(complaint) = path_complaint(path) {
                errors.invalid(here.index(index), path, complaint);
            }
        }
    }
}

fn path_complaint(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    match path {
        "" => Some("must not be empty"),
        "/" => None,
        _ if !path.starts_with('/') => Some("must start with slash"),
        _ if path.contains(' ') => Some("must not contain white-space"),
        _ if path.contains("//") => Some("must not contain double slash"),
        _ if stars > 1 || stars == 1 && !path.ends_with("/*") => Some("wildcard can only do suffix matching"),
        _ => None,
    }
}
