//! Validation of metadata: names, namespaces, labels, annotations, owners, finalizers, and what an update may change.
//!
//! Follows `apimachinery/pkg/api/validation/objectmeta.go`, and `ValidateObjectMeta` of the core group, which
//! also checks finalizers one by one.

use api::field::{BadValue, Errors, Path};
use api::json::{Object, Value};
use api::names;

use crate::document::same;

/// Rule for names.
pub(crate) type NameRule = fn(&str) -> Vec<String>;

pub(crate) const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;
pub(crate) const IMMUTABLE: &str = "field is immutable";
pub(crate) const NEGATIVE: &str = "must be greater than or equal to 0";

/// Metadata of a new object, as most groups check it.
pub(crate) fn validate(object: &Value, is_namespaced: bool, rule: NameRule, errors: &mut Errors) {
    let at = Path::new("metadata");
    let metadata = object.field("metadata");
    validate_common(metadata, is_namespaced, rule, &at, errors);
    validate_finalizer_kinds(metadata, &at, errors);
}

/// Metadata of a new object, without a look at single finalizers.
pub(crate) fn validate_common(
    metadata: &Value,
    is_namespaced: bool,
    rule: NameRule,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    validate_by_rule(metadata, is_namespaced, &rule, at, errors);
}

/// As [`validate_common`], with a rule for names that depends on the object.
pub(crate) fn validate_by_rule(
    metadata: &Value,
    is_namespaced: bool,
    rule: &dyn Fn(&str) -> Vec<String>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let generate_name = metadata.text("generateName");
    if !generate_name.is_empty() {
        for complaint in names::as_prefix(rule, generate_name) {
            errors.invalid(at.child("generateName"), generate_name, complaint);
        }
    }
    let name = metadata.text("name");
    if name.is_empty() {
        errors.required(at.child("name"), "name or generateName is required");
    } else {
        invalid(rule(name), name, at.child("name"), errors);
    }
    let namespace = metadata.text("namespace");
    if is_namespaced {
        if namespace.is_empty() {
            errors.required(at.child("namespace"), "");
        } else {
            invalid(names::dns1123_label(namespace), namespace, at.child("namespace"), errors);
        }
    } else if !namespace.is_empty() {
        errors.forbidden(at.child("namespace"), "not allowed on this type");
    }
    non_negative(metadata.int("generation"), at.child("generation"), errors);
    validate_labels(metadata.map("labels"), &at.child("labels"), errors);
    validate_annotations(metadata.map("annotations"), &at.child("annotations"), errors);
    validate_owners(metadata.list("ownerReferences"), &at.child("ownerReferences"), errors);
    validate_finalizers(metadata, &at.child("finalizers"), errors);
    validate_managed_fields(metadata, &at.child("managedFields"), errors);
}

/// Metadata of a changed object, as most groups check it.
pub(crate) fn validate_update(object: &Value, old: &Value, errors: &mut Errors) {
    let at = Path::new("metadata");
    validate_update_common(object.field("metadata"), old.field("metadata"), &at, errors);
    validate_finalizer_kinds(object.field("metadata"), &at, errors);
}

/// Metadata of a changed object, without a look at single finalizers.
pub(crate) fn validate_update_common(metadata: &Value, old: &Value, at: &Path<'_>, errors: &mut Errors) {
    if old.has("deletionTimestamp") {
        let mut added: Vec<&str> =
            metadata.texts("finalizers").filter(|it| !old.texts("finalizers").any(|old| old == *it)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let quoted: Vec<_> = added.iter().map(|it| api::go_text::quote(it)).collect();
            errors.forbidden(
                at.child("finalizers"),
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    quoted.join(", ")
                ),
            );
        }
    }
    if metadata.text("resourceVersion").is_empty() {
        errors.invalid(at.child("resourceVersion"), "", "must be specified for an update");
    }
    let generation = metadata.int("generation");
    non_negative(generation, at.child("generation"), errors);
    if generation < old.int("generation") {
        errors.invalid(at.child("generation"), generation, "must not be decremented");
    }
    for name in ["name", "namespace", "uid"] {
        if metadata.text(name) != old.text(name) {
            errors.invalid(at.child(name), metadata.text(name), IMMUTABLE);
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        immutable(metadata.field(name), old.field(name), at.child(name), errors);
    }
    validate_labels(metadata.map("labels"), &at.child("labels"), errors);
    validate_annotations(metadata.map("annotations"), &at.child("annotations"), errors);
    validate_owners(metadata.list("ownerReferences"), &at.child("ownerReferences"), errors);
    validate_managed_fields(metadata, &at.child("managedFields"), errors);
}

