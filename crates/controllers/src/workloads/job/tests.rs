//! Rounds over small Jobs.

use std::sync::Arc;

use api::batch::v1::Job;
use api::core::v1::Pod;
use api::json::Value;
use api::time::Timestamp;
use api::well_known::ANNOTATION_JOB_COMPLETION_INDEX;
use client::Document;

use super::backoff::Backoff;
use super::rule::{self, ObservedState, Outcome, Work};

fn job(spec: &str, status: &str) -> Arc<Document<Job>> {
    let text = format!(
        r#"{{"metadata":{{"name":"j","namespace":"ns","uid":"j"}},"spec":{{"parallelism":2,"completions":3,"backoffLimit":1,
        "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c"}}]}}}}{spec}}},"status":{status}}}"#
    );
    Arc::new(Document::new(api::json::parse(text.as_bytes()).unwrap()).unwrap())
}

/// `r` runs, `s` has succeeded, `f` has failed, `t` is ending; the number is the index. `-` after it: counted already.
fn pods(all: &str) -> Vec<Arc<Pod>> {
    let pod = |(number, word): (usize, &str)| {
        let mut pod = Pod::default();
        pod.metadata.name = format!("p{number}").into();
        pod.metadata.uid = format!("u{number}").into();
        if !word.ends_with('-') {
            pod.metadata.finalizers.push("batch.kubernetes.io/job-tracking".into());
        }
        let index: String = word.chars().filter(char::is_ascii_digit).collect();
        if !index.is_empty() {
            pod.metadata.annotations.insert(ANNOTATION_JOB_COMPLETION_INDEX.into(), index.into());
        }
        pod.status.phase = match word.as_bytes()[0] {
            b's' => "Succeeded".into(),
            b'f' => "Failed".into(),
            _ => "Running".into(),
        };
        if word.starts_with('t') {
            pod.metadata.deletion_timestamp = Some(Timestamp { seconds: 0, nanos: 0 });
        }
        pod.metadata.creation_timestamp = Some(Timestamp { seconds: 0, nanos: 0 });
        Arc::new(pod)
    };
    all.split_whitespace().enumerate().map(pod).collect()
}

/// One successful round: the work, the first and the last status.
fn round(job: Arc<Document<Job>>, all: &str) -> (Work, Option<Value>, Option<Value>) {
    let seen =
        ObservedState { job, pods: pods(all), backoff: Backoff::default(), now: Timestamp { seconds: 1000, nanos: 0 } };
    let mut state = rule::assess(&seen);
    let work = state.work();
    let outcome = match &work {
        Work::None => Outcome::default(),
        Work::Create(pods) => Outcome { created: pods.len(), removed: Vec::new() },
        Work::End(pods) | Work::GiveUp(pods) => Outcome { created: 0, removed: pods.clone() },
    };
    let mut tracking = state.conclude(&outcome);
    let first = tracking.first_status();
    for pod in tracking.pods().to_vec() {
        tracking.freed(&pod);
    }
    let last = tracking.last_status(true);
    let status = |object: Option<Value>| object.and_then(|object| object.get("status").cloned());
    (work, status(first), status(last))
}

fn conditions(status: &Value) -> Vec<(String, String)> {
    let all = status.list("conditions");
    let text = |condition: &Value, field: &str| condition.text(field).to_owned();
    all.iter().map(|condition| (text(condition, "type"), text(condition, "reason"))).collect()
}

