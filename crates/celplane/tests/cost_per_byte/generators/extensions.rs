//! Custom resources and admission policies.

use http::Method;
use serde_json::{Value, json};

use super::{Input, Shape, expression};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub(super) fn definition_of(plural: &str, schema: Value, columns: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.cost.example")},
        "spec": {"group": "cost.example", "scope": "Namespaced", "names": {"plural": plural, "kind": format!("K{plural}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns}]}})
}

pub(super) fn definition(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 60);
    let properties = |form: &dyn Fn(&String) -> Value| -> Value {
        json!({"type": "object", "properties": texts.iter().map(|it| (it.clone(), form(it))).collect::<serde_json::Map<_, _>>()})
    };
    let length = expression(shape, 0).len() + 40;
    let expressions: Vec<String> = (0..(size / length).max(1)).map(|index| expression(shape, index)).collect();
    let mut columns = json!([]);
    let schema = match shape.form {
        0 => properties(&|_| json!({"type": "string", "pattern": "^(a+)+$"})),
        1 => {
            json!({"type": "object", "x-kubernetes-validations": expressions.iter().map(|it| json!({"rule": it})).collect::<Vec<_>>()})
        }
        2 => {
            columns = expressions
                .iter()
                .enumerate()
                .map(|(index, it)| json!({"name": format!("c{index}"), "type": "boolean", "expression": it}))
                .collect();
            json!({"type": "object"})
        }
        3 => {
            let mut schema = json!({"type": "string"});
            for _ in 0..shape.depth.min(60) {
                schema = json!({"type": "object", "properties": {"k".repeat(size / 60): schema}});
            }
            schema
        }
        4 => json!({"type": "object", "properties": {"a": {"type": "string", "enum": texts}}}),
        5 => properties(&|_| json!({"type": "array", "x-kubernetes-list-type": "map"})),
        _ => {
            json!({"type": "object", "properties": {"a": {"type": "object", "default": texts.iter().map(|it| (it.clone(), json!(1))).collect::<serde_json::Map<_, _>>(),
            "x-kubernetes-preserve-unknown-fields": true}}})
        }
    };
    Input::post(DEFINITIONS, "costs{n}.cost.example", &definition_of("costs{n}", schema, columns))
}

pub(super) fn definitions() -> Vec<(&'static str, String)> {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "s": {"type": "string", "pattern": "^(a+)+$"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
        "l": {"type": "array", "items": {"type": "integer"}},
        "t": {"type": "string"},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}});
    let columns = json!([
        {"name": "A", "type": "string", "expression": "self.spec.l.map(x, self.spec.t).join('')"},
        {"name": "B", "type": "string", "jsonPath": ".spec.t"},
        {"name": "C", "type": "string", "jsonPath": ".spec.t"}]);
    let mut all = vec![(DEFINITIONS, definition_of("things", schema, columns).to_string())];
    for index in 0..20 {
        let spec = json!({"l": (0..1000).collect::<Vec<_>>(), "t": "x".repeat(5000)});
        let body = json!({"apiVersion": "cost.example/v1", "kind": "Kthings", "metadata": {"name": format!("wide-{index}")}, "spec": spec});
        all.push((THINGS, body.to_string()));
    }
    all
}

const THINGS: &str = "/apis/cost.example/v1/namespaces/default/things";

pub(super) fn custom_resource(shape: &Shape, size: usize) -> Input {
    let texts = shape.texts(size, 8);
    let spec = match shape.form {
        0 => json!({"s": "a".repeat(size)}),
        1 => json!({"set": texts}),
        2 => json!({"map": texts.iter().map(|it| json!({"k": it})).collect::<Vec<_>>()}),
        3 => json!({"any": texts.iter().map(|it| (it.clone(), json!({}))).collect::<serde_json::Map<_, _>>()}),
        _ => json!(texts.iter().map(|it| (it.clone(), json!(0))).collect::<serde_json::Map<_, _>>()),
    };
    let body =
        json!({"apiVersion": "cost.example/v1", "kind": "Kthings", "metadata": {"name": "cost-{n}"}, "spec": spec});
    Input::post(THINGS, "cost-{n}", &body)
}

pub(super) fn custom_table(_: &Shape, _: usize) -> Input {
    Input::text(Method::GET, THINGS, "application/json;as=Table;v=v1;g=meta.k8s.io", String::new())
}

pub(super) fn admission_policy(shape: &Shape, size: usize) -> Input {
    let length = expression(shape, 0).len() + 40;
    let expressions: Vec<String> = (0..(size / length).max(1)).map(|index| expression(shape, index)).collect();
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}]);
    let mut spec = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "true"}]});
    match shape.form {
        0 => spec["validations"] = expressions.iter().map(|it| json!({"expression": it})).collect(),
        _ => {
            spec["variables"] = expressions
                .iter()
                .enumerate()
                .map(|(index, it)| json!({"name": format!("v{index}"), "expression": it}))
                .collect()
        }
    }
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    Input::post(path, "cost-{n}", &json!({"metadata": {"name": "cost-{n}"}, "spec": spec}))
}
