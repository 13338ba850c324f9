//! What does it cost to know all pods and nodes: memory per object, time to sync, time until a restarted server is followed?
//!
//! `cargo run --release -p celplane-bench --bin informers` fills a durable store with pods and nodes, follows them with the
//! informers of a scheduler, then with those of controllers and of a fleet in the same process, and restarts the server.

#![allow(clippy::arithmetic_side_effects, clippy::cast_precision_loss, reason = "numbers of a table")]

use locks::Mutex;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::core::v1::{Node, Pod};
use api::json::Value;
use apiserver::identity::User;
use apiserver::{Body, Options, Server};
use bytes::Bytes;
use celplane_bench::memory;
use clap::Parser;
use client::objects::Selection;
use client::{Client, DecodedObjects, Informer, Informers, Resource};
use http::{Request, Response};
use http_body_util::Full;
use store::EmbeddedStore;

/// As the product has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: Resource = Resource::new("", "v1", "nodes", "Node");
const PODS: Resource = Resource::new("", "v1", "pods", "Pod");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces", "Namespace");
const ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");

/// Number of concurrent clients that create objects.
const CREATORS: usize = 64;
/// Time limit for all expected events.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Measures informers
#[derive(Parser)]
struct Arguments {
    /// Number of nodes
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Number of pods
    #[arg(long, default_value_t = 50_000)]
    pods: usize,
    /// Each component decodes for itself
    #[arg(long)]
    apart: bool,
}

/// A way to whichever server serves now, or to none.
#[derive(Clone, Default)]
struct Switch(Arc<Mutex<Option<Arc<Server>>>>);

impl Switch {
    fn set(&self, server: Option<Arc<Server>>) {
        *self.0.lock() = server;
    }
}

impl tower_service::Service<Request<Full<Bytes>>> for Switch {
    type Response = Response<Body>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, std::io::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), std::io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let server = self.0.lock().clone();
        Box::pin(async move {
            let Some(server) = server else { return Err(std::io::ErrorKind::ConnectionRefused.into()) };
            Ok(server.handle(request, Some(&User::authenticated("admin", &["system:masters"]))).await)
        })
    }
}

async fn start(directory: &Path) -> Result<Arc<Server>> {
    let store = EmbeddedStore::open(directory.join("store.redb"), store::Options::default())?;
    Ok(Server::start(Arc::new(store), Options::default()).await?)
}

/// As a ReplicaSet makes them, bound and running.
fn pod(number: usize, nodes: usize) -> Value {
    let set = number / 10;
    let container = api::json!({
        "name": "app", "image": "registry.example.com/team/app:v1.2.3", "command": ["/bin/app", "--port=8080"],
        "env": [{"name": "MODE", "value": "production"}], "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}}
    });
    api::json!({
        "metadata": {
            "name": (format!("app-{set}-7957885594-{number:06}")),
            "labels": {"app": (format!("app-{set}")), "pod-template-hash": "7957885594"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": (format!("app-{set}-7957885594")),
                "uid": (format!("{set:08x}-0000-4000-8000-000000000000")), "controller": true, "blockOwnerDeletion": true
            }]
        },
        "spec": {"nodeName": (format!("node-{}", number % nodes.max(1))), "containers": [container]}
    })
}

