//! Server-side apply: any sequence of applies and updates, over any documents and any stored managed fields.

use std::sync::LazyLock;

use api::json::{self, Object, Value};
use api::structural_schema::Schema;
use apiserver::resources;
use patching::apply::managers::Managers;
use patching::apply::walk::{self, Duplicates};
use patching::apply::{BuiltIn, CustomResourceKind, Refusal, Versions, Write, fields_v1};

use crate::bytes::{Choices, text};

/// Every kind of list and map that a schema can declare.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let text = r#"{"type":"object","properties":{"spec":{"type":"object","properties":{
        "s":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},
        "set":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
        "atom":{"type":"array","items":{"type":"string"}},
        "lm":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","p"],"items":{"type":"object",
            "properties":{"k":{"type":"string"},"p":{"type":"string","default":"TCP"},"v":{"type":"string"},"in":{"type":"object","additionalProperties":{"type":"string"}}}}},
        "m":{"type":"object","additionalProperties":{"type":"string"}},
        "am":{"type":"object","x-kubernetes-map-type":"atomic","additionalProperties":{"type":"string"}},
        "any":{"x-kubernetes-preserve-unknown-fields":true},"io":{"x-kubernetes-int-or-string":true}}},
        "status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}"#;
    let value = json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error:?}"));
    Schema::from_value(&value).unwrap_or_else(|error| panic!("{error}"))
});

const NAMES: &[&str] = &[
    "s",
    "n",
    "b",
    "set",
    "atom",
    "lm",
    "m",
    "am",
    "any",
    "io",
    "k",
    "p",
    "v",
    "in",
    "name",
    "value",
    "containers",
    "image",
    "ports",
    "port",
    "protocol",
    "containerPort",
    "env",
    "template",
    "spec",
    "labels",
    "replicas",
    "data",
    "finalizers",
    "selector",
    "targetPort",
    "status",
    "conditions",
    "type",
];

const WORDS: &[&str] = &["a", "b", "x", "TCP", "", "1"];

/// Applies and updates end with an object that fits its shape, or with a reason; force never conflicts; managers own
/// only what is there, and what they own is written and read back as the same.
pub fn apply_patches(data: &[u8]) {
    let mut choices = Choices::new(data);
    let kind = choices.below(5);
    let schema = &*SCHEMA;
    let (versions, api_version, kind): (Box<dyn Versions>, &str, &str) = match kind {
        0 => {
            let versions = vec![("e.com/v1".to_owned(), Some(schema)), ("e.com/v2".to_owned(), None)];
            (Box::new(CustomResourceKind::new("Widget", versions, choices.is_odd(), "")), "e.com/v1", "Widget")
        }
        1 => (
            Box::new(CustomResourceKind::new("Widget", vec![("e.com/v1".to_owned(), None)], false, "")),
            "e.com/v1",
            "Widget",
        ),
        2 => (built_in("", "configmaps"), "v1", "ConfigMap"),
        3 => (built_in("", "services"), "v1", "Service"),
        _ => (built_in("apps", "deployments"), "apps/v1", "Deployment"),
    };
    let mut live = versions.empty(api_version);
    let mut minute = 0;
    while !choices.is_over() && minute < 8 {
        minute += 1;
        let now = format!("2000-01-01T00:0{minute}:00Z");
        let manager = choices.pick(&["a", "b", "kubectl"]);
        let write = Write { versions: &*versions, api_version, kind, subresource: "", manager, now: &now };
        let config = document(&mut choices, api_version, kind);
        if choices.below(4) == 0 {
            let entries = write.update(&live, &config);
            live = stored(config, entries);
        } else {
            let force = choices.is_odd();
            live = match write.apply(&live, &config, force) {
                Ok(applied) => {
                    let object = applied.object.unwrap_or_else(|| live.clone());
                    stored(object, applied.managed_fields)
                }
                Err(Refusal::Conflicts(conflicts)) => {
                    assert!(!force && !conflicts.is_empty());
                    assert!(!matches!(write.apply(&live, &config, true), Err(Refusal::Conflicts(_))));
                    continue;
                }
                Err(_) => continue,
            };
            check_owned(&*versions, api_version, &live);
        }
    }
}

