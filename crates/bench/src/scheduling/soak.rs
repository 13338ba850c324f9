//! Pods come and go for a while: does memory stay where it was?

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Size;
use super::whole::{Cluster, Settings};
use super::workload::Workload;

/// Result of a soak test.
#[derive(Debug)]
pub struct SoakResult {
    /// Number of pods that were created, bound and deleted.
    pub pods: usize,
    /// Memory at the end of each round.
    pub resident_bytes: Vec<u64>,
}

impl SoakResult {
    /// The mean of the last third beside that of the middle third.
    #[must_use]
    pub fn growth(&self) -> Option<f64> {
        let third = self.resident_bytes.len().checked_div(3)?;
        let mean = |part: Option<&[u64]>| {
            let part = part.filter(|part| !part.is_empty())?;
            Some(part.iter().map(|bytes| *bytes as f64).sum::<f64>() / part.len() as f64)
        };
        let last = mean(self.resident_bytes.get(third.saturating_mul(2)..))?;
        let middle = mean(self.resident_bytes.get(third..third.saturating_mul(2)))?;
        Some(last / middle)
    }
}

/// Makes pods, waits until they are bound, and deletes them, again and again.
///
/// # Errors
/// Something could not be made, or pods were not bound.
pub async fn run(workload: &Workload, size: Size, settings: &Settings, length: Duration) -> Result<SoakResult> {
    let cluster = Cluster::start(workload, settings).await?;
    cluster.create_nodes(workload, size).await?;
    let (begun, mut soaked) = (Instant::now(), SoakResult { pods: 0, resident_bytes: Vec::new() });
    while begun.elapsed() < length {
        let numbers = soaked.pods..soaked.pods.saturating_add(size.pods);
        let pods = numbers.map(|number| workload.measured_pod(number, workload.sets(size)));
        let pods = pods.collect::<Result<Vec<_>>>()?;
        let names = pods.iter().filter_map(|pod| pod.str_at(&["metadata", "name"]).map(ToOwned::to_owned)).collect();
        cluster.create_pods(pods).await?;
        soaked.pods = soaked.pods.saturating_add(size.pods);
        cluster.bound(soaked.pods).await?;
        cluster.delete(names).await?;
        soaked.resident_bytes.push(cluster.resident_bytes().context("memory")?);
    }
    cluster.end().await?;
    Ok(soaked)
}
