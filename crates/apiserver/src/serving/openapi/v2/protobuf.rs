//! The older document in protobuf: gnostic's `openapi.v2` messages.

use api::json::Value;
use bytes::Bytes;

use super::super::message::{Message, any, entries, extensions, items, named, texts, within};

/// Writes a document.
pub(super) fn write(document: &Value) -> Bytes {
    let text = |path: &[&str]| document.str_at(path).unwrap_or_default();
    let mut info = Message::default();
    info.text(1, text(&["info", "title"])).text(2, text(&["info", "version"]));
    let mut paths = Message::default();
    for (name, item) in entries(document, "paths") {
        paths.message(2, &named(name, &path_item(item)));
    }
    let mut definitions = Message::default();
    for (name, definition) in entries(document, "definitions") {
        definitions.message(1, &named(name, &schema(definition)));
    }
    let mut parameters = Message::default();
    for (name, it) in entries(document, "parameters") {
        parameters.message(1, &named(name, &parameter(it)));
    }
    let mut securities = Message::default();
    for (name, security) in entries(document, "securityDefinitions") {
        let mut key = Message::default();
        for (number, field) in [(1, "type"), (2, "name"), (3, "in"), (4, "description")] {
            key.text(number, security.str_at(&[field]).unwrap_or_default());
        }
        securities.message(1, &named(name, &within(2, &key)));
    }
    let mut all = Message::default();
    all.text(1, text(&["swagger"])).message(2, &info).message(8, &paths).message(9, &definitions);
    all.message(10, &parameters).message(13, &securities);
    all.into_bytes()
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(it) = item.get(method) {
            out.message(number, &operation(it));
        }
    }
    for it in items(item, "parameters") {
        out.message(9, &parameters_item(it));
    }
    out
}

fn operation(it: &Value) -> Message {
    let mut out = Message::default();
    texts(&mut out, 1, it, "tags");
    for (number, field) in [(3, "description"), (5, "operationId")] {
        out.text(number, it.str_at(&[field]).unwrap_or_default());
    }
    texts(&mut out, 6, it, "produces");
    texts(&mut out, 7, it, "consumes");
    for it in items(it, "parameters") {
        out.message(8, &parameters_item(it));
    }
    let mut responses = Message::default();
    for (code, it) in entries(it, "responses") {
        let mut response = Message::default();
        response.text(1, it.str_at(&["description"]).unwrap_or_default());
        if let Some(it) = it.get("schema") {
            response.message(2, &within(1, &schema(it)));
        }
        responses.message(1, &named(code, &within(1, &response)));
    }
    out.message(9, &responses);
    texts(&mut out, 10, it, "schemes");
    extensions(&mut out, 13, it);
    out
}

/// A parameter, or a reference to a shared one.
fn parameters_item(it: &Value) -> Message {
    match it.str_at(&["$ref"]) {
        Some(reference) => {
            let mut to = Message::default();
            to.text(1, reference);
            within(2, &to)
        }
        None => within(1, &parameter(it)),
    }
}

fn parameter(it: &Value) -> Message {
    let text = |field: &str| it.str_at(&[field]).unwrap_or_default();
    let is = |field: &str| it.get(field).and_then(Value::as_bool).unwrap_or_default();
    let mut out = Message::default();
    if text("in") == "body" {
        out.text(1, text("description")).text(2, text("name")).text(3, text("in")).flag(4, is("required"));
        if let Some(it) = it.get("schema") {
            out.message(5, &schema(it));
        }
        return within(1, &out);
    }
    // Parameters of the query have one more number between.
    let (place, kind, unique) = if text("in") == "path" { (4, 5, 19) } else { (3, 6, 20) };
    out.flag(1, is("required")).text(2, text("in")).text(3, text("description")).text(4, text("name"));
    out.text(kind, text("type")).flag(unique, is("uniqueItems"));
    within(2, &within(place, &out))
}

fn schema(it: &Value) -> Message {
    let mut out = Message::default();
    for (number, field) in [(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")] {
        out.text(number, it.str_at(&[field]).unwrap_or_default());
    }
    if let Some(default) = it.get("default") {
        out.message(5, &any(default));
    }
    for (number, field) in [(6, "multipleOf"), (7, "maximum"), (9, "minimum")] {
        if let Some(value) = it.get(field).and_then(Value::as_f64) {
            out.double(number, value);
        }
    }
    for (number, field) in [(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")] {
        out.flag(number, it.get(field).and_then(Value::as_bool).unwrap_or_default());
    }
    let sizes = [
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ];
    for (number, field) in sizes {
        if let Some(size) = it.get(field).and_then(Value::as_i64).and_then(|size| u64::try_from(size).ok()) {
            out.number(number, size);
        }
    }
    texts(&mut out, 19, it, "required");
    for value in items(it, "enum") {
        out.message(20, &any(value));
    }
    match it.get("additionalProperties") {
        Some(Value::Bool(true)) => drop(out.message(21, Message::default().flag(2, true))),
        Some(inner @ Value::Object(_)) => drop(out.message(21, &within(1, &schema(inner)))),
        _ => {}
    }
    if let Some(kind) = it.str_at(&["type"]) {
        let mut item = Message::default();
        item.text(1, kind);
        out.message(22, &item);
    }
    if let Some(inner) = it.get("items") {
        out.message(23, &within(1, &schema(inner)));
    }
    if let Some(properties) = it.get("properties").and_then(Value::as_object) {
        let mut all = Message::default();
        for (name, it) in properties.iter() {
            all.message(1, &named(name, &schema(it)));
        }
        out.message(25, &all);
    }
    extensions(&mut out, 31, it);
    out
}
