//! `/openapi/v2`: the older document with everything in one, which `kubectl` still requests for kinds that it
//! finds nowhere else.
//!
//! It is large and rarely requested: it is built on demand and not kept, except for its hash; concurrent
//! responses share it. As JSON, and in [`protobuf`] (gnostic's `openapi.v2` messages).

mod protobuf;

use std::sync::OnceLock;

use api::json::{Object, Value};
use bytes::Bytes;

use super::operations::{DescribedResource, Operation, by_path, common_parameters};
use super::parameters::Parameter;
use super::{TITLE, VERSION, described, is_known, schemas};
use crate::clock;
use crate::custom::{Edition, Snapshot};
use crate::resources::RuntimeConfig;
use crate::wire::answer::Answer;
use crate::wire::etag::hash;
use crate::wire::shared::SharedDocument;

/// Media types of protobuf in requests and responses.
const PROTOBUF_ASKED: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
];
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Answers a request that accepts these forms with a document, which `edition` is about.
pub(crate) fn answer(
    accept: &str,
    if_none_match: &str,
    edition: &OnceLock<Edition>,
    document: &dyn Fn() -> Value,
) -> Answer {
    let mut clauses = accept.split(',').map(|clause| clause.split(';').next().unwrap_or_default().trim());
    let form = clauses.find(|clause| {
        PROTOBUF_ASKED.contains(clause) || matches!(*clause, "" | "*/*" | "application/*" | "application/json")
    });
    let Some(form) = form else { return Answer::bytes(406, "", "") };
    let json = || Bytes::from(api::json::to_string(&document()));
    let mut first = None;
    let edition = edition.get_or_init(|| {
        let etag = format!("\"{}\"", hash(first.insert(json())));
        let (json, protobuf) = (SharedDocument::default(), SharedDocument::default());
        Edition { etag, made: clock::http_date(clock::now()), json, protobuf }
    });
    let answer = if is_known(if_none_match, &edition.etag) {
        Answer::bytes(304, "", "")
    } else if PROTOBUF_ASKED.contains(&form) {
        Answer::bytes(200, PROTOBUF, edition.protobuf.get(|| protobuf::write(&document())))
    } else {
        Answer::bytes(200, "application/json", edition.json.get(|| first.unwrap_or_else(json)))
    };
    answer
        .with_header(http::header::ETAG, edition.etag.as_str())
        .with_header(http::header::LAST_MODIFIED, edition.made.as_str())
}

/// The document of built-in and custom resources.
pub(crate) fn document(config: &RuntimeConfig, customs: &Snapshot) -> Value {
    let mut operations = super::non_resources(config);
    let mut schemas = schemas::Schemas::default();
    for (group, versions) in config.groups() {
        for version in versions {
            let all = described(group, version);
            let own: Vec<Operation> = all.iter().flat_map(DescribedResource::operations).collect();
            all.iter().for_each(|described| schemas.add_kinds(described));
            schemas.add_shared(&own, Some((group, version)));
            operations.extend(own);
        }
    }
    schemas.add_shared(&operations, None);
    let mut definitions: Object = schemas.finish().into_iter().map(|(name, schema)| (name, older(schema))).collect();
    for (schemas, more) in super::custom::older_definitions(customs) {
        for (name, schema) in schemas {
            definitions.insert(name, schema);
        }
        operations.extend(more);
    }
    definitions.sort();
    let info = api::json!({"title": TITLE, "version": VERSION});
    let security = api::json!({"BearerToken": {
        "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header"
    }});
    let (paths, parameters) = paths(&operations);
    api::json!({
        "swagger": "2.0", "info": info, "paths": paths, "definitions": definitions, "parameters": parameters,
        "securityDefinitions": security, "security": [{"BearerToken": []}]
    })
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
            // OpenAPI v2 documents have no defaults.
            "default" => {}
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

fn reference(schema: &str) -> Value {
    let reference = format!("#/definitions/{schema}");
    api::json!({"$ref": reference})
}

/// All paths, and the parameters that they share.
fn paths(operations: &[Operation]) -> (Object, Object) {
    let (mut paths, mut shared) = (Object::new(), Object::new());
    let mut share = |name: &str, parameter: Value| {
        shared.get_or_insert(name, || parameter);
        let reference = format!("#/parameters/{name}");
        api::json!({"$ref": reference})
    };
    for (path, operations) in by_path(operations) {
        let common = common_parameters(&operations);
        let mut item = Object::new();
        for operation in operations {
            let body = operation.body.as_ref().map(|schema| body(operation, schema));
            let own = operation.parameters.iter().filter(|it| !common.contains(it));
            let own = own.map(|it| share(it.name, in_query(it)));
            let parameters = body.into_iter().chain(own).collect();
            item.insert(operation.method, write(operation, parameters));
        }
        let mut parameters: Vec<(&str, Value)> = super::path_parameters(path)
            .map(|(name, description)| {
                let parameter = api::json!({
                    "uniqueItems": true, "type": "string", "description": description, "name": name, "in": "path",
                    "required": true
                });
                (name, share(&format!("{name}-in-path"), parameter))
            })
            .collect();
        parameters.extend(common.iter().map(|it| (it.name, share(it.name, in_query(it)))));
        parameters.sort_by_key(|(name, _)| *name);
        if !parameters.is_empty() {
            item.insert("parameters", parameters.into_iter().map(|(_, parameter)| parameter).collect::<Vec<_>>());
        }
        paths.insert(path, item);
    }
    shared.sort();
    (paths, shared)
}

fn body(operation: &Operation, schema: &str) -> Value {
    let mut body = Object::new();
    body.insert("name", "body");
    body.insert("in", "body");
    if !operation.action.starts_with("delete") {
        body.insert("required", true);
    }
    body.insert("schema", reference(schema));
    Value::Object(body)
}

fn in_query(parameter: &Parameter) -> Value {
    api::json!({
        "uniqueItems": true, "type": (parameter.kind), "description": (parameter.description), "name": (parameter.name), "in": "query"
    })
}

fn write(operation: &Operation, parameters: Vec<Value>) -> Value {
    let texts = |list: Vec<&str>| Value::Array(list.into_iter().map(Value::from).collect());
    let mut fields = Object::new();
    fields.insert("description", operation.description.as_str());
    fields.insert(
        "consumes",
        texts(if operation.action == "connect" { vec!["*/*"] } else { super::consumes(operation) }),
    );
    fields.insert("produces", texts(super::produces(operation)));
    fields.insert("schemes", texts(vec!["https"]));
    fields.insert("tags", super::tags(&operation.path));
    fields.insert("operationId", operation.id.as_str());
    if !parameters.is_empty() {
        fields.insert("parameters", parameters);
    }
    let responses: Object = operation
        .codes
        .iter()
        .map(|(code, description)| {
            let mut response = Object::new();
            response.insert("description", *description);
            if *code != "401" {
                let schema = operation.answer.as_deref().map(reference);
                response.insert("schema", schema.unwrap_or_else(|| api::json!({"type": "string"})));
            }
            (*code, Value::Object(response))
        })
        .collect();
    fields.insert("responses", responses);
    super::add_kind(&mut fields, operation);
    Value::Object(fields)
}
