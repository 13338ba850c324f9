//! Steps of a load test, and their measurements.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::connection::Connection;
use super::latencies::Latencies;
use super::pods::{self, Requests};
use super::progress::Progress;
use super::target::{Target, processor_seconds};
use super::watchers::{self, Delivery};
use super::workers::{self, EndCondition, Outcome};

/// Amount of load.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Number of pods to create.
    pub pods: usize,
    /// Over this many connections.
    pub connections: usize,
    /// Duration of reads and of changes.
    pub time: Duration,
    /// Number of lists in each form.
    pub lists: u32,
    /// Number of watchers.
    pub watchers: usize,
    /// Number of writes per second while they watch.
    pub watched_writes_per_second: u32,
    /// Whether answers may be compressed.
    pub gzip: bool,
}

/// One kind of request under load.
#[derive(Debug, Clone)]
pub struct Step {
    /// Requests, how fast and how many.
    pub outcome: Outcome,
    /// Processor time of the server for one request, in seconds; none if the server is not ours.
    pub server_seconds: Option<f64>,
    /// The same of the load generator.
    pub own_seconds: Option<f64>,
}

/// Lists in one encoding.
#[derive(Debug, Clone)]
pub struct Lists {
    /// Name in tables.
    pub name: &'static str,
    /// Durations of the lists.
    pub latencies: Latencies,
    /// Size of one list.
    pub bytes: usize,
    /// Processor time of the server for one list, in seconds; none if the server is not ours.
    pub server_seconds: Option<f64>,
}

