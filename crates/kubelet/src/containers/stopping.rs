//! Termination of pods: hooks, grace periods, sidecars last; and the release of their resources.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use api::core::v1::Pod;
use api::json::{Text, Value};
use client::events::Severity::{Normal, Warning};
use cri::messages as m;
use futures::future::join_all;
use matching::resources::QosClass;
use telemetry::logs::chain;
use tracing::{debug, info, warn};

use super::SharedState;
use super::actions::{self, Place};
use super::configs::{OWNER, POD_UID};
use super::manifest::{self, Kind, is_sidecar};
use super::snapshot::Snapshot;
use super::start::note;
use super::sync::{Turn, Work};
use super::{resources, volumes};
use crate::runtime::{ContainerTermination, Observation, State, StopProgress};

/// Containers get at least this long after a hook, in seconds.
const GRACE_MIN: i64 = 2;
/// The grace period of a pod that gives none, in seconds.
const GRACE: i64 = 30;
/// Interval at which a terminating pod is checked.
const LOOK: Duration = Duration::from_secs(1);

/// A pod that is being ended.
pub(super) struct Stop {
    grace: i64,
    ended: Option<Observation>,
}

impl SharedState {
    /// The grace period of a pod in seconds: that of its deletion, or its own.
    pub(super) fn grace(&self, pod: &Pod, manifest: &Value) -> i64 {
        let own = manifest.i64_at(&["spec", "terminationGracePeriodSeconds"]).unwrap_or(GRACE);
        let given = pod.metadata.deletion_grace_period_seconds.unwrap_or(own);
        let limit = self.ending(&pod.metadata.uid).and_then(|it| it.grace);
        limit.map_or(given, |limit| given.min(limit))
    }

    /// Begins or continues the termination of a pod.
    pub(super) fn stop(self: &Arc<Self>, pod: &Pod) -> StopProgress {
        let state = self.state(pod);
        let mut stop = state.stop.lock();
        let wanted = pod.metadata.deletion_grace_period_seconds;
        match &mut *stop {
            Some(Stop { ended: Some(ended), .. }) => StopProgress::Ended(ended.clone()),
            Some(stop) => {
                if let Some(shorter) = wanted.filter(|wanted| *wanted < stop.grace) {
                    stop.grace = shorter;
                    let (shared, uid) = (self.clone(), pod.metadata.uid.clone());
                    tokio::spawn(async move { shared.hurry(&uid, shorter).await });
                }
                StopProgress::Wait(LOOK)
            }
            None => {
                *stop = Some(Stop { grace: wanted.unwrap_or(i64::MAX), ended: None });
                state.is_stopping.store(true, Ordering::Release);
                state.stop_requested.notify_one();
                let (shared, pod) = (self.clone(), Arc::new(pod.clone()));
                tokio::spawn(async move { shared.end(pod).await });
                StopProgress::Wait(LOOK)
            }
        }
    }

    /// Shortens the time of all containers of a pod that is ending.
    async fn hurry(&self, uid: &str, grace: i64) {
        let Ok(snapshot) = self.look(uid).await else { return };
        join_all(snapshot.running().map(|run| {
            let request = m::StopContainerRequest { container_id: run.status.id.clone(), timeout: grace };
            self.runtime.stop_container(request)
        }))
        .await;
    }

    /// Ends a pod, and retries while the runtime is unavailable.
    async fn end(self: Arc<Self>, pod: Arc<Pod>) {
        let state = self.state(&pod);
        let mut work = state.work.lock().await;
        state.probes.retain(&[]);
        let manifest = match work.manifest.clone() {
            Some(manifest) => manifest,
            None => Arc::new(api::json::to_value(&*pod).unwrap_or_default()),
        };
        let observation = loop {
            match self.end_once(&pod, &manifest, &mut work).await {
                Ok(observation) => break observation,
                Err(status) => {
                    debug!(pod = %pod.metadata.name, err = %chain(&status), "Could not end the pod");
                    tokio::time::sleep(LOOK).await;
                }
            }
        };
        info!(pod = %pod.metadata.name, "Ended pod");
        self.release_volumes(&pod.metadata.uid, &mut work).await;
        if let Some(stop) = &mut *state.stop.lock() {
            stop.ended = Some(observation);
        }
        self.wake(&pod);
    }

