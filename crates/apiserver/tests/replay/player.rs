//! Replays the steps of one scenario against a new server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use apiserver::identity::Authenticator;
use apiserver::{Body, Options, Server};
use base64::Engine as _;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;
use store::EmbeddedStore;

use super::mask::{mask, mask_words};

/// Result of a step.
pub(crate) struct Outcome {
    pub(crate) id: String,
    pub(crate) difference: Option<String>,
}

/// The last step that a watch lasts for, its own step, and what it sees.
type Watching = (u64, Value, tokio::task::JoinHandle<ObservedStream>);

/// Result of a watch.
#[derive(Default)]
pub(super) struct ObservedStream {
    status: u16,
    headers: HeaderMap,
    events: Vec<Value>,
    /// The server ended it.
    is_over: bool,
}

/// Recorded values and what they are in this run.
pub(super) type KnownValues = HashMap<String, String>;

pub(crate) async fn play(scenario: String, steps: Vec<Value>) -> Vec<Outcome> {
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let tokens = "admin,admin,u-admin,system:masters\nalice,alice,u-alice,dev\n<alice token>,alice,u-alice,dev\n";
    let tokens = Authenticator::parse_tokens(tokens).unwrap();
    let runtime_config = "resource.k8s.io/v1alpha3=true".parse().unwrap();
    let disabled_admission_plugins =
        if scenario.contains("no-serviceaccount-admission") { vec!["ServiceAccount".to_owned()] } else { Vec::new() };
    let options = Options { tokens, runtime_config, disabled_admission_plugins, ..Options::default() };
    let server = Server::start(store, options).await.unwrap();
    let mut known = KnownValues::new();
    let mut outcomes = Vec::new();
    let mut watches: Vec<Watching> = Vec::new();
    for step in &steps {
        let number = step["step"].as_u64().unwrap();
        let mut due = Vec::new();
        watches.retain_mut(|(last, step, task)| {
            let over = number > *last;
            if over {
                due.push((step.clone(), std::mem::replace(task, tokio::spawn(async { ObservedStream::default() }))));
            }
            !over
        });
        for (step, task) in due {
            outcomes.push(compare_events(&scenario, &step, task.await.unwrap()));
        }
        learn_hash(&server, step, &mut known).await;
        let request = build(step, &known);
        if step["response"].get("stream").is_some() {
            let last = step["concurrent_steps"][1].as_u64().unwrap_or(0);
            let task = tokio::spawn(collect_events(server.clone(), request));
            if last == 0 {
                let streamed = task.await.unwrap();
                learn_events(&step["response"]["events"], &streamed.events, &mut known);
                outcomes.push(compare_events(&scenario, step, streamed));
            } else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                watches.push((last, step.clone(), task));
            }
            continue;
        }
        // The recorded clients took their time.
        server.settle().await.unwrap();
        let response = server.handle(request, None).await;
        let difference = compare(step, response, &mut known).await;
        // Set-up steps are reported only if they fail.
        if step["setup"] != true || difference.is_some() {
            outcomes.push(Outcome { id: format!("{scenario} {number}"), difference });
        }
    }
    for (_, step, task) in watches {
        outcomes.push(compare_events(&scenario, &step, task.await.unwrap()));
    }
    server.stop().await.unwrap();
    outcomes
}

/// Records the hash of the document that a step requests, which is part of its address.
async fn learn_hash(server: &Arc<Server>, step: &Value, known: &mut KnownValues) {
    let path = step["request"]["path"].as_str().unwrap();
    let Some((document, recorded)) = path.split_once("?hash=").filter(|(_, hash)| hash.len() > 100) else { return };
    let request = Request::builder().uri("/openapi/v3").header("Authorization", "Bearer admin");
    let response = server.handle(request.body(Full::new(Bytes::new())).unwrap(), None).await;
    let index: Value = serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let name = document.strip_prefix("/openapi/v3/").unwrap();
    let url = index["paths"][name]["serverRelativeURL"].as_str().unwrap_or_default();
    if let Some((_, hash)) = url.split_once("?hash=") {
        known.insert(recorded.to_owned(), hash.to_owned());
    }
}

