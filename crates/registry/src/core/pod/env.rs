//! Environment variables of containers, and references to fields of the pod or its resources.

use api::Quantity;
use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use crate::meta::invalid;

/// Fields of a pod that a variable may show.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of a pod that a file of a volume may show.
pub(super) const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn validate(variables: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (index, variable) in variables.iter().enumerate() {
        let here = at.index(index);
        let name = variable.text("name");
        if name.is_empty() {
            errors.required(here.child("name"), "");
        } else {
            invalid(names::relaxed_env_var_name(name), name, here.child("name"), errors);
        }
        if let Some(source) = variable.optional("valueFrom") {
            validate_source(source, variable.text("value"), &here.child("valueFrom"), errors);
        }
    }
}

fn validate_source(source: &Value, value: &str, at: &Path<'_>, errors: &mut Errors) {
    let mut count = 0_usize;
    if let Some(reference) = source.optional("fieldRef") {
        count = count.saturating_add(1);
        validate_field(reference, ENV_FIELDS, &at.child("fieldRef"), errors);
    }
    if let Some(reference) = source.optional("resourceFieldRef") {
        count = count.saturating_add(1);
        validate_resource_field(reference, false, &at.child("resourceFieldRef"), errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(reference) = source.optional(kind) {
            count = count.saturating_add(1);
            let here = at.child(kind);
            let name = reference.text("name");
            invalid(names::dns1123_subdomain(name), name, here.child("name"), errors);
            let key = reference.text("key");
            if key.is_empty() {
                errors.required(here.child("key"), "");
            } else {
                invalid(names::config_map_key(key), key, here.child("key"), errors);
            }
        }
    }
    if let Some(reference) = source.optional("fileKeyRef") {
        count = count.saturating_add(1);
        validate_file(reference, &at.child("fileKeyRef"), errors);
    }
    if count == 0 {
        let detail =
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(*at, "", detail);
    } else if !value.is_empty() {
        errors.invalid(*at, "", "may not be specified when `value` is not empty");
    } else if count > 1 {
        errors.invalid(*at, "", "may not have more than one field specified at a time");
    }
}

fn validate_file(reference: &Value, at: &Path<'_>, errors: &mut Errors) {
    let key = reference.text("key");
    if key.is_empty() {
        errors.required(at.child("key"), "");
    } else {
        invalid(names::relaxed_env_var_name(key), key, at.child("key"), errors);
    }
    let volume = reference.text("volumeName");
    if volume.is_empty() {
        errors.required(at.child("volumeName"), "");
    } else {
        invalid(names::dns1123_label(volume), volume, at.child("volumeName"), errors);
    }
    let path = reference.text("path");
    if path.is_empty() {
        errors.required(at.child("path"), "");
    } else {
        super::volumes::validate_no_backsteps(path, at.child("path"), errors);
    }
}

/// A field of the pod, perhaps one label or annotation.
pub(super) fn validate_field(reference: &Value, supported: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let (version, path) = (reference.text("apiVersion"), reference.text("fieldPath"));
    if version.is_empty() {
        errors.required(at.child("apiVersion"), "");
        return;
    }
    if path.is_empty() {
        errors.required(at.child("fieldPath"), "");
        return;
    }
    let subscript = split_subscript(path);
    let is_known = ENV_FIELDS.contains(&path)
        || VOLUME_FIELDS.contains(&path)
        || matches!(path, "spec.restartPolicy" | "spec.schedulerName" | "status.phase" | "spec.host");
    let complaint = match subscript {
        _ if version != "v1" => Some(format!("unsupported pod version: {version}")),
        Some(("metadata.annotations" | "metadata.labels", _)) => None,
        Some(_) => Some(format!("field label does not support subscript: {path}")),
        None => (!is_known).then(|| format!("field label not supported: {path}")),
    };
    if let Some(complaint) = complaint {
        errors.invalid(at.child("fieldPath"), path, format!("error converting fieldPath: {complaint}"));
        return;
    }
    match subscript {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            invalid(names::qualified_name(&key), &key, *at, errors);
        }
        Some((_, key)) => invalid(names::qualified_name(key), key, *at, errors),
        None => {
            // Old clients use `spec.host`.
            let path = if path == "spec.host" { "spec.nodeName" } else { path };
            if !supported.contains(&path) {
                errors.not_supported(at.child("fieldPath"), path, supported);
            }
        }
    }
}

fn split_subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['").filter(|(path, _)| !path.is_empty())
}

/// A resource of a container.
pub(super) fn validate_resource_field(reference: &Value, is_volume: bool, at: &Path<'_>, errors: &mut Errors) {
    let resource = reference.text("resource");
    let is_huge_page = resource.starts_with("requests.hugepages-") || resource.starts_with("limits.hugepages-");
    if is_volume && reference.text("containerName").is_empty() {
        errors.required(at.child("containerName"), "");
    } else if resource.is_empty() {
        errors.required(at.child("resource"), "");
    } else if !RESOURCE_FIELDS.contains(&resource) && !is_huge_page {
        errors.not_supported(at.child("resource"), resource, RESOURCE_FIELDS);
    }
    let Some(divisor) = reference.quantity("divisor").filter(|it| !it.is_zero()) else { return };
    validate_divisor(resource, is_huge_page, &divisor, at, errors);
}

fn validate_divisor(resource: &str, is_huge_page: bool, divisor: &Quantity, at: &Path<'_>, errors: &mut Errors) {
    const BYTES: &[&str] = &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let text = divisor.to_string();
    let what = match resource {
        "limits.cpu" | "requests.cpu" => {
            if !matches!(text.as_str(), "1" | "1m") {
                let detail = "only divisor's values 1m and 1 are supported with the cpu resource";
                errors.invalid(at.child("divisor"), resource, detail);
            }
            return;
        }
        "limits.memory" | "requests.memory" => "memory",
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => "local ephemeral storage",
        _ if is_huge_page => "hugepages",
        _ => return,
    };
    if !BYTES.contains(&text.as_str()) {
        let detail = format!("only divisor's values {} are supported with the {what} resource", BYTES.join(", "));
        errors.invalid(at.child("divisor"), resource, detail);
    }
}

/// Validates `envFrom`: variables from all keys of a ConfigMap or Secret.
pub(super) fn validate_from(sources: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (index, source) in sources.iter().enumerate() {
        let here = at.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            invalid(names::relaxed_env_var_name(prefix), prefix, here.child("prefix"), errors);
        }
        let mut count = 0_usize;
        for kind in ["configMapRef", "secretRef"] {
            if let Some(reference) = source.optional(kind) {
                count = count.saturating_add(1);
                let name = reference.text("name");
                let here = here.child(kind);
                if name.is_empty() {
                    errors.required(here.child("name"), "");
                } else {
                    for complaint in names::as_prefix(names::dns1123_subdomain, name) {
                        errors.invalid(here.child("name"), name, complaint);
                    }
                }
            }
        }
        if count == 0 {
            errors.invalid(*at, "", "must specify one of: `configMapRef` or `secretRef`");
        } else if count > 1 {
            errors.invalid(*at, "", "may not have more than one field specified at a time");
        }
    }
}
