//! From a document to what is stored: decode, default, prepare, validate, warn.
//!
//! Follows `BeforeCreate` and `BeforeUpdate` of Kubernetes' `registry/rest`. Admission plugins stand between defaults
//! and preparation in a server, which therefore calls the steps; tools and tests call [`create`] and [`update`].

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::types::{self, GivenEmpty, Kind, Type, decode, normalize};

use crate::conversion;
use crate::defaults;
use crate::document::{Edit, Read};
use crate::meta;
use crate::resources::Resource;
use crate::strategy::Context;

/// An object that was read, with defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The object in normal form.
    pub object: Value,
    /// What strict field validation complains about: `unknown field "spec.bogus"`.
    pub strict_errors: Vec<String>,
    /// Where empty lists and maps were given, which the normal form leaves out and messages show.
    pub given_empty: GivenEmpty,
}

/// An object that is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// As it is stored and returned.
    pub object: Value,
    /// What users are told in `Warning` headers.
    pub warnings: Vec<String>,
    /// What strict field validation complains about.
    pub strict_errors: Vec<String>,
}

/// Why an object is not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The document is not an object of its type.
    #[error("{0}")]
    Decode(String),
    /// The request does not fit the object.
    #[error("{0}")]
    BadRequest(String),
    /// What is needed to handle the object is missing.
    #[error("{0}")]
    Internal(String),
    /// Fields are wrong.
    #[error("{message}")]
    Invalid {
        /// The message of the status.
        message: String,
        /// The errors in order.
        errors: Errors,
        /// What strict field validation complains about.
        strict_errors: Vec<String>,
    },
}

/// Brings an object into the version that it would be stored in; events stay as they are.
fn convert(resource: &Resource<'_>, object: &mut Value) {
    let version = object.text("apiVersion").rsplit('/').next().unwrap_or_default().to_owned();
    if resource.versions.contains(&version.as_str()) && resource.group != "events.k8s.io" {
        conversion::to_stored(resource, &version, object);
    }
}

/// Reads a document, fills in defaults, and brings it into the stored version.
///
/// # Errors
/// The document does not fit the type.
pub fn read(resource: &Resource<'_>, document: &Value, now: &str) -> Result<Document, Refused> {
    let Some(of) = type_of(resource, document) else {
        return Err(Refused::BadRequest(format!("no type for {}", resource.qualified_kind())));
    };
    let decoded = decode(of, document).map_err(Refused::Decode)?;
    let mut object = decoded.value;
    defaults::apply(of, &mut object, now);
    convert(resource, &mut object);
    let strict_errors = decoded.unknown_fields.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    if let Some(of) = type_of(resource, &object) {
        normalize(of, &mut object);
    }
    Ok(Document { object, strict_errors, given_empty: decoded.given_empty })
}

/// The type of an object in the version that it says it has; in the stored version if it says nothing.
fn type_of(resource: &Resource<'_>, object: &Value) -> Option<&'static Type> {
    let said = object.text("apiVersion");
    types::by_api_version(said, resource.kind).or_else(|| resource.object_type(resource.storage_version()))
}

/// Admits a new object.
///
/// # Errors
/// Why it is refused.
pub fn create(resource: &Resource<'_>, document: &Value, context: &Context<'_>) -> Result<Accepted, Refused> {
    let Document { mut object, strict_errors, given_empty } = read(resource, document, context.now)?;
    let mut warnings = fill_metadata(&mut object, context);
    check_namespace(resource.namespaced, &mut object, context)?;
    prepare_create(resource, &mut object, context);
    let errors = validate_create(resource, &given_empty.in_place(&object), context);
    refuse(resource, &object, errors, &strict_errors)?;
    warnings.extend((resource.strategy.warn)(&object, None, context));
    (resource.strategy.canonicalize)(&mut object);
    Ok(Accepted { object: stored(resource, object, context.now), warnings, strict_errors })
}

/// Admits a change of an object, or of the part of it that a subresource names. `old` is as stored.
///
/// # Errors
/// Why it is refused.
pub fn update(
    resource: &Resource<'_>,
    document: &Value,
    old: &Value,
    subresource: Option<&str>,
    context: &Context<'_>,
) -> Result<Accepted, Refused> {
    let Document { mut object, strict_errors, given_empty } = read(resource, document, context.now)?;
    let mut warnings = merge_owners(object.make("metadata"), "");
    check_namespace(resource.namespaced, &mut object, context)?;
    prepare_update(resource, &mut object, old, subresource, context);
    let errors = validate_update(resource, &given_empty.in_place(&object), old, subresource, context);
    refuse(resource, &object, errors, &strict_errors)?;
    if subresource.is_none() {
        warnings.extend((resource.strategy.warn)(&object, Some(old), context));
    }
    (resource.strategy.canonicalize)(&mut object);
    Ok(Accepted { object: stored(resource, object, context.now), warnings, strict_errors })
}

/// Gives a new object its identity; gives back what users are told about its owners.
pub(crate) fn fill_metadata(object: &mut Value, context: &Context<'_>) -> Vec<String> {
    let metadata = object.make("metadata");
    for name in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.unset(name);
    }
    metadata.set("creationTimestamp", context.now);
    metadata.set("uid", context.uid);
    if metadata.text("name").is_empty() && !metadata.text("generateName").is_empty() {
        let name = generate_name(metadata.text("generateName"), context.name_suffix);
        metadata.set("name", name);
    }
    merge_owners(metadata, "")
}

