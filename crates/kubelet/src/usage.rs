//! Processor time and memory that containers use.

use api::core::v1::{Container, Pod};
use api::json::Text;

/// Usage at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Billionths of a processor.
    pub cpu_nanocores: u64,
    /// Bytes of the working set.
    pub memory_bytes: u64,
}

impl Usage {
    /// Adds the usage of another container; sums beyond the range stay at its end.
    pub fn add(&mut self, other: Usage) {
        self.cpu_nanocores = self.cpu_nanocores.saturating_add(other.cpu_nanocores);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
    }
}

/// Usage of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Name of the container in its pod.
    pub name: Text,
    /// Its usage.
    pub usage: Usage,
}

/// The containers of a pod that run according to its status, sidecars included.
pub fn running(pod: &Pod) -> impl Iterator<Item = &Container> {
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    let is_running = |state: &api::json::Value| state.get("running").is_some_and(|it| !it.is_null());
    let running = statuses.filter(move |status| status.state.as_ref().is_some_and(is_running));
    running.filter_map(|status| {
        let mut all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        all.find(|container| container.name == status.name)
    })
}