    async fn end_once(
        self: &Arc<Self>,
        pod: &Arc<Pod>,
        manifest: &Value,
        work: &mut Work,
    ) -> Result<Observation, cri::Status> {
        let snapshot = self.look(&pod.metadata.uid).await?;
        self.end_containers(pod, manifest, &snapshot, work.addresses.first().cloned().unwrap_or_default()).await;
        for sandbox in &snapshot.sandboxes {
            let request = m::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
            self.runtime.stop_pod_sandbox(request).await?;
        }
        let after = self.look(&pod.metadata.uid).await?;
        let state = self.state(pod);
        let turn = Turn { shared: self, pod, manifest, state: &state, now: self.clock.now() };
        self.devices.release(&pod.metadata.uid).await;
        work.waiting.clear();
        let mut seen = turn.observe(&after, &Default::default(), work);
        (seen.has_sandbox, seen.may_run) = (false, false);
        let now = turn.now;
        for container in seen.init_containers.iter_mut().chain(&mut seen.containers) {
            container.is_restarting = false;
        }
        for container in &mut seen.containers {
            if matches!(container.state, State::Waiting { .. }) {
                container.state = State::Ended(ContainerTermination {
                    word: "ContainerStatusUnknown".into(),
                    message: "The container could not be located when the pod was terminated".into(),
                    ..ContainerTermination::new(137, now, now)
                });
            }
        }
        Ok(seen)
    }

    /// Reports the end of a pod's running containers, and ends them.
    pub(super) async fn end_containers(&self, pod: &Pod, manifest: &Value, snapshot: &Snapshot, address: String) {
        for run in snapshot.running() {
            let name = run.status.metadata.as_ref().map(|it| it.name.as_str()).unwrap_or_default();
            if let Some((kind, container)) = manifest::find(manifest, name) {
                let message = format!("Stopping container {name}");
                self.events.container(pod, kind, container, Normal, "Killing", &message);
            }
        }
        self.stop_containers(pod, manifest, snapshot, address).await;
    }

