//! Custom resources: the definitions in the store, served in addition to the table of built-in resources.
//!
//! A task follows the definitions (so that several servers on one store agree), decides about their names, and installs
//! what is accepted as a new [`Snapshot`]; requests read the current one. What objects mean is in
//! [`registry::custom_resource`].
//!
//! - [`rows`]: rows of resources, so that the verbs can treat them like built-in ones.
//! - [`serving`]: one version of a definition: reading and writing its objects between stored and served form.
//! - [`conversion`], [`converted`]: the same by a webhook: its calls, and what is shared of their results.
//! - [`controller`]: names, conditions, and the end of a definition with its objects.
//! - [`openapi`], [`tables`], [`metrics`]: what clients and operators see of it.

mod controller;
pub(crate) mod conversion;
pub(crate) mod converted;
pub(crate) mod metrics;
pub(crate) mod rows;
pub(crate) mod serving;

use locks::RwLock;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::json::Value;
use registry::column_path;
use registry::definition_status::compare_versions;
use registry::expressions::Languages;
use store::Revision;
use tokio::sync::watch;

pub(crate) use self::controller::{Controller, run};
use self::conversion::{Conversions, WARMING_MAX};
use self::serving::{Definition, ServedVersion};
use crate::resources::Resource;
use crate::wire::shared::SharedDocument;

/// Time limit of a request for earlier definitions to take effect.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// All custom resources.
pub(crate) struct CustomResources {
    snapshot: RwLock<Arc<Snapshot>>,
    /// Definitions up to this revision have been dealt with.
    settled: watch::Sender<Revision>,
    /// CEL languages.
    pub(crate) languages: Arc<Languages>,
    /// The way to conversion webhooks.
    conversions: Option<Arc<Conversions>>,
}

/// The custom resources that are served at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// INVARIANT: sorted by group and plural.
    definitions: Vec<Arc<Definition>>,
    /// Groups by name, with their versions, the preferred one first.
    groups: Vec<(String, Vec<String>)>,
    /// Paths and hashes of the OpenAPI documents of all groups and versions, built on first use.
    pub(crate) openapi: OnceLock<Vec<Document>>,
    /// The hash of the OpenAPI v2 document, built on first use.
    pub(crate) older_openapi: OnceLock<Edition>,
}

/// A document of OpenAPI: its path, the hash of its text, and the text as long as it is sent.
pub(crate) type Document = (String, String, SharedDocument);

/// The older OpenAPI document of everything: its hash, the time of its making, and its forms as long as they are sent.
pub(crate) struct Edition {
    pub(crate) etag: String,
    pub(crate) made: String,
    pub(crate) json: SharedDocument,
    pub(crate) protobuf: SharedDocument,
}

impl CustomResources {
    pub(crate) fn new(conversions: Option<Arc<Conversions>>) -> Self {
        Self { snapshot: RwLock::default(), settled: watch::channel(0).0, languages: Arc::default(), conversions }
    }

    /// Waits until nothing is converted in the background.
    pub(crate) async fn warmed(&self) {
        if let Some(conversions) = &self.conversions {
            // An error means that the server has stopped.
            let _ = conversions.warming.acquire_many(WARMING_MAX).await;
        }
    }

    /// The custom resources that are served now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().clone()
    }

    /// The version of a definition that a row stands for.
    pub(crate) fn of(&self, row: &Resource<'_>) -> Option<Arc<ServedVersion>> {
        let version = row.custom?.version;
        self.snapshot().find(row.group, version, row.plural).cloned()
    }

    fn install(&self, snapshot: Snapshot) {
        *self.snapshot.write() = Arc::new(snapshot);
    }

    /// Waits until the definitions up to a revision have been dealt with, or for a while.
    pub(crate) async fn settled(&self, revision: Revision) {
        let mut receiver = self.settled.subscribe();
        let reached = receiver.wait_for(|settled| *settled >= revision);
        // After that what is known counts.
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, reached).await;
    }
}

impl Snapshot {
    fn new(mut definitions: Vec<Arc<Definition>>) -> Self {
        definitions.sort_by(|left, right| left.key().cmp(&right.key()));
        let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for serving in definitions.iter().flat_map(|definition| definition.served()) {
            let versions = groups.entry(serving.row().group).or_default();
            if !versions.iter().any(|it| it == serving.version()) {
                versions.push(serving.version().to_owned());
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by(|left, right| compare_versions(left, right));
        }
        let groups = groups.into_iter().map(|(group, versions)| (group.to_owned(), versions)).collect();
        Self { definitions, groups, openapi: OnceLock::new(), older_openapi: OnceLock::new() }
    }

    /// Groups by name, with their versions, the preferred one first.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &str>)> {
        self.groups.iter().map(|(group, versions)| (group.as_str(), versions.iter().map(String::as_str)))
    }

