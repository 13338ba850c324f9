//! Containers at given times: a code for each, and the time of the next change.

use super::super::rules::Rules;
use super::*;

fn pod(spec: &Value, annotations: &Value) -> Pod {
    let document = api::json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": (annotations.clone())},
        "spec": (spec.clone()),
    });
    api::json::from_value(&document).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

/// Checks the states of the containers at given times, one code for each.
#[track_caller]
fn check(spec: Value, annotations: Value, expected: &[(i64, &str, Option<u64>)]) {
    let pod = pod(&spec, &annotations);
    let rules = Rules::default().for_pod(&pod);
    let mut containers = Containers::new(&pod, at(0));
    for (time, words, next) in expected {
        let seen = containers.advance(&pod, &rules, at(*time));
        let shown: Vec<String> = seen.init_containers.iter().chain(&seen.containers).map(word).collect();
        assert_eq!((shown.join(" ").as_str(), seen.next.map(|it| it.as_secs())), (*words, *next), "at {time}");
    }
}

fn word(container: &Container) -> String {
    let mark = if container.is_ready { "+" } else { "" };
    match &container.state {
        State::Waiting { reason, .. } => format!("{reason}{mark}"),
        State::Running { .. } => format!("running{}{mark}", container.restarts),
        State::Ended(end) => format!("ended:{}{mark}", end.exit_code),
    }
}

#[test]
fn a_pod_without_rules_runs_at_once() {
    check(api::json!({"containers": [{"name": "a"}]}), Value::object(), &[(0, "running0+", None)]);
}

#[test]
fn delays_separate_created_running_and_ready() {
    check(
        api::json!({"containers": [{"name": "a"}]}),
        api::json!({"sim.celplane.dev/start-seconds": "5", "sim.celplane.dev/ready-seconds": "3"}),
        &[
            (0, "ContainerCreating", Some(5)),
            (4, "ContainerCreating", Some(1)),
            (5, "running0", Some(3)),
            (8, "running0+", None),
        ],
    );
}

#[test]
fn init_containers_run_in_order_and_sidecars_beside_the_rest() {
    check(
        api::json!({
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}],
            "containers": [{"name": "a"}],
            "restartPolicy": "Never",
        }),
        api::json!({"sim.celplane.dev/init-seconds": "2", "sim.celplane.dev/run-seconds": "10"}),
        &[
            (0, "running0 PodInitializing PodInitializing PodInitializing", Some(2)),
            (2, "ended:0+ running0+ running0 PodInitializing", Some(2)),
            (4, "ended:0+ running0+ ended:0+ running0+", Some(10)),
            (14, "ended:0+ ended:0+ ended:0+ ended:0", None),
        ],
    );
}

#[test]
fn failed_containers_restart_after_doubling_delays() {
    check(
        api::json!({"containers": [{"name": "a"}], "restartPolicy": "OnFailure"}),
        api::json!({"sim.celplane.dev/run-seconds": "1", "sim.celplane.dev/exit-code": "2"}),
        &[
            (0, "running0+", Some(1)),
            (1, "CrashLoopBackOff", Some(10)),
            (11, "running1+", Some(1)),
            (12, "CrashLoopBackOff", Some(20)),
            (32, "running2+", Some(1)),
            // Far later: 300 s is the longest pause.
            (10_000, "CrashLoopBackOff", Some(248)),
        ],
    );
}

#[test]
fn the_restart_policy_decides() {
    let ends = api::json!({"sim.celplane.dev/run-seconds": "1"});
    let spec = |policy: &str| api::json!({"containers": [{"name": "a"}], "restartPolicy": policy});
    check(spec("OnFailure"), ends.clone(), &[(0, "running0+", Some(1)), (5, "ended:0", None)]);
    check(spec("Never"), ends.clone(), &[(0, "running0+", Some(1)), (5, "ended:0", None)]);
    check(spec("Always"), ends.clone(), &[(0, "running0+", Some(1)), (5, "CrashLoopBackOff", Some(6))]);
    let never = api::json!({"sim.celplane.dev/run-seconds": "1", "sim.celplane.dev/restart": "never"});
    check(spec("Always"), never, &[(5, "ended:0", None)]);
}

#[test]
fn a_pod_goes_on_where_its_status_says_it_was() {
    let mut pod = pod(
        &api::json!({"containers": [{"name": "a"}], "restartPolicy": "Never"}),
        &api::json!({"sim.celplane.dev/run-seconds": "60", "sim.celplane.dev/start-seconds": "5"}),
    );
    let rules = Rules::default().for_pod(&pod);
    pod.status.start_time = Some(at(0));
    pod.status.container_statuses = api::json::from_value(&api::json!([
        {"name": "a", "restartCount": 2, "state": {"running": {"startedAt": "1970-01-01T00:00:05Z"}}}
    ]))
    .unwrap();
    let mut containers = Containers::new(&pod, at(50));
    let seen = containers.advance(&pod, &rules, at(50));
    assert_eq!((word(&seen.containers[0]).as_str(), seen.next), ("running2+", Some(Duration::from_secs(15))));
    let seen = containers.advance(&pod, &rules, at(65));
    assert_eq!(word(&seen.containers[0]), "ended:0");
}

#[test]
fn ephemeral_container_starts_in_a_running_pod_and_ends() {
    let spec = api::json!({"containers": [{"name": "a"}]});
    let mut pod = pod(&spec, &Value::object());
    let rules = Rules::default().for_pod(&pod);
    let mut containers = Containers::new(&pod, at(0));
    assert_eq!(containers.advance(&pod, &rules, at(0)).ephemeral_containers, []);
    pod.spec.ephemeral_containers = api::json::from_value(&api::json!([{"name": "debugger", "image": "b"}])).unwrap();
    let seen = containers.advance(&pod, &rules, at(10));
    assert_eq!((word(&seen.ephemeral_containers[0]).as_str(), seen.next), ("running0", Some(Duration::from_secs(1))));
    assert_eq!(seen.ephemeral_containers[0].container_id, "sim://u/debugger/0");
    assert_eq!(seen.containers[0].container_id, "sim://u");
    let seen = containers.advance(&pod, &rules, at(11));
    assert_eq!(word(&seen.ephemeral_containers[0]), "ended:0");
    assert_eq!(word(&seen.containers[0]), "running0+");
}

#[test]
fn exit_now_ends_the_pod_for_good() {
    check(
        api::json!({"containers": [{"name": "a"}], "restartPolicy": "Always"}),
        api::json!({"sim.celplane.dev/exit-now": "3"}),
        &[(0, "ended:3", None), (100, "ended:3", None)],
    );
}
