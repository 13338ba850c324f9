//! One version of a definition: its objects between the form they are stored in and the form that clients see.
//!
//! Objects are stored in the definition's storage version. Clients see them in theirs: the version rewritten (the
//! conversion `None`) or [converted by a webhook](super::converted), what the schemas do not know dropped, defaults filled in. Objects that were written under the
//! current schema in the current storage version need none of that and are served as they lie.

use std::sync::{Arc, OnceLock};

use api::json::Value;
use bytes::Bytes;
use registry::custom_resource::printer_columns::Columns;
use registry::custom_resource::{CustomResource, canonicalize};
use registry::definition_status;
use registry::expressions::Languages;
use store::Revision;

use super::conversion::{Conversions, Converter};
use super::converted::Locks;
use super::rows::Names;
use crate::resources::Resource;
use crate::wire::etag::hash;
use api::metadata;
use cache::stored::{self, ServedObject};
use patching::apply::CustomResourceKind;

/// A definition that is served.
pub(crate) struct Definition {
    /// The revision of the definition itself.
    pub(crate) revision: Revision,
    group: String,
    plural: String,
    /// The part of the definition that affects stored objects: a change of it makes them outdated.
    pub(super) stored_form: String,
    pub(super) schema_revision: Revision,
    /// The way in which versions are converted.
    conversion: Value,
    edition: Revision,
    servings: Vec<Arc<ServedVersion>>,
}

/// The parts of the server that definitions are compiled with.
#[derive(Clone, Copy)]
pub(super) struct Compiler<'a> {
    pub(super) allows_expressions: bool,
    pub(super) languages: &'a Arc<Languages>,
    /// None in a server that calls no webhooks.
    pub(super) conversions: Option<&'a Arc<Conversions>>,
}

/// A version of a definition, ready for requests.
pub(crate) struct ServedVersion {
    names: Names,
    /// Compiled version of the definition.
    pub(crate) meaning: Arc<CustomResource>,
    /// All versions, for objects that were stored in them.
    all: Arc<Vec<(String, Arc<CustomResource>)>>,
    /// Objects that were written before are not as the schema has them.
    schema_revision: Revision,
    /// The webhook that converts between versions.
    pub(super) converter: Option<Arc<Converter>>,
    /// The revision since which versions are converted in the same way: what was converted before is not used.
    pub(super) edition: Revision,
    pub(super) locks: Locks,
    /// The definition in the cache: with hundreds of definitions, parsed schemas would take most of the memory.
    source: Arc<ServedObject>,
    columns: OnceLock<Columns>,
    allows_expressions: bool,
    languages: Arc<Languages>,
    /// The warning that clients of a deprecated version receive.
    pub(crate) deprecation: Option<String>,
    is_served: bool,
    /// The name of the definition.
    pub(crate) definition: String,
    /// The definition is going.
    pub(crate) is_terminating: bool,
}

