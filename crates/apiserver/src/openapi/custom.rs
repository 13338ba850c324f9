//! OpenAPI of custom resources: the schemas of their definitions, with metadata as all objects have it.

use std::sync::Arc;

use api::json::{Object, Value};
use bytes::Bytes;

use super::operations::{DescribedResource, Operation};
use super::{add_shared, paths, reference_to_metadata};
use crate::custom::serving::ServedVersion;
use crate::custom::{Document, Snapshot};
use crate::wire::etag::hash;
use crate::wire::shared::SharedDocument;

/// Location of schemas in a document, by the version of OpenAPI.
const NEW: &str = "#/components/schemas/";
const OLD: &str = "#/definitions/";

/// The OpenAPI documents of all groups and versions.
pub(crate) fn documents(snapshot: &Snapshot) -> &[Document] {
    snapshot.openapi.get_or_init(|| {
        let mut documents = Vec::new();
        for (group, versions) in snapshot.groups() {
            for version in versions {
                let served = snapshot.served().filter(|it| it.row().group == group && it.version() == version);
                // The text is made again for those who ask: all together are as long as all definitions.
                let hash = hash(api::json::to_string(&document(group, version, served)).as_bytes());
                documents.push((format!("apis/{group}/{version}"), hash, SharedDocument::default()));
            }
        }
        documents
    })
}

/// The text of the document at a path.
pub(super) fn text(snapshot: &Snapshot, path: &str) -> Bytes {
    let mut parts = path.trim_start_matches("apis/").split('/');
    let (group, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let served = snapshot.served().filter(|it| it.row().group == group && it.version() == version);
    api::json::to_string(&document(group, version, served)).into()
}

/// The definitions and operations of each custom resource, for the older document.
pub(super) fn older_definitions(snapshot: &Snapshot) -> impl Iterator<Item = (Object, Vec<Operation>)> {
    snapshot.served().map(|serving| older(serving))
}

/// The document of a group and version.
fn document<'s>(group: &str, version: &str, served: impl Iterator<Item = &'s Arc<ServedVersion>>) -> Value {
    let (mut operations, mut schemas) = (Vec::new(), Object::new());
    for serving in served {
        let described = describe(serving);
        schemas.insert(described.schema.as_str(), kind_schema(serving));
        schemas.insert(described.list_schema.as_str(), list_schema(serving, &described.schema, NEW));
        operations.extend(described.operations());
    }
    add_shared(&mut schemas, &operations, (group, version));
    schemas.sort();
    let info = api::json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    let paths = paths(&operations);
    api::json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}

/// Returns definitions and operations of a version for OpenAPI v2.
fn older(serving: &ServedVersion) -> (Object, Vec<Operation>) {
    let described = describe(serving);
    let schemas = [
        (described.schema.clone(), older_kind_schema(serving)),
        (described.list_schema.clone(), list_schema(serving, &described.schema, OLD)),
    ];
    (schemas.into_iter().collect(), described.operations())
}

fn describe(serving: &ServedVersion) -> DescribedResource<'_> {
    let (row, version) = (serving.row(), serving.version());
    let schema = |kind: &str| schema_name(row.group, version, kind);
    DescribedResource { resource: row, version, schema: schema(row.kind), list_schema: schema(&row.list_kind()) }
}

/// `com.example.v1.Widget` of `example.com`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

fn list_schema(serving: &ServedVersion, item: &str, place: &str) -> Value {
    let (row, kind) = (serving.row(), serving.row().list_kind());
    let description = format!("{kind} is a list of {}", row.kind);
    let of_items = format!(
        "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
        row.plural
    );
    let metadata = format!("{place}io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    let mut properties = type_properties();
    properties.insert(
        "items",
        api::json!({"description": of_items, "type": "array", "items": {"$ref": (format!("{place}{item}"))}}),
    );
    properties.insert("metadata", api::json!({"$ref": metadata}));
    properties.sort();
    let kinds = api::json!([{"group": (row.group), "kind": kind, "version": (serving.version())}]);
    api::json!({
        "description": description, "type": "object", "required": ["items"], "properties": properties,
        "x-kubernetes-group-version-kind": kinds
    })
}

/// The fields `apiVersion` and `kind`, with the descriptions of built-in kinds.
fn type_properties() -> Object {
    let described = api::types::by_kind("", "v1", "ConfigMap").and_then(api::types::describe);
    let described = described.map(|it| it.fields).unwrap_or_default();
    let text_of = |name: &str| described.iter().find(|it| it.name == name).map(|it| it.text.as_str().to_owned());
    let property = |name: &'static str| {
        let text = text_of(name).unwrap_or_default();
        (name, api::json!({"type": "string", "description": text}))
    };
    ["apiVersion", "kind"].into_iter().map(property).collect()
}

fn kinds(serving: &ServedVersion) -> Value {
    let row = serving.row();
    api::json!([{"group": (row.group), "kind": (row.kind), "version": (serving.version())}])
}