/// All measurements.
#[derive(Debug, Clone)]
pub struct Measurements {
    /// Time from the start of the process to the first successful `/readyz`.
    pub ready: Option<Duration>,
    /// Memory before the first request.
    pub idle_bytes: Option<u64>,
    /// Memory once all pods are created.
    pub filled_bytes: Option<u64>,
    /// Memory at the end.
    pub loaded_bytes: Option<u64>,
    /// Number of pods.
    pub pods: usize,
    /// The load.
    pub steps: Vec<(&'static str, Step)>,
    /// Lists of all pods.
    pub lists: Vec<Lists>,
    /// Watchers; none if there were to be none.
    pub delivery: Option<Delivery>,
}

/// Form in which `kubectl get` requests lists.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Form in which components of Kubernetes request lists.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Does all of it.
///
/// # Errors
/// Those of the network, and answers that are not the expected ones.
pub async fn run(target: &Target, settings: Settings) -> Result<Measurements> {
    let progress = Progress::default();
    let requests = Requests::new(target.endpoint.address.clone(), settings.gzip);
    let idle_bytes = target.resident_bytes();
    let mut connections = workers::connect(&target.endpoint, settings.connections).await?;
    prepare(connections.first_mut(), &requests).await?;
    let mut steps = Vec::new();

    let bodies: Vec<Arc<[u8]>> =
        (0..settings.pods).map(|number| requests.create_pod(&pods::name(number)).into()).collect();
    let count = EndCondition::Count(u64::try_from(settings.pods)?);
    let before = CpuReading::now(target);
    let outcome;
    (connections, outcome) = workers::run(connections, count, 201, "creates", &progress, pick(bodies)).await?;
    steps.push(("creates", before.step(target, outcome)));
    let filled_bytes = target.resident_bytes();

    let bodies: Vec<Arc<[u8]>> =
        (0..settings.pods).map(|number| requests.get_pod(&pods::name(number)).into()).collect();
    let time = EndCondition::Time(settings.time);
    let before = CpuReading::now(target);
    let outcome;
    (connections, outcome) = workers::run(connections, time, 200, "gets", &progress, pick(bodies)).await?;
    steps.push(("gets", before.step(target, outcome)));

    let first = connections.first_mut().context("there are no connections")?;
    let mut lists = Vec::new();
    for (name, accept) in
        [("list as JSON", "application/json"), ("list as Table", TABLE), ("list in protobuf", PROTOBUF)]
    {
        let request = requests.list_pods(accept);
        let mut latencies = Latencies::default();
        let mut bytes = 0;
        let before = CpuReading::now(target);
        for round in 0..settings.lists {
            progress.show(name, u64::from(round), u64::from(settings.lists));
            let asked = Instant::now();
            let head = first.send(&request).await?;
            bytes = first.body(head, |_| ()).await?;
            latencies.add(asked.elapsed());
            if head.status != 200 {
                bail!("{name} was answered {}", head.status);
            }
        }
        progress.clear();
        let server_seconds = before.server_seconds(target, latencies.count() as f64);
        lists.push(Lists { name, latencies, bytes, server_seconds });
    }

    let (documents, rotating) = (documents(first, &requests, settings.pods.min(1000)).await?, requests.clone());
    let before = CpuReading::now(target);
    let update = move |number: u64| -> Arc<[u8]> {
        let at = usize::try_from(number).unwrap_or(0).checked_rem(documents.len()).unwrap_or(0);
        let document = documents.get(at).map_or("", String::as_str);
        rotating.update_pod(&pods::name(at), document, number).into()
    };
    let outcome;
    (connections, outcome) = workers::run(connections, time, 200, "updates", &progress, update).await?;
    steps.push(("updates", before.step(target, outcome)));

    let (rotating, pods) = (requests.clone(), u64::try_from(settings.pods)?);
    let before = CpuReading::now(target);
    let patch = move |number: u64| -> Arc<[u8]> {
        let at = usize::try_from(number.checked_rem(pods).unwrap_or(0)).unwrap_or(0);
        rotating.patch_pod(&pods::name(at), number.saturating_add(1)).into()
    };
    let outcome;
    (connections, outcome) = workers::run(connections, time, 200, "patches", &progress, patch).await?;
    steps.push(("patches", before.step(target, outcome)));
    drop(connections);

    let delivery = if settings.watchers == 0 {
        None
    } else {
        let settings = watchers::Settings {
            watchers: settings.watchers,
            writes_per_second: settings.watched_writes_per_second,
            time: settings.time,
            pods: settings.pods,
        };
        Some(watchers::run(&target.endpoint, &requests, settings, &progress).await?)
    };
    let loaded_bytes = target.resident_bytes();
    let (ready, pods) = (target.ready, settings.pods);
    Ok(Measurements { ready, idle_bytes, filled_bytes, loaded_bytes, pods, steps, lists, delivery })
}

/// Hands out prepared requests in turn.
fn pick(bodies: Vec<Arc<[u8]>>) -> impl Fn(u64) -> Arc<[u8]> + Send + Sync {
    move |number| {
        let at = usize::try_from(number).unwrap_or(0).checked_rem(bodies.len()).unwrap_or(0);
        bodies.get(at).cloned().unwrap_or_default()
    }
}

async fn prepare(connection: Option<&mut Connection>, requests: &Requests) -> Result<()> {
    let connection = connection.context("there are no connections")?;
    for request in [requests.create_namespace(), requests.create_service_account()] {
        let (status, body) = connection.fetch(&request).await?;
        if !matches!(status, 201 | 409) {
            bail!("cannot prepare the namespace: {}", String::from_utf8_lossy(&body));
        }
    }
    Ok(())
}

/// Reads pods from the server.
async fn documents(connection: &mut Connection, requests: &Requests, count: usize) -> Result<Vec<String>> {
    let mut documents = Vec::with_capacity(count);
    for number in 0..count {
        let (status, body) = connection.fetch(&requests.get_pod(&pods::name(number))).await?;
        if status != 200 {
            bail!("a get was answered {status}");
        }
        documents.push(String::from_utf8(body)?);
    }
    Ok(documents)
}

/// Processor time up to some moment.
struct CpuReading {
    server: f64,
    own: Option<f64>,
}

impl CpuReading {
    fn now(target: &Target) -> Self {
        Self { server: target.processor_seconds(), own: processor_seconds("self") }
    }

    fn step(&self, target: &Target, outcome: Outcome) -> Step {
        let count = outcome.latencies.count() as f64;
        let own = processor_seconds("self").zip(self.own).map(|(now, before)| (now - before) / count);
        Step { server_seconds: self.server_seconds(target, count), own_seconds: own, outcome }
    }

    /// Processor time of the server for one of `count` requests since then.
    fn server_seconds(&self, target: &Target, count: f64) -> Option<f64> {
        let now = target.processor_seconds();
        (now > 0.0).then_some((now - self.server) / count)
    }
}
