//! The parts of a pod's status that only real containers have.
//!
//! Follows `getPhase` in `kubelet_pods.go` and `status/generate.go` of Kubernetes' kubelet.

use api::core::v1::{Pod, ResourceList};
use api::json::{Object, Value};
use api::well_known::CONDITION_POD_SCHEDULED;
use matching::resources::{self, Options, is_sidecar};

use crate::runtime::{Container, Observation, State};

/// Conditions of a resize, which vanish with its end.
pub(super) const RESIZE: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// The conditions that the node agent writes.
pub(super) const OWN: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", CONDITION_POD_SCHEDULED];

/// Whether a regular container runs, or has ever run: then the pod has been initialized.
pub(super) fn has_started(seen: &Observation) -> bool {
    seen.containers.iter().any(|it| !matches!(it.state, State::Waiting { .. }) || it.last_end.is_some())
}

/// A pod's phase. Containers that are started again do not end it.
pub(super) fn phase(pod: &Pod, seen: &Observation) -> &'static str {
    let (mut is_initializing, mut running, mut waiting) = (false, 0_u32, 0_u32);
    for (container, seen_container) in pod.spec.init_containers.iter().zip(&seen.init_containers) {
        let sidecar = is_sidecar(container);
        match &seen_container.state {
            State::Running { .. } if sidecar => {
                is_initializing |= !seen_container.is_started && !has_started(seen);
                running = running.saturating_add(1);
            }
            State::Running { .. } => is_initializing = true,
            State::Waiting { .. } if seen_container.last_end.is_none() => {
                is_initializing |= !sidecar || !has_started(seen);
                waiting = waiting.saturating_add(u32::from(sidecar));
            }
            // Sidecars that have ended do not count.
            _ if sidecar => {}
            _ => {
                if end_code(seen_container).is_some_and(|code| code != 0) && !seen_container.is_restarting {
                    return "Failed";
                }
            }
        }
    }
    let (mut stopped, mut restarting, mut succeeded) = (0_u32, 0_u32, 0_u32);
    for container in &seen.containers {
        match &container.state {
            State::Running { .. } => running = running.saturating_add(1),
            State::Waiting { .. } if container.last_end.is_none() => waiting = waiting.saturating_add(1),
            _ => {
                stopped = stopped.saturating_add(1);
                restarting = restarting.saturating_add(u32::from(container.is_restarting));
                let has_succeeded = matches!(&container.state, State::Ended(end) if end.exit_code == 0);
                succeeded = succeeded.saturating_add(u32::from(has_succeeded));
            }
        }
    }
    match () {
        () if is_initializing || waiting > 0 => "Pending",
        () if running > 0 || restarting > 0 => "Running",
        () if stopped == 0 => "Pending",
        () if stopped == succeeded => "Succeeded",
        () => "Failed",
    }
}

fn end_code(container: &Container) -> Option<i32> {
    match (&container.state, &container.last_end) {
        (State::Ended(end), _) | (State::Waiting { .. }, Some(end)) => Some(end.exit_code),
        _ => None,
    }
}

/// Adds the resources of the pod as a whole: those that are allocated, or the requested ones of a pod of which nothing runs.
pub(super) fn insert_resources(status: &mut Object, pod: &Pod, seen: &Observation) {
    let requested = || {
        let options = Options::default();
        (resources::requests(&pod.spec, options), resources::limits(&pod.spec, options))
    };
    let (requests, limits) = seen.resources.clone().unwrap_or_else(requested);
    let mut whole = Object::new();
    for (name, amounts) in [("requests", &requests), ("limits", &limits)] {
        if !amounts.is_empty() {
            whole.insert(name, list(amounts));
        }
    }
    status.insert("resources", whole);
    if !requests.is_empty() {
        status.insert("allocatedResources", list(&requests));
    }
}

fn list(amounts: &ResourceList) -> Value {
    let mut object = Object::new();
    for (name, amount) in amounts {
        object.insert(name.as_str(), amount.to_string());
    }
    object.into()
}

#[cfg(test)]
mod tests {
    use api::time::Timestamp;

    use super::*;
    use crate::runtime::ContainerTermination;

    fn container(state: State, is_restarting: bool) -> Container {
        let mut container = Container::waiting(&"c".into(), &"i".into(), "ContainerCreating");
        (container.state, container.is_restarting) = (state, is_restarting);
        container
    }

    fn ended(code: i32) -> State {
        let at = Timestamp { seconds: 1, nanos: 0 };
        State::Ended(ContainerTermination::new(code, at, at))
    }

    fn running() -> State {
        State::Running { since: Timestamp { seconds: 1, nanos: 0 } }
    }

    #[track_caller]
    fn check(init: Option<(Container, bool)>, main: Container, expected: &str) {
        let mut document = api::json!({"spec": {"containers": [{"name": "c"}]}});
        let mut seen = Observation { is_real: true, containers: vec![main], ..Observation::default() };
        if let Some((container, sidecar)) = init {
            let policy = if sidecar { "Always" } else { "" };
            document = api::json!({"spec": {"containers": [{"name": "c"}],
                "initContainers": [{"name": "i", "restartPolicy": policy}]}});
            seen.init_containers = vec![container];
        }
        let pod: Pod = api::json::from_value(&document).expect("a pod");
        assert_eq!(phase(&pod, &seen), expected);
    }

    #[test]
    fn phase_follows_containers_and_sidecars() {
        let waiting = || Container::waiting(&"c".into(), &"i".into(), "PodInitializing");
        check(None, waiting(), "Pending");
        check(None, container(ended(1), true), "Running");
        check(None, container(ended(1), false), "Failed");
        check(None, container(ended(0), false), "Succeeded");
        check(Some((container(running(), false), true)), container(ended(0), false), "Running");
        check(Some((container(running(), false), false)), container(ended(0), true), "Pending");
        check(Some((container(ended(3), false), false)), waiting(), "Failed");
        check(Some((container(ended(3), true), false)), waiting(), "Pending");
        check(Some((container(ended(0), false), true)), container(running(), false), "Running");
    }
}
