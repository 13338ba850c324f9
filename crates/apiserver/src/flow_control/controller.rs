//! Follows schemas and levels: applies them, keeps the built-in ones there, and shares out seats every few seconds.
//!
//! Every server on a store does the same. Writes are guarded by the revision that they are based on, so that of two
//! servers one wins, and the other sees what it would have written.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use api::json::Value;
use store::{Change, Guard, Revision, Store, Write};
use tracing::warn;

use super::FlowControl;
use super::objects::{self, AUTO_UPDATE, Configuration, LEVELS, PRODUCER, SCHEMAS};
use crate::clock;
use crate::objects::apply::{self, BuiltIn};
use crate::objects::metadata;
use crate::resources::Resource;
use crate::server::Stopping;
use crate::serving::bootstrap;
use crate::storage::cache::Cache;
use crate::storage::stored;

/// Seats are shared out anew so often.
const ADJUST_EVERY: Duration = Duration::from_secs(10);

/// An object that exists, and its revision.
type Existing = (Value, Revision);

/// Applies what is there, then follows until the server stops.
pub(crate) async fn run(flow: &Arc<FlowControl>, store: Arc<dyn Store>, cache: Arc<Cache>, mut stopping: Stopping) {
    let (Some(levels), Some(schemas)) = (objects::row(LEVELS), objects::row(SCHEMAS)) else { return };
    let mut wakes = [levels, schemas].map(|row| cache.resource(&row.prefix()).subscribe());
    let mut controller =
        Controller { flow: Arc::downgrade(flow), store, cache, configuration: Configuration::default() };
    controller.apply(levels, schemas);
    tokio::spawn(async move {
        let mut wants_writing = true;
        loop {
            if wants_writing && let Err(error) = controller.keep(levels, schemas).await {
                warn!(err = %error, "Failed to update objects of flow control");
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
    configuration: Configuration,
}

impl Controller {
    fn existing(&self, row: &Resource<'_>) -> Vec<Existing> {
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

    /// Makes built-in objects that are gone, brings those up to date that want it, and says which schemas lead nowhere.
    async fn keep(&self, levels: &Resource<'_>, schemas: &Resource<'_>) -> Result<(), store::Error> {
        for row in [levels, schemas] {
            let existing = self.existing(row);
            for wanted in objects::built_in(row.plural) {
                let name = metadata::text(&wanted, "name");
                match existing.iter().find(|(object, _)| metadata::text(object, "name") == name) {
                    None => {
                        if let Some(write) = bootstrap::make(row, wanted.clone()) {
                            // A conflict means that another server was faster.
                            let _ = self.store.write(write).await?;
                        }
                    }
                    Some(existing) => self.update(row, existing, &wanted).await?,
                }
            }
        }
        let names: Vec<String> =
            self.existing(levels).iter().map(|(level, _)| metadata::text(level, "name").to_owned()).collect();
        let now = clock::now().to_string();
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
        (object, revision): &Existing,
        wanted: &Value,
    ) -> Result<(), store::Error> {
        let follows = object.at(&["metadata", "annotations", AUTO_UPDATE]).and_then(Value::as_str) == Some("true");
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
        let generation = object.at(&["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default();
        metadata::set(&mut changed, "generation", generation.saturating_add(1));
        let (versions, api_version, now) = (BuiltIn::new(row, ""), row.api_version("v1"), clock::now().to_string());
        let (kind, subresource, manager, now) = (row.kind, "", PRODUCER, now.as_str());
        let write = apply::Write { versions: &versions, api_version: &api_version, kind, subresource, manager, now };
        if let Some(managed_fields) = write.update(object, &changed) {
            metadata::set(&mut changed, "managedFields", managed_fields);
        }
        self.put(row, changed, *revision).await
    }

    async fn put(&self, row: &Resource<'_>, mut object: Value, revision: Revision) -> Result<(), store::Error> {
        let key = row.key("", metadata::text(&object, "name"));
        let Some(value) = stored::encode(&mut object) else { return Ok(()) };
        let write = Write { key, guard: Guard::Unchanged(revision), change: Change::Put { value, ttl: None } };
        // A conflict means that somebody was faster: the change is seen and looked at again.
        self.store.write(write).await.map(drop)
    }
}