/// Replaces learned values in a text: long ones anywhere, names and addresses where they are a whole word.
fn substitute(text: &str, known: &KnownValues) -> String {
    let mut text = text.to_owned();
    for (recorded, real) in known {
        if let Some(word) = recorded.strip_prefix("word:") {
            text = replace_words(&text, word, real);
        } else if recorded.len() >= 20 && !recorded.contains(':') {
            text = text.replace(recorded.as_str(), real);
        }
    }
    text
}

/// Replaces a word that is not part of a longer one.
fn replace_words(text: &str, word: &str, real: &str) -> String {
    let is_part = |next: Option<char>| next.is_some_and(|it| it.is_alphanumeric() || it == '-' || it == '.');
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_whole = !is_part(before.chars().next_back()) && !is_part(after.chars().next());
        out.push_str(before);
        out.push_str(if is_whole { real } else { word });
        rest = after;
    }
    out + rest
}

fn substitute_value(value: &mut Value, key: &str, known: &KnownValues) {
    match value {
        Value::Object(fields) => {
            // A step of a JSON patch names the field in its path.
            let is_version = fields.get("path").is_some_and(|path| path == "/metadata/resourceVersion");
            let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            for (key, value) in fields {
                let learned = known.get(&format!("at:{name}:{key}:{value}"));
                if let Some(real) = learned {
                    *value = serde_json::from_str(real).unwrap();
                } else {
                    substitute_value(value, if is_version && key == "value" { "resourceVersion" } else { key }, known);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| substitute_value(value, key, known)),
        Value::String(text) if key == "resourceVersion" => {
            if let Some(real) = known.get(&format!("rv:{text}")).or_else(|| known.get(&format!("list:{text}"))) {
                *text = real.clone();
            }
        }
        Value::String(text) => *text = substitute(text, known),
        _ => {}
    }
}

pub(super) fn build(step: &Value, known: &KnownValues) -> Request<Full<Bytes>> {
    let recorded = &step["request"];
    let mut path = substitute(recorded["path"].as_str().unwrap(), known);
    if let Some(at) = path.find("resourceVersion=") {
        let start = at + "resourceVersion=".len();
        let end = path[start..].find('&').map_or(path.len(), |end| start + end);
        let version = &path[start..end];
        let real = known.get(&format!("list:{version}")).or_else(|| known.get(&format!("rv:{version}")));
        if let Some(real) = real.cloned() {
            path.replace_range(start..end, &real);
        }
    }
    let path: String = path.chars().map(|it| if it == ' ' { '+' } else { it }).collect();
    let mut builder = Request::builder().method(recorded["method"].as_str().unwrap()).uri(path);
    for (name, value) in recorded["headers"].as_object().into_iter().flatten() {
        builder = builder.header(name, substitute(value.as_str().unwrap(), known));
    }
    match step["user"].as_str().unwrap() {
        "anonymous" => {}
        user => builder = builder.header("Authorization", format!("Bearer {user}")),
    }
    let body = if let Some(text) = recorded["body_text"].as_str() {
        Bytes::from(text.to_owned())
    } else if let Some(text) = recorded["body_base64"].as_str() {
        base64::engine::general_purpose::STANDARD.decode(text).unwrap().into()
    } else if recorded.get("body").is_some_and(|body| !body.is_null()) {
        let mut body = recorded["body"].clone();
        substitute_value(&mut body, "", known);
        serde_json::to_vec(&body).unwrap().into()
    } else {
        Bytes::new()
    };
    builder.body(Full::new(body)).unwrap()
}

/// Fields that the server sets to values of its own.
const TIMES_AND_PORTS: [&str; 4] = ["creationTimestamp", "deletionTimestamp", "nodePort", "healthCheckNodePort"];

/// Records the replacements of recorded values.
fn learn(recorded: &Value, real: &Value, key: &str, known: &mut KnownValues) {
    match (recorded, real) {
        (Value::Object(left), Value::Object(right)) => {
            let name = left.get("name").and_then(Value::as_str).unwrap_or_default();
            if let (true, Some(real)) = (left.contains_key("generateName"), right.get("name").and_then(Value::as_str)) {
                known.insert(format!("word:{name}"), real.to_owned());
            }
            for (key, value) in left {
                // The version of a list is ambiguous; that of an object is specific.
                let key = if key == "resourceVersion" && !left.contains_key("name") { "listVersion" } else { key };
                let field = if key == "listVersion" { "resourceVersion" } else { key };
                let Some(real) = right.get(field) else { continue };
                if TIMES_AND_PORTS.contains(&field) && value != real {
                    known.insert(format!("at:{name}:{field}:{value}"), real.to_string());
                }
                learn(value, real, key, known);
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            for (index, left) in left.iter().enumerate() {
                let name = |item: &Value| item["metadata"]["name"].as_str().map(ToOwned::to_owned);
                // Other recordings may have left objects behind, so that the position says nothing.
                let same = right.iter().find(|right| name(left).is_some() && name(right) == name(left));
                if let Some(right) = same.or_else(|| right.get(index)) {
                    learn(left, right, key, known);
                }
            }
        }
        (Value::String(left), Value::String(right)) => match key {
            "resourceVersion" => {
                known.insert(format!("rv:{left}"), right.clone());
            }
            "listVersion" => {
                known.insert(format!("list:{left}"), right.clone());
            }
            "uid" | "continue" => {
                known.insert(left.clone(), right.clone());
            }
            "clusterIP" | "clusterIPs" if left != right && left.parse::<std::net::IpAddr>().is_ok() => {
                known.insert(format!("word:{left}"), right.clone());
            }
            "serverAddress" => {
                known.insert(format!("word:{left}"), right.clone());
            }
            _ => {}
        },
        _ => {}
    }
}

#[test]
fn values_of_the_recorded_server_are_replaced() {
    let service = |name: &str, ip: &str, port: u16, time: &str| {
        serde_json::json!({"metadata": {"name": name, "generateName": "s-", "creationTimestamp": time},
            "spec": {"clusterIP": ip, "clusterIPs": [ip], "ports": [{"name": "http", "nodePort": port}]}})
    };
    let recorded = service("s-abcde", "10.96.3.4", 31000, "2026-01-01T00:00:00Z");
    let real = service("s-fghij", "10.0.0.7", 32000, "2026-02-02T00:00:00Z");
    let mut known = KnownValues::new();
    learn(&recorded, &real, "", &mut known);
    let mut sent = recorded.clone();
    substitute_value(&mut sent, "", &known);
    assert_eq!(sent, real);
    let path = "/api/v1/namespaces/n/services/s-abcde?fieldSelector=metadata.name=s-abcdef,spec.clusterIP=10.96.3.4";
    let wanted = "/api/v1/namespaces/n/services/s-fghij?fieldSelector=metadata.name=s-abcdef,spec.clusterIP=10.0.0.7";
    assert_eq!(substitute(path, &known), wanted);
    // Items of lists are compared by name: others may stand before them.
    let item = |name: &str, version: &str| serde_json::json!({"metadata": {"name": name, "resourceVersion": version}});
    learn(
        &serde_json::json!({"items": [item("a", "5")]}),
        &serde_json::json!({"items": [item("0", "7"), item("a", "9")]}),
        "",
        &mut known,
    );
    assert_eq!(known["rv:5"], "9");
}

fn learn_events(recorded: &Value, real: &[Value], known: &mut KnownValues) {
    for (left, right) in recorded.as_array().into_iter().flatten().zip(real) {
        learn(left, right, "", known);
    }
}

pub(super) async fn compare(step: &Value, response: Response<Body>, known: &mut KnownValues) -> Option<String> {
    let recorded = &step["response"];
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let gzip = headers.get("content-encoding").is_some();
    let body = match tokio::time::timeout(Duration::from_secs(10), response.into_body().collect()).await {
        Ok(body) => body.unwrap().to_bytes(),
        Err(_) => return Some("the body does not end".to_owned()),
    };
    let real: Option<Value> = if gzip { None } else { serde_json::from_slice(&body).ok().or_else(|| message(&body)) };
    let mut recorded = recorded.clone();
    if let Some(text) = recorded["body_base64"].as_str()
        && let Some(document) = message(&base64::engine::general_purpose::STANDARD.decode(text).unwrap())
    {
        recorded["body"] = document;
    }
    let recorded = &recorded;
    if let (Some(recorded), Some(real)) = (recorded.get("body"), &real) {
        learn(recorded, real, "", known);
    }
    let etag = (recorded["headers"]["etag"].as_str(), headers.get("etag").and_then(|etag| etag.to_str().ok()));
    if let (Some(recorded), Some(real)) = etag {
        known.insert(recorded.trim_matches('"').to_owned(), real.trim_matches('"').to_owned());
    }
    if step["setup"] == true {
        let expected = recorded["status"].as_u64().unwrap();
        let shown = String::from_utf8_lossy(&body);
        return (u64::from(status) != expected)
            .then(|| format!("setup: status {status} instead of {expected}: {shown}"));
    }
    let expected = recorded["status"].as_u64().unwrap();
    let text = String::from_utf8_lossy(&body);
    let shown: String = text.chars().take(600).collect();
    if u64::from(status) != expected {
        let wanted: String = recorded["body"].to_string().chars().take(600).collect();
        return Some(format!("status {status} instead of {expected}: {shown}\n   wanted {wanted}"));
    }
    if let Some(difference) = compare_headers(recorded, &headers) {
        return Some(difference);
    }
    if let Some(wanted) = recorded["body_text"].as_str().map(|wanted| substitute(wanted, known)) {
        return (text.trim_end() != wanted.trim_end()).then(|| format!("body `{text}` instead of `{wanted}`"));
    }
    if let Some(shape) = recorded["body_shape"].as_object() {
        let Some(real) = real else { return Some(format!("no JSON: {shown}")) };
        return super::shape::compare(shape, &real);
    }
    let Some(mut wanted) = recorded.get("body").cloned() else { return compare_unrecorded(step, &headers, &body) };
    let Some(mut real) = real else { return Some(format!("no JSON: {shown}")) };
    mask(&mut wanted);
    mask(&mut real);
    difference(&wanted, &real, "")
}

/// Examines a body that the recording leaves out: there is one, of the announced form, and it shows the object that was
/// sent.
pub(super) fn compare_unrecorded(step: &Value, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let is_watch = step["request"]["path"].as_str().is_some_and(|path| path.contains("watch="));
    if step["response"]["status"] == 304 || body.is_empty() {
        // A watch may end without an event.
        let is_wrong = if step["response"]["status"] == 304 { !body.is_empty() } else { !is_watch };
        return is_wrong.then(|| format!("{} bytes in the body", body.len()));
    }
    let media = headers.get("content-type").and_then(|it| it.to_str().ok()).unwrap_or_default();
    let is_document =
        ["application/json", "application/vnd.kubernetes.protobuf"].iter().any(|it| media.starts_with(it));
    if headers.contains_key("content-encoding") || is_watch || !is_document {
        return None;
    }
    let Some(real) = serde_json::from_slice::<Value>(body).ok().or_else(|| message(body)) else {
        return Some(format!("no document: {}", String::from_utf8_lossy(body)));
    };
    let (request, sent) = (&step["request"], &step["request"]["body"]);
    let is_other = ["Status", "Table", "PartialObjectMetadata"].iter().any(|it| real["kind"] == **it);
    if is_other || !["POST", "PUT"].iter().any(|it| request["method"] == **it) {
        return None;
    }
    let differs = |at: &str| sent.pointer(at).is_some_and(|sent| real.pointer(at) != Some(sent));
    let field = ["/kind", "/metadata/name"].into_iter().find(|at| differs(at))?;
    Some(format!("{field} is not the one that was sent: {}", short(&real)))
}

/// Headers whose values are hashes and times of the recorded server: they must be there.
const PRESENT: [&str; 3] = ["etag", "last-modified", "expires"];
/// Headers that are not sent: parts of documents cannot be requested, and metrics do not name the start of the process.
const NOT_SENT: [&str; 2] = ["accept-ranges", "process-start-time-unix"];

/// The first header that is not as recorded.
fn compare_headers(recorded: &Value, headers: &HeaderMap) -> Option<String> {
    let mut names = recorded.get("headers")?.as_object()?.keys().map(String::as_str);
    let compared = ["content-type", "retry-after", "warning", "content-encoding", "location", "x-content-type-options"];
    let is_missing = |name: &&str| PRESENT.contains(name) && !headers.contains_key(*name);
    let is_unknown = |name: &&str| !compared.contains(name) && !PRESENT.contains(name) && !NOT_SENT.contains(name);
    if let Some(name) = names.find(|name| is_missing(name) || is_unknown(name)) {
        return Some(format!("header {name} is missing or not compared"));
    }
    // Only what is recorded counts: the header may be sent with further answers.
    let has_options = !recorded["headers"]["x-content-type-options"].is_null();
    let mut compared = compared.into_iter().filter(|name| *name != "x-content-type-options" || has_options);
    compared.find_map(|name| {
        let wanted = match &recorded["headers"][name] {
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            value => value.as_str().unwrap_or_default().to_owned(),
        };
        let found: Vec<&str> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        let (wanted, found) = (mask_header(name, &wanted), mask_header(name, &found.join(", ")));
        (wanted != found).then(|| format!("header {name} is `{found}` instead of `{wanted}`"))
    })
}

/// Documents have other hashes here.
fn mask_header(name: &str, text: &str) -> String {
    let text = if name == "location" { text.split("hash=").next().unwrap_or_default() } else { text };
    mask_words(text)
}

/// The document that stands for an object in protobuf.
pub(super) fn message(bytes: &[u8]) -> Option<Value> {
    use api::types::{self, protobuf};
    let envelope = protobuf::Envelope::read(bytes).ok()?;
    let of = types::by_api_version(&envelope.api_version, &envelope.kind);
    let of = of.or_else(|| types::partial(&envelope.api_version, &envelope.kind));
    let of = of.or_else(|| types::by_kind("meta.k8s.io", "v1", &envelope.kind))?;
    let document = types::decode(of, &protobuf::read(of, envelope.raw).ok()?).ok()?.value;
    serde_json::from_str(&api::json::to_string(&document)).ok()
}

/// Separates the differences of one answer.
pub(super) const NEXT: &str = "\n& ";

/// All places where two documents differ.
pub(super) fn difference(wanted: &Value, real: &Value, at: &str) -> Option<String> {
    let mut all = Vec::new();
    add_differences(wanted, real, at, &mut all);
    (!all.is_empty()).then(|| all.join(NEXT))
}

fn add_differences(wanted: &Value, real: &Value, at: &str, all: &mut Vec<String>) {
    match (wanted, real) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                match right.get(key) {
                    None => all.push(format!("{at}.{key} is missing: {}", short(value))),
                    Some(real) => add_differences(value, real, &format!("{at}.{key}"), all),
                }
            }
            let extra = right.iter().filter(|(key, _)| !left.contains_key(*key));
            all.extend(extra.map(|(key, value)| format!("{at}.{key} should not be there: {}", short(value))));
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                add_differences(left, right, &format!("{at}[{index}]"), all);
            }
        }
        _ if wanted == real => {}
        _ => all.push(format!("{at} is {} instead of {}", short(real), short(wanted))),
    }
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(3000).collect()
}

