//! Many nodes at work in one process.
//!
//! All reads go through one informer of nodes and one of pods, under the fleet's own identity; each write is
//! made under the name of its node. There is no state besides the server's: a restarted fleet resumes where the
//! last one ended.

mod annotations;
mod devices;
mod member;
mod members;
mod nodes;
mod pods;
pub mod shutdown;
mod static_pods;
mod usage;

use locks::Mutex;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::core::v1::{Node, Pod};
use api::json::Text;
use api::labels::Selector;
use api::resource::v1::ResourceSlice;
use client::Client;
use client::costly::CostlyWork;
use client::informer::{Change, Informer, Key};
use client::objects::Selection;
use client::queue::{Backoff, Queue};
use matching::{CompileCache, Features};
use tokio::task::JoinSet;
use tracing::info;

use self::member::Member;
use self::members::Members;
pub use self::members::PLAYED;
pub(crate) use self::pods::EVICTED;
use self::static_pods::StaticPods;
use crate::logs;
use crate::runtime::Runtime;
use crate::slice_template::SliceTemplate;
use crate::static_pods as manifests;
use crate::template::Template;
use clock::Clock;

/// A connection under the name of a node.
pub type ClientFactory = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// Number of concurrent workers for pods: each may wait for a write.
const POD_WORKERS: usize = 64;
const NODE_WORKERS: usize = 16;
/// Fleets of more nodes record container events only on request.
const TELLING_MAX: usize = 100;
const PAUSES: Backoff = Backoff { first: Duration::from_millis(50), max: Duration::from_secs(30) };

/// Nodes of a fleet, and its connection to the server.
pub struct Options {
    /// The names of the nodes.
    pub nodes: Vec<String>,
    /// Template of the nodes.
    pub template: Template,
    /// Whether Nodes with the annotation [`PLAYED`] are simulated as well, regardless of their creator.
    pub adopts: bool,
    /// The labels of other Nodes that are played as well, if `adopts` is set.
    pub adopted: Option<Selector>,
    /// Default devices of the nodes.
    pub devices: Option<SliceTemplate>,
    /// Client for reading nodes and pods, and for writes of device drivers.
    pub client: Client,
    /// Writes.
    pub client_for: ClientFactory,
    /// One cache of compiled expressions for all nodes.
    pub cache: Arc<CompileCache>,
    /// Enabled features of matching.
    pub features: Features,
    /// Source of the time.
    pub clock: Clock,
    /// Address at which the server can read logs, if any.
    pub endpoint: Option<SocketAddr>,
    /// Whether container events are recorded; by default in a fleet of up to 100 nodes.
    pub reports: Option<bool>,
    /// The files with static pods of each node, if there are any.
    pub static_pods: Option<manifests::Options>,
}

/// Nodes at work. Clones are the same fleet.
pub struct Fleet<R> {
    inner: Arc<Inner<R>>,
}

impl<R> Clone for Fleet<R> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

struct Inner<R> {
    template: Template,
    devices: Option<SliceTemplate>,
    endpoint: Option<SocketAddr>,
    client: Client,
    cache: Arc<CompileCache>,
    /// Thread for pods with expressions.
    costly: CostlyWork,
    features: Features,
    clock: Clock,
    runtime: R,
    members: Members,
    adopts: bool,
    adopted: Option<Selector>,
    /// Deprecated annotations that were logged.
    deprecated: Mutex<HashSet<String>>,
    reports: Option<bool>,
    client_for: ClientFactory,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    slices: Informer<ResourceSlice>,
    static_pods: StaticPods,
    manifests: Option<manifests::Options>,
    node_queue: Arc<Queue<Text>>,
    pod_queue: Arc<Queue<Key>>,
}

