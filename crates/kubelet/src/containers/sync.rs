//! Bringing a pod further, step by step, until nothing can be done now.

use locks::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::core::v1::Pod;
use api::json::Value;
use api::time::Timestamp;
use client::events::Severity::{Normal, Warning};
use cri::messages as m;
use telemetry::logs::chain;
use tokio::sync::Notify;
use tracing::{debug, info};

use super::actions::Place;
use super::back_off::BackOff;
use super::configs::{self, SandboxFacts};
use super::images::WaitingReason;
use super::manifest::{self, Kind};
use super::plan::{self, PlanInput, Step};
use super::probes::{ProbeStart, Probes, Results};
use super::resize::{Allocation, Change};
use super::snapshot::{Snapshot, time};
use super::stopping::Stop;
use super::volumes::{MountedVolumes, Mounting, create};
use super::{SharedState, resources};
use crate::runtime::{Container, Observation, State};

/// More steps than a pod takes in one go.
const STEPS_MAX: usize = 200;
/// Interval at which volumes are compared with their sources.
const RENEWAL: Duration = Duration::from_secs(60);
/// Delay until a container that could not be started is tried again, as Kubernetes' kubelet has it.
const RETRY: Duration = Duration::from_secs(10);
/// The same if the attempt changed something in the runtime: Kubernetes' kubelet then looks again soon.
const RETRY_SOON: Duration = Duration::from_secs(1);
/// Delay after a failure of the runtime or of the server.
const AGAIN: Duration = Duration::from_secs(2);
/// Bounds of the delay after a failure to mount.
const MOUNT_DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(120));

/// State of one pod.
#[derive(Default)]
pub(super) struct PodState {
    /// Held while a worker processes the pod.
    pub(super) work: tokio::sync::Mutex<Work>,
    pub(super) stop: Mutex<Option<Stop>>,
    pub(super) stop_requested: Notify,
    pub(super) is_stopping: AtomicBool,
    pub(super) probes: Probes,
}

/// Progress of a pod's start.
#[derive(Debug, Clone, Copy, Default)]
enum PodStart {
    /// The pod was not observed yet.
    #[default]
    Unknown,
    /// Its containers wait since the first look.
    Begun(Timestamp),
    /// All of its containers have started.
    Started,
}

/// The memory between two looks. The runtime has the rest.
#[derive(Default)]
pub(super) struct Work {
    start: PodStart,
    pub(super) manifest: Option<Arc<Value>>,
    generation: i64,
    pub(super) allocation: Allocation,
    pub(super) mounted: MountedVolumes,
    mounted_at: Option<Timestamp>,
    mount_failures: u32,
    pub(super) back_offs: HashMap<String, BackOff>,
    /// The reasons for which containers wait, as the status shows them.
    pub(super) waiting: HashMap<String, WaitingReason>,
    /// The outcome of the last attempt to start a container, and when the next one follows. Kubernetes' kubelet shows
    /// the outcome with the next attempt, not before.
    failed: HashMap<String, (WaitingReason, Timestamp)>,
    /// Whether the runtime was changed since the last failure.
    pub(super) has_acted: bool,
    /// The state that was reported last. A new state is written before anything else is done.
    reported: Option<Observation>,
    /// Containers that this process started, by the runtime's names.
    pub(super) started: HashSet<String>,
    pub(super) addresses: Vec<String>,
    address_of: String,
}

impl Work {
    /// Records that the volumes of the pod are not mounted any more.
    pub(super) fn forget_volumes(&mut self) {
        (self.mounted, self.mounted_at) = (MountedVolumes::default(), None);
    }
}

/// A pod in the hands of one worker.
pub(super) struct Turn<'t> {
    pub(super) shared: &'t Arc<SharedState>,
    pub(super) pod: &'t Arc<Pod>,
    pub(super) manifest: &'t Value,
    pub(super) state: &'t PodState,
    pub(super) now: Timestamp,
}

