//! Objects of a custom resource, as one version of its definition describes them.
//!
//! [`CustomResource`] is a compiled version of a definition: it reads documents (pruned, defaulted), prepares
//! and validates them, and returns warnings; schema, patterns and rules are compiled once. Follows
//! `apiextensions-apiserver/pkg/registry/customresource` and the coercion around its decoder. Table cells are
//! in [`printer_columns`]; storage, names and discovery are implemented in the server.

mod checker;
mod correlation;
mod defaults;
mod email;
mod embedded;
mod formats;
mod lists;
mod numbers;
pub mod printer_columns;
mod prune;
mod rules;
mod scale;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use api::field::{ErrorType, Errors, Path};
use api::json::Value;
use api::json_path::JsonPath;
use api::names;
use api::structural_schema::Schema;
use api::types::EmptyPositions;
use cel_kubernetes::environments::Languages;

use self::correlation::CorrelatedValue;
use self::rules::Rules;
pub use self::scale::Scale;
use crate::admit::{self, AcceptedObject, AdmitError, Document};
use crate::meta;
use crate::pipeline::{self, Pipeline, Update};
use crate::strategy::Context;

/// A version of a definition, ready to use.
pub struct CustomResource {
    group: String,
    version: String,
    kind: String,
    is_namespaced: bool,
    has_status: bool,
    scale: Option<Scale>,
    selectable_fields: Vec<SelectableField>,
    compiled: OnceLock<CompiledSchema>,
    /// Compiles the schema when it is needed first.
    compile: Option<CompileFn>,
    is_used: AtomicBool,
}

/// The schema of a version with everything that is made of it: by far the largest part.
#[derive(Debug)]
struct CompiledSchema {
    schema: Schema,
    patterns: checker::Patterns,
    rules: Option<Rules>,
}

type CompileFn = Box<dyn Fn() -> Option<CompiledSchema> + Send + Sync>;

impl CompiledSchema {
    fn new(schema: Schema, languages: &Languages) -> Self {
        let (patterns, rules) = (checker::patterns_of(&schema), rules::compile(&schema, languages));
        Self { schema, patterns, rules }
    }

    /// A schema without types that preserves every field.
    fn anything() -> Schema {
        Schema { x_preserve_unknown_fields: Some(true), ..Schema::default() }
    }
}

impl fmt::Debug for CustomResource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CustomResource({}/{} {})", self.group, self.version, self.kind)
    }
}

/// A field that objects can be selected by.
#[derive(Debug)]
pub struct SelectableField {
    /// Name in field selectors: the path without its first dot.
    pub name: String,
    path: Option<JsonPath>,
}

impl SelectableField {
    /// The text of the field in an object; empty where it is missing.
    #[must_use]
    pub fn value(&self, object: &Value) -> String {
        let mut text = String::new();
        let found = self.path.as_ref().and_then(|path| path.find_first(object));
        if let Some(found) = found.filter(|it| !matches!(it, api::json_path::Item::Value(Value::Null))) {
            found.print(&mut text);
        }
        text
    }
}

/// Result of validation.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Errors of the object.
    pub errors: Errors,
    /// Errors in unchanged parts, as warnings.
    pub warnings: Vec<String>,
}

fn version_of<'v>(definition: &'v Value, version: &str) -> Result<&'v Value, String> {
    let found = definition.field("spec").list("versions").iter().find(|it| it.text("name") == version);
    found.ok_or_else(|| format!("the definition has no version {version}"))
}

fn read_schema(version: &Value) -> Result<Schema, String> {
    match version.field("schema").optional("openAPIV3Schema") {
        Some(schema) => Schema::from_value(schema).map_err(|error| error.to_string()),
        None => Ok(CompiledSchema::anything()),
    }
}

impl CustomResource {
    /// Reads a version of a definition.
    ///
    /// # Errors
    /// The definition has no such version, or its schema cannot be read.
    pub fn new(definition: &Value, version: &str, languages: &Languages) -> Result<Self, String> {
        let found = version_of(definition, version)?;
        let compiled = CompiledSchema::new(read_schema(found)?, languages);
        Ok(Self { compiled: compiled.into(), ..Self::of(definition, found) })
    }

