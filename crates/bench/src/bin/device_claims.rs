//! How many pods with claims to devices are bound per second, and at what cost: workloads after those of Kubernetes'
//! scheduler_perf for dynamic resource allocation.
//!
//! `cargo run --release -p celplane-bench --bin device_claims` plays them on API server, durable store, scheduler and the
//! controller of claims in one process. Nodes and devices are objects only. Each pod has a claim from a template; measured
//! is from the first create to the last binding and its event, the clients that create pods included.

use locks::Mutex;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::features::Features;
use api::json::Value;
use apiserver::identity::User;
use apiserver::server::listen::Connection;
use apiserver::{Options, Server};
use celplane_bench::load::target::processor_seconds;
use clap::Parser;
use client::election::Leadership;
use client::informer::Change;
use client::objects::Selection;
use client::{Client, Health, Informer, Resource, Shutdown, Stop};
use http::Method;
use kubelet::slice_template::SliceTemplate;
use store::{EmbeddedStore, Store};
use telemetry::metrics::Registry;
use tokio::task::JoinSet;

/// As the product has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: Resource = Resource::new("", "v1", "nodes", "Node");
const PODS: Resource = Resource::new("", "v1", "pods", "Pod");
const NAMESPACES: Resource = Resource::new("", "v1", "namespaces", "Namespace");
const ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts", "ServiceAccount");
const CLASSES: Resource = Resource::new("resource.k8s.io", "v1", "deviceclasses", "DeviceClass");
const SLICES: Resource = Resource::new("resource.k8s.io", "v1", "resourceslices", "ResourceSlice");
const TEMPLATES: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate");
const CREATORS: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(300);

/// Measures the scheduler with claims to devices
#[derive(Parser)]
struct Arguments {
    /// Number of runs of each workload
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// No more nodes than this
    #[arg(long, default_value_t = usize::MAX)]
    nodes: usize,
    /// No more pods than this
    #[arg(long, default_value_t = usize::MAX)]
    pods: usize,
    /// Workloads to run; all by default
    workloads: Vec<String>,
}

/// A workload.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    nodes: usize,
    devices: &'static str,
    pods: usize,
    /// Number of devices that each pod requests.
    count: usize,
    selector: &'static str,
    constraint: &'static str,
}

const PLAIN: Workload = Workload {
    name: "templates-200x10",
    nodes: 200,
    devices: "numa:2x5",
    pods: 2000,
    count: 1,
    selector: "",
    constraint: "",
};

