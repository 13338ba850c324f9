//! Rounds over small sets.

use api::apps::v1::ControllerRevision;
use api::metadata;

use super::*;

fn name_of(step: &Step) -> String {
    match step {
        Step::CreateClaim { claim, .. } => format!("create claim {}", metadata::name(claim)),
        Step::UpdateClaim { claim } => format!("update claim {}", metadata::name(claim)),
        Step::CreatePod { pod } => format!("create {}", metadata::name(pod)),
        Step::UpdatePod { pod, labels } => {
            format!("update {}{}", pod.metadata.name, if labels.is_some() { " labels" } else { "" })
        }
        Step::Wait { claim, pod, is_reported } => {
            format!("wait for {claim} of {pod}{}", if *is_reported { ", told" } else { "" })
        }
        Step::DeletePod { pod } => format!("delete {}", pod.metadata.name),
    }
}

fn set(spec: &str) -> Arc<Document<StatefulSet>> {
    let text = format!(
        r#"{{"metadata":{{"name":"web","namespace":"ns","uid":"s","generation":1}},"spec":{{"serviceName":"web",
        "selector":{{"matchLabels":{{"app":"web"}}}},"template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{}}}},{spec}}}}}"#
    );
    Arc::new(Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap())
}

fn revision(name: &str) -> Revision {
    let text =
        format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"spec":{{"template":{{"spec":{{"of":"{name}"}}}}}}}}}}"#);
    let document: Document<ControllerRevision> = Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap();
    Arc::new(document)
}

/// `0r` is a serving pod, `0p` a pending one, `0t` one that ends, `0f` a failed one; an `o` after it: of the old revision.
fn pods(all: &str) -> Vec<Arc<Pod>> {
    let pod = |word: &str| {
        let (number, state) = word.split_at(word.find(|c: char| c.is_alphabetic()).unwrap());
        let mut pod = Pod::default();
        let name: Text = format!("web-{number}").into();
        pod.metadata.name = name.clone();
        pod.metadata.uid = word.into();
        let revision = if state.ends_with('o') { "old" } else { "new" };
        pod.metadata.labels.insert("controller-revision-hash".into(), revision.into());
        pod.metadata.labels.insert("statefulset.kubernetes.io/pod-name".into(), name);
        pod.status.phase = match state.as_bytes()[0] {
            b'p' => "Pending".into(),
            b'f' => "Failed".into(),
            _ => "Running".into(),
        };
        if state.starts_with('r') {
            let ready = api::core::v1::PodConditionPart {
                condition_type: "Ready".into(),
                status: "True".into(),
                ..Default::default()
            };
            pod.status.conditions.push(ready.into());
        }
        if state.starts_with('t') {
            pod.metadata.deletion_timestamp = Some(Timestamp { seconds: 0, nanos: 0 });
        }
        Arc::new(pod)
    };
    all.split_whitespace().map(pod).collect()
}

#[track_caller]
fn check(spec: &str, all: &str, expected: &[&str]) {
    let seen = ObservedState {
        set: set(spec),
        current: revision("old"),
        update: revision("new"),
        pods: pods(all),
        claims: HashMap::new(),
        now: Timestamp { seconds: 100, nanos: 0 },
    };
    let plan = plan(&seen);
    let steps: Vec<String> = plan.steps.iter().map(name_of).collect();
    assert_eq!(steps, expected, "{spec} {all}");
}

const ORDERED: &str = r#""replicas":3,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}}"#;
const PARALLEL: &str = r#""replicas":3,"podManagementPolicy":"Parallel","updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}}"#;

#[test]
fn pods_are_made_in_order_each_when_the_one_before_serves() {
    check(ORDERED, "", &["create web-0"]);
    check(ORDERED, "0p", &[]);
    check(ORDERED, "0r", &["create web-1"]);
    check(ORDERED, "0r 2r", &["create web-1"]);
    check(ORDERED, "0t 1r 2r", &[]);
    check(ORDERED, "0f", &["delete web-0"]);
    check(ORDERED, "0r 1r 2r", &[]);
    check(PARALLEL, "", &["create web-0", "create web-1", "create web-2"]);
    check(PARALLEL, "1p", &["create web-0", "create web-2"]);
}

