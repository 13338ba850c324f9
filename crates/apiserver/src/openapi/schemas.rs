//! Schemas of types, with everything that they refer to.

use std::collections::{BTreeMap, BTreeSet};

use api::json::{Object, Value};
use api::types::{self, Field, Kind, ListType, Type, describe};

use super::operations::{DescribedResource, Operation};
use super::{META, VERSION_INFO};

/// The schemas of a document.
#[derive(Default)]
pub(super) struct Schemas {
    done: BTreeMap<String, Value>,
    started: BTreeSet<String>,
}

impl Schemas {
    /// Adds a type, as a kind of objects if group and version are given.
    pub(super) fn add(&mut self, object_type: &'static Type, kind: Option<(&str, &str)>) {
        let name = object_type.schema_name();
        if self.started.insert(name.clone()) {
            let schema = self.structure(object_type);
            self.done.insert(name.clone(), schema);
        }
        if let (Some((group, version)), Some(Value::Object(schema))) = (kind, self.done.get_mut(&name)) {
            let kinds = schema.get_or_insert("x-kubernetes-group-version-kind", || Value::Array(Vec::new()));
            let kind = api::json!({"group": group, "kind": (object_type.name), "version": version});
            if let Some(kinds) = kinds.as_array_mut().filter(|kinds| !kinds.contains(&kind)) {
                kinds.push(kind);
            }
        }
    }

    /// Adds the kinds of a resource: its objects, their lists, and what is sent to parts of them.
    pub(super) fn add_kinds(&mut self, described: &DescribedResource<'_>) {
        let (resource, version) = (described.resource, described.version);
        let own = (resource.group, version);
        let mut add = |(group, version): (&str, &str), kind: &str| {
            if let Some(of) = types::by_kind(group, version, kind) {
                self.add(of, Some((group, version)));
            }
        };
        add(own, resource.kind);
        add(own, &resource.list_kind());
        // The options of connections are parameters in the query: no operation refers to their schemas.
        let is_sent = |kind: &str| !kind.is_empty() && !kind.ends_with("Options");
        for part in resource.subresources.iter().filter(|part| is_sent(part.kind.2)) {
            let (group, version, kind) = part.kind;
            add(if version.is_empty() { own } else { (group, version) }, kind);
        }
    }

    /// Adds what operations send and answer that is of no group.
    pub(super) fn add_shared(&mut self, operations: &[Operation], group_version: Option<(&str, &str)>) {
        let names: BTreeSet<&String> = operations.iter().flat_map(|it| it.body.iter().chain(&it.answer)).collect();
        let prefix = super::schema_of_meta("");
        for name in names {
            if name == VERSION_INFO {
                self.done.insert(name.clone(), version_info());
            }
            match name.strip_prefix(&prefix) {
                Some("Patch") => {
                    let description =
                        "Patch is provided to give a concrete name and type to the Kubernetes PATCH request body.";
                    self.done.insert(name.clone(), api::json!({"description": description, "type": "object"}));
                }
                Some(short) => {
                    let Some(of) = types::by_name(META, short) else { continue };
                    self.add(of, Some(("", "v1")));
                    // The items of this list are a kind of their own.
                    if let (Some(item), "APIGroupList") = (types::by_name(META, "APIGroup"), short) {
                        self.add(item, Some(("", "v1")));
                    }
                    if matches!(short, "DeleteOptions" | "WatchEvent") {
                        self.add(of, group_version);
                    }
                }
                // The scale of custom resources; built-in kinds already have it.
                None => {
                    let scale = types::by_kind("autoscaling", "v1", "Scale");
                    if let Some(of) = scale.filter(|of| of.schema_name() == *name) {
                        self.add(of, Some(("autoscaling", "v1")));
                    }
                }
            }
        }
    }

    pub(super) fn finish(self) -> Object {
        self.done.into_iter().collect()
    }