fn is_true(schema: &Object, field: &str) -> bool {
    matches!(schema.get(field), Some(Value::Bool(true)))
}

/// Description of `metadata`.
const METADATA: &str = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn kind_schema(serving: &ServedVersion) -> Value {
    let mut schema = match serving.schema() {
        Some(Value::Object(schema)) => schema,
        _ => [("type", Value::from("object"))].into_iter().collect(),
    };
    if schema.contains_key("properties") || !is_true(&schema, PRESERVE) {
        let mut metadata = reference_to_metadata();
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("description", METADATA);
        }
        add_properties(&mut schema, metadata);
    }
    schema.insert("x-kubernetes-group-version-kind", kinds(serving));
    add_selectable_fields(&mut schema, serving);
    Value::Object(schema)
}

/// Adds what every object has.
fn add_properties(schema: &mut Object, metadata: Value) {
    let mut properties = match schema.remove("properties") {
        Some(Value::Object(properties)) => properties,
        _ => Object::new(),
    };
    for (name, property) in type_properties() {
        properties.insert(name, property);
    }
    properties.insert("metadata", metadata);
    properties.sort();
    schema.insert("properties", properties);
}

fn older_kind_schema(serving: &ServedVersion) -> Value {
    let mut schema = match serving.schema() {
        // Kubernetes: clients would refuse every other field if one were named.
        Some(Value::Object(schema)) if !is_true(&schema, PRESERVE) => {
            let mut schema = without_alternatives(schema);
            let metadata = format!("{OLD}io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
            add_properties(&mut schema, api::json!({"description": METADATA, "$ref": metadata}));
            schema
        }
        _ => [("type", Value::from("object"))].into_iter().collect(),
    };
    schema.insert("x-kubernetes-group-version-kind", kinds(serving));
    add_selectable_fields(&mut schema, serving);
    Value::Object(schema)
}

/// Adds the selectable fields, if there are any.
fn add_selectable_fields(schema: &mut Object, serving: &ServedVersion) {
    let fields = serving.row().custom.map(|custom| custom.fields).unwrap_or_default();
    let fields: Vec<Value> = fields.iter().map(|field| api::json!({"fieldPath": (field.as_str())})).collect();
    if !fields.is_empty() {
        schema.insert("x-kubernetes-selectable-fields", fields);
    }
}

/// A schema as the older version can write it: nothing may be null, and there are no alternatives.
///
/// Follows `ToStructuralOpenAPIV2` of Kubernetes' apiextensions.
fn without_alternatives(mut schema: Object) -> Object {
    for field in ["allOf", "oneOf", "anyOf", "not"] {
        schema.remove(field);
    }
    let (is_nullable, preserves) = (is_true(&schema, "nullable"), is_true(&schema, PRESERVE));
    schema.remove("nullable");
    if is_nullable || preserves {
        schema.remove("items");
        schema.remove("properties");
    }
    let kind = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let has_no_items = kind == "array" && !schema.contains_key("items");
    if is_nullable || has_no_items || preserves && kind == "object" {
        schema.remove("type");
    }
    let may_be_null = |schema: &Value| schema.as_object().is_some_and(|it| is_true(it, "nullable"));
    let properties = schema.get("properties").and_then(Value::as_object);
    let optional: Vec<String> = properties
        .into_iter()
        .flat_map(Object::iter)
        .filter(|(_, property)| may_be_null(property))
        .map(|(name, _)| name.to_owned())
        .collect();
    let values_may_be_null = schema.get("additionalProperties").is_some_and(may_be_null);
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !values_may_be_null && !optional.iter().any(|it| name.as_str() == Some(it)));
        if required.is_empty() {
            schema.remove("required");
        }
    }
    let convert = |schema: Value| match schema {
        Value::Object(schema) => Value::Object(without_alternatives(schema)),
        other => other,
    };
    for field in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(field) {
            *inner = convert(inner.take());
        }
    }
    for property in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Object::values_mut)
    {
        *property = convert(property.take());
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: &str, expected: &str) {
        let Value::Object(schema) = api::json::parse(schema.as_bytes()).unwrap() else { panic!("no schema") };
        assert_eq!(api::json::to_string(&Value::Object(without_alternatives(schema))), expected);
    }

    #[test]
    fn openapi_v2_omits_unsupported_keywords() {
        check(r#"{"type":"string","nullable":true}"#, "{}");
        check(
            r#"{"type":"array","x-kubernetes-preserve-unknown-fields":true,"items":{"type":"string"}}"#,
            r#"{"x-kubernetes-preserve-unknown-fields":true}"#,
        );
        check(
            r#"{"type":"object","required":["a","b"],"properties":{"a":{"type":"string","nullable":true},"b":{"type":"integer","anyOf":[]}}}"#,
            r#"{"type":"object","required":["b"],"properties":{"a":{},"b":{"type":"integer"}}}"#,
        );
    }
}
