//! Discovery: the legacy documents, and all groups in one.

use api::json::{Object, Value};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

use super::api_services;
use crate::aggregator::{self, RemoteVersion};
use crate::custom::Snapshot;
use crate::resources::{self, Resource, RuntimeConfig, Subresource, api_version};
use crate::wire::answer::Answer;
use crate::wire::etag::hash;
use crate::wire::negotiation::{AcceptedEncoding, Form};
use crate::wire::status::{Failure, Result};

/// The content type of the aggregated document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Everything that is served: built-in versions as configured, custom resources, and aggregated APIs.
#[derive(Clone, Copy)]
pub(crate) struct ServedApis<'a> {
    pub(crate) config: &'a RuntimeConfig,
    pub(crate) customs: &'a Snapshot,
    pub(crate) aggregated: &'a aggregator::Snapshot,
}

impl<'a> ServedApis<'a> {
    /// Whether a group is served in a version.
    pub(crate) fn has_version(self, group: &str, version: &str) -> bool {
        self.config.has_version(group, version) || self.customs.has_version(group, version)
    }

    /// The built-in resources of a group and version.
    fn rows(self, group: &'a str, version: &'a str) -> impl Iterator<Item = Resource<'a>> {
        let is_served = self.config.serves(group, version);
        let all = resources::all().iter().filter(move |_| is_served);
        all.filter(move |it| it.group == group && it.is_served_in(version)).copied()
    }
}

/// Answers `/api`.
pub(crate) fn api(
    accepted: &AcceptedEncoding,
    if_none_match: &str,
    server_address: &str,
    served: ServedApis<'_>,
) -> Answer {
    if accepted.form == Form::GroupDiscovery {
        return aggregated(if_none_match, served, |group| group.is_empty());
    }
    let address = api::json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]);
    Answer::json(200, &api::json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address}))
}

/// Answers `/apis`.
pub(crate) fn apis(accepted: &AcceptedEncoding, if_none_match: &str, served: ServedApis<'_>) -> Answer {
    if accepted.form == Form::GroupDiscovery {
        return aggregated(if_none_match, served, |group| !group.is_empty());
    }
    let groups = named_groups(served);
    let groups: Vec<Value> =
        groups.iter().map(|(group, versions)| Value::Object(group_fields(group, versions))).collect();
    Answer::json(200, &api::json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
}

/// Built-in groups, then custom ones by name, and aggregated ones by priority. A group that is both has the versions of both.
pub(crate) fn all_groups(served: ServedApis<'_>) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = served.config.groups().collect();
    for (group, versions) in served.customs.groups() {
        match groups.iter_mut().find(|(it, _)| *it == group) {
            Some((_, known)) => {
                let new: Vec<&str> = versions.filter(|it| !known.contains(it)).collect();
                known.extend(new);
            }
            None => groups.push((group, versions.collect())),
        }
    }
    served.aggregated.merge(&mut groups, api_services::priorities);
    groups
}

fn named_groups(served: ServedApis<'_>) -> Vec<(&str, Vec<&str>)> {
    all_groups(served).into_iter().filter(|(group, _)| !group.is_empty()).collect()
}

fn group_fields(group: &str, versions: &[&str]) -> Object {
    let version = |version: &str| {
        let group_version = api_version(group, version);
        api::json!({"groupVersion": group_version, "version": version})
    };
    let all: Vec<Value> = versions.iter().map(|it| version(it)).collect();
    let preferred = versions.first().map(|it| version(it)).unwrap_or_default();
    [("name", Value::from(group)), ("versions", Value::Array(all)), ("preferredVersion", preferred)]
        .into_iter()
        .collect()
}

/// Answers `/apis/{group}`.
pub(crate) fn group(name: &str, served: ServedApis<'_>) -> Option<Answer> {
    let groups = named_groups(served);
    let (group, versions) = groups.iter().find(|(group, _)| *group == name)?;
    let mut document: Object = [("kind", "APIGroup"), ("apiVersion", "v1")].into_iter().collect();
    for (key, value) in group_fields(group, versions) {
        document.insert(key, value);
    }
    Some(Answer::json(200, &Value::Object(document)))
}

/// Answers `/api/v1` and `/apis/{group}/{version}`.
///
/// # Errors
/// 404 if the group has no such version.
pub(crate) fn group_version(group: &str, version: &str, served: ServedApis<'_>) -> Result<Answer> {
    if !served.has_version(group, version) {
        return Err(Failure::no_resource());
    }
    let mut list: Vec<Value> = Vec::new();
    for resource in served.rows(group, version) {
        list.push(Value::Object(resource_fields(&resource)));
        list.extend(resource.subresources.iter().map(|sub| Value::Object(subresource_fields(&resource, sub))));
    }
    list.sort_by(|left, right| left.str_at(&["name"]).cmp(&right.str_at(&["name"])));
    for resource in served.customs.rows(group, version) {
        list.push(Value::Object(resource_fields(&resource)));
        // Kubernetes: the status comes first here, and last in the one document.
        let parts = resource.subresources.iter().rev();
        list.extend(parts.map(|sub| Value::Object(subresource_fields(&resource, sub))));
    }
    let mut document = Object::new();
    document.insert("kind", "APIResourceList");
    if !group.is_empty() {
        document.insert("apiVersion", "v1");
    }
    document.insert("groupVersion", api_version(group, version));
    document.insert("resources", list);
    Ok(Answer::json(200, &Value::Object(document)))
}

fn texts(list: &[&str]) -> Value {
    Value::Array(list.iter().map(|&it| it.into()).collect())
}

/// Adds short names and categories.
fn insert_names(fields: &mut Object, resource: &Resource<'_>) {
    for (field, names) in [("shortNames", resource.short_names()), ("categories", resource.categories())] {
        if !names.is_empty() {
            fields.insert(field, texts(&names));
        }
    }
}

fn resource_fields(resource: &Resource<'_>) -> Object {
    let mut fields = Object::new();
    fields.insert("name", resource.plural);
    fields.insert("singularName", resource.singular);
    fields.insert("namespaced", resource.namespaced);
    fields.insert("kind", resource.kind);
    fields.insert("verbs", texts(resource.verbs));
    insert_names(&mut fields, resource);
    if resource.verbs.contains(&"list") && resource.verbs.contains(&"watch") {
        fields.insert("storageVersionHash", storage_version_hash(resource));
    }
    fields
}

/// A short text that changes with the version that objects are stored in.
fn storage_version_hash(resource: &Resource<'_>) -> String {
    let (group, version) = match resource.group {
        "events.k8s.io" => ("", "v1"),
        group => (group, resource.storage_version()),
    };
    let hash = digest(&SHA256, format!("{group}/{version}/{}", resource.kind).as_bytes());
    STANDARD.encode(hash.as_ref().get(..8).unwrap_or_default())
}

fn subresource_fields(resource: &Resource<'_>, sub: &Subresource) -> Object {
    let (group, version, kind) = sub.kind;
    let mut fields = Object::new();
    fields.insert("name", format!("{}/{}", resource.plural, sub.name));
    fields.insert("singularName", "");
    fields.insert("namespaced", resource.namespaced);
    if !version.is_empty() {
        if !group.is_empty() {
            fields.insert("group", group);
        }
        fields.insert("version", version);
    }
    fields.insert("kind", if kind.is_empty() { resource.kind } else { kind });
    fields.insert("verbs", texts(sub.verbs));
    fields
}

fn aggregated(if_none_match: &str, served: ServedApis<'_>, wanted: fn(&str) -> bool) -> Answer {
    let mut items: Vec<Value> = Vec::new();
    for (group, versions) in all_groups(served).iter().filter(|(group, _)| wanted(group)) {
        let versions: Vec<Value> = versions.iter().map(|version| aggregated_version(group, version, served)).collect();
        let mut metadata = Object::new();
        if !group.is_empty() {
            metadata.insert("name", *group);
        }
        items.push(api::json!({"metadata": metadata, "versions": versions}));
    }
    let document = api::json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items
    });
    let answer = Answer::json(200, &document);
    let text = api::json::to_string(&document);
    let etag = format!("\"{}\"", hash(text.as_bytes()));
    if if_none_match.split(',').any(|it| it.trim() == etag) {
        return Answer { content_type: "", ..Answer::bytes(304, "", "") }.with_header(http::header::ETAG, etag);
    }
    Answer { content_type: AGGREGATED, ..answer }.with_header(http::header::ETAG, etag)
}