const WORKLOADS: &[Workload] = &[
    PLAIN,
    Workload { name: "templates-500x10", nodes: 500, pods: 5000, ..PLAIN },
    Workload { name: "templates-100x128", nodes: 100, devices: "numa:2x64", pods: 2000, count: 4, ..PLAIN },
    Workload {
        name: "selectors-200x10",
        pods: 1000,
        selector: "device.attributes['mla.example.com'].deviceid % 2 == 0",
        ..PLAIN
    },
    Workload {
        name: "match-attribute-200x10",
        pods: 800,
        count: 2,
        constraint: r#"{"matchAttribute": "mla.example.com/numa"}"#,
        ..PLAIN
    },
    Workload {
        name: "cel-200x10",
        pods: 800,
        count: 2,
        constraint: r#"{"cel": {"expression": "devices.map(d, d.attributes['mla.example.com'].deviceid).max() - devices.map(d, d.attributes['mla.example.com'].deviceid).min() == 1"}}"#,
        ..PLAIN
    },
    Workload {
        name: "cel-100x128",
        nodes: 100,
        devices: "numa:2x64",
        pods: 2000,
        count: 4,
        constraint: r#"{"cel": {"expression": "size(devices) == 4 && devices.map(d, d.attributes['mla.example.com'].deviceid).max() - devices.map(d, d.attributes['mla.example.com'].deviceid).min() == 3"}}"#,
        ..PLAIN
    },
];

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    for name in &arguments.workloads {
        ensure!(WORKLOADS.iter().any(|it| it.name == *name), "there is no workload `{name}`");
    }
    println!("{:<24} {:>6} {:>8} {:>12} {:>11}", "workload", "pods", "pods/s", "CPU µs/pod", "writes/pod");
    let wanted =
        |it: &&Workload| arguments.workloads.is_empty() || arguments.workloads.iter().any(|name| name == it.name);
    for workload in WORKLOADS.iter().filter(wanted) {
        let workload = workload.at_most(arguments.nodes, arguments.pods);
        for _ in 0..arguments.runs.max(1) {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let report = runtime.block_on(run(&workload))?;
            let pods = workload.pods.saturating_sub(1) as f64;
            println!(
                "{:<24} {:>6} {:>8.0} {:>12.0} {:>11.2}",
                workload.name,
                workload.pods,
                pods / report.took.as_secs_f64(),
                report.processor_seconds * 1e6 / pods,
                report.writes.values().sum::<f64>() / pods
            );
            let by_kind: Vec<String> =
                report.writes.iter().map(|(kind, count)| format!("{kind} {:.2}", count / pods)).collect();
            println!("  writes per pod: {}", by_kind.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Workload {
    /// The same with no more nodes, and no more pods than find devices there.
    fn at_most(self, nodes: usize, pods: usize) -> Self {
        let fewer = self.nodes.min(nodes);
        let fitting = self.pods.saturating_mul(fewer).checked_div(self.nodes).unwrap_or(0);
        Workload { nodes: fewer, pods: pods.min(fitting), ..self }
    }
}

/// Result of a run.
struct Report {
    took: Duration,
    processor_seconds: f64,
    /// Number of write requests by verb and resource.
    writes: BTreeMap<String, f64>,
}

async fn run(workload: &Workload) -> Result<Report> {
    let directory = tempfile::Builder::new().prefix("celplane-bench-").tempdir_in(".")?;
    let store: Arc<dyn Store> =
        Arc::new(EmbeddedStore::open(directory.path().join("store.redb"), store::Options::default())?);
    let features = Features::all_proposals();
    let server = Server::start(store, Options { features, ..Options::default() }).await?;
    let admin = connect(&server, "admin", &["system:masters"]);
    prepare(&admin, workload).await?;
    let (stop, scheduler) = components(&server, features);
    let bound = Arc::new(AtomicUsize::new(0));
    let selection = Selection { fields: "spec.nodeName!=".to_owned(), ..Selection::default() };
    let watch: Informer<Value> = Informer::decoding(&admin, PODS, selection, |_| Ok(Value::Null));
    let count = bound.clone();
    watch.on_change(move |_, change| {
        if matches!(change, Change::Added(_)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    // The first pod is not measured: it waits until everybody is at work.
    create(&admin, PODS, "bench", vec![pod("first")]).await?;
    until(&bound, 1).await?;
    has_events(&admin, 1).await?;
    let pods: Vec<Value> = (1..workload.pods).map(|number| pod(&format!("pod-{number}"))).collect();
    let expected = workload.pods;
    let writes = writes(&admin).await?;
    let (begun, before) = (Instant::now(), processor_seconds("self").context("processor time")?);
    create(&admin, PODS, "bench", pods).await?;
    until(&bound, expected).await?;
    has_events(&admin, expected).await?;
    let took = begun.elapsed();
    let processor_seconds = processor_seconds("self").context("processor time")? - before;
    let mut counted = self::writes(&admin).await?;
    for (kind, count) in &mut counted {
        *count -= writes.get(kind).copied().unwrap_or(0.0);
    }
    counted.retain(|_, count| *count > 0.0);
    stop.into_iter().for_each(|stop| stop.stop());
    scheduler.await??;
    server.stop().await?;
    Ok(Report { took, processor_seconds, writes: counted })
}

fn connect(server: &Arc<Server>, user: &str, groups: &[&str]) -> Client {
    let user = User::authenticated(user, groups);
    Client::in_process(Connection::new(server.clone(), Some(user)), "bench")
}

type Scheduling = tokio::task::JoinHandle<Result<(), scheduler::StartError>>;

fn components(server: &Arc<Server>, features: Features) -> (Vec<Stop>, Scheduling) {
    let (stop, shutdown) = Shutdown::channel();
    let scheduler = tokio::spawn(scheduler::run(scheduler::Options {
        client: connect(server, scheduler::IDENTITY, &[]),
        features,
        registry: Arc::new(Registry::new()),
        health: Health::new(),
        shutdown,
        leadership: Leadership::uncontested(),
        seed: 1,
        device_cost_limit: dra::Budget::COST_LIMIT,
        configuration: Default::default(),
        profiler: Default::default(),
        has_placement_annotations: false,
    }));
    let (stop_controllers, shutdown) = Shutdown::channel();
    let server = server.clone();
    tokio::spawn(controllers::manager::run(controllers::manager::Options {
        clients: Arc::new(move |name| connect(&server, name, &["system:masters"])),
        controllers: vec!["resourceclaim-controller".to_owned()],
        features,
        settings: controllers::settings::Settings::default(),
        runtime: client::controller::Runtime::new(&Registry::new(), Health::new(), shutdown),
    }));
    (vec![stop, stop_controllers], scheduler)
}

/// Nodes, devices, class and template.
async fn prepare(admin: &Client, workload: &Workload) -> Result<()> {
    create(admin, NAMESPACES, "", vec![api::json!({"metadata": {"name": "bench"}})]).await?;
    create(admin, ACCOUNTS, "bench", vec![api::json!({"metadata": {"name": "default"}})]).await?;
    let names: Vec<String> = (0..workload.nodes).map(|number| format!("n{number}")).collect();
    let node = |name: &String| {
        let room = || api::json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
        api::json!({
            "metadata": {"name": (name.as_str())},
            "status": {"capacity": (room()), "allocatable": (room()), "conditions": [{"type": "Ready", "status": "True"}]}
        })
    };
    create(admin, NODES, "", names.iter().map(node).collect()).await?;
    for name in &names {
        // The server taints new nodes as not ready, and no component removes the taint here.
        admin.documents(NODES).update("", name, &node(name)).await?;
    }
    let template: SliceTemplate = workload.devices.parse()?;
    create(admin, SLICES, "", names.iter().flat_map(|name| template.slices(name)).collect()).await?;
    let by_driver = "device.driver == 'mla.example.com'";
    let class = api::json!({
        "metadata": {"name": "mla"}, "spec": {"selectors": [{"cel": {"expression": by_driver}}]}
    });
    create(admin, CLASSES, "", vec![class]).await?;
    let selectors = match workload.selector {
        "" => Vec::new(),
        expression => vec![api::json!({"cel": {"expression": expression}})],
    };
    let constraints = match workload.constraint {
        "" => Vec::new(),
        constraint => vec![api::json::parse(constraint.as_bytes())?],
    };
    let count = i64::try_from(workload.count)?;
    let claim = api::json!({
        "metadata": {"name": "claim"},
        "spec": {"spec": {"devices": {
            "requests": [{"name": "r", "exactly": {
                "deviceClassName": "mla", "count": count, "selectors": (Value::Array(selectors))
            }}],
            "constraints": (Value::Array(constraints))
        }}}
    });
    create(admin, TEMPLATES, "bench", vec![claim]).await
}

fn pod(name: &str) -> Value {
    api::json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "registry.example.com/pause:1",
                "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}, "claims": [{"name": "mla"}]}}],
            "resourceClaims": [{"name": "mla", "resourceClaimTemplateName": "claim"}]
        }
    })
}

/// Creates objects, many at a time.
async fn create(admin: &Client, resource: Resource, namespace: &'static str, objects: Vec<Value>) -> Result<()> {
    let waiting = Arc::new(Mutex::new(objects.into_iter()));
    let mut creators = JoinSet::new();
    for _ in 0..CREATORS {
        let (api, waiting) = (admin.documents(resource.clone()), waiting.clone());
        creators.spawn(async move {
            loop {
                let next = waiting.lock().next();
                let Some(object) = next else { return Ok::<_, client::Error>(()) };
                api.create(namespace, &object).await?;
            }
        });
    }
    while let Some(ended) = creators.join_next().await {
        ended??;
    }
    Ok(())
}

async fn until(bound: &AtomicUsize, count: usize) -> Result<()> {
    let begun = Instant::now();
    while bound.load(Ordering::Relaxed) < count {
        let seen = bound.load(Ordering::Relaxed);
        ensure!(begun.elapsed() < TIMEOUT, "{seen} of {count} pods were bound in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// All that writes.
const WRITES: [&str; 5] = ["POST", "PUT", "PATCH", "APPLY", "DELETE"];

/// Number of write requests so far, by verb and resource.
async fn writes(admin: &Client) -> Result<BTreeMap<String, f64>> {
    let metrics = admin.send(Method::GET, "/metrics", "", String::new()).await?;
    let metrics = std::str::from_utf8(&metrics)?;
    let mut writes = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        let (Some(verb), Some(resource)) = (label("verb"), label("resource")) else { continue };
        if WRITES.contains(&verb) && resource != "leases" {
            let below = label("subresource").filter(|it| !it.is_empty()).map(|it| format!("/{it}"));
            let count: f64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
            *writes.entry(format!("{verb} {resource}{}", below.unwrap_or_default())).or_default() += count;
        }
    }
    Ok(writes)
}

/// Waits until there are this many events.
async fn has_events(admin: &Client, count: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let body = admin.send(Method::GET, "/api/v1/namespaces/bench/events?limit=1", "", String::new()).await?;
        let list = api::json::parse(&body)?;
        let items = list.get("items").and_then(Value::as_array).map_or(0, <[Value]>::len);
        let more = list.int_at(&["metadata", "remainingItemCount"]);
        let events = items.saturating_add(usize::try_from(more).unwrap_or(0));
        if events >= count {
            return Ok(());
        }
        ensure!(begun.elapsed() < TIMEOUT, "{events} of {count} events were written in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
