//! Values and types of the suite, which are protobuf messages turned into JSON: every field is a list of its values.

use std::sync::Arc;

use cel::types::{OpaqueType, Primitive, Type};
use cel::value::{Bytes, Duration, Map, Timestamp, Value};
use serde_json::Value as Json;

/// The one value of a field, or nothing where it is not set.
pub(crate) fn field<'j>(message: &'j Json, name: &str) -> Option<&'j Json> {
    message.get(name).map(|values| &values[0])
}

/// All values of a repeated field.
pub(crate) fn repeated<'j>(message: &'j Json, name: &str) -> impl Iterator<Item = &'j Json> {
    message.get(name).and_then(Json::as_array).into_iter().flatten()
}

/// Text, or a bare word.
pub(crate) fn word(json: &Json) -> &str {
    json.as_str().unwrap()
}

/// `cel.expr.Value`
pub(crate) fn value(message: &Json) -> Value<'static> {
    let (kind, content) = message.as_object().unwrap().iter().next().unwrap();
    let content = &content[0];
    match kind.as_str() {
        "null_value" => Value::Null,
        "bool_value" => Value::Bool(word(content) == "true"),
        "int64_value" => Value::Int(number(content).parse().unwrap()),
        "uint64_value" => Value::Uint(number(content).parse().unwrap()),
        "double_value" => Value::Double(number(content).parse().unwrap()),
        "string_value" => Value::string(word(content)),
        "bytes_value" => Value::Bytes(Bytes::Shared(bytes(content).into())),
        "list_value" => Value::list(repeated(content, "values").map(value).collect()),
        "map_value" => {
            let entries = repeated(content, "entries");
            let entries = entries.map(|it| (value(field(it, "key").unwrap()), value(field(it, "value").unwrap())));
            Value::Map(Map::from_entries(entries).unwrap())
        }
        "type_value" => Value::Type(named(word(content))),
        "object_value" => object(content),
        other => panic!("no case in scope has such a value: {other}"),
    }
}

/// A message that stands for a value of the language.
fn object(any: &Json) -> Value<'static> {
    let (name, message) = any.as_object().unwrap().iter().next().unwrap();
    let name = name.trim_start_matches("[type.googleapis.com/google.protobuf.").trim_end_matches(']');
    let message = &message[0];
    let text = |name| field(message, name).map_or("0", number);
    match name {
        "Timestamp" => {
            Value::Timestamp(Timestamp::new(text("seconds").parse().unwrap(), text("nanos").parse().unwrap()).unwrap())
        }
        "Duration" => {
            let (seconds, nanos): (i64, i64) = (text("seconds").parse().unwrap(), text("nanos").parse().unwrap());
            Value::Duration(Duration { nanoseconds: seconds * 1_000_000_000 + nanos })
        }
        "Int32Value" | "Int64Value" => Value::Int(text("value").parse().unwrap()),
        "UInt32Value" | "UInt64Value" => Value::Uint(text("value").parse().unwrap()),
        // A single-precision number is what its bits say, not what its text says.
        "FloatValue" => Value::Double(f64::from(text("value").parse::<f32>().unwrap())),
        "DoubleValue" => Value::Double(text("value").parse().unwrap()),
        "BoolValue" => Value::Bool(field(message, "value").is_some_and(|truth| word(truth) == "true")),
        "StringValue" => Value::string(field(message, "value").map_or("", word)),
        "BytesValue" => Value::Bytes(Bytes::Shared(field(message, "value").map_or(Vec::new(), bytes).into())),
        other => panic!("no case in scope has such a message: {other}"),
    }
}

/// `cel.expr.Type`
pub(crate) fn type_of(message: &Json) -> Type {
    let (kind, content) = message.as_object().unwrap().iter().next().unwrap();
    let content = &content[0];
    let part = |name| type_of(field(content, name).unwrap());
    match kind.as_str() {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "primitive" => primitive(word(content)).unwrapped(),
        "wrapper" => Type::Wrapper(primitive(word(content))),
        "well_known" => match word(content) {
            "TIMESTAMP" => Type::Timestamp,
            "DURATION" => Type::Duration,
            other => panic!("no case in scope has such a type: {other}"),
        },
        "list_type" => Type::list(part("elem_type")),
        "map_type" => Type::map(part("key_type"), part("value_type")),
        "type_param" => Type::Param(word(content).into()),
        "type" => Type::type_of(type_of(content)),
        "message_type" => named(word(content)),
        "abstract_type" => {
            let parameters = repeated(content, "parameter_types").map(type_of).collect();
            let name = field(content, "name").map(word).unwrap().into();
            Type::Opaque(Arc::new(OpaqueType { name, parameters }))
        }
        other => panic!("no case in scope has such a kind of type: {other}"),
    }
}

/// The type with this name.
pub(crate) fn named(name: &str) -> Type {
    if let Some(primitive) = wrapped(name) {
        return Type::Wrapper(primitive);
    }
    match name {
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "null_type" => Type::Null,
        "optional_type" => Type::optional(Type::Dyn),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        other => Type::parse(other).unwrap(),
    }
}

/// The primitive that a message wraps.
pub(crate) fn wrapped(message: &str) -> Option<Primitive> {
    Some(match message.strip_prefix("google.protobuf.")? {
        "BoolValue" => Primitive::Bool,
        "BytesValue" => Primitive::Bytes,
        "DoubleValue" | "FloatValue" => Primitive::Double,
        "Int32Value" | "Int64Value" => Primitive::Int,
        "StringValue" => Primitive::String,
        "UInt32Value" | "UInt64Value" => Primitive::Uint,
        _ => return None,
    })
}

fn primitive(name: &str) -> Primitive {
    match name {
        "BOOL" => Primitive::Bool,
        "INT64" => Primitive::Int,
        "UINT64" => Primitive::Uint,
        "DOUBLE" => Primitive::Double,
        "STRING" => Primitive::String,
        "BYTES" => Primitive::Bytes,
        other => panic!("no case in scope has such a primitive: {other}"),
    }
}

/// Infinity and its like are bare words.
fn number(json: &Json) -> &str {
    word(json.get("$num").unwrap_or(json))
}

fn bytes(json: &Json) -> Vec<u8> {
    match json.get("$bytes_base64") {
        Some(encoded) => base64(word(encoded)),
        None => word(json).as_bytes().to_vec(),
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut decoded, mut group, mut bits) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().filter(|digit| *digit != b'=') {
        group = group << 6 | u32::try_from(ALPHABET.iter().position(|known| *known == digit).unwrap()).unwrap();
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            decoded.push((group >> bits & 255) as u8);
        }
    }
    decoded
}
