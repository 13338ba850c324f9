//! A workload on API server, durable store and scheduler in one process, from create to bound with its event.
//!
//! Nodes are objects only. Pods are created by clients in the same process, whose requests skip only the
//! socket; their processor time counts as well. Or on a running control plane, over TLS, with its own nodes or
//! without.

use locks::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use api::features::{Features, Gate};
use api::json::Value;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::{Options, Server};
use client::election::Leadership;
use client::informer::Change;
use client::objects::{Deletion, Selection};
use client::{Client, Health, Informer, Resource, Shutdown, Stop};
use http::Method;
use store::{EmbeddedStore, Store};
use telemetry::metrics::Registry;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::Size;
use super::stages::{self, MeteredConnection, Stages};
use super::workload::Workload;
use crate::load::latencies::Latencies;
use crate::load::target::processor_seconds;
use crate::memory;

const NODES: Resource = Resource::new("", "v1", "nodes", "Node");
const PODS: Resource = Resource::new("", "v1", "pods", "Pod");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces", "Namespace");
const CLASSES: Resource = Resource::new("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass");
const ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");

/// Pods that are not bound by then never will be.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Interval at which throughput is recorded.
const INTERVAL: Duration = Duration::from_millis(500);

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This many clients create pods at a time.
    pub creators: usize,
    /// Objects are kept in memory only.
    pub ephemeral: bool,
    /// Events go after this time.
    pub event_ttl: Duration,
    /// Processor time is measured by stage.
    pub stages: bool,
    /// The control plane that runs already.
    pub running: Option<RunningPlane>,
}

