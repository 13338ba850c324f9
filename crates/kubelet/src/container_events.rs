//! Container events of the kubelet: Pulled, Created, Started, BackOff and Killing.
//!
//! Three events for a pod are more writes than the pod itself needs. Large fleets leave them out.

use api::core::v1::{ContainerStatus, Pod};
use client::events::Severity;

use crate::deadline;
use crate::runtime::{Container, Observation, State};

/// One event about a container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEvent {
    /// Path of the container in the pod.
    pub field_path: String,
    /// Severity of the event.
    pub severity: Severity,
    /// In one word.
    pub reason: &'static str,
    /// Message of the event.
    pub message: String,
}

/// Returns the events since the pod's last status.
#[must_use]
pub fn news(pod: &Pod, seen: &Observation) -> Vec<ContainerEvent> {
    let mut reported = Vec::new();
    let lists = [
        ("spec.initContainers", &seen.init_containers, &pod.status.init_container_statuses),
        ("spec.containers", &seen.containers, &pod.status.container_statuses),
    ];
    for (list, containers, statuses) in lists {
        for container in containers {
            let known = statuses.iter().find(|it| it.name == container.name);
            let mut report = |severity, reason, message| {
                let field_path = format!("{list}{{{}}}", container.name);
                reported.push(ContainerEvent { field_path, severity, reason, message });
            };
            if has_started(container, known) {
                let image = &container.image;
                let pulled = format!("Container image \"{image}\" already present on machine");
                report(Severity::Normal, "Pulled", pulled);
                report(Severity::Normal, "Created", "Container created".to_owned());
                report(Severity::Normal, "Started", "Container started".to_owned());
            }
            if backs_off(container) && !known.is_some_and(said_to_back_off) {
                let (name, pod_name) = (&container.name, &pod.metadata.name);
                let (namespace, uid) = (&pod.metadata.namespace, &pod.metadata.uid);
                let message =
                    format!("Back-off restarting failed container {name} in pod {pod_name}_{namespace}({uid})");
                report(Severity::Warning, "BackOff", message);
            }
        }
    }
    reported
}

/// Returns the events for stopping the containers of a pod.
#[must_use]
pub fn killing(pod: &Pod) -> Vec<ContainerEvent> {
    let running = pod.status.container_statuses.iter().filter(|it| is(it, "running"));
    let report = |status: &ContainerStatus| ContainerEvent {
        field_path: format!("spec.containers{{{}}}", status.name),
        severity: Severity::Normal,
        reason: "Killing",
        message: format!("Stopping container {}", status.name),
    };
    running.map(report).collect()
}

/// Returns the events for a pod that has reached its deadline, and for its containers.
#[must_use]
pub fn overdue(pod: &Pod) -> Vec<ContainerEvent> {
    let mut reported = vec![ContainerEvent {
        field_path: String::new(),
        severity: Severity::Normal,
        reason: deadline::REASON,
        message: deadline::MESSAGE.to_owned(),
    }];
    reported.extend(killing(pod));
    reported
}

/// Whether a container is in a state, according to its status.
fn is(status: &ContainerStatus, state: &str) -> bool {
    status.state.as_ref().is_some_and(|it| it.get(state).is_some())
}

/// Whether a run has begun that the status does not know of.
fn has_started(container: &Container, known: Option<&ContainerStatus>) -> bool {
    let runs_or_ran = matches!(container.state, State::Running { .. } | State::Ended(_));
    let knows = |it: &ContainerStatus| {
        let has_run = is(it, "running") || is(it, "terminated") || it.last_state.is_some();
        has_run && it.restart_count >= container.restarts
    };
    runs_or_ran && !known.is_some_and(knows)
}

fn backs_off(container: &Container) -> bool {
    matches!(container.state, State::Waiting { reason: "CrashLoopBackOff", .. })
}

fn said_to_back_off(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|it| it.get("waiting"));
    waiting.and_then(|it| it.str_at(&["reason"])) == Some("CrashLoopBackOff")
}

#[cfg(test)]
mod tests {
    use api::json;
    use api::json::from_value;
    use api::time::Timestamp;

    use super::*;

    #[track_caller]
    fn check(status: json::Value, state: State, restarts: i32, expected: &[&str]) {
        let pod: Pod = from_value(&json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "app:1"}]},
            "status": {"containerStatuses": [status]},
        }))
        .unwrap();
        let mut seen = Observation::not_started(&pod);
        seen.containers[0].state = state;
        seen.containers[0].restarts = restarts;
        let reported: Vec<String> =
            news(&pod, &seen).iter().map(|it| format!("{}: {}", it.reason, it.message)).collect();
        assert_eq!(reported, expected);
        assert!(news(&pod, &seen).iter().all(|it| it.field_path == "spec.containers{c}"));
    }

    #[test]
    fn start_event_is_recorded_once() {
        let started = [
            "Pulled: Container image \"app:1\" already present on machine",
            "Created: Container created",
            "Started: Container started",
        ];
        let running = || State::Running { since: Timestamp { seconds: 1, nanos: 0 } };
        let waits = json!({"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}});
        check(waits.clone(), running(), 0, &started);
        let runs = json!({"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
        check(runs.clone(), running(), 0, &[]);
        check(runs.clone(), running(), 1, &started);
        let back_off = || State::Waiting { reason: "CrashLoopBackOff", message: String::new() };
        check(runs, back_off(), 0, &["BackOff: Back-off restarting failed container c in pod p_ns(u)"]);
        let backs_off = json!({"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        check(backs_off, back_off(), 0, &[]);
        check(waits, State::Waiting { reason: "ContainerCreating", message: String::new() }, 0, &[]);
    }

    #[test]
    fn killing_event_only_for_running_containers() {
        let pod: Pod = from_value(&json!({"status": {"containerStatuses": [
            {"name": "a", "state": {"running": {}}}, {"name": "b", "state": {"terminated": {}}},
        ]}}))
        .unwrap();
        let reported: Vec<String> = killing(&pod).into_iter().map(|it| it.message).collect();
        assert_eq!(reported, ["Stopping container a"]);
    }
}
