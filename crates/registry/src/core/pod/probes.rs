//! Probes and lifecycle handlers of containers.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::meta::{invalid, non_negative};

/// Kind of a probe; the rules differ slightly.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Liveness,
    Readiness,
    Startup,
}

/// The three probes of a container.
pub(super) fn validate_all(container: &Value, grace: Option<i64>, at: &Path<'_>, errors: &mut Errors) {
    let probes =
        [("livenessProbe", Kind::Liveness), ("readinessProbe", Kind::Readiness), ("startupProbe", Kind::Startup)];
    for (name, kind) in probes {
        if let Some(probe) = container.optional(name) {
            validate_probe(probe, kind, grace, &at.child(name), errors);
        }
    }
}

fn validate_probe(probe: &Value, kind: Kind, grace: Option<i64>, at: &Path<'_>, errors: &mut Errors) {
    validate_handler(probe, grace, at, errors);
    for name in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        non_negative(probe.int(name), at.child(name), errors);
    }
    let seconds = probe.optional_int("terminationGracePeriodSeconds");
    if let Some(seconds) = seconds.filter(|it| *it <= 0) {
        errors.invalid(at.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
    match (kind, seconds) {
        (Kind::Readiness, Some(seconds)) => {
            let detail = "must not be set for readinessProbes";
            errors.invalid(at.child("terminationGracePeriodSeconds"), seconds, detail);
        }
        (Kind::Readiness, None) => {}
        _ => {
            let threshold = probe.int("successThreshold");
            if threshold != 1 {
                errors.invalid(at.child("successThreshold"), threshold, "must be 1");
            }
        }
    }
}

/// Validates the hooks after start and before stop.
pub(super) fn validate_lifecycle(lifecycle: &Value, grace: Option<i64>, at: &Path<'_>, errors: &mut Errors) {
    for name in ["postStart", "preStop"] {
        if let Some(handler) = lifecycle.optional(name) {
            validate_handler(handler, grace, &at.child(name), errors);
        }
    }
}

fn validate_handler(handler: &Value, grace: Option<i64>, at: &Path<'_>, errors: &mut Errors) {
    let mut count = 0_usize;
    for name in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = handler.optional(name) else { continue };
        let here = at.child(name);
        if count > 0 {
            errors.forbidden(here, "may not specify more than 1 handler type");
            continue;
        }
        count = 1;
        match name {
            "exec" => {
                if action.list("command").is_empty() {
                    errors.required(here.child("command"), "");
                }
            }
            "httpGet" => validate_http(action, &here, errors),
            "sleep" => {
                let seconds = action.int("seconds");
                if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
                    let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(here, seconds, detail);
                }
            }
            _ => validate_port(action.field("port"), here.child("port"), errors),
        }
    }
    if count == 0 {
        errors.required(*at, "must specify a handler type");
    }
}

fn validate_http(action: &Value, at: &Path<'_>, errors: &mut Errors) {
    if action.text("path").is_empty() {
        errors.required(at.child("path"), "");
    }
    validate_port(action.field("port"), at.child("port"), errors);
    let scheme = action.text("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(at.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in action.list("httpHeaders") {
        let name = header.text("name");
        invalid(names::http_header_name(name), name, at.child("httpHeaders"), errors);
    }
}

/// A port by number or name.
pub(crate) fn validate_port(port: &Value, at: Path<'_>, errors: &mut Errors) {
    match port {
        Value::String(name) => invalid(names::port_name(name), name, at, errors),
        other => validate_port_number(other.as_i64().unwrap_or_default(), at, errors),
    }
}

/// The number of a port.
pub(crate) fn validate_port_number(port: i64, at: Path<'_>, errors: &mut Errors) {
    if !(1..=65535).contains(&port) {
        errors.invalid(at, port, "must be between 1 and 65535, inclusive");
    }
}
