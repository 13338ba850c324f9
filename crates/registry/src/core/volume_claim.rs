//! The spec of a claim for a volume: in PersistentVolumeClaims, StatefulSets and ephemeral volumes.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;

use super::resource_names;
use crate::document::same;
use crate::meta::{self, invalid};

pub(crate) const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(crate) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

/// Exceptions that an old claim permits.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Lenience {
    /// The old selector had values that no label can have.
    pub(crate) bad_selector: bool,
    /// The old claim had a data source, whose group was not checked once.
    pub(crate) bad_source_group: bool,
}

/// The spec of a claim.
pub(crate) fn validate_spec(spec: &Value, lenience: Lenience, at: &Path<'_>, errors: &mut Errors) {
    if spec.list("accessModes").is_empty() {
        errors.required(at.child("accessModes"), "at least 1 access mode is required");
    }
    meta::validate_selector(spec.field("selector"), lenience.bad_selector, &at.child("selector"), errors);
    validate_access_modes(spec, &at.child("accessModes"), errors);
    let resources = at.child("resources");
    let here = resources.key("storage");
    match spec.field("resources").field("requests").quantity("storage") {
        None => errors.required(here, ""),
        Some(amount) if amount.sign() <= 0 => errors.invalid(here, amount.to_string(), "must be greater than zero"),
        Some(amount) => resource_names::validate_amount("storage", &amount, here, errors),
    }
    if let Some(name) = spec.optional_text("storageClassName").filter(|it| !it.is_empty()) {
        invalid(names::dns1123_subdomain(name), name, at.child("storageClassName"), errors);
    }
    if let Some(mode) = spec.optional_text("volumeMode")
        && !VOLUME_MODES.contains(&mode)
    {
        errors.not_supported(at.child("volumeMode"), mode, VOLUME_MODES);
    }
    for kind in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.optional(kind) {
            validate_source(source, lenience.bad_source_group, &at.child(kind), errors);
        }
    }
    if let (Some(source), Some(reference)) = (spec.optional("dataSource"), spec.optional("dataSourceRef")) {
        let is_same = ["kind", "name"].iter().all(|name| source.text(name) == reference.text(name))
            && same(source.field("apiGroup"), reference.field("apiGroup"));
        // Kubernetes shows the path, which has no exported fields, as value.
        if !reference.text("namespace").is_empty() {
            let detail = "may not be specified when dataSourceRef.namespace is specified";
            errors.invalid(*at, Value::object(), detail);
        } else if !is_same {
            errors.invalid(*at, Value::object(), "must match dataSourceRef");
        }
    }
    if let Some(name) = spec.optional_text("volumeAttributesClassName").filter(|it| !it.is_empty()) {
        invalid(names::dns1123_subdomain(name), name, at.child("volumeAttributesClassName"), errors);
    }
}

pub(crate) fn validate_access_modes(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (mut once, mut others) = (false, false);
    for mode in spec.texts("accessModes") {
        if !ACCESS_MODES.contains(&mode) {
            errors.not_supported(*at, mode, ACCESS_MODES);
        } else if mode == "ReadWriteOncePod" {
            once = true;
        } else {
            others = true;
        }
    }
    if once && others {
        errors.forbidden(*at, "may not use ReadWriteOncePod with other access modes");
    }
}

fn validate_source(source: &Value, allow_bad_group: bool, at: &Path<'_>, errors: &mut Errors) {
    for name in ["name", "kind"] {
        if source.text(name).is_empty() {
            errors.required(at.child(name), "");
        }
    }
    let (group, kind) = (source.text("apiGroup"), source.text("kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(*at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
    }
    if !group.is_empty() && !allow_bad_group {
        invalid(names::dns1123_subdomain(group), group, at.child("apiGroup"), errors);
    }
    let namespace = source.text("namespace");
    if !namespace.is_empty() {
        invalid(names::dns1123_label(namespace), namespace, at.child("namespace"), errors);
    }
}

/// Validates the template of a claim; its metadata may have only labels and annotations.
pub(crate) fn validate_template(template: &Value, at: &Path<'_>, errors: &mut Errors) {
    validate_template_metadata(template.field("metadata"), &at.child("metadata"), errors);
    validate_spec(template.field("spec"), Lenience::default(), &at.child("spec"), errors);
}

/// Metadata in which only labels and annotations may be set.
pub(crate) fn validate_template_metadata(metadata: &Value, at: &Path<'_>, errors: &mut Errors) {
    const FORBIDDEN: &[&str] = &[
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    meta::validate_annotations(metadata.map("annotations"), &at.child("annotations"), errors);
    meta::validate_labels(metadata.map("labels"), &at.child("labels"), errors);
    for name in FORBIDDEN.iter().filter(|name| metadata.has(name)) {
        // Kubernetes lowers the first letter of Go's field name.
        let name = if *name == "uid" { "uID" } else { name };
        errors.forbidden(at.child(name), "cannot be set");
    }
}
