//! Pods.

use api::json::{NameFilter, Value};
use api::time::Timestamp;
use api::well_known::CONDITION_POD_SCHEDULED;

use super::Description::{Field, Text};
use super::{AGE, NAME, Printer, age, condition, is_deleting, name, or_none, since, text, wide};

pub(crate) const PRINTER: Printer = Printer {
    columns: &[
        NAME,
        text("Ready", Text("The aggregate readiness state of this pod for accepting traffic.")),
        text("Status", Text("The aggregate status of the containers in this pod.")),
        text(
            "Restarts",
            Text(
                "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
            ),
        ),
        AGE,
        wide("IP", Field("io.k8s.api.core.v1.PodStatus", "podIP")),
        wide("Node", Field("io.k8s.api.core.v1.PodSpec", "nodeName")),
        wide("Nominated Node", Field("io.k8s.api.core.v1.PodStatus", "nominatedNodeName")),
        wide("Readiness Gates", Field("io.k8s.api.core.v1.PodSpec", "readinessGates")),
    ],
    cells,
    unread: UNREAD,
};

/// Large parts of a pod that are not shown.
const UNREAD: NameFilter = NameFilter::new(&[
    "affinity",
    "allocatedResources",
    "annotations",
    "apiVersion",
    "args",
    "command",
    "containerID",
    "dnsPolicy",
    "enableServiceLinks",
    "env",
    "envFrom",
    "ephemeralContainerStatuses",
    "ephemeralContainers",
    "finalizers",
    "generateName",
    "generation",
    "hostIP",
    "hostIPs",
    "image",
    "imageID",
    "imagePullPolicy",
    "imagePullSecrets",
    "kind",
    "labels",
    "lastProbeTime",
    "lastTransitionTime",
    "lifecycle",
    "livenessProbe",
    "managedFields",
    "message",
    "namespace",
    "nodeSelector",
    "observedGeneration",
    "ownerReferences",
    "podIP",
    "ports",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "qosClass",
    "readinessProbe",
    "resourceClaims",
    "resourceVersion",
    "resources",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "startTime",
    "startedAt",
    "startupProbe",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tolerations",
    "topologySpreadConstraints",
    "uid",
    "volumeMounts",
    "volumes",
]);

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let state = State::of(pod);
    let restarts = if state.restarts > 0 && state.last_restart.is_some() {
        format!("{} ({} ago)", state.restarts, since(state.last_restart.as_deref(), now))
    } else {
        state.restarts.to_string()
    };
    let ip = pod.list_at(&["status", "podIPs"]).first().and_then(|it| it.str_at(&["ip"])).unwrap_or("<none>");
    vec![
        name(pod),
        format!("{}/{}", state.ready, state.total).into(),
        state.reason.into(),
        restarts.into(),
        age(pod, now),
        ip.into(),
        or_none(pod, &["spec", "nodeName"]),
        or_none(pod, &["status", "nominatedNodeName"]),
        readiness_gates(pod).into(),
    ]
}

fn readiness_gates(pod: &Value) -> String {
    let gates = pod.list_at(&["spec", "readinessGates"]);
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let passed = gates
        .iter()
        .filter(|gate| gate.str_at(&["conditionType"]).is_some_and(|name| condition(pod, name) == Some("True")));
    format!("{}/{}", passed.count(), gates.len())
}

struct State {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<String>,
}