    /// As [`new`](Self::new), for a server with many definitions: the schema is compiled when an object needs it first.
    /// `source` reads the version of the definition again.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn deferred(
        definition: &Value,
        version: &str,
        languages: Arc<Languages>,
        source: impl Fn() -> Option<Value> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let found = version_of(definition, version)?;
        read_schema(found)?;
        let compile = move || Some(CompiledSchema::new(read_schema(&source()?).ok()?, &languages));
        Ok(Self { compile: Some(Box::new(compile)), ..Self::of(definition, found) })
    }

    /// Everything but the schema.
    fn of(definition: &Value, version: &Value) -> Self {
        let (spec, subresources) = (definition.field("spec"), version.field("subresources"));
        let selectable = version.list("selectableFields").iter().map(|field| {
            let path = field.text("jsonPath");
            let name = path.strip_prefix('.').unwrap_or(path).to_owned();
            SelectableField { name, path: JsonPath::parse_column(path).ok() }
        });
        Self {
            group: spec.text("group").to_owned(),
            version: version.text("name").to_owned(),
            kind: spec.field("names").text("kind").to_owned(),
            is_namespaced: spec.text("scope") == "Namespaced",
            has_status: subresources.has("status"),
            scale: subresources.optional("scale").map(Scale::read),
            selectable_fields: selectable.collect(),
            compiled: OnceLock::new(),
            compile: None,
            is_used: AtomicBool::new(false),
        }
    }

    fn compiled(&self) -> &CompiledSchema {
        self.is_used.store(true, Ordering::Relaxed);
        self.compiled.get_or_init(|| {
            let compiled = self.compile.as_ref().and_then(|compile| compile());
            // The schema could be read before. If it cannot now, nothing of stored objects may be lost.
            compiled.unwrap_or_else(|| CompiledSchema::new(CompiledSchema::anything(), &Languages::default()))
        })
    }

    /// Whether the schema is compiled.
    #[must_use]
    pub fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// Whether the schema was used since this was last asked.
    pub fn take_use(&self) -> bool {
        self.is_used.swap(false, Ordering::Relaxed)
    }

    /// The schema of the objects.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        &self.compiled().schema
    }

    /// The scale subresource, if there is one.
    #[must_use]
    pub fn scale(&self) -> Option<&Scale> {
        self.scale.as_ref()
    }

    /// Whether the status is a subresource.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.has_status
    }

    /// The fields that objects can be selected by, besides name and namespace.
    #[must_use]
    pub fn selectable_fields(&self) -> &[SelectableField] {
        &self.selectable_fields
    }

    fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }

    /// Reads a document: drops what the schema does not know, and fills in defaults.
    ///
    /// # Errors
    /// Type or metadata do not fit.
    pub fn read(&self, document: &Value) -> Result<Document, AdmitError> {
        let mut object = document.clone();
        for name in ["kind", "apiVersion"] {
            if let Some(found) = object.get(name)
                && found.as_str().is_none()
            {
                let found = found.kind();
                let message = format!(".{name} accessor error: is of the type {found}, expected string");
                return Err(AdmitError::Decode(message));
            }
        }
        let mut strict_errors = Vec::new();
        let metadata = match object.get("metadata") {
            Some(metadata) => {
                let (normal, unknown) = embedded::decode_metadata(metadata).map_err(AdmitError::Decode)?;
                strict_errors.extend(unknown.into_iter().map(|path| format!("metadata.{path}")));
                Some(normal)
            }
            None => None,
        };
        let pruned = prune::prune_reporting(&mut object, self.schema());
        defaults::drop_nulls(&mut object, Some(self.schema()));
        let mut dropped = Vec::new();
        embedded::coerce(&mut object, self.schema(), &Path::ROOT, &mut dropped)
            .map_err(|error| AdmitError::Decode(error.to_string()))?;
        dropped.sort();
        strict_errors.extend(pruned);
        strict_errors.extend(dropped);
        if let Some(metadata) = metadata {
            object.set("metadata", metadata);
        }
        defaults::apply(&mut object, self.schema());
        let strict_errors = strict_errors.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        Ok(Document { object, strict_errors, given_empty: EmptyPositions::default() })
    }

    /// Updates a stored object to the present schema, which may have changed since it was written.
    pub fn refresh(&self, object: &mut Value) {
        prune::prune(object, self.schema());
        defaults::drop_nulls(object, Some(self.schema()));
        defaults::apply(object, self.schema());
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        defaults::apply(object, self.schema());
    }

    /// Whether there are rules.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.compiled().rules.is_some()
    }

    /// Drops what the schema does not know: what is left of an object of another version.
    pub fn prune(&self, object: &mut Value) {
        prune::prune(object, self.schema());
    }

    /// Resets what users may not set in a new object.
    pub fn prepare_create(&self, object: &mut Value) {
        if self.has_status {
            object.unset("status");
        }
        object.make("metadata").set("generation", 1_i64);
    }

    /// Keeps what an update of the whole object, or of its status, may not change.
    pub fn prepare_update(&self, object: &mut Value, old: &Value, subresource: Option<&str>) {
        if subresource == Some("status") {
            let status = object.get("status").cloned();
            let managed_fields = object.field("metadata").get("managedFields").cloned();
            *object = old.clone();
            match status {
                Some(status) => object.set("status", status),
                None => object.unset("status"),
            }
            match managed_fields {
                Some(managed_fields) => object.make("metadata").set("managedFields", managed_fields),
                None => object.make("metadata").unset("managedFields"),
            }
            return;
        }
        if self.has_status {
            match old.get("status") {
                Some(status) => object.set("status", status.clone()),
                None => object.unset("status"),
            }
        }
        let generation = old.field("metadata").int("generation");
        let generation = if has_changed(object, old) { generation.saturating_add(1) } else { generation };
        if generation > 0 {
            object.make("metadata").set("generation", generation);
        }
    }

    /// Validates a new object.
    #[must_use]
    pub fn validate_create(&self, object: &Value) -> Verdict {
        let mut errors = self.validate_type(object);
        if !errors.is_empty() {
            return Verdict { errors, warnings: Vec::new() };
        }
        let metadata = object.field("metadata");
        let at = Path::new("metadata");
        meta::validate_common(metadata, self.is_namespaced, names::dns1123_subdomain, &at, &mut errors);
        checker::check(object, self.schema(), None, &self.compiled().patterns, &Path::NIL, &mut errors);
        if let Some(scale) = &self.scale {
            scale.validate_spec(object, &mut errors);
            scale.validate_status(object, &mut errors);
        }
        embedded::validate(object, self.schema(), &Path::ROOT, &mut errors);
        lists::validate(object, self.schema(), &Path::ROOT, &mut errors);
        self.run_rules(object, None, errors)
    }

    /// Validates a change of the whole object, or of its status.
    #[must_use]
    pub fn validate_update(&self, object: &Value, old: &Value, subresource: Option<&str>) -> Verdict {
        let (metadata, old_metadata, at) = (object.field("metadata"), old.field("metadata"), Path::new("metadata"));
        let mut errors = Errors::new();
        meta::validate_common(metadata, self.is_namespaced, names::path_segment, &at, &mut errors);
        meta::validate_update_common(metadata, old_metadata, &at, &mut errors);
        let wrong_type = self.validate_type(object);
        if !wrong_type.is_empty() {
            errors.append(wrong_type);
            return Verdict { errors, warnings: Vec::new() };
        }
        // Kubernetes: the strategy of custom resources validates the metadata once more.
        meta::validate_update_common(metadata, old_metadata, &at, &mut errors);
        let correlated = CorrelatedValue { new: object, old, schema: self.schema() };
        if subresource == Some("status") {
            self.validate_status(object, correlated, &mut errors);
        } else {
            checker::check(object, self.schema(), Some(correlated), &self.compiled().patterns, &Path::NIL, &mut errors);
            if let Some(scale) = &self.scale {
                scale.validate_spec(object, &mut errors);
                scale.validate_status(object, &mut errors);
            }
            embedded::validate(object, self.schema(), &Path::ROOT, &mut errors);
        }
        let mut repeated = Errors::new();
        lists::validate(old, self.schema(), &Path::ROOT, &mut repeated);
        if repeated.is_empty() {
            lists::validate(object, self.schema(), &Path::ROOT, &mut errors);
        }
        self.run_rules(object, Some(correlated), errors)
    }

    fn validate_status(&self, object: &Value, correlated: CorrelatedValue<'_>, errors: &mut Errors) {
        if let (Some(status), Some(schema)) = (object.get("status"), self.schema().properties.get("status")) {
            checker::check(
                status,
                schema,
                correlated.key("status"),
                &self.compiled().patterns,
                &Path::new("status"),
                errors,
            );
        }
        if let Some(scale) = &self.scale {
            scale.validate_status(object, errors);
        }
    }

    fn validate_type(&self, object: &Value) -> Errors {
        let mut errors = Errors::new();
        let expected = self.api_version();
        for (name, expected) in [("kind", self.kind.as_str()), ("apiVersion", expected.as_str())] {
            let found = object.text(name);
            if found != expected {
                errors.invalid(Path::new(name), found, format!("must be {expected}"));
            }
        }
        errors
    }

    /// Rules expect values of the right form: after other errors they are not run.
    fn run_rules(&self, object: &Value, old: Option<CorrelatedValue<'_>>, mut errors: Errors) -> Verdict {
        let Some(rules) = &self.compiled().rules else { return Verdict { errors, warnings: Vec::new() } };
        let blocks = |error_type: ErrorType| {
            use ErrorType as E;
            matches!(error_type, E::NotSupported | E::Required | E::TooLong | E::TooMany | E::TypeInvalid)
        };
        if errors.iter().any(|error| blocks(error.error_type)) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.invalid(Path::NIL, Value::Null, detail);
            return Verdict { errors, warnings: Vec::new() };
        }
        let outcome = rules::run(rules, object, old);
        errors.append(outcome.errors);
        Verdict { errors, warnings: outcome.warnings }
    }

    /// Returns the warnings for an accepted object.
    #[must_use]
    pub fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        let finalizers = |object: &Value| -> Vec<String> {
            object.field("metadata").texts("finalizers").map(ToOwned::to_owned).collect()
        };
        let before = old.map(finalizers).unwrap_or_default();
        let mut added: Vec<String> = finalizers(object).into_iter().filter(|it| !before.contains(it)).collect();
        added.sort();
        added.dedup();
        added.iter().flat_map(|finalizer| finalizer_warnings(finalizer)).collect()
    }

    /// Admits a new object: the steps of a server without its admission plugins, for tools and tests.
    ///
    /// # Errors
    /// The reason for the rejection.
    pub fn create(&self, document: &Value, context: &Context<'_>) -> Result<AcceptedObject, AdmitError> {
        let document = self.read(document)?;
        has_type(&document.object)?;
        admit::run_offline(Pipeline::create(), document, &self.as_kind(), None, context)
    }

    /// Admits a change, as [`CustomResource::create`] admits a new object. `old` is as stored.
    ///
    /// # Errors
    /// The reason for the rejection.
    pub fn update(
        &self,
        document: &Value,
        old: &Value,
        subresource: Option<&str>,
        context: &Context<'_>,
    ) -> Result<AcceptedObject, AdmitError> {
        let document = self.read(document)?;
        has_type(&document.object)?;
        admit::run_offline(Pipeline::update(), document, &self.as_kind(), Some(Update { old, subresource }), context)
    }

    fn as_kind(&self) -> admit::Kind<'_> {
        let kind = format!("{}.{}", self.kind, self.group);
        admit::Kind { rules: self, kind, namespaced: self.is_namespaced }
    }
}

