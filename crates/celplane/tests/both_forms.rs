//! The case tables of the proposals through the offline tools: an annotation gets the verdict of the field.

use std::path::Path;
use std::process::Command;

use api::json::Value;

const PROPOSALS: &str = include_str!("../../registry/tests/cases/proposals.yaml");
const NODE_AFFINITY: &str = include_str!("../../matching/tests/cases/node_affinity.yaml");

const TOLERATIONS_KEY: &str = "placement.celplane.dev/tolerations";
const AFFINITY_KEY: &str = "placement.celplane.dev/node-affinity";
const CONSTRAINTS_KEY: &str = "placement.celplane.dev/device-constraints";
const COLUMNS_KEY: &str = "columns.celplane.dev/v1";

/// The gates of the proposals, which are off in a case unless it names them.
const GATES: [&str; 5] = [
    "TaintTolerationCEL",
    "TaintTolerationNodeAffinityCEL",
    "DRACELDeviceConstraint",
    "TaintTolerationNodeAffinitySemverComparisonOperators",
    "CRDAdditionalPrinterColumnCEL",
];

fn cases(text: &str) -> Vec<Value> {
    let (mut documents, error) = api::yaml::parse_documents(text);
    assert!(error.is_none(), "{error:?}");
    let Value::Array(cases) = documents.remove(0).value else { panic!("cases are a list") };
    cases
}

/// The exit code and the output of a tool about objects.
fn run(arguments: &[&str], objects: &[&Value], directory: &Path) -> (i32, String) {
    let file = directory.join("objects.yaml");
    let manifests: Vec<String> = objects.iter().map(|it| format!("---\n{}\n", api::json::to_string(it))).collect();
    std::fs::write(&file, manifests.concat()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_celplane"));
    let output = command.args(arguments).arg(&file).env_remove("KUBECONFIG").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

fn annotated(mut object: Value, annotations: &[(&str, Value)]) -> Value {
    let texts = annotations.iter().map(|(name, value)| (*name, Value::from(api::json::to_string(value))));
    let texts: api::json::Object = texts.collect();
    object.as_object_mut().unwrap().get_mut("metadata").unwrap().as_object_mut().unwrap().insert("annotations", texts);
    object
}

fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    let metadata = api::json!({"name": name});
    api::json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

fn required(terms: Value) -> Value {
    let terms = api::json!({"nodeSelectorTerms": terms});
    api::json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
}

/// The path of a field, and that of its annotation.
type Paths = (&'static str, String);

/// The two forms of a case, and their paths.
fn forms(case: &Value) -> Option<(Value, Value, Vec<Paths>)> {
    let path = |key: &str| format!("metadata.annotations[{key}]");
    if let Some(constraints) = case.get("constraints") {
        let requests = api::json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]);
        let of = |devices| object("resource.k8s.io/v1", "ResourceClaim", "c", api::json!({"devices": devices}));
        let field = of(api::json!({"requests": (requests.clone()), "constraints": (constraints.clone())}));
        let other = annotated(of(api::json!({"requests": requests})), &[(CONSTRAINTS_KEY, constraints.clone())]);
        return Some((field, other, vec![("spec.devices.constraints", path(CONSTRAINTS_KEY))]));
    }
    if let Some(columns) = case.get("columns") {
        let of = |columns: Option<&Value>| {
            let schema = api::json!({
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
            });
            let mut version = api::json!({
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            });
            if let Some(columns) = columns {
                version.as_object_mut().unwrap().insert("additionalPrinterColumns", columns.clone());
            }
            let names =
                api::json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
            let versions = Value::Array(vec![version]);
            let spec =
                api::json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions});
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", spec)
        };
        let other = annotated(of(None), &[(COLUMNS_KEY, columns.clone())]);
        return Some((of(Some(columns)), other, vec![("spec.additionalPrinterColumns", path(COLUMNS_KEY))]));
    }
    if let Some(terms) = case.get("volume_terms") {
        let affinity = api::json!({"required": {"nodeSelectorTerms": (terms.clone())}});
        let of = |affinity: Option<&Value>| {
            let mut spec = api::json!({
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
            });
            if let Some(affinity) = affinity {
                spec.as_object_mut().unwrap().insert("nodeAffinity", affinity.clone());
            }
            object("v1", "PersistentVolume", "v", spec)
        };
        let other = annotated(of(None), &[(AFFINITY_KEY, affinity.clone())]);
        return Some((of(Some(&affinity)), other, vec![("spec.nodeAffinity", path(AFFINITY_KEY))]));
    }
    if case.get("old").is_some() || case.get("slice_terms").is_some() {
        return None;
    }
    let mut rest: api::json::Object = case.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    rest.insert("containers", api::json!([{"name": "c", "image": "a:1"}]));
    let mut spec = rest.clone();
    let mut annotations = Vec::new();
    if let Some(tolerations) = rest.remove("tolerations") {
        annotations.push((TOLERATIONS_KEY, tolerations));
    }
    if let Some(terms) = case.get("terms") {
        let affinity = required(terms.clone());
        spec.insert("affinity", api::json!({"nodeAffinity": (affinity.clone())}));
        annotations.push((AFFINITY_KEY, affinity));
    }
    let field = object("v1", "Pod", "p", Value::Object(spec));
    let other = annotated(object("v1", "Pod", "p", Value::Object(rest)), &annotations);
    let paths = vec![("spec.tolerations", path(TOLERATIONS_KEY)), ("spec.affinity.nodeAffinity", path(AFFINITY_KEY))];
    Some((field, other, paths))
}

