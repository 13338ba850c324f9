//! OpenAPI, made from the table of types: paths with their kinds for `kubectl`, schemas for `explain`.
//!
//! - `operations`: all operations, path by path; `parameters`: their query parameters; `schemas`: the types of requests and responses.
//! - `v3`: a document per group and version; `v2`: all in one.

mod custom;
mod message;
pub(crate) mod operations;
mod parameters;
mod schemas;
pub(crate) mod v2;
mod v3;

use std::collections::BTreeMap;

use api::json::{Object, Value};
use bytes::Bytes;

use self::operations::{DescribedResource, Operation, capitalized, group_title, plain, root};
use crate::clock;
use crate::custom::Snapshot;
use crate::resources::RuntimeConfig;
use crate::wire::answer::Answer;
use crate::wire::etag::hash;
use crate::wire::request::Query;
use crate::wire::shared::SharedDocument;

/// Title of the documents.
const TITLE: &str = "Kubernetes";
const VERSION: &str = api::kubernetes::VERSION;

/// The document of an aggregated API: its path, its text, and the hash of that.
pub(crate) type AggregatedDocument = (String, Bytes, String);

/// The documents by path (`apis/apps/v1`), each with its hash, and how it is sent in protobuf.
pub(crate) struct OpenApi {
    documents: BTreeMap<String, (Bytes, String, SharedDocument)>,
    made: String,
}

impl OpenApi {
    /// Makes all documents of what is served.
    #[must_use]
    pub(crate) fn new(config: &RuntimeConfig) -> Self {
        let mut by_document: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
        for operation in non_resources(config) {
            by_document.entry(document_of(&operation.path)).or_default().push(operation);
        }
        for (group, versions) in config.groups() {
            for version in versions {
                let operations =
                    described(group, version).iter().flat_map(DescribedResource::operations).collect::<Vec<_>>();
                by_document.entry(document_of(&root(group, version))).or_default().extend(operations);
            }
        }
        let document = |(path, operations): (String, Vec<Operation>)| {
            let group_version = match path.split('/').collect::<Vec<_>>().as_slice() {
                ["api", version] => Some(("", (*version).to_owned())),
                ["apis", group, version] => {
                    config.groups().map(|(it, _)| it).find(|it| it == group).map(|it| (it, (*version).to_owned()))
                }
                _ => None,
            };
            let mut schemas = schemas::Schemas::default();
            for described in group_version.iter().flat_map(|(group, version)| described(group, version)) {
                schemas.add_kinds(&described);
            }
            schemas.add_shared(&operations, group_version.as_ref().map(|(group, version)| (*group, version.as_str())));
            let info = api::json!({"title": TITLE, "version": VERSION});
            let security = api::json!({"BearerToken": {
                "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"
            }});
            let (paths, schemas) = (v3::paths(&operations), schemas.finish());
            let document = api::json!({
                "openapi": "3.0.0", "info": info, "paths": paths,
                "components": {"schemas": schemas, "securitySchemes": security}
            });
            let text = api::json::to_string(&document);
            let hash = hash(text.as_bytes());
            (path, (text.into(), hash, SharedDocument::default()))
        };
        let made = clock::http_date(clock::now());
        Self { documents: by_document.into_iter().map(document).collect(), made }
    }

