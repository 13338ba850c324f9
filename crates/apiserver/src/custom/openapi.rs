//! OpenAPI of custom resources: the schemas of their definitions, with metadata as all objects have it.

use std::sync::Arc;

use api::json::{Object, Value};

use super::serving::Serving;
use crate::serving::openapi::{add_paths, add_type, reference_to_metadata};

/// The document of a group and version.
pub(super) fn document<'s>(group: &str, version: &str, served: impl Iterator<Item = &'s Arc<Serving>>) -> Value {
    let (mut paths, mut schemas) = (Object::new(), Object::new());
    let root = format!("/apis/{group}/{version}");
    for serving in served {
        let row = serving.row;
        let name = schema_name(group, version, row.kind);
        schemas.insert(name.as_str(), kind_schema(serving, group, version));
        let list = api::json!({
            "type": "object", "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "items": {"type": "array", "items": {"$ref": (format!("#/components/schemas/{name}"))}},
                "kind": {"type": "string"},
                "metadata": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"}
            },
            "x-kubernetes-group-version-kind": [{"group": group, "kind": (row.list_kind()), "version": version}]
        });
        schemas.insert(schema_name(group, version, &row.list_kind()), list);
        add_paths(&mut paths, &root, row, version, Some(&name));
    }
    for name in ["ObjectMeta", "ListMeta"] {
        add_type(&mut schemas, name);
    }
    schemas.sort();
    let info = api::json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    api::json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}

/// `com.example.v1.Widget` of `example.com`.
fn schema_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

fn kind_schema(serving: &Serving, group: &str, version: &str) -> Value {
    let mut schema = match &serving.schema {
        Some(Value::Object(schema)) => schema.clone(),
        _ => [("type", Value::from("object"))].into_iter().collect(),
    };
    let preserves = matches!(schema.get("x-kubernetes-preserve-unknown-fields"), Some(Value::Bool(true)));
    let has_properties = schema.contains_key("properties");
    if has_properties || !preserves {
        let mut properties = match schema.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Object::new(),
        };
        let texts = [
            ("apiVersion", "APIVersion defines the versioned schema of this representation of an object."),
            ("kind", "Kind is a string value representing the REST resource this object represents."),
        ];
        for (name, description) in texts {
            properties.insert(name, api::json!({"type": "string", "description": description}));
        }
        properties.insert("metadata", reference_to_metadata());
        properties.sort();
        schema.insert("properties", properties);
    }
    let kind = api::json!([{"group": group, "kind": (serving.row.kind), "version": version}]);
    schema.insert("x-kubernetes-group-version-kind", kind);
    Value::Object(schema)
}
