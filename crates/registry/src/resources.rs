//! The table of built-in resources: one row each, with all that a kind is and means.
//!
//! Routing, discovery, OpenAPI, the verbs of the server, tables and `celplane check` read it. The types of
//! objects are in [`api::types`]; `docs/adding-a-kind.md` describes how to add a row.

mod named;
mod runtime_config;
mod table;

use api::types::{self, Type};

pub use self::named::*;
pub use self::runtime_config::{RuntimeConfig, RuntimeConfigError};
use crate::generic;
use crate::printers::{self, Printer};
use crate::strategy::Strategy;

/// A resource: a collection of objects of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Resource<'a> {
    /// The API group, empty for core.
    pub group: &'a str,
    /// The versions it is served in, if it is built in. The first is the one it is stored in.
    pub versions: &'static [&'static str],
    /// The name in paths.
    pub plural: &'a str,
    /// The name for one.
    pub singular: &'a str,
    /// The kind of its objects.
    pub kind: &'a str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Short names of a built-in resource.
    pub(crate) short_names: &'static [&'static str],
    /// The sets that it belongs to, such as `all`, if it is built in.
    pub(crate) categories: &'static [&'static str],
    /// Supported verbs, sorted.
    pub verbs: &'static [&'static str],
    /// Subresources, sorted by name.
    pub subresources: &'static [Subresource],
    /// Field selectors of a built-in resource, besides `metadata.name` and `metadata.namespace`.
    pub fields: &'static [&'static str],
    /// Table columns for `kubectl get`.
    pub printer: Printer,
    /// Whether a delete answers with the deleted object, where most answer with a `Status`.
    pub delete_returns_object: bool,
    /// Whether an update makes an object that does not exist.
    pub created_by_update: bool,
    /// Whether an update may leave out the version that it is based on.
    pub unconditional_update: bool,
    /// Preparation and validation of objects, in their stored version.
    pub(crate) strategy: Strategy,
    /// Definition of a custom resource.
    pub custom: Option<CustomRow<'a>>,
}

/// Additional parts of a custom resource's row. Such a row describes one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CustomRow<'a> {
    /// The version.
    pub version: &'a str,
    /// The kind of its lists.
    pub list_kind: &'a str,
    /// The version that objects are stored in.
    pub storage_version: &'a str,
    /// Short names.
    pub short_names: &'a [String],
    /// The sets that it belongs to.
    pub categories: &'a [String],
    /// Fields that objects can be selected by, besides name and namespace.
    pub fields: &'a [String],
}

/// A path below an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subresource {
    /// The name in paths.
    pub name: &'static str,
    /// Group, version and kind of what is read and written there; empty where it is the resource's own.
    pub kind: (&'static str, &'static str, &'static str),
    /// Supported verbs, sorted.
    pub verbs: &'static [&'static str],
}

/// Verbs of most resources.
const ALL: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Defaults of a row.
const ROW: Resource<'static> = Resource {
    group: "",
    versions: &[],
    plural: "",
    singular: "",
    kind: "",
    namespaced: true,
    short_names: &[],
    categories: &[],
    verbs: ALL,
    subresources: &[],
    fields: &[],
    printer: printers::PLAIN,
    delete_returns_object: false,
    created_by_update: false,
    unconditional_update: true,
    strategy: generic::NAMED,
    custom: None,
};

const STATUS: Subresource = sub("status", ("", "", ""), &["get", "patch", "update"]);

const fn sub(
    name: &'static str,
    kind: (&'static str, &'static str, &'static str),
    verbs: &'static [&'static str],
) -> Subresource {
    Subresource { name, kind, verbs }
}

/// Groups in the order of discovery, with their versions, the preferred one first.
#[must_use]
pub fn groups() -> &'static [(&'static str, &'static [&'static str])] {
    table::GROUPS
}

/// All built-in resources.
#[must_use]
pub fn all() -> &'static [Resource<'static>] {
    table::RESOURCES
}

/// The resource of this group and name, if it is served in `version`.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource<'static>> {
    all().iter().find(|it| it.plural == plural && it.group == group && it.versions.contains(&version))
}

/// The resource of objects with this `apiVersion` and `kind`.
#[must_use]
pub fn find_by_api_version(api_version: &str, kind: &str) -> Option<&'static Resource<'static>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    all().iter().find(|it| it.kind == kind && it.group == group && it.versions.contains(&version))
}

/// Whether a group is served in a version.
#[must_use]
pub fn has_version(group: &str, version: &str) -> bool {
    groups().iter().any(|(it, versions)| *it == group && versions.contains(&version))
}

impl<'a> Resource<'a> {
    /// Whether `generateName` becomes the name as it is: the name of an address is the address.
    #[must_use]
    pub fn keeps_name_prefix(&self) -> bool {
        (self.group, self.plural) == ("networking.k8s.io", "ipaddresses")
    }

    /// Whether an update in this version may leave out the resource version that it is based on.
    #[must_use]
    pub fn allows_unconditional_update(&self, version: &str) -> bool {
        // Kubernetes kept the older behavior of this kind in its older versions.
        let is_old = self.plural == "devicetaintrules" && matches!(version, "v1beta2" | "v1alpha3");
        self.unconditional_update || is_old
    }

