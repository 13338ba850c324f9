//! From a document in normal form to the message that Go would write.
//!
//! Fields stand in the order of their numbers. What is not a pointer, list or map is written even when it is empty, as
//! gogo/protobuf does with fields that cannot be absent.

use super::MAGIC;
use super::read::{is_named_list, is_raw};
use crate::base64;
use crate::duration::Duration;
use crate::json::{self, Value};
use crate::time::{Layout, Timestamp};
use crate::types::{Field, Kind, Type};

/// The envelope of an object, the magic bytes included.
#[must_use]
pub fn write_envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_bytes(&mut type_meta, 1, api_version.as_bytes());
    put_bytes(&mut type_meta, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    put_bytes(&mut out, 1, &type_meta);
    put_bytes(&mut out, 2, raw);
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    out
}

/// The message of an object in normal form. What does not fit its type is left out.
#[must_use]
pub fn write(it: &Type, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    write_message(it, &[], value, &mut out);
    out
}

/// What stands under a number: a field, or the message of an embedded struct.
enum Part<'a> {
    Field(&'a Field),
    Embedded(&'a [u16]),
}

fn write_message(it: &Type, prefix: &[u16], value: &Value, out: &mut Vec<u8>) {
    let mut parts: Vec<(u16, Part<'_>)> = Vec::with_capacity(it.fields.len());
    for field in it.fields.iter().filter(|field| field.number != 0 && field.embedded.starts_with(prefix)) {
        match field.embedded.get(..=prefix.len()) {
            None => parts.push((field.number, Part::Field(field))),
            Some(inner) => {
                let number = inner.last().copied().unwrap_or_default();
                if !parts.iter().any(|(it, part)| *it == number && matches!(part, Part::Embedded(_))) {
                    parts.push((number, Part::Embedded(inner)));
                }
            }
        }
    }
    parts.sort_by_key(|(number, _)| *number);
    for (number, part) in parts {
        match part {
            Part::Field(field) => write_field(field, value.get(field.name), out),
            Part::Embedded(inner) => {
                let mut message = Vec::new();
                write_message(it, inner, value, &mut message);
                put_bytes(out, number, &message);
            }
        }
    }
}

fn write_field(field: &Field, value: Option<&Value>, out: &mut Vec<u8>) {
    let present = value.filter(|value| !value.is_null());
    match field.kind {
        Kind::List(inner) if !is_named_list(field.go_type) => {
            for item in present.and_then(Value::as_array).unwrap_or_default() {
                write_value(field, *inner, field.number, Some(item), out);
            }
        }
        Kind::Map(inner) => {
            let Some(entries) = present.and_then(Value::as_object) else { return };
            let mut entries: Vec<(&str, &Value)> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                let mut entry = Vec::new();
                put_bytes(&mut entry, 1, key.as_bytes());
                write_value(field, *inner, 2, Some(value), &mut entry);
                put_bytes(out, field.number, &entry);
            }
        }
        kind => {
            // Messages without our fields are the same as Kubernetes writes them.
            let may_be_absent = field.pointer || field.added || matches!(kind, Kind::Bytes | Kind::List(_));
            if present.is_some() || !may_be_absent {
                write_value(field, kind, field.number, present, out);
            }
        }
    }
}

/// A scalar, an item of a list, or a value of a map; its zero value if there is none.
fn write_value(field: &Field, kind: Kind, number: u16, value: Option<&Value>, out: &mut Vec<u8>) {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    let mut message = Vec::new();
    match kind {
        Kind::Bool => return put_number(out, number, u64::from(value.and_then(Value::as_bool).unwrap_or_default())),
        Kind::Int32 | Kind::Int64 => {
            return put_number(out, number, value.and_then(Value::as_i64).unwrap_or_default().cast_unsigned());
        }
        Kind::Float64 => {
            put_varint(out, (u64::from(number) << 3) | 1);
            out.extend(value.and_then(Value::as_f64).unwrap_or_default().to_le_bytes());
            return;
        }
        Kind::String => message.extend(text.as_bytes()),
        Kind::Bytes => message = base64::decode(text).unwrap_or_default(),
        Kind::Quantity => put_bytes(&mut message, 1, if text.is_empty() { b"0" } else { text.as_bytes() }),
        Kind::IntOrString => {
            let is_text = matches!(value, Some(Value::String(_)));
            put_number(&mut message, 1, u64::from(is_text));
            put_number(&mut message, 2, value.and_then(Value::as_i64).unwrap_or_default().cast_unsigned());
            put_bytes(&mut message, 3, text.as_bytes());
        }
        Kind::Time | Kind::MicroTime => {
            let micros = matches!(kind, Kind::MicroTime);
            let layout = if micros { Layout::Micros } else { Layout::Seconds };
            if let Ok(time) = Timestamp::parse_layout(text, layout) {
                put_number(&mut message, 1, time.seconds.cast_unsigned());
                put_number(&mut message, 2, if micros { u64::from(time.nanos) } else { 0 });
            }
        }
        Kind::Duration => {
            let nanos = Duration::parse(text).unwrap_or_default().nanos;
            put_number(&mut message, 1, nanos.cast_unsigned());
        }
        Kind::Struct(it) => write_message(it, &[], value.unwrap_or(&Value::Null), &mut message),
        Kind::List(item) => {
            for value in value.and_then(Value::as_array).unwrap_or_default() {
                write_value(field, *item, 1, Some(value), &mut message);
            }
        }
        Kind::SchemaOrBool | Kind::SchemaOrList => write_schema_or(kind, value, &mut message),
        Kind::Any if field.go_type.ends_with("JSONSchemaDependencies") => write_schema_or(kind, value, &mut message),
        Kind::Any if is_raw(field.go_type) => {
            if let Some(value) = value {
                put_bytes(&mut message, 1, json::to_string(value).as_bytes());
            }
        }
        Kind::Any | Kind::Map(_) => return,
    }
    put_bytes(out, number, &message);
}

fn write_schema_or(kind: Kind, value: Option<&Value>, out: &mut Vec<u8>) {
    let Some(it) = crate::types::by_name("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaProps")
    else {
        return;
    };
    let schema_number = if matches!(kind, Kind::SchemaOrBool) { 2 } else { 1 };
    if matches!(kind, Kind::SchemaOrBool) {
        // A schema allows.
        put_number(out, 1, u64::from(value.is_some_and(|value| value.as_bool().unwrap_or(true))));
    }
    match value {
        Some(schema @ Value::Object(_)) => put_bytes(out, schema_number, &write(it, schema)),
        Some(Value::Array(items)) => {
            for item in items {
                match item {
                    Value::String(text) => put_bytes(out, 2, text.as_bytes()),
                    item => put_bytes(out, 2, &write(it, item)),
                }
            }
        }
        _ => {}
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(super::wire::low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(super::wire::low_bits(value));
}

fn put_number(out: &mut Vec<u8>, number: u16, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

fn put_bytes(out: &mut Vec<u8>, number: u16, bytes: &[u8]) {
    put_varint(out, (u64::from(number) << 3) | 2);
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend(bytes);
}
