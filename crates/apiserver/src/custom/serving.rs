//! One version of a definition: its objects between the form they are stored in and the form that clients see.
//!
//! Objects are stored in the definition's storage version. Clients see them in theirs: the version rewritten (the
//! conversion `None`), what the schemas do not know dropped, defaults filled in. Objects that were written under the
//! current schema in the current storage version need none of that and are served as they lie.

use std::sync::{Arc, OnceLock};

use api::json::Value;
use bytes::Bytes;
use registry::custom_resource::printer_columns::Columns;
use registry::custom_resource::{CustomResource, canonicalize};
use registry::definition_status;
use registry::expressions::Languages;
use store::Revision;

use super::rows::Names;
use crate::objects::apply::Custom;
use crate::objects::metadata;
use crate::resources::Resource;
use crate::storage::stored::{self, Served};

/// A definition that is served.
pub(crate) struct Definition {
    /// The revision of the definition itself.
    pub(crate) revision: Revision,
    group: String,
    plural: String,
    /// What decides about stored objects: a change of it makes them old.
    pub(super) stored_form: Value,
    pub(super) schema_revision: Revision,
    servings: Vec<Arc<Serving>>,
}

/// A version of a definition, ready for requests.
pub(crate) struct Serving {
    names: Names,
    /// What its objects mean.
    pub(crate) meaning: Arc<CustomResource>,
    /// The schema as the definition has it, for OpenAPI.
    pub(crate) schema: Option<Value>,
    /// All versions, for objects that were stored in them.
    all: Arc<Vec<(String, Arc<CustomResource>)>>,
    /// Objects that were written before are not as the schema has them.
    schema_revision: Revision,
    version_definition: Value,
    columns: OnceLock<Columns>,
    allows_expressions: bool,
    languages: Arc<Languages>,
    /// Told to everyone who uses the version.
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
        revision: Revision,
        (allows_expressions, languages): (bool, &Arc<Languages>),
        before: Option<&Definition>,
    ) -> Self {
        let versions = definition.at(&["spec", "versions"]).and_then(Value::as_array).unwrap_or_default();
        let is = |version: &Value, field: &str| version.get(field).and_then(Value::as_bool) == Some(true);
        let storage = versions.iter().find(|it| is(it, "storage"));
        let storage = storage.and_then(|it| it.str_at(&["name"])).unwrap_or_default();
        let forms: Vec<Value> = versions
            .iter()
            .map(|it| api::json!({"name": (it.get("name").cloned()), "schema": (it.get("schema").cloned())}))
            .collect();
        let stored_form = api::json!({"storage": storage, "versions": forms});
        let same_form = before.filter(|before| before.stored_form == stored_form);
        let schema_revision = same_form.map_or(revision, |before| before.schema_revision);
        let mut all = Vec::new();
        for version in versions {
            let name = version.str_at(&["name"]).unwrap_or_default();
            match CustomResource::new(definition, name, languages) {
                Ok(meaning) => all.push((name.to_owned(), Arc::new(meaning))),
                Err(error) => {
                    let definition = metadata::text(definition, "name");
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
            let name = version.str_at(&["name"]).unwrap_or_default();
            let Some((_, meaning)) = all.iter().find(|(it, _)| it == name) else { continue };
            servings.push(Arc::new(Serving {
                names: Names::of_version(definition, version, storage),
                meaning: meaning.clone(),
                schema: version.at(&["schema", "openAPIV3Schema"]).cloned(),
                all: all.clone(),
                schema_revision,
                version_definition: version.clone(),
                columns: OnceLock::new(),
                allows_expressions,
                languages: languages.clone(),
                deprecation: is(version, "deprecated").then(|| deprecation(definition, version, versions)),
                is_served: is(version, "served"),
                definition: metadata::text(definition, "name").to_owned(),
                is_terminating,
            }));
        }
        let spec = |field: &[&str]| definition.str_at(field).unwrap_or_default().to_owned();
        Self {
            revision,
            group: spec(&["spec", "group"]),
            plural: spec(&["status", "acceptedNames", "plural"]),
            stored_form,
            schema_revision,
            servings,
        }
    }

    /// What requests name: group and plural.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.group, &self.plural)
    }

    /// The versions that clients may use.
    pub(super) fn served(&self) -> impl Iterator<Item = &Arc<Serving>> {
        self.servings.iter().filter(|it| it.is_served)
    }
}