    /// `apps/v1`, or `v1` in core.
    #[must_use]
    pub fn api_version(&self, version: &str) -> String {
        api_version(self.group, version)
    }

    /// The deprecation warning of a version or kind, by the lifecycle tags of Kubernetes' API.
    #[must_use]
    pub fn deprecation(&self, version: &str) -> Option<String> {
        let rest = match (self.group, version, self.kind) {
            ("", "v1", "ComponentStatus") => "is deprecated in v1.19+",
            ("", "v1", "Endpoints") => "is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
            ("resource.k8s.io", "v1beta1", _) => "is deprecated in v1.35+, unavailable in v1.38+",
            ("resource.k8s.io", "v1beta2", "DeviceTaintRule") => return None,
            ("resource.k8s.io", "v1beta2", _) | ("resource.k8s.io", "v1alpha3", "DeviceTaintRule") => {
                "is deprecated in v1.36+, unavailable in v1.39+"
            }
            _ => return None,
        };
        Some(format!("{} {} {rest}", self.api_version(version), self.kind))
    }

    /// The version that objects are stored in.
    #[must_use]
    pub fn storage_version(&self) -> &'a str {
        match self.custom {
            Some(custom) => custom.storage_version,
            None => self.versions.first().copied().unwrap_or_default(),
        }
    }

    /// Whether it is served in a version.
    #[must_use]
    pub fn is_served_in(&self, version: &str) -> bool {
        self.custom.map_or_else(|| self.versions.contains(&version), |custom| custom.version == version)
    }

    /// Short names of the resource.
    #[must_use]
    pub fn short_names(&self) -> Vec<&'a str> {
        self.custom.map_or_else(|| self.short_names.to_vec(), |custom| texts(custom.short_names))
    }

    /// The sets that it belongs to, such as `all`.
    #[must_use]
    pub fn categories(&self) -> Vec<&'a str> {
        self.custom.map_or_else(|| self.categories.to_vec(), |custom| texts(custom.categories))
    }

    /// Whether objects can be selected by a field, besides name and namespace.
    #[must_use]
    pub fn offers(&self, field: &str) -> bool {
        self.custom.map_or_else(|| self.fields.contains(&field), |custom| custom.fields.iter().any(|it| it == field))
    }

    /// The type of its objects in a version.
    #[must_use]
    pub fn object_type(&self, version: &str) -> Option<&'static Type> {
        if self.custom.is_some() {
            return None;
        }
        types::by_kind(self.group, version, self.kind)
    }

    /// The kind of its lists.
    #[must_use]
    pub fn list_kind(&self) -> String {
        match self.custom {
            Some(custom) => custom.list_kind.to_owned(),
            None => format!("{}List", self.kind),
        }
    }

    /// A row for a resource that users define: what such resources have in common.
    #[must_use]
    pub const fn custom(custom: CustomRow<'a>) -> Self {
        Self { unconditional_update: false, custom: Some(custom), ..ROW }
    }

    /// Whether this row is about the same resource as another one: rows of custom resources are made for each
    /// definition, so that their addresses say nothing.
    #[must_use]
    pub fn is(&self, other: &Resource<'_>) -> bool {
        (self.group, self.plural) == (other.group, other.plural)
    }

    /// The resource as messages name it: `deployments.apps`.
    #[must_use]
    pub fn qualified(&self) -> String {
        qualified(self.plural, self.group)
    }

    /// The kind as messages name it: `Deployment.apps`.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        qualified(self.kind, self.group)
    }

    /// Group and name that objects are stored under. Both kinds of events share one place.
    #[must_use]
    pub fn storage_name(&self) -> (&'a str, &'a str) {
        match (self.group, self.plural) {
            ("", plural) | ("events.k8s.io", plural @ "events") => ("core", plural),
            (group, plural) => (group, plural),
        }
    }

    /// The start of the keys of all its objects.
    #[must_use]
    pub fn prefix(&self) -> String {
        let (group, plural) = self.storage_name();
        ["/registry/", group, "/", plural, "/"].concat()
    }

    /// The key of an object.
    #[must_use]
    pub fn key(&self, namespace: &str, name: &str) -> String {
        let (group, plural) = self.storage_name();
        let (namespace, slash) = if self.namespaced { (namespace, "/") } else { ("", "") };
        ["/registry/", group, "/", plural, "/", namespace, slash, name].concat()
    }

    /// Returns the subresource of this name, if it has one.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|it| it.name == name)
    }
}

fn texts(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

/// `apps/v1`, or `v1` in core.
#[must_use]
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// `name.group`, or `name` in core.
#[must_use]
pub fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_type_in_each_version() {
        for resource in all() {
            assert!(!resource.versions.is_empty(), "{}", resource.plural);
            for version in resource.versions {
                assert!(has_version(resource.group, version), "{} {version}", resource.plural);
                assert!(resource.object_type(version).is_some(), "{}/{version} {}", resource.group, resource.kind);
            }
        }
    }

    #[test]
    fn events_of_both_groups_share_one_place() {
        let core = find("", "v1", "events").unwrap();
        let new = find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.key("a", "b"), "/registry/core/events/a/b");
        assert_eq!(core.prefix(), new.prefix());
        assert_eq!(find("", "v1", "nodes").unwrap().key("", "n"), "/registry/core/nodes/n");
    }
}
