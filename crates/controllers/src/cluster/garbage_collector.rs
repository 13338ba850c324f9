//! Deletes objects without existing owners, and applies the propagation policies of deleted owners.
//!
//! Follows the metadata of every kind that can be deleted, custom ones too, in one `graph`; what a change there makes
//! doubtful is looked up at the server and judged by `verdict`. Owners being deleted wait for their dependents
//! (`foregroundDeletion`) or set them free first (`orphan`).
//! Follows Kubernetes `pkg/controller/garbagecollector`.

mod graph;
mod verdict;

use locks::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::apiextensions::v1::CustomResourceDefinition;
use api::core::v1::ObjectReference;
use api::json::{Text, Value};
use api::meta::v1::{ObjectMeta, OwnerReference};
use client::controller::{Controller, Next};
use client::discovery::{Discovery, ServedResource};
use client::events::{Recorder, Severity};
use client::informer::Change;
use client::objects::{Deletion, Patch};
use client::{Client, Error, Informer, Informers, Queue, Resource};
use telemetry::logs::chain;
use tracing::warn;

use self::graph::{FOREGROUND, Graph, Identity, ORPHAN, Work, WrongNamespace};
use self::verdict::{Dependents, Owner, Verdict, verdict};
use crate::machinery::metadata;
use crate::manager::Context;

/// Interval of discovery.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(30);
/// Maximum time after which an accepted definition is served.
const SERVED_AFTER: Duration = Duration::from_millis(500);
/// Number of concurrent workers.
const WORKERS: usize = 20;
/// Maximum number of retries after conflicts.
const CONFLICTS_MAX: usize = 5;

/// State shared by informers and workers.
struct SharedState {
    client: Client,
    recorder: Recorder,
    graph: Mutex<Graph>,
    /// Objects to process, by UID.
    queue: Weak<Queue<Task>>,
    discovery: RwLock<Arc<Discovery>>,
}

/// Task for an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Task {
    Delete(Text),
    Orphan(Text),
}

impl std::fmt::Display for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Task::Delete(uid) | Task::Orphan(uid)) = self;
        f.write_str(uid)
    }
}

