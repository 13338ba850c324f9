//! Replays attempts to gain rights against a whole server, and compares with what a real API server answered.
//!
//! The attempts are in `tests/data/authorization/`, and run in the order of their file: the rejection of an
//! impersonation depends on earlier requests of the user. An attempt that differs is listed in `known_gaps.txt`
//! with the reason; one that is listed and agrees fails as well.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use apiserver::identity::User;
use apiserver::{Options, Server};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

const ADMIN: &str = "admin";

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u64,
    warnings: Vec<String>,
    pub(crate) body: Value,
}

pub(crate) async fn ask(server: &Arc<Server>, request: &Value) -> Answer {
    let verb = request["verb"].as_str().unwrap();
    let mut built = Request::builder().method(verb).uri(request["path"].as_str().unwrap());
    match token_of(&request["identity"]) {
        Some(token) => built = built.header("authorization", format!("Bearer {token}")),
        None => assert_eq!(request["identity"]["user"], "<no credentials>"),
    }
    if let Some(kind) = request["contentType"].as_str() {
        built = built.header("content-type", kind);
    }
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        built = built.header(name, value.as_str().unwrap().as_bytes());
    }
    let body = match &request["body"] {
        Value::Null => Bytes::new(),
        Value::String(text) => text.clone().into(),
        body => body.to_string().into(),
    };
    let response = server.handle(built.body(Full::new(body)).unwrap(), None).await;
    let code = u64::from(response.status().as_u16());
    let warnings = response.headers().get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { code, warnings, body: serde_json::from_slice(&body).unwrap_or_default() }
}

/// The token of an identity: its name. Without a name it is the administrator.
fn token_of(identity: &Value) -> Option<String> {
    match identity["user"].as_str() {
        None => Some(ADMIN.to_owned()),
        Some("<no credentials>") => None,
        Some("<invalid bearer token>") => Some("unknown".to_owned()),
        Some(name) => Some(name.replace(':', "-")),
    }
}

/// All identities of the attempts, by their tokens.
pub(crate) fn tokens(cases: &[Value]) -> HashMap<String, User> {
    let mut tokens = HashMap::from([(
        ADMIN.to_owned(),
        User { uid: "u-admin".to_owned(), ..User::authenticated(ADMIN, &["system:masters"]) },
    )]);
    let steps = cases.iter().flat_map(steps_of);
    for identity in steps.map(|step| &step["request"]["identity"]).filter(|it| it["groups"].is_array()) {
        let groups: Vec<&str> = identity["groups"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let name = identity["user"].as_str().unwrap();
        let uid = identity["uid"].as_str().unwrap_or_default().to_owned();
        tokens.insert(token_of(identity).unwrap(), User { uid, ..User::authenticated(name, &groups) });
    }
    tokens
}

pub(crate) fn steps_of(case: &Value) -> Vec<&Value> {
    match case["steps"].as_array() {
        Some(steps) => steps.iter().filter(|step| step.get("request").is_some()).collect(),
        None => vec![case],
    }
}

/// Replaces what no two runs have in common, as in the recording.
fn mask(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => {
            if key == "metadata" {
                for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                    fields.remove(field);
                }
            }
            if key == "details" {
                fields.remove("uid");
            }
            if key == "status" && fields.contains_key("token") {
                fields.values_mut().for_each(|it| *it = "<time>".into());
                fields.insert("token".to_owned(), "<token>".into());
            }
            fields.iter_mut().for_each(|(key, value)| mask(value, key));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, key)),
        Value::String(text) => match key {
            "deletionTimestamp" | "lastTransitionTime" | "lastUpdateTime" | "startTime" => *text = "<time>".to_owned(),
            "message" => *text = mask_uids(text),
            _ => {}
        },
        _ => {}
    }
}

