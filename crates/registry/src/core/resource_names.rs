//! Names and amounts of resources that containers, pods and nodes may request or offer.
//!
//! Follows `pkg/apis/core/helper` and the resource parts of core validation.

use api::Quantity;
use api::field::{BadValue, Errors, Path};
use api::json::{Object, Value};
use api::names;

use crate::meta::{NEGATIVE, invalid};

const STANDARD: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

const INTEGER: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Whether quotas can limit the resource: all standard ones but the size of one claim.
pub(crate) fn is_countable(name: &str) -> bool {
    STANDARD.contains(&name) && name != "storage"
}

pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether limits of the resource may exceed its requests.
pub(crate) fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether a resource can be requested at the pod level.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || is_huge_page(name)
}

/// A name of any resource.
pub(crate) fn validate_name(name: &str, at: Path<'_>, errors: &mut Errors) -> bool {
    let before = errors.len();
    invalid(names::qualified_name(name), name, at, errors);
    let is_standard = STANDARD.contains(&name) || is_huge_page(name) || name.starts_with("requests.hugepages-");
    if errors.len() == before && !name.contains('/') && !is_standard {
        errors.invalid(at, name, "must be a standard resource type or fully qualified");
    }
    errors.len() == before
}

/// Validates the name of a resource that a container may request.
pub(crate) fn validate_container_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    validate_name(name, at, errors);
    if !name.contains('/') {
        if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !is_huge_page(name) {
            errors.invalid(at, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(at, name, "doesn't follow extended resource name standard");
    }
}

/// Validates the name of a resource that may be requested at the pod level.
pub(crate) fn validate_pod_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    if validate_name(name, at, errors) && !is_pod_level(name) {
        errors.not_supported(at, name, &["cpu", "hugepages-", "memory"]);
    }
}

/// An amount of a resource: not negative, and whole where only wholes exist.
pub(crate) fn validate_amount(name: &str, amount: &Quantity, at: Path<'_>, errors: &mut Errors) {
    if amount.sign() < 0 {
        errors.invalid(at, amount.to_string(), NEGATIVE);
    }
    if (INTEGER.contains(&name) || is_extended(name)) && amount.milli_value() % 1000 != 0 {
        errors.invalid(at, BadValue::Value(Value::from(amount.to_string())), "must be an integer");
    }
}

/// Whether an amount of huge pages is a multiple of their size.
pub(crate) fn is_divisible(name: &str, amount: &Quantity) -> bool {
    let Some(size) = name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok()) else { return false };
    size.sign() > 0
        && size.milli_value() % 1000 == 0
        && amount.value().checked_rem(size.value()).is_some_and(|rest| rest == 0)
}

/// The amounts of a resource list, in order of names.
pub(crate) fn amounts(list: &Object) -> impl Iterator<Item = (&str, Quantity)> {
    list.iter().filter_map(|(name, value)| Some((name, value.as_quantity()?)))
}
