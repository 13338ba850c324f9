//! Configurations of admission webhooks: client, rules and behavior.
//!
//! Follows `pkg/apis/admissionregistration/validation`. Nothing calls them here.

use std::collections::BTreeSet;

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::admission_policies::validate_conditions;
use crate::generic;
use crate::go_url;
use crate::meta::{self, invalid};
use crate::seen::SeenKeys;
use crate::strategy::{Context, Strategy};

pub(crate) const WEBHOOKS: Strategy = Strategy {
    validate_create: |configuration, context, errors| validate(configuration, None, context, errors),
    validate_update: |configuration, old, context, errors| {
        meta::validate_update(configuration, old, errors);
        validate(configuration, Some(old), context, errors);
    },
    warn: |configuration, _, _| excluded_rules(configuration),
    ..generic::COUNTED
};

/// Reviews are never sent to webhooks: warns of rules that name them.
fn excluded_rules(configuration: &Value) -> Vec<String> {
    let excluded = [
        ("authentication.k8s.io", "tokenreviews"),
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
        ("authorization.k8s.io", "localsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ];
    let mut warnings = Vec::new();
    for (index, hook) in configuration.list("webhooks").iter().enumerate() {
        for (rule_index, rule) in hook.list("rules").iter().enumerate() {
            for group in rule.texts("apiGroups") {
                for resource in rule.texts("resources") {
                    if excluded.contains(&(group, resource)) {
                        warnings.push(format!("webhooks[{index}].rules[{rule_index}]: {resource}.{group} is excluded from admission webhooks; this rule will have no effect"));
                    }
                }
            }
        }
    }
    warnings
}

/// Invalid values that may stay if they existed before.
struct Demands {
    unique_names: bool,
    known_versions: bool,
    no_side_effects: bool,
    good_selectors: bool,
    conditions: bool,
}

impl Demands {
    fn new(configuration: &Value, old: Option<&Value>) -> Self {
        let hooks = old.map(|old| old.list("webhooks")).unwrap_or_default();
        let distinct: BTreeSet<&str> = hooks.iter().map(|hook| hook.text("name")).collect();
        let is_known = |hook: &Value| hook.list("admissionReviewVersions").is_empty() || has_known_version(hook);
        let selectors = ["namespaceSelector", "objectSelector"];
        let conditions = |of: &Value| -> Vec<Value> {
            of.list("webhooks").iter().map(|hook| hook.field("matchConditions").clone()).collect()
        };
        Self {
            unique_names: distinct.len() == hooks.len(),
            known_versions: hooks.iter().all(is_known),
            no_side_effects: hooks.iter().all(|hook| SIDE_EFFECTS.contains(&hook.text("sideEffects"))),
            conditions: old.is_none() || conditions(configuration) != conditions(old.unwrap_or(&Value::Null)),
            good_selectors: !hooks.iter().any(|hook| selectors.iter().any(|it| meta::has_bad_values(hook.field(it)))),
        }
    }
}

const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const VERSIONS: [&str; 2] = ["v1", "v1beta1"];

fn has_known_version(hook: &Value) -> bool {
    hook.texts("admissionReviewVersions").any(|it| VERSIONS.contains(&it))
}

fn validate(configuration: &Value, old: Option<&Value>, context: &Context<'_>, errors: &mut Errors) {
    meta::validate(configuration, false, names::dns1123_subdomain, errors);
    let demands = Demands::new(configuration, old);
    let at = Path::new("webhooks");
    let mut seen = BTreeSet::new();
    for (index, hook) in configuration.list("webhooks").iter().enumerate() {
        let here = at.index(index);
        validate_hook(hook, &demands, context, &here, errors);
        validate_versions(hook, demands.known_versions, &here.child("admissionReviewVersions"), errors);
        let name = hook.text("name");
        if demands.unique_names && !name.is_empty() && !seen.insert(name) {
            errors.duplicate(here.child("name"), name);
        }
    }
}

/// A text that must be one of a few, if it is there.
fn one_of(hook: &Value, field: &str, supported: &[&str], at: &Path<'_>, errors: &mut Errors) {
    if let Some(text) = hook.optional_text(field).filter(|text| !supported.contains(text)) {
        errors.not_supported(at.child(field), text, supported);
    }
}

fn validate_hook(hook: &Value, demands: &Demands, context: &Context<'_>, at: &Path<'_>, errors: &mut Errors) {
    validate_name(hook.text("name"), at.child("name"), errors);
    let rules = at.child("rules");
    for (index, rule) in hook.list("rules").iter().enumerate() {
        validate_rule(rule, &rules.index(index), errors);
    }
    one_of(hook, "failurePolicy", &["Fail", "Ignore"], at, errors);
    one_of(hook, "matchPolicy", &["Equivalent", "Exact"], at, errors);
    let all = ["None", "NoneOnDryRun", "Some", "Unknown"];
    let effects = if demands.no_side_effects { &SIDE_EFFECTS[..] } else { &all[..] };
    if !hook.has("sideEffects") {
        errors.required(at.child("sideEffects"), format!("must specify one of {}", effects.join(", ")));
    }
    one_of(hook, "sideEffects", effects, at, errors);
    if let Some(seconds) = hook.optional_int("timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        errors.invalid(at.child("timeoutSeconds"), seconds, "the timeout value must be between 1 and 30 seconds");
    }
    for name in ["namespaceSelector", "objectSelector"] {
        if let Some(selector) = hook.optional(name) {
            meta::validate_selector(selector, !demands.good_selectors, &at.child(name), errors);
        }
    }
    one_of(hook, "reinvocationPolicy", &["IfNeeded", "Never"], at, errors);
    validate_client(hook.field("clientConfig"), &at.child("clientConfig"), errors);
    if demands.conditions {
        let conditions = hook.list("matchConditions");
        validate_conditions(conditions, false, context, &at.child("matchConditions"), errors);
    }
}

/// A domain of at least three parts.
fn validate_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    let complaints = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.required(at, "");
    } else if !complaints.is_empty() {
        errors.invalid(at, name, complaints.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(at, name, "should be a domain with at least three segments separated by dots");
    }
}

/// Validates the client of a webhook: a URL, or a service.
pub(crate) fn validate_client(config: &Value, at: &Path<'_>, errors: &mut Errors) {
    match (config.optional_text("url"), config.optional("service")) {
        (Some(url), None) => validate_url(url, at.child("url"), errors),
        (None, Some(service)) => validate_service(service, &at.child("service"), errors),
        _ => errors.required(*at, "exactly one of url or service is required"),
    }
}

fn validate_url(url: &str, at: Path<'_>, errors: &mut Errors) {
    if let Some(error) = go_url::parse_error(url) {
        let detail = format!("url must be a valid URL: {error}; desired format: https://host[/path]");
        return errors.required(at, detail);
    }
    let is_scheme = |it: &str| {
        it.starts_with(|first: char| first.is_ascii_alphabetic())
            && it.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let (scheme, rest) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).unwrap_or(("", url));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.strip_prefix("//").and_then(|it| it.split('/').next()).unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let scheme = scheme.to_ascii_lowercase();
    if scheme != "https" {
        let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        errors.invalid(at, scheme, detail);
    }
    if host.is_empty() {
        errors.invalid(at, "", "host must be specified; desired format: https://host[/path]");
    }
    if let Some(user) = user {
        errors.invalid(at, user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        errors.invalid(at, fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        errors.invalid(at, query, "query parameters are not permitted in the URL");
    }
}

fn validate_service(service: &Value, at: &Path<'_>, errors: &mut Errors) {
    // Kubernetes hands over name and namespace in each other's place.
    for (field, asked) in [("name", "namespace"), ("namespace", "name")] {
        if service.text(asked).is_empty() {
            errors.required(at.child(field), "");
        }
    }
    let port = service.int("port");
    if !(1..=65535).contains(&port) {
        errors.invalid(at.child("port"), port, "port is not valid: must be between 1 and 65535, inclusive");
    }
    let (path, here) = (service.text("path"), at.child("path"));
    match path {
        "" | "/" => return,
        "//" => return errors.invalid(here, path, "segment[0] may not be empty"),
        _ => {}
    }
    if !path.starts_with('/') {
        errors.invalid(here, path, "must start with a '/'");
    }
    let inner: String = path.chars().skip(1).collect();
    for (index, step) in inner.strip_suffix('/').unwrap_or(&inner).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(here, path, format!("segment[{index}] may not be empty"));
        }
        for complaint in Some(step).filter(|it| !it.is_empty()).map(names::dns1123_subdomain).unwrap_or_default() {
            errors.invalid(here, path, format!("segment[{index}]: {complaint}"));
        }
    }
}

fn validate_versions(hook: &Value, demands_known: bool, at: &Path<'_>, errors: &mut Errors) {
    let versions: Vec<&str> = hook.texts("admissionReviewVersions").collect();
    if versions.is_empty() {
        errors.required(*at, format!("must specify one of {}", VERSIONS.join(", ")));
        return;
    }
    let mut seen = SeenKeys::default();
    for (index, version) in versions.iter().enumerate() {
        if !seen.insert(*version) {
            errors.invalid(at.index(index), *version, "duplicate version");
        } else {
            invalid(names::dns1035_label(version), version, at.index(index), errors);
        }
    }
    if demands_known && !has_known_version(hook) {
        let shown = hook.field("admissionReviewVersions").clone();
        errors.invalid(*at, shown, format!("must include at least one of {}", VERSIONS.join(", ")));
    }
}

/// Validates a rule of a webhook or a policy.
pub(crate) fn validate_rule(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list = [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")];
    for (field, words) in list {
        let (here, values) = (at.child(field), rule.list(field));
        if values.is_empty() {
            errors.required(here, "");
        }
        if values.len() > 1 && rule.texts(field).any(|it| it == "*") {
            let detail = format!("if '*' is present, must not specify other {words}");
            errors.invalid(here, rule.field(field).clone(), detail);
        }
        for (index, text) in rule.texts(field).enumerate() {
            match field {
                "operations" if !OPERATIONS.contains(&text) => {
                    errors.not_supported(here.index(index), text, &OPERATIONS);
                }
                "apiVersions" if text.is_empty() => errors.required(here.index(index), ""),
                _ => {}
            }
        }
    }
    validate_resources(rule, &at.child("resources"), errors);
    one_of(rule, "scope", &["*", "Cluster", "Namespaced"], at, errors);
}

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

fn validate_resources(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let resources: Vec<&str> = rule.texts("resources").collect();
    if resources.is_empty() {
        errors.required(*at, "");
    }
    let (mut whole, mut everywhere) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain = false;
    for (index, text) in resources.iter().enumerate() {
        if text.is_empty() {
            errors.required(at.index(index), "");
            continue;
        }
        let Some((resource, part)) = text.split_once('/') else {
            // Kubernetes: the last one counts.
            has_plain = *text != "*";
            continue;
        };
        if whole.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {text}");
            errors.invalid(at.index(index), *text, detail);
        }
        if everywhere.contains(part) {
            let detail = format!("if '*/{part}' is present, must not specify {text}");
            errors.invalid(at.index(index), *text, detail);
        }
        if part == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            everywhere.insert(part);
        }
    }
    let shown = || rule.field("resources").clone();
    if resources.len() > 1 && resources.contains(&"*/*") {
        errors.invalid(*at, shown(), "if '*/*' is present, must not specify other resources");
    }
    if resources.contains(&"*") && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(*at, shown(), detail);
    }
}
