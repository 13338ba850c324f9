//! The table of resources: one row per kind.

use crate::core;
use crate::strategy::Resource;

/// All kinds whose meaning is known here.
pub static RESOURCES: &[Resource] = &[
    Resource { group: "", version: "v1", kind: "Pod", is_namespaced: true, strategy: core::pod::STRATEGY },
];

/// The row of a kind.
#[must_use]
pub fn find(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|it| it.kind == kind && it.group == group && it.version == version)
}

/// The row of objects with this `apiVersion` and `kind`.
#[must_use]
pub fn find_by_api_version(api_version: &str, kind: &str) -> Option<&'static Resource> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    find(group, version, kind)
}