pub(super) async fn collect_events(server: Arc<Server>, request: Request<Full<Bytes>>) -> ObservedStream {
    let response = server.handle(request, None).await;
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut text = Vec::new();
    let mut body = response.into_body();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            text.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
    };
    // Recorded streams end after a few seconds.
    let is_over = tokio::time::timeout(Duration::from_secs(15), read).await.is_ok();
    let text = String::from_utf8_lossy(&text);
    let events = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    ObservedStream { status, headers, events, is_over }
}

pub(super) fn compare_events(scenario: &str, step: &Value, streamed: ObservedStream) -> Outcome {
    let ObservedStream { status, headers, events: mut real, is_over } = streamed;
    let id = format!("{scenario} {}", step["step"]);
    let recorded = &step["response"];
    if u64::from(status) != recorded["status"].as_u64().unwrap() {
        return Outcome { id, difference: Some(format!("status {status}: {real:?}")) };
    }
    if let Some(difference) = compare_headers(recorded, &headers) {
        return Outcome { id, difference: Some(difference) };
    }
    if recorded["ended"] == "server closed" && !is_over {
        return Outcome { id, difference: Some("the stream does not end".to_owned()) };
    }
    let mut wanted = match recorded.get("body") {
        // A refusal is not a stream.
        Some(body) => vec![body.clone()],
        None => recorded["events"].as_array().cloned().unwrap_or_default(),
    };
    // When bookmarks come depends on the moment.
    let is_plain_bookmark = |event: &Value| {
        let object = &event["object"];
        let is_marked = |object: &Value| object["metadata"].get("annotations").is_some();
        event["type"] == "BOOKMARK" && !is_marked(object) && !is_marked(&object["rows"][0]["object"])
    };
    wanted.retain(|event| !is_plain_bookmark(event));
    real.retain(|event| !is_plain_bookmark(event));
    let (mut wanted, mut real) = (Value::Array(wanted), Value::Array(real));
    mask(&mut wanted);
    mask(&mut real);
    Outcome { id, difference: difference(&wanted, &real, "events") }
}
