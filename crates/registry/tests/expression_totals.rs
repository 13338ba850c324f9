//! Limits on all expressions of one object together.

use api::features::Features;
use api::json::Value;
use registry::admit::{self, AdmitError};
use registry::expressions::Environments;
use registry::resources;
use registry::strategy::Context;

const COSTLIEST: &str = "[1,2,3,4,5,6,7,8,9,10].all(a,[1,2,3,4,5,6,7,8,9,10].all(b,[1,2,3,4,5,6,7,8,9,10].all(c,[1,2,3,4,5,6,7,8,9,10].all(d,[1,2,3,4,5,6,7,8,9,10].all(e,taint.value!='x7')))))&&false";

/// An expression with an estimated cost of 755,551, each with another text.
fn costly(number: usize) -> String {
    COSTLIEST.replace("x7", &format!("x{number}"))
}

fn tolerations(texts: impl IntoIterator<Item = String>) -> Value {
    Value::Array(texts.into_iter().map(|text| api::json!({"expression": text})).collect())
}

fn terms(texts: impl IntoIterator<Item = String>) -> Value {
    let term = |text: String| api::json!({"matchCELExpressions": [text]});
    Value::Array(texts.into_iter().map(term).collect())
}

fn pod(tolerations: Value, terms: Value) -> Value {
    let required = api::json!({"nodeSelectorTerms": terms});
    let affinity = api::json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    api::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "resourceVersion": "1", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "a:1"}], "tolerations": tolerations, "affinity": affinity}
    })
}

fn daemon_set(tolerations: Value) -> Value {
    let labels = api::json!({"a": "b"});
    let spec = api::json!({"containers": [{"name": "c", "image": "a:1"}], "tolerations": tolerations});
    api::json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "d", "namespace": "default", "resourceVersion": "1", "uid": "u"},
        "spec": {
            "selector": {"matchLabels": (labels.clone())},
            "template": {"metadata": {"labels": labels}, "spec": spec}
        }
    })
}

fn volume(terms: Value) -> Value {
    api::json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v", "resourceVersion": "1", "uid": "u"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}
        }
    })
}

fn runtime_class(tolerations: Value) -> Value {
    api::json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "h",
        "metadata": {"name": "r", "resourceVersion": "1", "uid": "u"}, "scheduling": {"tolerations": tolerations}
    })
}

/// The errors of a creation, or of an update of an old object.
fn errors(new: &Value, old: Option<&Value>) -> Vec<String> {
    let environments = Environments::new().unwrap();
    let context = Context {
        features: Features::none().with_flag("AllAlpha=true").unwrap(),
        expressions: &environments,
        namespace: "default",
        now: "2000-01-01T00:00:00Z",
        uid: "00000000-0000-4000-8000-000000000001",
        name_suffix: "bcdfg",
        namespace_allows_admin_access: false,
    };
    let (api_version, kind) = (new.str_at(&["apiVersion"]).unwrap(), new.str_at(&["kind"]).unwrap());
    let resource = resources::find_by_api_version(api_version, kind).unwrap();
    let result = match old {
        None => {
            let mut new = new.clone();
            let metadata = new.get_mut("metadata").and_then(Value::as_object_mut).unwrap();
            for name in ["resourceVersion", "uid"] {
                metadata.remove(name);
            }
            admit::create(resource, &new, &context)
        }
        Some(old) => {
            let old = admit::read(resource, old, context.now).unwrap().object;
            admit::update(resource, new, &old, None, &context)
        }
    };
    match result {
        Ok(_) => Vec::new(),
        Err(AdmitError::Invalid { errors, .. }) => errors.iter().map(ToString::to_string).collect(),
        Err(other) => vec![other.to_string()],
    }
}

#[track_caller]
fn check(object: &Value, expected: &[&str]) {
    assert_eq!(errors(object, None), expected);
}

fn cheap(number: usize) -> String {
    format!("'{number}' == 'a'")
}

const TOO_MANY: &str = "Forbidden: must have at most 64 expressions in total, has 65; the costliest is `'0' == 'a'` with an estimated cost of 1";

