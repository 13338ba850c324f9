//! DaemonSets: a pod on every node that fits.
//!
//! It watches DaemonSets, their pods and revisions, and nodes. [`placement`] decides on which nodes pods
//! belong, [`rule`] which ones to create and delete, [`history`] which templates to keep, [`status`] what to
//! report; `reconcile` combines them, `demands` caches costly evaluations between reconciliations. [`pods`] are
//! helpers for daemon pods, [`backoff`] delays the replacement of failing ones. Follows Kubernetes'
//! `pkg/controller/daemon`.

pub mod backoff;
mod demands;
pub mod history;
pub mod placement;
pub mod pods;
mod reconcile;
pub mod rule;
pub mod status;

use locks::Mutex;
use std::sync::Arc;

use api::apps::v1::{ControllerRevision, DaemonSet};
use api::core::v1::{Node, Pod};
use client::Document;
use client::controller::{Controller, controlled_by, own};
use client::costly::CostlyWork;
use client::informer::{Change, Informer, Key};
use client::resources::ServedView as _;

use self::backoff::Backoff;
use self::reconcile::Daemons;
use crate::machinery::executor::Executor;
use crate::machinery::ownership::{self, INDEX};
use crate::machinery::placement::compile_cache;
use crate::manager::Context;

/// Component of its events; the name of its account differs.
const NAME: &str = "daemonset-controller";
/// Number of concurrent workers.
const WORKERS: usize = 2;

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let Some(cache) = compile_cache(NAME, "daemonset_controller_cel", &context.runtime) else { return };
    let sets = context.informers.all::<Document<DaemonSet>>();
    let revisions = context.informers.all::<Document<ControllerRevision>>();
    let (pods, nodes) = (context.informers.all::<Pod>(), context.informers.all::<Node>());
    let executor = Executor::new(NAME, context.client.clone(), context.refusals.clone());
    executor.expectations().follow(&sets, &DaemonSet::RESOURCE.plural);
    executor.expectations().follow(&pods, &Pod::RESOURCE.plural);
    executor.expectations().follow(&revisions, &ControllerRevision::RESOURCE.plural);
    pods.store().add_index(INDEX, |pod| ownership::index_of(&pod.metadata));
    revisions.store().add_index(INDEX, |revision| ownership::index_of(revision.metadata()));
    let (of_pods, of_nodes) = (sets.clone(), sets.clone());
    let runner = Controller::new(NAME, &context.runtime)
        .watch(&sets, own)
        .watch(&pods, move |pod| keys_of_pod(&of_pods, pod))
        .watch(&revisions, controlled_by("DaemonSet"))
        .watch_changes(&nodes, move |change| keys_of_node(&of_nodes, change))
        .workers(WORKERS);
    let runner = context.watch_accounts(runner, &executor, |key| key);
    let daemons = Arc::new(Daemons {
        sets,
        revisions,
        pods,
        nodes,
        executor,
        cache,
        features: context.features.into(),
        taints: Arc::new(matching::taints::Sets::new()),
        demands: Mutex::default(),
        costly: CostlyWork::default(),
        backoff: Mutex::new(Backoff::default()),
    });
    runner
        .run(move |key| {
            let daemons = daemons.clone();
            async move { daemons.reconcile(key).await }
        })
        .await;
}

/// The sets that a pod means: its controller, or those that may adopt it.
fn keys_of_pod(sets: &Informer<Document<DaemonSet>>, pod: &Pod) -> Vec<Key> {
    let namespace = &pod.metadata.namespace;
    if let Some(controller) = pod.metadata.controller() {
        let is_set = ownership::refers_to(controller, &DaemonSet::RESOURCE);
        return if is_set { vec![Key::new(namespace.clone(), controller.name.clone())] } else { Vec::new() };
    }
    let may_adopt = |set: &Document<DaemonSet>| {
        let selector = set.spec.selector.as_ref().and_then(|selector| selector.to_selector().ok());
        set.metadata().namespace == *namespace
            && selector.is_some_and(|selector| !selector.is_empty() && selector.matches(&pod.metadata.labels))
    };
    if pod.metadata.labels.is_empty() {
        return Vec::new();
    }
    sets.store().list().iter().filter(|set| may_adopt(set)).filter_map(|set| own(&**set)).collect()
}

/// All sets, if a node was added, removed, or changed in a way that affects placement.
fn keys_of_node(sets: &Informer<Document<DaemonSet>>, change: &Change<Node>) -> Vec<Key> {
    if let Change::Updated { old, new } = change
        && old.metadata.labels == new.metadata.labels
        && old.spec.taints == new.spec.taints
    {
        return Vec::new();
    }
    sets.store().list().iter().filter_map(|set| own(&**set)).collect()
}
