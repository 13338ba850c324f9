//! Replays recorded requests about custom resources that a webhook converts.
//!
//! The cases are in `tests/data/webhooks/conversion.jsonl`. Answers are compared. Upstream keeps a cache per version and sends
//! reviews for it and for the owners of fields, so that of the conversion reviews only their form is compared. A case that
//! differs is listed in `conversion_gaps.txt`.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use apiserver::{Options, Server};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use store::EmbeddedStore;

use super::backend::Backend;
use super::{Answer, ask, difference, difference_of_reviews, here, mask, repeat, tokens};

/// Replaces revisions in texts, as in the recording.
fn mask_revisions(text: &str) -> String {
    let mark = "revision=";
    let mut parts = text.split(mark);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|it: char| it.is_ascii_digit());
        let shown = if rest.len() == part.len() { part.to_owned() } else { format!("<rv>{rest}") };
        masked = format!("{masked}{mark}{shown}");
    }
    masked
}

fn mask_texts(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(mask_texts),
        Value::Array(items) => items.iter_mut().for_each(mask_texts),
        Value::String(text) => *text = mask_revisions(text),
        _ => {}
    }
}

/// The entries of managed fields, which the comparison of bodies drops.
fn owners(body: &Value) -> Value {
    let mut entries = body["metadata"]["managedFields"].clone();
    for entry in entries.as_array_mut().into_iter().flatten() {
        entry["time"] = "<time>".into();
    }
    entries
}

fn compare(mut answer: Answer, step: &Value, keeps_owners: bool) -> Option<String> {
    mask_texts(&mut answer.body);
    if keeps_owners && owners(&answer.body) != owners(&step["expect"]["body"]) {
        return Some(format!("owners {} instead of {}", owners(&answer.body), owners(&step["expect"]["body"])));
    }
    difference(answer, &step["expect"])
}

/// The first part of a conversion review that no server of the recording would have sent.
fn strange(review: &Value) -> Option<String> {
    let (path, review) = (&review["path"], &review["review"]);
    let keys = |value: &Value| value.as_object().map(|it| it.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let stub = json!({"convertedObjects": null, "result": {"metadata": {}}, "uid": ""});
    let is_converted = |it: &Value| it["apiVersion"] == review["request"]["desiredAPIVersion"];
    let objects = review["request"]["objects"].as_array()?;
    let is_right = path == "?timeout=30s"
        && review["response"] == stub
        && keys(&review["request"]) == ["desiredAPIVersion", "objects", "uid"]
        && !objects.is_empty()
        && !objects.iter().any(is_converted);
    (!is_right).then(|| format!("sent {review} to {path}"))
}

/// Opens a watch, does the requests, and reads as many events as are expected.
async fn watch(server: &Arc<Server>, step: &Value) -> Option<String> {
    let built = http::Request::builder().uri(step["watch"]["path"].as_str().unwrap());
    let built = built.header("authorization", "Bearer admin").body(Full::new(Bytes::new())).unwrap();
    let mut body = server.handle(built, None).await.into_body();
    for request in step["watch"]["requests"].as_array().into_iter().flatten() {
        ask(server, request).await;
    }
    let expected = step["expect"]["events"].as_array().unwrap();
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < expected.len() {
        let Some(Ok(frame)) = body.frame().await else { break };
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |it| it));
    }
    let mut events: Vec<Value> =
        text.split(|it| *it == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    events.iter_mut().for_each(|it| mask(it, "", false));
    (events != *expected).then(|| format!("events {} instead of {}", json!(events), json!(expected)))
}

async fn play(server: &Arc<Server>, backend: &Backend, index: usize, case: &Value) -> Vec<String> {
    let (mut differences, name) = (Vec::new(), index.to_string());
    let keeps_owners = case.get("keepManagedFields").is_some();
    let steps = case["steps"].as_array().unwrap();
    for step in steps {
        for (hook, behavior) in step["hooks"].as_object().into_iter().flatten() {
            backend.hooks.set(&name, hook, behavior);
        }
        if let Some(until) = step.get("until") {
            repeat(server, until).await;
        } else if step.get("watch").is_some() {
            differences.extend(watch(server, step).await);
        } else if step.get("request").is_some() {
            differences.extend(compare(ask(server, &step["request"]).await, step, keeps_owners));
        }
        server.settle().await.unwrap();
        let received = backend.hooks.take(&name);
        differences.extend(received.iter().find_map(strange));
        let is_admission = |it: &Value| it["review"]["kind"] == "AdmissionReview";
        if let Some(expected) = step["reviews"].as_array() {
            let expected: Vec<Value> = expected.iter().filter(|it| is_admission(it)).cloned().collect();
            let received = received.into_iter().filter(is_admission).collect();
            differences.extend(difference_of_reviews(received, &json!(expected)));
        }
    }
    differences
}

#[tokio::test]
async fn custom_resources_are_converted_as_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let text = std::fs::read_to_string(root.join("data/webhooks/conversion.jsonl")).unwrap();
    let gaps = std::fs::read_to_string(root.join("webhooks/conversion_gaps.txt")).unwrap();
    let gaps: BTreeSet<&str> = gaps.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let backend = Backend::start().await;
    let store = Arc::new(EmbeddedStore::in_memory(store::Options::default()).unwrap());
    let service = |port| (("svcs".to_owned(), "hook".to_owned(), port), backend.addresses["good"].to_string());
    let options = Options {
        tokens: tokens(),
        disabled_admission_plugins: vec!["ServiceAccount".to_owned()],
        backends: HashMap::from([service(443)]),
        ..Options::default()
    };
    let server = Server::start(store, options).await.unwrap();
    let mut wrong = Vec::new();
    let mut count = 0_usize;
    for (index, line) in text.lines().enumerate() {
        let case = here(&serde_json::from_str(line).unwrap(), index, &backend);
        count += 1;
        for (hook, behavior) in case["hooks"].as_object().into_iter().flatten() {
            backend.hooks.set(&index.to_string(), hook, behavior);
        }
        let mut differences = Vec::new();
        for request in case["setup"].as_array().into_iter().flatten() {
            let answer = ask(&server, request).await;
            if !(200..300).contains(&answer.code) {
                differences.push(format!("set-up: {}", answer.body));
            }
            server.settle().await.unwrap();
        }
        differences.extend(play(&server, &backend, index, &case).await);
        let id = case["id"].as_str().unwrap();
        match (gaps.contains(id), differences.is_empty()) {
            (true, true) => wrong.push(format!("{id}: agrees now, take it off the list")),
            (false, false) => wrong.extend(differences.iter().map(|it| format!("{id}: {it}"))),
            _ => {}
        }
    }
    server.stop().await.unwrap();
    assert!(wrong.is_empty(), "{} differences in {count} cases:\n{}", wrong.len(), wrong.join("\n"));
}
