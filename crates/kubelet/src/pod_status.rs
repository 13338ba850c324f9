//! Pod status from the state of its containers: phase, conditions, container statuses, as one patch.
//!
//! Follows `getPhase` and `status/generate.go` of Kubernetes' kubelet.

use api::core::v1::{Pod, PodCondition, PodConditionPart, ResourceList, ResourceRequirements};
use api::json::{Object, Text, Value};
use api::time::Timestamp;
use api::well_known::{CONDITION_DISRUPTION_TARGET, CONDITION_POD_SCHEDULED};
use matching::resources::is_sidecar;

use crate::deadline;
use crate::runtime::{Container, ContainerTermination, Observation, State};

mod real;

/// Addresses of a pod and its node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Addresses {
    /// The node's address.
    pub host: String,
    /// The pod's address, once it has one.
    pub pod: String,
}

/// A pod's phase.
#[must_use]
pub fn phase(pod: &Pod, seen: &Observation) -> &'static str {
    if seen.is_real {
        return real::phase(pod, seen);
    }
    let policy = pod.spec.restart_policy.as_str();
    let mut is_initializing = false;
    for (container, state) in pod.spec.init_containers.iter().zip(&seen.init_containers) {
        match &state.state {
            State::Ended(end) if end.exit_code != 0 && !is_sidecar(container) && policy == "Never" => return "Failed",
            State::Ended(end) if end.exit_code == 0 || is_sidecar(container) => {}
            State::Running { .. } if is_sidecar(container) => {}
            _ => is_initializing = true,
        }
    }
    let (mut running, mut waiting, mut stopped, mut succeeded) = (0_u32, 0_u32, 0_u32, 0_u32);
    for container in &seen.containers {
        let counter = match &container.state {
            State::Running { .. } => &mut running,
            State::Ended(end) if end.exit_code == 0 => {
                stopped = stopped.saturating_add(1);
                &mut succeeded
            }
            State::Ended(_) => &mut stopped,
            State::Waiting { .. } if container.last_end.is_some() => &mut stopped,
            State::Waiting { .. } => &mut waiting,
        };
        *counter = counter.saturating_add(1);
    }
    let all_ended = seen.containers.iter().all(|it| matches!(it.state, State::Ended(_)));
    match () {
        () if is_initializing && running == 0 && stopped == 0 => "Pending",
        () if waiting > 0 => "Pending",
        () if running > 0 => "Running",
        () if stopped == 0 => "Pending",
        // Terminated containers that are not restarted have ended, regardless of the policy.
        () if all_ended && stopped == succeeded => "Succeeded",
        () if all_ended => "Failed",
        () => "Running",
    }
}

/// Returns the strategic merge patch for the pod's status; `None` if it is unchanged.
#[must_use]
pub fn patch(pod: &Pod, seen: &Observation, addresses: &Addresses, now: Timestamp) -> Option<Value> {
    let reached = phase(pod, seen);
    let conditions = conditions(pod, seen, reached, now);
    // Kubernetes: a pod is over when its containers and its sandbox have ended, not before.
    let phase = match pod.status.phase.as_str() {
        known if seen.may_run && is_terminal(reached) => {
            if known.is_empty() {
                "Pending"
            } else {
                known
            }
        }
        _ => reached,
    };
    let statuses = container_statuses(&seen.containers);
    let init_statuses = container_statuses(&seen.init_containers);
    let ephemeral_statuses = ephemeral_statuses(seen);
    let start_time = pod.status.start_time.unwrap_or(now);
    let same = pod.status.phase == phase
        && pod.status.start_time.is_some()
        && pod.status.observed_generation == pod.metadata.generation
        && pod.status.pod_ip == addresses.pod
        && pod.status.host_ip == addresses.host
        && is_same_list(&pod.status.container_statuses, &statuses)
        && is_same_list(&pod.status.init_container_statuses, &init_statuses)
        && is_same_list(&pod.status.ephemeral_container_statuses, &ephemeral_statuses)
        && conditions.iter().all(|new| pod.status.conditions.iter().any(|old| is_same_condition(old, new)))
        && ended_resizes(pod, &conditions, seen.is_real).next().is_none();
    if same {
        return None;
    }
    let mut status = Object::new();
    if pod.metadata.generation != 0 {
        status.insert("observedGeneration", pod.metadata.generation);
    }
    status.insert("phase", phase);
    insert_conditions(&mut status, pod, &conditions, seen.is_real);
    remove_conditions(&mut status, ended_resizes(pod, &conditions, seen.is_real));
    status.insert("hostIP", addresses.host.as_str());
    status.insert("hostIPs", api::json!([{"ip": (addresses.host.as_str())}]));
    if !addresses.pod.is_empty() {
        status.insert("podIP", addresses.pod.as_str());
        let mut list = vec![api::json!({"ip": (addresses.pod.as_str())})];
        if !pod.status.pod_ip.is_empty() && pod.status.pod_ip != addresses.pod {
            // The addresses of a new sandbox replace those of the old one; a merge would add them.
            list.insert(0, api::json!({"$patch": "replace"}));
        }
        status.insert("podIPs", list);
    }
    status.insert("startTime", start_time.to_string());
    if !init_statuses.is_empty() {
        status.insert("initContainerStatuses", init_statuses);
    }
    status.insert("containerStatuses", statuses);
    if !ephemeral_statuses.is_empty() {
        status.insert("ephemeralContainerStatuses", ephemeral_statuses);
    }
    if seen.is_real {
        real::insert_resources(&mut status, pod, seen);
    }
    Some(for_pod(pod, status))
}

