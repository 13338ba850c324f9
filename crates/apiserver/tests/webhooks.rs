//! Replays recorded requests about admission webhooks against a whole server and the webhook servers of the recording.
//!
//! The cases are in `tests/data/webhooks/webhooks.jsonl`. Responses are compared, the reviews that the webhooks received, and
//! the annotations of audit events. A case that differs is listed in `webhooks/known_gaps.txt`; one that is listed and
//! agrees fails as well. Cases run one after the other, and their configurations are deleted afterwards; those whose
//! webhooks answer late are played at the same time.

mod backend;
mod conformance;
mod conversion;
mod converters;
mod hostile;
pub(crate) mod records;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::audit::Audit;
use apiserver::audit::log::{Log, Rotation};
use apiserver::audit::policy::Policy;
use apiserver::identity::User;
use apiserver::{Options, Server};
use base64::Engine as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

use self::backend::Backend;

struct Answer {
    code: u64,
    warnings: Vec<String>,
    body: Value,
}

async fn ask(server: &Arc<Server>, request: &Value) -> Answer {
    let mut path = request["path"].as_str().unwrap().to_owned();
    let mut text = match &request["body"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        body => body.to_string(),
    };
    if text.contains("{{rv}}") {
        let object = Box::pin(ask(server, &json!({"verb": "GET", "path": path}))).await;
        text = text.replace("{{rv}}", object.body["metadata"]["resourceVersion"].as_str().unwrap_or_default());
    }
    path = path.replace(' ', "%20");
    let token = request["identity"]["user"].as_str().unwrap_or("admin");
    let mut built = http::Request::builder().method(request["verb"].as_str().unwrap()).uri(path);
    built = built.header("authorization", format!("Bearer {token}"));
    if let Some(kind) = request["contentType"].as_str() {
        built = built.header("content-type", kind);
    }
    let headers = request["headers"].as_object();
    for (name, value) in headers.into_iter().flatten() {
        built = built.header(name, value.as_str().unwrap().as_bytes());
    }
    let has = |wanted: &str| headers.is_some_and(|it| it.keys().any(|name| name.eq_ignore_ascii_case(wanted)));
    for (name, value) in [("user-agent", "recorder"), ("accept", "application/json")] {
        if !has(name) {
            built = built.header(name, value);
        }
    }
    let response = server.handle(built.body(Full::new(Bytes::from(text))).unwrap(), None).await;
    let code = u64::from(response.status().as_u16());
    let warning = |it: &http::HeaderValue| it.as_bytes().iter().map(|byte| char::from(*byte)).collect();
    let warnings = response.headers().get_all("warning").iter().map(warning).collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = || if body.is_empty() { Value::Null } else { String::from_utf8_lossy(&body).into() };
    Answer { code, warnings, body: serde_json::from_slice(&body).unwrap_or_else(|_| text()) }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.char_indices().all(|(at, it)| (it == '-') == matches!(at, 8 | 13 | 18 | 23))
}

/// Replaces random and long parts of texts, as in the recording.
fn masked_text(text: &str) -> String {
    let words = text.split_inclusive(['"', '(', ')']).map(|word| {
        let bare = word.trim_end_matches(['"', '(', ')']);
        if is_uid(bare) { word.replace(bare, "<uid>") } else { word.to_owned() }
    });
    let text: String = words.collect();
    if text.len() < 4_000_000 { text } else { text.replace(&"x".repeat(4_000_000), "<x*4000000>") }
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.as_bytes()[4] == b'-' && text.as_bytes()[10] == b'T' && text.ends_with('Z')
}

fn is_generated(text: &str) -> bool {
    text.strip_prefix("gen-").is_some_and(|it| it.len() == 5 && it.chars().all(|it| it.is_ascii_alphanumeric()))
}

