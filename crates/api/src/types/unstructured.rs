//! Mismatches between a patched document and its type, in the words of Go's unstructured converter.
//!
//! Strategic merge patches do not go through JSON decoding: Kubernetes restores the struct from maps, field by
//! field in the order of the type, and its errors name the position less precisely. Follows
//! `apimachinery/pkg/runtime/converter.go`.

use super::decode::{complaint, element_type};
use super::{Kind, Type};
use crate::base64;
use crate::int_or_string::IntOrString;
use crate::json::{Object, Value};

/// The first thing that keeps a document from being of the type.
#[must_use]
pub fn restore_error(object_type: &'static Type, value: &Value) -> Option<String> {
    part(Kind::Struct(object_type), object_type.name, value)
}

fn object(object_type: &Type, fields: &Object) -> Option<String> {
    object_type.fields.iter().find_map(|field| part(field.kind, field.go_type, fields.get(field.name)?))
}

fn part(kind: Kind, go_type: &str, value: &Value) -> Option<String> {
    let go_type = go_type.trim_start_matches('*');
    match (kind, value) {
        (_, Value::Null) | (Kind::Any, _) => None,
        (Kind::Bool, Value::Bool(_)) | (Kind::String, Value::String(_)) => None,
        (Kind::Int32 | Kind::Int64 | Kind::Float64, Value::Int(_)) | (Kind::Float64, Value::Float(_)) => None,
        (Kind::Int32 | Kind::Int64, Value::Float(number)) => {
            (number.get().fract() != 0.0).then(|| format!("cannot convert float64 to {go_type}"))
        }
        (Kind::String, Value::Int(_)) => Some(format!("cannot convert int64 to {go_type}")),
        (Kind::Bool, _) => Some("unrecognized type: bool".to_owned()),
        (Kind::String, _) => Some("unrecognized type: string".to_owned()),
        (Kind::Int32, _) => Some("unrecognized type: int32".to_owned()),
        (Kind::Int64, _) => Some("unrecognized type: int64".to_owned()),
        (Kind::Float64, _) => Some("unrecognized type: float64".to_owned()),
        (Kind::Bytes, Value::String(text)) => {
            base64::decode(text).err().map(|error| format!("error decoding from json: {error}"))
        }
        (Kind::Bytes, Value::Array(items)) => {
            let is_number = |item: &Value| matches!(item, Value::Int(_) | Value::Null);
            (!items.iter().all(is_number)).then(|| "unrecognized type: uint8".to_owned())
        }
        (Kind::Struct(it), Value::Object(fields)) => object(it, fields),
        (Kind::Struct(_), other) => Some(format!("cannot restore struct from: {}", reflected(other))),
        (Kind::List(inner), Value::Array(items)) => {
            items.iter().find_map(|item| part(*inner, element_type(go_type), item))
        }
        (Kind::List(_) | Kind::Bytes, other) => Some(format!("cannot restore slice from {}", reflected(other))),
        (Kind::Map(inner), Value::Object(fields)) => {
            fields.values().find_map(|value| part(*inner, element_type(go_type), value))
        }
        (Kind::Map(_), other) => Some(format!("cannot restore map from {}", reflected(other))),
        (Kind::IntOrString, _) => IntOrString::from_value(value).err().map(|error| error.to_string()),
        (Kind::Time | Kind::MicroTime | Kind::Duration, other) if other.as_str().is_none() => {
            Some(format!("json: cannot unmarshal {} into Go value of type string", other.kind()))
        }
        _ => complaint(kind, value),
    }
}

/// Go's name for the kind of a value.
fn reflected(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

#[cfg(test)]
mod tests {
    use super::restore_error;
    use crate::json::parse;
    use crate::types::by_api_version;

    #[track_caller]
    fn check(document: &str, expected: &str) {
        let of = by_api_version("v1", "Pod").unwrap();
        assert_eq!(restore_error(of, &parse(document.as_bytes()).unwrap()).as_deref(), Some(expected));
    }

    #[test]
    fn complaints_are_those_of_the_converter() {
        check(r#"{"spec":3}"#, "cannot restore struct from: int64");
        check(r#"{"spec":{"containers":{}}}"#, "cannot restore slice from map");
        check(r#"{"spec":{"nodeSelector":[]}}"#, "cannot restore map from slice");
        check(r#"{"spec":{"nodeName":3}}"#, "cannot convert int64 to string");
        check(r#"{"spec":{"restartPolicy":3}}"#, "cannot convert int64 to v1.RestartPolicy");
        check(r#"{"spec":{"hostNetwork":"a"}}"#, "unrecognized type: bool");
        check(r#"{"spec":{"priority":"a"}}"#, "unrecognized type: int32");
        check(r#"{"metadata":{"creationTimestamp":3}}"#, "json: cannot unmarshal number into Go value of type string");
        check(
            r#"{"metadata":{"creationTimestamp":"x"}}"#,
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
        );
    }
}
