//! From a document to what is stored: decode, default, prepare, validate, warn.
//!
//! The order of the steps is in [`pipeline`](crate::pipeline). [`BuiltIn`] holds the rules of built-in kinds; tools and
//! tests call [`create`] and [`update`], which run all steps but those of the server.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::types::{self, EmptyPositions, Type, decode, normalize};

use crate::conversion;
use crate::defaults;
use crate::lost_expressions;
use crate::meta;
use crate::pipeline::{Identity, Pipeline, Rejection, Rules, Update, Write};
use crate::resources::Resource;
use crate::strategy::Context;

/// An object that was read, with defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The object in normal form.
    pub object: Value,
    /// Errors of strict field validation: `unknown field "spec.bogus"`.
    pub strict_errors: Vec<String>,
    /// Positions of empty lists and maps in the input, which the normal form omits and messages show.
    pub given_empty: EmptyPositions,
}

/// An object that is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedObject {
    /// As it is stored and returned.
    pub object: Value,
    /// `Warning` headers of the response.
    pub warnings: Vec<String>,
    /// Errors of strict field validation.
    pub strict_errors: Vec<String>,
}

/// A reason to reject an object.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The document is not an object of its type.
    #[error("{0}")]
    Decode(String),
    /// The request does not fit the object.
    #[error("{0}")]
    BadRequest(String),
    /// A requirement for handling the object is missing.
    #[error("{0}")]
    Internal(String),
    /// Fields are wrong.
    #[error("{message}")]
    Invalid {
        /// The message of the status.
        message: String,
        /// The errors in order.
        errors: Errors,
        /// Errors of strict field validation.
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

/// Decodes a document and brings it into the stored version.
fn decode_stored(resource: &Resource<'_>, document: &Value) -> Result<Document, AdmitError> {
    let Some(of) = type_of(resource, document) else {
        return Err(AdmitError::BadRequest(format!("no type for {}", resource.qualified_kind())));
    };
    let decoded = decode(of, document).map_err(AdmitError::Decode)?;
    let mut object = decoded.value;
    convert(resource, &mut object);
    if let Some(of) = type_of(resource, &object) {
        normalize(of, &mut object);
    }
    let strict_errors = decoded.unknown_fields.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    Ok(Document { object, strict_errors, given_empty: decoded.given_empty })
}

/// Reads a document, fills in defaults, and brings it into the stored version.
///
/// # Errors
/// The document does not fit the type.
pub fn read(resource: &Resource<'_>, document: &Value, now: &str) -> Result<Document, AdmitError> {
    let mut read = decode_stored(resource, document)?;
    if let Some(of) = type_of(resource, &read.object) {
        defaults::apply(of, &mut read.object, now);
        normalize(of, &mut read.object);
    }
    Ok(read)
}

/// Returns the type of an object in its declared version; in the stored version if it declares none.
fn type_of(resource: &Resource<'_>, object: &Value) -> Option<&'static Type> {
    let said = object.text("apiVersion");
    types::by_api_version(said, resource.kind).or_else(|| resource.object_type(resource.storage_version()))
}

/// The rules of a built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn<'a> {
    /// The row of the kind.
    pub resource: &'a Resource<'a>,
    /// Features, time and compilers: what validation uses besides the object.
    pub context: Context<'a>,
}

impl Rules for BuiltIn<'_> {
    fn fill_defaults(&self, object: &mut Value) {
        if let Some(of) = type_of(self.resource, object) {
            defaults::apply(of, object, self.context.now);
        }
    }

    fn prepare(&self, object: &mut Value, update: Option<Update<'_>>) {
        match update {
            Some(update) => prepare_update(self.resource, object, update, &self.context),
            None => prepare_create(self.resource, object, &self.context),
        }
    }

    fn validate(&self, object: &Value, update: Option<Update<'_>>) -> Errors {
        match update {
            Some(update) => validate_update(self.resource, object, update, &self.context),
            None => validate_create(self.resource, object, &self.context),
        }
    }

    fn canonicalize(&self, object: &mut Value) {
        (self.resource.strategy.canonicalize)(object);
    }

    fn normalize(&self, object: &mut Value) {
        if let Some(of) = type_of(self.resource, object) {
            normalize(of, object);
        }
    }

    fn warnings(&self, object: &Value, update: Option<Update<'_>>) -> Vec<String> {
        if update.is_some_and(|update| update.subresource.is_some()) {
            return Vec::new();
        }
        warnings(self.resource, object, update.map(|update| update.old), &self.context)
    }
}