/// The conditions of resizes that are over.
fn ended_resizes<'p>(pod: &'p Pod, conditions: &'p [PodCondition], is_real: bool) -> impl Iterator<Item = &'p Text> {
    let known = pod.status.conditions.iter().map(|it| &it.condition_type);
    let known = known.filter(move |it| is_real && real::RESIZE.contains(&it.as_str()));
    known.filter(move |kind| conditions.iter().all(|it| it.condition_type != **kind))
}

/// Makes a patch remove conditions: a merge keeps those that it does not name.
fn remove_conditions<'c>(status: &mut Object, kinds: impl Iterator<Item = &'c Text>) {
    for kind in kinds {
        let is_its = |it: &Value| it.text("type") == kind.as_str();
        if let Some(order) = status.get_mut("$setElementOrder/conditions").and_then(Value::as_array_mut) {
            order.retain(|it| !is_its(it));
        }
        if let Some(rows) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            rows.push(api::json!({"$patch": "delete", "type": (kind.clone())}));
        }
    }
}

fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// The patch by which a node acknowledges a change of the pod that does not change its containers, such as its
/// deletion; `None` if it has acknowledged that before.
#[must_use]
pub fn acknowledgment(pod: &Pod) -> Option<Value> {
    let generation = pod.metadata.generation;
    if generation == 0 || pod.status.observed_generation == generation || pod.status.conditions.is_empty() {
        return None;
    }
    let mut status = Object::new();
    status.insert("observedGeneration", generation);
    let own = pod.status.conditions.iter().filter(|it| real::OWN.contains(&it.condition_type.as_str()));
    let acknowledged = own.map(|known| {
        let mut part = (*known.part).clone();
        part.observed_generation = generation;
        PodCondition { last_transition_time: known.last_transition_time, part: part.into() }
    });
    let conditions: Vec<PodCondition> = acknowledged.collect();
    insert_conditions(&mut status, pod, &conditions, true);
    Some(for_pod(pod, status))
}

/// The patch for a pod that has reached its deadline and whose containers are about to be ended.
#[must_use]
pub fn expiring(pod: &Pod, now: Timestamp) -> Value {
    let readiness =
        pod.status.conditions.iter().filter(|it| matches!(&*it.condition_type, "Ready" | "ContainersReady"));
    let failed = readiness.map(|known| {
        let since = if known.status == "False" { known.last_transition_time } else { None };
        let part = PodConditionPart {
            condition_type: known.condition_type.clone(),
            status: "False".into(),
            reason: "PodFailed".into(),
            observed_generation: pod.metadata.generation,
            ..PodConditionPart::default()
        };
        PodCondition { last_transition_time: since.or(Some(now)), part: part.into() }
    });
    let conditions: Vec<PodCondition> = failed.collect();
    let mut status = Object::new();
    insert_conditions(&mut status, pod, &conditions, true);
    // Only two conditions are written; the others keep their places.
    status.remove("$setElementOrder/conditions");
    for_pod(pod, status)
}