fn mask(value: &mut Value, key: &str, keeps: bool) {
    match value {
        Value::Object(fields) => {
            if key == "metadata" && !keeps {
                for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                    fields.remove(field);
                }
            }
            if key == "details" {
                fields.remove("uid");
            }
            fields.iter_mut().for_each(|(key, value)| match key.as_str() {
                "resourceVersion" => *value = "<rv>".into(),
                "fieldsV1" => *value = "<fields>".into(),
                _ => mask(value, key, keeps),
            });
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| mask(item, key, keeps));
            if key == "managedFields" {
                items.sort_by_key(ToString::to_string);
            }
        }
        Value::String(text) => {
            *text = match text.as_str() {
                it if is_uid(it) => "<uid>".to_owned(),
                it if is_time(it) => "<time>".to_owned(),
                it if is_generated(it) => "gen-<5>".to_owned(),
                it if key == "continue" && !it.is_empty() => "<continue>".to_owned(),
                it => masked_text(it),
            };
        }
        _ => {}
    }
}

fn difference(answer: Answer, expected: &Value) -> Option<String> {
    if Some(answer.code) != expected["code"].as_u64() {
        return Some(format!("code {} instead of {}: {}", answer.code, expected["code"], answer.body));
    }
    let warnings: Vec<&str> = expected["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if answer.warnings != warnings {
        return Some(format!("warnings {:?} instead of {warnings:?}", answer.warnings));
    }
    let (mut body, mut expected) = (answer.body, expected.get("body")?.clone());
    let is_status = body["kind"] == "Status";
    for body in [&mut body, &mut expected] {
        mask(body, "", false);
    }
    if let (true, Some(fields)) = (is_status, body.as_object_mut()) {
        ["kind", "apiVersion", "metadata"].into_iter().for_each(|field| drop(fields.remove(field)));
    }
    (body != expected).then(|| format!("body {body} instead of {expected}"))
}

/// The part of the reviews that differs.
fn difference_of_reviews(mut received: Vec<Value>, expected: &Value) -> Option<String> {
    let mut expected = expected.as_array()?.clone();
    for review in received.iter_mut().chain(&mut expected) {
        review.as_object_mut().unwrap().retain(|key, _| matches!(key.as_str(), "hook" | "path" | "review"));
        mask(review, "", true);
    }
    // Validating webhooks are called at the same time, and the objects of a collection are deleted at the same time.
    for reviews in [&mut received, &mut expected] {
        reviews.sort_by_key(|it| {
            let request = &it["review"]["request"];
            let deleted =
                (request["operation"] == "DELETE").then(|| request["oldObject"]["metadata"]["name"].to_string());
            (it["hook"].to_string(), deleted)
        });
    }
    (received != expected).then(|| format!("reviews {} instead of {}", json!(received), json!(expected)))
}

/// A case with the addresses of this run in place of the recorded ones.
fn here(case: &Value, index: usize, backend: &Backend) -> Value {
    let mut text = case.to_string();
    let authority = base64::engine::general_purpose::STANDARD.encode(&backend.authority);
    text = text.replace("{{ca}}", &authority);
    for (name, address) in &backend.addresses {
        text = text.replace(&format!("\"{{{{port:{name}}}}}\""), &address.port().to_string());
        text = text.replace(&format!("{{{{port:{name}}}}}"), &address.port().to_string());
        text = text.replace(&format!("{{{{addr:{name}}}}}"), &address.to_string());
    }
    let named = case["hooks"].as_object().into_iter().flatten().map(|(hook, _)| hook.as_str());
    for hook in named.chain(["a", "b", "c", "m", "v", "control"]) {
        let address = backend.addresses[case["servers"][hook].as_str().unwrap_or("good")];
        text = text.replace(&format!("{{{{url:{hook}}}}}"), &format!("https://{address}/{index}/{hook}"));
        text = text.replace(&format!("{{{{path:{hook}}}}}"), &format!("/{index}/{hook}"));
    }
    serde_json::from_str(&text).unwrap()
}

