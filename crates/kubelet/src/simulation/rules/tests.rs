//! Rules of a fleet, and the effect of selections and annotations.

use super::*;

fn pod(restart_policy: &str, annotations: &[(&str, &str)]) -> Pod {
    let mut pod = Pod::default();
    pod.spec.restart_policy = restart_policy.into();
    for (name, value) in annotations {
        pod.metadata.annotations.insert((*name).into(), (*value).into());
    }
    pod
}

fn rules(annotations: &[(&str, &str)]) -> PodRules {
    Rules::default().for_pod(&pod("Always", annotations))
}

fn secs(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn annotations_change_the_rules() {
    assert_eq!(rules(&[]), PodRules::default());
    for prefix in ["sim.celplane.dev/", "sim/"] {
        let named = |name: &str| format!("{prefix}{name}");
        let (run, code, end) = (named("run-seconds"), named("exit-code"), named("terminate-seconds"));
        let it = rules(&[(&run, "1.5"), (&code, "3"), (&end, "never")]);
        assert_eq!((it.run, it.exit_code, it.terminate), (Some(Duration::from_millis(1500)), 3, None));
        let (indexes, code) = (named("fail-indexes"), named("fail-code"));
        assert_eq!(rules(&[(&indexes, "0,2"), (ANNOTATION_JOB_COMPLETION_INDEX, "2"), (&code, "42")]).exit_code, 42);
        assert_eq!(rules(&[(&indexes, "0,2"), (ANNOTATION_JOB_COMPLETION_INDEX, "1")]).exit_code, 0);
    }
}

#[test]
fn unreadable_annotations_change_nothing() {
    let odd = [
        ("sim.celplane.dev/run-seconds", "-1"),
        ("sim.celplane.dev/ready", "yes"),
        ("sim.celplane.dev/failure-rate", "2"),
    ];
    assert_eq!(rules(&odd), PodRules::default());
}

#[test]
fn pods_that_are_meant_to_end_run_for_a_moment() {
    let run = |policy: &str, annotations: &[(&str, &str)]| Rules::default().for_pod(&pod(policy, annotations)).run;
    assert_eq!((run("Never", &[]), run("OnFailure", &[])), (secs(1), secs(1)));
    assert_eq!((run("Always", &[]), run("", &[])), (None, None));
    assert_eq!(run("Never", &[("sim.celplane.dev/run-seconds", "never")]), None);
    assert_eq!(run("Never", &[("sim.celplane.dev/run-seconds", "60")]), secs(60));
    assert_eq!(run("Never", &[("sim.celplane.dev/loaded", "true")]), None);
    let forever = Rules::new(&api::json!({"run-seconds": "never"})).unwrap();
    assert_eq!(forever.for_pod(&pod("Never", &[])).run, None);
    let loaded = pod("Never", &[("sim.celplane.dev/loaded", "true")]);
    let ends = Rules::new(&api::json!({"rules": [{"select": {"namespace": "*"}, "run-seconds": 5}]})).unwrap();
    assert_eq!(ends.for_pod(&loaded).run, secs(5), "a rule overrides the origin of a pod");
}

#[test]
fn a_file_sets_the_rules_of_a_fleet_and_annotations_change_them() {
    let document = api::json!({"start-seconds": 2, "failure-rate": "0.5", "ready": false, "log": "hello"});
    let rules = Rules::new(&document).unwrap();
    let plain = rules.for_pod(&Pod::default());
    assert_eq!((plain.start, plain.failure_millionths, plain.ready), (Duration::from_secs(2), 500_000, false));
    let ready = rules.for_pod(&pod("", &[("sim.celplane.dev/ready", "true")]));
    assert!(ready.ready);
    assert_eq!(ready.log, "hello");
}

#[test]
fn unreadable_files_are_refused() {
    let refused = |document: Value| Rules::new(&document).unwrap_err().to_string();
    assert_eq!(refused(api::json!({"start": 2})), "unknown rule `start`");
    assert_eq!(refused(api::json!({"ready": "yes"})), "the rule `ready` cannot be `yes`");
    assert_eq!(refused(api::json!([1])), "rules are an object of names and values");
    let list = "`rules` is a list of objects, each with `select` and the names and values of rules";
    assert_eq!(refused(api::json!({"rules": {}})), list);
    assert_eq!(refused(api::json!({"rules": [{"ready": false}]})), format!("rules[0]: {list}"));
    let odd = api::json!({"rules": [{"select": {"owner": "Job"}, "redy": false}]});
    assert_eq!(refused(odd), "rules[0]: unknown rule `redy`");
    let odd = api::json!({"rules": [{"select": {"owners": "Job"}}]});
    assert_eq!(refused(odd), "rules[0]: `select` has no field `owners`: it has image, labels, namespace, owner");
    let odd = api::json!({"rules": [{"select": {}}]});
    assert_eq!(refused(odd), "rules[0]: `select` is empty: rules for all pods belong at the top level");
}

#[test]
fn selected_rules_apply_in_order_before_annotations() {
    let rules = Rules::new(&api::json!({
        "start-seconds": 1,
        "rules": [
            {"select": {"owner": "Job"}, "run-seconds": 30, "start-seconds": 2},
            {"select": {"owner": "Job", "labels": "app in (a, b),!old"}, "run-seconds": 40, "exit-code": 3},
            {"select": {"namespace": "ci-*", "image": "*/busybox:*"}, "ready": false},
        ],
    }))
    .unwrap();
    let document = |labels: Value, annotations: Value| -> Pod {
        api::json::from_value(&api::json!({
            "metadata": {
                "namespace": "ci-7", "labels": labels, "annotations": annotations,
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}],
            },
            "spec": {"containers": [{"name": "c", "image": "docker.io/busybox:1"}], "restartPolicy": "Never"},
        }))
        .unwrap()
    };
    let plain = rules.for_pod(&document(Value::object(), Value::object()));
    assert_eq!((plain.run, plain.exit_code, plain.ready), (secs(30), 0, false));
    assert_eq!(plain.start, Duration::from_secs(2));
    let labeled = rules.for_pod(&document(api::json!({"app": "b"}), Value::object()));
    assert_eq!((labeled.run, labeled.exit_code), (secs(40), 3));
    let old = rules.for_pod(&document(api::json!({"app": "b", "old": "1"}), Value::object()));
    assert_eq!(old.run, secs(30));
    let annotated = document(api::json!({"app": "b"}), api::json!({"sim.celplane.dev/run-seconds": "7"}));
    assert_eq!(rules.for_pod(&annotated).run, secs(7));
    let bare = rules.for_pod(&pod("Always", &[]));
    assert_eq!((bare.run, bare.ready), (None, true));
}

