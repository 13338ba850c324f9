//! From a document in normal form to the message that Go would write.
//!
//! Fields are in the order of their numbers. Fields other than pointers, lists and maps are written even if
//! they are empty, as in gogo/protobuf.

mod text;

use std::collections::HashMap;
use std::rc::Rc;

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
    let (mut out, end) = envelope_around(api_version, kind, raw.len());
    out.extend(raw);
    out.extend(end);
    out
}

/// Returns the bytes before and after the message of an object of this length.
#[must_use]
pub fn envelope_around(api_version: &str, kind: &str, raw_length: usize) -> (Vec<u8>, Vec<u8>) {
    let mut head = MAGIC.to_vec();
    nest(&mut head, 1, |out| {
        put_bytes(out, 1, api_version.as_bytes());
        put_bytes(out, 2, kind.as_bytes());
    });
    put_varint(&mut head, tag(2));
    put_varint(&mut head, u64::try_from(raw_length).unwrap_or(u64::MAX));
    let mut end = Vec::new();
    put_bytes(&mut end, 3, b"");
    put_bytes(&mut end, 4, b"");
    (head, end)
}

/// The message of a watch event, which holds an object in its envelope.
#[must_use]
pub fn write_event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len().saturating_add(32));
    put_bytes(&mut out, 1, event_type.as_bytes());
    nest(&mut out, 2, |out| put_bytes(out, 1, object));
    out
}

/// The message of an object in normal form. Parts that do not fit its type are omitted.
#[must_use]
pub fn write(object_type: &'static Type, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::default().message(object_type, value, &mut out);
    out
}

/// Writes messages. Caches the order in which the fields of a type are written, so that reusing one writer is
/// faster.
#[derive(Debug, Default)]
pub struct Writer {
    /// By the address of the type: types are constants.
    plans: HashMap<usize, Rc<[Part]>>,
    /// Positions of the fields of the messages that are being written, if they are written from text.
    spans: Vec<(usize, usize)>,
}

/// The element with a field number: a field, or the message of an embedded struct.
#[derive(Debug, Clone)]
enum Part {
    Field {
        /// Index in the type.
        index: usize,
        field: &'static Field,
        /// Bytes to write if the field is absent.
        zero: Box<[u8]>,
    },
    Embedded(u16, Rc<[Part]>),
}

impl Part {
    fn number(&self) -> u16 {
        match self {
            Part::Field { field, .. } => field.number,
            Part::Embedded(number, _) => *number,
        }
    }
}

/// The fields of a type within the embedded structs of these numbers, in the order in which they are written.
fn plan(object_type: &'static Type, prefix: &[u16]) -> Rc<[Part]> {
    let mut parts: Vec<Part> = Vec::with_capacity(object_type.fields.len());
    let fields = object_type.fields.iter().enumerate();
    for (index, field) in fields.filter(|(_, field)| field.number != 0 && field.embedded.starts_with(prefix)) {
        match field.embedded.get(..=prefix.len()) {
            None => {
                let mut zero = Vec::new();
                Writer::default().field(field, None, &mut zero);
                parts.push(Part::Field { index, field, zero: zero.into() });
            }
            Some(inner) => {
                let number = inner.last().copied().unwrap_or_default();
                if !parts.iter().any(|part| matches!(part, Part::Embedded(known, _) if *known == number)) {
                    parts.push(Part::Embedded(number, plan(object_type, inner)));
                }
            }
        }
    }
    parts.sort_by_key(Part::number);
    parts.into()
}

impl Writer {
    /// Appends the message of an object in normal form. Parts that do not fit its type are omitted.
    pub fn message(&mut self, object_type: &'static Type, value: &Value, out: &mut Vec<u8>) {
        let parts = self.plan(object_type);
        let mut values: Vec<Option<&Value>> = vec![None; object_type.fields.len()];
        let mut next = 0;
        // A document in normal form has its fields in the order of the type.
        for (key, value) in value.as_object().into_iter().flat_map(json::Object::iter) {
            if let Some((index, _)) = object_type.find_from(next, key) {
                if let Some(slot) = values.get_mut(index) {
                    *slot = Some(value);
                }
                next = index.saturating_add(1);
            }
        }
        self.parts(&parts, &values, out);
    }

    /// Appends an object as a part of another message, such as an item of a list.
    pub fn nested(&mut self, number: u16, it: &'static Type, value: &Value, out: &mut Vec<u8>) {
        nest(out, number, |out| self.message(it, value, out));
    }

    fn plan(&mut self, it: &'static Type) -> Rc<[Part]> {
        let address = std::ptr::from_ref(it).addr();
        self.plans.entry(address).or_insert_with(|| plan(it, &[])).clone()
    }

    fn parts(&mut self, parts: &[Part], values: &[Option<&Value>], out: &mut Vec<u8>) {
        for part in parts {
            match part {
                Part::Field { index, field, zero } => match values.get(*index).copied().flatten() {
                    Some(value) => self.field(field, Some(value), out),
                    None => out.extend_from_slice(zero),
                },
                Part::Embedded(number, inner) => nest(out, *number, |out| self.parts(inner, values, out)),
            }
        }
    }

