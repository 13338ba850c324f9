//! Follows definitions: accepts names, establishes, installs what is served, and removes objects with their definition.
//!
//! Every server on a store does the same. Writes are guarded by the revision that they are based on, so that of two
//! servers one wins, and the other sees what it would have written.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::json::Value;
use registry::definition_status::{self, CLEANUP_FINALIZER};
use store::{Change, Guard, ListOptions, Outcome, Revision, Store, Write};
use tracing::{error, info, warn};

use super::serving::Definition;
use super::{Customs, Snapshot};
use crate::clock;
use crate::objects::apply::{self, BuiltIn};
use crate::objects::metadata;
use crate::resources::{self, Resource};
use crate::server::Stopping;
use crate::storage::cache::Cache;
use crate::storage::stored::{self, Served};

/// Objects with finalizers are asked for so often.
const WAIT_FOR_OBJECTS: Duration = Duration::from_millis(300);

/// What the controller works with.
pub(crate) struct Controller {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) customs: Weak<Customs>,
    /// The gate of printer columns with expressions.
    pub(crate) allows_expressions: bool,
    known: HashMap<String, Known>,
}

/// A definition as it was seen last.
struct Known {
    revision: Revision,
    document: Arc<Value>,
    served: Option<Arc<Definition>>,
}

/// What a pass over all definitions came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Nothing is left to do.
    Settled,
    /// Something was written, which will be seen.
    Wrote,
    /// Objects are on their way out.
    Waits,
}

impl Controller {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        customs: &Arc<Customs>,
        allows_expressions: bool,
    ) -> Self {
        Self { store, cache, customs: Arc::downgrade(customs), allows_expressions, known: HashMap::new() }
    }
}

/// Deals with what is there, then follows until the server stops. The first pass is over when this returns.
pub(crate) async fn run(mut controller: Controller, mut stopping: Stopping) {
    let Some(row) = definitions_row() else { return };
    let prefix = row.prefix();
    let wake = controller.cache.resource(&prefix).subscribe();
    let first = controller.pass(row).await;
    tokio::spawn(async move {
        let mut wake = wake;
        let mut last = first;
        loop {
            let timer = if last == Pass::Waits { WAIT_FOR_OBJECTS } else { Duration::from_secs(3600) };
            tokio::select! {
                changed = wake.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(timer) => {}
                () = stopping.stopped() => return,
            }
            wake.borrow_and_update();
            last = controller.pass(row).await;
        }
    });
}

fn definitions_row() -> Option<&'static Resource<'static>> {
    let (group, plural) = super::DEFINITIONS;
    resources::find(group, "v1", plural)
}

impl Controller {
    async fn pass(&mut self, row: &Resource<'_>) -> Pass {
        let cache = self.cache.resource(&row.prefix());
        let newest = cache.newest();
        let snapshot = cache.list(&row.prefix(), None, newest, |_, _| true);
        self.read(&snapshot.objects);
        let mut result = Pass::Settled;
        let mut names: Vec<String> = self.known.keys().cloned().collect();
        names.sort();
        for name in names {
            match self.step(row, &name).await {
                Ok(Pass::Settled) => {}
                Ok(Pass::Wrote) => result = Pass::Wrote,
                Ok(Pass::Waits) if result == Pass::Settled => result = Pass::Waits,
                Ok(Pass::Waits) => {}
                Err(error) => {
                    warn!(customResourceDefinition = name, err = %error, "Failed to update definition");
                    result = Pass::Waits;
                }
            }
        }
        let Some(customs) = self.customs.upgrade() else { return result };
        self.install(&customs);
        if result != Pass::Wrote {
            customs.settled.send_replace(newest);
        }
        result
    }

