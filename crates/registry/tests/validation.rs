//! Recorded results of the reference for objects: create and update, defaults, errors in order, warnings.
//!
//! `known_gaps.txt` lists what differs, with reasons; a listed case that agrees fails the test, too.

use std::collections::BTreeMap;

use api::features::{Features, Gate};
use api::json::{self, Value};
use registry::admit::{self, AdmitError};
use registry::expressions::Environments;
use registry::resources;
use registry::strategy::Context;

#[test]
fn objects_are_decided_as_the_reference_decides() {
    let data = include_str!("data/validation.jsonl");
    let gaps: BTreeMap<&str, &str> = include_str!("data/known_gaps.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(char::is_whitespace).unwrap_or((line, "")))
        .collect();
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    let environments = Environments::new().unwrap();
    for line in data.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let id = case.get("id").unwrap().as_str().unwrap().to_owned();
        let input = case.get("input").unwrap();
        let expected = case.get("expected").unwrap();
        let difference = check(input, expected, &environments);
        let kind = input.str_at(&["object", "kind"]).unwrap_or("?").to_owned();
        let row = table.entry(kind).or_default();
        row.1 += 1;
        if difference.is_none() {
            row.0 += 1;
        }
        match (difference, gaps.get(id.as_str())) {
            (None, Some(_)) => wrong.push(format!("{id}: listed as a gap, but agrees")),
            (Some(difference), None) => wrong.push(format!("{id}: {difference}")),
            _ => {}
        }
    }
    let mut total = (0, 0);
    for (kind, (passed, all)) in &table {
        println!("{kind:30} {passed:5} of {all}");
        total = (total.0 + passed, total.1 + all);
    }
    println!("{:30} {:5} of {}", "all", total.0, total.1);
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

fn check(input: &Value, expected: &Value, environments: &Environments) -> Option<String> {
    let mut document = input.get("object").unwrap().clone();
    let (api_version, kind) = (input.str_at(&["object", "apiVersion"])?, input.str_at(&["object", "kind"])?);
    let Some(resource) = resources::find_by_api_version(api_version, kind) else {
        return Some("no such resource".to_owned());
    };
    let mut features = Features::default();
    if let Some(gates) = input.get("gates") {
        for (name, value) in gates.as_object().unwrap().iter() {
            features = features.with(Gate::from_name(name).unwrap(), value.as_bool().unwrap());
        }
    }
    let context = Context {
        features,
        expressions: environments,
        namespace: input.str_at(&["namespace"]).unwrap_or("default"),
        now: "2000-01-01T00:00:00Z",
        uid: "00000000-0000-4000-8000-000000000001",
        name_suffix: "bcdfg",
        namespace_allows_admin_access: input.str_at(&["namespace"]) == Some("admin"),
    };
    // Malformed managed fields are dropped by the server before validation; answers were recorded without any.
    drop_managed_fields(&mut document);
    let result = if input.str_at(&["op"]) == Some("create") {
        admit::create(resource, &document, &context)
    } else {
        let mut old = input.get("old").unwrap().clone();
        if resource.namespaced && old.str_at(&["metadata", "namespace"]).is_none() {
            old.get_mut("metadata").unwrap().as_object_mut().unwrap().insert("namespace", context.namespace);
        }
        drop_managed_fields(&mut old);
        let old = admit::read(resource, &old, context.now).unwrap().object;
        admit::update(resource, &document, &old, input.str_at(&["subresource"]), &context)
    };
    match result {
        Ok(accepted) => {
            if accepted.strict_errors != texts(expected, "strictErrors") {
                return Some(format!("strict errors {:?}", accepted.strict_errors));
            }
            if expected.get("object") != Some(&accepted.object) {
                return Some(format!("accepted {}\nexpected {expected}", accepted.object));
            }
            (accepted.warnings != texts(expected, "warnings"))
                .then(|| format!("warnings {:?}\nexpected {:?}", accepted.warnings, texts(expected, "warnings")))
        }
        Err(AdmitError::Decode(error)) => (expected.str_at(&["decodeError"]) != Some(&error.to_string()))
            .then(|| format!("decode error {error}\nexpected {expected}")),
        Err(AdmitError::BadRequest(message)) => (expected.get("errors").is_some()
            || expected.str_at(&["message"]) != Some(&message))
        .then(|| format!("bad request {message}\nexpected {expected}")),
        Err(AdmitError::Invalid { message, errors, strict_errors }) => {
            let ours: Vec<String> =
                errors.iter().map(|it| without_diff(&format!("{}: {}", it.field, it.body())).to_owned()).collect();
            let theirs: Vec<String> = expected
                .get("errors")
                .and_then(Value::as_array)
                .unwrap_or_default()
                .iter()
                .map(|it| {
                    let text = format!("{}: {}", it.str_at(&["field"]).unwrap(), it.str_at(&["body"]).unwrap());
                    without_diff(&text).to_owned()
                })
                .collect();
            if ours != theirs {
                return Some(format!(
                    "errors\n  {}\nexpected\n  {}\n{expected}",
                    ours.join("\n  "),
                    theirs.join("\n  ")
                ));
            }
            if strict_errors != texts(expected, "strictErrors") {
                return Some(format!("strict errors {strict_errors:?}"));
            }
            let has_diff = message.contains("@@ ") || expected.str_at(&["message"]).unwrap().contains("@@ ");
            (!has_diff && Some(message.as_str()) != expected.str_at(&["message"]))
                .then(|| format!("message {message}\nexpected {expected}"))
        }
        Err(other) => Some(format!("{other}")),
    }
}

/// A diff after the first line break shows Go's internal names.
fn without_diff(text: &str) -> &str {
    match text.split_once('\n') {
        Some((first, rest)) if rest.contains("@@ ") || rest.is_empty() => first,
        _ => text,
    }
}

fn drop_managed_fields(document: &mut Value) {
    if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn texts(expected: &Value, key: &str) -> Vec<String> {
    let list = expected.get(key).and_then(Value::as_array).unwrap_or_default();
    list.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// Changed copies of recorded objects, with the answers of a server of the same version.
#[test]
fn changed_objects_are_refused_as_the_reference_refuses_them() {
    let environments = Environments::new().unwrap();
    let mut wrong = Vec::new();
    for line in include_str!("data/differential.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        if let Some(difference) = check(case.get("input").unwrap(), case.get("expected").unwrap(), &environments) {
            wrong.push(format!("{}: {difference}", case.str_at(&["id"]).unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

/// Answers of a server to creations: the message of a rejection, or none.
#[test]
fn recorded_messages_are_ours() {
    let environments = Environments::new().unwrap();
    let mut wrong = Vec::new();
    for line in include_str!("data/recorded_messages.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let id = case.str_at(&["id"]).unwrap();
        let object = case.get("object").unwrap();
        let (api_version, kind) = (object.str_at(&["apiVersion"]).unwrap(), object.str_at(&["kind"]).unwrap());
        let resource = resources::find_by_api_version(api_version, kind).unwrap();
        let context = Context {
            features: Features::default(),
            expressions: &environments,
            namespace: case.text("namespace"),
            now: "2000-01-01T00:00:00Z",
            uid: "00000000-0000-4000-8000-000000000001",
            name_suffix: "bcdfg",
            namespace_allows_admin_access: false,
        };
        let message = admit::create(resource, object, &context).err().map(|refused| refused.to_string());
        if message.as_deref() != case.str_at(&["message"]) {
            wrong.push(format!("{id}:\n  ours {message:?}\n  theirs {:?}", case.str_at(&["message"])));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}