/// Random uids in a message.
fn mask_uids(text: &str) -> String {
    let is_uid = |word: &str| {
        let dashes = |(at, it): (usize, char)| (it == '-') == matches!(at, 8 | 13 | 18 | 23);
        word.len() == 36
            && word.chars().all(|it| it == '-' || it.is_ascii_hexdigit())
            && word.char_indices().all(dashes)
    };
    let shown = |word: &str| {
        let bare = word.trim_matches(['(', ')', '.']);
        if is_uid(bare) { word.replace(bare, "<uid>") } else { word.to_owned() }
    };
    text.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

/// The body in the form of the recording: of a list only the names.
fn recorded_form(mut body: Value) -> Value {
    let is_status = body["kind"] == "Status";
    if let (Some(items), Some(kind)) = (body["items"].as_array(), body["kind"].as_str()) {
        let mut names: Vec<&str> = items.iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
        names.sort_unstable();
        return serde_json::json!({"kind": kind, "items": names});
    }
    mask(&mut body, "");
    if let (true, Some(fields)) = (is_status, body.as_object_mut()) {
        for field in ["kind", "apiVersion", "metadata"] {
            fields.remove(field);
        }
    }
    body
}

/// Describes the difference from the expected response.
pub(crate) fn difference(answer: Answer, expected: &Value) -> Option<String> {
    if Some(answer.code) != expected["code"].as_u64() {
        return Some(format!("code {} instead of {}: {}", answer.code, expected["code"], answer.body));
    }
    let warnings: Vec<&str> = expected["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if answer.warnings != warnings {
        return Some(format!("warnings {:?} instead of {warnings:?}", answer.warnings));
    }
    let expected = expected.get("body")?;
    let body = recorded_form(answer.body);
    (body != *expected).then(|| format!("body\n    {body}\n  instead of\n    {expected}"))
}

/// Creates the account of a new namespace, as a controller did in the recordings: pods need it.
pub(crate) async fn make_account(server: &Arc<Server>, request: &Value) {
    if request["path"] != "/api/v1/namespaces" || request["verb"] != "POST" {
        return;
    }
    let namespace = request["body"]["metadata"]["name"].as_str().unwrap();
    let account = json!({
        "verb": "POST", "path": format!("/api/v1/namespaces/{namespace}/serviceaccounts"), "contentType": "application/json",
        "body": {"metadata": {"name": "default"}}
    });
    let code = ask(server, &account).await.code;
    // A namespace that was refused has no account, and one that is made again has one.
    assert!([201, 404, 409].contains(&code), "{namespace}: {code}");
}

/// The recording lacks one step of its set-up: a request like the last one, for another signer.
fn forgotten(setup: &Value) -> Value {
    let mut request = steps_of(setup).last().unwrap()["request"].clone();
    request["body"]["metadata"]["name"] = "ex".into();
    request["body"]["spec"]["signerName"] = "example.com/a".into();
    request
}

/// Replays a file against a new server. `known` lists the attempts that differ.
async fn replay(file: &str, known: &BTreeMap<&str, &str>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/authorization");
    let text = std::fs::read_to_string(root.join(file)).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let options = Options { tokens: tokens(&cases), ..Options::default() };
    let server = Server::start(store, options).await.unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        for request in case["setup"].as_array().into_iter().flatten() {
            let answer = ask(&server, request).await;
            assert!((200..300).contains(&answer.code), "{id}: {answer:?}");
            make_account(&server, request).await;
        }
        if id == "rbac/setup" {
            assert_eq!(ask(&server, &forgotten(case)).await.code, 201);
        }
        let mut differences = Vec::new();
        for step in steps_of(case) {
            differences.extend(difference(ask(&server, &step["request"]).await, &step["expect"]));
            make_account(&server, &step["request"]).await;
        }
        if differences.is_empty() && known.contains_key(id) {
            wrong.push(format!("{id}: agrees now, take it off the list"));
        }
        if !known.contains_key(id) {
            wrong.extend(differences.iter().map(|it| format!("{id}: {it}")));
        }
    }
    server.stop().await.unwrap();
    assert!(wrong.is_empty(), "{} of {} are not as recorded:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[tokio::test]
async fn attempts_end_as_in_kubernetes() {
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/authorization/known_gaps.txt");
    let known = std::fs::read_to_string(known).unwrap();
    let known: BTreeMap<&str, &str> =
        known.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_once(" # ").unwrap()).collect();
    replay("rbac_escalation.jsonl", &known).await;
}

/// Attempts of the same kinds, each of which once ended otherwise here; what a real server answered to them was measured.
#[tokio::test]
async fn variants_of_them_end_as_in_kubernetes() {
    replay("variants.jsonl", &BTreeMap::new()).await;
}
