//! Noticing changes: the runtime's containers are listed every second, and pods whose containers changed are woken.
//!
//! Follows `pleg/generic.go` of Kubernetes' kubelet. Also rotates logs and relieves pressure, and beside that checks the
//! runtime's health.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::core::v1::Pod;
use api::json::Text;
use client::informer::Key;
use cri::messages as m;
use telemetry::logs::chain;
use tracing::debug;

use super::SharedState;
use super::configs::{OWNER, POD_NAME, POD_NAMESPACE};
use super::log_files;
use super::snapshot::Run;
use crate::logs::Line;

/// Interval at which containers are listed.
const PERIOD: Duration = Duration::from_secs(1);
/// Interval at which the runtime's health is checked, and the time limit for its answer.
const HEALTH_PERIOD: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
/// Number of lists after which log files, disk and memory are checked.
const ROTATION_EVERY: u32 = 10;

impl SharedState {
    /// Lists containers until the agent ends.
    pub(super) async fn relist(self: Arc<Self>) {
        let mut known: Option<HashMap<String, (i32, Key)>> = None;
        let mut turn = 0_u32;
        let mut last: Option<Instant> = None;
        loop {
            if turn.checked_rem(ROTATION_EVERY) == Some(0) {
                self.rotate_logs().await;
                self.relieve().await;
            }
            let begun = Instant::now();
            if let Some(last) = last.replace(begun) {
                self.metrics.relist_interval.observe_duration(begun.saturating_duration_since(last));
            }
            let listed = self.list_all().await;
            self.metrics.relist.observe_duration(begun.elapsed());
            match listed {
                Ok(found) => {
                    self.wake_changed(known.as_ref(), &found);
                    known = Some(found);
                }
                Err(status) => debug!(err = %chain(&status), "Could not list containers"),
            }
            turn = turn.wrapping_add(1);
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Checks the runtime until the agent ends, beside the lists: those of a runtime that hangs take minutes.
    pub(super) async fn watch_health(&self) {
        loop {
            let answer = tokio::time::timeout(HEALTH_TIMEOUT, self.ask_health()).await;
            let limit = HEALTH_TIMEOUT.as_secs();
            let silent = || Err(format!("container runtime is down: it did not answer within {limit} seconds"));
            *self.health.lock() = answer.unwrap_or_else(|_| silent());
            tokio::time::sleep(HEALTH_PERIOD).await;
        }
    }

    /// States of sandboxes and containers by their ids, with the pods that they belong to.
    async fn list_all(&self) -> Result<HashMap<String, (i32, Key)>, cri::Status> {
        let selector = BTreeMap::from([(OWNER.to_owned(), self.node.clone())]);
        let filter = m::PodSandboxFilter { label_selector: selector, ..m::PodSandboxFilter::default() };
        let sandboxes = self.runtime.list_pod_sandbox(m::ListPodSandboxRequest { filter: Some(filter) }).await?;
        let containers = self.runtime.list_containers(m::ListContainersRequest::default()).await?;
        let key = |labels: &BTreeMap<String, String>| {
            let text = |label: &str| labels.get(label).map(String::as_str).unwrap_or_default();
            Key::new(text(POD_NAMESPACE), text(POD_NAME))
        };
        let mut found = HashMap::new();
        for sandbox in &sandboxes.items {
            found.insert(sandbox.id.clone(), (sandbox.state, key(&sandbox.labels)));
        }
        for container in containers.containers {
            // Containers of other agents' pods are in sandboxes that are not listed.
            if found.contains_key(&container.pod_sandbox_id) {
                let state = container.state;
                let key = key(&container.labels);
                found.insert(container.id, (state, key));
            }
        }
        Ok(found)
    }

    fn wake_changed(&self, known: Option<&HashMap<String, (i32, Key)>>, found: &HashMap<String, (i32, Key)>) {
        let (Some(known), Some(wake)) = (known, self.wake.get()) else { return };
        for (id, (state, key)) in found {
            if known.get(id).is_none_or(|(before, _)| before != state) {
                wake(key.clone());
            }
        }
        for (id, (_, key)) in known {
            if !found.contains_key(id) {
                wake(key.clone());
            }
        }
    }

    async fn ask_health(&self) -> Result<(), String> {
        let answer = self.runtime.status(m::StatusRequest { verbose: false }).await;
        let answer = answer.map_err(|status| format!("container runtime is down: {}", status.message()))?;
        let conditions = answer.status.unwrap_or_default().conditions;
        for (wanted, what) in
            [("RuntimeReady", "container runtime not ready"), ("NetworkReady", "container runtime network not ready")]
        {
            if let Some(it) = conditions.iter().find(|it| it.r#type == wanted && !it.status) {
                return Err(format!("{what}: {wanted}=false reason:{} message:{}", it.reason, it.message));
            }
        }
        Ok(())
    }

    async fn rotate_logs(&self) {
        let uids: HashSet<Text> = self.pods().keys().cloned().collect();
        let directory = self.logs.clone();
        // Only pods with a long file are looked up in the runtime.
        let long = tokio::task::spawn_blocking(move || log_files::with_long_files(&directory, &uids)).await;
        for uid in long.unwrap_or_default() {
            let Ok(snapshot) = self.look(&uid).await else { return };
            for run in snapshot.running().filter(|run| !run.status.log_path.is_empty()) {
                if log_files::rotate(Path::new(&run.status.log_path)).unwrap_or(false) {
                    let request = m::ReopenContainerLogRequest { container_id: run.status.id.clone() };
                    super::start::note(self.runtime.reopen_container_log(request).await, "log file");
                }
            }
        }
    }

    /// The output of a container's present or last run.
    pub(super) async fn log_lines(&self, pod: &Pod, container: &str, previous: bool) -> Result<Vec<Line>, String> {
        let (id, path) = self.log_file(pod, container, previous).await?;
        let read = tokio::task::spawn_blocking(move || log_files::read(&path)).await;
        match read {
            Ok(Ok(lines)) => Ok(lines),
            _ => Err(format!("unable to retrieve container logs for {}://{id}", self.runtime_name)),
        }
    }

    /// The container whose log is wanted, and the file that holds it.
    pub(super) async fn log_file(
        &self,
        pod: &Pod,
        container: &str,
        previous: bool,
    ) -> Result<(String, PathBuf), String> {
        let name = &pod.metadata.name;
        let state = self.state(pod);
        let manifest = state.work.lock().await.manifest.clone();
        if manifest.is_some_and(|manifest| !Self::names(&manifest).iter().any(|it| it == container)) {
            return Err(format!("container \"{container}\" in pod \"{name}\" not found"));
        }
        let snapshot = self.look(&pod.metadata.uid).await.map_err(|status| status.message().to_owned())?;
        let runs: Vec<&Run> = snapshot.runs.get(container).into_iter().flatten().collect();
        let is_ended = |run: &Run| run.status.state() == m::ContainerState::Exited;
        let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let shown = statuses.into_iter().find(|it| it.name == container);
        let shows = |kind: &str| shown.is_some_and(|it| it.state.as_ref().is_some_and(|it| it.get(kind).is_some()));
        // A status that still shows the newest run as running is older than its end. Of two ended runs the runtime
        // keeps one, so the run that the status names as the last one may be removed already.
        let restarted = shown.and_then(|it| it.last_state.as_ref()).is_some_and(|it| it.get("terminated").is_some());
        let is_outdated = shows("running") && restarted;
        let is_between_runs = shows("waiting") || is_outdated;
        let run = match (runs.as_slice(), previous) {
            ([], true) => None,
            // Between two runs, the one that ended last is the previous one.
            ([newest, ..], true) if is_ended(newest) && is_between_runs => Some(*newest),
            ([_, before, ..], true) => Some(*before),
            (_, true) => None,
            (runs, false) => runs.first().copied(),
        };
        let Some(run) = run else {
            let of = &pod.status;
            let lists = [&of.container_statuses, &of.init_container_statuses, &of.ephemeral_container_statuses];
            let Some(known) = lists.into_iter().flatten().find(|it| it.name == container) else {
                return Err(format!("container \"{container}\" in pod \"{name}\" is not available"));
            };
            // The runtime has removed the container that ended: its id is what is left of it.
            let ended = |state: &Option<api::json::Value>| {
                let id = state.as_ref()?.str_at(&["terminated", "containerID"])?;
                Some(id.split_once("://").map_or(id, |(_, id)| id).to_owned())
            };
            let lost = ended(&known.last_state).or_else(|| ended(&known.state).filter(|_| !previous));
            if let Some(id) = lost {
                return Ok((id, PathBuf::new()));
            }
            return Err(if previous {
                format!("previous terminated container \"{container}\" in pod \"{name}\" not found")
            } else {
                let reason = known.state.as_ref().and_then(|it| it.str_at(&["waiting", "reason"]));
                let reason = words(reason.unwrap_or("ContainerCreating"));
                format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}")
            });
        };
        Ok((run.status.id.clone(), PathBuf::from(&run.status.log_path)))
    }
}

/// A waiting reason as `kubectl logs` shows it.
fn words(reason: &str) -> &str {
    match reason {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        other => other,
    }
}