/// The patch for a pod that the node does not take.
#[must_use]
pub fn rejection(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Value {
    failed(pod, reason, &format!("Pod was rejected: {message}"), now)
}

/// The patch for a pod that fails as a whole.
#[must_use]
pub fn failed(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Value {
    for_pod(pod, failure(pod, reason, message, now))
}

/// The patch for a pod that is evicted for a critical one, with the end of its containers, if they have ended.
#[must_use]
pub fn preempted(pod: &Pod, seen: Option<&Observation>, reason: &str, message: &str, now: Timestamp) -> Value {
    let part = PodConditionPart {
        condition_type: CONDITION_DISRUPTION_TARGET.into(),
        status: "True".into(),
        reason: "TerminationByKubelet".into(),
        message: "Pod was preempted by Kubelet to accommodate a critical pod.".into(),
        ..PodConditionPart::default()
    };
    let condition = PodCondition { last_transition_time: Some(now), part: part.into() };
    ended_early(pod, seen, reason, message, Some(condition), now)
}

/// The patch for a pod that is ended for the sake of the node, with how its containers ended.
#[must_use]
pub fn ended_by_node(pod: &Pod, seen: &Observation, reason: &str, message: &str, now: Timestamp) -> Value {
    let part = PodConditionPart {
        condition_type: CONDITION_DISRUPTION_TARGET.into(),
        status: "True".into(),
        reason: "TerminationByKubelet".into(),
        message: message.into(),
        observed_generation: pod.metadata.generation,
        ..PodConditionPart::default()
    };
    let condition = PodCondition { last_transition_time: Some(now), part: part.into() };
    ended_early(pod, Some(seen), reason, message, Some(condition), now)
}

/// The patch for a pod whose time is up, with how its containers ended.
#[must_use]
pub fn overdue(pod: &Pod, seen: &Observation, now: Timestamp) -> Value {
    ended_early(pod, Some(seen), deadline::REASON, deadline::MESSAGE, None, now)
}

fn ended_early(
    pod: &Pod,
    seen: Option<&Observation>,
    reason: &str,
    message: &str,
    condition: Option<PodCondition>,
    now: Timestamp,
) -> Value {
    let mut status = failure(pod, reason, message, now);
    let mut rows = seen.map(|seen| conditions(pod, seen, "Failed", now)).unwrap_or_default();
    if let Some(seen) = seen {
        status.insert("initContainerStatuses", container_statuses(&seen.init_containers));
        status.insert("containerStatuses", container_statuses(&seen.containers));
    }
    rows.extend(condition);
    insert_conditions(&mut status, pod, &rows, seen.is_some_and(|seen| seen.is_real));
    for_pod(pod, status)
}

fn failure(pod: &Pod, reason: &str, message: &str, now: Timestamp) -> Object {
    let mut status = Object::new();
    if pod.metadata.generation != 0 {
        status.insert("observedGeneration", pod.metadata.generation);
    }
    status.insert("phase", "Failed");
    status.insert("reason", reason);
    status.insert("message", message);
    status.insert("startTime", pod.status.start_time.unwrap_or(now).to_string());
    status
}

fn for_pod(pod: &Pod, status: Object) -> Value {
    // The uid makes sure that another pod of the same name is left alone.
    api::json!({"metadata": {"uid": (pod.metadata.uid.clone())}, "status": (status)})
}

/// The conditions that are the node agent's, in its order. A condition whose status stays keeps its time.
fn conditions(pod: &Pod, seen: &Observation, phase: &str, now: Timestamp) -> Vec<PodCondition> {
    let is_over = is_terminal(phase);
    let condition = |name: &str, holds: bool, reason: &str, message: String| {
        let status: Text = if holds { "True" } else { "False" }.into();
        let old = pod.status.conditions.iter().find(|it| it.condition_type == name && it.status == status);
        let last_transition_time = old.and_then(|it| it.last_transition_time).or(Some(now));
        let part = PodConditionPart {
            condition_type: name.into(),
            status,
            reason: reason.into(),
            message: message.into(),
            observed_generation: if seen.is_real { pod.metadata.generation } else { 0 },
            ..PodConditionPart::default()
        };
        PodCondition { last_transition_time, part: part.into() }
    };
    let is_initialized = if seen.is_real { phase == "Succeeded" || real::has_started(seen) } else { is_over };
    let incomplete: Vec<&str> = pod
        .spec
        .init_containers
        .iter()
        .zip(&seen.init_containers)
        .filter(|(container, it)| !(it.is_ready || is_sidecar(container) && it.is_started || is_initialized))
        .map(|(_, it)| it.name.as_str())
        .collect();
    let initialized = match incomplete.as_slice() {
        [] => condition(
            "Initialized",
            true,
            if phase == "Succeeded" && (seen.is_real || !seen.init_containers.is_empty()) {
                "PodCompleted"
            } else {
                ""
            },
            String::new(),
        ),
        names => {
            let message = format!("containers with incomplete status: [{}]", names.join(" "));
            condition("Initialized", false, "ContainersNotInitialized", message)
        }
    };
    let sidecars = pod.spec.init_containers.iter().zip(&seen.init_containers);
    let sidecars = sidecars.filter(|(container, _)| is_sidecar(container)).map(|(_, it)| it);
    let unready: Vec<&str> =
        sidecars.chain(&seen.containers).filter(|it| !it.is_ready).map(|it| it.name.as_str()).collect();
    let (ready_reason, ready_message) = match (phase, unready.is_empty()) {
        ("Succeeded", _) => ("PodCompleted", String::new()),
        ("Failed", _) => ("PodFailed", String::new()),
        (_, true) => ("", String::new()),
        (_, false) => ("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))),
    };
    let containers_ready = unready.is_empty() && !is_over;
    let gates: Vec<String> =
        pod.spec.readiness_gates.iter().filter_map(|gate| closed_gate(pod, &gate.condition_type)).collect();
    let ready = if containers_ready && !gates.is_empty() {
        condition("Ready", false, "ReadinessGatesNotReady", gates.join(", "))
    } else {
        condition("Ready", containers_ready, ready_reason, ready_message.clone())
    };
    let (sandbox_reason, sandbox_message) = match (seen.is_real && !seen.has_sandbox, seen.had_sandbox) {
        (false, _) => ("", ""),
        (true, true) => ("PodSandboxNotReady", "pod sandbox is not ready"),
        (true, false) => ("PodSandboxNotReady", "no pod sandbox exists"),
    };
    let resizes = seen.resize.iter().filter(|_| !is_over).map(|it| {
        let mut shown = condition(it.kind, true, &it.reason, it.message.clone());
        shown.part.observed_generation = it.generation;
        shown
    });
    let mut conditions: Vec<PodCondition> = resizes.collect();
    conditions.extend([
        condition("PodReadyToStartContainers", seen.has_sandbox, sandbox_reason, sandbox_message.to_owned()),
        initialized,
        ready,
        condition("ContainersReady", containers_ready, ready_reason, ready_message),
    ]);
    // The scheduler has set this condition for pods that it placed.
    let is_scheduled = |it: &PodCondition| it.condition_type == CONDITION_POD_SCHEDULED && it.status == "True";
    if seen.is_real || !pod.status.conditions.iter().any(is_scheduled) {
        conditions.push(condition(CONDITION_POD_SCHEDULED, true, "", String::new()));
    }
    conditions
}

fn closed_gate(pod: &Pod, gate: &str) -> Option<String> {
    match pod.status.conditions.iter().find(|it| it.condition_type == gate) {
        None => Some(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist.")),
        Some(it) if it.status != "True" => {
            Some(format!("the status of pod readiness gate \"{gate}\" is not \"True\", but {}", it.status))
        }
        Some(_) => None,
    }
}

fn is_same_condition(old: &PodCondition, new: &PodCondition) -> bool {
    old.condition_type == new.condition_type
        && old.status == new.status
        && old.reason == new.reason
        && old.message == new.message
        && (old.observed_generation == new.observed_generation || new.observed_generation == 0)
}

/// Adds conditions to a patch. Those of other components follow, or come first with Kubernetes' kubelet.
fn insert_conditions(status: &mut Object, pod: &Pod, conditions: &[PodCondition], others_first: bool) {
    let mut own: Vec<Text> = conditions.iter().map(|it| it.condition_type.clone()).collect();
    let others = pod.status.conditions.iter().map(|it| it.condition_type.clone());
    let mut others: Vec<Text> = others.filter(|it| !own.contains(it)).collect();
    if others_first {
        std::mem::swap(&mut own, &mut others);
    }
    own.append(&mut others);
    let order: Vec<Value> = own.into_iter().map(|name| api::json!({"type": name})).collect();
    status.insert("$setElementOrder/conditions", order);
    let rows = conditions.iter().map(|it| {
        let mut row = api::json!({
            "type": (it.condition_type.clone()),
            "status": (it.status.clone()),
            "lastProbeTime": null,
            "lastTransitionTime": (it.last_transition_time.map(|time| time.to_string())),
        });
        if let Some(row) = row.as_object_mut() {
            for (name, text) in [("reason", &it.reason), ("message", &it.message)] {
                // Empty values must be removed explicitly: a merge keeps missing fields.
                row.insert(name, if text.is_empty() { Value::Null } else { text.clone().into() });
            }
            if it.observed_generation != 0 {
                row.insert("observedGeneration", it.observed_generation);
            }
        }
        row
    });
    status.insert("conditions", rows.collect::<Vec<_>>());
}

/// The statuses of ephemeral containers, which neither start up nor are probed.
fn ephemeral_statuses(seen: &Observation) -> Vec<Value> {
    let mut rows = container_statuses(&seen.ephemeral_containers);
    if seen.is_real {
        for row in rows.iter_mut().filter_map(Value::as_object_mut) {
            row.remove("started");
        }
    }
    rows
}

fn container_statuses(containers: &[Container]) -> Vec<Value> {
    containers
        .iter()
        .map(|it| {
            let mut row = api::json!({
                "name": (it.name.clone()),
                "state": (state(it)),
                "lastState": (it.last_end.as_ref().map_or_else(Value::object, |end| terminated(end, it))),
                "ready": (it.is_ready),
                "restartCount": (it.restarts),
                "image": (it.image.clone()),
                "imageID": (it.image_id.clone()),
                "containerID": (it.container_id.clone()),
                "started": (it.is_started),
            });
            if let Some(row) = row.as_object_mut() {
                for (name, value) in &it.fields {
                    row.insert(*name, value.clone());
                }
            }
            row
        })
        .collect()
}

fn state(container: &Container) -> Value {
    match &container.state {
        State::Waiting { reason, message } if message.is_empty() => api::json!({"waiting": {"reason": (*reason)}}),
        State::Waiting { reason, message } => api::json!({"waiting": {"reason": (*reason), "message": message}}),
        State::Running { since } => api::json!({"running": {"startedAt": (since.to_string())}}),
        State::Ended(end) => terminated(end, container),
    }
}

fn terminated(end: &ContainerTermination, container: &Container) -> Value {
    let mut state = api::json!({"terminated": {
        "exitCode": (end.exit_code),
        "reason": (end.reason()),
        "startedAt": (end.started.to_string()),
        "finishedAt": (end.finished.to_string()),
    }});
    let id = if end.container_id.is_empty() { &container.container_id } else { &end.container_id };
    if let Some(row) = state.get_mut("terminated").and_then(Value::as_object_mut) {
        for (name, text) in [("containerID", id), ("message", &end.message)] {
            if !text.is_empty() {
                row.insert(name, text.clone());
            }
        }
    }
    state
}

/// Whether a container status has these resources; simulated containers have none.
fn has_resources(known: &api::core::v1::ContainerStatus, new: &Value) -> bool {
    let Some(resources) = new.get("resources") else { return true };
    let requests = new.get("allocatedResources").unwrap_or(&Value::Null);
    let read: Option<ResourceRequirements> = api::json::from_value(resources).ok();
    let allocated: ResourceList = api::json::from_value(requests).unwrap_or_default();
    read == known.resources && allocated == known.allocated_resources.clone().unwrap_or_default()
}

/// Whether the container statuses of the pod are the same.
fn is_same_list(known: &[api::core::v1::ContainerStatus], new: &[Value]) -> bool {
    known.len() == new.len()
        && known.iter().zip(new).all(|(known, new)| {
            let text = |field: &str| new.text(field);
            let empty = Value::object();
            known.name == text("name")
                && known.image == text("image")
                && known.container_id == text("containerID")
                && new.get("ready") == Some(&Value::Bool(known.ready))
                && new.get("started").is_none_or(|it| *it == Value::Bool(known.started.unwrap_or(false)))
                && new.get("restartCount") == Some(&Value::from(known.restart_count))
                && new.get("state") == Some(known.state.as_ref().unwrap_or(&empty))
                && new.get("lastState") == Some(known.last_state.as_ref().unwrap_or(&empty))
                && has_resources(known, new)
        })
}