#[test]
fn check_gives_the_errors_of_the_proposals_in_both_forms() {
    let directory = tempfile::tempdir().unwrap();
    let (mut accepted, mut rejected) = (0, 0);
    for case in cases(PROPOSALS) {
        let Some((field, other, paths)) = forms(&case) else { continue };
        let name = case.text("name");
        let given = case.text("gates");
        let off = GATES.iter().filter(|gate| !given.split(',').any(|it| it.starts_with(&format!("{gate}="))));
        let gates: Vec<String> = off.map(|gate| format!("{gate}=false")).collect();
        let gates = format!("--feature-gates={},{given}", gates.join(","));
        let errors: Vec<&str> = case.list("errors").iter().filter_map(Value::as_str).collect();
        let moved = |error: &&str| {
            let (from, to) = paths.iter().find(|(from, _)| error.starts_with(from)).unwrap();
            error.replacen(from, to, 1)
        };
        let forms = [
            (&field, errors.iter().map(ToString::to_string).collect::<Vec<_>>()),
            (&other, errors.iter().map(moved).collect()),
        ];
        for (object, expected) in forms {
            let (code, text) = run(&["check", gates.trim_end_matches(',')], &[object], directory.path());
            assert_eq!(code, i32::from(!expected.is_empty()), "{name}: {text}");
            for error in &expected {
                assert!(text.contains(error.as_str()), "{name}: {text}\nexpected {error}");
            }
        }
        *if errors.is_empty() { &mut accepted } else { &mut rejected } += 1;
    }
    assert!(accepted > 10 && rejected > 15, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn node_affinity_has_one_verdict_in_both_forms() {
    let directory = tempfile::tempdir().unwrap();
    let (mut matching, mut other) = (0, 0);
    for case in cases(NODE_AFFINITY) {
        let Some(terms) = case.get("terms").filter(|_| case.get("gates").is_none()) else { continue };
        let affinity = required(terms.clone());
        let spec = api::json!({"schedulerName": "celplane", "containers": [{"name": "c", "image": "a:1"}]});
        let mut with_field = spec.clone();
        with_field.make("affinity").set("nodeAffinity", affinity.clone());
        let field = object("v1", "Pod", "field", with_field);
        let annotation = annotated(object("v1", "Pod", "annotation", spec), &[(AFFINITY_KEY, affinity)]);
        let mut node = object("v1", "Node", "n1", Value::object());
        let labels = case.get("labels").cloned().unwrap_or_else(Value::object);
        node.make("metadata").set("labels", labels);

        let (code, text) = run(&["why", "--pod"], &[&annotation, &node], directory.path());
        if code == 2 {
            // Tables of matching also have terms that servers reject.
            assert!(text.contains(&format!("metadata.annotations[{AFFINITY_KEY}]")), "{text}");
            continue;
        }
        let matches = case.get("matches").and_then(Value::as_bool).unwrap();
        assert_eq!(code, i32::from(!matches), "{case}: {text}");
        let (code, text) = run(&["why", "--pod"], &[&field, &node], directory.path());
        assert_eq!(code, i32::from(!matches), "{case}: {text}");
        let (code, text) = run(&["simulate", "-o", "json", "-f"], &[&field, &annotation, &node], directory.path());
        assert_eq!(code, i32::from(!matches), "{case}: {text}");
        assert_eq!(text.matches("\"node\": \"n1\"").count(), if matches { 2 } else { 0 }, "{case}: {text}");
        *if matches { &mut matching } else { &mut other } += 1;
    }
    assert!(matching > 8 && other > 8, "{matching} match, {other} do not");
}
