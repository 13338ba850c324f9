//! Ingresses and their classes: hosts, paths, backends.
//!
//! Follows `pkg/apis/networking/validation`.

use api::field::{BadValue, ErrorType, Errors, Path};
use api::json::Value;
use api::names;

use crate::core::addresses;
use crate::core::pod::probes::validate_port_number;
use crate::generic;
use crate::meta::{self, immutable, invalid};
use crate::strategy::{Part, Strategy};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(crate) const INGRESS: Strategy = Strategy {
    warn: |ingress, old, _| {
        let is_set = ingress.field("metadata").map("annotations").contains_key(CLASS_ANNOTATION);
        let is_warned = old.is_none() && is_set && !ingress.field("spec").has("ingressClassName");
        let text =
            format!("annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead");
        is_warned.then_some(text).into_iter().collect()
    },
    validate_create: |ingress, _, errors| {
        meta::validate(ingress, true, names::dns1123_subdomain, errors);
        validate_spec(ingress.field("spec"), None, errors);
        let class = ingress.field("spec").optional_text("ingressClassName");
        let annotation = ingress.field("metadata").map("annotations").get(CLASS_ANNOTATION).and_then(Value::as_str);
        if let (Some(class), Some(annotation)) = (class, annotation)
            && class != annotation
        {
            let at = Path::new("annotations");
            let detail = "must match `ingressClassName` when both are specified";
            errors.invalid(at.child(CLASS_ANNOTATION), annotation, detail);
        }
    },
    validate_update: |ingress, old, _, errors| {
        meta::validate_update(ingress, old, errors);
        validate_spec(ingress.field("spec"), Some(old.field("spec")), errors);
    },
    subresources: &[(
        "status",
        Part {
            prepare: |ingress, old, _| ingress.set("spec", old.field("spec").clone()),
            validate: |ingress, old, _, errors| {
                meta::validate_update(ingress, old, errors);
                validate_status(ingress, old, errors);
            },
        },
    )],
    ..generic::WITH_GENERATION
};

pub(crate) const CLASS: Strategy = Strategy {
    validate_create: |class, _, errors| {
        meta::validate(class, false, names::dns1123_subdomain, errors);
        validate_class(class.field("spec"), errors);
    },
    validate_update: |class, old, _, errors| {
        meta::validate_update(class, old, errors);
        let (spec, at) = (class.field("spec"), Path::new("spec"));
        let controller = |spec: &Value| Value::from(spec.text("controller"));
        immutable(&controller(spec), &controller(old.field("spec")), at.child("controller"), errors);
        validate_class(spec, errors);
    },
    ..generic::COUNTED
};

fn validate_spec(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    let at = Path::new("spec");
    if spec.list("rules").is_empty() && !spec.has("defaultBackend") {
        let shown = if spec.has("rules") { "[]" } else { "null" };
        let shown = BadValue::Rendered(shown.to_owned());
        errors.invalid(at, shown, "either `defaultBackend` or `rules` must be specified");
    }
    if let Some(backend) = spec.optional("defaultBackend") {
        validate_backend(backend, &at.child("defaultBackend"), errors);
    }
    let rules = at.child("rules");
    // Kubernetes: rules with wildcards were not validated before; existing ones may stay.
    let keeps_bad_rules = old.is_some_and(has_bad_wildcard_rule);
    for (index, rule) in spec.list("rules").iter().enumerate() {
        let here = rules.index(index);
        let host = rule.text("host");
        validate_host(host, here.child("host"), errors);
        if !(host.contains('*') && keeps_bad_rules) {
            validate_http(rule, &here, errors);
        }
    }
    let tls = at.child("tls");
    let secret_is_wrong = |entry: &Value| {
        let name = entry.text("secretName");
        !name.is_empty() && !names::dns1123_subdomain(name).is_empty()
    };
    let keeps_bad_secrets = old.is_some_and(|old| old.list("tls").iter().any(secret_is_wrong));
    for (index, entry) in spec.list("tls").iter().enumerate() {
        let here = tls.index(index);
        let hosts = here.child("hosts");
        for (index, host) in entry.texts("hosts").enumerate() {
            invalid(host_complaints(host), host, hosts.index(index), errors);
        }
        if !keeps_bad_secrets && secret_is_wrong(entry) {
            let name = entry.text("secretName");
            invalid(names::dns1123_subdomain(name), name, here.child("secretName"), errors);
        }
    }
    if let Some(class) = spec.optional_text("ingressClassName") {
        invalid(names::dns1123_subdomain(class), class, at.child("ingressClassName"), errors);
    }
}

fn has_bad_wildcard_rule(spec: &Value) -> bool {
    let mut errors = Errors::new();
    for rule in spec.list("rules").iter().filter(|rule| rule.text("host").contains('*')) {
        validate_http(rule, &Path::new("spec"), &mut errors);
    }
    !errors.is_empty()
}

fn host_complaints(host: &str) -> Vec<String> {
    if host.contains('*') { names::wildcard_dns1123_subdomain(host) } else { names::dns1123_subdomain(host) }
}

