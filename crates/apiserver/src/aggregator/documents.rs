//! Documents of aggregated API servers: the resources that they serve, and their OpenAPI.
//!
//! A document that cannot be read counts as missing. OpenAPI of the older version is reduced to the paths of the group and
//! version, with the definitions that they use; if there is none of the newer version, that is made from it.

use std::collections::BTreeSet;

use api::json::{self, Object, Value};
use bytes::Bytes;

use super::Aggregator;
use super::RemoteVersion;
use super::endpoint::Endpoint;
use super::fetch::Identity;
use crate::wire::etag::hash;

/// The content type of discovery in one document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Bytes of a document of discovery.
const DISCOVERY_BYTES_MAX: usize = 2 << 20;
/// Bytes of a document of OpenAPI.
const OPENAPI_BYTES_MAX: usize = 16 << 20;
/// Bytes of all documents that are kept.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// The documents of a group and version.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Documents {
    /// The uid of the APIService.
    pub(crate) uid: String,
    /// The resources, as discovery in one document has them; none if they are not known.
    pub(crate) resources: Option<Vec<Value>>,
    /// OpenAPI of the older version, reduced.
    pub(crate) older_openapi: Option<Value>,
    /// The OpenAPI document and its hash.
    pub(crate) openapi: Option<(Bytes, String)>,
    pub(super) size: usize,
}

impl Documents {
    /// The size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.size
    }
}

impl Aggregator {
    /// Reads the documents of a server that is available.
    pub(super) async fn read_documents(&self, remote: &RemoteVersion, endpoint: &Endpoint) -> Documents {
        let mut documents = Documents { uid: remote.uid.clone(), ..Documents::default() };
        if let Some((resources, size)) = self.read_resources(remote, endpoint).await {
            documents.resources = Some(resources);
            documents.size = size;
        }
        let older = self.read_older_openapi(remote, endpoint).await;
        let openapi = match self.read_openapi(remote, endpoint).await {
            Some(document) => Some(document),
            None => older.as_ref().map(|older| Bytes::from(json::to_string(&converted(older)))),
        };
        let size = older.as_ref().map_or(0, |it| json::to_string(it).len());
        let size = size.saturating_add(openapi.as_ref().map_or(0, Bytes::len));
        if self.document_bytes(&remote.name).saturating_add(size) > KEPT_BYTES_MAX {
            tracing::warn!(apiService = remote.name, bytes = size, "Left out OpenAPI of aggregated API server");
            return documents;
        }
        documents.size = documents.size.saturating_add(size);
        documents.openapi = openapi.map(|text| (text.clone(), hash(&text)));
        documents.older_openapi = older;
        documents
    }

