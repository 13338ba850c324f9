//! Requests of nodes for their pods, and answers of signers, as cases in YAML.

use api::features::Features;
use api::json::Value;
use registry::admit::{self, AcceptedObject, AdmitError};
use registry::expressions::Environments;
use registry::resources;
use registry::strategy::Context;

const NOW: &str = "2000-01-01T00:00:00Z";

fn context<'a>(environments: &'a Environments, now: &'a str) -> Context<'a> {
    Context {
        features: Features::default(),
        expressions: environments,
        namespace: "default",
        now,
        uid: "00000000-0000-4000-8000-000000000001",
        name_suffix: "bcdfg",
        namespace_allows_admin_access: false,
    }
}

/// Merges fields into a part of an object; null removes.
fn merge(object: &mut Value, part: &str, fields: Option<&Value>) {
    let Some(fields) = fields.and_then(Value::as_object) else { return };
    let object = object.as_object_mut().unwrap();
    let target = object.get_or_insert(part, Value::object).as_object_mut().unwrap();
    for (key, value) in fields.iter() {
        match value {
            Value::Null => drop(target.remove(key)),
            value => drop(target.insert(key, value.clone())),
        }
    }
}

fn answered(object: &mut Value, answer: Option<&Value>) {
    if let Some(answer) = answer {
        let condition = api::json!({"type": (answer.clone()), "status": "True", "reason": "A", "message": "", "lastTransitionTime": NOW});
        merge(object, "status", Some(&api::json!({"conditions": [condition]})));
    }
}

/// Expands an abbreviation of the cases to a long text.
fn expand(object: &mut Value, chains: &Value) {
    let chain = object.str_at(&["status", "certificateChain"]).and_then(|name| chains.get(name)).cloned();
    if let Some(chain) = chain {
        merge(object, "status", Some(&api::json!({"certificateChain": chain})));
    }
    if object.str_at(&["spec", "stubPKCS10Request"]) == Some("LONG") {
        let long = api::base64::encode(&[0x30; 10 * 1024 + 1]);
        merge(object, "spec", Some(&api::json!({"stubPKCS10Request": long})));
    }
}

#[test]
fn requests_of_nodes_and_answers_of_signers_follow_the_reference() {
    let environments = Environments::new().unwrap();
    let (documents, error) = api::yaml::parse_documents(include_str!("cases/pod_certificate_requests.yaml"));
    assert!(error.is_none(), "{error:?}");
    let cases = documents.into_iter().next().unwrap().value;
    let (request, chains) = (cases.get("request").unwrap(), cases.get("chains").unwrap());
    let resource = resources::find("certificates.k8s.io", "v1", "podcertificaterequests").unwrap();
    let identity =
        api::json!({"resourceVersion": "1", "uid": "00000000-0000-4000-8000-000000000001", "creationTimestamp": NOW});
    let mut wrong = Vec::new();
    for how in ["create", "update", "status"] {
        for case in cases.get(how).and_then(Value::as_array).unwrap() {
            let name = case.str_at(&["name"]).unwrap();
            let context = context(&environments, case.str_at(&["now"]).unwrap_or(NOW));
            let mut old = request.clone();
            merge(&mut old, "spec", case.get("requested"));
            let mut object = old.clone();
            for part in ["metadata", "spec", "status"] {
                merge(&mut object, part, case.get(part));
            }
            answered(&mut object, case.get("answer"));
            expand(&mut object, chains);
            let result: Result<AcceptedObject, AdmitError> = if how == "create" {
                admit::create(resource, &object, &context)
            } else {
                let mut stored = admit::create(resource, &old, &context).unwrap().object;
                answered(&mut stored, case.get("before"));
                merge(&mut stored, "metadata", Some(&identity));
                merge(&mut object, "metadata", Some(&identity));
                admit::update(resource, &object, &stored, (how == "status").then_some("status"), &context)
            };
            let chain = api::go_text::quote(object.text_at(&["status", "certificateChain"]));
            let list = case.get("errors").and_then(Value::as_array).unwrap_or_default();
            let expected: Vec<String> = list.iter().map(|it| it.as_str().unwrap().replace("CHAIN", &chain)).collect();
            let (found, stored) = match result {
                Ok(accepted) => (Vec::new(), accepted.object),
                Err(AdmitError::Invalid { errors, .. }) => {
                    (errors.iter().map(ToString::to_string).collect(), Value::Null)
                }
                Err(other) => (vec![other.to_string()], Value::Null),
            };
            if found != expected {
                wrong.push(format!("{how}: {name}\n  found {found:#?}\n  expected {expected:#?}"));
            }
            if let Some(part) = case.get("holds").filter(|part| !crate::kinds::holds(&stored, part)) {
                let [stored, part] = [&stored, part].map(api::json::to_string);
                wrong.push(format!("{how}: {name}\n  stored {stored}\n  expected {part}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