fn too_costly() -> String {
    let shown: String = costly(0).chars().take(120).collect();
    format!(
        "Forbidden: estimated costs of 6 expressions add up to 4533306, exceeds limit of 4000000; the costliest is `{shown}…` with an estimated cost of 755551"
    )
}

#[test]
fn objects_within_the_limits_are_accepted() {
    check(&pod(tolerations((0..60).map(cheap)), terms((0..4).map(cheap))), &[]);
    check(&pod(tolerations((0..5).map(costly)), terms((0..59).map(cheap))), &[]);
    check(&daemon_set(tolerations((0..5).map(costly))), &[]);
    check(&volume(terms((0..64).map(cheap))), &[]);
    check(&runtime_class(tolerations((0..64).map(cheap))), &[]);
}

#[test]
fn too_many_expressions_are_rejected() {
    check(
        &pod(tolerations((0..65).map(cheap)), terms([cheap(0)]).clone()),
        &[&format!("spec.tolerations: {}", TOO_MANY.replace("65", "66"))],
    );
    check(
        &pod(tolerations((0..2).map(cheap)), terms((0..63).map(cheap))),
        &[&format!("spec.affinity.nodeAffinity: {TOO_MANY}")],
    );
    check(&daemon_set(tolerations((0..65).map(cheap))), &[&format!("spec.template.spec.tolerations: {TOO_MANY}")]);
    check(&volume(terms((0..65).map(cheap))), &[&format!("spec.nodeAffinity: {TOO_MANY}")]);
    check(&runtime_class(tolerations((0..65).map(cheap))), &[&format!("scheduling.tolerations: {TOO_MANY}")]);
}

#[test]
fn costly_expressions_are_rejected_together() {
    let error = too_costly();
    check(
        &pod(tolerations((0..6).map(costly)), terms([cheap(0)])),
        &[&format!(
            "spec.tolerations: {}",
            error.replace("4533306", "4533307").replace("6 expressions", "7 expressions")
        )],
    );
    check(&daemon_set(tolerations((0..6).map(costly))), &[&format!("spec.template.spec.tolerations: {error}")]);
    let in_terms = |number| costly(number).replace("taint.value", "node.labels['a']");
    let found = errors(&volume(terms((0..6).map(in_terms))), None);
    assert!(
        found.len() == 1 && found[0].starts_with("spec.nodeAffinity: Forbidden: estimated costs of 6"),
        "{found:?}"
    );
}

#[test]
fn objects_above_the_limits_may_not_grow() {
    let old = daemon_set(tolerations((0..70).map(cheap)));
    assert_eq!(errors(&daemon_set(tolerations((1..71).map(cheap))), Some(&old)), [""; 0]);
    assert_eq!(errors(&daemon_set(tolerations((0..66).map(cheap))), Some(&old)), [""; 0]);
    assert_eq!(errors(&daemon_set(tolerations((0..71).map(cheap))), Some(&old)).len(), 1);
    let old = daemon_set(tolerations((0..7).map(costly)));
    assert_eq!(errors(&daemon_set(tolerations((0..7).map(costly))), Some(&old)), [""; 0]);
    assert_eq!(errors(&daemon_set(tolerations((0..6).map(costly))), Some(&old)), [""; 0]);
    assert_eq!(errors(&daemon_set(tolerations((0..8).map(costly))), Some(&old)).len(), 1);
    let old = pod(tolerations((0..70).map(cheap)), terms([cheap(0)]));
    assert_eq!(errors(&old, Some(&old)), [""; 0]);
    assert_eq!(errors(&pod(tolerations((0..71).map(cheap)), terms([cheap(0)])), Some(&old)).len(), 1);
    let old = volume(terms((0..70).map(cheap)));
    assert_eq!(errors(&old, Some(&old)), [""; 0]);
}

#[test]
fn expressions_of_an_object_with_too_many_are_not_compiled() {
    // One error, not one for each expression that does not compile.
    let found = errors(&pod(tolerations((0..2000).map(|_| "broken(".to_owned())), terms([cheap(0)])), None);
    assert_eq!(found.len(), 1, "{found:?}");
}