/// The rules as tools and tests run them. A server stores what it was sent and applies the schema when it reads.
impl pipeline::Rules for CustomResource {
    fn fill_defaults(&self, object: &mut Value) {
        self.default(object);
    }

    fn prepare(&self, object: &mut Value, update: Option<Update<'_>>) {
        let Some(Update { old, subresource }) = update else { return self.prepare_create(object) };
        let generation = old.field("metadata").field("generation").clone();
        object.make("metadata").set("generation", generation);
        self.prepare_update(object, old, subresource);
        admit::keep_metadata(object, old);
    }

    fn validate(&self, object: &Value, update: Option<Update<'_>>) -> Errors {
        match update {
            Some(Update { old, subresource }) => self.validate_update(object, old, subresource).errors,
            None => self.validate_create(object).errors,
        }
    }

    fn canonicalize(&self, object: &mut Value) {
        canonicalize(object);
    }

    fn normalize(&self, object: &mut Value) {
        self.refresh(object);
    }

    fn warnings(&self, object: &Value, update: Option<Update<'_>>) -> Vec<String> {
        if update.is_some_and(|update| update.subresource.is_some()) {
            return Vec::new();
        }
        Self::warnings(self, object, update.map(|update| update.old))
    }
}

/// Adds the errors of a default. Their messages name places inside of it.
pub(super) fn check_default(value: &Value, schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Ok(schema) = Schema::from_value(schema) else { return };
    let kind = schema.type_name.as_str();
    if !matches!(kind, "" | "object" | "array" | "string" | "integer" | "number" | "boolean") {
        // A type that does not exist is complained about, too, and nothing is of it.
        let found = match value {
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Float(_) => "number",
            other => other.kind(),
        };
        errors.type_invalid(*at, found, format!(" in body must be of type {kind}: \"{found}\""));
        return;
    }
    checker::check(value, &schema, None, &checker::patterns_of(&schema), at, errors);
}