fn built_in(group: &str, plural: &str) -> Box<dyn Versions> {
    let resource = resources::find(group, "v1", plural).unwrap_or_else(|| panic!("{plural}"));
    Box::new(BuiltIn::new(resource, ""))
}

/// Every field that a manager owns by apply exists, unless the object never fitted its shape.
fn check_owned(versions: &dyn Versions, api_version: &str, live: &Value) {
    let entries = live.at(&["metadata", "managedFields"]);
    let managers = Managers::decode(entries).unwrap_or_else(|error| panic!("{error}"));
    for manager in &managers.0 {
        let written = fields_v1::encode(&manager.fields);
        assert_eq!(fields_v1::decode(&written).as_ref(), Ok(&manager.fields));
    }
    let Some(shape) = versions.shape(api_version) else { return };
    if walk::validate(shape, live, Duplicates::Allowed).is_err() {
        return;
    }
    let comparison = walk::compare(shape, live, live);
    assert!(comparison.is_same());
    let all = walk::field_set(shape, live);
    assert_eq!(all.intersection(&all), all);
    assert!(all.clone().difference(&all).is_empty());
}

fn stored(mut object: Value, entries: Option<Value>) -> Value {
    let Some(fields) = object.as_object_mut() else { return object };
    let metadata = fields.get_or_insert("metadata", Value::object);
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert("uid", "u");
        metadata.remove("managedFields");
        if let Some(entries) = entries {
            metadata.insert("managedFields", entries);
        }
    }
    object
}

/// A document of the kind; often one that fits, or nearly.
fn document(choices: &mut Choices<'_>, api_version: &str, kind: &str) -> Value {
    if choices.below(8) == 0 {
        let length = choices.below(200);
        return json::parse(text(choices.take(length)).as_bytes()).unwrap_or_default();
    }
    let mut fields = Object::new();
    fields.insert("apiVersion", api_version);
    fields.insert("kind", kind);
    let mut metadata = Object::new();
    metadata.insert("name", "w");
    if choices.below(8) == 0 {
        let entry = entry(choices);
        metadata.insert("managedFields", vec![entry]);
    }
    if choices.is_odd() {
        metadata.insert("labels", value(choices, 3));
    }
    fields.insert("metadata", metadata);
    for _ in 0..choices.below(3) {
        fields.insert(choices.pick(&["spec", "status", "data"]), value(choices, 0));
    }
    Value::Object(fields)
}

/// An entry of managed fields, rarely a sound one.
fn entry(choices: &mut Choices<'_>) -> Value {
    let mut entry = Object::new();
    entry.insert("manager", choices.pick(&["a", "b", ""]));
    entry.insert("operation", choices.pick(&["Apply", "Update", "x"]));
    entry.insert("apiVersion", choices.pick(&["v1", "e.com/v1", "e.com/v2", "apps/v1", "gone/v1", ""]));
    entry.insert("fieldsType", choices.pick(&["FieldsV1", "FieldsV1", "x"]));
    let text = choices.pick(&[
        r#"{"f:spec":{"f:s":{},"f:lm":{"k:{\"k\":\"a\",\"p\":\"TCP\"}":{".":{},"f:v":{}}}}}"#,
        r#"{"f:spec":{"f:set":{"v:\"a\"":{}},"f:am":{"f:x":{}},"f:atom":{"i:0":{}}}}"#,
        r#"{"f:data":{".":{},"f:a":{}}}"#,
        r#"{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{}}}}}}"#,
        r#"{"x":{}}"#,
    ]);
    entry.insert("fieldsV1", json::parse(text.as_bytes()).unwrap_or_default());
    Value::Object(entry)
}

fn value(choices: &mut Choices<'_>, depth: usize) -> Value {
    match choices.below(if depth > 5 { 5 } else { 9 }) {
        0 => Value::Null,
        1 => Value::Int(i64::from(choices.byte() % 3)),
        2 => Value::Bool(choices.is_odd()),
        3 | 4 => Value::from(choices.pick(WORDS)),
        5 | 6 => {
            let count = choices.below(4);
            Value::Array((0..count).map(|_| value(choices, depth + 1)).collect())
        }
        _ => {
            let mut fields = Object::new();
            for _ in 0..choices.below(4) {
                fields.insert(choices.pick(NAMES), value(choices, depth + 1));
            }
            Value::Object(fields)
        }
    }
}
