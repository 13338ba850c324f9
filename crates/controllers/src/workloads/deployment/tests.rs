//! Rounds over small worlds, written as JSON.

use std::collections::HashMap;
use std::sync::Arc;

use api::apps::v1::{Deployment, ReplicaSet};
use api::time::Timestamp;
use client::Document;

use super::revision::Outcome;
use super::rule::{ObservedState, Round, Step};
use crate::machinery::action::{Action, Decision};

fn deployment(spec: &str, status: &str) -> Arc<Document<Deployment>> {
    let text = format!(
        r#"{{"metadata":{{"name":"web","namespace":"ns","uid":"d","generation":1,"annotations":{{"deployment.kubernetes.io/revision":"1","mine":"yes"}}}},
        "spec":{{"selector":{{"matchLabels":{{"app":"web"}}}},"progressDeadlineSeconds":600,
        "template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"image":2}}}},{spec}}},"status":{status}}}"#
    );
    Arc::new(Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap())
}

/// A set of a template; its age is its image.
fn set(image: i64, replicas: i32, available: i32, annotations: &str) -> Arc<Document<ReplicaSet>> {
    let created = Timestamp { seconds: image, nanos: 0 };
    let text = format!(
        r#"{{"metadata":{{"name":"web-{image}","namespace":"ns","uid":"s{image}","creationTimestamp":"{created}",
        "annotations":{{"deployment.kubernetes.io/revision":"{image}"{annotations}}}}},
        "spec":{{"replicas":{replicas},"template":{{"metadata":{{"labels":{{"app":"web","pod-template-hash":"{image}"}}}},"spec":{{"image":{image}}}}}}},
        "status":{{"replicas":{replicas},"availableReplicas":{available},"readyReplicas":{available},"terminatingReplicas":0}}}}"#
    );
    Arc::new(Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap())
}

fn seen(deployment: Arc<Document<Deployment>>, sets: Vec<Arc<Document<ReplicaSet>>>) -> ObservedState {
    ObservedState { deployment, sets, pods: HashMap::new(), now: Timestamp { seconds: 1000, nanos: 0 } }
}

fn decide(seen: &ObservedState) -> Decision {
    match Round::new(seen).decide() {
        Step::Do(decision) => decision,
        Step::Create(new) => panic!("{new:?}"),
    }
}

/// The new sizes of sets, in order.
fn sizes(decision: &Decision) -> Vec<(String, i64)> {
    let size = |action: &Action| match action {
        Action::Update { object, .. } => {
            Some((api::metadata::name(object).to_owned(), object.int_at(&["spec", "replicas"])))
        }
        _ => None,
    };
    decision.actions.iter().filter_map(size).collect()
}

const ROLLING: &str =
    r#""replicas":4,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}"#;
const KNOWN: &str =
    r#","mine":"yes","deployment.kubernetes.io/desired-replicas":"4","deployment.kubernetes.io/max-replicas":"5""#;

#[test]
fn a_new_template_makes_a_set_within_the_surge() {
    let seen = seen(deployment(ROLLING, "{}"), vec![set(1, 4, 4, KNOWN)]);
    let mut round = Round::new(&seen);
    let Step::Create(new) = round.decide() else { panic!("no set is made") };
    assert_eq!(new.object.int_at(&["spec", "replicas"]), 1);
    let revision = api::metadata::annotation(&new.object, "deployment.kubernetes.io/revision");
    assert_eq!((revision, api::metadata::annotation(&new.object, "mine")), (Some("2"), Some("yes")));
    let hash = new.object.str_at(&["spec", "selector", "matchLabels", "pod-template-hash"]).unwrap().to_owned();
    assert_eq!(new.name, format!("web-{hash}"));
    assert_eq!(new.object.str_at(&["spec", "template", "metadata", "labels", "pod-template-hash"]), Some(&*hash));
    let after = round.after_creation(&new, Outcome::Created);
    assert!(matches!(&after.actions[..], [Action::Event(_), Action::UpdateStatus { object, .. }]
        if api::metadata::annotation(object, "deployment.kubernetes.io/revision") == Some("2")));
    let collided = round.after_creation(&new, Outcome::Collided);
    let Action::UpdateStatus { object, .. } = &collided.actions[0] else { panic!("{collided:?}") };
    let object: Document<Deployment> = Document::new(object.clone()).unwrap();
    assert_eq!(object.status.collision_count, Some(1));
    let again = ObservedState { deployment: Arc::new(object), ..seen };
    let Step::Create(other) = Round::new(&again).decide() else { panic!("no set is made") };
    assert_ne!(other.name, new.name, "a collision changes the name");
}

