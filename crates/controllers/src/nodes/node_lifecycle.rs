//! Node lifecycle: detects nodes without heartbeats, and evicts their pods.
//!
//! It watches nodes, their leases and pods. [`health`] detects missing heartbeats, [`taints`] derives taints
//! from conditions, [`zones`] limits the rate of evictions, [`labels`] syncs deprecated labels; [`monitor`]
//! combines them. `pods` marks the pods of silent nodes as not ready. Follows Kubernetes'
//! `pkg/controller/nodelifecycle`.

pub mod health;
pub mod labels;
pub mod monitor;
mod pods;
pub mod taints;
pub mod zones;

use locks::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

use api::coordination::v1::Lease;
use api::core::v1::{Node, ObjectReference, Pod, Taint};
use api::json::{Text, Value};
use api::well_known::NAMESPACE_NODE_LEASE;
use client::Document;
use client::controller::{Controller, Next, own};
use client::informer::{Change, Informer, Key};
use client::objects::{Patch, Selection};
use client::resources::ServedView as _;
use telemetry::logs::chain;
use tracing::{debug, warn};

use self::monitor::{Findings, Monitor, ObservedNode};
use crate::machinery::action::Action;
use crate::machinery::executor::{Executor, Failure};
use crate::machinery::placement::{index_pods_by_node, pods_on};
use crate::manager::Context;

const WORKERS: usize = 8;
/// Interval at which silent nodes are tainted, subject to the rate limits.
const EVICTION_PERIOD: Duration = Duration::from_millis(100);

/// Settings of the controller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Interval of health checks.
    pub period: Duration,
    /// Grace periods for missing heartbeats.
    pub grace: health::Grace,
    /// Rate limits of evictions.
    pub rates: zones::Rates,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { period: Duration::from_secs(5), grace: health::Grace::default(), rates: zones::Rates::default() }
    }
}

struct Lifecycle {
    nodes: Informer<Document<Node>>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    executor: Executor,
    settings: Settings,
    monitor: Mutex<Monitor>,
}

/// Runs the controller until shutdown.
pub async fn run(context: Context) {
    let settings = context.settings.node_lifecycle;
    let selection = Selection { namespace: NAMESPACE_NODE_LEASE.to_owned(), ..Selection::default() };
    let lifecycle = Arc::new(Lifecycle {
        nodes: context.informers.all(),
        leases: context.informers.of(&selection),
        pods: context.informers.all(),
        executor: context.executor(),
        settings,
        monitor: Mutex::new(Monitor::new(settings.grace, settings.rates)),
    });
    index_pods_by_node(&lifecycle.pods);
    let of_nodes =
        Controller::new("node_lifecycle_controller", &context.runtime).watch(&lifecycle.nodes, own).workers(WORKERS);
    let of_pods = Controller::new("node_lifecycle_controller_pods", &context.runtime)
        .watch_changes(&lifecycle.pods, newly_bound)
        .workers(WORKERS);
    let (nodes, pods) = (lifecycle.clone(), lifecycle.clone());
    let of_nodes = of_nodes.run(move |key: Key| {
        let lifecycle = nodes.clone();
        async move { lifecycle.follow_conditions(key).await }
    });
    let of_pods = of_pods.run(move |key: Key| {
        let lifecycle = pods.clone();
        async move { lifecycle.greet(key).await }
    });
    let watching = async {
        tokio::select! {
            () = lifecycle.watch_over() => {}
            () = context.runtime.shutdown.requested() => {}
        }
    };
    tokio::join!(of_nodes, of_pods, watching);
}

fn newly_bound(change: &Change<Pod>) -> Option<Key> {
    let is_new = match change {
        Change::Added(pod) => !pod.spec.node_name.is_empty(),
        Change::Updated { old, new } => !new.spec.node_name.is_empty() && old.spec.node_name != new.spec.node_name,
        Change::Deleted(_) => false,
    };
    if is_new { own(&**change.newest()) } else { None }
}

