//! Recorded exchanges of the reference, replayed against a whole server: validation of the kinds that are served, and
//! Pod Security.
//!
//! A case is one request, or several steps, after a set-up. Times, identifiers, revisions and generated suffixes are
//! masked in both. `known_gaps.txt` lists cases that differ, with reasons; a listed case that agrees fails, too.

use std::collections::BTreeMap;

use apiserver::identity::User;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, admin};

/// Metadata that depends on the run.
const MASKED_METADATA: [&str; 4] = ["uid", "resourceVersion", "creationTimestamp", "managedFields"];
const TIMES: [&str; 4] = ["deletionTimestamp", "lastTransitionTime", "lastUpdateTime", "startTime"];

/// The user of the recordings, which signing requests show.
fn recorded_user() -> User {
    User { uid: "u-admin".to_owned(), ..admin() }
}

/// The parts of an answer that are recorded.
struct Answer {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

async fn send(cluster: &Cluster, request: &Value) -> Answer {
    let text = |field: &str| request.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut sent = http::Request::builder().method(text("verb")).uri(text("path"));
    if !text("contentType").is_empty() {
        sent = sent.header("content-type", text("contentType"));
    }
    // A text was sent as it is.
    let body = match request.get("body") {
        None | Some(Value::Null) => Bytes::new(),
        Some(Value::String(text)) => text.clone().into(),
        Some(body) => body.to_string().into(),
    };
    let response = cluster.0.handle(sent.body(Full::new(body)).unwrap(), Some(&recorded_user())).await;
    let (parts, body) = response.into_parts();
    let warnings = parts.headers.get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect();
    let body = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
    Answer { code: parts.status.as_u16(), warnings, body }
}

/// Whether the bytes at `at` have the form: `9` is a digit, `x` a hexadecimal one, all else stands for itself.
fn has_form(text: &[u8], at: usize, form: &str) -> bool {
    form.bytes().enumerate().all(|(index, expected)| {
        text.get(at + index).is_some_and(|found| match expected {
            b'9' => found.is_ascii_digit(),
            b'x' => found.is_ascii_hexdigit(),
            other => *found == other,
        })
    })
}

/// Masks identifiers, times, revisions and generated suffixes in a text.
fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (String::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        if has_form(bytes, at, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
            out.push_str("<uid>");
            at += 36;
        } else if has_form(bytes, at, "9999-99-99T99:99:99") {
            let end = rest.find('Z').map_or(rest.len(), |end| end + 1);
            out.push_str("<time>");
            at += end;
        } else if let Some(prefix) = ["Bad_", "gen-"].into_iter().find(|it| rest.starts_with(it)) {
            let suffix = rest[prefix.len()..].bytes().take_while(u8::is_ascii_alphanumeric).count();
            out.push_str(prefix);
            at += prefix.len();
            if suffix == 5 {
                out.push_str("<5>");
                at += 5;
            }
        } else if let Some(prefix) =
            ["\"resourceVersion\":\"", "\\\"resourceVersion\\\":\\\""].into_iter().find(|it| rest.starts_with(it))
        {
            let digits = rest[prefix.len()..].bytes().take_while(u8::is_ascii_digit).count();
            out.push_str(prefix);
            out.push_str(if digits > 0 { "<rv>" } else { "" });
            at += prefix.len() + digits;
        } else {
            let next = rest.chars().next().unwrap();
            out.push(next);
            at += next.len_utf8();
        }
    }
    out
}

fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(mask(text)),
        Value::Array(items) => Value::Array(items.iter().map(masked).collect()),
        Value::Object(fields) => {
            let each = fields.iter().map(|(key, value)| {
                let value = match value {
                    Value::Object(metadata) if key == "metadata" => {
                        let kept = metadata.iter().filter(|(name, _)| !MASKED_METADATA.contains(&name.as_str()));
                        masked(&Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect()))
                    }
                    Value::String(_) if TIMES.contains(&key.as_str()) => json!("<time>"),
                    other => masked(other),
                };
                (key.clone(), value)
            });
            Value::Object(each.collect())
        }
        other => other.clone(),
    }
}

/// The fields of a status that were recorded; other objects stay as they are.
fn shown(body: &Value, expected: &Value) -> Value {
    let Value::Object(fields) = body.clone() else { return body.clone() };
    let keeps = expected.get("reason").is_some() && expected.get("message").is_some();
    let kept: Map<String, Value> =
        fields.into_iter().filter(|(key, _)| !keeps || expected.get(key).is_some()).collect();
    let mut body = Value::Object(kept);
    // Controllers write the status of these kinds at arbitrary times.
    if matches!(body["kind"].as_str(), Some("APIService" | "FlowSchema")) {
        body["status"] = json!("<status>");
    }
    if let Some(details) = body.get_mut("details").and_then(Value::as_object_mut) {
        details.remove("uid");
    }
    body
}