    /// Takes over what changed.
    fn read(&mut self, objects: &[(Arc<str>, Arc<Served>)]) {
        let mut seen = Vec::with_capacity(objects.len());
        for (key, object) in objects {
            let name = key.rsplit('/').next().unwrap_or_default().to_owned();
            let is_new = self.known.get(&name).is_none_or(|known| known.revision < object.revision);
            if is_new {
                let served = self.known.remove(&name).and_then(|known| known.served);
                let document = Arc::new(object.decode());
                self.known.insert(name.clone(), Known { revision: object.revision, document, served });
            }
            seen.push(name);
        }
        self.known.retain(|name, _| seen.contains(name));
    }

    /// Takes a definition one step further.
    async fn step(&mut self, row: &Resource<'_>, name: &str) -> Result<Pass, store::Error> {
        let Some(known) = self.known.get(name) else { return Ok(Pass::Settled) };
        let (document, revision) = (known.document.clone(), known.revision);
        let now = clock::now().to_string();
        if metadata::is_deleting(&document) {
            return self.finalize(row, &document, revision, &now).await;
        }
        let group = document.str_at(&["spec", "group"]).unwrap_or_default();
        let others: Vec<Arc<Value>> = self
            .known
            .iter()
            .filter(|(_, other)| other.document.str_at(&["spec", "group"]) == Some(group))
            .map(|(_, other)| other.document.clone())
            .collect();
        let mut changed = (*document).clone();
        let names_changed = definition_status::accept_names(&mut changed, others.iter().map(AsRef::as_ref), &now);
        if !names_changed && !definition_status::establish(&mut changed, &now) {
            return Ok(Pass::Settled);
        }
        self.write(row, name, changed, revision).await
    }

    async fn write(
        &mut self,
        row: &Resource<'_>,
        name: &str,
        document: Value,
        revision: Revision,
    ) -> Result<Pass, store::Error> {
        let mut document = normal(row, document);
        if let Some(known) = self.known.get(name) {
            match managed_fields(row, &known.document, &document) {
                Some(entries) => metadata::set(&mut document, "managedFields", entries),
                None => metadata::remove(&mut document, "managedFields"),
            }
        }
        let Some(value) = stored::encode(&mut document) else { return Ok(Pass::Settled) };
        let write = Write {
            key: row.key("", name),
            guard: Guard::Unchanged(revision),
            change: Change::Put { value, ttl: None },
        };
        if let Outcome::Done { revision } = self.store.write(write).await?
            && let Some(known) = self.known.get_mut(name)
        {
            // Others in the same pass must know the names that were just taken.
            known.document = Arc::new(document);
            known.revision = revision;
        }
        Ok(Pass::Wrote)
    }

    /// Removes the objects of a definition, then the definition.
    async fn finalize(
        &mut self,
        row: &Resource<'_>,
        document: &Value,
        revision: Revision,
        now: &str,
    ) -> Result<Pass, store::Error> {
        let finalizers = metadata::finalizers(document);
        if !finalizers.iter().any(|it| it == CLEANUP_FINALIZER) {
            return Ok(Pass::Settled);
        }
        let name = metadata::text(document, "name").to_owned();
        if self.delete_objects(document, now).await? > 0 {
            let mut changed = document.clone();
            let message = "CustomResource deletion is in progress";
            definition_status::set_condition(
                &mut changed,
                "Terminating",
                true,
                "InstanceDeletionInProgress",
                message,
                now,
            );
            if changed == *document {
                return Ok(Pass::Waits);
            }
            return self.write(row, &name, changed, revision).await;
        }
        let rest: Vec<Value> = finalizers.iter().filter(|it| *it != CLEANUP_FINALIZER).map(Value::from).collect();
        if rest.is_empty() {
            // A conflict means that the definition changed: the next pass sees it.
            if let Outcome::Done { .. } = self.store.write(Write::delete(row.key("", &name), revision)).await? {
                info!(customResourceDefinition = name, "Removed definition with its objects");
            }
            return Ok(Pass::Wrote);
        }
        let mut changed = document.clone();
        metadata::set(&mut changed, "finalizers", rest);
        let (reason, message) = ("InstanceDeletionCompleted", "removed all instances");
        definition_status::set_condition(&mut changed, "Terminating", false, reason, message, now);
        self.write(row, &name, changed, revision).await
    }

