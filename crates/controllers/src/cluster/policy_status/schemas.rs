//! The schemas of kinds, out of the OpenAPI documents that the server gives.
//!
//! References in a schema are resolved; recursive ones become an object without fields. Only keywords that
//! affect the type of a value are kept. Follows `cel/openapi/resolver` of Kubernetes' apiserver.

use std::collections::HashMap;

use api::json::{Object, Value};
use api::structural_schema::{Schema, SchemaOrBool, SchemaOrList};
use client::Client;

use super::kinds::GroupVersionKind;

const REFERENCE: &str = "#/components/schemas/";
const INT_OR_STRING: &str = "int-or-string";

/// The requested documents, by path.
pub(super) struct Schemas<'c> {
    client: &'c Client,
    documents: HashMap<String, Value>,
}

impl<'c> Schemas<'c> {
    pub(super) fn new(client: &'c Client) -> Self {
        Self { client, documents: HashMap::new() }
    }

    /// Returns the schema of a kind, if the server has one.
    ///
    /// # Errors
    /// The request failed.
    pub(super) async fn find(&mut self, kind: &GroupVersionKind) -> Result<Option<Schema>, client::Error> {
        let path = match kind.group.as_str() {
            "" => format!("/openapi/v3/api/{}", kind.version),
            group => format!("/openapi/v3/apis/{group}/{}", kind.version),
        };
        if !self.documents.contains_key(&path) {
            let document = match self.client.get_as(&path, "application/json").await {
                Ok(bytes) => api::json::parse(&bytes)?,
                Err(error) if error.is_not_found() => Value::Null,
                Err(error) => return Err(error),
            };
            self.documents.insert(path.clone(), document);
        }
        Ok(self.documents.get(&path).and_then(|document| of_kind(document, kind)))
    }
}

/// The schema of a kind in a document.
fn of_kind(document: &Value, kind: &GroupVersionKind) -> Option<Schema> {
    let schemas = document.at(&["components", "schemas"])?.as_object()?;
    let is_it = |schema: &Value| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array).unwrap_or_default();
        kinds.iter().any(|it| {
            it.text("group") == kind.group
                && it.str_at(&["version"]) == Some(&kind.version)
                && it.str_at(&["kind"]) == Some(&kind.kind)
        })
    };
    let (name, schema) = schemas.iter().find(|(_, schema)| is_it(schema))?;
    Some(Resolver { schemas, inside: vec![name] }.resolve(schema))
}

struct Resolver<'d> {
    schemas: &'d Object,
    /// The names of the schemas around the place.
    inside: Vec<&'d str>,
}

impl<'d> Resolver<'d> {
    fn resolve(&mut self, schema: &'d Value) -> Schema {
        let Some(name) = reference(schema) else { return self.convert(schema) };
        match self.schemas.get(name) {
            Some(_) if self.inside.contains(&name) => Schema { type_name: "object".to_owned(), ..Schema::default() },
            Some(schema) => {
                self.inside.push(name);
                let resolved = self.convert(schema);
                self.inside.pop();
                resolved
            }
            None => Schema::default(),
        }
    }

    fn convert(&mut self, schema: &'d Value) -> Schema {
        let text = |key: &str| schema.text(key).to_owned();
        let is_true = |key: &str| schema.get(key).and_then(Value::as_bool) == Some(true);
        let format = text("format");
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Object::iter);
        Schema {
            type_name: text("type"),
            // Built-in types declare it by the format, custom ones by the extension.
            x_int_or_string: format == INT_OR_STRING || is_true("x-kubernetes-int-or-string"),
            x_embedded_resource: is_true("x-kubernetes-embedded-resource"),
            format,
            properties: properties.map(|(name, of)| (name.to_owned(), self.resolve(of))).collect(),
            additional_properties: schema.get("additionalProperties").map(|of| match of {
                Value::Bool(any) => SchemaOrBool::Bool(*any),
                of => SchemaOrBool::Schema(Box::new(self.resolve(of))),
            }),
            items: schema.get("items").map(|of| SchemaOrList::Schema(Box::new(self.resolve(of)))),
            ..Schema::default()
        }
    }
}

/// The name of the schema that this one refers to. A reference with a description is wrapped.
fn reference(schema: &Value) -> Option<&str> {
    let wrapped = || schema.get("allOf").and_then(Value::as_array).unwrap_or_default().iter().find_map(reference);
    match schema.str_at(&["$ref"]) {
        Some(reference) => reference.strip_prefix(REFERENCE),
        None => wrapped(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_followed_and_rings_are_cut() {
        let document = api::json!({"components": {"schemas": {
            "Other": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Other"}]},
            "Thing": {
                "type": "object",
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
                "properties": {
                    "port": {"description": "wrapped", "allOf": [{"$ref": "#/components/schemas/Port"}]},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Thing"}},
                    "labels": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}},
                    "open": {"type": "object", "additionalProperties": true},
                    "lost": {"$ref": "#/components/schemas/Nowhere"},
                    "choice": {"x-kubernetes-int-or-string": true},
                },
            },
            "Port": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
        }}});
        let kind = |kind: &str| GroupVersionKind { group: "".into(), version: "v1".into(), kind: kind.into() };
        let thing = of_kind(&document, &kind("Thing")).expect("it is there");
        let field = |name: &str| thing.properties.get(name).expect("a field").clone();
        assert!(field("port").x_int_or_string && field("choice").x_int_or_string);
        let part = field("parts").items_schema().expect("items").clone();
        assert_eq!(part, Schema { type_name: "object".to_owned(), ..Schema::default() });
        assert_eq!(field("labels").additional_properties_schema().expect("values").format, "byte");
        assert_eq!(field("open").additional_properties, Some(SchemaOrBool::Bool(true)));
        assert_eq!(field("lost"), Schema::default());
        assert_eq!(of_kind(&document, &kind("Absent")), None);
    }
}
