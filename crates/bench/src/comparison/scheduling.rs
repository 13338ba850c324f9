//! Scheduling by separate processes over TLS: rate, latency and processor time.

use anyhow::{Context as _, Result};

use super::Size;
use super::control_plane::ControlPlane;
use super::figures::{Group, Unit};
use crate::scheduling::whole::{self, RunningPlane, Settings};
use crate::scheduling::{self, workload};

/// Workloads that Kubernetes can run as well.
pub const WORKLOADS: [&str; 2] = ["basic", "node-affinity"];

/// The group of these figures.
#[must_use]
pub fn group(size: Size, contestants: &[String]) -> Group {
    let mut group = Group::new("scheduling", "Scheduling", contestants);
    group.setup = format!(
        "API server with its durable store and scheduler as separate processes over TLS; {} pods on {} nodes, which are \
         objects only, from the first create until the last pod is bound. Processor time is that of all processes except \
         the load generator. kube-scheduler runs without its default limit of 50 requests per second.",
        size.scheduled, size.nodes
    );
    group
}

/// Adds a sample of each figure of a workload.
///
/// # Errors
/// Pods that are not bound in time, and errors of the network.
pub fn measure(plane: &ControlPlane, name: &str, size: Size, contestant: usize, group: &mut Group) -> Result<()> {
    let workloads = workload::all()?;
    let workload = workloads.iter().find(|workload| workload.name == name).context("no such workload")?;
    let size = scheduling::Size { nodes: size.nodes, pods: size.scheduled, sets: 10 };
    let running = RunningPlane {
        kubeconfig: plane.kubeconfig.clone(),
        processes: plane.processes(),
        has_nodes: false,
        has_events: false,
    };
    let settings = Settings { running: Some(running), ..Settings::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let report = runtime.block_on(whole::run(workload, size, settings))?;
    let pods = size.pods as f64;
    group.add(&format!("{name}, pods"), Unit::PerSecond, contestant, pods / report.took.as_secs_f64());
    let p99 = report.latencies.quantile(0.99).unwrap_or(f64::NAN);
    group.add(&format!("{name}, create to bound, p99"), Unit::Seconds, contestant, p99);
    let seconds = (report.processor_seconds - report.own_seconds) / pods;
    group.add(&format!("{name}, processor time per pod"), Unit::Seconds, contestant, seconds);
    let bytes = report.resident_bytes.map_or(f64::NAN, |bytes| bytes as f64);
    group.add(&format!("{name}, memory"), Unit::Bytes, contestant, bytes);
    Ok(())
}
