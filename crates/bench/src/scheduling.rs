//! Workloads of the scheduler: how many pods per second, how fast, and at what cost?
//!
//! [`workload`] reads them from YAML, after the pattern of Kubernetes' scheduler_perf; [`core`] runs them on
//! the core alone, [`whole`] on API server, durable store and scheduler in one process, or on a running control
//! plane; [`stages`] attributes the time, [`soak`] checks for memory growth.

pub mod core;
pub mod soak;
pub mod stages;
pub mod whole;
pub mod workload;

/// Size of a run.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of measured pods.
    pub pods: usize,
    /// Number of distinct sets of taints, or zones, unless the workload sets it.
    pub sets: usize,
}

/// Scale of unmeasured pods: the numbers in a workload are for 5,000 nodes, so that small sizes stay small.
const NODES_FULL: usize = 5000;

impl Size {
    /// This many at full size, fewer at less.
    pub(crate) fn scaled(&self, count: usize) -> usize {
        let scaled = count.saturating_mul(self.nodes).checked_div(NODES_FULL).unwrap_or(0);
        scaled.clamp(count.min(1), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_on_five_nodes() {
        let workloads = workload::all().unwrap();
        assert!(workloads.len() >= 12);
        for workload in workloads {
            let size = Size { nodes: 5, pods: workload.pods_on(5).min(20), sets: 2 };
            let report = core::run(&workload, size).unwrap();
            assert_eq!(report.placed, size.pods, "{}", workload.name);
        }
    }

    #[test]
    fn every_workload_runs_through_the_whole_process() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        for workload in workload::all().unwrap() {
            let size = Size { nodes: 5, pods: workload.pods_on(5).min(20), sets: 2 };
            let settings = whole::Settings { ephemeral: true, ..whole::Settings::default() };
            let report = runtime.block_on(whole::run(&workload, size, settings)).unwrap();
            assert_eq!(report.latencies.count(), size.pods as u64, "{}", workload.name);
        }
    }
}
