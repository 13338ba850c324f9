//! Custom resources: what the definitions in the store ask for, served beside the table of built-in resources.
//!
//! A task follows the definitions (so that several servers on one store agree), decides about their names, and installs
//! what is accepted as a new [`Snapshot`]; requests read the current one. What objects mean is in
//! [`registry::custom_resource`].
//!
//! - [`rows`]: rows of resources, so that the verbs can treat them like built-in ones.
//! - [`serving`]: one version of a definition: reading and writing its objects between stored and served form.
//! - [`controller`]: names, conditions, and the end of a definition with its objects.
//! - [`openapi`], [`tables`], [`metrics`]: what clients and operators see of it.

mod controller;
pub(crate) mod metrics;
mod openapi;
pub(crate) mod rows;
pub(crate) mod serving;
pub(crate) mod tables;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use api::json::{Object, Value};
use bytes::Bytes;
use registry::definition_status::compare_versions;
use registry::expressions::Languages;
use store::Revision;
use tokio::sync::watch;

pub(crate) use self::controller::{Controller, run};
use self::serving::{Definition, Serving};
use crate::resources::Resource;
use crate::serving::discovery::hash;
use crate::serving::openapi::operations::Operation;
use crate::serving::openapi::v2;

/// How long a request waits for definitions that were written before it.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);

/// All custom resources.
pub(crate) struct Customs {
    snapshot: RwLock<Arc<Snapshot>>,
    /// Definitions up to this revision have been dealt with.
    settled: watch::Sender<Revision>,
    /// What expressions are written in.
    pub(crate) languages: Arc<Languages>,
}

/// What is served at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// INVARIANT: sorted by group and plural.
    definitions: Vec<Arc<Definition>>,
    /// Groups by name, with their versions, the preferred one first.
    groups: Vec<(String, Vec<String>)>,
    openapi: OnceLock<Vec<Document>>,
    /// The hash of the older document of everything, once it was asked for.
    pub(crate) older_openapi: OnceLock<v2::Edition>,
}

/// A document of OpenAPI: its path, its text, and the hash of that.
pub(crate) type Document = (String, Bytes, String);

impl Customs {
    pub(crate) fn new() -> Self {
        Self { snapshot: RwLock::default(), settled: watch::channel(0).0, languages: Arc::default() }
    }

    /// What is served now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The version of a definition that a row stands for.
    pub(crate) fn of(&self, row: &Resource<'_>) -> Option<Arc<Serving>> {
        let version = row.custom?.version;
        self.snapshot().find(row.group, version, row.plural).cloned()
    }

    fn install(&self, snapshot: Snapshot) {
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
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
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Serving>> {
        let at = self.definitions.binary_search_by(|it| it.key().cmp(&(group, plural))).ok()?;
        self.definitions.get(at)?.served().find(|serving| serving.version() == version)
    }

    /// What the older OpenAPI document has of each custom resource: definitions and operations.
    pub(crate) fn older_definitions(&self) -> impl Iterator<Item = (Object, Vec<Operation>)> {
        self.definitions.iter().flat_map(|definition| definition.served()).map(|serving| openapi::older(serving))
    }

    /// The OpenAPI documents of all groups and versions.
    pub(crate) fn openapi(&self) -> &[Document] {
        self.openapi.get_or_init(|| {
            let mut documents = Vec::new();
            for (group, versions) in &self.groups {
                for version in versions {
                    let all = self.definitions.iter().flat_map(|definition| definition.served());
                    let served = all.filter(|it| it.row().group == group && it.version() == version);
                    let text = api::json::to_string(&openapi::document(group, version, served));
                    let hash = hash(text.as_bytes());
                    documents.push((format!("apis/{group}/{version}"), text.into(), hash));
                }
            }
            documents
        })
    }
}

/// The paths of definitions in messages and keys.
pub(crate) const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// Whether a resource is that of definitions.
pub(crate) fn is_definition(resource: &Resource<'_>) -> bool {
    (resource.group, resource.plural) == DEFINITIONS
}

/// What those who apply a definition are told about its columns.
pub(crate) fn column_warnings(definition: &Value, languages: &Languages) -> Vec<String> {
    use registry::custom_resource::printer_columns::{Columns, ESTIMATE_WARNING};
    let versions = definition.at(&["spec", "versions"]).and_then(Value::as_array).unwrap_or_default();
    let mut warnings = Vec::new();
    for version in versions {
        let (columns, _) = Columns::of_version(version, true, languages);
        for column in columns.columns() {
            let Some(cost) = column.estimated_cost().filter(|cost| *cost > ESTIMATE_WARNING) else { continue };
            let name = version.str_at(&["name"]).unwrap_or_default();
            warnings.push(format!(
                "spec.versions[{name}].additionalPrinterColumns[{}].expression: estimated cost {cost} exceeds {ESTIMATE_WARNING}; cells that cost more than 1000000 stay empty (try adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
                column.name
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition with names of its own.
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
            "metadata": {"name": (format!("widgets{number}.example.com"))},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": (names.clone()), "versions": [version]},
            "status": {"acceptedNames": names}
        })
    }

    #[test]
    fn nothing_stays_of_definitions_that_are_gone_or_changed() {
        let customs = Customs::new();
        let mut before: Option<Arc<Definition>> = None;
        let mut held = Vec::new();
        for number in 0..3000 {
            let revision = u64::try_from(number + 1).unwrap();
            let made = Definition::new(&definition(number), revision, (true, &customs.languages), before.as_deref());
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
