//! `metrics.k8s.io/v1beta1` as an aggregated API of this process: its place among the others, and its documents.
//!
//! An APIService with a service replaces it, as metrics-server does, unless the pods of that service are simulated.

use std::sync::Arc;

use api::json::{self, Object, Value};
use bytes::Bytes;

use super::RemoteVersion;
use super::documents::{Documents, converted};
use crate::openapi;
use crate::outbound::verifier::Trust;
use crate::wire::etag::hash;

/// The group.
pub(crate) const GROUP: &str = "metrics.k8s.io";
/// The version.
pub(crate) const VERSION: &str = "v1beta1";
/// Priorities of group and version, those of metrics-server.
pub(crate) const PRIORITIES: (i64, i64) = (100, 100);

/// The paths and definitions as OpenAPI of the older version.
const OPENAPI: &str = include_str!("../../data/resource_metrics_openapi.json");

/// Plural name, kind, and whether it is in a namespace.
const RESOURCES: [(&str, &str, bool); 2] = [("nodes", "NodeMetrics", false), ("pods", "PodMetrics", true)];

/// The API if no APIService stands for it.
pub(super) fn remote(documents: &Arc<Documents>) -> RemoteVersion {
    let (group_priority, version_priority) = PRIORITIES;
    RemoteVersion {
        name: format!("{VERSION}.{GROUP}"),
        uid: String::new(),
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        group_priority,
        version_priority,
        service: Default::default(),
        trust: Trust::Authorities(Bytes::new()),
        is_available: true,
        is_simulated: false,
        is_local: true,
        documents: documents.clone(),
    }
}

/// Discovery and OpenAPI.
pub(super) fn documents() -> Documents {
    let older = json::parse(OPENAPI.as_bytes()).unwrap_or_default();
    let mut newer = converted(&older);
    if let Some(schemas) =
        newer.get_mut("components").and_then(|it| it.get_mut("schemas")).and_then(Value::as_object_mut)
    {
        openapi::add_shared(schemas, &[], (GROUP, VERSION));
        schemas.sort();
    }
    let newer = Bytes::from(json::to_string(&newer));
    let resources = RESOURCES.map(|(name, kind, is_namespaced)| {
        let scope = if is_namespaced { "Namespaced" } else { "Cluster" };
        api::json!({
            "resource": name, "responseKind": {"group": "", "version": "", "kind": kind}, "scope": scope,
            "singularResource": "", "verbs": ["get", "list"]
        })
    });
    Documents {
        // No APIService has an empty uid.
        uid: String::new(),
        resources: Some(resources.to_vec()),
        openapi: Some((newer.clone(), hash(&newer))),
        older_openapi: Some(older),
        // Bytes of servers are bounded, these are constant.
        size: 0,
    }
}

/// The resources as the older form of discovery lists them.
pub(crate) fn resource_list() -> Value {
    let resources = RESOURCES.map(|(name, kind, is_namespaced)| {
        let mut fields = Object::new();
        fields.insert("name", name);
        fields.insert("singularName", "");
        fields.insert("namespaced", is_namespaced);
        fields.insert("kind", kind);
        fields.insert("verbs", api::json!(["get", "list"]));
        Value::Object(fields)
    });
    let group_version = format!("{GROUP}/{VERSION}");
    api::json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": (Value::Array(resources.to_vec()))
    })
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn documents_have_all_paths_and_no_loose_references() {
        let documents = documents();
        let older = documents.older_openapi.unwrap();
        assert_eq!(older.get("paths").and_then(Value::as_object).map(Object::len), Some(5));
        let newer = json::parse(&documents.openapi.unwrap().0).unwrap();
        let schemas = newer.at(&["components", "schemas"]).and_then(Value::as_object).unwrap();
        let text = json::to_string(&newer);
        for (_, rest) in text.match_indices("#/components/schemas/").map(|(at, it)| text.split_at(at + it.len())) {
            let name = rest.split('"').next().unwrap();
            assert!(schemas.get(name).is_some(), "{name}");
        }
    }
}
