//! Operations as OpenAPI version 3 writes them.

pub(super) mod protobuf;

use api::json::{Object, Value};

use super::operations::{Operation, by_path, common_parameters};
use super::parameters::Parameter;

/// The paths of a document.
pub(super) fn paths(operations: &[Operation]) -> Object {
    let mut paths = Object::new();
    for (path, operations) in by_path(operations) {
        let common = common_parameters(&operations);
        let mut item = path_item(path, &common);
        for operation in operations {
            item.insert(operation.method, write(operation, &common));
        }
        paths.insert(path, item);
    }
    paths
}

/// The parts that all methods of a path share: path parameters and common query parameters.
fn path_item(path: &str, common: &[Parameter]) -> Object {
    let mut item = Object::new();
    let in_path = super::path_parameters(path).map(|(name, description)| {
        let parameter = api::json!({
            "name": name, "in": "path", "description": description, "required": true,
            "schema": {"type": "string", "uniqueItems": true}
        });
        (name, parameter)
    });
    let mut parameters: Vec<(&str, Value)> = in_path.chain(common.iter().map(|it| (it.name, in_query(it)))).collect();
    parameters.sort_by_key(|(name, _)| *name);
    if !parameters.is_empty() {
        item.insert("parameters", parameters.into_iter().map(|(_, parameter)| parameter).collect::<Vec<_>>());
    }
    item
}

fn in_query(parameter: &Parameter) -> Value {
    api::json!({
        "name": (parameter.name), "in": "query", "description": (parameter.description),
        "schema": {"type": (parameter.kind), "uniqueItems": true}
    })
}

fn write(operation: &Operation, common: &[Parameter]) -> Value {
    let mut fields = Object::new();
    fields.insert("tags", super::tags(&operation.path));
    fields.insert("description", operation.description.as_str());
    fields.insert("operationId", operation.id.as_str());
    let parameters = operation.parameters.iter().filter(|it| !common.contains(it)).map(in_query);
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