impl<R: Runtime> Fleet<R> {
    /// A fleet that is not at work yet. Needs a Tokio runtime.
    #[must_use]
    pub fn new(options: Options, runtime: R) -> Self {
        let members = options.nodes.iter().enumerate();
        let members = Members::new(
            members.map(|(number, name)| Member::new(name, number, (options.client_for)(name), runtime.recorder())),
        );
        let mine = |field: &str| match options.nodes.as_slice() {
            [only] if !options.adopts => Selection { fields: format!("{field}={only}"), ..Selection::default() },
            _ => Selection::default(),
        };
        let mut of_pods = mine("spec.nodeName");
        if of_pods.fields.is_empty() {
            of_pods.fields = "spec.nodeName!=".to_owned();
        }
        let slices: Informer<ResourceSlice> = Informer::start(&options.client, mine("spec.nodeName"));
        slices.store().add_index(devices::BY_NODE, |slice| slice.spec.node_name.iter().cloned().collect());
        Self {
            inner: Arc::new(Inner {
                members,
                adopts: options.adopts,
                adopted: options.adopted,
                deprecated: Mutex::default(),
                reports: options.reports,
                client_for: options.client_for,
                template: options.template,
                devices: options.devices,
                endpoint: options.endpoint,
                cache: options.cache,
                costly: CostlyWork::default(),
                features: options.features,
                runtime,
                nodes: Informer::start(&options.client, mine("metadata.name")),
                pods: Informer::start(&options.client, of_pods),
                slices,
                client: options.client,
                static_pods: StaticPods::default(),
                manifests: options.static_pods,
                node_queue: Arc::new(Queue::new(PAUSES, None).with_clock(&options.clock)),
                pod_queue: Arc::new(Queue::new(PAUSES, None).with_clock(&options.clock)),
                clock: options.clock,
            }),
        }
    }

    /// Registers the nodes, keeps them alive and looks after their pods, until `stop` is ready.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        let fleet = self.inner.clone();
        tasks.spawn(async move { fleet.work().await });
        stop.await;
        self.inner.node_queue.close();
        self.inner.pod_queue.close();
    }

    /// Checks that the state of nodes and pods is reliable.
    ///
    /// # Errors
    /// Why not.
    pub fn health(&self) -> Result<(), String> {
        self.inner.nodes.health().and_then(|()| self.inner.pods.health()).and_then(|()| self.inner.slices.health())
    }

    /// Whether a node belongs to the fleet.
    #[must_use]
    pub fn has_node(&self, name: &str) -> bool {
        self.inner.members.contains(name)
    }

    /// A pod of the fleet: one from a file, or one of the server's.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let fleet = &self.inner;
        let from_file = fleet.static_pods.get(&Key::new(namespace, name)).map(|it| Arc::new(it.pod.clone()));
        from_file.or_else(|| fleet.pods.store().get(namespace, name)).filter(|pod| self.has_node(&pod.spec.node_name))
    }

    /// Returns the requested part of a container's log.
    ///
    /// # Errors
    /// Why there is nothing to be read, as `kubectl logs` shows it.
    pub async fn logs(
        &self,
        namespace: &str,
        name: &str,
        container: &str,
        options: &logs::Options,
    ) -> Result<String, String> {
        let fleet = &self.inner;
        let pod = self.pod(namespace, name).ok_or_else(|| format!("pod \"{name}\" not found on this node"))?;
        let now = fleet.clock.now();
        let lines = fleet.runtime.logs(&pod, container, options, now).await?;
        Ok(options.render(&lines, now))
    }
}