impl Lifecycle {
    fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock()
    }

    /// Updates a node's taints and deprecated labels from its conditions.
    async fn follow_conditions(&self, key: Key) -> Result<Next, Failure> {
        let Some(node) = self.nodes.store().get_key(&key) else { return Ok(Next::Done) };
        let mut actions = Vec::new();
        if let Some(next) = taints::by_conditions(&node, self.executor.now()) {
            actions.push(patch(&key.name, taints::patch(&node, &next)));
        }
        if let Some(labels) = labels::patch(&node) {
            actions.push(patch(&key.name, labels));
        }
        self.write(&key, actions).await?;
        Ok(Next::Done)
    }

    /// Marks a pod as not ready if it was assigned to a node that is not ready.
    async fn greet(&self, key: Key) -> Result<Next, Failure> {
        let Some(pod) = self.pods.store().get_key(&key) else { return Ok(Next::Done) };
        let Some(node) = self.nodes.store().get("", &pod.spec.node_name) else { return Ok(Next::Done) };
        let is_bad = health::ready(&node).is_some_and(|ready| ready.status != "True");
        if is_bad && self.monitor().knows(&pod.spec.node_name) {
            pods::mark_not_ready(&self.executor, &pod, self.executor.now()).await?;
        }
        Ok(Next::Done)
    }

    /// Checks all nodes periodically, and taints silent ones within the rate limits.
    async fn watch_over(&self) {
        self.nodes.synced().await;
        self.leases.synced().await;
        self.pods.synced().await;
        let clock = self.executor.client().clock();
        let (mut looks, mut turns) = (clock.interval(self.settings.period), clock.interval(EVICTION_PERIOD));
        loop {
            let is_waiting = self.monitor().is_waiting();
            tokio::select! {
                () = looks.tick() => self.look().await,
                () = turns.tick(), if is_waiting => self.give_up().await,
            }
        }
    }

    async fn look(&self) {
        let nodes = self.nodes.store().list();
        let seen: Vec<ObservedNode<'_>> = nodes
            .iter()
            .map(|node| {
                let lease = self.leases.store().get(NAMESPACE_NODE_LEASE, &node.metadata().name);
                let lease = lease.and_then(|lease| lease.spec.renew_time).map(|time| time.0);
                ObservedNode { node, document: node.value(), lease }
            })
            .collect();
        let findings = self.monitor().look(&seen, self.executor.now());
        self.act_on(findings).await;
    }

    async fn act_on(&self, findings: Findings) {
        let Findings { registered, removed, silenced, taints } = findings;
        for name in registered {
            let uid = self.nodes.store().get("", &name).map(|node| node.metadata().uid.clone()).unwrap_or_default();
            self.report(
                &name,
                &uid,
                "RegisteredNode",
                &format!("Node {name} event: Registered Node {name} in Controller"),
            );
        }
        for (name, uid) in removed {
            self.report(
                &name,
                &uid,
                "RemovingNode",
                &format!("Node {name} event: Removing Node {name} from Controller"),
            );
        }
        for (name, document) in silenced {
            if let Err(failure) = self.silence(&name, document).await {
                // The next look finds it again.
                debug!(node = %name, err = %chain(&failure), "Could not set the conditions of a silent node");
            }
        }
        for (name, taints) in taints {
            self.set_taints(&name, &taints).await;
        }
    }

    /// Records that a node is silent: in its conditions, and by marking its pods as not ready.
    async fn silence(&self, name: &Text, document: Value) -> Result<(), Failure> {
        let key = Key::new("", name.clone());
        let uid: Text = document.text_at(&["metadata", "uid"]).into();
        let was_ready = self
            .nodes
            .store()
            .get_key(&key)
            .is_some_and(|node| health::ready(&node).is_some_and(|ready| ready.status == "True"));
        self.write(&key, vec![Action::UpdateStatus { resource: Node::RESOURCE, object: document }]).await?;
        if !was_ready {
            return Ok(());
        }
        self.report(name, &uid, "NodeNotReady", &format!("Node {name} status is now: NodeNotReady"));
        for pod in pods_on(&self.pods, name) {
            if let Err(failure) = pods::mark_not_ready(&self.executor, &pod, self.executor.now()).await {
                warn!(pod = %pod.metadata.key(), err = %chain(&failure), "Could not mark pod as not ready");
            }
        }
        Ok(())
    }

    async fn give_up(&self) {
        let nodes = self.nodes.store().list();
        let find = |name: &str| nodes.iter().find(|node| node.metadata().name == name).map(|node| &***node);
        let due = self.monitor().evictions(find, self.executor.now());
        for (name, taints) in due {
            self.set_taints(&name, &taints).await;
        }
    }

    async fn set_taints(&self, name: &Text, taints: &[Taint]) {
        let Some(node) = self.nodes.store().get("", name) else { return };
        let action = patch(name, taints::patch(&node, taints));
        if let Err(failure) = self.write(&Key::new("", name.clone()), vec![action]).await {
            // The next look finds it again.
            debug!(node = %name, err = %chain(&failure), "Could not change the taints of the node");
        }
    }

    async fn write(&self, key: &Key, actions: Vec<Action>) -> Result<(), Failure> {
        match self.executor.perform(key, actions).await {
            Err(failure) if failure.code() == 404 => Ok(()),
            result => result,
        }
    }

    fn report(&self, name: &Text, uid: &Text, reason: &str, message: &str) {
        let about = ObjectReference {
            kind: "Node".into(),
            api_version: "v1".into(),
            name: name.clone(),
            uid: uid.clone(),
            ..ObjectReference::default()
        };
        self.executor.recorder().event(about, client::events::Severity::Normal, reason, message);
    }
}

fn patch(name: &Text, patch: Value) -> Action {
    Action::Patch {
        resource: Node::RESOURCE,
        namespace: Text::default(),
        name: name.clone(),
        subresource: "",
        kind: Patch::StrategicMerge,
        patch,
    }
}