#[test]
fn about_the_given_share_of_runs_fails() {
    let it = rules(&[("sim.celplane.dev/failure-rate", "0.25"), ("sim.celplane.dev/fail-code", "7")]);
    let failures = (0..4000).filter(|run| it.code_of_run("uid", "c", *run) == 7).count();
    assert!((900..1100).contains(&failures), "{failures}");
    assert_eq!(it.code_of_run("uid", "c", 5), it.code_of_run("uid", "c", 5));
}

#[test]
fn usage_follows_rules_then_annotations() {
    let document = api::json!({"cpu-usage": "80%", "rules": [{"select": {"owner": "Job"}, "cpu-usage": "1"}]});
    let all = Rules::new(&document).unwrap();
    let usage = |annotations: &[(&str, &str)]| {
        let rules = all.for_pod(&pod("Always", annotations));
        (rules.cpu_usage, rules.memory_usage)
    };
    let (cpu, memory) = (usage::Rule::cpu, usage::Rule::memory);
    assert_eq!(usage(&[]), (cpu("80%").unwrap(), memory("50%").unwrap()));
    let annotated = usage(&[("sim.celplane.dev/cpu-usage", "30m"), ("sim.celplane.dev/memory-usage", "9Mi")]);
    assert_eq!(annotated, (cpu("30m").unwrap(), memory("9Mi").unwrap()));
    let wrong = Rules::new(&api::json!({"memory-usage": "much"})).unwrap_err();
    assert_eq!(wrong.to_string(), "the rule `memory-usage` cannot be `much`");
}