/// A request whose audit event is compared once the server has stopped.
struct AuditedRequest {
    audit_id: String,
    expected: Value,
    /// Number of the mutating webhooks of other cases that are called before those of this one.
    before: usize,
}

/// Plays the steps of a case. Returns the differences, and the audit events to compare.
async fn steps(
    server: &Arc<Server>,
    backend: &Backend,
    index: usize,
    case: &Value,
) -> (Vec<String>, Vec<AuditedRequest>) {
    let (mut differences, mut audited) = (Vec::new(), Vec::new());
    let name = index.to_string();
    backend.hooks.take(&name);
    for (number, step) in case["steps"].as_array().unwrap().iter().enumerate() {
        if let Some(hooks) = step["hooks"].as_object() {
            hooks.iter().for_each(|(hook, behavior)| backend.hooks.set(&name, hook, behavior));
        }
        if let Some(until) = step.get("until") {
            repeat(server, until).await;
        }
        if step.get("request").is_none() {
            continue;
        }
        let (mut request, audit_id) = (step["request"].clone(), format!("case-{index}-step-{number}"));
        request["headers"]["Audit-Id"] = audit_id.clone().into();
        differences.extend(difference(ask(server, &request).await, &step["expect"]));
        differences.extend(difference_of_reviews(backend.hooks.take(&name), &step["reviews"]));
        // The recording has no events of connections that were not upgraded.
        if !request["path"].as_str().unwrap().contains("/exec?") {
            audited.push(AuditedRequest { audit_id, expected: step["expect"]["auditAnnotations"].clone(), before: 0 });
        }
        server.settle().await.unwrap();
    }
    (differences, audited)
}

/// Requests that are repeated until they succeed are repeated this often.
const ATTEMPTS: usize = 20;

/// Repeats a request until it has the recorded code.
async fn repeat(server: &Arc<Server>, until: &Value) {
    for _ in 0..ATTEMPTS {
        let answer = ask(server, &until["request"]).await;
        if until["code"].as_u64().is_none_or(|code| code == answer.code) {
            return;
        }
        server.settle().await.unwrap();
    }
}

/// Annotations of other parts of the server, which the recording leaves out.
const OTHER_ANNOTATIONS: [&str; 3] =
    ["authorization.k8s.io/", "pod-security.kubernetes.io/", "apiserver.latency.k8s.io/"];

/// The name of an annotation as in the recording, where mutating webhooks are counted within the case.
fn annotation_key(key: &str, before: usize) -> String {
    match key.rsplit_once("_index_") {
        Some((start, index)) if !start.contains("validating") => {
            format!("{start}_index_{}", index.parse::<usize>().unwrap().wrapping_sub(before))
        }
        _ => key.to_owned(),
    }
}

/// The annotations of an audit event that differ.
fn difference_of_annotations(event: Option<&Value>, audited: &AuditedRequest) -> Option<String> {
    let comparable = |text: &Value| {
        let text = text.as_str().unwrap();
        if let Some(count) = text.strip_prefix("<v*").and_then(|it| it.strip_suffix('>')?.parse().ok()) {
            return Value::from("v".repeat(count));
        }
        let credential = text.strip_prefix("JTI=").map(|it| format!("JTI={}", if is_uid(it) { "<uid>" } else { it }));
        serde_json::from_str(text).unwrap_or_else(|_| Value::from(credential.unwrap_or_else(|| text.to_owned())))
    };
    let annotations = event.and_then(|it| it["annotations"].as_object()).cloned().unwrap_or_default();
    let mut received: HashMap<String, Value> = annotations
        .iter()
        .filter(|(key, _)| !OTHER_ANNOTATIONS.iter().any(|it| key.starts_with(it)))
        .map(|(key, value)| (annotation_key(key, audited.before), comparable(value)))
        .collect();
    let mut expected: HashMap<String, Value> = HashMap::new();
    for (key, value) in audited.expected.as_object().into_iter().flatten() {
        // Long values are cut in the recording.
        match value.as_str().is_some_and(|it| it.contains("…<")) && received.remove(key).is_some() {
            true => {}
            false => drop(expected.insert(key.clone(), comparable(value))),
        }
    }
    (received != expected).then(|| format!("annotations {received:?} instead of {expected:?}"))
}