/// A control plane that runs already, and is spoken to over TLS.
#[derive(Debug, Clone)]
pub struct RunningPlane {
    /// Path to the kubeconfig.
    pub kubeconfig: PathBuf,
    /// Processes whose time and memory count.
    pub processes: Vec<u32>,
    /// Whether it has nodes that run pods: the measurement ends when they run.
    pub has_nodes: bool,
    /// Whether every binding has an event: the measurement ends with the last one. kube-scheduler drops events under load.
    pub has_events: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let event_ttl = Options::default().event_ttl;
        Self { creators: 64, ephemeral: false, event_ttl, stages: false, running: None }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Report {
    /// From the first create to the last binding and event.
    pub took: Duration,
    /// Processor time of the whole process meanwhile, in seconds, or of all processes and this one.
    pub processor_seconds: f64,
    /// The part of it that this process used, in seconds.
    pub own_seconds: f64,
    /// From the request to create a pod until a watcher sees it bound.
    pub latencies: Latencies,
    /// Number of pods bound in each half second.
    pub over_time: Vec<usize>,
    /// Memory at the end, of the process or of all processes of a running control plane.
    pub resident_bytes: Option<u64>,
    /// Time of each stage in seconds, if enabled.
    pub stages: Vec<(&'static str, f64)>,
}

/// Times at which pods were created and bound.
#[derive(Debug, Default)]
struct ObservedPods {
    created: HashMap<String, Instant>,
    bound: usize,
    latencies: Latencies,
    over_time: Vec<usize>,
    begun: Option<Instant>,
}

pub(super) struct Cluster {
    own: Option<OwnPlane>,
    running: Option<RunningPlane>,
    admin: Client,
    seen: Arc<Mutex<ObservedPods>>,
    creators: usize,
    _watch: Informer<Value>,
}

/// Server and scheduler in this process.
struct OwnPlane {
    server: Arc<Server>,
    stop: Stop,
    scheduler: tokio::task::JoinHandle<Result<(), scheduler::StartError>>,
    registry: Arc<Registry>,
    stages: Option<Arc<Stages>>,
    _directory: Option<TempDir>,
}

/// Plays a workload.
///
/// # Errors
/// Something could not be made, or pods were not bound.
pub async fn run(workload: &Workload, size: Size, settings: Settings) -> Result<Report> {
    let cluster = Cluster::start(workload, &settings).await?;
    let sets = workload.sets(size);
    cluster.create_nodes(workload, size).await?;
    let mut placed_before = Vec::new();
    for (before, prefix, count) in workload.pods_before(size) {
        let mut pods = (0..count).map(|number| before.pod(&prefix, number, sets)).collect::<Result<Vec<_>>>()?;
        cluster.give_classes(&mut pods).await?;
        cluster.create(PODS, "bench", pods).await?;
        if before.waiting {
            cluster.rejected(count).await?;
        } else {
            placed_before.extend((0..count).map(|number| format!("{prefix}{number}")));
            cluster.bound(placed_before.len()).await?;
        }
    }
    let (events, bound) = (cluster.events().await?, placed_before.len());
    let mut pods = (0..size.pods).map(|number| workload.measured_pod(number, sets)).collect::<Result<Vec<_>>>()?;
    cluster.give_classes(&mut pods).await?;
    cluster.seen().begun = Some(Instant::now());
    let stages_before = cluster.begin_stages();
    let (begun, before, own_before) = (Instant::now(), cluster.processor_seconds()?, own_seconds()?);
    let created = cluster.create(PODS, "bench", pods);
    tokio::try_join!(created, cluster.churn(workload, size, bound, placed_before))?;
    cluster.bound(bound.saturating_add(size.pods)).await?;
    if cluster.running.as_ref().is_none_or(|running| running.has_events && !running.has_nodes) {
        cluster.has_events(events.saturating_add(size.pods)).await?;
    }
    let took = begun.elapsed();
    let processor_seconds = cluster.processor_seconds()? - before;
    let own_seconds = own_seconds()? - own_before;
    let stages = cluster.stages(stages_before, processor_seconds);
    let seen = std::mem::take(&mut *cluster.seen());
    let report = Report {
        took,
        processor_seconds,
        own_seconds,
        latencies: seen.latencies,
        over_time: seen.over_time,
        resident_bytes: cluster.resident_bytes(),
        stages,
    };
    cluster.end().await?;
    Ok(report)
}

fn own_seconds() -> Result<f64> {
    processor_seconds("self").context("processor time")
}

impl Cluster {
    pub(super) async fn start(workload: &Workload, settings: &Settings) -> Result<Self> {
        let (own, admin) = match &settings.running {
            Some(running) => {
                let admin = Client::from_kubeconfig(&running.kubeconfig, None, "bench").await;
                (None, admin.map_err(|error| anyhow!("{error}"))?)
            }
            None => {
                let (own, admin) = OwnPlane::start(workload, settings).await?;
                (Some(own), admin)
            }
        };
        let seen: Arc<Mutex<ObservedPods>> = Arc::default();
        let running = settings.running.clone();
        let done =
            if running.as_ref().is_some_and(|it| it.has_nodes) { "status.phase=Running" } else { "spec.nodeName!=" };
        let watch = watch(&admin, &seen, done);
        let cluster = Self { own, running, admin, seen, creators: settings.creators, _watch: watch };
        for (resource, namespace, name) in [(NAMESPACES, "", "bench"), (ACCOUNTS, "bench", "default")] {
            match cluster.admin.documents(resource).create(namespace, &api::json!({"metadata": {"name": name}})).await {
                // Its controllers may have been faster.
                Err(error) if !error.is_already_exists() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(cluster)
    }

    /// Whether nodes run the pods.
    fn has_nodes(&self) -> bool {
        self.running.as_ref().is_some_and(|it| it.has_nodes)
    }

    /// Nodes as objects, unless there are real ones.
    pub(super) async fn create_nodes(&self, workload: &Workload, size: Size) -> Result<()> {
        if self.has_nodes() {
            return Ok(());
        }
        let sets = workload.sets(size);
        let nodes = (0..size.nodes).map(|number| workload.node(number, sets)).collect::<Result<Vec<_>>>()?;
        self.create(NODES, "", nodes.clone()).await?;
        self.untaint(nodes).await
    }

    /// The processor time of all processes, this one included.
    fn processor_seconds(&self) -> Result<f64> {
        let others = self.running.iter().flat_map(|it| &it.processes).map(|id| processor_seconds(&id.to_string()));
        others.chain([processor_seconds("self")]).sum::<Option<f64>>().context("processor time")
    }

    pub(super) fn resident_bytes(&self) -> Option<u64> {
        match &self.running {
            None => memory::resident_bytes(),
            Some(running) => running.processes.iter().map(|id| memory::resident_bytes_of(*id)).sum(),
        }
    }

    /// Returns the times of the stages outside of requests so far.
    fn begin_stages(&self) -> [f64; 4] {
        let Some(own) = &self.own else { return [0.0; 4] };
        if let Some(stages) = &own.stages {
            stages.reset();
        }
        own.aside()
    }

    /// Returns the times of each stage since then, and the rest of the total.
    fn stages(&self, before: [f64; 4], all: f64) -> Vec<(&'static str, f64)> {
        let Some((own, stages)) = self.own.as_ref().and_then(|own| Some((own, own.stages.as_ref()?))) else {
            return Vec::new();
        };
        let mut taken: Vec<(&'static str, f64)> = stages.seconds().collect();
        let names = ["filter", "score", "queue, and the rest of an attempt", "store: its own threads"];
        taken.extend(names.into_iter().zip(own.aside().into_iter().zip(before).map(|(after, before)| after - before)));
        let rest = all - taken.iter().map(|(_, seconds)| seconds).sum::<f64>();
        taken.push(("rest: clients, decoding of what is watched, tasks", rest));
        taken
    }

    fn seen(&self) -> locks::MutexGuard<'_, ObservedPods> {
        self.seen.lock()
    }

    /// Priorities come from classes: users may not write the number.
    async fn give_classes(&self, pods: &mut [Value]) -> Result<()> {
        let mut priorities = std::collections::BTreeSet::new();
        for spec in pods.iter_mut().filter_map(|pod| pod.get_mut("spec").and_then(Value::as_object_mut)) {
            if let Some(priority) = spec.remove("priority").as_ref().and_then(Value::as_i64) {
                spec.insert("priorityClassName", format!("priority-{priority}"));
                priorities.insert(priority);
            }
        }
        for priority in priorities {
            let class = api::json!({"metadata": {"name": (format!("priority-{priority}"))}, "value": priority});
            match self.admin.documents(CLASSES).create("", &class).await {
                Err(error) if !error.is_already_exists() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates objects, many at a time.
    async fn create(&self, resource: Resource, namespace: &'static str, objects: Vec<Value>) -> Result<()> {
        let waiting = Arc::new(Mutex::new(objects.into_iter()));
        let mut creators = JoinSet::new();
        for _ in 0..self.creators {
            let (api, waiting, seen) = (self.admin.documents(resource.clone()), waiting.clone(), self.seen.clone());
            creators.spawn(async move {
                loop {
                    let next = waiting.lock().next();
                    let Some(object) = next else { return Ok::<_, client::Error>(()) };
                    let name = object.text_at(&["metadata", "name"]).to_owned();
                    seen.lock().created.insert(name, Instant::now());
                    api.create(namespace, &object).await?;
                }
            });
        }
        while let Some(ended) = creators.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// The server taints new nodes as not ready, and no component removes the taint here.
    async fn untaint(&self, nodes: Vec<Value>) -> Result<()> {
        let mut updates = JoinSet::new();
        for node in nodes {
            let api = self.admin.documents(NODES);
            updates.spawn(async move {
                let name = node.text_at(&["metadata", "name"]).to_owned();
                api.update("", &name, &node).await
            });
            while updates.len() >= self.creators
                && let Some(ended) = updates.join_next().await
            {
                ended??;
            }
        }
        while let Some(ended) = updates.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Applies changes while pods are measured.
    async fn churn(&self, workload: &Workload, size: Size, bound: usize, mut placed: Vec<String>) -> Result<()> {
        let Some(churn) = &workload.churn else { return Ok(()) };
        let (nodes, pods) = (self.admin.documents(NODES), self.admin.documents(PODS));
        let (mut next, mut turn) = (churn.every_pods, 0_usize);
        while next <= size.pods {
            self.bound(bound.saturating_add(next)).await?;
            for _ in 0..size.scaled(churn.nodes) {
                let number = turn.checked_rem(size.nodes).unwrap_or(0);
                let node = workload.changed_node(size.nodes, turn, workload.sets(size))?;
                nodes.update("", &format!("n{number}"), &node).await?;
                turn = turn.saturating_add(1);
            }
            for name in placed.drain(..churn.delete_pods.min(placed.len())) {
                let how = Deletion { grace_period_seconds: Some(0), ..Deletion::default() };
                pods.delete("bench", &name, &how).await?;
            }
            next = next.saturating_add(churn.every_pods.max(1));
        }
        Ok(())
    }

    /// Creates pods, many at a time.
    pub(super) async fn create_pods(&self, pods: Vec<Value>) -> Result<()> {
        self.create(PODS, "bench", pods).await
    }

    /// Deletes pods, many at a time.
    pub(super) async fn delete(&self, names: Vec<String>) -> Result<()> {
        let mut deletions = JoinSet::new();
        for name in names {
            let api = self.admin.documents(PODS);
            deletions.spawn(async move {
                let how = Deletion { grace_period_seconds: Some(0), ..Deletion::default() };
                api.delete("bench", &name, &how).await
            });
            while deletions.len() >= self.creators
                && let Some(ended) = deletions.join_next().await
            {
                ended??;
            }
        }
        while let Some(ended) = deletions.join_next().await {
            ended??;
        }
        Ok(())
    }

    /// Waits until this many pods are bound, or run where nodes run them.
    pub(super) async fn bound(&self, count: usize) -> Result<()> {
        let begun = Instant::now();
        while self.seen().bound < count {
            let bound = self.seen().bound;
            ensure!(begun.elapsed() < TIMEOUT, "{bound} of {count} pods were bound in time");
            ensure!(!self.own.as_ref().is_some_and(|own| own.scheduler.is_finished()), "the scheduler ended");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Waits until this many pods were found to fit nowhere.
    async fn rejected(&self, count: usize) -> Result<()> {
        let begun = Instant::now();
        while self.events().await? < count {
            ensure!(begun.elapsed() < TIMEOUT, "pods that fit nowhere were not rejected in time");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Waits until there are this many events.
    async fn has_events(&self, count: usize) -> Result<()> {
        let begun = Instant::now();
        loop {
            let events = self.events().await?;
            if events >= count {
                return Ok(());
            }
            ensure!(begun.elapsed() < TIMEOUT, "{events} of {count} events were written in time");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Number of events.
    async fn events(&self) -> Result<usize> {
        let path = "/api/v1/namespaces/bench/events?limit=1";
        let body = self.admin.send(Method::GET, path, "", String::new()).await?;
        let list = api::json::parse(&body)?;
        let items = list.get("items").and_then(Value::as_array).map_or(0, <[Value]>::len);
        let more = list.int_at(&["metadata", "remainingItemCount"]);
        Ok(items.saturating_add(usize::try_from(more).unwrap_or(0)))
    }

    pub(super) async fn end(self) -> Result<()> {
        let Some(own) = self.own else { return Ok(()) };
        own.stop.stop();
        own.scheduler.await??;
        own.server.stop().await?;
        Ok(())
    }
}

impl OwnPlane {
    async fn start(workload: &Workload, settings: &Settings) -> Result<(Self, Client)> {
        let mut directory = None;
        let store: Arc<dyn Store> = if settings.ephemeral {
            Arc::new(EmbeddedStore::in_memory(store::Options::default())?)
        } else {
            let made = tempfile::Builder::new().prefix("celplane-bench-").tempdir_in(".")?;
            let store = EmbeddedStore::open(made.path().join("store.redb"), store::Options::default())?;
            directory = Some(made);
            Arc::new(store)
        };
        let features = match workload.gates_off {
            true => Features::default(),
            // `Gt` has a separate gate.
            false => Features::all_proposals().with(Gate::TaintTolerationComparisonOperators, true),
        };
        let options = Options { features, event_ttl: settings.event_ttl, ..Options::default() };
        let server = Server::start(store, options).await?;
        let stages = settings.stages.then(Arc::<Stages>::default);
        let connect = |user: User, component: &str| {
            let connection = Connection::new(server.clone(), Some(user));
            match stages.clone() {
                Some(stages) => Client::in_process(MeteredConnection { connection, stages }, component),
                None => Client::in_process(connection, component),
            }
        };
        let admin = connect(User::authenticated("admin", &["system:masters"]), "bench");
        let (stop, shutdown) = Shutdown::channel();
        let registry = Arc::new(Registry::new());
        let scheduler = tokio::spawn(scheduler::run(scheduler::Options {
            client: connect(User::authenticated(scheduler::IDENTITY, &[]), "kube-scheduler"),
            features,
            registry: registry.clone(),
            health: Health::new(),
            shutdown,
            leadership: Leadership::uncontested(),
            seed: 1,
            device_cost_limit: dra::Budget::COST_LIMIT,
            configuration: Default::default(),
            profiler: Default::default(),
            has_placement_annotations: false,
        }));
        Ok((Self { server, stop, scheduler, registry, stages, _directory: directory }, admin))
    }

    /// Returns the times of filters, scores, the rest of attempts, and the store's threads so far.
    fn aside(&self) -> [f64; 4] {
        let metrics = self.registry.text();
        let point = |name: &str| {
            let label = format!("extension_point=\"{name}\"");
            stages::sum(&metrics, "scheduler_framework_extension_point_duration_seconds_sum", &label)
        };
        let filter = point("PreFilter") + point("Filter");
        let score = point("PreScore") + point("Score");
        let attempts = stages::sum(&metrics, "scheduler_scheduling_algorithm_duration_seconds_sum", "");
        [filter, score, attempts - filter - score, stages::threads_seconds("store-")]
    }
}

/// Notes when pods are bound.
fn watch(admin: &Client, seen: &Arc<Mutex<ObservedPods>>, done: &str) -> Informer<Value> {
    let selection = Selection { fields: done.to_owned(), ..Selection::default() };
    // Only the names of pods are needed.
    let watch = Informer::decoding(admin, PODS, selection, |_| Ok(Value::Null));
    let seen = seen.clone();
    watch.on_change(move |key, change| {
        if !matches!(change, Change::Added(_)) {
            return;
        }
        let mut seen = seen.lock();
        seen.bound = seen.bound.saturating_add(1);
        let (created, begun) = (seen.created.remove(key.name.as_str()), seen.begun);
        if let (Some(created), Some(begun)) = (created, begun) {
            seen.latencies.add(created.elapsed());
            let slot = begun.elapsed().as_millis().checked_div(INTERVAL.as_millis()).unwrap_or(0);
            let slot = usize::try_from(slot).unwrap_or(0);
            if seen.over_time.len() <= slot {
                seen.over_time.resize(slot.saturating_add(1), 0);
            }
            if let Some(count) = seen.over_time.get_mut(slot) {
                *count = count.saturating_add(1);
            }
        }
    });
    watch
}
