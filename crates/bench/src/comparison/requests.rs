//! Requests and lists: rate, latency and processor time of the server.

use anyhow::Result;

use super::Size;
use super::control_plane::ControlPlane;
use super::figures::{Group, Unit};
use crate::load::plan::{self, Settings};

/// Number of connections.
const CONNECTIONS: usize = 32;

/// The group of these figures.
#[must_use]
pub fn group(size: Size, contestants: &[String]) -> Group {
    let mut group = Group::new("requests", "API requests and lists", contestants);
    group.setup = format!(
        "{CONNECTIONS} connections over TLS (HTTP/1.1, client certificate) create {} pods, then read, replace and patch \
         them; one connection lists all of them in three encodings, {} times each. Every write is durable. Processor \
         time is that of all processes of the server with its store; the load generator runs on the same machine and \
         is not counted.",
        size.pods, size.lists
    );
    group
}

/// Adds a sample of each figure.
///
/// # Errors
/// Those of the network, and unexpected answers.
pub fn measure(plane: &ControlPlane, size: Size, contestant: usize, group: &mut Group) -> Result<()> {
    let settings = Settings {
        pods: size.pods,
        connections: CONNECTIONS,
        time: size.time,
        lists: size.lists,
        watchers: 0,
        watched_writes_per_second: 0,
        gzip: false,
    };
    // One thread: the server needs the rest of the machine.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(plan::run(&plane.target()?, settings))?;
    for (name, step) in &measured.steps {
        group.add(name, Unit::PerSecond, contestant, step.outcome.rate());
    }
    for (name, step) in &measured.steps {
        let p99 = step.outcome.latencies.quantile(0.99).unwrap_or(f64::NAN);
        group.add(&format!("{name}, p99"), Unit::Seconds, contestant, p99);
        let seconds = step.server_seconds.unwrap_or(f64::NAN);
        group.add(&format!("{name}, processor time"), Unit::Seconds, contestant, seconds);
    }
    for list in &measured.lists {
        let median = list.latencies.quantile(0.5).unwrap_or(f64::NAN);
        group.add(list.name, Unit::Seconds, contestant, median);
        let seconds = list.server_seconds.unwrap_or(f64::NAN);
        group.add(&format!("{}, processor time", list.name), Unit::Seconds, contestant, seconds);
    }
    let bytes = measured.filled_bytes.map_or(f64::NAN, |bytes| bytes as f64);
    group.add("memory with all pods", Unit::Bytes, contestant, bytes);
    Ok(())
}
