//! Validation of the fields that the proposals add, as cases in YAML.

use api::features::Features;
use api::json::{Object, Value};
use registry::admit::{self, AcceptedObject, AdmitError};
use registry::expressions::Environments;
use registry::resources;
use registry::strategy::Context;

#[test]
fn fields_of_the_proposals_are_validated() {
    let environments = Environments::new().unwrap();
    let mut wrong = Vec::new();
    let cases = read_cases(include_str!("cases/proposals.yaml"));
    for case in cases.as_array().unwrap() {
        let name = case.str_at(&["name"]).unwrap();
        let flag = case.text("gates");
        let context = Context {
            features: Features::none().with_flag(flag).unwrap(),
            expressions: &environments,
            namespace: "default",
            now: "2000-01-01T00:00:00Z",
            uid: "00000000-0000-4000-8000-000000000001",
            name_suffix: "bcdfg",
            namespace_allows_admin_access: false,
        };
        let list = case.get("errors").and_then(Value::as_array).unwrap_or_default();
        let expected: Vec<String> = list.iter().map(|it| it.as_str().unwrap().to_owned()).collect();
        for (what, prefix, result) in run(case, &context) {
            let found = match result {
                Ok(_) => Vec::new(),
                Err(AdmitError::Invalid { errors, .. }) => {
                    errors.iter().map(|it| it.to_string().lines().next().unwrap().to_owned()).collect()
                }
                Err(other) => vec![other.to_string()],
            };
            let expected: Vec<String> =
                expected.iter().map(|it| it.replacen("spec.", &format!("{prefix}spec."), 1)).collect();
            if found != expected {
                wrong.push(format!("{name} ({what})\n  found {found:#?}\n  expected {expected:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

type Outcome = (&'static str, &'static str, Result<AcceptedObject, AdmitError>);

/// The object of a case, created or updated; a pod's spec also as a template.
fn run(case: &Value, context: &Context<'_>) -> Vec<Outcome> {
    let create = |object: Value| {
        let (api_version, kind) = (object.str_at(&["apiVersion"]).unwrap(), object.str_at(&["kind"]).unwrap());
        let resource = resources::find_by_api_version(api_version, kind).unwrap();
        admit::create(resource, &object, context)
    };
    if let Some(constraints) = case.get("constraints").cloned() {
        let requests = api::json!([{"name": "r", "exactly": {"deviceClassName": "c"}}]);
        return vec![(
            "claim",
            "",
            create(api::json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
                "spec": {"devices": {"requests": requests, "constraints": constraints}}
            })),
        )];
    }
    if let Some(columns) = case.get("columns").cloned() {
        return vec![("definition", "", create(definition(columns)))];
    }
    if let Some(terms) = case.get("slice_terms").cloned() {
        return vec![(
            "slice",
            "",
            create(api::json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
                "spec": {
                    "driver": "example.com", "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1},
                    "nodeSelector": {"nodeSelectorTerms": terms}
                }
            })),
        )];
    }
    if let Some(terms) = case.get("volume_terms").cloned() {
        return vec![(
            "volume",
            "",
            create(api::json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}
                }
            })),
        )];
    }
    let spec = pod_spec(case.get("spec"), case.get("terms"));
    if case.get("old").is_some() {
        let pod = resources::find("", "v1", "pods").unwrap();
        let old = stored_pod(pod_spec(case.get("old"), case.get("old_terms")));
        let old = admit::read(pod, &old, context.now).unwrap().object;
        return vec![("update", "", admit::update(pod, &stored_pod(spec), &old, None, context))];
    }
    let mut outcomes = vec![(
        "pod",
        "",
        create(api::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": (spec.clone())})),
    )];
    if case.get("template").is_some() {
        let labels = api::json!({"a": "b"});
        let deployment = api::json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {
                "selector": {"matchLabels": (labels.clone())},
                "template": {"metadata": {"labels": labels}, "spec": spec}
            }
        });
        outcomes.push(("template", "spec.template.", create(deployment)));
    }
    outcomes
}

fn stored_pod(spec: Value) -> Value {
    let metadata = api::json!({"name": "p", "namespace": "default", "resourceVersion": "1", "uid": "u"});
    api::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

pub(crate) fn pod_spec(spec: Option<&Value>, terms: Option<&Value>) -> Value {
    let mut spec: Object = spec.and_then(Value::as_object).cloned().unwrap_or_default();
    spec.insert("containers", api::json!([{"name": "c", "image": "a:1"}]));
    if let Some(terms) = terms.cloned() {
        let required = api::json!({"nodeSelectorTerms": terms});
        let affinity = api::json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
        spec.insert("affinity", api::json!({"nodeAffinity": affinity}));
    }
    Value::Object(spec)
}

pub(crate) fn definition(columns: Value) -> Value {
    let spec = api::json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let schema = api::json!({"type": "object", "properties": {"spec": spec}});
    api::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": columns
            }]
        }
    })
}

pub(crate) fn read_cases(text: &str) -> Value {
    let (documents, error) = api::yaml::parse_documents(text);
    assert!(error.is_none(), "{error:?}");
    documents.into_iter().next().unwrap().value
}