fn difference(expected: &Value, answer: Answer) -> Option<String> {
    let code = expected["code"].as_u64().unwrap();
    if u64::from(answer.code) != code {
        return Some(format!("code {} instead of {code}: {}", answer.code, answer.body));
    }
    let warnings: Vec<&str> = expected
        .get("warnings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|it| it.as_str().unwrap())
        .collect();
    if answer.warnings != warnings {
        return Some(format!("warnings {:?}\n  instead of {warnings:?}", answer.warnings));
    }
    let body = expected.get("body")?;
    let (found, expected) = (masked(&shown(&answer.body, body)), masked(&shown(body, body)));
    (found != expected).then(|| format!("{found}\n  instead of {expected}"))
}

/// The case whose message shows the status that flow control writes into a new schema.
const SHOWS_STATUS: &str = "val/FlowSchema/status/unknown";

/// Waits for the status that flow control writes into a new schema, so that the result does not depend on the moment.
async fn wait_for_status(cluster: &Cluster, created: &Value) {
    let path = created["path"].as_str().unwrap().split('?').next().unwrap();
    let name = created["body"]["metadata"]["name"].as_str().unwrap();
    let read = json!({"verb": "GET", "path": format!("{path}/{name}")});
    while send(cluster, &read).await.body["status"]["conditions"].is_null() {
        tokio::task::yield_now().await;
    }
}

async fn check(cluster: &Cluster, case: &Value) -> Option<String> {
    let steps = |field: &str| case.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
    for request in steps("setup") {
        let answer = send(cluster, &request).await;
        if answer.code >= 300 {
            return Some(format!("set-up: {} {}", answer.code, answer.body));
        }
        if case["id"] == SHOWS_STATUS {
            wait_for_status(cluster, &request).await;
        }
    }
    let single = case.get("request").map(|_| case.clone());
    for step in single.into_iter().chain(steps("steps")).filter(|step| step.get("request").is_some()) {
        if let Some(difference) = difference(&step["expect"], send(cluster, &step["request"]).await) {
            return Some(difference);
        }
    }
    None
}

/// Removes the objects of a set-up, so that the next case can create them again.
async fn clean_up(cluster: &Cluster, case: &Value) {
    for request in case.get("setup").and_then(Value::as_array).into_iter().flatten() {
        let name = request["body"]["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{}/{name}", request["path"].as_str().unwrap().split('?').next().unwrap());
        let release = json!({"metadata": {"finalizers": null}});
        let patch =
            json!({"verb": "PATCH", "path": path, "contentType": "application/merge-patch+json", "body": release});
        send(cluster, &patch).await;
        send(cluster, &json!({"verb": "DELETE", "path": path})).await;
        // A kind may set its finalizer on every write.
        send(cluster, &patch).await;
    }
}

/// Replays a file of cases. Gaps are lines of an identifier and a reason.
pub(crate) async fn replay(cluster: &Cluster, data: &str, gaps: &str, keeps_objects: bool) {
    let gaps: BTreeMap<&str, &str> = gaps
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(char::is_whitespace).unwrap_or((line, "")))
        .collect();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for line in data.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let id = case["id"].as_str().unwrap();
        let found = check(cluster, &case).await;
        if !keeps_objects {
            clean_up(cluster, &case).await;
        }
        seen += usize::from(gaps.contains_key(id));
        match (found, gaps.contains_key(id)) {
            (None, true) => wrong.push(format!("{id}: listed as a gap, but agrees")),
            (Some(difference), false) => wrong.push(format!("{id}: {difference}")),
            _ => {}
        }
    }
    assert_eq!(seen, gaps.len(), "a listed gap is no case");
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn kinds_are_validated_as_recorded() {
    let cluster = Cluster::start().await;
    cluster.make("/api/v1/namespaces", json!({"metadata": {"name": "v"}})).await;
    let class = json!({"metadata": {"name": "ic"}, "spec": {"controller": "a.b/c"}});
    cluster.make("/apis/networking.k8s.io/v1/ingressclasses", class).await;
    let gaps = include_str!("data/recorded/validation_gaps.txt");
    replay(&cluster, include_str!("data/recorded/validation.jsonl"), gaps, false).await;
}

#[tokio::test]
async fn pod_security_decides_as_recorded() {
    let cluster = Cluster::start().await;
    let data = include_str!("../../registry/tests/data/pod_security.jsonl");
    replay(&cluster, data, "", true).await;
}