impl SharedState {
    /// Advances a pod and returns the state of its containers.
    pub(super) async fn sync(self: &Arc<Self>, pod: &Pod, given: Option<&Value>, now: Timestamp) -> Observation {
        let state = self.state(pod);
        let mut work = state.work.lock().await;
        let stale = Observation { is_stale: true, next: Some(AGAIN), ..Observation::default() };
        if state.is_stopping.load(Ordering::Acquire) {
            return stale;
        }
        let Some(manifest) = self.manifest(pod, given, &mut work, now).await else { return stale };
        let pod = Arc::new(match work.allocation.is_changed() {
            true => with_resources(pod, &manifest),
            false => pod.clone(),
        });
        let turn = Turn { shared: self, pod: &pod, manifest: &manifest, state: &state, now };
        match turn.advance(&mut work).await {
            Ok(observation) => {
                self.measure_start(&mut work, &observation, now);
                observation
            }
            Err(status) => {
                debug!(pod = %pod.metadata.name, err = %chain(&status), "Could not reach the container runtime");
                stale
            }
        }
    }

    /// Measures the time from the first look at a pod until its containers have started, once. Pods that this process adopted are not measured.
    fn measure_start(&self, work: &mut Work, observation: &Observation, now: Timestamp) {
        if observation.is_stale {
            return;
        }
        let is_waiting = |it: &Container| matches!(it.state, State::Waiting { .. });
        let is_started = !observation.containers.is_empty() && !observation.containers.iter().any(is_waiting);
        work.start = match work.start {
            PodStart::Unknown if is_started => PodStart::Started,
            PodStart::Unknown => PodStart::Begun(now),
            PodStart::Begun(begun) if is_started => {
                self.metrics.pod_start.observe_duration(begun.until(now));
                PodStart::Started
            }
            known => known,
        };
    }

    /// The whole pod, reloaded when it may have changed.
    pub(super) async fn manifest(
        &self,
        pod: &Pod,
        given: Option<&Value>,
        work: &mut Work,
        now: Timestamp,
    ) -> Option<Arc<Value>> {
        if let Some(given) = given {
            let manifest = Arc::new(given.clone());
            work.manifest = Some(manifest.clone());
            return Some(manifest);
        }
        let is_old = work.mounted_at.is_some_and(|at| at.until(now) >= RENEWAL) && work.mounted.follows_sources();
        if let Some(known) = work.manifest.clone().filter(|_| work.generation == pod.metadata.generation && !is_old) {
            return Some(known);
        }
        match self.sources.pod(&pod.metadata.namespace, &pod.metadata.name).await {
            Ok(read) if read.str_at(&["metadata", "uid"]) == Some(pod.metadata.uid.as_str()) => {
                if work.generation != pod.metadata.generation {
                    // A pod that was changed does not wait for the end of a pause.
                    work.failed.values_mut().for_each(|(_, until)| *until = now);
                }
                if let Err(status) = self.load_allocation(pod, work).await {
                    debug!(pod = %pod.metadata.name, err = %chain(&status), "Could not read the resources of containers");
                    return None;
                }
                let mut read = read;
                work.allocation.overlay(&mut read);
                work.generation = pod.metadata.generation;
                let manifest = Arc::new(read);
                work.manifest = Some(manifest.clone());
                Some(manifest)
            }
            Ok(_) => None,
            // While the server is unavailable, pods continue unchanged.
            Err(error) => {
                debug!(pod = %pod.metadata.name, err = %chain(&error), "Could not read the pod");
                work.manifest.clone()
            }
        }
    }
}