#[test]
fn pods_are_made_up_to_the_parallelism_and_the_rest() {
    let (work, first, last) = round(job("", "{}"), "");
    assert!(matches!(work, Work::Create(pods) if pods.len() == 2));
    let first = first.unwrap();
    assert_eq!(first.int("active"), 2);
    assert!(first.str_at(&["startTime"]).is_some() && last.is_none());
    let (work, ..) = round(job("", r#"{"succeeded":2}"#), "");
    assert!(matches!(work, Work::Create(pods) if pods.len() == 1));
}

#[test]
fn ends_are_noted_before_they_are_counted() {
    let (_, first, last) = round(job("", "{}"), "s r");
    let first = first.unwrap();
    assert_eq!(first.at(&["uncountedTerminatedPods", "succeeded"]), Some(&api::json!(["u0"])));
    assert_eq!(first.int("succeeded"), 0);
    let last = last.unwrap();
    assert_eq!(last.int("succeeded"), 1);
    assert_eq!(last.at(&["uncountedTerminatedPods"]), Some(&Value::object()));
    // A crash between the two: the finalizer is removed, the UID is still listed.
    let noted = r#"{"active":1,"ready":0,"terminating":0,"startTime":"2026-01-01T00:00:00Z","uncountedTerminatedPods":{"succeeded":["u0"]}}"#;
    let (_, first, _) = round(job("", noted), "s- r");
    assert_eq!(first.unwrap().int("succeeded"), 1);
}

#[test]
fn too_many_failures_end_the_job() {
    let (work, first, last) = round(job("", r#"{"failed":1}"#), "f r");
    assert!(matches!(work, Work::End(pods) if pods.len() == 1));
    let (first, last) = (first.unwrap(), last.unwrap());
    assert_eq!(conditions(&first), [("FailureTarget".to_owned(), "BackoffLimitExceeded".to_owned())]);
    // The other pod is still ending.
    assert_eq!(conditions(&last).len(), 1);
    let (_, _, last) = round(job("", r#"{"failed":1}"#), "f");
    assert_eq!(conditions(&last.unwrap()).last().unwrap().0, "Failed");
}

#[test]
fn completion_is_reported_in_two_steps() {
    let (work, first, last) = round(job("", r#"{"succeeded":2}"#), "s");
    assert_eq!(work, Work::None);
    assert_eq!(conditions(&first.unwrap()), [("SuccessCriteriaMet".to_owned(), "CompletionsReached".to_owned())]);
    let last = last.unwrap();
    assert_eq!(conditions(&last).last().unwrap().0, "Complete");
    assert!(last.str_at(&["completionTime"]).is_some());
}

#[test]
fn suspension_gives_pods_up_without_counting_them() {
    let (work, first, last) = round(job(r#","suspend":true"#, r#"{"startTime":"2026-01-01T00:00:00Z"}"#), "r r");
    assert!(matches!(work, Work::GiveUp(pods) if pods.len() == 2));
    let first = first.unwrap();
    assert_eq!(conditions(&first), [("Suspended".to_owned(), "JobSuspended".to_owned())]);
    assert!(first.get("startTime").is_none() && first.get("uncountedTerminatedPods") == Some(&Value::object()));
    assert_eq!((first.int("terminating"), last), (2, None));
}

#[test]
fn indexes_are_made_once_and_counted_at_once() {
    let indexed = r#","completionMode":"Indexed""#;
    let (work, first, _) = round(job(indexed, r#"{"completedIndexes":"1","succeeded":1}"#), "s0 r2 r2");
    // Two pods have index 2: the newer one goes.
    assert!(matches!(work, Work::GiveUp(pods) if pods.len() == 1));
    let first = first.unwrap();
    assert_eq!((first.str_at(&["completedIndexes"]), first.int("succeeded")), (Some("0,1"), 2));
    let (work, ..) = round(job(indexed, r#"{"completedIndexes":"1","succeeded":1}"#), "r0");
    let Work::Create(pods) = work else { panic!("{work:?}") };
    assert_eq!(pods[0].str_at(&["metadata", "generateName"]), Some("j-2-"));
    assert_eq!(pods[0].str_at(&["spec", "hostname"]), Some("j-2"));
    let env = pods[0].array_at(&["spec", "containers"]).unwrap()[0].at(&["env"]).unwrap();
    assert!(env.to_string().contains("JOB_COMPLETION_INDEX"));
}

#[test]
fn failure_policies_decide_outcomes() {
    let ignore = r#","podFailurePolicy":{"rules":[{"action":"Ignore","onPodConditions":[{"type":"DisruptionTarget","status":"True"}]},
        {"action":"FailJob","onExitCodes":{"operator":"In","values":[42]}}]}"#;
    let mut all = pods("f f");
    let state = Some(api::json!({"terminated": {"exitCode": 42}}));
    let mut exited = Pod::clone(&all[0]);
    let mut status = api::core::v1::ContainerStatus { state, ..Default::default() };
    status.name = "c".into();
    exited.status.container_statuses.push(status);
    all[0] = Arc::new(exited);
    let job = job(ignore, "{}");
    let verdict = super::policy::verdict(&job, &all[0]);
    assert_eq!(
        verdict,
        super::policy::Verdict::FailJob(
            "Container c for pod /p0 failed with exit code 42 matching FailJob rule at index 1".to_owned()
        )
    );
    let mut disrupted = Pod::clone(&all[1]);
    let condition = api::core::v1::PodConditionPart {
        condition_type: "DisruptionTarget".into(),
        status: "True".into(),
        ..Default::default()
    };
    disrupted.status.conditions.push(condition.into());
    assert_eq!(super::policy::verdict(&job, &disrupted), super::policy::Verdict::Ignore);
    assert_eq!(super::policy::verdict(&job, &all[1]), super::policy::Verdict::Count);
}
