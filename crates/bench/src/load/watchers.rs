//! Many watchers of one resource during writes: how many events reach them, and how soon?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use memchr::memmem;
use tokio::task::JoinSet;

use super::connection::{Connection, Endpoint};
use super::latencies::Latencies;
use super::pods::{self, Requests, read_round};
use super::progress::Progress;

/// Result of the run.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// From the moment a write was sent to the moment a watcher had its event.
    pub latencies: Latencies,
    /// Number of writes.
    pub writes: u64,
    /// Time from the first write to the last event.
    pub took: Duration,
    /// Time until all watchers were connected.
    pub connected: Duration,
}

/// Watchers, and concurrent writes.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Number of watchers, each on its own connection.
    pub watchers: usize,
    /// Maximum number of writes per second.
    pub writes_per_second: u32,
    /// Duration of the writes.
    pub time: Duration,
    /// Number of pods that are written in turn.
    pub pods: usize,
}

/// Watches, writes, and waits until every watcher has seen every write.
///
/// # Errors
/// Those of the network; a watcher that is cut off; events that do not come.
pub async fn run(
    endpoint: &Endpoint,
    requests: &Requests,
    settings: Settings,
    progress: &Progress,
) -> Result<Delivery> {
    let mut writer = endpoint.connect().await?;
    let version = current_version(&mut writer, requests).await?;
    let watch: Arc<[u8]> = requests.watch_pods(&version).into();
    let opened = Instant::now();
    let mut connections = Vec::new();
    for number in 0..settings.watchers {
        let mut connection = endpoint.connect_small().await.context("cannot connect a watcher")?;
        let head = connection.send(&watch).await?;
        if head.status != 200 {
            bail!("a watch was answered {}", head.status);
        }
        connections.push(connection);
        if number.is_multiple_of(50) {
            progress.show("watchers connect", u64::try_from(number)?, u64::try_from(settings.watchers)?);
        }
    }
    let connected = opened.elapsed();
    let started = Instant::now();
    // The last event of all; watchers end when they have seen it.
    let last = Arc::new(AtomicU64::new(u64::MAX));
    let mut tasks = JoinSet::new();
    for connection in connections {
        tasks.spawn(follow(connection, started, last.clone()));
    }
    let pause = Duration::from_secs(1).checked_div(settings.writes_per_second).unwrap_or_default();
    let mut interval = tokio::time::interval(pause.max(Duration::from_micros(100)));
    let mut writes = 0_u64;
    let mut is_last = false;
    while !is_last {
        interval.tick().await;
        is_last = started.elapsed() >= settings.time;
        let number = usize::try_from(writes)?.checked_rem(settings.pods).unwrap_or(0);
        let now = u64::try_from(started.elapsed().as_nanos())?;
        if is_last {
            last.store(now, Ordering::Release);
        }
        let status = writer.exchange(&requests.patch_pod(&pods::name(number), now)).await?;
        if status != 200 {
            bail!("a write was answered {status}");
        }
        writes = writes.saturating_add(1);
        if writes.is_multiple_of(20) {
            let of = u64::try_from(settings.time.as_millis())?;
            progress.show("watchers", u64::try_from(started.elapsed().as_millis())?, of);
        }
    }
    let mut latencies = Latencies::default();
    let all = async {
        while let Some(ended) = tasks.join_next().await {
            latencies.merge(&ended?.context("a watcher was cut off")?);
        }
        Ok::<_, anyhow::Error>(())
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.context("events did not come")??;
    progress.clear();
    let expected = writes.saturating_mul(u64::try_from(settings.watchers)?);
    if latencies.count() != expected {
        bail!("{} events were delivered instead of {expected}", latencies.count());
    }
    Ok(Delivery { latencies, writes, took: started.elapsed(), connected })
}

async fn current_version(connection: &mut Connection, requests: &Requests) -> Result<String> {
    let request = requests.get("/api/v1/namespaces?limit=1", "application/json");
    let (status, body) = connection.fetch(&request).await?;
    let text = String::from_utf8(body)?;
    let mark = "\"resourceVersion\":\"";
    let rest = text.split_once(mark).filter(|_| status == 200).context("cannot list")?.1;
    Ok(rest.chars().take_while(char::is_ascii_digit).collect())
}

/// Reads events until the last one.
async fn follow(mut connection: Connection, started: Instant, last: Arc<AtomicU64>) -> Result<Latencies> {
    let finder = memmem::Finder::new(pods::round_mark().as_bytes()).into_owned();
    let mut latencies = Latencies::default();
    let mut chunk = Vec::new();
    loop {
        let length = connection.chunk().await?.context("the watch ended")?;
        chunk.clear();
        connection.pass(length, &mut |part: &[u8]| chunk.extend_from_slice(part)).await?;
        connection.pass(2, &mut |_: &[u8]| ()).await?;
        let now = started.elapsed();
        let mut ended = false;
        for at in finder.find_iter(&chunk) {
            let value = chunk.get(at.saturating_add(finder.needle().len())..).unwrap_or_default();
            let Some(sent) = read_round(value) else { continue };
            latencies.add(now.saturating_sub(Duration::from_nanos(sent)));
            ended |= sent >= last.load(Ordering::Acquire);
        }
        if ended {
            return Ok(latencies);
        }
    }
}