    fn field(&mut self, field: &'static Field, value: Option<&Value>, out: &mut Vec<u8>) {
        let present = value.filter(|value| !value.is_null());
        match field.kind {
            Kind::List(inner) if !is_named_list(field.go_type) => {
                for item in present.and_then(Value::as_array).unwrap_or_default() {
                    self.value(field, *inner, field.number, Some(item), out);
                }
            }
            Kind::Map(inner) => {
                let Some(entries) = present.and_then(Value::as_object) else { return };
                let mut entries: Vec<(&str, &Value)> = entries.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                for (key, value) in entries {
                    nest(out, field.number, |out| {
                        put_bytes(out, 1, key.as_bytes());
                        self.value(field, *inner, 2, Some(value), out);
                    });
                }
            }
            kind => {
                // Messages without our fields are the same as Kubernetes writes them.
                let may_be_absent = field.pointer || field.added || matches!(kind, Kind::Bytes | Kind::List(_));
                if present.is_some() || !may_be_absent {
                    self.value(field, kind, field.number, present, out);
                }
            }
        }
    }

    /// A scalar, an item of a list, or a value of a map; its zero value if there is none.
    fn value(&mut self, field: &'static Field, kind: Kind, number: u16, value: Option<&Value>, out: &mut Vec<u8>) {
        let text = value.and_then(Value::as_str).unwrap_or_default();
        let whole = || value.and_then(Value::as_i64).unwrap_or_default().cast_unsigned();
        match kind {
            Kind::Bool => put_number(out, number, u64::from(value.and_then(Value::as_bool).unwrap_or_default())),
            Kind::Int32 | Kind::Int64 => put_number(out, number, whole()),
            Kind::Float64 => {
                put_varint(out, (u64::from(number) << 3) | 1);
                out.extend(value.and_then(Value::as_f64).unwrap_or_default().to_le_bytes());
            }
            Kind::String => put_bytes(out, number, text.as_bytes()),
            Kind::Bytes => put_bytes(out, number, &base64::decode(text).unwrap_or_default()),
            Kind::Quantity => nest(out, number, |out| {
                put_bytes(out, 1, if text.is_empty() { b"0" } else { text.as_bytes() });
            }),
            Kind::IntOrString => nest(out, number, |out| {
                put_number(out, 1, u64::from(matches!(value, Some(Value::String(_)))));
                put_number(out, 2, whole());
                put_bytes(out, 3, text.as_bytes());
            }),
            Kind::Time | Kind::MicroTime => nest(out, number, |out| {
                let micros = matches!(kind, Kind::MicroTime);
                let layout = if micros { Layout::Micros } else { Layout::Seconds };
                if let Ok(time) = Timestamp::parse_layout(text, layout) {
                    put_number(out, 1, time.seconds.cast_unsigned());
                    put_number(out, 2, if micros { u64::from(time.nanos) } else { 0 });
                }
            }),
            Kind::Duration => {
                let nanos = Duration::parse(text).unwrap_or_default().nanos;
                nest(out, number, |out| put_number(out, 1, nanos.cast_unsigned()));
            }
            Kind::Struct(it) => nest(out, number, |out| self.message(it, value.unwrap_or(&Value::Null), out)),
            Kind::List(item) => nest(out, number, |out| {
                for value in value.and_then(Value::as_array).unwrap_or_default() {
                    self.value(field, *item, 1, Some(value), out);
                }
            }),
            Kind::SchemaOrBool | Kind::SchemaOrList => nest(out, number, |out| self.schema_or(kind, value, out)),
            Kind::Any if field.go_type.ends_with("JSONSchemaDependencies") => {
                nest(out, number, |out| self.schema_or(kind, value, out));
            }
            Kind::Any if is_raw(field.go_type) => nest(out, number, |out| {
                if let Some(value) = value {
                    put_bytes(out, 1, json::to_string(value).as_bytes());
                }
            }),
            Kind::Any | Kind::Map(_) => {}
        }
    }

    fn schema_or(&mut self, kind: Kind, value: Option<&Value>, out: &mut Vec<u8>) {
        let package = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
        let Some(it) = crate::types::by_name(package, "JSONSchemaProps") else { return };
        let schema_number = if matches!(kind, Kind::SchemaOrBool) { 2 } else { 1 };
        if matches!(kind, Kind::SchemaOrBool) {
            // A schema allows.
            put_number(out, 1, u64::from(value.is_some_and(|value| value.as_bool().unwrap_or(true))));
        }
        match value {
            Some(schema @ Value::Object(_)) => self.nested(schema_number, it, schema, out),
            Some(Value::Array(items)) => {
                for item in items {
                    match item {
                        Value::String(text) => put_bytes(out, 2, text.as_bytes()),
                        item => self.nested(2, it, item, out),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Writes a message inside another, preceded by its length.
fn nest(out: &mut Vec<u8>, number: u16, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    write(out);
    frame(out, number, start, start);
}

/// Replaces the bytes from `start` to `body` by the header of a nested message that begins at `body`.
fn frame(out: &mut Vec<u8>, number: u16, start: usize, body: usize) {
    let mut header = Header::default();
    header.varint(tag(number));
    header.varint(u64::try_from(out.len().saturating_sub(body)).unwrap_or(u64::MAX));
    // The message moves by the difference, mostly two or three bytes.
    out.splice(start..body, header.bytes.into_iter().take(header.length));
}

/// A tag and a length.
#[derive(Default)]
struct Header {
    bytes: [u8; 16],
    length: usize,
}

impl Header {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(super::wire::low_bits(value) | 0x80);
            value >>= 7;
        }
        self.push(super::wire::low_bits(value));
    }

    fn push(&mut self, byte: u8) {
        // A tag takes at most three bytes, a length at most ten.
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length = self.length.saturating_add(1);
        }
    }
}

fn tag(number: u16) -> u64 {
    (u64::from(number) << 3) | 2
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
    put_varint(out, tag(number));
    put_varint(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend(bytes);
}
