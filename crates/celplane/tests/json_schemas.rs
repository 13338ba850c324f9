//! The output of `-o json` against the schemas in `docs/schemas`.
//!
//! The schemas allow no further fields, so that a new field fails here until it is documented.

use std::path::Path;

use serde_json::{Map, Value};

use crate::shell::run;

fn schema(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let text = std::fs::read_to_string(folder.join(format!("{name}.schema.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The violations of a value, by the keywords that the schemas use.
fn violations(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return violations(target, root, value, at);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fitting = choices.iter().filter(|choice| violations(choice, root, value, at).is_empty()).count();
        return if fitting == 1 { Vec::new() } else { vec![format!("{at} fits {fitting} choices: {value}")] };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_allowed = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(|it| it == kind),
        one => one == kind,
    };
    if !is_allowed {
        return vec![format!("{at} is {kind} instead of {}", schema["type"])];
    }
    match value {
        Value::Array(items) => {
            let of_item = |(index, item)| violations(&schema["items"], root, item, &format!("{at}[{index}]"));
            items.iter().enumerate().flat_map(of_item).collect()
        }
        Value::Object(fields) => object_violations(schema, root, fields, at),
        _ => Vec::new(),
    }
}

fn object_violations(schema: &Value, root: &Value, fields: &Map<String, Value>, at: &str) -> Vec<String> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing = required.filter(|name| !fields.contains_key(*name)).map(|name| format!("{at}.{name} is missing"));
    let mut all: Vec<String> = missing.collect();
    for (name, value) in fields {
        let at = format!("{at}.{name}");
        match (schema["properties"].get(name), schema.get("additionalProperties")) {
            (Some(property), _) => all.extend(violations(property, root, value, &at)),
            (None, Some(Value::Bool(false))) => all.push(format!("{at} is not in the schema")),
            (None, Some(other)) => all.extend(violations(other, root, value, &at)),
            (None, None) => {}
        }
    }
    all
}

/// Runs a command and holds its output against the schema of this name.
#[track_caller]
fn follows(name: &str, arguments: &[&str], input: &str) -> Value {
    let (_, output, errors) = run(arguments, input);
    let document: Value = serde_json::from_str(&output).unwrap_or_else(|_| panic!("{arguments:?}: {output}{errors}"));
    let schema = schema(name);
    let violations = violations(&schema, &schema, &document, "");
    assert!(violations.is_empty(), "{arguments:?}: {violations:#?}");
    document
}

const BROKEN: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i, prots: []}]}\n---\n\
    apiVersion: x.io/v1\nkind: Foo\nmetadata: {name: f}\n";

#[test]
fn reports_on_manifests_follow_their_schemas() {
    let report = follows("check", &["check", "-v", "-o", "json", "."], "");
    assert!(report["files"].as_array().unwrap().len() > 10, "{report}");
    follows("check", &["check", "-o", "json", "-"], BROKEN);
    let report = follows("scan", &["scan", "-o", "json", "-f", "."], "");
    assert!(report["uses"].as_array().unwrap().len() > 10, "{report}");
}

#[test]
fn reports_on_placement_follow_their_schemas() {
    let devices = ["-f", "device-constraints/accelerators.yaml", "-f", "device-constraints/device-class.yaml"];
    for pod in [
        "device-constraints/story-2-grid.yaml",
        "semver-operators/story-4-volume.yaml",
        "tolerations/story-2-kernel-version.yaml",
        "tolerations-and-node-affinity/story-3-rack.yaml",
        "tolerations-and-node-affinity/story-5-volume.yaml",
    ] {
        let base = ["why", "--pod", pod, "-o", "json"];
        follows("why", &[&base[..], &["-f", "cluster"]].concat(), "");
        follows("why", &[&base[..], &devices].concat(), "");
        follows("why", &[&base[..], &["-f", "cluster", "--feature-gates", "AllAlpha=false"]].concat(), "");
    }
    follows("simulate", &["simulate", "-o", "json", "-f", "."], "");
    let configuration = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&configuration, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
        .unwrap();
    let compare = ["simulate", "-o", "json", "-f", ".", "--compare", configuration.path().to_str().unwrap()];
    assert!(follows("simulate", &compare, "")["compared"].is_object());
    let node = tempfile::NamedTempFile::new().unwrap();
    let manifest =
        "apiVersion: v1\nkind: Node\nmetadata: {name: t}\nstatus: {allocatable: {cpu: '2', memory: 4Gi, pods: '9'}}\n";
    std::fs::write(&node, manifest).unwrap();
    let fit = ["simulate", "-o", "json", "-f", "-", "--fit-nodes", node.path().to_str().unwrap()];
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n";
    assert_eq!(follows("simulate", &fit, pod)["fitNodes"]["nodes"], 1);
}

#[test]
fn lists_follow_their_schemas() {
    follows("gates", &["gates", "-o", "json"], "");
    follows("list", &["list", "-o", "json"], "");
}