fn node(number: usize) -> Value {
    let name = format!("node-{number}");
    let zone = format!("zone-{}", number % 3);
    let size = api::json!({"cpu": "32", "memory": "128Gi", "pods": "110"});
    api::json!({
        "metadata": {"name": (name.clone()), "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}},
        "status": {"capacity": (size.clone()), "allocatable": size}
    })
}

async fn create(
    client: &Client,
    resource: &Resource,
    namespace: &str,
    objects: impl Iterator<Item = Value>,
) -> Result<()> {
    let waiting = Mutex::new(objects);
    let creators = (0..CREATORS).map(|_| async {
        let api = client.documents(resource.clone());
        loop {
            let next = waiting.lock().next();
            let Some(object) = next else { return Ok::<_, client::Error>(()) };
            api.create(namespace, &object).await?;
        }
    });
    futures::future::try_join_all(creators).await?;
    Ok(())
}

/// Pods and nodes as one component follows them.
struct FollowedObjects {
    name: &'static str,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
}

async fn follow(name: &'static str, client: &Client, selects: bool, arguments: &Arguments) -> Result<FollowedObjects> {
    let (before, begun) = (memory::resident_bytes().context("memory")?, Instant::now());
    let informers = Informers::new(client.clone());
    let fields = if selects { "spec.nodeName!=".to_owned() } else { String::new() };
    let pods: Informer<Pod> = informers.of(&Selection { fields, ..Selection::default() });
    pods.synced().await;
    let (with_pods, pods_took) = (memory::resident_bytes().context("memory")?, begun.elapsed());
    let nodes: Informer<Node> = informers.all();
    nodes.synced().await;
    let (with_nodes, took) = (memory::resident_bytes().context("memory")?, begun.elapsed());
    ensure!((pods.store().len(), nodes.store().len()) == (arguments.pods, arguments.nodes), "objects are missing");
    let each = |from: u64, to: u64, count: usize| memory::size(to.saturating_sub(from) as f64 / count.max(1) as f64);
    println!(
        "{name:<12} {:>12} {:>12} {:>10.0} {:>10.0}",
        each(before, with_pods, arguments.pods),
        each(with_pods, with_nodes, arguments.nodes),
        pods_took.as_secs_f64() * 1e3,
        (took - pods_took).as_secs_f64() * 1e3
    );
    Ok(FollowedObjects { name, pods, nodes })
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let directory = tempfile::Builder::new().prefix("celplane-bench-").tempdir_in(".")?;
    let (switch, decoded) = (Switch::default(), Arc::<DecodedObjects>::default());
    let server = start(directory.path()).await?;
    switch.set(Some(server.clone()));
    let admin = Client::in_process(switch.clone(), "bench");
    create(&admin, &NAMESPACES, "", std::iter::once(api::json!({"metadata": {"name": "bench"}}))).await?;
    create(&admin, &ACCOUNTS, "bench", std::iter::once(api::json!({"metadata": {"name": "default"}}))).await?;
    create(&admin, &NODES, "", (0..arguments.nodes).map(node)).await?;
    create(&admin, &PODS, "bench", (0..arguments.pods).map(|number| pod(number, arguments.nodes))).await?;
    let resident = memory::resident_bytes().context("memory")?;
    println!(
        "{} pods, {} nodes; the server alone takes {}",
        arguments.pods,
        arguments.nodes,
        memory::size(resident as f64)
    );
    println!("{:<12} {:>12} {:>12} {:>10} {:>10}", "component", "per pod", "per node", "pods ms", "nodes ms");
    let client = |name: &str| {
        let client = Client::in_process(switch.clone(), name);
        if arguments.apart { client } else { client.sharing(&decoded) }
    };
    let components = [
        follow("scheduler", &client("scheduler"), false, &arguments).await?,
        follow("controllers", &client("controllers"), false, &arguments).await?,
        follow("fleet", &client("fleet"), true, &arguments).await?,
    ];
    let counts = decoded.counts();
    println!("decoded {} times, found decoded {} times", counts.decoded, counts.shared);
    println!("all together {}", memory::size(memory::resident_bytes().context("memory")? as f64));

    let begun = Instant::now();
    switch.set(None);
    server.stop().await?;
    drop(server);
    let stopped = begun.elapsed();
    let server = start(directory.path()).await?;
    switch.set(Some(server.clone()));
    let started = begun.elapsed();
    // Observing this proves that a watcher follows the new server.
    create(&admin, &PODS, "bench", std::iter::once(pod(arguments.pods, arguments.nodes))).await?;
    create(&admin, &NODES, "", std::iter::once(node(arguments.nodes))).await?;
    for component in &components {
        while component.pods.store().len() <= arguments.pods || component.nodes.store().len() <= arguments.nodes {
            ensure!(begun.elapsed() < TIMEOUT, "{} does not follow the new server", component.name);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    println!(
        "restart: stopped after {:.0} ms, serves after {:.0} ms, followed by all after {:.0} ms",
        stopped.as_secs_f64() * 1e3,
        started.as_secs_f64() * 1e3,
        begun.elapsed().as_secs_f64() * 1e3
    );
    server.stop().await?;
    Ok(())
}