    async fn document(
        &self,
        endpoint: &Endpoint,
        path: &str,
        asked: (Identity, &'static str),
        bytes_max: usize,
    ) -> Option<(Value, usize, String)> {
        let fetched = self.fetch(endpoint, path, asked, bytes_max).await.ok()?;
        if fetched.code != 200 {
            return None;
        }
        let size = fetched.body.len();
        let body = fetched.body;
        // Long documents are not parsed where connections are served.
        let parsed = tokio::task::spawn_blocking(move || json::parse(&body).ok()).await.ok()??;
        parsed.as_object()?;
        Some((parsed, size, fetched.content_type))
    }

    async fn read_resources(&self, remote: &RemoteVersion, endpoint: &Endpoint) -> Option<(Vec<Value>, usize)> {
        let asked = (Identity::Administrator, AGGREGATED);
        if let Some((list, size, kind)) = self.document(endpoint, "/apis", asked, DISCOVERY_BYTES_MAX).await
            && kind.contains("APIGroupDiscoveryList")
            && let Some(resources) = of_version(&list, remote)
        {
            return Some((resources, size));
        }
        let path = format!("/apis/{}/{}", remote.group, remote.version);
        let asked = (Identity::Aggregator, "application/json");
        let (list, size, _) = self.document(endpoint, &path, asked, DISCOVERY_BYTES_MAX).await?;
        Some((from_list(&list, remote)?, size))
    }

    async fn read_older_openapi(&self, remote: &RemoteVersion, endpoint: &Endpoint) -> Option<Value> {
        let asked = (Identity::OpenApi, "application/json");
        let (document, ..) = self.document(endpoint, "/openapi/v2", asked, OPENAPI_BYTES_MAX).await?;
        reduced(&document, remote)
    }

    async fn read_openapi(&self, remote: &RemoteVersion, endpoint: &Endpoint) -> Option<Bytes> {
        let asked = (Identity::OpenApi, "application/json");
        let (index, ..) = self.document(endpoint, "/openapi/v3", asked, DISCOVERY_BYTES_MAX).await?;
        let path = format!("apis/{}/{}", remote.group, remote.version);
        let url = index.at(&["paths", &path]).and_then(|it| it.str_at(&["serverRelativeURL"]))?;
        // The path of the same server only.
        let url = Some(url).filter(|it| it.starts_with("/openapi/v3/"))?;
        let (document, ..) = self.document(endpoint, url, asked, OPENAPI_BYTES_MAX).await?;
        document.get("openapi")?;
        Some(json::to_string(&document).into())
    }
}

/// The resources of a version in discovery in one document.
fn of_version(list: &Value, remote: &RemoteVersion) -> Option<Vec<Value>> {
    let array = |value: &Value, field: &str| value.get(field).and_then(Value::as_array).unwrap_or_default().to_vec();
    let group = array(list, "items").into_iter().find(|it| it.str_at(&["metadata", "name"]) == Some(&remote.group))?;
    let version = array(&group, "versions").into_iter().find(|it| it.str_at(&["version"]) == Some(&remote.version))?;
    Some(array(&version, "resources"))
}

/// The resources of an `APIResourceList`, as discovery in one document has them.
fn from_list(list: &Value, remote: &RemoteVersion) -> Option<Vec<Value>> {
    let all = list.get("resources").and_then(Value::as_array)?;
    let text = |resource: &Value, field: &str| resource.text(field).to_owned();
    let or = |given: String, default: &str| if given.is_empty() { default.to_owned() } else { given };
    let kind = |resource: &Value| {
        let (group, version) = (text(resource, "group"), text(resource, "version"));
        api::json!({
            "group": (or(group, &remote.group)), "version": (or(version, &remote.version)),
            "kind": (text(resource, "kind"))
        })
    };
    let verbs = |resource: &Value| resource.get("verbs").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
    let mut resources: Vec<(String, Object, Vec<Value>)> = Vec::new();
    for resource in all.iter().filter(|it| it.as_object().is_some()) {
        let name = text(resource, "name");
        if let Some((parent, part)) = name.split_once('/') {
            let entry = api::json!({"subresource": part, "responseKind": (kind(resource)), "verbs": (verbs(resource))});
            match resources.iter_mut().find(|(name, ..)| name == parent) {
                Some((.., parts)) => parts.push(entry),
                None => {
                    let mut fields = Object::new();
                    fields.insert("resource", parent);
                    fields.insert("scope", scope(resource));
                    resources.push((parent.to_owned(), fields, vec![entry]));
                }
            }
            continue;
        }
        let mut fields = Object::new();
        fields.insert("resource", name.as_str());
        fields.insert("responseKind", kind(resource));
        fields.insert("scope", scope(resource));
        fields.insert("singularResource", text(resource, "singularName"));
        fields.insert("verbs", verbs(resource));
        for field in ["shortNames", "categories"] {
            if let Some(names) = resource.get(field).filter(|it| it.as_array().is_some()) {
                fields.insert(field, names.clone());
            }
        }
        match resources.iter_mut().find(|(it, ..)| *it == name) {
            Some((_, known, _)) => *known = fields,
            None => resources.push((name, fields, Vec::new())),
        }
    }
    let finish = |(_, mut fields, parts): (String, Object, Vec<Value>)| {
        if !parts.is_empty() {
            fields.insert("subresources", parts);
        }
        Value::Object(fields)
    };
    Some(resources.into_iter().map(finish).collect())
}

fn scope(resource: &Value) -> &'static str {
    match resource.get("namespaced").and_then(Value::as_bool) {
        Some(true) => "Namespaced",
        _ => "Cluster",
    }
}