/// Whether webhooks of a case answer late, or ask for another attempt later.
fn takes_time(case: &Value) -> bool {
    let text = case["hooks"].to_string();
    text.contains("\"delay\"") || text.contains("Retry-After")
}

fn tokens() -> HashMap<String, User> {
    let user = |name: &str, uid: &str, groups: &[&str]| {
        (name.to_owned(), User { uid: uid.to_owned(), ..User::authenticated(name, groups) })
    };
    HashMap::from([
        user("admin", "admin", &["system:masters"]),
        user("alice", "1001", &["dev", "ops"]),
        // The token of a review.
        ("alicetoken".to_owned(), user("alice", "1001", &["dev", "ops"]).1),
        user("bob", "", &[]),
    ])
}

/// A server as the recorded one was, with flags of the case.
async fn start(backend: &Backend, audit_log: &Path, runtime_config: &str) -> Arc<Server> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let service = |port| (("svcs".to_owned(), "hook".to_owned(), port), backend.addresses["good"].to_string());
    let policy =
        "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: Request}]}";
    let rotation = Rotation { file_bytes_max: 0, files_max: 0, age_max: Duration::ZERO };
    let log = Log::open(audit_log, rotation).unwrap();
    let options = Options {
        tokens: tokens(),
        disabled_admission_plugins: vec!["ServiceAccount".to_owned()],
        backends: HashMap::from([service(443), service(8443)]),
        audit: Some(Audit::new(Policy::parse(policy).unwrap(), log)),
        // Kubernetes serves beta versions only where a flag says so.
        runtime_config: format!("api/beta=false,{runtime_config}").parse().unwrap(),
        ..Options::default()
    };
    let server = Server::start(store, options).await.unwrap();
    let binding = json!({
        "verb": "POST", "path": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "contentType": "application/json",
        "body": {"metadata": {"name": "dev"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cluster-admin"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"}]}
    });
    assert_eq!(ask(&server, &binding).await.code, 201);
    server
}

/// Sets up a case. Returns the requests that failed.
async fn set_up(server: &Arc<Server>, backend: &Backend, index: usize, case: &Value) -> Vec<String> {
    let set_hooks = || {
        for (hook, behavior) in case["hooks"].as_object().into_iter().flatten() {
            backend.hooks.set(&index.to_string(), hook, behavior);
        }
    };
    set_hooks();
    let mut differences = Vec::new();
    for request in case["setup"].as_array().into_iter().flatten() {
        let answer = ask(server, request).await;
        if !(200..300).contains(&answer.code) {
            differences.push(format!("set-up: {}", answer.body));
        }
        server.settle().await.unwrap();
    }
    // Calls during the set-up are not those of the steps.
    set_hooks();
    differences
}

/// Deletes the configurations of webhooks.
async fn clear(server: &Arc<Server>) {
    for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}");
        assert_eq!(ask(server, &json!({"verb": "DELETE", "path": path})).await.code, 200);
    }
    server.settle().await.unwrap();
}