    fn structure(&mut self, object_type: &'static Type) -> Value {
        let mut schema = Object::new();
        let description = describe(object_type);
        let words = description.as_ref();
        let words_of = |field: &Field| words.and_then(|it| it.fields.iter().find(|it| it.name == field.name));
        if let Some(text) = words.map(|it| it.text.as_str()).filter(|text| !text.is_empty()) {
            schema.insert("description", text);
        }
        schema.insert("type", "object");
        let is_required = |field: &Field| match words {
            // The descriptions come from Rust types, which always have metadata.
            _ if field.name == "metadata" => false,
            Some(_) => words_of(field).is_some_and(|it| it.required),
            None => looks_required(field),
        };
        let required: Vec<Value> =
            object_type.fields.iter().filter(|field| is_required(field)).map(|field| field.name.into()).collect();
        if !required.is_empty() {
            schema.insert("required", required);
        }
        if !object_type.fields.is_empty() {
            let property = |field: &'static Field| {
                let mut schema = self.field(field);
                let text = words_of(field).map(|it| it.text.as_str()).filter(|text| !text.is_empty());
                if let (Some(text), Some(schema)) = (text, schema.as_object_mut()) {
                    schema.insert("description", text);
                }
                (field.name, schema)
            };
            let properties: Object = object_type.fields.iter().map(property).collect();
            schema.insert("properties", properties);
        }
        if object_type.atomic {
            schema.insert("x-kubernetes-map-type", "atomic");
        }
        Value::Object(schema)
    }

    fn field(&mut self, field: &'static Field) -> Value {
        let mut schema = match self.any(field).unwrap_or_else(|| self.kind(&field.kind)) {
            Value::Object(schema) => schema,
            _ => Object::new(),
        };
        if schema.contains_key("$ref") {
            // A reference may not have siblings in OpenAPI 3.0.
            let reference = Value::Object(std::mem::take(&mut schema));
            schema.insert("allOf", vec![reference]);
        }
        if let Some(default) = default_of(field) {
            schema.insert("default", default);
        }
        if let Some(list) = field.list {
            let name = match list {
                ListType::Atomic => "atomic",
                ListType::Set => "set",
                ListType::Map => "map",
            };
            schema.insert("x-kubernetes-list-type", name);
        }
        if !field.keys.is_empty() {
            let keys: Vec<Value> = field.keys.iter().map(|&key| key.into()).collect();
            schema.insert("x-kubernetes-list-map-keys", keys);
        }
        if field.atomic {
            schema.insert("x-kubernetes-map-type", "atomic");
        }
        if let Some(key) = field.merge_key {
            schema.insert("x-kubernetes-patch-merge-key", key);
        }
        if let Some(strategy) = field.patch {
            schema.insert("x-kubernetes-patch-strategy", strategy);
        }
        Value::Object(schema)
    }

    /// A reference to the type of a field that takes any JSON, where that type has a name.
    fn any(&mut self, field: &Field) -> Option<Value> {
        match (&field.kind, field.go_type.trim_start_matches('*')) {
            (Kind::Any, "v1.FieldsV1") => {
                Some(self.named(&super::schema_of_meta("FieldsV1"), || api::json!({"type": "object"})))
            }
            (Kind::Any, "runtime.RawExtension") => {
                Some(self.named("io.k8s.apimachinery.pkg.runtime.RawExtension", || api::json!({"type": "object"})))
            }
            _ => None,
        }
    }

    /// A reference to a schema that is not made from a type.
    fn named(&mut self, name: &str, schema: fn() -> Value) -> Value {
        if self.started.insert(name.to_owned()) {
            self.done.insert(name.to_owned(), schema());
        }
        let reference = format!("#/components/schemas/{name}");
        api::json!({"$ref": reference})
    }

    fn kind(&mut self, kind: &'static Kind) -> Value {
        match kind {
            Kind::Bool => api::json!({"type": "boolean"}),
            Kind::Int32 => api::json!({"type": "integer", "format": "int32"}),
            Kind::Int64 => api::json!({"type": "integer", "format": "int64"}),
            Kind::Float64 => api::json!({"type": "number", "format": "double"}),
            Kind::String => api::json!({"type": "string"}),
            Kind::Duration => self.named(&super::schema_of_meta("Duration"), || api::json!({"type": "string"})),
            Kind::Bytes => api::json!({"type": "string", "format": "byte"}),
            Kind::Quantity => self.named(
                "io.k8s.apimachinery.pkg.api.resource.Quantity",
                || api::json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            Kind::IntOrString => self.named(
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
                || api::json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            Kind::Time => self.named(&super::schema_of_meta("Time"), time),
            Kind::MicroTime => self.named(&super::schema_of_meta("MicroTime"), time),
            Kind::Any => api::json!({"type": "object"}),
            Kind::SchemaOrList | Kind::SchemaOrBool => Value::object(),
            Kind::Struct(of) => {
                self.add(of, kind_of(of));
                let reference = format!("#/components/schemas/{}", of.schema_name());
                api::json!({"$ref": reference})
            }
            Kind::List(inner) => {
                let items = self.kind(inner);
                api::json!({"type": "array", "items": items})
            }
            Kind::Map(inner) => {
                let values = self.kind(inner);
                api::json!({"type": "object", "additionalProperties": values})
            }
        }
    }
}

/// Group and version of a type whose objects can also stand alone.
fn kind_of(object_type: &'static Type) -> Option<(&'static str, &'static str)> {
    let rows = crate::resources::all().iter().filter(|row| row.kind == object_type.name);
    rows.flat_map(|row| row.versions.iter().map(move |version| (row, *version)))
        .find(|(row, version)| row.object_type(version).is_some_and(|it| std::ptr::eq(it, object_type)))
        .map(|(row, version)| (row.group, version))
}

fn time() -> Value {
    api::json!({"type": "string", "format": "date-time"})
}

/// Default of a field: the one that its type declares, or else its zero value if it is always present.
fn default_of(field: &Field) -> Option<Value> {
    if let Some(text) = field.default {
        return api::json::parse(text.as_bytes()).ok();
    }
    match field.kind {
        _ if field.pointer => None,
        Kind::Struct(_) => Some(Value::object()),
        _ if field.omit_empty || field.omit_zero => None,
        Kind::Bool => Some(false.into()),
        Kind::Int32 | Kind::Int64 => Some(0_i64.into()),
        Kind::String => Some("".into()),
        _ => None,
    }
}

/// Schema of `/version`.
fn version_info() -> Value {
    let names =
        ["buildDate", "compiler", "gitCommit", "gitTreeState", "gitVersion", "goVersion", "major", "minor", "platform"];
    let more = ["emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor"];
    let properties: Object = names.iter().chain(&more).map(|name| (*name, api::json!({"type": "string"}))).collect();
    let required: Vec<Value> = names.iter().map(|name| Value::from(*name)).collect();
    let description = "Info contains versioning information. how we'll want to distribute that information.";
    api::json!({"description": description, "type": "object", "required": required, "properties": properties})
}

/// For the few types that are not described.
fn looks_required(field: &Field) -> bool {
    !field.omit_empty && !field.omit_zero && !field.pointer && !matches!(field.kind, Kind::Struct(_) | Kind::Time)
}