impl Turn<'_> {
    async fn advance(&self, work: &mut Work) -> Result<Observation, cri::Status> {
        for _ in 0..STEPS_MAX {
            let snapshot = self.shared.look(&self.pod.metadata.uid).await?;
            self.shared.prune(&snapshot).await;
            let results = self.probe(&snapshot, work);
            let changes = self.follow_resize(&snapshot, work);
            self.reveal(work);
            if self.state.is_stopping.load(Ordering::Acquire) {
                return Ok(Observation { is_stale: true, ..Observation::default() });
            }
            let seen = self.observe(&snapshot, &results, work);
            if work.reported.as_ref() != Some(&seen) {
                work.reported = Some(seen.clone());
                return Ok(Observation { next: Some(Duration::ZERO), ..seen });
            }
            self.learn_addresses(&snapshot, work).await?;
            let step = self.decide(&snapshot, &results, &changes, work);
            if snapshot.ready_sandbox().is_some() && step != Step::Finish {
                match self.renew_volumes(work).await {
                    Ok(()) => {}
                    Err(next) => return Ok(Observation { next: Some(next), ..seen }),
                }
            }
            match step {
                Step::Wait => {
                    let next = self.next_look(work);
                    return Ok(Observation { next, ..seen });
                }
                Step::Finish => {
                    let is_ready = snapshot.ready_sandbox().is_some() || snapshot.running().next().is_some();
                    if !is_ready {
                        self.state.probes.retain(&[]);
                        return Ok(seen);
                    }
                    self.shared.finish(self.pod, self.manifest, &snapshot, work).await;
                    self.shared.devices.release(&self.pod.metadata.uid).await;
                }
                Step::CreateSandbox => match self.create_sandbox(&snapshot, work).await {
                    Ok(()) => work.has_acted = true,
                    Err(next) => return Ok(Observation { next: Some(next), ..seen }),
                },
                Step::Start { kind, name, attempt, ended } => {
                    self.start(kind, &name, attempt, ended, &snapshot, work).await;
                }
                Step::Resize => {
                    self.apply_resize(&snapshot, work).await;
                    work.has_acted = true;
                }
                Step::Kill { kind, name, why, grace } => {
                    self.kill(kind, &name, &why, grace, &snapshot, work).await;
                    work.has_acted = true;
                }
            }
        }
        Ok(Observation { is_stale: true, next: Some(AGAIN), ..Observation::default() })
    }

    /// Shows the outcome of attempts that are due to be repeated.
    fn reveal(&self, work: &mut Work) {
        let due: Vec<String> =
            work.failed.iter().filter(|(_, (_, until))| *until <= self.now).map(|(name, _)| name.clone()).collect();
        for name in due {
            if let Some((waiting, _)) = work.failed.remove(&name) {
                work.waiting.insert(name, waiting);
            }
        }
        work.waiting.retain(|name, _| plan::is_of(self.manifest, name));
    }

    fn decide(
        &self,
        snapshot: &Snapshot,
        results: &HashMap<String, Results>,
        resized: &HashMap<String, Change>,
        work: &Work,
    ) -> Step {
        let held = |name: &str| work.failed.contains_key(name);
        let known = PlanInput { pod: self.pod, manifest: self.manifest, probes: results, resized, held: &held };
        plan::next(&known, snapshot)
    }

    /// Delay until something is due: a container that waits, or a token.
    fn next_look(&self, work: &Work) -> Option<Duration> {
        let waits = work.failed.values().map(|(_, until)| *until);
        let renewal = work.mounted.follows_sources().then(|| self.now.plus(RENEWAL));
        let due = waits.chain(work.mounted.renewal()).chain(renewal).chain(work.allocation.retry()).min()?;
        Some(self.now.until(due).max(Duration::from_millis(100)))
    }

    /// Results of the probes of running containers, which begin with the first look.
    fn probe(&self, snapshot: &Snapshot, work: &Work) -> HashMap<String, Results> {
        let running: Vec<&str> = snapshot.running().map(|run| run.status.id.as_str()).collect();
        self.state.probes.retain(&running);
        let mut results = HashMap::new();
        for (kind, container) in manifest::containers(self.manifest) {
            let name = container.text("name");
            let Some(run) = snapshot.current(name) else { continue };
            if run.status.state() != m::ContainerState::Running || kind == Kind::Ephemeral {
                continue;
            }
            // Readiness survives a restart of the agent: a container that it did not start has the state of its
            // status.
            let id = format!("{}://{}", self.shared.runtime_name, run.status.id);
            let statuses = self.pod.status.container_statuses.iter().chain(&self.pod.status.init_container_statuses);
            let known = statuses.into_iter().find(|it| it.container_id == id.as_str());
            let known = known.filter(|_| !work.started.contains(&run.status.id));
            let address = work.addresses.first().cloned();
            let start = ProbeStart {
                shared: self.shared,
                pod: self.pod,
                kind,
                container,
                place: Place {
                    container_id: run.status.id.clone(),
                    address: address.unwrap_or_else(|| self.shared.facts.host_ip.clone()),
                },
                age: time(run.status.started_at).until(self.now),
                known: known.map(|it| (it.started.unwrap_or(false), it.ready)),
            };
            results.insert(name.to_owned(), self.state.probes.results(&start));
        }
        results
    }

    async fn learn_addresses(&self, snapshot: &Snapshot, work: &mut Work) -> Result<(), cri::Status> {
        let Some(sandbox) = snapshot.ready_sandbox() else { return Ok(()) };
        if work.address_of == sandbox.id {
            return Ok(());
        }
        let request = m::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone(), verbose: false };
        let status = self.shared.runtime.pod_sandbox_status(request).await?.status.unwrap_or_default();
        let network = status.network.unwrap_or_default();
        let all = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|it| it.ip));
        work.addresses = all.filter(|ip| !ip.is_empty()).collect();
        work.address_of = sandbox.id.clone();
        self.shared.limit_pod(self.pod, false);
        Ok(())
    }

    async fn mount(&self, work: &mut Work) -> Result<(), Duration> {
        let facts = self.facts(work);
        let mounting = Mounting {
            sources: &self.shared.sources,
            pod: self.pod,
            manifest: self.manifest,
            facts: &facts,
            directory: self.shared.directory(&self.pod.metadata.uid),
            can_mount: self.shared.can_mount,
            now: self.now,
        };
        match mounting.mount_all(&mut work.mounted).await {
            Ok(()) => {
                (work.mounted_at, work.mount_failures) = (Some(self.now), 0);
                Ok(())
            }
            Err(failure) => {
                self.shared.events.pod(self.pod, Warning, "FailedMount", &failure.message());
                let factor = 1_u32.checked_shl(work.mount_failures).unwrap_or(u32::MAX);
                work.mount_failures = work.mount_failures.saturating_add(1);
                Err(MOUNT_DELAYS.0.saturating_mul(factor).min(MOUNT_DELAYS.1))
            }
        }
    }

    async fn renew_volumes(&self, work: &mut Work) -> Result<(), Duration> {
        let is_fresh = work.mounted_at.is_some_and(|at| at.until(self.now) < RENEWAL);
        let is_due = work.mounted.renewal().is_some_and(|at| at <= self.now);
        if is_fresh && !is_due || work.mounted_at.is_some() && !work.mounted.follows_sources() {
            return Ok(());
        }
        let was_mounted = work.mounted_at.is_some();
        match self.mount(work).await {
            // Containers that run keep the files that they have.
            Err(_) if was_mounted => {
                work.mounted_at = Some(self.now);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Values for environment variables, with the addresses of this pod.
    pub(super) fn facts(&self, work: &Work) -> super::Facts {
        let mut facts = self.shared.facts.clone();
        facts.pod_ips = if self.pod.spec.host_network { vec![facts.host_ip.clone()] } else { work.addresses.clone() };
        facts
    }

    /// The configuration of a new or existing sandbox.
    pub(super) fn sandbox_config(&self, attempt: u32) -> m::PodSandboxConfig {
        let (shared, metadata) = (self.shared, &self.pod.metadata);
        let qos = matching::resources::qos_class(&self.pod.spec);
        let parent = resources::cgroup_parent(&shared.cgroup_root, shared.cgroup_driver, qos, &metadata.uid);
        let logs = shared.log_directory(&metadata.namespace, &metadata.name, &metadata.uid);
        let facts = SandboxFacts {
            node: &shared.node,
            attempt,
            cgroup_parent: parent,
            log_directory: logs.display().to_string(),
            dns: &shared.dns,
        };
        configs::sandbox(self.pod, self.manifest, facts)
    }

    async fn create_sandbox(&self, snapshot: &Snapshot, work: &mut Work) -> Result<(), Duration> {
        let (shared, metadata) = (self.shared, &self.pod.metadata);
        if self.manifest.at(&["spec", "hostUsers"]).and_then(Value::as_bool) == Some(false) {
            let message = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces";
            shared.events.pod(self.pod, Warning, "FailedCreatePodSandBox", message);
            return Err(RETRY);
        }
        self.mount(work).await?;
        if let Some(broken) = snapshot.sandboxes.first() {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            shared.events.pod(self.pod, Normal, "SandboxChanged", message);
            let address = work.addresses.first().cloned().unwrap_or_default();
            shared.end_containers(self.pod, self.manifest, snapshot, address).await;
            let request = m::StopPodSandboxRequest { pod_sandbox_id: broken.id.clone() };
            shared.runtime.stop_pod_sandbox(request).await.map_err(|_| AGAIN)?;
        }
        let attempts =
            snapshot.sandboxes.iter().filter_map(|it| it.metadata.as_ref()).map(|it| it.attempt.saturating_add(1));
        let config = self.sandbox_config(attempts.max().unwrap_or(0));
        for message in shared.dns.of_pod(self.pod, self.manifest).1 {
            shared.events.pod(self.pod, Warning, "DNSConfigForming", &message);
        }
        let failed = |why: String| {
            shared.events.pod(
                self.pod,
                Warning,
                "FailedCreatePodSandBox",
                &format!("Failed to create pod sandbox: {why}"),
            );
            AGAIN
        };
        create(&shared.log_directory(&metadata.namespace, &metadata.name, &metadata.uid), 0o755)
            .map_err(|error| failed(error.to_string()))?;
        let class = self.manifest.text_at(&["spec", "runtimeClassName"]);
        let runtime_handler = shared.sources.runtime_handler(class).await.map_err(failed)?;
        let request = m::RunPodSandboxRequest { config: Some(config), runtime_handler };
        let made =
            shared.runtime.run_pod_sandbox(request).await.map_err(|status| {
                failed(format!("rpc error: code = {:?} desc = {}", status.code(), status.message()))
            })?;
        info!(pod = %metadata.name, sandbox = %made.pod_sandbox_id, "Created pod sandbox");
        Ok(())
    }

    /// Ends one container, which the next sync starts again.
    async fn kill(&self, kind: Kind, name: &str, why: &str, grace: Option<i64>, snapshot: &Snapshot, work: &mut Work) {
        let (Some(run), Some((_, container))) = (snapshot.current(name), manifest::find(self.manifest, name)) else {
            return;
        };
        if why.is_empty() {
            let request = m::RemoveContainerRequest { container_id: run.status.id.clone() };
            if let Err(status) = self.shared.runtime.remove_container(request).await {
                debug!(err = %chain(&status), "Could not remove a container that was never started");
            }
            return;
        }
        self.shared.events.container(self.pod, kind, container, Normal, "Killing", why);
        let grace = grace.unwrap_or_else(|| self.shared.grace(self.pod, self.manifest));
        let place =
            Place { container_id: run.status.id.clone(), address: work.addresses.first().cloned().unwrap_or_default() };
        self.shared.stop_container(self.pod, container, &place, grace).await;
    }
}

/// The pod with the resources of its manifest, which are the allocated ones.
fn with_resources(pod: &Pod, manifest: &Value) -> Pod {
    let mut pod = pod.clone();
    let part = &mut *pod.spec.part;
    for container in part.containers.iter_mut().chain(&mut part.init_containers) {
        let found = manifest::find(manifest, &container.name).and_then(|(_, it)| it.get("resources"));
        if let Some(given) = found.and_then(|given| api::json::from_value(given).ok()) {
            container.resources = given;
        }
    }
    pod
}

/// Records that a container could not be started.
pub(super) fn hold(work: &mut Work, name: &str, waiting: WaitingReason, now: Timestamp) {
    let pause = if std::mem::take(&mut work.has_acted) { RETRY_SOON } else { RETRY };
    work.failed.insert(name.to_owned(), (waiting, now.plus(pause)));
}

/// Records that a container was started.
pub(super) fn release(work: &mut Work, name: &str) {
    work.waiting.remove(name);
    work.failed.remove(name);
    work.has_acted = true;
}
