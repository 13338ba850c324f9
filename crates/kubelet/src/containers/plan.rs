//! The next step for a pod, as a function of its manifest and the runtime's state.
//!
//! Follows `computePodActions` and `computeInitContainerActions` of Kubernetes' kubelet.

use std::collections::HashMap;

use api::core::v1::Pod;
use api::json::Value;
use cri::messages::ContainerState;

use super::configs::HASH;
use super::manifest::{self, Kind, hash, is_sidecar, restarts};
use super::probes::Results;
use super::resize::Change;
use super::snapshot::{Run, Snapshot};

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// The pod has no sandbox, or one that is broken.
    CreateSandbox,
    /// Starts a container, or starts it again.
    Start {
        kind: Kind,
        name: String,
        attempt: u32,
        /// Time of the runtime at which it ended before.
        ended: Option<i64>,
    },
    /// Gives running containers their allocated resources.
    Resize,
    /// Ends a container that is to be started again.
    Kill { kind: Kind, name: String, why: String, grace: Option<i64> },
    /// All containers have ended: the rest is stopped.
    Finish,
    /// Nothing can be done now.
    Wait,
}

/// State besides the runtime's.
pub(super) struct PlanInput<'k> {
    pub(super) pod: &'k Pod,
    pub(super) manifest: &'k Value,
    /// Results of probes by the names of containers.
    pub(super) probes: &'k HashMap<String, Results>,
    /// Running containers that lack their allocated resources.
    pub(super) resized: &'k HashMap<String, Change>,
    /// Containers that are not to be started now.
    pub(super) held: &'k dyn Fn(&str) -> bool,
}

/// Whether a container is of no more use: it ended and is not started again, or the runtime has lost it.
pub(super) fn is_over(known: &PlanInput<'_>, kind: Kind, container: &Value, snapshot: &Snapshot) -> bool {
    let name = container.text("name");
    match snapshot.newest(name) {
        Some(run) if run.status.state() == ContainerState::Exited => {
            !restarts(known.manifest, kind, container, run.status.exit_code)
        }
        Some(_) => false,
        // It was started before, but the runtime has no trace of it: the machine was restarted, or its data was
        // lost.
        None => had_started(known.pod, name) && !restarts(known.manifest, kind, container, 137),
    }
}

/// Whether a container was started, according to the pod's status.
fn had_started(pod: &Pod, name: &str) -> bool {
    pod.status.container_statuses.iter().any(|it| it.name == name && !it.container_id.is_empty())
}

/// The number of the next run of a container.
fn next_attempt(pod: &Pod, snapshot: &Snapshot, name: &str) -> u32 {
    if let Some(run) = snapshot.newest(name) {
        return run.attempt().saturating_add(1);
    }
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let lost = statuses.into_iter().find(|it| it.name == name && !it.container_id.is_empty());
    lost.map_or(0, |it| u32::try_from(it.restart_count).unwrap_or(0).saturating_add(1))
}

/// Decides the next step.
pub(super) fn next(known: &PlanInput<'_>, snapshot: &Snapshot) -> Step {
    let manifest = known.manifest;
    let main = manifest.list_at(&["spec", "containers"]);
    let failed_init = manifest.list_at(&["spec", "initContainers"]).iter().any(|container| {
        let newest = snapshot.newest(container.text("name"));
        let failed = newest.filter(|it| it.status.state() == ContainerState::Exited && it.status.exit_code != 0);
        failed.is_some_and(|run| !restarts(manifest, Kind::Init, container, run.status.exit_code))
    });
    if failed_init || !main.is_empty() && main.iter().all(|it| is_over(known, Kind::Main, it, snapshot)) {
        return Step::Finish;
    }
    if snapshot.ready_sandbox().is_none() {
        return Step::CreateSandbox;
    }
    let has_main = main.iter().any(|it| snapshot.current(it.text("name")).is_some());
    for container in manifest.list_at(&["spec", "initContainers"]) {
        match init_step(known, snapshot, container, has_main) {
            Some(step) => return ephemeral(known, snapshot).filter(|_| step == Step::Wait).unwrap_or(step),
            None => continue,
        }
    }
    // Containers that have not been started come first, as in one look of Kubernetes' kubelet: one that ends at once does
    // not hold up the others.
    let is_new = |container: &&Value| snapshot.current(container.text("name")).is_none();
    for container in main.iter().filter(is_new).chain(main) {
        if let Some(step) = main_step(known, snapshot, Kind::Main, container) {
            return step;
        }
    }
    ephemeral(known, snapshot).unwrap_or(Step::Wait)
}

