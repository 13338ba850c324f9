//! Sandboxes and containers of a pod as the runtime has them.

use std::collections::BTreeMap;

use api::time::Timestamp;
use cri::Status;
use cri::messages as m;

use super::SharedState;
use super::configs::{CONTAINER_NAME, POD_UID};

/// Number of runs of each container to examine: the present and the previous one.
const RUNS: usize = 2;

/// One run of a container.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) sandbox: String,
    pub(super) status: m::ContainerStatus,
}

impl Run {
    /// The number of this run; the first is 0.
    pub(super) fn attempt(&self) -> u32 {
        self.status.metadata.as_ref().map_or(0, |it| it.attempt)
    }
}

/// The state of one pod, newest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Snapshot {
    pub(super) sandboxes: Vec<m::PodSandbox>,
    pub(super) runs: BTreeMap<String, Vec<Run>>,
    /// Containers that ended before another run of theirs ended.
    pub(super) excess: Vec<String>,
}

impl Snapshot {
    /// The sandbox in which containers can run.
    pub(super) fn ready_sandbox(&self) -> Option<&m::PodSandbox> {
        self.sandboxes.first().filter(|it| it.state() == m::PodSandboxState::Ready)
    }

    /// The newest run of a container.
    pub(super) fn newest(&self, name: &str) -> Option<&Run> {
        self.runs.get(name)?.first()
    }

    /// The newest run of a container in the newest sandbox.
    pub(super) fn current(&self, name: &str) -> Option<&Run> {
        let sandbox = self.sandboxes.first()?;
        self.newest(name).filter(|run| run.sandbox == sandbox.id)
    }

    /// All runs whose containers are running.
    pub(super) fn running(&self) -> impl Iterator<Item = &Run> {
        self.runs.values().flatten().filter(|run| run.status.state() == m::ContainerState::Running)
    }
}

/// A time of the runtime, in nanoseconds since 1970.
pub(super) fn time(nanos: i64) -> Timestamp {
    let seconds = nanos.div_euclid(1_000_000_000);
    Timestamp { seconds, nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0) }
}

impl SharedState {
    /// Removes containers that ended, but for the last run of each.
    pub(super) async fn prune(&self, snapshot: &Snapshot) {
        for id in &snapshot.excess {
            let request = m::RemoveContainerRequest { container_id: id.clone() };
            super::start::note(self.runtime.remove_container(request).await, "container");
        }
    }

    /// Reads the sandboxes and containers of a pod.
    pub(super) async fn look(&self, uid: &str) -> Result<Snapshot, Status> {
        let selector = BTreeMap::from([(POD_UID.to_owned(), uid.to_owned())]);
        let filter = m::PodSandboxFilter { label_selector: selector.clone(), ..m::PodSandboxFilter::default() };
        let sandboxes = self.runtime.list_pod_sandbox(m::ListPodSandboxRequest { filter: Some(filter) });
        let filter = m::ContainerFilter { label_selector: selector, ..m::ContainerFilter::default() };
        let containers = self.runtime.list_containers(m::ListContainersRequest { filter: Some(filter) });
        let (sandboxes, containers) = (sandboxes.await?, containers.await?);
        let mut snapshot = Snapshot { sandboxes: sandboxes.items, ..Snapshot::default() };
        snapshot.sandboxes.sort_by_key(|it| std::cmp::Reverse(it.created_at));
        let mut by_name: BTreeMap<String, Vec<m::Container>> = BTreeMap::new();
        for container in containers.containers {
            if let Some(name) = container.labels.get(CONTAINER_NAME) {
                by_name.entry(name.clone()).or_default().push(container);
            }
        }
        for (name, mut list) in by_name {
            list.sort_by_key(|it| std::cmp::Reverse(it.created_at));
            let mut ended = 0_u32;
            list.retain(|container| {
                ended = ended.saturating_add(u32::from(container.state() == m::ContainerState::Exited));
                let is_kept = ended <= 1 || container.state() != m::ContainerState::Exited;
                if !is_kept {
                    snapshot.excess.push(container.id.clone());
                }
                is_kept
            });
            let mut runs = Vec::new();
            for container in list.into_iter().take(RUNS) {
                let request = m::ContainerStatusRequest { container_id: container.id, verbose: false };
                match self.runtime.container_status(request).await {
                    Ok(answer) => {
                        let status = answer.status.unwrap_or_default();
                        runs.push(Run { sandbox: container.pod_sandbox_id, status });
                    }
                    Err(status) if status.code() == cri::Code::NotFound => {}
                    Err(status) => return Err(status),
                }
            }
            snapshot.runs.insert(name, runs);
        }
        Ok(snapshot)
    }
}