/// The part of an OpenAPI v2 document that describes one group and version; none if it is empty.
fn reduced(document: &Value, remote: &RemoteVersion) -> Option<Value> {
    let root = format!("/apis/{}/{}", remote.group, remote.version);
    let below = format!("{root}/");
    let all = document.get("paths").and_then(Value::as_object)?;
    let own = all.iter().filter(|(path, _)| *path == root || path.starts_with(&below));
    let paths: Object = own.map(|(path, item)| (path, item.clone())).collect();
    if paths.is_empty() {
        return None;
    }
    let mut out = Object::new();
    for field in ["swagger", "info"] {
        out.insert(field, document.get(field).cloned().unwrap_or_default());
    }
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for item in paths.iter().map(|(_, item)| item) {
        references(item, &mut wanted);
    }
    out.insert("paths", paths);
    let mut kept = [("parameters", Object::new()), ("definitions", Object::new())];
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some(reference) = wanted.pop_first() {
        if !seen.insert(reference.clone()) {
            continue;
        }
        for (field, objects) in &mut kept {
            let name = reference.strip_prefix(&format!("#/{field}/"));
            let found = name.and_then(|name| Some((name, document.get(field)?.get(name)?)));
            if let Some((name, found)) = found {
                references(found, &mut wanted);
                objects.insert(name, found.clone());
            }
        }
    }
    for (field, mut objects) in kept {
        if !objects.is_empty() {
            objects.sort();
            out.insert(field, objects);
        }
    }
    Some(Value::Object(out))
}

/// Collects the references in a document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter() {
                match value.as_str().filter(|_| name == "$ref") {
                    Some(reference) => drop(found.insert(reference.to_owned())),
                    None => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// An older OpenAPI document in the newer version.
pub(super) fn converted(older: &Value) -> Value {
    let empty = Object::new();
    let fields = |value: Option<&Value>| value.and_then(Value::as_object).unwrap_or(&empty).clone();
    let parameters = fields(older.get("parameters"));
    let paths: Object = fields(older.get("paths"))
        .into_iter()
        .map(|(path, item)| {
            let item: Object = fields(Some(&item))
                .into_iter()
                .map(|(name, part)| match name.as_str() {
                    "parameters" => (name, Value::Array(split(&part, &parameters).0)),
                    _ if part.as_object().is_some() => (name, operation(&part, &parameters)),
                    _ => (name, part),
                })
                .collect();
            (path, Value::Object(item))
        })
        .collect();
    let schemas: Object =
        fields(older.get("definitions")).into_iter().map(|(name, schema)| (name, referring(schema))).collect();
    let info = older.get("info").cloned().unwrap_or_default();
    api::json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}})
}

/// Parameters, and the body among them.
fn split(given: &Value, shared: &Object) -> (Vec<Value>, Option<Value>) {
    let (mut parameters, mut body) = (Vec::new(), None);
    for parameter in given.as_array().unwrap_or_default() {
        let name = parameter.str_at(&["$ref"]).and_then(|it| it.strip_prefix("#/parameters/"));
        let parameter = name.and_then(|name| shared.get(name)).unwrap_or(parameter);
        let Some(fields) = parameter.as_object() else { continue };
        if fields.get("in").and_then(Value::as_str) == Some("body") {
            body = Some(parameter.clone());
            continue;
        }
        let (mut out, mut schema) = (Object::new(), Object::new());
        for (name, value) in fields.iter() {
            match name {
                "name" | "in" | "description" | "required" => drop(out.insert(name, value.clone())),
                _ => drop(schema.insert(name, value.clone())),
            }
        }
        out.insert("schema", schema);
        parameters.push(Value::Object(out));
    }
    (parameters, body)
}

fn operation(older: &Value, shared: &Object) -> Value {
    let Some(fields) = older.as_object() else { return older.clone() };
    let content = |media_types: &str, schema: Option<&Value>| -> Object {
        let types = fields.get(media_types).and_then(Value::as_array).unwrap_or_default();
        let content = || schema.map_or_else(Value::object, |it| api::json!({"schema": (referring(it.clone()))}));
        types.iter().filter_map(Value::as_str).map(|media_type| (media_type, content())).collect()
    };
    let mut out = Object::new();
    for (name, value) in fields.iter() {
        match name {
            "consumes" | "produces" | "schemes" => {}
            "parameters" => {
                let (parameters, body) = split(value, shared);
                if !parameters.is_empty() {
                    out.insert(name, parameters);
                }
                if let Some(body) = body {
                    let mut request = Object::new();
                    request.insert("content", content("consumes", body.get("schema")));
                    if let Some(required) = body.get("required") {
                        request.insert("required", required.clone());
                    }
                    out.insert("requestBody", request);
                }
            }
            "responses" => {
                let responses = value.as_object().into_iter().flat_map(Object::iter).map(|(code, response)| {
                    let mut fields = Object::new();
                    fields.insert("description", response.text("description"));
                    let content = content("produces", response.get("schema"));
                    if !content.is_empty() {
                        fields.insert("content", content);
                    }
                    (code, Value::Object(fields))
                });
                out.insert(name, responses.collect::<Object>());
            }
            _ => drop(out.insert(name, value.clone())),
        }
    }
    Value::Object(out)
}

