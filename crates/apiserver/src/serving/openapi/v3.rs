//! Operations as OpenAPI version 3 writes them.

pub(super) mod protobuf;

use api::json::{Object, Value};

use super::operations::Operation;

/// The paths of a document.
pub(super) fn paths(operations: &[Operation]) -> Object {
    let mut paths = Object::new();
    for operation in operations {
        let item = paths.get_or_insert(&operation.path, || path_item(&operation.path));
        if let Some(item) = item.as_object_mut() {
            item.insert(operation.method, write(operation));
        }
    }
    paths.sort();
    paths
}

/// What all methods of a path share: the parts of the path that stand for something.
fn path_item(path: &str) -> Value {
    let mut item = Object::new();
    let parameters: Vec<Value> = super::path_parameters(path)
        .map(|(name, description)| {
            api::json!({
                "name": name, "in": "path", "description": description, "required": true,
                "schema": {"type": "string", "uniqueItems": true}
            })
        })
        .collect();
    if !parameters.is_empty() {
        item.insert("parameters", parameters);
    }
    Value::Object(item)
}

fn write(operation: &Operation) -> Value {
    let mut fields = Object::new();
    fields.insert("tags", super::tags(&operation.path));
    fields.insert("description", operation.description.as_str());
    fields.insert("operationId", operation.id.as_str());
    let parameters = operation.parameters.iter().map(|it| {
        api::json!({
            "name": (it.name), "in": "query", "description": (it.description),
            "schema": {"type": (it.kind), "uniqueItems": true}
        })
    });
    let parameters: Vec<Value> = parameters.collect();
    if !parameters.is_empty() {
        fields.insert("parameters", parameters);
    }
    if let Some(schema) = &operation.body {
        let content = content(&super::consumes(operation), Some(schema));
        let mut body = Object::new();
        body.insert("content", content);
        if !operation.action.starts_with("delete") {
            body.insert("required", true);
        }
        fields.insert("requestBody", body);
    }
    let produces = super::produces(operation);
    let responses: Object = operation
        .codes
        .iter()
        .map(|(code, description)| {
            let mut response = Object::new();
            response.insert("description", *description);
            if *code != "401" {
                response.insert("content", content(&produces, operation.answer.as_ref()));
            }
            (*code, Value::Object(response))
        })
        .collect();
    fields.insert("responses", responses);
    super::add_kind(&mut fields, operation);
    Value::Object(fields)
}

fn content(media_types: &[&str], schema: Option<&String>) -> Object {
    let schema = match schema {
        Some(name) => {
            let reference = format!("#/components/schemas/{name}");
            api::json!({"schema": {"$ref": reference}})
        }
        None => api::json!({"schema": {"type": "string"}}),
    };
    media_types.iter().map(|media| (*media, schema.clone())).collect()
}
