//! OpenAPI, made from the table of types: paths with their kinds for `kubectl`, schemas for `explain`.

mod schemas;
pub(crate) mod v2;

use std::collections::BTreeMap;

use api::json::{Object, Value};
use bytes::Bytes;

use crate::custom::Document;
use crate::http::answer::Answer;
use crate::http::request::Query;
use crate::resources::{self, Resource, api_version};
use crate::serving::discovery::hash;

/// The documents by path (`apis/apps/v1`), each with its hash.
pub struct OpenApi {
    documents: BTreeMap<String, (Bytes, String)>,
}

impl OpenApi {
    /// Makes all documents.
    #[must_use]
    pub fn new() -> Self {
        let mut documents = BTreeMap::new();
        for (group, versions) in resources::groups() {
            for version in *versions {
                let path = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
                let text = api::json::to_string(&document(group, version));
                let hash = hash(text.as_bytes());
                documents.insert(path, (text.into(), hash));
            }
        }
        Self { documents }
    }

    /// Answers `/openapi/v3` and what is below.
    pub(crate) fn answer(&self, path: &str, query: &Query, customs: &[Document]) -> Option<Answer> {
        if path.is_empty() {
            let own = self.documents.iter().map(|(path, (_, hash))| (path.as_str(), hash));
            let custom = customs.iter().map(|(path, _, hash)| (path.as_str(), hash));
            let mut paths: Object = own
                .chain(custom)
                .map(|(path, hash)| {
                    let url = format!("/openapi/v3/{path}?hash={hash}");
                    (path, api::json!({"serverRelativeURL": url}))
                })
                .collect();
            paths.sort();
            let index = api::json!({"paths": paths});
            return Some(Answer::bytes(200, "text/plain; charset=utf-8", api::json::to_string(&index)));
        }
        let own = self.documents.get(path).map(|(document, hash)| (document, hash));
        let custom = || customs.iter().find(|(it, ..)| it == path).map(|(_, document, hash)| (document, hash));
        let (document, hash) = own.or_else(custom)?;
        let etag = format!("\"{hash}\"");
        let asked = query.get("hash");
        if !asked.is_empty() && asked != hash {
            let location = format!("/openapi/v3/{path}?hash={hash}");
            return Some(
                Answer::bytes(301, "application/json", "")
                    .with_header(http::header::LOCATION, location)
                    .with_header(http::header::ETAG, etag),
            );
        }
        Some(Answer::bytes(200, "application/json", document.clone()).with_header(http::header::ETAG, etag))
    }
}

impl Default for OpenApi {
    fn default() -> Self {
        Self::new()
    }
}

fn document(group: &str, version: &str) -> Value {
    let mut paths = Object::new();
    let mut schemas = schemas::Schemas::default();
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    for resource in resources::all().iter().filter(|it| it.group == group && it.versions.contains(&version)) {
        if let Some(of) = resource.object_type(version) {
            schemas.add(of, Some((group, version)));
        }
        let schema = resource.object_type(version).map(|of| of.schema_name());
        add_paths(&mut paths, &root, resource, version, schema.as_deref());
    }
    let info = api::json!({"title": "Kubernetes", "version": "1.38"});
    let schemas = schemas.finish();
    api::json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}

/// The package of what all objects have.
const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";

/// A type of all objects, with everything that it refers to.
pub(crate) fn add_type(schemas: &mut Object, name: &str) {
    let mut types = schemas::Schemas::default();
    if let Some(of) = api::types::by_name(META, name) {
        types.add(of, None);
    }
    for (name, schema) in types.finish() {
        schemas.insert(name, schema);
    }
}

/// What `metadata` of an object is.
pub(crate) fn reference_to_metadata() -> Value {
    let name = api::types::by_name(META, "ObjectMeta").map(|of| of.schema_name()).unwrap_or_default();
    let reference = format!("#/components/schemas/{name}");
    api::json!({"allOf": [{"$ref": reference}]})
}

/// Adds the paths of a resource, whose objects have the schema of this name.
pub(crate) fn add_paths(paths: &mut Object, root: &str, resource: &Resource, version: &str, schema: Option<&str>) {
    let kind = api::json!({"group": (resource.group), "kind": (resource.kind), "version": version});
    let plural = resource.plural;
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let has = |verb: &str| resource.verbs.contains(&verb);
    let mut collection = Object::new();
    for (verb, method, action) in
        [("list", "get", "list"), ("create", "post", "post"), ("deletecollection", "delete", "deletecollection")]
    {
        if has(verb) {
            collection.insert(method, operation(resource, version, action, &kind, schema));
        }
    }
    paths.insert(format!("{root}{scope}/{plural}"), collection);
    let mut item = Object::new();
    for (verb, method, action) in
        [("get", "get", "get"), ("update", "put", "put"), ("delete", "delete", "delete"), ("patch", "patch", "patch")]
    {
        if has(verb) {
            item.insert(method, operation(resource, version, action, &kind, schema));
        }
    }
    if !item.is_empty() {
        paths.insert(format!("{root}{scope}/{plural}/{{name}}"), item);
    }
    for sub in resource.subresources {
        let (group, sub_version, sub_kind) = sub.kind;
        let kind = if sub_version.is_empty() {
            kind.clone()
        } else {
            api::json!({"group": group, "kind": sub_kind, "version": sub_version})
        };
        let mut methods = Object::new();
        for (verb, method, action) in
            [("get", "get", "get"), ("update", "put", "put"), ("patch", "patch", "patch"), ("create", "post", "post")]
        {
            if sub.verbs.contains(&verb) {
                methods.insert(method, operation(resource, version, action, &kind, schema));
            }
        }
        paths.insert(format!("{root}{scope}/{plural}/{{name}}/{}", sub.name), methods);
    }
}

fn operation(resource: &Resource, version: &str, action: &str, kind: &Value, schema: Option<&str>) -> Value {
    let parameter = |name: &str, schema: &str| api::json!({"name": name, "in": "query", "schema": {"type": schema, "uniqueItems": true}});
    let mut parameters = Vec::new();
    if matches!(action, "post" | "put" | "patch") {
        for name in ["dryRun", "fieldManager", "fieldValidation"] {
            parameters.push(parameter(name, "string"));
        }
        if action == "patch" {
            parameters.push(parameter("force", "boolean"));
        }
    }
    let media = |names: &[&str]| -> Object {
        let reference = schema.map(|name| {
            let reference = format!("#/components/schemas/{name}");
            api::json!({"schema": {"$ref": reference}})
        });
        names.iter().map(|name| (*name, reference.clone().unwrap_or_else(Value::object))).collect()
    };
    let content = media(&["application/json", "application/yaml"]);
    let mut fields = Object::new();
    fields.insert(
        "operationId",
        format!("{action}{}{}", api_version(resource.group, version).replace(['/', '.'], ""), resource.kind),
    );
    fields.insert("parameters", parameters);
    if matches!(action, "post" | "put") {
        fields.insert("requestBody", api::json!({"content": (content.clone())}));
    }
    if action == "patch" {
        let mut accepted = media(&[
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ]);
        if resource.custom.is_some() {
            accepted.remove("application/strategic-merge-patch+json");
        }
        fields.insert("requestBody", api::json!({"content": accepted}));
    }
    fields.insert("responses", api::json!({"200": {"description": "OK", "content": content}}));
    fields.insert("x-kubernetes-action", action);
    fields.insert("x-kubernetes-group-version-kind", kind.clone());
    Value::Object(fields)
}