/// Admits a new object.
///
/// # Errors
/// Why it is refused.
pub fn create(resource: &Resource<'_>, document: &Value, context: &Context<'_>) -> Result<AcceptedObject, AdmitError> {
    let document = decode_stored(resource, document)?;
    let suffix = if resource.keeps_name_prefix() { "" } else { context.name_suffix };
    let context = &Context { name_suffix: suffix, ..*context };
    let kind = shown_kind(resource);
    let rules = BuiltIn { resource, context: *context };
    run_offline(
        Pipeline::create(),
        document,
        &Kind { rules: &rules, kind, namespaced: resource.namespaced },
        None,
        context,
    )
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
) -> Result<AcceptedObject, AdmitError> {
    let document = decode_stored(resource, document)?;
    let (kind, rules) = (shown_kind(resource), BuiltIn { resource, context: *context });
    let kind = Kind { rules: &rules, kind, namespaced: resource.namespaced };
    run_offline(Pipeline::update(), document, &kind, Some(Update { old, subresource }), context)
}

/// The kind in messages.
fn shown_kind(resource: &Resource<'_>) -> String {
    // Events of both groups are one kind inside.
    if resource.group == "events.k8s.io" { resource.kind.to_owned() } else { resource.qualified_kind() }
}

/// A kind as [`run_offline`] needs it.
pub(crate) struct Kind<'a> {
    pub(crate) rules: &'a dyn Rules,
    /// The kind in messages.
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
}

/// Runs all steps but those of the server.
pub(crate) fn run_offline(
    steps: Pipeline,
    document: Document,
    kind: &Kind<'_>,
    update: Option<Update<'_>>,
    context: &Context<'_>,
) -> Result<AcceptedObject, AdmitError> {
    let Document { object, strict_errors, given_empty } = document;
    let mut write = Write {
        object,
        given_empty: &given_empty,
        update,
        namespace: if kind.namespaced { context.namespace } else { "" },
        identity: Identity { uid: context.uid, now: context.now, name_suffix: context.name_suffix },
        warnings: Vec::new(),
    };
    match steps.run_offline(&mut write, kind.rules) {
        Ok(()) => Ok(AcceptedObject { object: write.object, warnings: write.warnings, strict_errors }),
        Err(Rejection::Invalid(errors)) => {
            let message = errors.invalid_message(&kind.kind, write.object.field("metadata").text("name"));
            Err(AdmitError::Invalid { message, errors, strict_errors })
        }
        Err(rejection) => Err(AdmitError::BadRequest(rejection.to_string())),
    }
}

/// Resets fields that users may not set in a new object, and drops gated ones.
pub fn prepare_create(resource: &Resource<'_>, object: &mut Value, context: &Context<'_>) {
    (resource.strategy.prepare_create)(object, context);
    if let Some(of) = type_of(resource, object) {
        normalize(of, object);
    }
}

/// Validates a new object.
fn validate_create(resource: &Resource<'_>, object: &Value, context: &Context<'_>) -> Errors {
    let mut errors = Errors::new();
    (resource.strategy.validate_create)(object, context, &mut errors);
    if errors.is_empty() {
        let metadata = object.field("metadata");
        let at = Path::new("metadata");
        meta::validate_common(metadata, resource.namespaced, names::path_segment, &at, &mut errors);
    }
    distinct(resource, errors)
}

/// Several rules may report the same error; duplicates are removed, except where Kubernetes has no declarative
/// rules.
fn distinct(resource: &Resource<'_>, errors: Errors) -> Errors {
    if errors.len() < 2 || matches!(resource.group, "apiextensions.k8s.io" | "apiregistration.k8s.io") {
        return errors;
    }
    let mut seen = std::collections::HashSet::new();
    errors.into_iter().filter(|error| seen.insert(error.to_string())).collect()
}

/// Resets what users may not change, and drops what is gated.
fn prepare_update(resource: &Resource<'_>, object: &mut Value, update: Update<'_>, context: &Context<'_>) {
    let Update { old, subresource } = update;
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

/// Validates a change.
fn validate_update(resource: &Resource<'_>, object: &Value, update: Update<'_>, context: &Context<'_>) -> Errors {
    let Update { old, subresource } = update;
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

/// Returns the warnings for an accepted object.
fn warnings(resource: &Resource<'_>, object: &Value, old: Option<&Value>, context: &Context<'_>) -> Vec<String> {
    let mut warnings = (resource.strategy.warn)(object, old, context);
    if let Some(old) = old.filter(|_| matches!(resource.group, "" | "apps" | "batch")) {
        warnings.extend(lost_expressions::warnings(old, object));
    }
    warnings
}

fn part(resource: &Resource<'_>, subresource: Option<&str>) -> Option<crate::strategy::Part> {
    let name = subresource?;
    resource.strategy.subresources.iter().find(|(it, _)| *it == name).map(|(_, part)| *part)
}
