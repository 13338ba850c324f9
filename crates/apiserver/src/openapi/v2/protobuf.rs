//! The older document in protobuf: gnostic's `openapi.v2` messages.

use api::json::Value;
use bytes::Bytes;

use super::super::message::{Message, Scalars, additional, any, extensions, map, reference, texts, within};

const INFO: Scalars = Scalars { texts: &[(1, "title"), (2, "version")], ..Scalars::NONE };
const SECURITY: Scalars =
    Scalars { texts: &[(1, "type"), (2, "name"), (3, "in"), (4, "description")], ..Scalars::NONE };
const OPERATION: Scalars = Scalars { texts: &[(3, "description"), (5, "operationId")], ..Scalars::NONE };
const RESPONSE: Scalars = Scalars { texts: &[(1, "description")], ..Scalars::NONE };
const BODY: Scalars =
    Scalars { texts: &[(1, "description"), (2, "name"), (3, "in")], flags: &[(4, "required")], ..Scalars::NONE };
const PATH_PARAMETER: Scalars = Scalars {
    texts: &[(2, "in"), (3, "description"), (4, "name"), (5, "type")],
    flags: &[(1, "required"), (19, "uniqueItems")],
    ..Scalars::NONE
};
/// Parameters of the query have one more number between.
const QUERY_PARAMETER: Scalars = Scalars {
    texts: &[(2, "in"), (3, "description"), (4, "name"), (6, "type")],
    flags: &[(1, "required"), (20, "uniqueItems")],
    ..Scalars::NONE
};
const SCHEMA: Scalars = Scalars {
    texts: &[(1, "$ref"), (2, "format"), (3, "title"), (4, "description"), (13, "pattern")],
    flags: &[(8, "exclusiveMaximum"), (10, "exclusiveMinimum"), (16, "uniqueItems")],
    doubles: &[(6, "multipleOf"), (7, "maximum"), (9, "minimum")],
    sizes: &[
        (11, "maxLength"),
        (12, "minLength"),
        (14, "maxItems"),
        (15, "minItems"),
        (17, "maxProperties"),
        (18, "minProperties"),
    ],
};

/// Writes a document.
pub(super) fn write(document: &Value) -> Bytes {
    let mut all = Message::default();
    all.text(1, document.text("swagger"));
    all.message(2, &document.get("info").map(|it| INFO.message(it)).unwrap_or_default());
    all.message(8, &map(2, document, "paths", path_item));
    all.message(9, &map(1, document, "definitions", schema));
    all.message(10, &map(1, document, "parameters", parameter));
    all.message(13, &map(1, document, "securityDefinitions", |it| within(2, &SECURITY.message(it))));
    all.into_bytes()
}

fn path_item(item: &Value) -> Message {
    let mut out = Message::default();
    for (number, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(it) = item.get(method) {
            out.message(number, &operation(it));
        }
    }
    for it in item.list("parameters") {
        out.message(9, &parameters_item(it));
    }
    out
}

fn operation(it: &Value) -> Message {
    let mut out = OPERATION.message(it);
    texts(&mut out, 1, it, "tags");
    texts(&mut out, 6, it, "produces");
    texts(&mut out, 7, it, "consumes");
    for it in it.list("parameters") {
        out.message(8, &parameters_item(it));
    }
    out.message(
        9,
        &map(1, it, "responses", |it| {
            let mut response = RESPONSE.message(it);
            if let Some(it) = it.get("schema") {
                response.message(2, &within(1, &schema(it)));
            }
            within(1, &response)
        }),
    );
    texts(&mut out, 10, it, "schemes");
    extensions(&mut out, 13, it);
    out
}

/// A parameter, or a reference to a shared one.
fn parameters_item(document: &Value) -> Message {
    document.str_at(&["$ref"]).map_or_else(|| within(1, &parameter(document)), reference)
}

fn parameter(it: &Value) -> Message {
    match it.str_at(&["in"]) {
        Some("body") => {
            let mut out = BODY.message(it);
            if let Some(it) = it.get("schema") {
                out.message(5, &schema(it));
            }
            within(1, &out)
        }
        Some("path") => within(2, &within(4, &PATH_PARAMETER.message(it))),
        _ => within(2, &within(3, &QUERY_PARAMETER.message(it))),
    }
}

fn schema(document: &Value) -> Message {
    let mut out = SCHEMA.message(document);
    if let Some(default) = document.get("default") {
        out.message(5, &any(default));
    }
    texts(&mut out, 19, document, "required");
    for value in document.list("enum") {
        out.message(20, &any(value));
    }
    additional(&mut out, 21, document, schema);
    if let Some(kind) = document.str_at(&["type"]) {
        let mut item = Message::default();
        item.text(1, kind);
        out.message(22, &item);
    }
    if let Some(inner) = document.get("items") {
        out.message(23, &within(1, &schema(inner)));
    }
    if document.get("properties").is_some() {
        out.message(25, &map(1, document, "properties", schema));
    }
    extensions(&mut out, 31, document);
    out
}