impl Definition {
    /// Compiles a definition whose names are accepted. `before` is what it was, if it was.
    pub(super) fn new(
        definition: &Value,
        source: &Arc<ServedObject>,
        revision: Revision,
        Compiler { allows_expressions, languages, conversions }: Compiler<'_>,
        before: Option<&Definition>,
    ) -> Self {
        let versions = definition.list_at(&["spec", "versions"]);
        let is = |version: &Value, field: &str| version.get(field).and_then(Value::as_bool) == Some(true);
        let storage = versions.iter().find(|it| is(it, "storage"));
        let storage = storage.and_then(|it| it.str_at(&["name"])).unwrap_or_default();
        let forms: Vec<Value> = versions
            .iter()
            .map(|it| api::json!({"name": (it.get("name").cloned()), "schema": (it.get("schema").cloned())}))
            .collect();
        let stored_form = hash(api::json::to_string(&api::json!({"storage": storage, "versions": forms})).as_bytes());
        let same_form = before.filter(|before| before.stored_form == stored_form);
        let schema_revision = same_form.map_or(revision, |before| before.schema_revision);
        let conversion = definition.at(&["spec", "conversion"]).cloned().unwrap_or_default();
        let same_conversion = same_form.filter(|before| before.conversion == conversion);
        let edition = same_conversion.map_or(revision, |before| before.edition);
        let converter = conversions.and_then(|conversions| Converter::of(definition, conversions));
        let mut all = Vec::new();
        for version in versions {
            let name = version.text("name");
            let (source, wanted) = (source.clone(), name.to_owned());
            let reread = move || version_of(&source, &wanted);
            match CustomResource::deferred(definition, name, languages.clone(), reread) {
                Ok(meaning) => all.push((name.to_owned(), Arc::new(meaning))),
                Err(error) => {
                    let definition = metadata::name(definition);
                    tracing::error!(
                        customResourceDefinition = definition,
                        err = error,
                        "Skipped version of definition"
                    );
                }
            }
        }
        let all = Arc::new(all);
        let is_terminating = metadata::is_deleting(definition) || definition_status::is_true(definition, "Terminating");
        let mut servings = Vec::new();
        for version in versions {
            let name = version.text("name");
            let Some((_, meaning)) = all.iter().find(|(it, _)| it == name) else { continue };
            servings.push(Arc::new(ServedVersion {
                names: Names::of_version(definition, version, storage),
                meaning: meaning.clone(),
                all: all.clone(),
                schema_revision,
                converter: converter.clone(),
                edition,
                locks: Locks::default(),
                source: source.clone(),
                columns: OnceLock::new(),
                allows_expressions,
                languages: languages.clone(),
                deprecation: is(version, "deprecated").then(|| deprecation(definition, version, versions)),
                is_served: is(version, "served"),
                definition: metadata::name(definition).to_owned(),
                is_terminating,
            }));
        }
        let spec = |field: &[&str]| definition.text_at(field).to_owned();
        Self {
            revision,
            group: spec(&["spec", "group"]),
            plural: spec(&["status", "acceptedNames", "plural"]),
            stored_form,
            schema_revision,
            conversion,
            edition,
            servings,
        }
    }

    /// Group and plural, as in requests.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.group, &self.plural)
    }

    /// Whether schemas are compiled that no request has needed since this was last asked.
    pub(super) fn is_idle(&self) -> bool {
        let meanings = self.servings.iter().map(|serving| &serving.meaning);
        // Each is asked, so that none counts as used for ever.
        let is_used = meanings.clone().filter(|meaning| meaning.take_use()).count() > 0;
        !is_used && meanings.into_iter().any(|meaning| meaning.is_compiled())
    }

    /// The versions that clients may use.
    pub(super) fn served(&self) -> impl Iterator<Item = &Arc<ServedVersion>> {
        self.servings.iter().filter(|it| it.is_served)
    }
}

/// Warning for users of a deprecated version.
fn deprecation(definition: &Value, version: &Value, versions: &[Value]) -> String {
    if let Some(text) = version.str_at(&["deprecationWarning"]) {
        return text.to_owned();
    }
    let name = version.text("name");
    let group = definition.text_at(&["spec", "group"]);
    let kind = definition.text_at(&["spec", "names", "kind"]);
    let mut text = format!("{group}/{name} {kind} is deprecated");
    let flag = |version: &Value, field: &str| version.get(field).and_then(Value::as_bool) == Some(true);
    let mut newer: Vec<&str> = versions
        .iter()
        .filter(|it| flag(it, "served") && !flag(it, "deprecated"))
        .filter_map(|it| it.str_at(&["name"]))
        .filter(|it| definition_status::compare_versions(it, name).is_lt())
        .collect();
    newer.sort_by(|left, right| definition_status::compare_versions(left, right));
    if let Some(newest) = newer.first() {
        text.push_str(&format!("; use {group}/{newest} {kind}"));
    }
    text
}

/// A version of a definition, read again from its text.
fn version_of(source: &ServedObject, name: &str) -> Option<Value> {
    let mut definition = source.decode();
    let versions = definition.get_mut("spec").and_then(|spec| spec.get_mut("versions"));
    let versions = versions.and_then(Value::as_array_mut)?;
    versions.iter_mut().find(|it| it.str_at(&["name"]) == Some(name)).map(Value::take)
}

#[cfg(test)]
impl ServedVersion {
    /// Whether its schemas are read from this object.
    pub(super) fn is_from(&self, object: &Arc<ServedObject>) -> bool {
        Arc::ptr_eq(&self.source, object)
    }
}

impl ServedVersion {
    /// The version as the definition has it.
    fn version_definition(&self) -> Value {
        version_of(&self.source, self.version()).unwrap_or_default()
    }

    /// The schema as the definition has it, for OpenAPI.
    pub(crate) fn schema(&self) -> Option<Value> {
        let mut version = self.version_definition();
        version.get_mut("schema").and_then(|schema| schema.get_mut("openAPIV3Schema")).map(Value::take)
    }

