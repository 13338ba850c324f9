//! Custom resources: what the definitions in the store ask for, served beside the table of built-in resources.
//!
//! A task follows the definitions (so that several servers on one store agree), decides about their names, and installs
//! what is accepted as a new [`Snapshot`]; requests read the current one. What objects mean is in
//! [`registry::custom_resource`].
//!
//! - [`rows`]: rows of resources, each distinct one kept for good, so that the verbs can treat them like built-in ones.
//! - [`serving`]: one version of a definition: reading and writing its objects between stored and served form.
//! - [`controller`]: names, conditions, and the end of a definition with its objects.
//! - [`openapi`], [`tables`], [`metrics`]: what clients and operators see of it.

mod controller;
pub(crate) mod metrics;
mod openapi;
mod rows;
pub(crate) mod serving;
pub(crate) mod tables;

use std::collections::HashMap;
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
    groups: Vec<(&'static str, Vec<&'static str>)>,
    /// By the address of the row.
    by_row: HashMap<usize, Arc<Serving>>,
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
    pub(crate) fn of(&self, row: &'static Resource) -> Option<Arc<Serving>> {
        row.custom?;
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).by_row.get(&address(row)).cloned()
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

fn address(row: &'static Resource) -> usize {
    std::ptr::from_ref(row).addr()
}

impl Snapshot {
    fn new(mut definitions: Vec<Arc<Definition>>) -> Self {
        definitions.sort_by(|left, right| left.key().cmp(&right.key()));
        let mut by_row = HashMap::new();
        let mut groups: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
        for definition in &definitions {
            for serving in definition.served() {
                by_row.insert(address(serving.row), serving.clone());
                let group = match groups.iter_mut().find(|(group, _)| *group == serving.row.group) {
                    Some((_, versions)) => versions,
                    None => {
                        groups.push((serving.row.group, Vec::new()));
                        match groups.last_mut() {
                            Some((_, versions)) => versions,
                            None => continue,
                        }
                    }
                };
                if !group.contains(&serving.version()) {
                    group.push(serving.version());
                }
            }
        }
        groups.sort();
        for (_, versions) in &mut groups {
            versions.sort_by(|left, right| compare_versions(left, right));
        }
        Self { definitions, groups, by_row, openapi: OnceLock::new(), older_openapi: OnceLock::new() }
    }

    /// Groups by name, with their versions, the preferred one first.
    pub(crate) fn groups(&self) -> &[(&'static str, Vec<&'static str>)] {
        &self.groups
    }

    /// Whether a group is served in a version.
    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.groups.iter().any(|(it, versions)| *it == group && versions.contains(&version))
    }

    /// The rows of a group and version, by name.
    pub(crate) fn rows<'a>(&'a self, group: &'a str, version: &'a str) -> impl Iterator<Item = &'static Resource> + 'a {
        let served = self.definitions.iter().flat_map(|definition| definition.served());
        served.map(|serving| serving.row).filter(move |row| row.group == group && row.versions.contains(&version))
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
                    let served = all.filter(|it| it.row.group == *group && it.version() == *version);
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
pub(crate) fn is_definition(resource: &Resource) -> bool {
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
