//! Follows definitions: accepts names, establishes, installs what is served, and removes objects with their definition.
//!
//! Every server on a store does the same. Writes are guarded by the revision that they are based on, so that of two
//! servers one wins, and the other sees what it would have written.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ::clock::Clock;
use api::json::{NameFilter, Value};
use api::well_known::ANNOTATION_LAST_APPLIED;
use registry::definition_status::{self, CLEANUP_FINALIZER};
use store::{Change, Guard, ListOptions, Outcome, Revision, Store, Write};
use telemetry::logs::chain;
use tracing::{error, info, warn};

use super::serving::{Compiler, Definition};
use super::{CustomResources, Snapshot};
use crate::resources::{self, Resource};
use crate::shutdown::ShutdownSignal;
use api::metadata;
use cache::Cache;
use cache::background::Tasks;
use cache::stored::{self, ServedObject};
use patching::apply::{self, BuiltIn};

/// Compiled schemas that no request needed for this long are dropped.
const IDLE_TIME: Duration = Duration::from_secs(600);

/// Interval at which objects with finalizers are checked.
const WAIT_FOR_OBJECTS: Duration = Duration::from_millis(300);

/// Inputs of the controller.
pub(crate) struct Controller {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) customs: Weak<CustomResources>,
    /// The gate of printer columns with expressions.
    pub(crate) allows_expressions: bool,
    clock: Clock,
    known: HashMap<String, KnownDefinition>,
}

/// A definition as it was seen last.
struct KnownDefinition {
    revision: Revision,
    /// The definition without its schemas, which are needed rarely and take most of the memory.
    document: Arc<Value>,
    /// The whole definition.
    object: Arc<ServedObject>,
    /// Whether `object` is the one in the cache, and not one that this controller wrote and has not observed yet.
    is_cached: bool,
    served: Option<Arc<Definition>>,
    /// Whether the served definition holds compiled schemas that no request needs.
    is_idle: bool,
}

/// Long fields that no decision about a definition depends on.
const UNREAD: NameFilter = NameFilter::new(&["openAPIV3Schema", "managedFields", ANNOTATION_LAST_APPLIED]);

impl KnownDefinition {
    fn new(object: Arc<ServedObject>, served: Option<Arc<Definition>>) -> Self {
        // The store checks for damage.
        let document = api::json::parse_without(&object.json, &UNREAD).unwrap_or_default();
        let revision = object.revision;
        Self { revision, document: Arc::new(document), object, is_cached: true, served, is_idle: false }
    }

    /// A definition that was just written.
    fn written(object: ServedObject, served: Option<Arc<Definition>>) -> Self {
        Self { is_cached: false, ..Self::new(Arc::new(object), served) }
    }
}

/// Result of a pass over all definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Nothing is left to do.
    Settled,
    /// Something was written, which will be observed.
    Wrote,
    /// Objects are on their way out.
    Waits,
}

impl Controller {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        customs: &Arc<CustomResources>,
        allows_expressions: bool,
        clock: Clock,
    ) -> Self {
        Self { store, cache, customs: Arc::downgrade(customs), allows_expressions, clock, known: HashMap::new() }
    }
}

