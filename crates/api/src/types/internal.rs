//! Values as messages show them: Kubernetes validates its internal structs, and prints them with Go's field names.
//!
//! `{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}` is a taint that way. Types of `meta/v1` have no internal
//! form and look as in JSON. Where an internal struct is built differently (a pod's security context), the caller must
//! know; fields that the proposals add are shown only when they are set.

use super::decode::{decode, zero};
use super::{Field, Kind, Type};
use crate::json::{Object, Value};

/// The value of type `it` as JSON of Kubernetes' internal struct.
#[must_use]
pub fn internal_form(object_type: &Type, value: &Value) -> Value {
    let empty = Object::new();
    struct_form(object_type, value.as_object().unwrap_or(&empty))
}

fn struct_form(object_type: &Type, fields: &Object) -> Value {
    if object_type.package.ends_with("/meta/v1") {
        let value = Value::Object(fields.clone());
        return decode(object_type, &value).map_or(value, |decoded| decoded.value);
    }
    let mut out = Object::with_capacity(object_type.fields.len());
    for field in in_internal_order(object_type) {
        let value = fields.get(field.name).filter(|value| !value.is_null());
        match value {
            // TypeMeta is empty inside the server.
            _ if is_type_meta(field) => {}
            None if field.added => {}
            None if field.pointer => {
                out.insert(field.go_name, Value::Null);
            }
            _ => match form(field.kind, value) {
                // Embedded in Go, so its fields are among the others.
                Value::Object(metadata) if field.go_name == "ObjectMeta" => {
                    for (key, value) in metadata {
                        out.insert(key, value);
                    }
                }
                value => {
                    out.insert(field.go_name, value);
                }
            },
        }
    }
    Value::Object(out)
}

/// The fields in the order of the internal struct, which for schemas is not that of the versions.
fn in_internal_order(object_type: &Type) -> impl Iterator<Item = &'static Field> {
    let is_schema = object_type.name == "JSONSchemaProps";
    let nullable = object_type.fields.iter().find(|field| is_schema && field.go_name == "Nullable");
    let others = object_type.fields.iter().filter(move |field| !is_schema || field.go_name != "Nullable");
    others.flat_map(move |field| {
        let next = nullable.filter(|_| field.go_name == "Type");
        [Some(field), next].into_iter().flatten()
    })
}

fn is_type_meta(field: &Field) -> bool {
    field.number == 0 && matches!(field.go_name, "Kind" | "APIVersion")
}

fn form(kind: Kind, value: Option<&Value>) -> Value {
    match (kind, value) {
        (Kind::Struct(it), Some(Value::Object(fields))) => struct_form(it, fields),
        (Kind::Struct(it), _) => struct_form(it, &Object::new()),
        (Kind::List(inner), Some(Value::Array(items))) => {
            Value::Array(items.iter().map(|item| form(*inner, Some(item))).collect())
        }
        (Kind::Map(inner), Some(Value::Object(fields))) => {
            let mut out: Object = fields.iter().map(|(key, value)| (key, form(*inner, Some(value)))).collect();
            out.sort();
            Value::Object(out)
        }
        (Kind::SchemaOrBool, Some(Value::Bool(allows))) => {
            Value::Object([("Allows", Value::Bool(*allows)), ("Schema", Value::Null)].into_iter().collect())
        }
        (Kind::SchemaOrBool, Some(schema)) => {
            Value::Object([("Allows", Value::Bool(true)), ("Schema", schema_form(schema))].into_iter().collect())
        }
        (Kind::SchemaOrList, Some(Value::Array(schemas))) => {
            let schemas = Value::Array(schemas.iter().map(schema_form).collect());
            Value::Object([("Schema", Value::Null), ("JSONSchemas", schemas)].into_iter().collect())
        }
        (Kind::SchemaOrList, Some(schema)) => {
            Value::Object([("Schema", schema_form(schema)), ("JSONSchemas", Value::Null)].into_iter().collect())
        }
        (_, Some(value)) => value.clone(),
        (kind, None) => zero(kind),
    }
}

/// A schema in a place that also accepts other types.
fn schema_form(schema: &Value) -> Value {
    let it = super::by_name("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaProps");
    it.map_or_else(|| schema.clone(), |it| internal_form(it, schema))
}

#[cfg(test)]
mod tests {
    use crate::json::{parse, to_string};
    use crate::types::{by_name, internal_form};

    #[track_caller]
    fn check(package: &str, name: &str, value: &str, expected: &str) {
        let it = by_name(package, name).unwrap();
        let value = parse(value.as_bytes()).unwrap();
        assert_eq!(to_string(&internal_form(it, &value)), expected);
    }

    #[test]
    fn values_look_as_in_recorded_messages() {
        let core = "k8s.io/api/core/v1";
        check(
            core,
            "Taint",
            r#"{"key":"k","effect":"NoSchedule"}"#,
            r#"{"Key":"k","Value":"","Effect":"NoSchedule","TimeAdded":null}"#,
        );
        check(
            core,
            "NodeSelectorTerm",
            r#"{"matchExpressions":[{"key":"k","operator":"In","values":["b"]}]}"#,
            r#"{"MatchExpressions":[{"Key":"k","Operator":"In","Values":["b"]}],"MatchFields":null}"#,
        );
        check(
            core,
            "ObjectReference",
            r#"{"kind":"Pod","namespace":"other","name":"p","apiVersion":"v1"}"#,
            r#"{"Kind":"Pod","Namespace":"other","Name":"p","UID":"","APIVersion":"v1","ResourceVersion":"","FieldPath":""}"#,
        );
        check(
            "k8s.io/api/apps/v1",
            "DaemonSetUpdateStrategy",
            r#"{"type":"Recreate"}"#,
            r#"{"Type":"Recreate","RollingUpdate":null}"#,
        );
        check(
            "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
            "ValidationRule",
            r#"{"rule":"self.a >"}"#,
            r#"{"Rule":"self.a \u003e","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}"#,
        );
    }
}