#[test]
fn pods_go_from_the_last_to_the_first() {
    check(ORDERED, "0r 1r 2r 3r 4r", &["delete web-4"]);
    check(ORDERED, "0r 1r 2r 3r 4t", &[]);
    check(ORDERED, "0r 1p 2r 3r", &[]);
    // The one that holds all up may go itself.
    check(ORDERED, "0r 1r 2r 3p", &["delete web-3"]);
    // Terminated pods will never be ready, and do not block others.
    check(ORDERED, "0r 1r 2r 3f 4f", &["delete web-4"]);
    check(ORDERED, "0r 1r 2r 3p 4p", &[]);
    check(PARALLEL, "0r 1r 2r 3r 4p", &["delete web-4", "delete web-3"]);
}

#[test]
fn old_pods_are_replaced_from_the_last_to_the_first() {
    check(ORDERED, "0ro 1ro 2ro", &["delete web-2"]);
    check(ORDERED, "0ro 1ro 2r", &["delete web-1"]);
    check(ORDERED, "0ro 1ro 2p", &[]);
    check(&ORDERED.replace("\"partition\":0", "\"partition\":2"), "0ro 1ro 2ro", &["delete web-2"]);
    check(&ORDERED.replace("\"partition\":0", "\"partition\":2"), "0ro 1ro 2r", &[]);
    let two = PARALLEL.replace("\"partition\":0", "\"partition\":0,\"maxUnavailable\":2");
    check(&two, "0ro 1ro 2ro", &["delete web-2", "delete web-1"]);
    check(&ORDERED.replace("RollingUpdate\",\"rollingUpdate\":{\"partition\":0}", "OnDelete\""), "0ro 1ro 2ro", &[]);
}

#[test]
fn claims_come_before_pods_and_follow_the_policy() {
    let claims = r#""replicas":1,"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"x":1}}]"#;
    check(claims, "", &["create claim data-web-0", "create web-0"]);
    check(claims, "0p", &["create claim data-web-0"]);
    let owned =
        format!(r#"{claims},"persistentVolumeClaimRetentionPolicy":{{"whenDeleted":"Delete","whenScaled":"Retain"}}"#);
    let claim = r#"{"metadata":{"name":"data-web-0","namespace":"ns"}}"#;
    let claim: Document<PersistentVolumeClaim> = Document::new(api::json::parse(claim.as_bytes()).unwrap()).unwrap();
    let mut seen = ObservedState {
        set: set(&owned),
        current: revision("new"),
        update: revision("new"),
        pods: pods("0r"),
        claims: HashMap::from([("data-web-0".into(), Arc::new(claim))]),
        now: Timestamp { seconds: 100, nanos: 0 },
    };
    let steps = plan(&seen).steps;
    let [Step::UpdateClaim { claim }, Step::UpdatePod { labels: None, .. }] = &steps[..] else { panic!("{steps:?}") };
    let owners = claim.array_at(&["metadata", "ownerReferences"]).unwrap();
    assert_eq!((owners.len(), owners[0].str_at(&["uid"])), (1, Some("s")));
    seen.claims = HashMap::from([("data-web-0".into(), Arc::new(Document::new(claim.clone()).unwrap()))]);
    assert!(plan(&seen).steps.is_empty(), "the owner is right now");
    // The claim of an earlier pod is being deleted: another pod must not be created before that.
    let mut going = claim.clone();
    going.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    seen.claims = HashMap::from([("data-web-0".into(), Arc::new(Document::new(going).unwrap()))]);
    for (all, expected) in [("", "wait for data-web-0 of web-0, told"), ("0p", "wait for data-web-0 of web-0")] {
        seen.pods = pods(all);
        assert_eq!(plan(&seen).steps.iter().map(name_of).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn labels_that_were_taken_off_come_back() {
    let mut seen = ObservedState {
        set: set(r#""replicas":1"#),
        current: revision("new"),
        update: revision("new"),
        pods: pods("0r"),
        claims: HashMap::new(),
        now: Timestamp { seconds: 100, nanos: 0 },
    };
    assert!(plan(&seen).steps.is_empty());
    let mut pod = (*seen.pods[0]).clone();
    pod.metadata.labels.remove("statefulset.kubernetes.io/pod-name");
    seen.pods = vec![Arc::new(pod)];
    let steps = plan(&seen).steps;
    let [Step::UpdatePod { labels: Some(labels), .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(labels.str_at(&["statefulset.kubernetes.io/pod-name"]), Some("web-0"));
    assert_eq!(labels.str_at(&["controller-revision-hash"]), Some("new"), "others stay");
}