/// Labels, or anything else that has their form.
pub(crate) fn validate_labels(labels: &Object, at: &Path<'_>, errors: &mut Errors) {
    for (key, value) in labels.iter() {
        invalid(names::qualified_name(key), key, *at, errors);
        let value = value.as_str().unwrap_or_default();
        invalid(names::label_value(value), value, *at, errors);
    }
}

/// The key of a label.
pub(crate) fn validate_label_name(name: &str, at: Path<'_>, errors: &mut Errors) {
    invalid(names::qualified_name(name), name, at, errors);
}

pub(crate) fn validate_annotations(annotations: &Object, at: &Path<'_>, errors: &mut Errors) {
    let mut size = 0_usize;
    for (key, value) in annotations.iter() {
        for complaint in names::qualified_name(&key.to_lowercase()) {
            errors.invalid(*at, key, complaint);
        }
        size = size.saturating_add(key.len()).saturating_add(value.as_str().unwrap_or_default().len());
    }
    if size > ANNOTATIONS_MAX_BYTES {
        errors.too_long(*at, ANNOTATIONS_MAX_BYTES);
    }
}

fn validate_owners(owners: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for (index, owner) in owners.iter().enumerate() {
        let here = at.index(index);
        let api_version = owner.text("apiVersion");
        let is_version = match api_version.matches('/').count() {
            0 => true,
            1 => !api_version.ends_with('/'),
            _ => false,
        };
        if api_version.is_empty() {
            errors.required(here.child("apiVersion"), "must not be empty");
        } else if !is_version {
            errors.invalid(here.child("apiVersion"), api_version, "must be <group>/<version> or <version>");
        }
        for name in ["kind", "name", "uid"] {
            if owner.text(name).is_empty() {
                errors.required(here.child(name), "must not be empty");
            }
        }
        if (api_version, owner.text("kind")) == ("v1", "Event") {
            errors.invalid(here, owner.clone(), "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.flag("controller") {
            let name = format!("{}/{}", owner.text("kind"), owner.text("name"));
            match &controller {
                // Each error has a copy of all owners.
                Some(_) if errors.is_full() => {}
                Some(first) => errors.invalid(
                    *at,
                    Value::from(owners.to_vec()),
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                    ),
                ),
                None => controller = Some(name),
            }
        }
    }
}

fn validate_finalizers(metadata: &Value, at: &Path<'_>, errors: &mut Errors) {
    for finalizer in metadata.texts("finalizers") {
        invalid(names::qualified_name(finalizer), finalizer, *at, errors);
    }
    let has = |name: &str| metadata.texts("finalizers").any(|it| it == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.invalid(
            *at,
            metadata.field("finalizers").clone(),
            "finalizer orphan and foregroundDeletion cannot be both set",
        );
    }
}

pub(crate) fn validate_finalizer_kinds(metadata: &Value, at: &Path<'_>, errors: &mut Errors) {
    let at = at.child("finalizers");
    for (index, finalizer) in metadata.texts("finalizers").enumerate() {
        validate_finalizer_kind(finalizer, at.index(index), errors);
    }
}

