//! Custom resources that are defined in the input: the objects beside them are judged by their schemas.

use std::collections::HashMap;

use api::json::Value;
use registry::column_path;
use registry::custom_resource::CustomResource;
use registry::expressions::{Environments, Languages, Place};

use crate::manifests::{Manifests, Source};

/// Definitions by group and kind.
#[derive(Default)]
pub(super) struct Definitions(HashMap<(String, String), Vec<Version>>);

struct Version {
    name: String,
    plural: String,
    is_namespaced: bool,
    meaning: CustomResource,
}

/// Definition of an object's kind.
pub(super) enum DefinitionMatch<'d> {
    /// The kind is not defined here.
    Nothing,
    /// It is defined, but not in this version.
    OtherVersion,
    /// Compiled definition, plural name, and whether the objects are namespaced.
    Meaning(&'d CustomResource, &'d str, bool),
}

impl Definitions {
    /// Reads CustomResourceDefinitions from files. Those of standard input, which can be read only once, are added while
    /// it is checked.
    pub(super) fn read(sources: &[Source]) -> Self {
        let mut definitions = Self::default();
        for source in sources.iter().filter(|source| matches!(source, Source::File(_))) {
            // What cannot be read is reported when it is judged.
            if source.mentions("CustomResourceDefinition")
                && let Ok(manifests) = source.read()
            {
                definitions.add(&manifests);
            }
        }
        definitions
    }

    /// Adds those in a file.
    pub(super) fn add(&mut self, manifests: &Manifests) {
        let languages = Languages::default();
        for manifest in &manifests.objects {
            if manifest.kind() == "CustomResourceDefinition" && manifest.api_version() == "apiextensions.k8s.io/v1" {
                self.add_one(&manifest.value, &languages);
            }
        }
    }

    fn add_one(&mut self, definition: &Value, languages: &Languages) {
        let text = |path: &[&str]| definition.text_at(path).to_owned();
        let versions = definition.list_at(&["spec", "versions"]);
        let is_served = |version: &&Value| version.get("served").and_then(Value::as_bool) == Some(true);
        let known = self.0.entry((text(&["spec", "group"]), text(&["spec", "names", "kind"]))).or_default();
        for version in versions.iter().filter(is_served) {
            let name = version.text("name");
            // Errors of a definition are reported at the definition.
            if let Ok(meaning) = CustomResource::new(definition, name, languages) {
                let is_namespaced = definition.str_at(&["spec", "scope"]) == Some("Namespaced");
                let plural = definition.text_at(&["spec", "names", "plural"]).to_owned();
                known.push(Version { name: name.to_owned(), plural, is_namespaced, meaning });
            }
        }
    }

    /// Returns the definition of this version and kind.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> DefinitionMatch<'_> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(versions) = self.0.get(&(group.to_owned(), kind.to_owned())) else { return DefinitionMatch::Nothing };
        match versions.iter().find(|it| it.name == version) {
            Some(it) => DefinitionMatch::Meaning(&it.meaning, &it.plural, it.is_namespaced),
            // An unusable definition is ignored.
            None if versions.is_empty() => DefinitionMatch::Nothing,
            None => DefinitionMatch::OtherVersion,
        }
    }
}

/// Columns that stay empty because they announce a number and show a text: the path of each, and the warning.
pub(super) fn column_warnings(definition: &Value, environments: &Environments) -> Vec<(String, String)> {
    let mut warnings = Vec::new();
    let versions = definition.list_at(&["spec", "versions"]);
    for (version_index, version) in versions.iter().enumerate() {
        let schema = version.at(&["schema", "openAPIV3Schema"]);
        let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).unwrap_or_default();
        for (column_index, column) in columns.iter().enumerate() {
            let text = |field: &str| column.text(field);
            let kind = text("type");
            let (path, expression) = (text("jsonPath"), text("expression"));
            let is_text = match schema {
                Some(schema) if !expression.is_empty() => environments
                    .compile(Place::PrinterColumn, Some(schema), expression)
                    .is_ok_and(|compiled| *compiled.typed().result_type() == cel::types::Type::String),
                Some(schema) => type_at(schema, path) == Some("string"),
                None => false,
            };
            if matches!(kind, "integer" | "number") && is_text {
                let path = format!("{}.type", column_path(definition, version_index, column_index));
                let message = format!(
                    "column \"{}\" of version {} has type {kind}, but {} is a string: its cells stay empty",
                    text("name"),
                    version.text("name"),
                    if expression.is_empty() { text("jsonPath") } else { expression },
                );
                warnings.push((path, message));
            }
        }
    }
    warnings
}

/// The type of the field that a plain path leads to.
fn type_at<'s>(schema: &'s Value, path: &str) -> Option<&'s str> {
    let mut schema = schema;
    for field in path.strip_prefix('.')?.split('.') {
        schema = schema.at(&["properties", field])?;
    }
    schema.str_at(&["type"])
}