    /// Ends the containers of a pod: all but sidecars at once, then the sidecars from the last to the first.
    async fn stop_containers(&self, pod: &Pod, manifest: &Value, snapshot: &Snapshot, address: String) {
        let begun = Instant::now();
        let grace = self.grace(pod, manifest);
        let place = |id: &str| Place { container_id: id.to_owned(), address: address.clone() };
        let running = |name: &str| {
            let run = snapshot.newest(name).filter(|it| it.status.state() == m::ContainerState::Running);
            run.map(|run| run.status.id.clone())
        };
        let all: Vec<(Kind, &Value)> = manifest::containers(manifest).collect();
        let (sidecars, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(kind, it)| is_sidecar(*kind, it));
        join_all(others.into_iter().filter_map(|(_, container)| {
            let id = running(container.text("name"))?;
            let place = place(&id);
            Some(async move { self.stop_container(pod, container, &place, grace).await })
        }))
        .await;
        for (_, container) in sidecars.into_iter().rev() {
            if let Some(id) = running(container.text("name")) {
                let elapsed = i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX);
                let left = if grace == 0 { 0 } else { grace.saturating_sub(elapsed).max(GRACE_MIN) };
                self.stop_container(pod, container, &place(&id), left).await;
            }
        }
    }

    /// Runs a container's hook and ends it, within a grace period.
    pub(super) async fn stop_container(&self, pod: &Pod, container: &Value, place: &Place, grace: i64) {
        let begun = Instant::now();
        let mut timeout = grace;
        if let Some(hook) = container.at(&["lifecycle", "preStop"])
            && grace > 0
        {
            let limit = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            let outcome =
                tokio::time::timeout(limit, actions::hook(&self.runtime, place, container, hook, limit)).await;
            if let Ok(Err(why)) = outcome {
                debug!(pod = %pod.metadata.name, err = why, "PreStop hook failed");
                let message = "PreStopHook failed";
                let kind = if pod.spec.init_containers.iter().any(|it| it.name == container.text("name")) {
                    Kind::Init
                } else {
                    Kind::Main
                };
                self.events.container(pod, kind, container, Warning, "FailedPreStopHook", message);
            }
            let elapsed = i64::try_from(begun.elapsed().as_secs()).unwrap_or(i64::MAX);
            timeout = grace.saturating_sub(elapsed).max(GRACE_MIN);
        }
        let request = m::StopContainerRequest { container_id: place.container_id.clone(), timeout };
        note(self.runtime.stop_container(request).await, "container");
    }

    /// Ends the rest of a pod whose containers have ended: sidecars, the sandbox, and then its volumes.
    pub(super) async fn finish(&self, pod: &Pod, manifest: &Value, snapshot: &Snapshot, work: &mut Work) {
        self.end_containers(pod, manifest, snapshot, String::new()).await;
        let mut is_stopped = true;
        for sandbox in &snapshot.sandboxes {
            let request = m::StopPodSandboxRequest { pod_sandbox_id: sandbox.id.clone() };
            let outcome = self.runtime.stop_pod_sandbox(request).await;
            is_stopped &= outcome.is_ok();
            note(outcome, "sandbox");
        }
        if is_stopped {
            self.release_volumes(&pod.metadata.uid, work).await;
        }
    }

    /// Removes the volumes of a pod whose containers have ended: they take memory and disk that others need. Logs and
    /// termination messages stay until the pod is deleted.
    async fn release_volumes(&self, uid: &str, work: &mut Work) {
        work.forget_volumes();
        let directory = self.directory(uid);
        let removed = tokio::task::spawn_blocking(move || match volumes::unmount_below(&directory)? {
            true if directory.join("volumes").exists() => std::fs::remove_dir_all(directory.join("volumes")),
            true => Ok(()),
            false => Err(std::io::Error::other("something is still mounted")),
        });
        if let Ok(Err(error)) = removed.await {
            debug!(uid, err = %chain(&error), "Could not remove the volumes of the pod");
        }
    }

    /// Removes all resources of a deleted pod: containers, sandboxes, volumes, cgroups and logs.
    pub(super) async fn release(&self, uid: &str) {
        let state = self.pods().remove(uid);
        if let Some(state) = &state {
            state.is_stopping.store(true, Ordering::Release);
            state.stop_requested.notify_one();
            // A worker that processes the pod finishes its step.
            drop(state.work.lock().await);
            state.probes.retain(&[]);
        }
        self.images.forget(uid);
        self.release_limits(uid);
        self.forget_ending(uid);
        self.devices.release(uid).await;
        let snapshot = match self.look(uid).await {
            Ok(snapshot) => snapshot,
            // The next start of the agent finds it again.
            Err(status) => return warn!(uid, err = %chain(&status), "Could not release the pod"),
        };
        let mut log_directories = HashSet::new();
        for sandbox in &snapshot.sandboxes {
            let id = || sandbox.id.clone();
            note(self.runtime.stop_pod_sandbox(m::StopPodSandboxRequest { pod_sandbox_id: id() }).await, "sandbox");
            note(self.runtime.remove_pod_sandbox(m::RemovePodSandboxRequest { pod_sandbox_id: id() }).await, "sandbox");
            if let Some(of) = &sandbox.metadata {
                log_directories.insert(self.log_directory(&of.namespace, &of.name, &of.uid));
            }
        }
        let directory = self.directory(uid);
        let parents = [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort]
            .map(|qos| resources::cgroup_parent(&self.cgroup_root, self.cgroup_driver, qos, uid));
        let removed = tokio::task::spawn_blocking(move || {
            parents.iter().for_each(|parent| resources::remove_cgroup(Path::new(resources::CGROUPS), parent));
            for logs in log_directories {
                let _ = std::fs::remove_dir_all(logs);
            }
            // Files below a mount may be the user's: they are removed only when nothing is mounted any more.
            match volumes::unmount_below(&directory)? {
                true if directory.exists() => std::fs::remove_dir_all(&directory),
                true => Ok(()),
                false => Err(std::io::Error::other("something is still mounted")),
            }
        });
        if let Ok(Err(error)) = removed.await {
            warn!(uid, err = %chain(&error), "Could not remove the files of the pod");
        }
    }

    /// Releases pods of this agent that are none any more.
    pub(super) async fn release_others(&self, uids: &HashSet<Text>) {
        let selector = BTreeMap::from([(OWNER.to_owned(), self.node.clone())]);
        let filter = m::PodSandboxFilter { label_selector: selector, ..m::PodSandboxFilter::default() };
        let Ok(found) = self.runtime.list_pod_sandbox(m::ListPodSandboxRequest { filter: Some(filter) }).await else {
            return;
        };
        let from_file = |it: &m::PodSandbox| it.annotations.contains_key(crate::static_pods::HASH);
        let known = |it: &m::PodSandbox| it.labels.get(POD_UID).filter(|uid| !uids.contains(uid.as_str())).cloned();
        let gone: HashSet<String> = found.items.iter().filter(|it| !from_file(it)).filter_map(known).collect();
        for uid in gone {
            info!(uid, "Released the resources of a deleted pod");
            self.release(&uid).await;
        }
    }

    /// The names of a manifest's containers.
    pub(super) fn names(manifest: &Value) -> Vec<String> {
        let fields = [Kind::Init, Kind::Main, Kind::Ephemeral].map(Kind::field);
        let all = fields.iter().flat_map(|field| manifest.list_at(&["spec", field]));
        all.map(|it| it.text("name").to_owned()).collect()
    }
}
