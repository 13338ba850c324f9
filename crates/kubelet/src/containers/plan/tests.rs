//! Steps for pods of several containers, by the state that the runtime reports.

use std::collections::HashMap;

use api::core::v1::Pod;
use api::json::Value;
use cri::messages as m;

use super::*;

/// Checks a pod spec with the runtime's state: `NAME STATE [CODE]` each, in the only sandbox.
#[track_caller]
fn check(spec: Value, runs: &[&str], probes: &[(&str, Results)], expected: &str) {
    let manifest = api::json!({"metadata": {"name": "p"}, "spec": spec});
    let pod: Pod = api::json::from_value(&manifest).unwrap();
    let mut snapshot = Snapshot {
        sandboxes: vec![m::PodSandbox { id: "s".into(), ..m::PodSandbox::default() }],
        runs: Default::default(),
        ..Snapshot::default()
    };
    for run in runs {
        let mut words = run.split(' ');
        let (name, state) = (words.next().unwrap(), words.next().unwrap());
        let code = words.next().map_or(0, |it| it.parse().unwrap());
        let state = match state {
            "running" => m::ContainerState::Running,
            "exited" => m::ContainerState::Exited,
            _ => m::ContainerState::Created,
        };
        let status = m::ContainerStatus { state: state.into(), exit_code: code, ..m::ContainerStatus::default() };
        snapshot.runs.insert(name.to_owned(), vec![Run { sandbox: "s".into(), status }]);
    }
    if runs.is_empty() && expected == "sandbox" {
        snapshot.sandboxes.clear();
    }
    let probes: HashMap<String, Results> = probes.iter().map(|(name, it)| ((*name).to_owned(), it.clone())).collect();
    let known = PlanInput {
        pod: &pod,
        manifest: &manifest,
        probes: &probes,
        resized: &HashMap::new(),
        held: &|name| name == "held",
    };
    let step = match next(&known, &snapshot) {
        Step::CreateSandbox => "sandbox".to_owned(),
        Step::Start { name, attempt, .. } => format!("start {name} {attempt}"),
        Step::Kill { name, why, .. } => format!("kill {name}: {why}"),
        Step::Resize => "resize".to_owned(),
        Step::Finish => "finish".to_owned(),
        Step::Wait => "wait".to_owned(),
    };
    assert_eq!(step, expected);
}

fn pod(policy: &str) -> Value {
    api::json!({"restartPolicy": policy,
        "initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}],
        "containers": [{"name": "a"}, {"name": "b"}]})
}

fn started() -> Results {
    Results { is_started: true, is_ready: true, failed: None }
}

#[test]
fn init_containers_come_one_after_the_other() {
    check(pod("Always"), &[], &[], "sandbox");
    check(pod("Always"), &["i running"], &[], "wait");
    check(pod("Always"), &["i exited 1"], &[], "start i 1");
    check(pod("Never"), &["i exited 1"], &[], "finish");
    check(pod("Always"), &["i exited 0"], &[], "start side 0");
    check(pod("Always"), &["i exited 0", "side running"], &[("side", Results::default())], "wait");
    check(pod("Always"), &["i exited 0", "side running"], &[("side", started())], "start a 0");
}

#[test]
fn sidecars_are_restarted_beside_the_containers() {
    let runs = ["i exited 0", "side exited 0", "a running", "b running"];
    check(pod("Never"), &runs, &[], "start side 1");
}

#[test]
fn ended_containers_are_restarted_by_policy() {
    let all = |a: &str, b: &str| vec!["i exited 0".to_owned(), "side running".to_owned(), a.to_owned(), b.to_owned()];
    #[track_caller]
    fn case(policy: &str, runs: Vec<String>, expected: &str) {
        let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
        check(pod(policy), &runs, &[("side", started()), ("a", started())], expected);
    }
    case("Always", all("a running", "b exited 0"), "start b 1");
    case("OnFailure", all("a running", "b exited 0"), "wait");
    case("OnFailure", all("a exited 2", "b exited 0"), "start a 1");
    case("OnFailure", all("a exited 0", "b exited 0"), "finish");
    case("Never", all("a running", "b exited 1"), "wait");
    case("Never", all("a exited 0", "b exited 1"), "finish");
}

#[test]
fn rules_restart_against_the_policy() {
    let rule = api::json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    let spec = || {
        api::json!({"restartPolicy": "Never",
        "containers": [{"name": "a", "restartPolicy": "Never", "restartPolicyRules": [(rule.clone())]}]})
    };
    check(spec(), &["a exited 42"], &[], "start a 1");
    check(spec(), &["a exited 1"], &[], "finish");
}

#[test]
fn failed_probes_kill() {
    let spec = api::json!({"restartPolicy": "Always", "containers": [{"name": "a"}]});
    let failed = Results { failed: Some(("liveness", None)), ..started() };
    check(spec, &["a running"], &[("a", failed)], "kill a: Container a failed liveness probe, will be restarted");
}

#[test]
fn held_containers_do_not_hold_up_others() {
    let spec = api::json!({"restartPolicy": "Always", "containers": [{"name": "held"}, {"name": "b"}],
        "ephemeralContainers": [{"name": "e"}]});
    check(spec.clone(), &["x running"], &[], "start b 0");
    check(spec, &["b running"], &[("b", started())], "start e 0");
}