impl<R: Runtime> Inner<R> {
    async fn work(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        for _ in 0..POD_WORKERS {
            tasks.spawn(self.clone().work_on_pods());
        }
        // Pods from files do not wait for the server.
        if let Some(options) = self.manifests.clone() {
            tasks.spawn(self.clone().follow_files(options));
        }
        self.nodes.synced().await;
        for node in self.nodes.store().list() {
            self.adopt(&node);
        }
        self.register_all().await;
        self.pods.synced().await;
        self.slices.synced().await;
        self.adopt_running();
        self.retain_pods();
        info!(nodes = self.members.len(), pods = self.pods.store().len(), "Started nodes");
        self.listen();
        tasks.spawn(self.clone().keep_alive());
        tasks.spawn(self.clone().run_runtime());
        for _ in 0..NODE_WORKERS {
            tasks.spawn(self.clone().work_on_nodes());
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Registers handlers of changes. They hold no more than they need, so that the informers can end.
    fn listen(self: &Arc<Self>) {
        let fleet = Arc::downgrade(self);
        self.nodes.on_change(move |key, change| {
            if let Some(fleet) = fleet.upgrade() {
                fleet.node_changed(key, change);
            }
        });
        let fleet = Arc::downgrade(self);
        self.slices.on_change(move |_, change| {
            let Some(fleet) = fleet.upgrade() else { return };
            let slice = change.newest();
            if let Some(node) = slice.spec.node_name.as_ref().filter(|_| devices::is_ours(slice)) {
                fleet.node_queue.add(node.clone());
            }
        });
        let fleet = Arc::downgrade(self);
        self.pods.on_change(move |key, change| {
            let Some(fleet) = fleet.upgrade() else { return };
            match change {
                Change::Deleted(pod) => fleet.forget(pod),
                Change::Updated { old, new } if old.metadata.uid != new.metadata.uid => fleet.forget(old),
                _ => {}
            }
            if fleet.members.contains(&change.newest().spec.node_name) {
                fleet.report_annotations_of_pod(change);
                fleet.pod_queue.add(key.clone());
            }
        });
    }

    /// Whether container events are recorded.
    fn reports(&self) -> bool {
        // Real containers have their own events.
        R::IS_SIMULATED && self.reports.unwrap_or_else(|| self.members.len() <= TELLING_MAX)
    }

    /// Adds a node to the fleet if it requests simulation.
    fn adopt(&self, node: &Node) {
        if self.adopts && members::asks(node, self.adopted.as_ref()) {
            self.members.adopt(node, |name, number| {
                Member::new(name, number, (self.client_for)(name), self.runtime.recorder())
            });
        }
    }

    fn node_changed(&self, key: &Key, change: &Change<Node>) {
        if !matches!(change, Change::Deleted(_)) && !self.members.contains(&key.name) {
            self.adopt(change.newest());
            self.look_after_pods_of(&key.name);
        }
        let Some(member) = self.members.get(&key.name) else { return };
        self.report_annotations_of_node(&member, change);
        match change {
            // A deleted node stays deleted until the next start, as with a kubelet.
            Change::Deleted(_) => member.is_gone(true),
            _ => {
                member.is_gone(false);
                let was_stopped = member.faults().stopped;
                // Annotations play faults of simulated nodes only.
                if R::IS_SIMULATED {
                    member.set_faults(crate::faults::Faults::of(&change.newest().metadata.annotations));
                }
                if was_stopped && !member.faults().stopped {
                    self.look_after_pods_of(&key.name);
                }
                if let Change::Updated { old, new } = change
                    && old.metadata.labels != new.metadata.labels
                {
                    // Volumes that could not be reached from the node may be now.
                    let waiting: Vec<Key> = member.state().unmounted.values().cloned().collect();
                    waiting.into_iter().for_each(|pod| self.pod_queue.add(pod));
                }
            }
        }
        if matches!(change, Change::Added(_)) {
            self.static_pods.of_node(&key.name).into_iter().for_each(|pod| self.pod_queue.add(pod));
        }
        self.node_queue.add(key.name.clone());
    }

    /// Queues all pods of a node.
    fn look_after_pods_of(&self, node: &str) {
        for (key, pod) in self.pods.store().entries() {
            if pod.spec.node_name == node {
                self.pod_queue.add(key);
            }
        }
        self.static_pods.of_node(node).into_iter().for_each(|key| self.pod_queue.add(key));
    }
}
