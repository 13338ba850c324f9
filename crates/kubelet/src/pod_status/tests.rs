//! What containers come to: phases, conditions, and patches that say no more than has changed.

use std::time::Duration;

use api::json::from_value;
use futures::FutureExt as _;

use super::*;
use crate::runtime::Runtime as _;
use crate::simulation::Simulation;

/// The simulation never waits.
fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

fn pod(spec: Value, annotations: Value) -> Pod {
    let document = api::json!({
        "metadata": {"name": "p", "uid": "u", "generation": 1, "annotations": annotations},
        "spec": spec,
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
    });
    from_value(&document).unwrap()
}

/// Plays a pod, applies each patch, and tells phase and conditions at some times.
#[track_caller]
fn check(spec: Value, annotations: Value, expected: &[(i64, &str, &str)]) {
    let mut pod = pod(spec, annotations);
    let simulation = Simulation::default();
    let addresses = Addresses { host: "10.0.0.1".to_owned(), pod: "10.1.0.1".to_owned() };
    for (time, phase, conditions) in expected {
        let seen = now(simulation.sync(&pod, at(*time)));
        if let Some(patch) = patch(&pod, &seen, &addresses, at(*time)) {
            apply(&mut pod, &patch);
        }
        let shown: Vec<String> = pod
            .status
            .conditions
            .iter()
            .filter(|it| it.status == "False")
            .map(|it| format!("{}:{}", it.condition_type, it.reason))
            .collect();
        assert_eq!((pod.status.phase.as_str(), shown.join(" ").as_str()), (*phase, *conditions), "at {time}");
        let seen = now(simulation.sync(&pod, at(*time)));
        assert_eq!(super::patch(&pod, &seen, &addresses, at(*time)), None, "nothing is said twice");
    }
}

/// What the server makes of a patch, as far as these tests go.
fn apply(pod: &mut Pod, patch: &Value) {
    let status = patch.get("status").unwrap();
    let rows: Vec<PodCondition> = from_value(status.get("conditions").unwrap()).unwrap();
    pod.status.conditions.retain(|old| !rows.iter().any(|new| new.condition_type == old.condition_type));
    pod.status.conditions.extend(rows);
    pod.status.phase = status.str_at(&["phase"]).unwrap().into();
    pod.status.pod_ip = status.str_at(&["podIP"]).unwrap_or_default().into();
    pod.status.host_ip = status.str_at(&["hostIP"]).unwrap().into();
    pod.status.start_time = Some(Timestamp::parse(status.str_at(&["startTime"]).unwrap()).unwrap());
    pod.status.observed_generation = 1;
    pod.status.container_statuses = from_value(status.get("containerStatuses").unwrap()).unwrap();
    if let Some(init) = status.get("initContainerStatuses") {
        pod.status.init_container_statuses = from_value(init).unwrap();
    }
}

#[test]
fn a_pod_runs_and_ends() {
    let spec = |policy: &str| api::json!({"containers": [{"name": "c"}], "restartPolicy": policy});
    let over = "Ready:PodCompleted ContainersReady:PodCompleted";
    check(
        spec("Never"),
        api::json!({"sim/run-seconds": "5"}),
        &[(0, "Running", ""), (5, "Succeeded", over), (6, "Succeeded", over)],
    );
    check(
        spec("Never"),
        api::json!({"sim/run-seconds": "5", "sim/exit-code": "1"}),
        &[(0, "Running", ""), (5, "Failed", "Ready:PodFailed ContainersReady:PodFailed")],
    );
    let waits = "Ready:ContainersNotReady ContainersReady:ContainersNotReady";
    check(
        spec("Always"),
        api::json!({"sim/run-seconds": "5", "sim/exit-code": "1"}),
        &[(0, "Running", ""), (5, "Running", waits), (15, "Running", "")],
    );
}

#[test]
fn a_pod_that_starts_slowly_or_is_not_ready_says_so() {
    let spec = api::json!({"containers": [{"name": "c"}]});
    let waits = "Ready:ContainersNotReady ContainersReady:ContainersNotReady";
    let created = format!("PodReadyToStartContainers: {waits}");
    check(
        spec.clone(),
        api::json!({"sim/start-seconds": "3", "sim/ready-seconds": "2"}),
        &[(0, "Pending", &created), (3, "Running", waits), (5, "Running", "")],
    );
    check(spec, api::json!({"sim/ready": "false"}), &[(0, "Running", waits)]);
}

#[test]
fn init_containers_come_before_the_rest() {
    let spec = api::json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}], "restartPolicy": "Never"});
    let waits = "Initialized:ContainersNotInitialized Ready:ContainersNotReady ContainersReady:ContainersNotReady";
    check(spec, api::json!({"sim/init-seconds": "4"}), &[(0, "Pending", waits), (4, "Running", "")]);
}

#[test]
fn readiness_gates_keep_a_pod_from_being_ready() {
    let spec = api::json!({"containers": [{"name": "c"}], "readinessGates": [{"conditionType": "example.com/x"}]});
    check(spec, Value::object(), &[(0, "Running", "Ready:ReadinessGatesNotReady")]);
}

#[test]
fn a_stopped_pod_has_failed() {
    let pod = pod(api::json!({"containers": [{"name": "c"}]}), Value::object());
    let simulation = Simulation::default();
    now(simulation.sync(&pod, at(0)));
    let stopped = now(simulation.stop(&pod, at(9)));
    let crate::runtime::Stopping::Ended(seen) = stopped else { panic!("{stopped:?}") };
    assert_eq!(phase(&pod, &seen), "Failed");
    assert_eq!(seen.next, None::<Duration>);
}