#[test]
fn old_pods_go_as_new_ones_serve() {
    let current = r#"{"conditions":[{"type":"Progressing","reason":"x"}]}"#;
    let mut with_revision = deployment(ROLLING, current).to_value();
    with_revision.set_at(&["metadata", "annotations", "deployment.kubernetes.io/revision"], "2");
    let deployment: Arc<Document<Deployment>> = Arc::new(Document::new(with_revision).unwrap());
    let check = |old: (i32, i32), new: (i32, i32), expected: &[(&str, i64)]| {
        let sets = vec![set(1, old.0, old.1, KNOWN), set(2, new.0, new.1, KNOWN)];
        let decision = decide(&seen(deployment.clone(), sets));
        let expected: Vec<(String, i64)> = expected.iter().map(|(name, size)| ((*name).to_owned(), *size)).collect();
        assert_eq!(sizes(&decision), expected, "{old:?} {new:?}");
    };
    check((4, 4), (1, 0), &[("web-1", 3)]);
    check((3, 3), (1, 0), &[("web-2", 2)]);
    check((3, 3), (2, 0), &[]);
    check((3, 3), (2, 2), &[("web-1", 1)]);
    // One old pod is unavailable: it is deleted first, and then as many as may be unavailable.
    check((4, 3), (1, 1), &[("web-1", 3), ("web-1", 2)]);
    check((0, 0), (4, 4), &[]);
    // The status still counts a pod that is about to go: with it too many would be taken away.
    check((3, 4), (2, 2), &[]);
    check((3, 3), (1, 2), &[("web-2", 2)]);
}

#[test]
fn a_template_of_before_grows_with_its_revision() {
    let current = r#"{"conditions":[{"type":"Progressing","reason":"x"}]}"#;
    let deployment = deployment(ROLLING, current);
    let newer = set(3, 4, 4, KNOWN);
    let annotated = format!(r#"{KNOWN},"deployment.kubernetes.io/revision-history":"2""#);
    let mut again = set(2, 0, 0, &annotated).to_value();
    again.set_at(&["metadata", "annotations", "deployment.kubernetes.io/revision"], "4");
    let sets = vec![newer, Arc::new(Document::new(again).unwrap())];
    let decision = decide(&seen(deployment, sets));
    let Action::UpdateStatus { object, .. } = &decision.actions[0] else { panic!("{decision:?}") };
    assert_eq!(api::metadata::annotation(object, "deployment.kubernetes.io/revision"), Some("4"));
    assert_eq!(sizes(&decision), [("web-2".to_owned(), 1)]);
    let statuses = decision.actions.iter().filter(|it| matches!(it, Action::UpdateStatus { .. })).count();
    assert_eq!(statuses, 1, "{decision:?}");
}

#[test]
fn a_resize_in_mid_rollout_is_spread() {
    let spec = ROLLING.replace("\"replicas\":4", "\"replicas\":12");
    let mut object = deployment(&spec, r#"{"conditions":[{"type":"Progressing","reason":"x"}]}"#).to_value();
    object.set_at(&["metadata", "annotations", "deployment.kubernetes.io/revision"], "2");
    let deployment: Arc<Document<Deployment>> = Arc::new(Document::new(object).unwrap());
    let sets = vec![set(1, 3, 3, KNOWN), set(2, 2, 1, KNOWN)];
    let decision = decide(&seen(deployment, sets));
    assert_eq!(sizes(&decision), [("web-1".to_owned(), 8), ("web-2".to_owned(), 5)]);
}

#[test]
fn a_paused_deployment_makes_no_set_and_says_so() {
    let paused = r#""replicas":2,"paused":true,"strategy":{"type":"Recreate"}"#;
    let first = decide(&seen(deployment(paused, "{}"), Vec::new()));
    let Action::UpdateStatus { object, .. } = &first.actions[0] else { panic!("{first:?}") };
    let conditions = object.array_at(&["status", "conditions"]).unwrap();
    assert_eq!(conditions[0].str_at(&["reason"]), Some("DeploymentPaused"));
    let second = decide(&seen(Arc::new(Document::new(object.clone()).unwrap()), Vec::new()));
    assert!(matches!(&second.actions[..], [Action::UpdateStatus { object, .. }]
        if object.array_at(&["status", "conditions"]).unwrap().len() == 2));
}