/// Finalizers without a domain must be built-in ones.
pub(crate) fn validate_finalizer_kind(finalizer: &str, at: Path<'_>, errors: &mut Errors) {
    if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
        errors.invalid(at, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn validate_managed_fields(metadata: &Value, at: &Path<'_>, errors: &mut Errors) {
    for (index, entry) in metadata.list("managedFields").iter().enumerate() {
        let here = at.index(index);
        match entry.text("operation") {
            "Apply" | "Update" => {}
            "" => errors.required(here.child("operation"), "must not be empty"),
            other => errors.not_supported(here.child("operation"), other, &["Apply", "Update"]),
        }
        if !matches!(entry.text("fieldsType"), "" | "FieldsV1") {
            errors.invalid(here.child("fieldsType"), entry.text("fieldsType"), "must be `FieldsV1`");
        }
        let manager = entry.text("manager");
        if manager.len() > 128 {
            errors.too_long(here.child("manager"), 128);
        }
        if let Some(position) = manager.chars().position(|it| !api::go_text::is_printable(it)) {
            errors.invalid(
                here.child("manager"),
                manager,
                format!("invalid character {} (at position {position})", api::go_text::quote(manager)),
            );
        }
        if entry.text("subresource").len() > 256 {
            errors.too_long(here.child("subresource"), 256);
        }
    }
}

/// Adds one error for each complaint about a text.
pub(crate) fn invalid(complaints: Vec<String>, value: &str, at: Path<'_>, errors: &mut Errors) {
    for complaint in complaints {
        errors.invalid(at, value, complaint);
    }
}

/// A path behind a domain and a slash.
pub(crate) fn validate_domain_prefixed_path(text: &str, at: Path<'_>, errors: &mut Errors) {
    if text.is_empty() {
        errors.required(at, "");
        return;
    }
    match text.split_once('/') {
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            invalid(names::dns1123_subdomain(domain), domain, at, errors);
            let is_path =
                path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte));
            if !is_path {
                let detail = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                errors.invalid(at, path, detail);
            }
        }
        _ => errors.invalid(at, text, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

/// A number that must not be negative.
pub(crate) fn non_negative(value: i64, at: Path<'_>, errors: &mut Errors) {
    if value < 0 {
        errors.invalid(at, value, NEGATIVE);
    }
}

/// A field that must not change; the value is shown as it is.
pub(crate) fn immutable(new: &Value, old: &Value, at: Path<'_>, errors: &mut Errors) {
    immutable_shown(new, old, at, || BadValue::Value(new.clone()), errors);
}

/// A field that must not change; `shown` renders the value.
pub(crate) fn immutable_shown(
    new: &Value,
    old: &Value,
    at: Path<'_>,
    shown: impl FnOnce() -> BadValue,
    errors: &mut Errors,
) {
    if !same(new, old) {
        errors.invalid(at, shown(), IMMUTABLE);
    }
}

/// A label selector, which may be missing.
pub(crate) fn validate_selector(selector: &Value, allow_bad_values: bool, at: &Path<'_>, errors: &mut Errors) {
    validate_labels(selector.map("matchLabels"), &at.child("matchLabels"), errors);
    let list = at.child("matchExpressions");
    for (index, requirement) in selector.list("matchExpressions").iter().enumerate() {
        let here = list.index(index);
        let values = requirement.list("values");
        match requirement.text("operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(here.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => errors
                .forbidden(here.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(here.child("operator"), other, "not a valid selector operator"),
        }
        validate_label_name(requirement.text("key"), here.child("key"), errors);
        if !allow_bad_values {
            let at = here.child("values");
            for (index, value) in requirement.texts("values").enumerate() {
                invalid(names::label_value(value), value, at.index(index), errors);
            }
        }
    }
}

/// Whether a selector has values that no label can have; objects that had them may keep them.
pub(crate) fn has_bad_values(selector: &Value) -> bool {
    let mut values = selector.list("matchExpressions").iter().flat_map(|it| it.texts("values"));
    values.any(|value| !names::label_value(value).is_empty())
}