/// Resets what users may not set in a new object, and drops what is gated.
pub fn prepare_create(resource: &Resource<'_>, object: &mut Value, context: &Context<'_>) {
    (resource.strategy.prepare_create)(object, context);
    if let Some(of) = type_of(resource, object) {
        normalize(of, object);
    }
}

/// What is wrong with a new object.
#[must_use]
pub fn validate_create(resource: &Resource<'_>, object: &Value, context: &Context<'_>) -> Errors {
    let mut errors = Errors::new();
    (resource.strategy.validate_create)(object, context, &mut errors);
    if errors.is_empty() {
        let metadata = object.field("metadata");
        let at = Path::new("metadata");
        meta::validate_common(metadata, resource.namespaced, names::path_segment, &at, &mut errors);
    }
    distinct(resource, errors)
}

/// Several rules may say the same; users hear it once, except where Kubernetes has no declared rules.
fn distinct(resource: &Resource<'_>, errors: Errors) -> Errors {
    if errors.len() < 2 || resource.group == "apiextensions.k8s.io" {
        return errors;
    }
    let mut seen = std::collections::HashSet::new();
    errors.into_iter().filter(|error| seen.insert(error.to_string())).collect()
}

/// Resets what users may not change, and drops what is gated.
pub fn prepare_update(
    resource: &Resource<'_>,
    object: &mut Value,
    old: &Value,
    subresource: Option<&str>,
    context: &Context<'_>,
) {
    let old_metadata = old.field("metadata");
    let generation = old_metadata.field("generation").clone();
    object.make("metadata").set("generation", generation);
    match part(resource, subresource) {
        Some(part) => (part.prepare)(object, old, context),
        None => (resource.strategy.prepare_update)(object, old, context),
    }
    keep_metadata(object, old);
    if let Some(of) = type_of(resource, object) {
        normalize(of, object);
    }
}

/// Keeps what no update may change.
pub(crate) fn keep_metadata(object: &mut Value, old: &Value) {
    let old_metadata = old.field("metadata");
    let metadata = object.make("metadata");
    metadata.set_default("uid", old_metadata.field("uid").clone());
    for name in ["creationTimestamp", "deletionTimestamp"] {
        if old_metadata.has(name) {
            metadata.set(name, old_metadata.field(name).clone());
        }
    }
    if old_metadata.has("deletionGracePeriodSeconds") {
        metadata.set_missing("deletionGracePeriodSeconds", old_metadata.field("deletionGracePeriodSeconds").clone());
    }
}

/// What is wrong with a change.
#[must_use]
pub fn validate_update(
    resource: &Resource<'_>,
    object: &Value,
    old: &Value,
    subresource: Option<&str>,
    context: &Context<'_>,
) -> Errors {
    let mut errors = Errors::new();
    let (metadata, at) = (object.field("metadata"), Path::new("metadata"));
    meta::validate_common(metadata, resource.namespaced, names::path_segment, &at, &mut errors);
    meta::validate_update_common(metadata, old.field("metadata"), &at, &mut errors);
    match part(resource, subresource) {
        Some(part) => (part.validate)(object, old, context, &mut errors),
        None => (resource.strategy.validate_update)(object, old, context, &mut errors),
    }
    distinct(resource, errors)
}