    /// Answers `/openapi/v3` and what is below.
    pub(crate) fn answer(
        &self,
        path: &str,
        query: &Query,
        accept: &str,
        if_none_match: &str,
        snapshot: &Snapshot,
        aggregated: &[AggregatedDocument],
    ) -> Option<Answer> {
        let customs = custom::documents(snapshot);
        let dated = |answer: Answer| answer.with_header(http::header::LAST_MODIFIED, self.made.as_str());
        if path.is_empty() {
            let own = self.documents.iter().map(|(path, (_, hash, _))| (path.as_str(), hash));
            let custom = customs.iter().map(|(path, hash, _)| (path.as_str(), hash));
            let remote = aggregated.iter().map(|(path, _, hash)| (path.as_str(), hash));
            let mut paths: Object = own
                .chain(remote)
                .chain(custom)
                .map(|(path, hash)| {
                    let url = format!("/openapi/v3/{path}?hash={hash}");
                    (path, api::json!({"serverRelativeURL": url}))
                })
                .collect();
            paths.sort();
            let index = api::json!({"paths": paths});
            return Some(dated(Answer::bytes(200, "text/plain; charset=utf-8", api::json::to_string(&index))));
        }
        let own = self.documents.get(path).map(|(document, hash, shared)| (Some(document), hash, shared));
        let not_shared = SharedDocument::default();
        let remote = || aggregated.iter().find(|(it, ..)| it == path);
        let remote = || remote().map(|(_, document, hash)| (Some(document), hash, &not_shared));
        let custom = || customs.iter().find(|(it, ..)| it == path).map(|(_, hash, shared)| (None, hash, shared));
        let (document, hash, shared) = own.or_else(remote).or_else(custom)?;
        let Some(content_type) = content_type(accept) else {
            return Some(Answer::bytes(406, "", ""));
        };
        let etag = format!("\"{hash}\"");
        let asked = query.get("hash");
        if !asked.is_empty() && asked != hash {
            let location = format!("/openapi/v3/{path}?hash={hash}");
            return Some(
                Answer::bytes(301, content_type, "")
                    .with_header(http::header::LOCATION, location)
                    .with_header(http::header::ETAG, etag),
            );
        }
        if is_known(if_none_match, &etag) {
            return Some(dated(Answer::bytes(304, "", "")).with_header(http::header::ETAG, etag));
        }
        let messages = |text: &[u8]| v3::protobuf::write(&api::json::parse(text).unwrap_or_default());
        let body = match (content_type, document) {
            (PROTOBUF, Some(document)) => shared.get(|| messages(document)),
            (PROTOBUF, None) => messages(&custom::text(snapshot, path)),
            (_, Some(document)) => document.clone(),
            (_, None) => shared.get(|| custom::text(snapshot, path)),
        };
        let mut answer = dated(Answer::bytes(200, content_type, body)).with_header(http::header::ETAG, etag);
        if !asked.is_empty() {
            // Under this address it will never change.
            let expires = clock::http_date(clock::now().plus_seconds(365 * 24 * 3600)).replace("GMT", "UTC");
            answer = answer
                .with_header(http::header::CACHE_CONTROL, "public, immutable")
                .with_header(http::header::EXPIRES, expires);
        }
        Some(answer)
    }
}

/// The media type of a document in protobuf, as it is sent.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

/// The first form that a client takes, of those that exist; clients may write the name of protobuf in two ways.
fn content_type(accept: &str) -> Option<&'static str> {
    if accept.trim().is_empty() {
        return Some("application/json");
    }
    let clauses = crate::wire::negotiation::by_quality(accept);
    clauses.into_iter().find_map(|clause| match clause.split(';').next().unwrap_or_default().trim() {
        "application/json" | "application/*" | "*/*" => Some("application/json"),
        PROTOBUF | "application/com.github.proto-openapi.spec.v3@v1.0+protobuf" => Some(PROTOBUF),
        _ => None,
    })
}

/// Whether a client already has the document.
pub(crate) fn is_known(if_none_match: &str, etag: &str) -> bool {
    if_none_match.split(',').map(str::trim).any(|it| it == "*" || it.trim_start_matches("W/") == etag)
}

/// The resources of a group in one version.
fn described<'a>(group: &str, version: &'a str) -> Vec<DescribedResource<'a>> {
    let served = crate::resources::all().iter().filter(|it| it.group == group && it.versions.contains(&version));
    served
        .map(|resource| {
            let schema = resource.object_type(version).map(|of| of.schema_name()).unwrap_or_default();
            let list = api::types::by_kind(group, version, &resource.list_kind());
            let list_schema = list.map_or_else(|| schema.clone(), |of| of.schema_name());
            DescribedResource { resource: *resource, version, schema, list_schema }
        })
        .collect()
}

/// Discovery, the version, and keys of tokens.
fn non_resources(config: &RuntimeConfig) -> Vec<Operation> {
    let meta = |name: &str| Some(schema_of_meta(name));
    let mut all = vec![
        plain(
            "/.well-known/openid-configuration/",
            "getServiceAccountIssuerOpenIDConfiguration".to_owned(),
            "get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
            None,
        ),
        plain(
            "/openid/v1/jwks/",
            "getServiceAccountIssuerOpenIDKeyset".to_owned(),
            "get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
            None,
        ),
        plain(
            "/version/",
            "getCodeVersion".to_owned(),
            "get the version information for this server",
            Some(VERSION_INFO.to_owned()),
        ),
        plain("/api/", "getCoreAPIVersions".to_owned(), "get available API versions", meta("APIVersions")),
        plain("/apis/", "getAPIVersions".to_owned(), "get available API versions", meta("APIGroupList")),
    ];
    for (group, versions) in config.groups() {
        let title = group_title(group);
        if !group.is_empty() {
            let id = format!("get{title}APIGroup");
            all.push(plain(&format!("/apis/{group}/"), id, "get information of a group", meta("APIGroup")));
        }
        for version in versions {
            let id = format!("get{title}{}APIResources", capitalized(version));
            let path = format!("{}/", root(group, version));
            all.push(plain(&path, id, "get available resources", meta("APIResourceList")));
        }
    }
    all
}