/// A schema whose references are those of the newer version.
fn referring(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| match value.as_str().filter(|_| name == "$ref") {
                Some(reference) => {
                    let reference = reference.replace("#/definitions/", "#/components/schemas/");
                    (name, Value::from(reference))
                }
                None => (name, referring(value)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(referring).collect()),
        other => other,
    }
}

/// Adds the documents of aggregated API servers to an older OpenAPI document. Names that are taken stay.
pub(crate) fn merge_older(document: &mut Value, remotes: &[RemoteVersion]) {
    for remote in remotes {
        let Some(older) = &remote.documents.older_openapi else { continue };
        for field in ["paths", "definitions", "parameters"] {
            let Some(added) = older.get(field).and_then(Value::as_object) else { continue };
            let Some(known) = document.get_mut(field).and_then(Value::as_object_mut) else { continue };
            for (name, value) in added.iter() {
                known.get_or_insert(name, || value.clone());
            }
            if field != "paths" {
                known.sort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote() -> RemoteVersion {
        let object = api::json!({"metadata": {"name": "v1.g.example.com"}, "spec": {
            "group": "g.example.com", "version": "v1", "service": {"namespace": "a", "name": "b"}}});
        RemoteVersion::new(&object).unwrap()
    }

    #[test]
    fn resource_list_becomes_discovery_with_subresources() {
        let list = api::json!({"resources": [
            {"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"],
                "shortNames": ["th"]},
            {"name": "things/scale", "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["update"]},
            {"name": "orphans/status", "kind": "Orphan"},
            "nonsense"
        ]});
        let expected = api::json!([
            {"resource": "things", "responseKind": {"group": "g.example.com", "version": "v1", "kind": "Thing"},
                "scope": "Namespaced", "singularResource": "thing", "verbs": ["get"], "shortNames": ["th"],
                "subresources": [{"subresource": "scale",
                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["update"]}]},
            {"resource": "orphans", "scope": "Cluster", "subresources": [{"subresource": "status",
                "responseKind": {"group": "g.example.com", "version": "v1", "kind": "Orphan"}, "verbs": []}]}
        ]);
        assert_eq!(from_list(&list, &remote()).map(Value::Array), Some(expected));
        assert_eq!(from_list(&api::json!({"resources": 1}), &remote()), None);
    }

    #[test]
    fn openapi_keeps_own_paths_with_their_definitions() {
        let operation = api::json!({"produces": ["application/json"], "consumes": ["*/*"], "parameters": [
                {"name": "body", "in": "body", "required": true, "schema": {"$ref": "#/definitions/A"}},
                {"$ref": "#/parameters/pretty"}],
            "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/A"}}}});
        let document = api::json!({"swagger": "2.0", "info": {"title": "t"},
            "paths": {"/apis/g.example.com/v1/things": {"post": operation}, "/apis/g.example.com/v10/x": {}, "/version": {}},
            "parameters": {"pretty": {"name": "pretty", "in": "query", "type": "string"}},
            "definitions": {"A": {"properties": {"b": {"$ref": "#/definitions/B"}}}, "B": {"$ref": "#/definitions/A"},
                "C": {}}});
        let reduced = reduced(&document, &remote()).unwrap();
        assert_eq!(reduced.get("paths").and_then(Value::as_object).map(Object::len), Some(1));
        assert!(reduced.at(&["definitions", "B"]).is_some() && reduced.at(&["definitions", "C"]).is_none());
        let newer = converted(&reduced);
        let at = ["paths", "/apis/g.example.com/v1/things", "post"];
        let post = newer.at(&at).unwrap();
        let schema = api::json!({"schema": {"$ref": "#/components/schemas/A"}});
        assert_eq!(post.at(&["requestBody", "content", "*/*"]), Some(&schema));
        assert_eq!(post.at(&["responses", "200", "content", "application/json"]), Some(&schema));
        let parameters = api::json!([{"name": "pretty", "in": "query", "schema": {"type": "string"}}]);
        assert_eq!(post.get("parameters"), Some(&parameters));
        let other = api::json!({"paths": {"/version": {}}});
        assert!(super::reduced(&other, &remote()).is_none());
    }
}
