//! `/openapi/v2`: the older document, which `kubectl` still asks for kinds that it finds nowhere else.
//!
//! Made from the same schemas when asked, and not kept. As protobuf (gnostic's `openapi.v2` messages) it has the
//! definitions, which is what clients read of it; as JSON it has the paths, too.

use api::json::{Object, Value};
use bytes::Bytes;

use super::{add_paths, schemas};
use crate::http::answer::Answer;
use crate::resources;

/// What protobuf is asked as, and answered as.
const PROTOBUF_ASKED: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Answers a request that accepts these forms.
pub(crate) fn answer(accept: &str) -> Answer {
    let mut clauses = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    let form = clauses.find(|clause| {
        PROTOBUF_ASKED.contains(clause) || matches!(*clause, "" | "*/*" | "application/*" | "application/json")
    });
    match form {
        None => Answer::bytes(406, "", ""),
        Some(form) if PROTOBUF_ASKED.contains(&form) => Answer::bytes(200, PROTOBUF, encoded(&definitions())),
        Some(_) => {
            let (mut paths, info) = (Object::new(), api::json!({"title": "Kubernetes", "version": "1.38"}));
            for resource in resources::all() {
                for version in resource.versions {
                    let root = match resource.group {
                        "" => format!("/api/{version}"),
                        group => format!("/apis/{group}/{version}"),
                    };
                    add_paths(&mut paths, &root, resource, version, None);
                }
            }
            let (paths, definitions) = (Value::Object(plain_paths(paths)), definitions());
            let document = api::json!({"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions});
            Answer::bytes(200, "application/json", api::json::to_string(&document))
        }
    }
}

/// The schemas of all kinds.
fn definitions() -> Object {
    let mut schemas = schemas::Schemas::default();
    for resource in resources::all() {
        for version in resource.versions {
            if let Some(of) = resource.object_type(version) {
                schemas.add(of, Some((resource.group, version)));
            }
        }
    }
    schemas.finish().into_iter().map(|(name, schema)| (name, older(schema))).collect()
}

/// A schema as the older version writes it: references have siblings, and there are no alternatives.
fn older(schema: Value) -> Value {
    let Value::Object(fields) = schema else { return schema };
    let mut out = Object::with_capacity(fields.len());
    for (name, value) in fields {
        match name.as_str() {
            "allOf" => {
                let reference = value.as_array().and_then(|all| all.first()).and_then(|it| it.str_at(&["$ref"]));
                out.insert("$ref", definition(reference.unwrap_or_default()));
            }
            "$ref" => {
                out.insert("$ref", definition(value.as_str().unwrap_or_default()));
            }
            "oneOf" => {
                out.insert("type", "string");
            }
            "items" | "additionalProperties" => {
                out.insert(name, older(value));
            }
            "properties" => {
                let Value::Object(properties) = value else { continue };
                let properties: Object = properties.into_iter().map(|(name, it)| (name, older(it))).collect();
                out.insert(name, properties);
            }
            _ => {
                out.insert(name, value);
            }
        }
    }
    Value::Object(out)
}

fn definition(reference: &str) -> String {
    reference.replace("#/components/schemas/", "#/definitions/")
}

/// Operations without the bodies that are written differently here.
fn plain_paths(paths: Object) -> Object {
    let plain = |(path, methods): (api::json::Text, Value)| {
        let mut methods = methods;
        for operation in methods.as_object_mut().into_iter().flat_map(|methods| methods.values_mut()) {
            if let Some(fields) = operation.as_object_mut() {
                fields.remove("requestBody");
                fields.remove("parameters");
                fields.insert("responses", api::json!({"200": {"description": "OK"}}));
            }
        }
        (path, methods)
    };
    paths.into_iter().map(plain).collect()
}

/// The document in protobuf.
fn encoded(definitions: &Object) -> Bytes {
    let mut info = Message::default();
    info.text(1, "Kubernetes").text(2, "1.38");
    let mut all = Message::default();
    for (name, schema) in definitions.iter() {
        all.message(1, &named(name, &schema_message(schema)));
    }
    let mut document = Message::default();
    document.text(1, "2.0").message(2, &info).message(8, &Message::default()).message(9, &all);
    document.0.into()
}

fn named(name: &str, value: &Message) -> Message {
    let mut named = Message::default();
    named.text(1, name).message(2, value);
    named
}

fn schema_message(schema: &Value) -> Message {
    let mut out = Message::default();
    for (number, field) in [(1, "$ref"), (2, "format"), (4, "description")] {
        if let Some(text) = schema.str_at(&[field]) {
            out.text(number, text);
        }
    }
    for required in schema.get("required").and_then(Value::as_array).unwrap_or_default() {
        out.text(19, required.as_str().unwrap_or_default());
    }
    let inner = |field: &str, number: u32, out: &mut Message| {
        if let Some(inner) = schema.get(field) {
            let mut item = Message::default();
            item.message(1, &schema_message(inner));
            out.message(number, &item);
        }
    };
    inner("additionalProperties", 21, &mut out);
    if let Some(kind) = schema.str_at(&["type"]) {
        let mut item = Message::default();
        item.text(1, kind);
        out.message(22, &item);
    }
    inner("items", 23, &mut out);
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let mut all = Message::default();
        for (name, schema) in properties.iter() {
            all.message(1, &named(name, &schema_message(schema)));
        }
        out.message(25, &all);
    }
    for (name, value) in schema.as_object().into_iter().flat_map(|fields| fields.iter()) {
        if name.starts_with("x-kubernetes-") {
            // JSON is YAML.
            let mut any = Message::default();
            any.text(2, &api::json::to_string(value));
            out.message(31, &named(name, &any));
        }
    }
    out
}

/// A protobuf message whose fields all have a length.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn bytes(&mut self, number: u32, bytes: &[u8]) -> &mut Self {
        // Wire type 2: a length, then this many bytes.
        self.varint(u64::from(number) << 3 | 2);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, number: u32, text: &str) -> &mut Self {
        self.bytes(number, text.as_bytes())
    }

    fn message(&mut self, number: u32, message: &Message) -> &mut Self {
        self.bytes(number, &message.0)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or(0));
    }
}
