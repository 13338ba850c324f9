//! Defaults and errors of kinds that no recording holds, as cases in YAML.
//!
//! `object` is created, or takes the place of `old`, as a whole or in the part that `subresource` names; `errors` are all
//! errors in order, `holds` is part of what is stored.

use api::features::Features;
use api::json::Value;
use registry::admit::{self, AcceptedObject, AdmitError};
use registry::expressions::Environments;
use registry::resources;
use registry::strategy::Context;

const TOPICS: &[(&str, &str)] = &[
    ("kinds", include_str!("cases/kinds.yaml")),
    ("storage", include_str!("cases/storage.yaml")),
    ("networking", include_str!("cases/networking.yaml")),
    ("serving", include_str!("cases/serving.yaml")),
    ("workloads", include_str!("cases/workloads.yaml")),
];

#[test]
fn kinds_without_recordings_follow_the_rules_of_the_reference() {
    let environments = Environments::new().unwrap();
    let context = Context {
        features: Features::default(),
        expressions: &environments,
        namespace: "default",
        now: "2000-01-01T00:00:00Z",
        uid: "00000000-0000-4000-8000-000000000001",
        name_suffix: "bcdfg",
        namespace_allows_admin_access: false,
    };
    let mut wrong = Vec::new();
    for (topic, text) in TOPICS {
        let (documents, error) = api::yaml::parse_documents(text);
        assert!(error.is_none(), "{topic}: {error:?}");
        let cases = documents.into_iter().next().unwrap().value;
        for case in cases.as_array().unwrap() {
            check(case, &context, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(case: &Value, context: &Context<'_>, wrong: &mut Vec<String>) {
    let name = case.str_at(&["name"]).unwrap();
    let list = case.get("errors").and_then(Value::as_array).unwrap_or_default();
    let expected: Vec<&str> = list.iter().map(|it| it.as_str().unwrap()).collect();
    let (found, stored) = match run(case, context) {
        Ok(accepted) => (Vec::new(), accepted.object),
        Err(AdmitError::Invalid { errors, .. }) => (errors.iter().map(ToString::to_string).collect(), Value::Null),
        Err(other) => (vec![other.to_string()], Value::Null),
    };
    if found != expected {
        wrong.push(format!("{name}\n  found {found:#?}\n  expected {expected:#?}"));
    }
    if let Some(part) = case.get("holds").filter(|part| !holds(&stored, part)) {
        let [stored, part] = [&stored, part].map(api::json::to_string);
        wrong.push(format!("{name}\n  stored {stored}\n  expected {part}"));
    }
}

fn run(case: &Value, context: &Context<'_>) -> Result<AcceptedObject, AdmitError> {
    let object = case.get("object").unwrap();
    let (api_version, kind) = (object.str_at(&["apiVersion"]).unwrap(), object.str_at(&["kind"]).unwrap());
    let resource = resources::find_by_api_version(api_version, kind).unwrap();
    let Some(old) = case.get("old") else { return admit::create(resource, object, context) };
    let subresource = case.str_at(&["subresource"]);
    let version = [("resourceVersion", "1"), ("uid", context.uid), ("creationTimestamp", context.now)];
    let identify = |it: &mut Value| {
        let metadata = it.get_mut("metadata").and_then(Value::as_object_mut).unwrap();
        version.iter().for_each(|(key, text)| drop(metadata.insert(*key, *text)));
    };
    let mut stored = admit::create(resource, old, context)?.object;
    identify(&mut stored);
    let mut old = old.clone();
    identify(&mut old);
    if subresource.is_some() {
        stored = admit::update(resource, &old, &stored, subresource, context)?.object;
    }
    let mut object = object.clone();
    identify(&mut object);
    admit::update(resource, &object, &stored, subresource, context)
}

/// Whether a document has all that another has; lists are the same.
pub(crate) fn holds(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| holds(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| holds(whole, part))
        }
        _ => whole == part,
    }
}