fn ephemeral(known: &PlanInput<'_>, snapshot: &Snapshot) -> Option<Step> {
    let all = known.manifest.list_at(&["spec", "ephemeralContainers"]);
    let mut missing = all.iter().map(|it| it.text("name")).filter(|name| snapshot.newest(name).is_none());
    let name = missing.find(|name| !(known.held)(name))?;
    Some(Step::Start { kind: Kind::Ephemeral, name: name.to_owned(), attempt: 0, ended: None })
}

/// The step that an init container needs before the next one; nothing if the next one has its turn.
fn init_step(known: &PlanInput<'_>, snapshot: &Snapshot, container: &Value, has_main: bool) -> Option<Step> {
    let name = container.text("name");
    let sidecar = is_sidecar(Kind::Init, container);
    let Some(run) = snapshot.current(name) else {
        // Init containers are not run again in the same sandbox.
        if has_main && !sidecar {
            return None;
        }
        return Some(start_or_wait(known, snapshot, Kind::Init, name, None));
    };
    if sidecar {
        return match main_step(known, snapshot, Kind::Init, container) {
            Some(step) => Some(step),
            None => {
                let is_running = run.status.state() == ContainerState::Running;
                let is_started = known.probes.get(name).is_some_and(|it| it.is_started);
                (!(has_main || is_running && is_started)).then_some(Step::Wait)
            }
        };
    }
    match run.status.state() {
        ContainerState::Exited if run.status.exit_code == 0 => None,
        ContainerState::Exited => Some(start_or_wait(known, snapshot, Kind::Init, name, Some(run))),
        _ => Some(Step::Wait),
    }
}

/// The step that a container needs; `None` if it is in the desired state.
fn main_step(known: &PlanInput<'_>, snapshot: &Snapshot, kind: Kind, container: &Value) -> Option<Step> {
    let name = container.text("name");
    let Some(run) = snapshot.current(name) else {
        let step = start_or_wait(known, snapshot, kind, name, None);
        return (step != Step::Wait).then_some(step);
    };
    match run.status.state() {
        ContainerState::Running => {
            let kill = |why, grace| Some(Step::Kill { kind, name: name.to_owned(), why, grace });
            let made_from = run.status.annotations.get(HASH);
            if made_from.is_some_and(|made_from| *made_from != hash(container)) {
                return kill(format!("Container {name} definition changed, will be restarted"), None);
            }
            if let Some((word, grace)) = known.probes.get(name).and_then(|it| it.failed) {
                return kill(format!("Container {name} failed {word} probe, will be restarted"), grace);
            }
            match known.resized.get(name)? {
                Change::Restart => kill(format!("Container {name} resize requires restart"), None),
                Change::InPlace => Some(Step::Resize),
            }
        }
        ContainerState::Exited | ContainerState::Unknown => {
            let again = restarts(known.manifest, kind, container, run.status.exit_code);
            let step = start_or_wait(known, snapshot, kind, name, Some(run));
            (again && step != Step::Wait).then_some(step)
        }
        // A container that was created but never started belongs to an agent that was killed in between.
        ContainerState::Created => Some(Step::Kill { kind, name: name.to_owned(), why: String::new(), grace: Some(0) }),
    }
}

fn start_or_wait(known: &PlanInput<'_>, snapshot: &Snapshot, kind: Kind, name: &str, ended: Option<&Run>) -> Step {
    if (known.held)(name) {
        return Step::Wait;
    }
    let attempt = next_attempt(known.pod, snapshot, name);
    Step::Start { kind, name: name.to_owned(), attempt, ended: ended.map(|run| run.status.finished_at) }
}

/// Whether a name is one of the manifest's containers.
pub(super) fn is_of(manifest: &Value, name: &str) -> bool {
    manifest::find(manifest, name).is_some()
}

#[cfg(test)]
mod tests;
