//! A document in protobuf: gnostic's `openapi.v3` messages.

use api::json::Value;
use bytes::Bytes;

use super::super::message::{Message, Scalars, additional, any, extensions, map, reference, texts, within};

const INFO: Scalars = Scalars { texts: &[(1, "title"), (6, "version")], ..Scalars::NONE };
const SECURITY: Scalars =
    Scalars { texts: &[(1, "type"), (2, "description"), (3, "name"), (4, "in")], ..Scalars::NONE };
const OPERATION: Scalars = Scalars { texts: &[(3, "description"), (5, "operationId")], ..Scalars::NONE };
const BODY: Scalars = Scalars { texts: &[(1, "description")], flags: &[(3, "required")], ..Scalars::NONE };
const RESPONSE: Scalars = Scalars { texts: &[(1, "description")], ..Scalars::NONE };
const PARAMETER: Scalars =
    Scalars { texts: &[(1, "name"), (2, "in"), (3, "description")], flags: &[(4, "required")], ..Scalars::NONE };
const SCHEMA: Scalars = Scalars {
    texts: &[(9, "title"), (17, "pattern"), (25, "type"), (34, "description"), (35, "format")],
    flags: &[(1, "nullable"), (12, "exclusiveMaximum"), (14, "exclusiveMinimum"), (20, "uniqueItems")],
    doubles: &[(10, "multipleOf"), (11, "maximum"), (13, "minimum")],
    sizes: &[
        (15, "maxLength"),
        (16, "minLength"),
        (18, "maxItems"),
        (19, "minItems"),
        (21, "maxProperties"),
        (22, "minProperties"),
    ],
};

/// Writes a document.
pub(in super::super) fn write(document: &Value) -> Bytes {
    let empty = Value::Null;
    let parts = document.get("components").unwrap_or(&empty);
    let mut components = Message::default();
    components.message(1, &map(1, parts, "schemas", schema_or_reference));
    components.message(7, &map(1, parts, "securitySchemes", |it| within(1, &SECURITY.message(it))));
    let mut all = Message::default();
    all.text(1, document.text("openapi"));
    all.message(2, &document.get("info").map(|it| INFO.message(it)).unwrap_or_default());
    all.message(4, &map(1, document, "paths", path_item)).message(5, &components);
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
    for it in item.list("parameters") {
        out.message(13, &within(1, &parameter(it)));
    }
    out
}

fn operation(it: &Value) -> Message {
    let mut out = OPERATION.message(it);
    texts(&mut out, 1, it, "tags");
    for it in it.list("parameters") {
        out.message(6, &within(1, &parameter(it)));
    }
    if let Some(it) = it.get("requestBody") {
        let mut body = BODY.message(it);
        body.message(2, &content(it));
        out.message(7, &within(1, &body));
    }
    out.message(
        8,
        &map(2, it, "responses", |it| {
            let mut response = RESPONSE.message(it);
            if it.get("content").is_some() {
                response.message(3, &content(it));
            }
            within(1, &response)
        }),
    );
    extensions(&mut out, 13, it);
    out
}

/// The schemas of a body, by media type.
fn content(it: &Value) -> Message {
    map(1, it, "content", |it| it.get("schema").map(|it| within(1, &schema_or_reference(it))).unwrap_or_default())
}

fn parameter(it: &Value) -> Message {
    let mut out = PARAMETER.message(it);
    if let Some(it) = it.get("schema") {
        out.message(10, &schema_or_reference(it));
    }
    out
}

fn schema_or_reference(document: &Value) -> Message {
    document.str_at(&["$ref"]).map_or_else(|| within(1, &schema(document)), reference)
}

fn schema(it: &Value) -> Message {
    let mut out = SCHEMA.message(it);
    texts(&mut out, 23, it, "required");
    for value in it.list("enum") {
        out.message(24, &any(value));
    }
    for (number, field) in [(26, "allOf"), (27, "oneOf"), (28, "anyOf")] {
        for it in it.list(field) {
            out.message(number, &schema_or_reference(it));
        }
    }
    if let Some(inner) = it.get("not") {
        out.message(29, &schema(inner));
    }
    if let Some(inner) = it.get("items") {
        out.message(30, &within(1, &schema_or_reference(inner)));
    }
    if it.get("properties").is_some() {
        out.message(31, &map(1, it, "properties", schema_or_reference));
    }
    additional(&mut out, 32, it, schema_or_reference);
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