/// Normalizes numbers as storage does: a float in the notation of an integer becomes an integer.
pub fn canonicalize(value: &mut Value) {
    match value {
        Value::Float(number) => {
            let number = number.get();
            let whole = numbers::truncated(number).filter(|_| number.fract() == 0.0);
            *value = whole.map_or_else(|| number.into(), Value::Int);
        }
        Value::Array(items) => items.iter_mut().for_each(canonicalize),
        Value::Object(fields) => fields.values_mut().for_each(canonicalize),
        _ => {}
    }
}

/// Rejects a document without type information.
fn has_type(object: &Value) -> Result<(), AdmitError> {
    for (name, shown) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if object.text(name).is_empty() {
            let why = format!("Object '{shown}' is missing in 'object has no {name} field'");
            return Err(AdmitError::Internal(format!("Internal error occurred: {why}")));
        }
    }
    Ok(())
}

/// Whether anything but the metadata differs.
fn has_changed(object: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (object.as_object(), old.as_object()) else { return true };
    let is_other = |key: &str| key != "metadata";
    let count = |fields: &api::json::Object| fields.keys().filter(|key| is_other(key)).count();
    count(new) != count(old)
        || new.iter().any(|(key, value)| is_other(key) && old.get(key).is_none_or(|before| before != value))
}

/// Finalizers should have a domain.
fn finalizer_warnings(finalizer: &str) -> Vec<String> {
    let shown = format!("metadata.finalizers: {}", api::go_text::quote(finalizer));
    let mut warnings: Vec<String> =
        names::qualified_name(finalizer).into_iter().map(|complaint| format!("{shown}: {complaint}")).collect();
    let is_standard = matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes");
    if !finalizer.contains('/') && !is_standard {
        let including = if finalizer.contains('.') { " including a path (/)" } else { "" };
        warnings.push(format!(
            "{shown}: prefer a domain-qualified finalizer name{including} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    warnings
}
