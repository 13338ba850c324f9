//! Many watchers, each of its own node's pods: what do changes cost, how far can a watcher fall behind, and
//! what does a crowd cost that watches everything and reads nothing?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::task::JoinSet;

use super::connection::{Connection, find};
use super::pods::{self, NAMESPACE, Requests};
use super::progress::Progress;
use super::tally::{self, Tally};
use super::target::Target;
use super::workers::{self, EndCondition};

/// Amount of load.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Number of pods.
    pub pods: usize,
    /// on this many nodes, each with a watcher.
    pub nodes: usize,
    /// Number of changes per second.
    pub changes_per_second: u32,
    /// Duration of the changes.
    pub time: Duration,
    /// Number of watchers that start over.
    pub restarts: usize,
    /// Number of changes per second that fill the history.
    pub history_changes_per_second: u32,
    /// Duration for measuring the history; zero disables it.
    pub history: Duration,
}

/// Cost of a period of changes.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Changes that were made.
    pub changes: u64,
    /// Duration.
    pub took: Duration,
    /// Processor time of the server.
    pub processor_seconds: f64,
}

impl Cost {
    /// Number of processors used.
    #[must_use]
    pub fn processors(&self) -> f64 {
        self.processor_seconds / self.took.as_secs_f64()
    }
}

/// Measurements.
#[derive(Debug, Clone)]
pub struct Reach {
    /// Changes without watchers.
    pub alone: Cost,
    /// Watchers without changes.
    pub idle: Cost,
    /// Changes with all watchers.
    pub watched: Cost,
    /// Average time until a watcher that starts over has received its pods.
    pub restart: Duration,
    /// Number of pods in its events.
    pub restart_events: u64,
    /// Processor time of the server for it.
    pub restart_processor_seconds: f64,
    /// Minimum age of the oldest version from which a watcher can resume.
    pub history: Option<Duration>,
    /// Memory with all pods, and at the end.
    pub resident_bytes: [Option<u64>; 2],
}

const CONNECTIONS: usize = 32;

/// Events that take longer are taken to be lost.
const ARRIVAL: Duration = Duration::from_secs(10);

fn node(number: usize) -> String {
    format!("node-{number:05}")
}

fn watch_of(requests: &Requests, node: &str, version: Option<&str>) -> Vec<u8> {
    let version = version.map(|version| format!("&resourceVersion={version}")).unwrap_or_default();
    let selector = format!("fieldSelector=spec.nodeName%3D{node}");
    requests.get(&format!("/api/v1/pods?watch=1&timeoutSeconds=3600&{selector}{version}"), "application/json")
}