    /// Whether a group is served in a version.
    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.groups.iter().any(|(it, versions)| it == group && versions.iter().any(|it| it == version))
    }

    /// The rows of a group and version, by name.
    pub(crate) fn rows<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = Resource<'a>> {
        let served = self.definitions.iter().flat_map(|definition| definition.served());
        served.map(|serving| serving.row()).filter(move |row| row.group == group && row.is_served_in(version))
    }

    /// The version of a definition that a request is about.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ServedVersion>> {
        let at = self.definitions.binary_search_by(|it| it.key().cmp(&(group, plural))).ok()?;
        self.definitions.get(at)?.served().find(|serving| serving.version() == version)
    }

    /// The versions of a definition that clients may use.
    pub(crate) fn versions(&self, group: &str, plural: &str) -> Vec<Arc<ServedVersion>> {
        let at = self.definitions.binary_search_by(|it| it.key().cmp(&(group, plural)));
        let found = at.ok().and_then(|at| self.definitions.get(at));
        found.into_iter().flat_map(|it| it.served().cloned()).collect()
    }

    /// All versions of all definitions that are served.
    pub(crate) fn served(&self) -> impl Iterator<Item = &Arc<ServedVersion>> {
        self.definitions.iter().flat_map(|definition| definition.served())
    }
}

/// The paths of definitions in messages and keys.
pub(crate) const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// Whether a resource is that of definitions.
pub(crate) fn is_definition(resource: &Resource<'_>) -> bool {
    (resource.group, resource.plural) == DEFINITIONS
}

/// Returns warnings about the columns of a definition.
pub(crate) fn column_warnings(definition: &Value, languages: &Languages) -> Vec<String> {
    use registry::custom_resource::printer_columns::{Columns, ESTIMATE_WARNING};
    let versions = definition.list_at(&["spec", "versions"]);
    let mut warnings = Vec::new();
    for (at, version) in versions.iter().enumerate() {
        let (columns, _) = Columns::of_version(version, true, languages);
        let given = version.get("additionalPrinterColumns").and_then(Value::as_array).unwrap_or_default();
        for column in columns.columns() {
            let place = given.iter().position(|it| it.str_at(&["name"]) == Some(&column.name)).unwrap_or_default();
            let path = format!("{}.expression", column_path(definition, at, place));
            if column.stays_empty() {
                warnings.push(format!(
                    "{path}: the column has type {}, but its expression is a string: its cells stay empty",
                    column.column_type
                ));
            }
            let Some(cost) = column.estimated_cost().filter(|cost| *cost > ESTIMATE_WARNING) else { continue };
            warnings.push(format!(
                "{path}: estimated cost {cost} exceeds {ESTIMATE_WARNING}; cells that cost more than 1000000 stay empty (try adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
            ));
        }
    }
    // Versions with the same columns have the same path.
    let mut seen = HashSet::new();
    warnings.retain(|warning| seen.insert(warning.clone()));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition with distinct names.
    fn definition(number: usize) -> Value {
        let plural = format!("widgets{number}");
        let names = api::json!({
            "plural": plural, "singular": "widget", "kind": (format!("Widget{number}")), "listKind": "WidgetList",
            "shortNames": [(format!("w{number}"))]
        });
        let version = api::json!({
            "name": "v1", "served": true, "storage": true, "selectableFields": [{"jsonPath": (format!(".spec.f{number}"))}],
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
        });
        api::json!({
            "metadata": {"name": (format!("widgets{number}.example.com")), "creationTimestamp": "2000-01-01T00:00:00Z"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": (names.clone()), "versions": [version]},
            "status": {"acceptedNames": names}
        })
    }

    #[test]
    fn nothing_stays_of_definitions_that_are_gone_or_changed() {
        let customs = CustomResources::new(None);
        let compiler = serving::Compiler { allows_expressions: true, languages: &customs.languages, conversions: None };
        let mut before: Option<Arc<Definition>> = None;
        let mut held = Vec::new();
        for number in 0..3000 {
            let revision = u64::try_from(number + 1).unwrap();
            let definition = definition(number);
            let bytes = cache::stored::encode(&mut definition.clone()).unwrap();
            let source = Arc::new(cache::stored::ServedObject::new(&bytes, revision).unwrap());
            let made = Definition::new(&definition, &source, revision, compiler, before.as_deref());
            let made = Arc::new(made);
            customs.install(Snapshot::new(vec![made.clone()]));
            let plural = format!("widgets{number}");
            let serving = customs.snapshot().find("example.com", "v1", &plural).cloned().unwrap();
            let row = rows::Row::Custom(serving.clone());
            assert_eq!((row.resource().plural, row.resource().short_names().len()), (plural.as_str(), 1));
            assert!(customs.of(&row.resource()).is_some());
            held.push((Arc::downgrade(&serving), Arc::downgrade(&made)));
            before = Some(made);
        }
        drop(before);
        let lives = held.iter().filter(|(serving, made)| serving.strong_count() + made.strong_count() > 0).count();
        assert_eq!(lives, 1, "only what is served");
        customs.install(Snapshot::new(Vec::new()));
        assert!(held.iter().all(|(serving, made)| serving.strong_count() + made.strong_count() == 0));
    }
}