/// A version of an aggregated API. It is stale while its server is not available, or its resources are not known.
fn remote_version(remote: &RemoteVersion) -> Value {
    let resources = remote.documents.resources.as_ref();
    let is_simulated = remote.is_simulated && !remote.is_local;
    let is_current = is_simulated || remote.is_local || (remote.is_available && resources.is_some());
    let resources = resources.filter(|_| !is_simulated).cloned().unwrap_or_default();
    let freshness = if is_current { "Current" } else { "Stale" };
    api::json!({"version": (remote.version.as_str()), "resources": resources, "freshness": freshness})
}

fn aggregated_version(group: &str, version: &str, served: ServedApis<'_>) -> Value {
    if let Some(remote) = served.aggregated.find(group, version) {
        return remote_version(remote);
    }
    let kind = |group: &str, version: &str, kind: &str| api::json!({"group": group, "version": version, "kind": kind});
    let resources: Vec<Value> = served
        .rows(group, version)
        .chain(served.customs.rows(group, version))
        .map(|resource| {
            let own_kind = |of: &str| match resource.custom {
                Some(_) => kind(group, version, of),
                None => kind("", "", of),
            };
            let mut fields = Object::new();
            fields.insert("resource", resource.plural);
            fields.insert("responseKind", own_kind(resource.kind));
            fields.insert("scope", if resource.namespaced { "Namespaced" } else { "Cluster" });
            fields.insert("singularResource", resource.singular);
            fields.insert("verbs", texts(resource.verbs));
            insert_names(&mut fields, &resource);
            if !resource.subresources.is_empty() {
                let mut parts: Vec<&Subresource> = resource.subresources.iter().collect();
                if resource.custom.is_some() {
                    parts.reverse();
                }
                let subresources = parts.into_iter().map(|sub| {
                    let (group, version, own) = sub.kind;
                    let response = if own.is_empty() { own_kind(resource.kind) } else { kind(group, version, own) };
                    let verbs = texts(sub.verbs);
                    api::json!({"subresource": (sub.name), "responseKind": response, "verbs": verbs})
                });
                fields.insert("subresources", subresources.collect::<Vec<Value>>());
            }
            Value::Object(fields)
        })
        .collect();
    api::json!({"version": version, "resources": resources, "freshness": "Current"})
}