    /// The row that the verbs see.
    pub(crate) fn row(&self) -> Resource<'_> {
        self.names.row()
    }

    /// The version's name.
    pub(crate) fn version(&self) -> &str {
        self.row().custom.map_or("", |custom| custom.version)
    }

    /// The versions of the definition, in the form for server-side apply.
    pub(crate) fn versions(&self, subresource: &str) -> CustomResourceKind<'_> {
        let versions = self.all.iter().map(|(name, meaning)| {
            let api_version = format!("{}/{name}", self.row().group);
            (api_version, Some(meaning.schema()))
        });
        CustomResourceKind::new(self.row().kind, versions.collect(), self.meaning.has_status(), subresource)
    }

    /// All versions of the definition.
    pub(crate) fn all(&self) -> &[(String, Arc<CustomResource>)] {
        &self.all
    }

    pub(super) fn storage_version(&self) -> &str {
        self.row().storage_version()
    }

    /// Whether an object can be served as it lies.
    pub(crate) fn is_plain(&self, revision: Revision) -> bool {
        self.version() == self.storage_version() && revision > self.schema_revision
    }

    /// Whether an object can be served as it is, because it lies so or has been converted.
    pub(crate) fn is_ready(&self, object: &ServedObject) -> bool {
        object.is_converted() || self.is_plain(object.revision)
    }

    /// The schema and rules of a version.
    pub(super) fn meaning_of(&self, version: &str) -> Option<&Arc<CustomResource>> {
        self.all.iter().find(|(name, _)| name == version).map(|(_, meaning)| meaning)
    }

    /// A stored object as clients of this version see it.
    pub(crate) fn decode(&self, object: &ServedObject) -> Value {
        let mut value = object.decode();
        if !self.is_ready(object) {
            self.refresh(&mut value);
        }
        value
    }

    /// As [`ServedVersion::decode`], as text.
    pub(crate) fn text(&self, object: &ServedObject) -> Bytes {
        if self.is_ready(object) {
            return object.json.clone();
        }
        let mut value = object.decode();
        self.refresh(&mut value);
        api::json::to_string(&value).into()
    }

    /// Turns a document in whatever version it was stored into one of this version.
    pub(crate) fn refresh(&self, value: &mut Value) {
        let stored_in = value.str_at(&["apiVersion"]).and_then(|it| it.split_once('/')).map_or("", |(_, it)| it);
        let is_converted = stored_in != self.version();
        if let Some(meaning) = self.meaning_of(stored_in).cloned() {
            meaning.refresh(value);
        }
        if is_converted {
            self.set_version(value, self.version());
            self.meaning.prune(value);
        }
    }

    pub(super) fn set_version(&self, value: &mut Value, version: &str) {
        if let Some(fields) = value.as_object_mut() {
            fields.insert("apiVersion", self.row().api_version(version));
        }
    }

    /// An object of this version as it is stored.
    pub(crate) fn encode(&self, object: &mut Value) -> Option<Bytes> {
        canonicalize(object);
        let storage = self.storage_version();
        if storage == self.version() {
            self.order(object);
            return stored::encode(object);
        }
        let mut converted = object.clone();
        self.set_version(&mut converted, storage);
        if let Some(meaning) = self.meaning_of(storage) {
            meaning.prune(&mut converted);
        }
        self.order(&mut converted);
        stored::encode(&mut converted)
    }

    /// Type and metadata come first, so that the version is found; the rest is sorted, as Go writes maps.
    pub(super) fn order(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        for (name, value) in fields.iter_mut() {
            if name != "metadata" {
                value.sort_keys();
            }
        }
        let rank = |key: &str| ["kind", "apiVersion", "metadata"].iter().position(|it| *it == key).unwrap_or(3);
        fields.sort_by_rank(|key| (rank(key), key.to_owned()));
    }

    /// The columns of its table, compiled on first use.
    pub(crate) fn columns(&self) -> &Columns {
        self.columns.get_or_init(|| {
            let (columns, error) =
                Columns::of_version(&self.version_definition(), self.allows_expressions, &self.languages);
            if let Some(error) = error {
                let (definition, version) = (&self.definition, self.version());
                tracing::error!(customResourceDefinition = definition, version, err = error, "Dropped printer columns");
            }
            columns
        })
    }
}