impl State {
    fn of(pod: &Value) -> Self {
        let text = |path: &[&str]| pod.text_at(path);
        let phase = text(&["status", "phase"]);
        let mut reason = match text(&["status", "reason"]) {
            "" => phase,
            reason => reason,
        }
        .to_owned();
        let scheduled = pod
            .list_at(&["status", "conditions"])
            .iter()
            .find(|it| it.str_at(&["type"]) == Some(CONDITION_POD_SCHEDULED));
        if scheduled.and_then(|it| it.str_at(&["reason"])) == Some("SchedulingGated") {
            "SchedulingGated".clone_into(&mut reason);
        }
        let init_specs = pod.list_at(&["spec", "initContainers"]);
        let restartable = |name: &str| {
            init_specs
                .iter()
                .any(|it| it.str_at(&["name"]) == Some(name) && it.str_at(&["restartPolicy"]) == Some("Always"))
        };
        let sidecars = init_specs.iter().filter(|it| it.str_at(&["restartPolicy"]) == Some("Always")).count();
        let total = pod.list_at(&["spec", "containers"]).len().saturating_add(sidecars);
        let mut state = Self { reason, ready: 0, total, restarts: 0, last_restart: None };
        let (mut sidecar_restarts, mut sidecar_last) = (0_i64, None);
        let mut initializing = false;
        for (index, status) in pod.list_at(&["status", "initContainerStatuses"]).iter().enumerate() {
            let count = status.int("restartCount");
            state.restarts = state.restarts.saturating_add(count);
            later(&mut state.last_restart, status);
            let is_sidecar = restartable(status.text("name"));
            if is_sidecar {
                sidecar_restarts = sidecar_restarts.saturating_add(count);
                later(&mut sidecar_last, status);
            }
            let terminated = status.at(&["state", "terminated"]);
            if terminated.is_some_and(|it| it.int("exitCode") == 0) {
                continue;
            }
            if is_sidecar && status.get("started").and_then(Value::as_bool) == Some(true) {
                if status.get("ready").and_then(Value::as_bool) == Some(true) {
                    state.ready = state.ready.saturating_add(1);
                }
                continue;
            }
            let waiting = status.text_at(&["state", "waiting", "reason"]);
            state.reason = if let Some(terminated) = terminated {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{}", init_specs.len())
            };
            initializing = true;
            break;
        }
        if !initializing || condition(pod, "Initialized") == Some("True") {
            (state.restarts, state.last_restart) = (sidecar_restarts, sidecar_last);
            state.add_containers(pod);
        }
        let deleting = is_deleting(pod);
        if deleting && text(&["status", "reason"]) == "NodeLost" {
            "Unknown".clone_into(&mut state.reason);
        } else if deleting && !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut state.reason);
        }
        state
    }

    fn add_containers(&mut self, pod: &Value) {
        let mut running = false;
        for status in pod.list_at(&["status", "containerStatuses"]).iter().rev() {
            self.restarts = self.restarts.saturating_add(status.int("restartCount"));
            later(&mut self.last_restart, status);
            let waiting = status.text_at(&["state", "waiting", "reason"]);
            let terminated = status.at(&["state", "terminated"]);
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if let Some(terminated) = terminated {
                self.reason = ended(terminated);
            } else if status.get("ready").and_then(Value::as_bool) == Some(true)
                && status.at(&["state", "running"]).is_some()
            {
                running = true;
                self.ready = self.ready.saturating_add(1);
            }
        }
        if self.reason == "Completed" && running {
            let ready = condition(pod, "Ready") == Some("True");
            (if ready { "Running" } else { "NotReady" }).clone_into(&mut self.reason);
        }
    }
}

/// Describes the end of a container.
fn ended(terminated: &Value) -> String {
    let reason = terminated.text("reason");
    let signal = terminated.int("signal");
    match (reason.is_empty(), signal) {
        (false, _) => reason.to_owned(),
        (true, 0) => format!("ExitCode:{}", terminated.int("exitCode")),
        (true, signal) => format!("Signal:{signal}"),
    }
}

/// Updates the time of the last end of a container.
fn later(last: &mut Option<String>, status: &Value) {
    let finished = status.str_at(&["lastState", "terminated", "finishedAt"]);
    if let Some(finished) = finished.filter(|it| last.as_deref().is_none_or(|last| *it > last)) {
        *last = Some(finished.to_owned());
    }
}