/// Makes the pods, watches them, changes them.
///
/// # Errors
/// Those of the network, and answers that are not the expected ones.
pub async fn run(target: &Target, settings: Settings) -> Result<Reach> {
    let progress = Progress::default();
    let requests = Requests::new(target.endpoint.address.clone(), false);
    let mut connections = workers::connect(&target.endpoint, CONNECTIONS).await?;
    prepare(&mut connections, &requests).await?;
    let create = {
        let requests = requests.clone();
        move |number: u64| -> Arc<[u8]> {
            let number = usize::try_from(number).unwrap_or_default();
            let on = number.checked_rem(settings.nodes).unwrap_or_default();
            let on = format!(r#""spec":{{"nodeName":"{}","#, node(on));
            let body = pods::pod(&pods::name(number)).replacen(r#""spec":{"#, &on, 1);
            requests.send("POST", &pods::collection(), "application/json", &body).into()
        }
    };
    let count = EndCondition::Count(u64::try_from(settings.pods)?);
    (connections, _) = workers::run(connections, count, 201, "pods", &progress, create).await?;
    let filled = target.resident_bytes();
    let mut changer = Changer { requests: requests.clone(), connections, pods: settings.pods, next: Arc::default() };
    let rate = settings.changes_per_second;
    let alone = changer.cost(target, rate, settings.time).await?;

    let version = changer.version().await?;
    let tally = Tally::new(changer.made(), settings.pods, settings.nodes);
    let mut watchers = JoinSet::new();
    for number in 0..settings.nodes {
        let mut connection = target.endpoint.connect_small().await.context("cannot connect a watcher")?;
        let head = connection.send(&watch_of(&requests, &node(number), Some(&version))).await?;
        if head.status != 200 {
            bail!("a watch was answered {}", head.status);
        }
        watchers.spawn(follow(connection, number, tally.clone()));
        if number.is_multiple_of(50) {
            progress.show("watchers connect", u64::try_from(number)?, u64::try_from(settings.nodes)?);
        }
    }
    progress.clear();
    let idle = CpuReading::now(target);
    tokio::time::sleep(settings.time).await;
    let idle = idle.cost(target, 0);
    let watched = changer.cost(target, rate, settings.time).await?;
    // What is under way arrives.
    let changed = Instant::now();
    while tally.reported() < watched.changes && changed.elapsed() < ARRIVAL {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // And events that must not arrive.
    tokio::time::sleep(Duration::from_secs(1)).await;
    if let Some(ended) = watchers.try_join_next() {
        ended??;
        bail!("a watch ended");
    }
    tally.check(watched.changes)?;

    let used = CpuReading::now(target);
    let (mut waited, mut restart_events) = (Duration::ZERO, 0);
    let restarts = settings.restarts.min(settings.nodes).max(1);
    for number in 0..restarts {
        let mut connection = target.endpoint.connect_small().await?;
        let expected = settings.pods.div_ceil(settings.nodes.max(1));
        let asked = Instant::now();
        connection.send(&watch_of(&requests, &node(number), None)).await?;
        let (mut reported, mut chunk) = (0_usize, Vec::new());
        while reported < expected {
            next_chunk(&mut connection, &mut chunk).await?.context("the watch ended")?;
            reported = reported.saturating_add(chunk.iter().filter(|byte| **byte == b'\n').count());
        }
        waited = waited.saturating_add(asked.elapsed());
        restart_events = u64::try_from(reported)?;
    }
    let restart_cost = used.cost(target, 0);
    let restart = waited.checked_div(u32::try_from(restarts)?).unwrap_or_default();

    let history = if settings.history.is_zero() { None } else { Some(history(target, &mut changer, settings).await?) };
    let resident_bytes = [filled, target.resident_bytes()];
    let restart_processor_seconds = restart_cost.processor_seconds / restarts as f64;
    Ok(Reach { alone, idle, watched, restart, restart_events, restart_processor_seconds, history, resident_bytes })
}

async fn prepare(connections: &mut [Connection], requests: &Requests) -> Result<()> {
    let first = connections.first_mut().context("there are no connections")?;
    for request in [requests.create_namespace(), requests.create_service_account()] {
        let status = first.exchange(&request).await?;
        if !matches!(status, 201 | 409) {
            bail!("cannot prepare the namespace: {status}");
        }
    }
    Ok(())
}

/// Changes pods, each time to something new: what changes nothing would be no change.
struct Changer {
    requests: Requests,
    connections: Vec<Connection>,
    pods: usize,
    /// The number of the next change.
    next: Arc<AtomicU64>,
}

impl Changer {
    /// Number of changes so far.
    fn made(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    async fn version(&mut self) -> Result<String> {
        let first = self.connections.first_mut().context("there are no connections")?;
        version(first, &self.requests).await
    }

    /// Changes pods for a time, and returns the cost.
    async fn cost(&mut self, target: &Target, per_second: u32, time: Duration) -> Result<Cost> {
        let used = CpuReading::now(target);
        let changes = self.run(per_second, time).await?;
        Ok(used.cost(target, changes))
    }

    /// Changes pods at a rate for a time; how many changes there were.
    async fn run(&mut self, per_second: u32, time: Duration) -> Result<u64> {
        let before = self.made();
        let pause = Duration::from_secs(1).checked_div(per_second).unwrap_or_default();
        let pause = pause.saturating_mul(u32::try_from(self.connections.len())?);
        let mut writers = JoinSet::new();
        for mut connection in self.connections.drain(..) {
            let (next, requests, pods) = (self.next.clone(), self.requests.clone(), self.pods);
            writers.spawn(async move {
                let started = Instant::now();
                let mut interval = tokio::time::interval(pause.max(Duration::from_micros(100)));
                while started.elapsed() < time {
                    interval.tick().await;
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let name = pods::name(tally::pod_of(number, pods));
                    let status = connection.exchange(&requests.patch_pod(&name, tally::round_of(number))).await?;
                    if status != 200 {
                        bail!("a change was answered {status}");
                    }
                }
                Ok(connection)
            });
        }
        while let Some(ended) = writers.join_next().await {
            self.connections.push(ended??);
        }
        Ok(self.made().saturating_sub(before))
    }
}

/// Returns the age of the version from which a watcher could still resume after many changes, with all events.
async fn history(target: &Target, changer: &mut Changer, settings: Settings) -> Result<Duration> {
    let version = changer.version().await?;
    let tally = Tally::new(changer.made(), settings.pods, 1);
    let started = Instant::now();
    let changes = changer.run(settings.history_changes_per_second, settings.history).await?;
    let age = started.elapsed();
    let mut connection = target.endpoint.connect().await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?watch=1&resourceVersion={version}&timeoutSeconds=600");
    connection.send(&changer.requests.get(&path, "application/json")).await?;
    let read = async {
        let mut chunk = Vec::new();
        while tally.reported() < changes {
            next_chunk(&mut connection, &mut chunk).await?.context("the watch ended")?;
            if find(&chunk, br#"{"type":"ERROR""#).is_some() {
                let text = String::from_utf8_lossy(&chunk);
                bail!("after {changes} changes in {age:?} a watcher cannot resume: {text}");
            }
            tally.read(0, &chunk);
        }
        Ok(())
    };
    match tokio::time::timeout(settings.history.max(ARRIVAL), read).await {
        Ok(read) => read?,
        Err(_) => bail!("a watcher {age:?} behind received only {} of {changes} changes", tally.reported()),
    }
    tally.check(changes)?;
    let rate = changes as f64 / age.as_secs_f64();
    println!("history: {changes} changes in {:.1} s ({rate:.0}/s), all of them there", age.as_secs_f64());
    Ok(age)
}

async fn version(connection: &mut Connection, requests: &Requests) -> Result<String> {
    let (status, body) = connection.fetch(&requests.get("/api/v1/namespaces?limit=1", "application/json")).await?;
    let text = String::from_utf8(body)?;
    let mark = "\"resourceVersion\":\"";
    let rest = text.split_once(mark).filter(|_| status == 200).context("cannot list")?.1;
    Ok(rest.chars().take_while(char::is_ascii_digit).collect())
}

/// Records the events of a watcher until the connection ends.
async fn follow(mut connection: Connection, watcher: usize, tally: Arc<Tally>) -> Result<()> {
    let mut chunk = Vec::new();
    while next_chunk(&mut connection, &mut chunk).await?.is_some() {
        tally.read(watcher, &chunk);
    }
    Ok(())
}

/// Reads the next chunk; none at the end.
async fn next_chunk(connection: &mut Connection, chunk: &mut Vec<u8>) -> Result<Option<()>> {
    chunk.clear();
    let Some(length) = connection.chunk().await? else { return Ok(None) };
    connection.pass(length, &mut |part: &[u8]| chunk.extend_from_slice(part)).await?;
    connection.pass(2, &mut |_: &[u8]| ()).await?;
    Ok(Some(()))
}

/// Processor time up to some moment.
struct CpuReading {
    at: Instant,
    seconds: f64,
}

impl CpuReading {
    fn now(target: &Target) -> Self {
        Self { at: Instant::now(), seconds: target.processor_seconds() }
    }

    fn cost(&self, target: &Target, changes: u64) -> Cost {
        Cost { changes, took: self.at.elapsed(), processor_seconds: target.processor_seconds() - self.seconds }
    }
}

/// Result of a crowd that watches everything.
#[derive(Debug, Clone, Copy)]
pub struct Crowd {
    /// Number of accepted watches.
    pub watches: usize,
    /// Number of writes in that time.
    pub writes: u64,
    /// Memory before they came, at most, and after they went.
    pub resident_bytes: [u64; 3],
}

/// Opens watches of all objects without reading them, and writes meanwhile.
///
/// # Errors
/// Those of the network, and answers that are not the expected ones.
pub async fn crowd(target: &Target, watches: usize, objects: usize, time: Duration) -> Result<Crowd> {
    let progress = Progress::default();
    let requests = Requests::new(target.endpoint.address.clone(), false);
    let mut connections = workers::connect(&target.endpoint, CONNECTIONS).await?;
    prepare(&mut connections, &requests).await?;
    let create = {
        let requests = requests.clone();
        move |number: u64| -> Arc<[u8]> {
            requests.create_pod(&pods::name(usize::try_from(number).unwrap_or_default())).into()
        }
    };
    let count = EndCondition::Count(u64::try_from(objects)?);
    (connections, _) = workers::run(connections, count, 201, "pods", &progress, create).await?;
    let resident = || target.resident_bytes().unwrap_or_default();
    let before = resident();
    let watch = requests.get(&format!("{}?watch=1&timeoutSeconds=3600", pods::collection()), "application/json");
    let (mut held, mut most) = (Vec::new(), before);
    for number in 0..watches {
        let mut connection = target.endpoint.connect_small().await.context("cannot connect a watcher")?;
        if connection.send(&watch).await?.status == 200 {
            held.push(connection);
        }
        if number.is_multiple_of(50) {
            most = most.max(resident());
            progress.show("watchers connect", u64::try_from(number)?, u64::try_from(watches)?);
        }
    }
    let patch = {
        let requests = requests.clone();
        move |number: u64| -> Arc<[u8]> {
            let at = usize::try_from(number).unwrap_or_default().checked_rem(objects).unwrap_or_default();
            requests.patch_pod(&pods::name(at), number.saturating_add(1)).into()
        }
    };
    let (_connections, outcome) =
        workers::run(connections, EndCondition::Time(time), 200, "writes", &progress, patch).await?;
    most = most.max(resident());
    let watches = held.len();
    drop(held);
    // What they held is given back when the connections have ended.
    tokio::time::sleep(Duration::from_secs(40)).await;
    Ok(Crowd { watches, writes: outcome.latencies.count(), resident_bytes: [before, most, resident()] })
}
