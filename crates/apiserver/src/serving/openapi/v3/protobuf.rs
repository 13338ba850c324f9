//! A document in protobuf: gnostic's `openapi.v3` messages.

use api::json::{Object, Value};
use bytes::Bytes;

use super::super::message::{Message, any, entries, extensions, items, named, texts, within};

/// Writes a document.
pub(in super::super) fn write(document: &Value) -> Bytes {
    let text = |path: &[&str]| document.str_at(path).unwrap_or_default();
    let mut info = Message::default();
    info.text(1, text(&["info", "title"])).text(6, text(&["info", "version"]));
    let mut paths = Message::default();
    for (name, item) in entries(document, "paths") {
        paths.message(1, &named(name, &path_item(item)));
    }
    let empty = Value::Null;
    let parts = document.get("components").unwrap_or(&empty);
    let mut schemas = Message::default();
    for (name, it) in entries(parts, "schemas") {
        schemas.message(1, &named(name, &schema_or_reference(it)));
    }
    let mut securities = Message::default();
    for (name, security) in entries(parts, "securitySchemes") {
        let mut scheme = Message::default();
        for (number, field) in [(1, "type"), (2, "description"), (3, "name"), (4, "in")] {
            scheme.text(number, security.str_at(&[field]).unwrap_or_default());
        }
        securities.message(1, &named(name, &within(1, &scheme)));
    }
    let mut components = Message::default();
    components.message(1, &schemas).message(7, &securities);
    let mut all = Message::default();
    all.text(1, text(&["openapi"])).message(2, &info).message(4, &paths).message(5, &components);
    all.into_bytes()
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    let methods =
        [(4, "get"), (5, "put"), (6, "post"), (7, "delete"), (8, "options"), (9, "head"), (10, "patch"), (11, "trace")];
    for (number, method) in methods {
        if let Some(it) = item.get(method) {
            out.message(number, &operation(it));
        }
    }
    for it in items(item, "parameters") {
        out.message(13, &within(1, &parameter(it)));
    }
    out
}

fn operation(it: &Value) -> Message {
    let mut out = Message::default();
    texts(&mut out, 1, it, "tags");
    for (number, field) in [(3, "description"), (5, "operationId")] {
        out.text(number, it.str_at(&[field]).unwrap_or_default());
    }
    for it in items(it, "parameters") {
        out.message(6, &within(1, &parameter(it)));
    }
    if let Some(it) = it.get("requestBody") {
        let mut body = Message::default();
        body.text(1, it.str_at(&["description"]).unwrap_or_default())
            .message(2, &content(it))
            .flag(3, is(it, "required"));
        out.message(7, &within(1, &body));
    }
    let mut responses = Message::default();
    for (code, it) in entries(it, "responses") {
        let mut response = Message::default();
        response.text(1, it.str_at(&["description"]).unwrap_or_default());
        if it.get("content").is_some() {
            response.message(3, &content(it));
        }
        responses.message(2, &named(code, &within(1, &response)));
    }
    out.message(8, &responses);
    extensions(&mut out, 13, it);
    out
}

/// The schemas of a body, by media type.
fn content(it: &Value) -> Message {
    let mut out = Message::default();
    for (media, it) in entries(it, "content") {
        let schema = it.get("schema").map(|it| within(1, &schema_or_reference(it))).unwrap_or_default();
        out.message(1, &named(media, &schema));
    }
    out
}

fn parameter(it: &Value) -> Message {
    let mut out = Message::default();
    for (number, field) in [(1, "name"), (2, "in"), (3, "description")] {
        out.text(number, it.str_at(&[field]).unwrap_or_default());
    }
    out.flag(4, is(it, "required"));
    if let Some(it) = it.get("schema") {
        out.message(10, &schema_or_reference(it));
    }
    out
}

fn is(it: &Value, field: &str) -> bool {
    it.get(field).and_then(Value::as_bool).unwrap_or_default()
}

fn schema_or_reference(it: &Value) -> Message {
    match it.str_at(&["$ref"]) {
        Some(reference) => {
            let mut to = Message::default();
            to.text(1, reference);
            within(2, &to)
        }
        None => within(1, &schema(it)),
    }
}

fn schema(it: &Value) -> Message {
    let mut out = Message::default();
    for (number, field) in [(9, "title"), (17, "pattern"), (25, "type"), (34, "description"), (35, "format")] {
        out.text(number, it.str_at(&[field]).unwrap_or_default());
    }
    for (number, field) in [(1, "nullable"), (12, "exclusiveMaximum"), (14, "exclusiveMinimum"), (20, "uniqueItems")] {
        out.flag(number, is(it, field));
    }
    for (number, field) in [(10, "multipleOf"), (11, "maximum"), (13, "minimum")] {
        if let Some(value) = it.get(field).and_then(Value::as_f64) {
            out.double(number, value);
        }
    }
    let sizes = [
        (15, "maxLength"),
        (16, "minLength"),
        (18, "maxItems"),
        (19, "minItems"),
        (21, "maxProperties"),
        (22, "minProperties"),
    ];
    for (number, field) in sizes {
        if let Some(size) = it.get(field).and_then(Value::as_i64).and_then(|size| u64::try_from(size).ok()) {
            out.number(number, size);
        }
    }
    texts(&mut out, 23, it, "required");
    for value in items(it, "enum") {
        out.message(24, &any(value));
    }
    for (number, field) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        for it in items(it, field) {
            out.message(number, &schema_or_reference(it));
        }
    }
    if let Some(inner) = it.get("not") {
        out.message(29, &schema(inner));
    }
    if let Some(inner) = it.get("items") {
        out.message(30, &within(1, &schema_or_reference(inner)));
    }
    if let Some(properties) = it.get("properties").and_then(Value::as_object) {
        let mut all = Message::default();
        for (name, it) in Object::iter(properties) {
            all.message(1, &named(name, &schema_or_reference(it)));
        }
        out.message(31, &all);
    }
    match it.get("additionalProperties") {
        Some(Value::Bool(true)) => drop(out.message(32, Message::default().flag(2, true))),
        Some(inner @ Value::Object(_)) => drop(out.message(32, &within(1, &schema_or_reference(inner)))),
        _ => {}
    }
    // Only scalars have a place.
    let mut default = Message::default();
    match it.get("default") {
        Some(Value::Bool(value)) => drop(out.message(33, default.flag(2, *value))),
        Some(Value::String(text)) => drop(out.message(33, default.text(3, text))),
        Some(value @ (Value::Int(_) | Value::Float(_))) => {
            out.message(33, default.double(1, value.as_f64().unwrap_or_default()));
        }
        _ => {}
    }
    extensions(&mut out, 36, it);
    out
}