/// A reason to retry.
#[derive(Debug, thiserror::Error)]
enum RetryReason {
    /// A request failed.
    #[error(transparent)]
    Client(#[from] Error),
    /// The object is incompletely known: its kind is not served, or no informer has observed it.
    #[error("the object or one of its owners has not been observed yet")]
    Unknown,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    // Kubernetes: its events name the controller, not its account.
    let recorder = Recorder::start(&context.client, "garbage-collector-controller", "");
    let runner: Controller<Task> = Controller::new(context.name, &context.runtime).workers(WORKERS);
    let shared = Arc::new(SharedState {
        client: context.client.clone(),
        recorder,
        graph: Mutex::new(Graph::default()),
        queue: Arc::downgrade(runner.queue()),
        discovery: RwLock::new(Arc::new(Discovery::default())),
    });
    let mut monitors = HashMap::new();
    let definitions = context.informers.all::<CustomResourceDefinition>();
    let mut changes = definitions.changes();
    tokio::select! {
        () = discover(&shared, &context.informers, &mut monitors) => {}
        () = context.runtime.shutdown.requested() => return,
    }
    // No object is judged before all existing objects have been observed.
    for monitor in monitors.values() {
        tokio::select! {
            () = Informer::synced(monitor) => {}
            () = context.runtime.shutdown.requested() => return,
        }
    }
    let worker = shared.clone();
    let work = runner.run(move |task: Task| {
        let shared = worker.clone();
        async move { shared.attempt(&task).await }
    });
    let follow = async {
        loop {
            tokio::select! {
                () = tokio::time::sleep(DISCOVERY_PERIOD) => {}
                // New kinds are served soon after their definition is accepted.
                _ = changes.next() => tokio::time::sleep(SERVED_AFTER).await,
            }
            discover(&shared, &context.informers, &mut monitors).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = follow => {}
    }
}

/// Requests discovery until it succeeds, and follows all kinds.
async fn discover(
    shared: &Arc<SharedState>,
    informers: &Informers,
    monitors: &mut HashMap<Resource, Informer<ObjectMeta>>,
) {
    loop {
        match shared.client.discover().await {
            Ok(discovery) => {
                follow_kinds(shared, informers, &discovery, monitors);
                *shared.discovery.write() = Arc::new(discovery);
                return;
            }
            Err(error) => warn!(err = %chain(&error), "Could not discover resources"),
        }
        tokio::time::sleep(SERVED_AFTER).await;
    }
}

/// Starts informers of new kinds, and stops those of removed ones.
fn follow_kinds(
    shared: &Arc<SharedState>,
    informers: &Informers,
    discovery: &Discovery,
    monitors: &mut HashMap<Resource, Informer<ObjectMeta>>,
) {
    let wanted = |it: &&ServedResource| {
        it.preferred
            && it.allows(&["delete", "list", "watch"])
            && !(it.resource.plural == "events" && matches!(&*it.resource.group, "" | "events.k8s.io"))
    };
    let wanted: Vec<&Resource> = discovery.resources.iter().filter(wanted).map(|it| &it.resource).collect();
    // A group whose resources are temporarily unknown was not removed.
    let is_stale = |it: &Resource| discovery.stale.contains(&format!("{}/{}", it.group, it.version));
    monitors.retain(|resource, _| wanted.contains(&resource) || is_stale(resource));
    for resource in wanted {
        if monitors.contains_key(resource) {
            continue;
        }
        let monitor = metadata::informer(informers, resource);
        let (kind, api_version) = (Text::from(&*resource.kind), Text::from(resource.api_version()));
        let shared = Arc::downgrade(shared);
        monitor.on_change_while(move |_, change| {
            let Some(shared) = shared.upgrade() else { return false };
            let identity = |metadata: &ObjectMeta| Identity {
                kind: kind.clone(),
                api_version: api_version.clone(),
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            };
            let mut graph = shared.graph();
            let work = match change {
                Change::Added(new) => graph.observe(identity(new), new),
                Change::Updated { old, new } => {
                    let mut work = if old.uid == new.uid { Vec::new() } else { graph.gone(&old.uid) };
                    work.extend(graph.observe(identity(new), new));
                    work
                }
                Change::Deleted(last) => graph.gone(&last.uid),
            };
            drop(graph);
            shared.add(work);
            true
        });
        monitors.insert(resource.clone(), monitor);
    }
}

/// Identity and resource of an object.
struct Item {
    identity: Identity,
    resource: Resource,
    /// Empty if the kind has none.
    namespace: Text,
}

impl SharedState {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock()
    }

    fn discovery(&self) -> Arc<Discovery> {
        self.discovery.read().clone()
    }

    async fn attempt(&self, task: &Task) -> Result<Next, RetryReason> {
        match task {
            Task::Delete(uid) => self.attempt_to_delete(uid).await?,
            Task::Orphan(uid) => self.attempt_to_orphan(uid).await?,
        }
        Ok(Next::Done)
    }

    fn add(&self, work: Vec<Work>) {
        // Without a queue, the controller has ended.
        let Some(queue) = self.queue.upgrade() else { return };
        for work in work {
            match work {
                Work::Delete(uid) => queue.add(Task::Delete(uid)),
                Work::DeleteLater(uid) => queue.add_rate_limited(Task::Delete(uid)),
                Work::Orphan(uid) => queue.add(Task::Orphan(uid)),
                Work::WrongNamespace(wrong) => {
                    let WrongNamespace { dependent, owner } = *wrong;
                    let message = format!("ownerRef {owner} does not exist in namespace \"{}\"", dependent.namespace);
                    let object = ObjectReference {
                        kind: dependent.kind,
                        api_version: dependent.api_version,
                        namespace: dependent.namespace,
                        name: dependent.name,
                        uid: dependent.uid,
                        ..ObjectReference::default()
                    };
                    self.recorder.event(object, Severity::Warning, "OwnerRefInvalidNamespace", &message);
                }
            }
        }
    }

    async fn live(&self, item: &Item) -> Result<Option<ObjectMeta>, Error> {
        match self.client.documents(item.resource.clone()).get(&item.namespace, &item.identity.name).await {
            Ok(object) => Ok(Some(ObjectMeta::of(&object)?)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn attempt_to_delete(&self, uid: &str) -> Result<(), RetryReason> {
        let Some((identity, observed, deleting, deleting_dependents)) =
            self.graph().node(uid).map(|it| (it.identity.clone(), it.observed, it.deleting, it.deleting_dependents))
        else {
            return Ok(());
        };
        if deleting && !deleting_dependents {
            return Ok(());
        }
        let discovery = self.discovery();
        let Some(served) = discovery.find(&identity.api_version, &identity.kind) else {
            return Err(RetryReason::Unknown);
        };
        if served.namespaced && identity.namespace.is_empty() {
            // A cluster-wide object names an owner of a kind that has namespaces: no retry will resolve it.
            return Ok(());
        }
        let namespace = if served.namespaced { identity.namespace.clone() } else { Text::default() };
        let item = Item { resource: served.resource.clone(), namespace, identity };
        let Some(latest) = self.live(&item).await?.filter(|latest| latest.uid == item.identity.uid) else {
            let work = self.graph().absent(&item.identity);
            self.add(work);
            return Ok(());
        };
        let outcome = if observed { Ok(()) } else { Err(RetryReason::Unknown) };
        if deleting_dependents {
            self.go_on_in_foreground(&item).await?;
            return outcome;
        }
        let mut owners = Vec::with_capacity(latest.owner_references.len());
        for owner in &latest.owner_references {
            match self.owner_state(&discovery, owner, &item.identity).await? {
                Some(state) => owners.push(state),
                None if discovery.find(&owner.api_version, &owner.kind).is_some() => return Ok(()),
                None => return Err(RetryReason::Unknown),
            }
        }
        let dependents = {
            let graph = self.graph();
            let uids = graph.node(uid).map(|node| node.dependents.clone()).unwrap_or_default();
            let waits = |uid: &Text| graph.node(uid).is_some_and(|it| it.deleting_dependents);
            match (uids.is_empty(), uids.iter().any(waits)) {
                (true, _) => Dependents::None,
                (false, false) => Dependents::Some,
                (false, true) => Dependents::Waiting,
            }
        };
        match verdict(&latest, &owners, dependents) {
            Verdict::Keep => {}
            Verdict::Detach(uids) => self.detach(&item, &uids).await?,
            Verdict::Delete { policy, unblock } => {
                if unblock {
                    self.change_owners(&item, |owner| {
                        owner.remove("blockOwnerDeletion");
                        true
                    })
                    .await?;
                }
                if !self.delete(&item, &latest, policy, unblock).await? {
                    let work = self.graph().absent(&item.identity);
                    self.add(work);
                }
            }
        }
        outcome
    }

    /// State of an owner; `None` if its kind is unknown, or cannot own the object.
    async fn owner_state(
        &self,
        discovery: &Discovery,
        owner: &OwnerReference,
        dependent: &Identity,
    ) -> Result<Option<Owner>, Error> {
        {
            let graph = self.graph();
            let known = |namespace: &str| graph.is_absent(&Identity::of_owner(owner, namespace));
            if known("") || known(&dependent.namespace) {
                return Ok(Some(Owner::Dangling));
            }
        }
        let Some(served) = discovery.find(&owner.api_version, &owner.kind) else { return Ok(None) };
        if served.namespaced && dependent.namespace.is_empty() {
            return Ok(None);
        }
        let namespace = if served.namespaced { dependent.namespace.clone() } else { Text::default() };
        let identity = Identity::of_owner(owner, &namespace);
        let item = Item { identity: identity.clone(), resource: served.resource.clone(), namespace };
        match self.live(&item).await? {
            Some(live) if live.uid == owner.uid => {
                let waits = live.is_deleting() && live.finalizers.iter().any(|it| it == FOREGROUND);
                Ok(Some(if waits { Owner::WaitingForDependents } else { Owner::Solid }))
            }
            _ => {
                self.graph().remember_absent(identity);
                Ok(Some(Owner::Dangling))
            }
        }
    }

    /// Ends the deletion of an owner, or sees to the dependents that block it.
    async fn go_on_in_foreground(&self, item: &Item) -> Result<(), Error> {
        let blocking: Vec<(Text, bool)> = {
            let graph = self.graph();
            let Some(node) = graph.node(&item.identity.uid) else { return Ok(()) };
            let blocking = graph.blocking_dependents(node);
            blocking.iter().map(|it| (it.identity.uid.clone(), it.deleting_dependents)).collect()
        };
        if blocking.is_empty() {
            return self.remove_finalizer(item, FOREGROUND).await;
        }
        self.add(blocking.into_iter().filter(|(_, waits)| !waits).map(|(uid, _)| Work::Delete(uid)).collect());
        Ok(())
    }

    /// Whether there was something to delete.
    async fn delete(
        &self,
        item: &Item,
        latest: &ObjectMeta,
        policy: &'static str,
        changed: bool,
    ) -> Result<bool, Error> {
        let objects = self.client.documents(item.resource.clone());
        let mut how = Deletion {
            uid: Some(item.identity.uid.to_string()),
            resource_version: (!changed).then(|| latest.resource_version.to_string()),
            propagation_policy: Some(policy),
            ..Deletion::default()
        };
        let mut result = objects.delete(&item.namespace, &item.identity.name, &how).await;
        if matches!(&result, Err(error) if error.is_conflict()) && how.resource_version.is_some() {
            // The object has changed. Unless its owners have, it is deleted regardless of its version.
            let Some(live) = self.live(item).await? else { return Ok(false) };
            if live.uid == latest.uid
                && live.resource_version != latest.resource_version
                && live.owner_references == latest.owner_references
            {
                how.resource_version = None;
                result = objects.delete(&item.namespace, &item.identity.name, &how).await;
            }
        }
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn detach(&self, item: &Item, uids: &[Text]) -> Result<(), Error> {
        let keep = |owner: &mut api::json::Object| {
            !owner.get("uid").and_then(Value::as_str).is_some_and(|uid| uids.iter().any(|it| it == uid))
        };
        self.change_owners(item, keep).await
    }

    async fn attempt_to_orphan(&self, uid: &str) -> Result<(), RetryReason> {
        let dependents: Vec<Identity> = {
            let graph = self.graph();
            let Some(node) = graph.node(uid) else { return Ok(()) };
            node.dependents.iter().filter_map(|uid| graph.node(uid)).map(|it| it.identity.clone()).collect()
        };
        for dependent in dependents {
            let Some(item) = self.item(&dependent) else { return Err(RetryReason::Unknown) };
            self.detach(&item, &[uid.into()]).await?;
        }
        let owner = self.graph().node(uid).map(|node| node.identity.clone());
        let Some(owner) = owner else { return Ok(()) };
        let Some(item) = self.item(&owner) else { return Err(RetryReason::Unknown) };
        self.remove_finalizer(&item, ORPHAN).await?;
        Ok(())
    }

    fn item(&self, identity: &Identity) -> Option<Item> {
        let discovery = self.discovery();
        let served = discovery.find(&identity.api_version, &identity.kind)?;
        let namespace = if served.namespaced { identity.namespace.clone() } else { Text::default() };
        Some(Item { resource: served.resource.clone(), namespace, identity: identity.clone() })
    }

    async fn remove_finalizer(&self, item: &Item, finalizer: &str) -> Result<(), Error> {
        self.change(item, |object| {
            let finalizers = object.list_at(&["metadata", "finalizers"]);
            let rest: Vec<Value> = finalizers.iter().filter(|it| it.as_str() != Some(finalizer)).cloned().collect();
            (rest.len() != finalizers.len()).then(|| ("finalizers", Value::Array(rest)))
        })
        .await
    }

    /// Changes or drops the references to owners.
    async fn change_owners(&self, item: &Item, keep: impl Fn(&mut api::json::Object) -> bool) -> Result<(), Error> {
        self.change(item, |object| {
            let old = object.at(&["metadata", "ownerReferences"])?;
            let mut new = old.clone();
            new.as_array_mut()?.retain_mut(|owner| owner.as_object_mut().is_none_or(&keep));
            (new != *old).then_some(("ownerReferences", new))
        })
        .await
    }

    /// Patches one metadata field of the current object, unless it needs no change or was replaced.
    async fn change(&self, item: &Item, field: impl Fn(&Value) -> Option<(&'static str, Value)>) -> Result<(), Error> {
        let objects = self.client.documents(item.resource.clone());
        let mut conflicts = 0_usize;
        loop {
            let object = match objects.get(&item.namespace, &item.identity.name).await {
                Ok(object) => object,
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
            };
            let text = |name| object.text_at(&["metadata", name]).to_owned();
            let (uid, version) = (text("uid"), text("resourceVersion"));
            if uid != item.identity.uid.as_str() {
                return Ok(());
            }
            let Some((name, value)) = field(&object) else { return Ok(()) };
            let metadata = [("uid", uid.into()), ("resourceVersion", version.into()), (name, value)];
            let metadata: api::json::Object = metadata.into_iter().collect();
            let patch = api::json!({"metadata": metadata});
            match objects.patch(&item.namespace, &item.identity.name, "", Patch::Merge, &patch).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if error.is_conflict() && conflicts < CONFLICTS_MAX => {
                    conflicts = conflicts.saturating_add(1);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
