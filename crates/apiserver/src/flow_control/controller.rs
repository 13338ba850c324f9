//! Follows schemas and levels: applies them, keeps the built-in ones there, and shares out seats every few seconds.
//!
//! Every server on a store does the same. Writes are guarded by the revision that they are based on, so that of two
//! servers one wins, and the other sees what it would have written.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ::clock::Clock;
use api::json::Value;
use store::{Change, Guard, Revision, Store, Write};
use telemetry::logs::chain;
use tracing::warn;

use super::FlowControl;
use super::objects::{self, AUTO_UPDATE, Configuration, PRODUCER};
use crate::initial_objects;
use crate::resources::{self, Resource};
use crate::shutdown::ShutdownSignal;
use api::metadata;
use cache::Cache;
use cache::background::Tasks;
use cache::stored;
use patching::apply::{self, BuiltIn};

/// Interval at which seats are redistributed.
const ADJUST_EVERY: Duration = Duration::from_secs(10);

/// An object that exists, and its revision.
type ExistingObject = (Value, Revision);

/// Applies what is there, then follows until the server stops.
pub(crate) async fn run(
    flow: &Arc<FlowControl>,
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    clock: Clock,
    tasks: &Tasks,
    mut stopping: ShutdownSignal,
) {
    let (levels, schemas) = (resources::PRIORITY_LEVELS, resources::FLOW_SCHEMAS);
    let mut wakes = [levels, schemas].map(|row| cache.resource(&row.prefix()).subscribe());
    let mut controller =
        Controller { flow: Arc::downgrade(flow), store, cache, clock, configuration: Configuration::default() };
    controller.apply(levels, schemas);
    tasks.spawn("flow control", async move {
        let mut wants_writing = true;
        loop {
            if wants_writing && let Err(error) = controller.keep(levels, schemas).await {
                warn!(err = %chain(&error), "Failed to update objects of flow control");
            }
            let [of_levels, of_schemas] = &mut wakes;
            tokio::select! {
                changed = of_levels.changed() => if changed.is_err() { return },
                changed = of_schemas.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(ADJUST_EVERY) => {
                    let Some(flow) = controller.flow.upgrade() else { return };
                    flow.adjust(&controller.configuration, Instant::now());
                    wants_writing = false;
                    continue;
                }
                () = stopping.stopped() => return,
            }
            wakes.iter_mut().for_each(|wake| drop(wake.borrow_and_update()));
            controller.apply(levels, schemas);
            wants_writing = true;
        }
    });
}

struct Controller {
    flow: Weak<FlowControl>,
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    clock: Clock,
    configuration: Configuration,
}

impl Controller {
    fn existing(&self, row: &Resource<'_>) -> Vec<ExistingObject> {
        let snapshot = self.cache.resource(&row.prefix()).list(&row.prefix(), None, 0, |_, _| true);
        snapshot.objects.iter().map(|(_, object)| (object.decode(), object.revision)).collect()
    }

    /// Lets everything that exists count.
    fn apply(&mut self, levels: &Resource<'_>, schemas: &Resource<'_>) {
        let Some(flow) = self.flow.upgrade() else { return };
        let documents = |row| self.existing(row).into_iter().map(|(object, _)| object).collect::<Vec<_>>();
        self.configuration = Configuration::of(&documents(levels), &documents(schemas));
        flow.configure(&self.configuration, Instant::now());
    }

    /// Creates missing built-in objects, updates outdated ones, and marks schemas whose level does not exist.
    async fn keep(&self, levels: &Resource<'_>, schemas: &Resource<'_>) -> Result<(), store::Error> {
        for row in [levels, schemas] {
            let existing = self.existing(row);
            for wanted in initial_objects::built_in(row.plural) {
                let name = metadata::name(wanted);
                match existing.iter().find(|(object, _)| metadata::name(object) == name) {
                    None => {
                        if let Some(write) = objects::make(row, wanted.clone(), self.clock.now_seconds()) {
                            // A conflict means that another server was faster.
                            let _ = self.store.write(write).await?;
                        }
                    }
                    Some(existing) => self.update(row, existing, wanted).await?,
                }
            }
        }
        let names: Vec<String> =
            self.existing(levels).iter().map(|(level, _)| metadata::name(level).to_owned()).collect();
        let now = self.clock.now_seconds().to_string();
        for (schema, revision) in self.existing(schemas) {
            let exists = |level: &str| names.iter().any(|it| it == level);
            if let Some(changed) = objects::with_status(&schema, exists, &now) {
                self.put(schemas, changed, revision).await?;
            }
        }
        Ok(())
    }

    async fn update(
        &self,
        row: &Resource<'_>,
        (object, revision): &ExistingObject,
        wanted: &Value,
    ) -> Result<(), store::Error> {
        let follows = object.str_at(&["metadata", "annotations", AUTO_UPDATE]) == Some("true");
        let (Some(spec), Some(wanted)) = (object.get("spec"), wanted.get("spec")) else { return Ok(()) };
        if !follows || spec == wanted {
            return Ok(());
        }
        let mut changed = object.clone();
        if let Some(fields) = changed.as_object_mut() {
            fields.insert("spec", wanted.clone());
        }
        let mut changed = objects::normal(row, changed);
        if changed.get("spec") == Some(spec) {
            return Ok(());
        }
        let generation = object.int_at(&["metadata", "generation"]);
        metadata::set(&mut changed, "generation", generation.saturating_add(1));
        let now = self.clock.now_seconds().to_string();
        let (versions, api_version) = (BuiltIn::new(row, ""), row.api_version("v1"));
        let (kind, subresource, manager, now) = (row.kind, "", PRODUCER, now.as_str());
        let write = apply::Write { versions: &versions, api_version: &api_version, kind, subresource, manager, now };
        if let Some(managed_fields) = write.update(object, &changed) {
            metadata::set(&mut changed, "managedFields", managed_fields);
        }
        self.put(row, changed, *revision).await
    }

    async fn put(&self, row: &Resource<'_>, mut object: Value, revision: Revision) -> Result<(), store::Error> {
        let key = row.key("", metadata::name(&object));
        let Some(value) = stored::encode(&mut object) else { return Ok(()) };
        let write = Write { key, guard: Guard::Unchanged(revision), change: Change::Put { value, ttl: None } };
        // A conflict means that another writer was faster: the change will be observed and processed.
        self.store.write(write).await.map(drop)
    }
}