/// The last touch to an object that is accepted.
pub fn canonicalize(resource: &Resource<'_>, object: &mut Value) {
    (resource.strategy.canonicalize)(object);
}

/// What users should know about an object that is accepted.
#[must_use]
pub fn warnings(resource: &Resource<'_>, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
    (resource.strategy.warn)(object, old, context)
}

fn part(resource: &Resource<'_>, subresource: Option<&str>) -> Option<crate::strategy::Part> {
    let name = subresource?;
    resource.strategy.subresources.iter().find(|(it, _)| *it == name).map(|(_, part)| *part)
}

/// What comes back from storage: defaults have been applied once more.
fn stored(resource: &Resource<'_>, object: Value, now: &str) -> Value {
    let Some(of) = type_of(resource, &object) else { return object };
    let mut object = object;
    normalize(of, &mut object);
    drop_empty_lists(of, &mut object);
    defaults::apply(of, &mut object, now);
    normalize(of, &mut object);
    object
}

/// Required lists that are empty come back as null.
fn drop_empty_lists(of: &'static Type, object: &mut Value) {
    for field in of.fields {
        let Some(value) = object.get_mut(field.name) else { continue };
        match (&field.kind, &mut *value) {
            (Kind::List(_), Value::Array(items)) if items.is_empty() => *value = Value::Null,
            (Kind::Struct(of), _) => drop_empty_lists(of, value),
            (Kind::List(inner), Value::Array(items)) => {
                if let Some(of) = inner.struct_type() {
                    items.iter_mut().for_each(|item| drop_empty_lists(of, item));
                }
            }
            (Kind::Map(inner), Value::Object(fields)) => {
                if let Some(of) = inner.struct_type() {
                    fields.values_mut().for_each(|item| drop_empty_lists(of, item));
                }
            }
            _ => {}
        }
    }
}

fn refuse(resource: &Resource<'_>, object: &Value, errors: Errors, strict_errors: &[String]) -> Result<(), Refused> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = object.field("metadata").text("name");
    // Events of both groups are one kind inside.
    let kind = if resource.group == "events.k8s.io" { resource.kind.to_owned() } else { resource.qualified_kind() };
    let message = errors.invalid_message(&kind, name);
    Err(Refused::Invalid { message, errors, strict_errors: strict_errors.to_vec() })
}

/// The name that is generated from a prefix, which is cut so that the whole has at most 63 characters.
fn generate_name(prefix: &str, suffix: &str) -> String {
    let max = 63_usize.saturating_sub(suffix.len());
    let prefix = prefix.get(..max.min(prefix.len())).unwrap_or(prefix);
    format!("{prefix}{suffix}")
}

/// Takes the namespace from the request where the object has none.
pub(crate) fn check_namespace(is_namespaced: bool, object: &mut Value, context: &Context<'_>) -> Result<(), Refused> {
    let expected = if is_namespaced { context.namespace } else { "" };
    let metadata = object.make("metadata");
    let found = metadata.text("namespace");
    if found == expected {
        return Ok(());
    }
    if expected.is_empty() {
        metadata.unset("namespace");
        return Ok(());
    }
    if found.is_empty() {
        metadata.set("namespace", expected);
        return Ok(());
    }
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Refused::BadRequest(message.to_owned()))
}

/// Equal owner references become one, and the user is told; `when` they were seen stands in the text, if it is known.
#[must_use]
pub fn merge_owners(metadata: &mut Value, when: &str) -> Vec<String> {
    let owners = metadata.list("ownerReferences");
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut duplicates: Vec<&str> = Vec::new();
    for owner in owners {
        if kept.contains(owner) {
            duplicates.push(owner.text("uid"));
        } else {
            kept.push(owner.clone());
        }
    }
    if duplicates.is_empty() {
        return Vec::new();
    }
    let duplicates = duplicates.join(", ");
    metadata.set("ownerReferences", kept);
    vec![format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {duplicates}"
    )]
}