    /// Deletes all objects of a definition; gives back how many are held back by finalizers.
    async fn delete_objects(&self, document: &Value, now: &str) -> Result<usize, store::Error> {
        let group = document.str_at(&["spec", "group"]).unwrap_or_default();
        let plural = document.str_at(&["status", "acceptedNames", "plural"]).unwrap_or_default();
        let is_builtin = resources::all().iter().any(|it| it.group == group && it.plural == plural);
        if plural.is_empty() || is_builtin || !definition_status::is_true(document, "Established") {
            return Ok(0);
        }
        let prefix = format!("/registry/{group}/{plural}/");
        let mut held_back = 0_usize;
        for entry in self.store.list(&prefix, ListOptions::default()).await?.entries {
            let Some(served) = Served::new(&entry.value, entry.revision) else {
                error!(key = %entry.key, "Removed damaged object");
                let _ = self.store.write(Write::delete(&*entry.key, entry.revision)).await?;
                continue;
            };
            let mut object = served.decode();
            if metadata::finalizers(&object).is_empty() {
                let outcome = self.store.write(Write::delete(&*entry.key, entry.revision)).await?;
                if matches!(outcome, Outcome::Conflict { .. }) {
                    held_back = held_back.saturating_add(1);
                }
                continue;
            }
            held_back = held_back.saturating_add(1);
            if metadata::is_deleting(&object) {
                continue;
            }
            metadata::set(&mut object, "deletionTimestamp", now);
            metadata::set(&mut object, "deletionGracePeriodSeconds", 0_i64);
            let generation = object.at(&["metadata", "generation"]).and_then(Value::as_i64).unwrap_or_default();
            metadata::set(&mut object, "generation", generation.saturating_add(1));
            if let Some(value) = stored::encode(&mut object) {
                let write = Write {
                    key: entry.key.to_string(),
                    guard: Guard::Unchanged(entry.revision),
                    change: Change::Put { value, ttl: None },
                };
                // A conflict means that the object changed: the next pass looks at it again.
                let _ = self.store.write(write).await?;
            }
        }
        Ok(held_back)
    }

    /// Makes what is established the current snapshot.
    fn install(&mut self, customs: &Customs) {
        let mut definitions = Vec::new();
        for known in self.known.values_mut() {
            if !definition_status::is_true(&known.document, "Established") {
                known.served = None;
                continue;
            }
            if known.document.str_at(&["spec", "conversion", "strategy"]) == Some("Webhook") {
                if known.served.take().is_some() {
                    let name = metadata::text(&known.document, "name");
                    warn!(customResourceDefinition = name, "Stopped serving definition with a webhook converter");
                }
                continue;
            }
            let served = match known.served.take() {
                Some(served) if served.revision == known.revision => served,
                before => Arc::new(Definition::new(
                    &known.document,
                    known.revision,
                    (self.allows_expressions, &customs.languages),
                    before.as_deref(),
                )),
            };
            definitions.push(served.clone());
            known.served = Some(served);
        }
        customs.install(Snapshot::new(definitions));
    }
}

/// Who owns the fields of a definition after the server wrote its status.
fn managed_fields(row: &Resource<'_>, old: &Value, new: &Value) -> Option<Value> {
    let (versions, api_version) = (BuiltIn::new(row, "status"), row.api_version("v1"));
    let write = apply::Write {
        versions: &versions,
        api_version: &api_version,
        kind: row.kind,
        subresource: "status",
        manager: "kube-apiserver",
        now: &clock::now().to_string(),
    };
    write.update(old, new)
}

/// A definition in the order of its type.
fn normal(row: &Resource<'_>, document: Value) -> Value {
    let decoded = row.object_type("v1").and_then(|of| api::types::decode(of, &document).ok());
    decoded.map_or(document, |decoded| decoded.value)
}