/// The document that a path stands in: its group and version, or the path itself.
fn document_of(path: &str) -> String {
    let path = path.trim_matches('/');
    let parts: Vec<&str> = path.split('/').collect();
    let take = match parts.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => parts.len(),
    };
    parts.into_iter().take(take).collect::<Vec<_>>().join("/")
}

/// The schema of the response of `/version`.
const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";

/// The package of the types that all objects share.
const META: &str = "k8s.io/apimachinery/pkg/apis/meta/v1";

/// The name of the schema of a type that all groups share.
pub(crate) fn schema_of_meta(name: &str) -> String {
    format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")
}

/// Schemas that the operations of a document refer to, besides those of its own kinds.
pub(crate) fn add_shared(schemas: &mut Object, operations: &[Operation], group_version: (&str, &str)) {
    let mut types = schemas::Schemas::default();
    types.add_shared(operations, Some(group_version));
    for name in ["ObjectMeta", "ListMeta"] {
        if let Some(of) = api::types::by_name(META, name) {
            types.add(of, None);
        }
    }
    for (name, schema) in types.finish() {
        schemas.insert(name, schema);
    }
}

/// The paths of custom resources, as version 3 writes them.
pub(crate) fn paths(operations: &[Operation]) -> Object {
    v3::paths(operations)
}

/// Schema of `metadata`.
pub(crate) fn reference_to_metadata() -> Value {
    let reference = format!("#/components/schemas/{}", schema_of_meta("ObjectMeta"));
    api::json!({"allOf": [{"$ref": reference}]})
}

/// Parameters of a path, with descriptions.
fn path_parameters(path: &str) -> impl Iterator<Item = (&str, &'static str)> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).map(|name| match name {
        "namespace" => (name, "object name and auth scope, such as for teams and projects"),
        "path" => (name, "path to the resource"),
        _ => (name, "name of the object"),
    })
}

/// Tag of a path: `apps_v1`, `core`.
fn tags(path: &str) -> Vec<Value> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let tag = match parts.as_slice() {
        ["api"] => "core".to_owned(),
        ["api", version, ..] => format!("core_{version}"),
        ["apis"] => "apis".to_owned(),
        ["apis", group] => group_title(group).to_lowercase(),
        ["apis", group, version, ..] => format!("{}_{version}", group_tag(group)),
        [first, ..] => first.trim_start_matches('.').to_owned(),
        [] => String::new(),
    };
    vec![tag.into()]
}

/// `rbacAuthorization` of `rbac.authorization.k8s.io`.
fn group_tag(group: &str) -> String {
    let title = group_title(group);
    let mut letters = title.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// The accepted media types of the request body.
fn consumes(operation: &Operation) -> Vec<&'static str> {
    let is_built_in = operation.is_built_in;
    if operation.action != "patch" {
        return if is_built_in { vec!["*/*"] } else { vec!["application/json", "application/yaml"] };
    }
    let mut types = vec!["application/json-patch+json", "application/merge-patch+json"];
    types.extend(is_built_in.then_some("application/strategic-merge-patch+json"));
    types.push("application/apply-patch+yaml");
    types
}

/// The media types of the response.
fn produces(operation: &Operation) -> Vec<&'static str> {
    match operation.action {
        "connect" => vec!["*/*"],
        "" => vec!["application/json"],
        _ if operation.answer.is_none() => vec!["text/plain"],
        _ if !operation.is_built_in => vec!["application/json", "application/yaml"],
        "list" | "watch" | "watchlist" => vec![
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ],
        _ => vec!["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"],
    }
}

fn add_kind(fields: &mut Object, operation: &Operation) {
    if !operation.action.is_empty() {
        fields.insert("x-kubernetes-action", operation.action);
    }
    if !operation.kind.is_null() {
        fields.insert("x-kubernetes-group-version-kind", operation.kind.clone());
    }
}
