//! Budgets and the disruptions that they allow.

use super::*;

const NOW: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

fn budget(spec: &str, status: &str) -> Document<PodDisruptionBudget> {
    let text = format!(
        r#"{{"metadata": {{"name": "b", "namespace": "a", "generation": 1}}, "spec": {{"selector": {{"matchLabels": {{"app": "web"}}}}, {spec}}}, "status": {{{status}}}}}"#
    );
    Document::new(api::json::parse(text.as_bytes()).expect("JSON")).expect("a budget")
}

fn pod(name: &str, ready: bool, managed: bool) -> Pod {
    let status = if ready { "True" } else { "False" };
    let owners = if managed { api::json!([{"uid": "rs", "controller": true}]) } else { api::json!([]) };
    api::json::from_value(&api::json!({
        "metadata": {"name": name, "namespace": "a", "ownerReferences": owners},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": status}]},
    }))
    .expect("a pod")
}

fn scales(replicas: i32) -> Scales {
    Scales::from([("rs".into(), Ok(Some(("deployment".into(), replicas))))])
}

#[track_caller]
fn check(spec: &str, pods: &[Pod], replicas: i32, expected: (i32, i32, i32, i32)) -> Decision {
    let pods: Vec<&Pod> = pods.iter().collect();
    let decision = decide(&budget(spec, ""), &pods, &scales(replicas), NOW);
    let Some(Action::UpdateStatus { object, .. }) = decision.actions.last() else { panic!("{decision:?}") };
    let number = |field| i32::try_from(object.int_at(&["status", field])).expect("small");
    let counts =
        (number("disruptionsAllowed"), number("currentHealthy"), number("desiredHealthy"), number("expectedPods"));
    assert_eq!(counts, expected);
    decision
}

#[test]
fn budget_counts_replicas_wanted_by_controllers() {
    let three = [pod("a", true, true), pod("b", true, true), pod("c", false, true)];
    check(r#""minAvailable": 1"#, &three, 3, (1, 2, 1, 3));
    check(r#""maxUnavailable": 1"#, &three, 3, (0, 2, 2, 3));
    check(r#""maxUnavailable": "50%""#, &three, 3, (1, 2, 1, 3));
    check(r#""minAvailable": "100%""#, &three, 3, (0, 2, 3, 3));
}

#[test]
fn pods_without_a_controller_allow_nothing_but_by_number() {
    let bare = [pod("a", true, false), pod("b", true, false)];
    check(r#""minAvailable": 1"#, &bare, 0, (1, 2, 1, 2));
    let decision = check(r#""maxUnavailable": 1"#, &bare, 0, (0, 2, 0, 0));
    let Some(Action::Event(event)) = decision.actions.first() else { panic!("{decision:?}") };
    assert!(event.message.contains(
        "(selector: &LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{},})"
    ));
}

#[test]
fn an_unknown_controller_stops_evictions() {
    let pods = [pod("a", true, true)];
    let pods: Vec<&Pod> = pods.iter().collect();
    let known = budget(r#""maxUnavailable": 1"#, r#""disruptionsAllowed": 3, "observedGeneration": 1"#);
    let decision = decide(&known, &pods, &Scales::new(), NOW);
    let Some(Action::UpdateStatus { object, .. }) = decision.actions.last() else { panic!("{decision:?}") };
    assert_eq!(object.int_at(&["status", "disruptionsAllowed"]), 0);
    assert!(object.to_string().contains("found no controllers for pod \\\"a\\\""), "{object}");
}

#[test]
fn an_evicted_pod_counts_as_gone_for_two_minutes() {
    let pods = [pod("a", true, true), pod("b", true, true)];
    let pods: Vec<&Pod> = pods.iter().collect();
    let at = |seconds: i64| Timestamp { seconds, nanos: 0 }.to_string();
    let fresh = budget(r#""minAvailable": 1"#, &format!(r#""disruptedPods": {{"a": "{}"}}"#, at(990)));
    let decision = decide(&fresh, &pods, &scales(2), NOW);
    assert_eq!(decision.again, Some(Duration::from_secs(111)));
    let Some(Action::UpdateStatus { object, .. }) = decision.actions.last() else { panic!("{decision:?}") };
    assert_eq!(object.int_at(&["status", "currentHealthy"]), 1);
    assert!(object.at(&["status", "disruptedPods", "a"]).is_some());
    let stale = budget(r#""minAvailable": 1"#, &format!(r#""disruptedPods": {{"a": "{}"}}"#, at(10)));
    let decision = decide(&stale, &pods, &scales(2), NOW);
    assert!(matches!(decision.actions.first(), Some(Action::Event(event)) if event.reason == "NotDeleted"));
    let Some(Action::UpdateStatus { object, .. }) = decision.actions.last() else { panic!("{decision:?}") };
    assert_eq!(object.at(&["status", "disruptedPods"]), None);
}

#[test]
fn unchanged_status_is_not_rewritten() {
    let pods = [pod("a", true, true)];
    let pods: Vec<&Pod> = pods.iter().collect();
    let decision = decide(&budget(r#""minAvailable": 1"#, ""), &pods, &scales(1), NOW);
    let Some(Action::UpdateStatus { object, .. }) = decision.actions.into_iter().next_back() else { panic!("none") };
    let again = decide(&Document::new(object).expect("a budget"), &pods, &scales(1), NOW);
    assert_eq!(again, Decision::default());
}
