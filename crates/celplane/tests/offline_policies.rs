//! Replays recorded creations under admission policies with `celplane check --policies`.
//!
//! The cases are those of the API server's tests. All are checked by one command: the bindings of a case select its own
//! namespace. A policy whose inputs are in no file must be reported as not evaluated.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Cases whose policies need an input that no file contains.
const NOT_EVALUATED: [&str; 14] = [
    "map/enforce/ac-ns",
    "map/enforce/jp-obj-meta",
    "map/enforce/param-missing-allow",
    "vap/enforce/authz-allowed",
    "vap/enforce/authz-errored",
    "vap/enforce/authz-fsel-bad",
    "vap/enforce/authz-nonres",
    "vap/enforce/authz-sa",
    "vap/enforce/param-name-missing-Allow-Fail",
    "vap/enforce/param-name-missing-Allow-Ignore",
    "vap/enforce/param-name-missing-Deny-Fail",
    "vap/enforce/param-sel-none-Deny",
    "vap/enforce/params-missing-kind-Fail",
    "vap/enforce/params-missing-kind-Ignore",
];
/// The object is a parameter of its own: the command reads parameters from the manifests, too.
const OWN_PARAMETER: &str = "vap/enforce/param-sel-all";

/// A recorded creation.
struct Case {
    id: String,
    setup: Vec<Value>,
    object: Value,
    expected: Value,
}

/// The part of a path after `namespaces/`, up to the next slash, and the rest.
fn namespaced(path: &str) -> Option<(&str, &str)> {
    path.split_once("/namespaces/")?.1.split_once('/')
}

fn in_namespace(mut object: Value, path: &str) -> Value {
    if let (Some((namespace, _)), None) = (namespaced(path), object["metadata"].get("namespace")) {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

/// The case of a line, if its first request creates an object that its own bindings select.
fn read(line: &str) -> Option<Case> {
    let case: Value = serde_json::from_str(line).unwrap();
    let id = case["id"].as_str()?.to_owned();
    let bodies: Vec<(&Value, &str)> =
        case["setup"].as_array()?.iter().map(|it| (&it["body"], it["path"].as_str().unwrap())).collect();
    let is_binding = |body: &Value| body["kind"].as_str().is_some_and(|kind| kind.ends_with("PolicyBinding"));
    let selects = |body: &Value| body["spec"]["matchResources"].get("namespaceSelector").is_some();
    let is_apart = bodies.iter().all(|(body, _)| !is_binding(body) || selects(body));
    // Policies with an unknown kind of parameters refuse the objects of all cases.
    if !id.contains("/enforce/") || !is_apart || id.contains("missing-paramkind") {
        return None;
    }
    let step = case["steps"].as_array()?.iter().find(|it| it.get("request").is_some())?;
    let (request, path) = (&step["request"], step["request"]["path"].as_str()?);
    let (_, rest) = namespaced(path)?;
    let is_creation = request["verb"] == "POST" && request.get("identity").is_none() && request["body"].is_object();
    (is_creation && !rest.contains('/')).then(|| Case {
        id,
        setup: bodies.iter().map(|(body, path)| in_namespace((*body).clone(), path)).collect(),
        object: in_namespace(request["body"].clone(), path),
        expected: step["expect"].clone(),
    })
}

/// The text of a `Warning` header.
fn warning(header: &Value) -> String {
    let text = header.as_str().unwrap().trim_start_matches("299 - \"");
    text.strip_suffix('"').unwrap_or(text).replace("\\\"", "\"")
}

fn texts<'v>(list: &'v Value, field: &'v str) -> impl Iterator<Item = &'v str> {
    list.as_array().unwrap().iter().filter_map(move |it| it.get(field).unwrap_or(it).as_str())
}

#[test]
fn policies_have_the_recorded_results_offline() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apiserver/tests/data/policies/policies.jsonl");
    let cases: Vec<Case> = std::fs::read_to_string(data).unwrap().lines().filter_map(read).collect();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, items: Vec<&Value>| {
        let path = directory.path().join(name);
        std::fs::write(&path, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
        path
    };
    let policies = write("policies.json", cases.iter().flat_map(|case| &case.setup).collect());
    let objects = write("objects.json", cases.iter().map(|case| &case.object).collect());
    let output = Command::new(env!("CARGO_BIN_EXE_celplane"))
        .args(["check", "-o", "json", "--as", "admin", "--as-group", "system:masters"])
        .arg("-f")
        .arg(&objects)
        .arg("--policies")
        .arg(&policies)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = report["files"][0]["objects"].as_array().unwrap();
    assert_eq!(results.len(), cases.len());
    assert!(cases.len() > 100, "{}", cases.len());
    let (mut differences, mut not_evaluated) = (Vec::new(), Vec::new());
    for (case, result) in cases.iter().zip(results) {
        if result["notEvaluated"].as_array().is_some_and(|it| !it.is_empty()) {
            not_evaluated.push(case.id.as_str());
            continue;
        }
        let code = case.expected["code"].as_u64().unwrap();
        let message = case.expected["body"]["message"].as_str().unwrap_or_default();
        let expected: Vec<String> = case.expected["warnings"].as_array().into_iter().flatten().map(warning).collect();
        let agrees = result["accepted"] == json!(code < 300)
            && texts(&result["warnings"], "message").eq(expected.iter().map(String::as_str))
            && (code < 300 || texts(&result["errors"], "message").any(|it| message.contains(it)));
        if !agrees {
            differences.push(format!("{}: {result} instead of {}", case.id, case.expected));
        }
    }
    not_evaluated.sort_unstable();
    assert_eq!(not_evaluated, NOT_EVALUATED);
    assert!(matches!(differences.as_slice(), [one] if one.starts_with(OWN_PARAMETER)), "{}", differences.join("\n"));
}

#[test]
fn policies_do_not_apply_to_policies() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policies.yaml");
    let policies = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nothing}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], operations: [CREATE]}]}
  validations: [{expression: 'false', message: nothing passes}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: nothing}
spec: {policyName: nothing, validationActions: [Deny]}
";
    std::fs::write(&file, policies).unwrap();
    let check = |input: &str| crate::shell::run(&["check", "-f", "-", "--policies", file.to_str().unwrap()], input);
    let (code, output, _) = check(policies);
    assert_eq!(code, 0, "{output}");
    let (code, output, _) = check("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}");
    assert!(code == 1 && output.contains("denied request: nothing passes"), "{output}");
}
