//! Verdicts, statuses and rivals.

use super::*;

fn autoscaler(document: Value) -> HorizontalPodAutoscaler {
    api::json::from_value(&document).expect("an autoscaler")
}

#[test]
fn bounds_are_enforced_before_metrics_are_read() {
    let autoscaler = |min: i32| {
        autoscaler(api::json!({"spec": {"minReplicas": min, "maxReplicas": 4, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu"}}]}}))
    };
    assert_eq!(judge(&autoscaler(2), 1), Verdict::Rescale(2, BELOW_MIN));
    assert_eq!(judge(&autoscaler(2), 9), Verdict::Rescale(4, "Current number of replicas above Spec.MaxReplicas"));
    assert_eq!(judge(&autoscaler(2), 3), Verdict::AskMetrics);
    assert_eq!(judge(&autoscaler(2), 0), Verdict::Disabled);
}

#[test]
fn target_at_zero_resumes_if_it_was_scaled_there() {
    let with = |min: i32, metric: &str, status: &str| {
        autoscaler(api::json!({
            "spec": {"minReplicas": min, "maxReplicas": 4, "metrics": [{"type": metric}]},
            "status": {"conditions": [{"type": "ScaledToZero", "status": status}]}
        }))
    };
    assert_eq!(judge(&with(0, "External", "True"), 0), Verdict::AskMetrics);
    assert_eq!(judge(&with(0, "External", "False"), 0), Verdict::Disabled);
    assert_eq!(judge(&with(0, "Resource", "True"), 0), Verdict::Disabled);
    assert_eq!(judge(&with(1, "Resource", "True"), 0), Verdict::AskMetrics);
}

fn proposal(replicas: i32, name: &str) -> Result<Proposal, MissingMetrics> {
    Ok(Proposal { replicas, name: name.to_owned(), status: api::json!({"type": "Pods"}) })
}

fn missing() -> Result<Proposal, MissingMetrics> {
    let text = String::new;
    Err(MissingMetrics { reason: "FailedGetPodsMetric", cause: text(), failure: text() })
}

#[test]
fn largest_proposal_counts_and_missing_metrics_leave_places() {
    let results = [missing(), proposal(3, "a"), proposal(5, "b"), proposal(5, "c")];
    assert_eq!(largest(&results), (5, "b"));
    let places = api::json!([{"type": ""}, {"type": "Pods"}, {"type": "Pods"}, {"type": "Pods"}]);
    assert_eq!(statuses(&results), places);
    assert_eq!((largest(&[]), statuses(&[])), ((0, ""), Value::Null));
}

#[test]
fn a_status_is_written_when_it_differs() {
    let object = api::json!({"metadata": {"name": "h"}, "spec": {}});
    let autoscaler: Document<HorizontalPodAutoscaler> = Document::new(object).expect("an autoscaler");
    let now = Timestamp { seconds: 0, nanos: 0 };
    let mut draft = Draft::new(&autoscaler, now);
    draft.condition("AbleToScale", "True", "SucceededGetScale", "m");
    let actions = draft.finish(&autoscaler);
    let [Action::UpdateStatus { object, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    let again: Document<HorizontalPodAutoscaler> = Document::new(object.clone()).expect("an autoscaler");
    let mut draft = Draft::new(&again, now);
    draft.condition("AbleToScale", "True", "SucceededGetScale", "m");
    assert!(draft.finish(&again).is_empty());
}

#[test]
fn autoscalers_of_the_same_pods_are_rivals() {
    let selector = |text: &str| Selector::parse(text).expect("a selector");
    let mut selectors = BTreeMap::from([(Key::new("ns", "a"), selector("app=web"))]);
    let mut pod = Pod::default();
    pod.metadata.labels.insert("app".into(), "web".into());
    let pods = [Arc::new(pod.clone()), Arc::new(pod)];
    assert!(rivals(&selectors, "ns", &pods).is_empty());
    selectors.insert(Key::new("other", "b"), selector("app"));
    assert!(rivals(&selectors, "ns", &pods).is_empty());
    selectors.insert(Key::new("ns", "c"), selector("app"));
    assert_eq!(rivals(&selectors, "ns", &pods).into_iter().collect::<Vec<_>>(), ["ns/a", "ns/c"]);
    assert_eq!(rivals(&selectors, "ns", &[]).len(), 0);
}