/// The configurations of mutating webhooks in the set-up of a case, with the number of webhooks.
fn mutating(case: &Value) -> Vec<(String, usize)> {
    let requests = case["setup"].as_array().into_iter().flatten();
    let requests = requests.filter(|it| it["path"].as_str().unwrap().ends_with("/mutatingwebhookconfigurations"));
    let text = |it: &Value| it["body"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    requests.map(|it| (text(it), it["body"]["webhooks"].as_array().map_or(0, Vec::len))).collect()
}

type CaseResult = (String, Vec<String>, Vec<AuditedRequest>);

/// Plays cases one after the other, and those that take time at the same time.
async fn play(server: &Arc<Server>, backend: &Backend, cases: &[(usize, Value)]) -> Vec<CaseResult> {
    let mut played = Vec::new();
    let id = |case: &Value| case["id"].as_str().unwrap().to_owned();
    for (index, case) in cases.iter().filter(|(_, case)| !takes_time(case)) {
        let mut differences = set_up(server, backend, *index, case).await;
        let (more, audited) = steps(server, backend, *index, case).await;
        differences.extend(more);
        played.push((id(case), differences, audited));
        clear(server).await;
    }
    let late: Vec<&(usize, Value)> = cases.iter().filter(|(_, case)| takes_time(case)).collect();
    let configurations: Vec<(String, usize)> = late.iter().flat_map(|(_, case)| mutating(case)).collect();
    let mut playing = Vec::new();
    for (index, case) in late {
        let differences = set_up(server, backend, *index, case).await;
        playing.push((index, case, differences));
    }
    let all = playing.into_iter().map(|(index, case, mut differences)| {
        let first = mutating(case).into_iter().map(|(name, _)| name).min();
        let before = configurations.iter().filter(|(name, _)| first.as_ref().is_some_and(|first| name < first));
        let before: usize = before.map(|(_, webhooks)| webhooks).sum();
        async move {
            let (more, mut audited) = steps(server, backend, *index, case).await;
            differences.extend(more);
            audited.iter_mut().for_each(|it| it.before = before);
            (id(case), differences, audited)
        }
    });
    played.extend(futures::future::join_all(all).await);
    played
}

/// The audit events of a log, by the ID of the request.
fn events(path: &Path) -> HashMap<String, Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.map(|event| (event["auditID"].as_str().unwrap().to_owned(), event)).collect()
}

/// Plays the cases whose names start so.
async fn replay(prefix: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let text = std::fs::read_to_string(root.join("data/webhooks/webhooks.jsonl")).unwrap();
    let gaps = std::fs::read_to_string(root.join("webhooks/known_gaps.txt")).unwrap();
    let gaps: BTreeSet<&str> = gaps.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let backend = Backend::start().await;
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let all = all.filter(|case| case["id"].as_str().unwrap().starts_with(prefix)).enumerate();
    let all: Vec<(usize, Value)> = all.map(|(index, case)| (index, here(&case, index, &backend))).collect();
    let count = all.len();
    assert!(count > 0);
    let (flagged, plain): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, case)| case.get("serverFlags").is_some());
    let mut wrong = Vec::new();
    for (cases, config) in [(plain, ""), (flagged, "resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true")] {
        if cases.is_empty() {
            continue;
        }
        let directory = tempfile::tempdir().unwrap();
        let audit_log = directory.path().join("audit.log");
        let server = start(&backend, &audit_log, config).await;
        let played = play(&server, &backend, &cases).await;
        server.stop().await.unwrap();
        let events = events(&audit_log);
        for (id, mut differences, audited) in played {
            let compare = |it: &AuditedRequest| difference_of_annotations(events.get(&it.audit_id), it);
            differences.extend(audited.iter().filter_map(compare));
            match (gaps.contains(id.as_str()), differences.is_empty()) {
                (true, true) => wrong.push(format!("{id}: agrees now, take it off the list")),
                (false, false) => wrong.extend(differences.iter().map(|it| format!("{id}: {it}"))),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} differences in {count} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn mutating_webhooks_are_called_as_recorded() {
    replay("mut/").await;
}

#[tokio::test]
async fn validating_webhooks_are_called_as_recorded() {
    replay("val/").await;
}

#[tokio::test]
async fn reviews_are_as_recorded() {
    replay("request/").await;
}

#[tokio::test]
async fn phases_are_ordered_as_recorded() {
    replay("order/").await;
}
