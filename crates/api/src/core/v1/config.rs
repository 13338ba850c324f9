//! Configuration objects: config maps, secrets, service accounts, quotas.

use super::{ObjectReference, ResourceList};
use crate::json::Text;
use crate::meta::v1::StringMap;
use crate::view::{object, view};

object! {
    /// Texts by name.
    pub struct ConfigMap("", "v1") {
        pub data: StringMap,
    }

    /// Bytes by name, as base64.
    pub struct Secret("", "v1") {
        pub data: StringMap,
        #[serde(rename = "type")]
        pub secret_type: Text,
    }

    /// An identity for pods.
    pub struct ServiceAccount("", "v1") {
        pub secrets: Vec<ObjectReference>,
    }

    /// Limit on the resources of a namespace.
    pub struct ResourceQuota("", "v1") {
        pub spec: ResourceQuotaSpec,
        pub status: ResourceQuotaStatus,
    }

    /// The addresses behind a service, in the older form.
    pub struct Endpoints("", "v1") {}
}

view! {
    /// The limits of a quota, and its scopes.
    pub struct ResourceQuotaSpec {
        pub hard: ResourceList,
        pub scope_selector: Option<ScopeSelector>,
        pub scopes: Vec<Text>,
    }

    /// Scopes of a quota, all of which must match.
    pub struct ScopeSelector {
        pub match_expressions: Vec<ScopedResourceSelectorRequirement>,
    }

    /// One of the things that a quota is about.
    pub struct ScopedResourceSelectorRequirement {
        pub scope_name: Text,
        pub operator: Text,
        pub values: Vec<Text>,
    }

    /// The limits that are in force, and how much is used.
    pub struct ResourceQuotaStatus {
        pub hard: ResourceList,
        pub used: ResourceList,
    }
}
