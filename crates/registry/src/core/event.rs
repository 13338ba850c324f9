//! Events, in the core group and in `events.k8s.io`.
//!
//! Follows `pkg/apis/core/validation/events.go`. Both groups show one internal type, whose names errors use.

use api::field::{BadValue, Errors, Path};
use api::json::Value;
use api::names;
use api::well_known::NAMESPACE_SYSTEM;

use crate::document::same;
use crate::meta::{self, IMMUTABLE, invalid};
use crate::render;
use crate::strategy::{PLAIN, Strategy};

pub(crate) const CORE: Strategy = Strategy {
    validate_create: |event, _, errors| validate(event, "reportingComponent", errors),
    validate_update: |event, _, _, errors| validate(event, "reportingComponent", errors),
    ..PLAIN
};

pub(crate) const EVENTS: Strategy = Strategy {
    validate_create: |event, _, errors| {
        let event = internal(event);
        validate(&event, "reportingController", errors);
        meta::validate(&event, true, names::dns1123_subdomain, errors);
        validate_new(&event, errors);
    },
    validate_update: |event, old, _, errors| {
        let (event, old) = (internal(event), internal(old));
        validate(&event, "reportingController", errors);
        meta::validate_update(&event, &old, errors);
        validate_change(&event, &old, errors);
    },
    ..PLAIN
};

/// The event under the names of the core group.
fn internal(event: &Value) -> Value {
    let mut internal = event.clone();
    for (new, old) in [
        ("note", "message"),
        ("regarding", "involvedObject"),
        ("reportingController", "reportingComponent"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if let Some(value) = internal.as_object_mut().and_then(|fields| fields.remove(new)) {
            internal.set(old, value);
        }
    }
    internal
}

fn validate(event: &Value, reporter: &str, errors: &mut Errors) {
    let at = Path::ROOT;
    let object_namespace = event.field("involvedObject").text("namespace");
    let namespace = event.field("metadata").text("namespace");
    let is_old = !event.has("eventTime");
    let fits = match (is_old, object_namespace.is_empty()) {
        (true, true) => matches!(namespace, "" | "default"),
        (true, false) => namespace == object_namespace,
        (false, true) => matches!(namespace, "default" | NAMESPACE_SYSTEM),
        (false, false) => true,
    };
    if !fits {
        let here = at.child("involvedObject");
        errors.invalid(here.child("namespace"), object_namespace, "does not match event.namespace");
    }
    if is_old {
        return;
    }
    let component = event.text("reportingComponent");
    if component.is_empty() {
        errors.required(at.child(reporter), "");
    }
    invalid(names::qualified_name(component), component, at.child(reporter), errors);
    for (name, max) in [("reportingInstance", 128_usize), ("action", 128), ("reason", 128), ("message", 1024)] {
        let text = event.text(name);
        if text.is_empty() && name != "message" {
            errors.required(at.child(name), "");
        }
        if text.len() > max {
            errors.invalid(at.child(name), "", format!("can have at most {max} characters"));
        }
    }
}

fn validate_series(event: &Value, errors: &mut Errors) {
    let Some(series) = event.optional("series") else { return };
    if series.int("count") < 2 {
        errors.invalid(Path::new("series.count"), "", "should be at least 2");
    }
    if !series.has("lastObservedTime") {
        errors.required(Path::new("series.lastObservedTime"), "");
    }
}

fn validate_new(event: &Value, errors: &mut Errors) {
    validate_series(event, errors);
    if !event.has("eventTime") {
        errors.required(Path::new("eventTime"), "");
    }
    let kind = event.text("type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(Path::new("type"), "", format!("has invalid value: {kind}"));
    }
    for name in ["firstTimestamp", "lastTimestamp"] {
        if event.has(name) {
            errors.invalid(Path::new(name), "", "needs to be unset");
        }
    }
    if event.int("count") != 0 {
        errors.invalid(Path::new("count"), "", "needs to be unset");
    }
    let source = event.field("source");
    if !source.text("component").is_empty() || !source.text("host").is_empty() {
        errors.invalid(Path::new("source"), "", "needs to be unset");
    }
}

fn validate_change(event: &Value, old: &Value, errors: &mut Errors) {
    if !same(event.field("series"), old.field("series")) {
        validate_series(event, errors);
    }
    let names = [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ];
    for name in names.into_iter().filter(|name| !same(event.field(name), old.field(name))) {
        let value = event.field(name);
        let shown = match name {
            "involvedObject" | "related" if !value.is_null() => render::core("ObjectReference", value),
            "source" => render::core("EventSource", &or_empty(value)),
            "firstTimestamp" | "lastTimestamp" | "eventTime" | "related" if value.is_null() => {
                BadValue::Rendered("null".to_owned())
            }
            "count" => BadValue::from(event.int("count")),
            _ if value.is_null() => BadValue::from(""),
            _ => BadValue::Value(value.clone()),
        };
        let shown_name = if name == "reportingComponent" { "reportingController" } else { name };
        errors.invalid(Path::new(shown_name), shown, IMMUTABLE);
    }
}

fn or_empty(value: &Value) -> Value {
    if value.is_null() { Value::object() } else { value.clone() }
}