/// What users of a deprecated version are told.
fn deprecation(definition: &Value, version: &Value, versions: &[Value]) -> String {
    if let Some(text) = version.str_at(&["deprecationWarning"]) {
        return text.to_owned();
    }
    let name = version.str_at(&["name"]).unwrap_or_default();
    let group = definition.str_at(&["spec", "group"]).unwrap_or_default();
    let kind = definition.str_at(&["spec", "names", "kind"]).unwrap_or_default();
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

impl Serving {
    /// The row that the verbs see.
    pub(crate) fn row(&self) -> Resource<'_> {
        self.names.row()
    }

    /// The version's name.
    pub(crate) fn version(&self) -> &str {
        self.row().custom.map_or("", |custom| custom.version)
    }

    /// The versions of the definition, as server-side apply asks for them.
    pub(crate) fn versions(&self, subresource: &str) -> Custom<'_> {
        let versions = self.all.iter().map(|(name, meaning)| {
            let api_version = format!("{}/{name}", self.row().group);
            (api_version, Some(meaning.schema()))
        });
        Custom::new(self.row().kind, versions.collect(), self.meaning.has_status(), subresource)
    }

    /// All versions of the definition.
    pub(crate) fn all(&self) -> &[(String, Arc<CustomResource>)] {
        &self.all
    }

    fn storage_version(&self) -> &str {
        self.row().storage_version()
    }

    /// Whether an object can be served as it lies.
    pub(crate) fn is_plain(&self, revision: Revision) -> bool {
        self.version() == self.storage_version() && revision > self.schema_revision
    }

    /// A stored object as clients of this version see it.
    pub(crate) fn decode(&self, object: &Served) -> Value {
        let mut value = object.decode();
        if !self.is_plain(object.revision) {
            self.refresh(&mut value);
        }
        value
    }

    /// As [`Serving::decode`], as text.
    pub(crate) fn text(&self, object: &Served) -> Bytes {
        if self.is_plain(object.revision) {
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
        let meaning = self.all.iter().find(|(name, _)| name == stored_in).map(|(_, meaning)| meaning.clone());
        if let Some(meaning) = meaning {
            meaning.refresh(value);
        }
        if is_converted {
            self.set_version(value, self.version());
            self.meaning.prune(value);
        }
    }

    fn set_version(&self, value: &mut Value, version: &str) {
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
        if let Some((_, meaning)) = self.all.iter().find(|(name, _)| name == storage) {
            meaning.prune(&mut converted);
        }
        self.order(&mut converted);
        stored::encode(&mut converted)
    }

    /// Type and metadata come first, so that the version is found; the rest is sorted, as Go writes maps.
    fn order(&self, object: &mut Value) {
        let Some(fields) = object.as_object_mut() else { return };
        for (name, value) in fields.iter_mut() {
            if name != "metadata" {
                value.sort_keys();
            }
        }
        let rank = |key: &str| ["kind", "apiVersion", "metadata"].iter().position(|it| *it == key).unwrap_or(3);
        fields.sort_by_rank(|key| (rank(key), key.to_owned()));
    }

    /// The columns of its table, compiled when the first table is asked for.
    pub(crate) fn columns(&self) -> &Columns {
        self.columns.get_or_init(|| {
            let (columns, error) =
                Columns::of_version(&self.version_definition, self.allows_expressions, &self.languages);
            if let Some(error) = error {
                let (definition, version) = (&self.definition, self.version());
                tracing::error!(customResourceDefinition = definition, version, err = error, "Dropped printer columns");
            }
            columns
        })
    }
}