fn validate_host(host: &str, at: Path<'_>, errors: &mut Errors) {
    if host.is_empty() {
        return;
    }
    if addresses::parse_sloppy(host).is_some() {
        errors.invalid(at, host, "must be a DNS name, not an IP address");
    }
    invalid(host_complaints(host), host, at, errors);
}

fn validate_http(rule: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(http) = rule.optional("http") else { return };
    let at = at.child("http");
    let at = at.child("paths");
    if http.list("paths").is_empty() {
        errors.required(at, "");
    }
    for (index, path) in http.list("paths").iter().enumerate() {
        validate_path(path, &at.index(index), errors);
    }
}

fn validate_path(path: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(path_type) = path.optional_text("pathType") else {
        errors.required(at.child("pathType"), "pathType must be specified");
        return;
    };
    let (text, here) = (path.text("path"), at.child("path"));
    match path_type {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                errors.invalid(here, text, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| text.contains(part)) {
                errors.invalid(here, text, format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| text.ends_with(end)) {
                errors.invalid(here, text, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                errors.invalid(here, text, "must be an absolute path");
            }
        }
        other => errors.not_supported(at.child("pathType"), other, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    validate_backend(path.field("backend"), &at.child("backend"), errors);
}

fn validate_backend(backend: &Value, at: &Path<'_>, errors: &mut Errors) {
    match (backend.optional("resource"), backend.optional("service")) {
        (Some(_), Some(_)) => errors.invalid(*at, "", "cannot set both resource and service backends"),
        (Some(resource), None) => validate_reference(resource, &at.child("resource"), errors),
        (None, Some(service)) => validate_service(service, at, errors),
        (None, None) => errors.invalid(*at, "", "resource or service backend is required"),
    }
}

fn validate_service(service: &Value, at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("service");
    let name = service.text("name");
    if name.is_empty() {
        errors.required(here.child("name"), "");
    } else {
        invalid(names::dns1123_label(name), name, here.child("name"), errors);
    }
    let port = service.field("port");
    let (name, number, here) = (port.text("name"), port.int("number"), here.child("port"));
    match (name.is_empty(), number) {
        (true, 0) => errors.required(*at, "port name or number is required"),
        (true, number) => validate_port_number(number, here.child("number"), errors),
        (false, 0) => invalid(names::port_name(name), name, here.child("name"), errors),
        (false, _) => errors.invalid(*at, "", "cannot set both port name & port number"),
    }
}

/// A reference to an object of any kind.
fn validate_reference(reference: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(group) = reference.optional_text("apiGroup") {
        invalid(names::dns1123_subdomain(group), group, at.child("apiGroup"), errors);
    }
    for field in ["kind", "name"] {
        let text = reference.text(field);
        if text.is_empty() {
            errors.required(at.child(field), "");
        } else {
            invalid(names::path_segment(text), text, at.child(field), errors);
        }
    }
}

fn validate_class(spec: &Value, errors: &mut Errors) {
    let at = Path::new("spec");
    let controller = spec.text("controller");
    if controller.len() > 250 {
        errors.too_long(at.child("controller"), 250);
    }
    meta::validate_domain_prefixed_path(controller, at.child("controller"), errors);
    let Some(parameters) = spec.optional("parameters") else { return };
    let at = at.child("parameters");
    let mut found = Errors::new();
    validate_reference(parameters, &at, &mut found);
    // What is missing is a declared rule, which comes behind the written ones.
    let (missing, wrong): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| it.error_type == ErrorType::Required);
    wrong.into_iter().for_each(|error| errors.push(error));
    let namespace = parameters.optional_text("namespace");
    match (parameters.text("scope"), namespace) {
        ("Namespace", None) => {
            errors.required(at.child("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        ("Namespace", Some(namespace)) => {
            invalid(names::dns1123_label(namespace), namespace, at.child("namespace"), errors);
        }
        ("Cluster", Some(_)) => {
            errors.forbidden(at.child("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        ("Cluster", None) => {}
        (scope, _) => errors.not_supported(at.child("scope"), scope, &["Cluster", "Namespace"]),
    }
    missing.into_iter().for_each(|error| errors.push(error));
}

fn validate_status(ingress: &Value, old: &Value, errors: &mut Errors) {
    let balancer = |it: &Value| it.field("status").field("loadBalancer").clone();
    let (new, old) = (balancer(ingress), balancer(old));
    let known: Vec<&str> = old.list("ingress").iter().map(|it| it.text("ip")).filter(|ip| !ip.is_empty()).collect();
    let at = Path::new("status");
    let at = at.child("loadBalancer");
    let at = at.child("ingress");
    for (index, point) in new.list("ingress").iter().enumerate() {
        let here = at.index(index);
        let (ip, host) = (point.text("ip"), point.text("hostname"));
        if !ip.is_empty() {
            addresses::validate(ip, &known, here.child("ip"), errors);
        }
        if !host.is_empty() {
            invalid(names::dns1123_subdomain(host), host, here.child("hostname"), errors);
            if addresses::parse_sloppy(host).is_some() {
                errors.invalid(here.child("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}