/// Deals with what is there, then follows until the server stops. The first pass is over when this returns.
pub(crate) async fn run(mut controller: Controller, tasks: &Tasks, mut stopping: ShutdownSignal) {
    let row = resources::DEFINITIONS;
    let prefix = row.prefix();
    let wake = controller.cache.resource(&prefix).subscribe();
    let first = controller.pass(row).await;
    tasks.spawn("custom resource definitions", async move {
        let mut wake = wake;
        let mut last = first;
        let mut swept = Instant::now();
        loop {
            let timer = if last == Pass::Waits { WAIT_FOR_OBJECTS } else { IDLE_TIME };
            tokio::select! {
                changed = wake.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(timer) => {}
                () = stopping.stopped() => return,
            }
            wake.borrow_and_update();
            if swept.elapsed() >= IDLE_TIME {
                swept = Instant::now();
                controller.forget_idle();
            }
            last = controller.pass(row).await;
        }
    });
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
                    warn!(customResourceDefinition = name, err = %chain(&error), "Failed to update definition");
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
    fn read(&mut self, objects: &[(Arc<str>, Arc<ServedObject>)]) {
        let mut seen = Vec::with_capacity(objects.len());
        for (key, object) in objects {
            let name = key.rsplit('/').next().unwrap_or_default().to_owned();
            match self.known.get_mut(&name) {
                Some(known) if known.revision > object.revision => {}
                // Hundreds of definitions are not kept twice.
                Some(known) if known.revision == object.revision => {
                    (known.object, known.is_cached) = (object.clone(), true);
                }
                known => {
                    let served = known.and_then(|known| known.served.take());
                    self.known.insert(name.clone(), KnownDefinition::new(object.clone(), served));
                }
            }
            seen.push(name);
        }
        self.known.retain(|name, _| seen.contains(name));
    }

    /// Takes a definition one step further.
    async fn step(&mut self, row: &Resource<'_>, name: &str) -> Result<Pass, store::Error> {
        let Some(known) = self.known.get(name) else { return Ok(Pass::Settled) };
        let (document, revision) = (known.document.clone(), known.revision);
        let now = self.clock.now_seconds().to_string();
        if metadata::is_deleting(&document) {
            return self.finalize(row, &document, revision, &now).await;
        }
        let group = document.text_at(&["spec", "group"]);
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
        let mut whole = self.whole(name);
        copy_status(&mut whole, &changed);
        self.write(row, name, whole, revision).await
    }

    /// The definition with its schemas.
    fn whole(&self, name: &str) -> Value {
        self.known.get(name).map(|known| known.object.decode()).unwrap_or_default()
    }

    async fn write(
        &mut self,
        row: &Resource<'_>,
        name: &str,
        document: Value,
        revision: Revision,
    ) -> Result<Pass, store::Error> {
        let mut document = normal(row, document);
        let now = self.clock.now_seconds().to_string();
        match managed_fields(row, &self.whole(name), &document, &now) {
            Some(entries) => metadata::set(&mut document, "managedFields", entries),
            None => metadata::remove(&mut document, "managedFields"),
        }
        let Some(value) = stored::encode(&mut document) else { return Ok(Pass::Settled) };
        let write = Write {
            key: row.key("", name),
            guard: Guard::Unchanged(revision),
            change: Change::Put { value: value.clone(), ttl: None },
        };
        if let Outcome::Done { revision } = self.store.write(write).await?
            && let Some(known) = self.known.get_mut(name)
            && let Some(object) = ServedObject::new(&value, revision)
        {
            // Others in the same pass must know the names that were just taken.
            *known = KnownDefinition::written(object, known.served.take());
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
        let name = metadata::name(document).to_owned();
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
            let mut whole = self.whole(&name);
            copy_status(&mut whole, &changed);
            return self.write(row, &name, whole, revision).await;
        }
        let rest: Vec<Value> = finalizers.iter().filter(|it| *it != CLEANUP_FINALIZER).map(Value::from).collect();
        if rest.is_empty() {
            // A conflict means that the definition changed: the next pass sees it.
            if let Outcome::Done { .. } = self.store.write(Write::delete(row.key("", &name), revision)).await? {
                info!(customResourceDefinition = name, "Removed definition with its objects");
            }
            return Ok(Pass::Wrote);
        }
        let mut changed = self.whole(&name);
        metadata::set(&mut changed, "finalizers", rest);
        let (reason, message) = ("InstanceDeletionCompleted", "removed all instances");
        definition_status::set_condition(&mut changed, "Terminating", false, reason, message, now);
        self.write(row, &name, changed, revision).await
    }

    /// Deletes all objects of a definition; gives back how many are held back by finalizers.
    async fn delete_objects(&self, document: &Value, now: &str) -> Result<usize, store::Error> {
        let group = document.text_at(&["spec", "group"]);
        let plural = document.text_at(&["status", "acceptedNames", "plural"]);
        let is_builtin = resources::all().iter().any(|it| it.group == group && it.plural == plural);
        if plural.is_empty() || is_builtin || !definition_status::is_true(document, "Established") {
            return Ok(0);
        }
        let prefix = format!("/registry/{group}/{plural}/");
        let mut held_back = 0_usize;
        for entry in self.store.list(&prefix, ListOptions::default()).await?.entries {
            let Some(served) = ServedObject::new(&entry.value, entry.revision) else {
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
            let generation = object.int_at(&["metadata", "generation"]);
            metadata::set(&mut object, "generation", generation.saturating_add(1));
            if let Some(value) = stored::encode(&mut object) {
                let write = Write {
                    key: entry.key.to_string(),
                    guard: Guard::Unchanged(entry.revision),
                    change: Change::Put { value, ttl: None },
                };
                // A conflict means that the object changed: the next pass processes it again.
                let _ = self.store.write(write).await?;
            }
        }
        Ok(held_back)
    }

    /// Drops compiled schemas that no request has needed for a while: the definitions are served from their text again.
    fn forget_idle(&mut self) {
        for known in self.known.values_mut() {
            known.is_idle = known.served.as_ref().is_some_and(|served| served.is_idle());
        }
    }

    /// Publishes the established definitions as the current snapshot.
    fn install(&mut self, customs: &CustomResources) {
        let compiler = Compiler {
            allows_expressions: self.allows_expressions,
            languages: &customs.languages,
            conversions: customs.conversions.as_ref(),
        };
        let mut definitions = Vec::new();
        for known in self.known.values_mut() {
            if !definition_status::is_true(&known.document, "Established") {
                known.served = None;
                continue;
            }
            let served = match known.served.take() {
                Some(served) if served.revision == known.revision && !known.is_idle => served,
                // Compiled by the next pass, from the text in the cache: it would keep the written one in memory.
                before if !known.is_cached => {
                    definitions.extend(before.clone());
                    known.served = before;
                    continue;
                }
                before => {
                    let (whole, source) = (known.object.decode(), &known.object);
                    Arc::new(Definition::new(&whole, source, known.revision, compiler, before.as_deref()))
                }
            };
            definitions.push(served.clone());
            (known.served, known.is_idle) = (Some(served), false);
        }
        customs.install(Snapshot::new(definitions));
    }
}

fn copy_status(to: &mut Value, from: &Value) {
    if let (Some(fields), Some(status)) = (to.as_object_mut(), from.get("status")) {
        fields.insert("status", status.clone());
    }
}

/// Managed fields of a definition after the server wrote its status.
fn managed_fields(row: &Resource<'_>, old: &Value, new: &Value, now: &str) -> Option<Value> {
    let (versions, api_version) = (BuiltIn::new(row, "status"), row.api_version("v1"));
    let write = apply::Write {
        versions: &versions,
        api_version: &api_version,
        kind: row.kind,
        subresource: "status",
        manager: "kube-apiserver",
        now,
    };
    write.update(old, new)
}

/// A definition in the order of its type.
fn normal(row: &Resource<'_>, document: Value) -> Value {
    let decoded = row.object_type("v1").and_then(|of| api::types::decode(of, &document).ok());
    decoded.map_or(document, |decoded| decoded.value)
}

#[cfg(test)]
mod tests {
    use store::EmbeddedStore;

    use super::*;

    #[tokio::test]
    async fn established_definition_is_served_from_the_cached_text() {
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
        let cache = Cache::start(store.clone(), 1, 1 << 20).await.unwrap();
        let customs = Arc::new(CustomResources::new(None));
        let mut controller = Controller::new(store.clone(), cache.clone(), &customs, true, Clock::system());
        let row = resources::DEFINITIONS;
        let names = api::json!({"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"});
        let schema = api::json!({"openAPIV3Schema": {"type": "object"}});
        let version = api::json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let mut definition = api::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "as.example.com", "uid": "u", "creationTimestamp": "2000-01-01T00:00:00Z"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
        });
        let key = row.key("", "as.example.com");
        let value = stored::encode(&mut definition).unwrap();
        let resource = cache.resource(&row.prefix());
        let mut seen = resource.subscribe();
        let outcome = store.write(Write::create(key.as_str(), value)).await.unwrap();
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
        let mut passes = Vec::new();
        while passes.last() != Some(&Pass::Settled) || customs.snapshot().definitions.is_empty() {
            seen.changed().await.unwrap();
            passes.push(controller.pass(row).await);
        }
        assert!(passes.contains(&Pass::Wrote), "{passes:?}");
        let cached = resource.get(&key).unwrap();
        assert!(Arc::ptr_eq(&controller.known["as.example.com"].object, &cached));
        let serving = customs.snapshot().find("example.com", "v1", "as").cloned().unwrap();
        assert!(serving.is_from(&cached));
    }
}
