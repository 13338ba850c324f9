//! Connections that send requests one after the other, each as soon as its last answer is there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::connection::{Connection, Endpoint};
use super::latencies::Latencies;
use super::progress::Progress;

/// End of the work.
#[derive(Debug, Clone, Copy)]
pub enum EndCondition {
    /// After this many requests.
    Count(u64),
    /// After this time.
    Time(Duration),
}

/// Result of the work.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Latencies of the requests.
    pub latencies: Latencies,
    /// Total duration.
    pub took: Duration,
}

impl Outcome {
    /// Requests per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.took.as_secs_f64()
    }
}

/// Opens connections.
///
/// # Errors
/// Those of the first that cannot be opened.
pub async fn connect(endpoint: &Endpoint, count: usize) -> Result<Vec<Connection>> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        connections.push(endpoint.connect().await.context("cannot connect")?);
    }
    Ok(connections)
}

/// Sends the results of `request` for the numbers 0, 1, 2 … over all connections; every response must have the
/// code `expected`.
///
/// # Errors
/// Those of the network, and other codes.
pub async fn run(
    connections: Vec<Connection>,
    until: EndCondition,
    expected: u16,
    step: &str,
    progress: &Progress,
    request: impl Fn(u64) -> Arc<[u8]> + Send + Sync + 'static,
) -> Result<(Vec<Connection>, Outcome)> {
    let next = Arc::new(AtomicU64::new(0));
    let request = Arc::new(request);
    let started = Instant::now();
    let count_max = match until {
        EndCondition::Count(count) => count,
        EndCondition::Time(_) => u64::MAX,
    };
    let deadline = match until {
        EndCondition::Time(time) => started.checked_add(time),
        EndCondition::Count(_) => None,
    };
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (next, request) = (next.clone(), request.clone());
            tokio::spawn(async move {
                let mut latencies = Latencies::default();
                let mut asked = Instant::now();
                while deadline.is_none_or(|deadline| asked < deadline) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count_max {
                        break;
                    }
                    let bytes = request(number);
                    let head = connection.send(&bytes).await?;
                    if head.status != expected {
                        let mut text = Vec::new();
                        connection.body(head, |part| text.extend_from_slice(part)).await?;
                        let text = String::from_utf8_lossy(&text);
                        return Err(io::Error::other(format!("answered {}: {text}", head.status)));
                    }
                    connection.body(head, |_| ()).await?;
                    let now = Instant::now();
                    latencies.add(now.saturating_duration_since(asked));
                    asked = now;
                }
                Ok((connection, latencies))
            })
        })
        .collect();
    let mut connections = Vec::new();
    let mut latencies = Latencies::default();
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    for mut task in tasks {
        let ended = loop {
            tokio::select! {
                ended = &mut task => break ended,
                _ = tick.tick() => {
                    let done = next.load(Ordering::Relaxed);
                    let (done, of) = match until {
                        EndCondition::Count(count) => (done.min(count), count),
                        EndCondition::Time(time) => (u64::try_from(started.elapsed().as_millis())?, u64::try_from(time.as_millis())?),
                    };
                    progress.show(step, done, of);
                }
            }
        };
        let (connection, more) = ended?.with_context(|| format!("{step} failed"))?;
        latencies.merge(&more);
        connections.push(connection);
    }
    let took = started.elapsed();
    progress.clear();
    if latencies.count() == 0 {
        bail!("{step}: no request was answered");
    }
    Ok((connections, Outcome { latencies, took }))
}
