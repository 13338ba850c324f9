//! Documents in protobuf: what gnostic's messages of both versions share.

use api::json::{Object, Value};
use bytes::Bytes;

/// Field numbers of the plain fields of a message.
pub(super) struct Scalars {
    pub(super) texts: &'static [(u32, &'static str)],
    pub(super) flags: &'static [(u32, &'static str)],
    pub(super) doubles: &'static [(u32, &'static str)],
    pub(super) sizes: &'static [(u32, &'static str)],
}

impl Scalars {
    pub(super) const NONE: Self = Self { texts: &[], flags: &[], doubles: &[], sizes: &[] };

    /// A message of those that are there.
    pub(super) fn message(&self, document: &Value) -> Message {
        let mut out = Message::default();
        for (number, field) in self.texts {
            out.text(*number, document.text(field));
        }
        for (number, field) in self.flags {
            out.flag(*number, document.get(field).and_then(Value::as_bool).unwrap_or_default());
        }
        for (number, field) in self.doubles {
            if let Some(value) = document.get(field).and_then(Value::as_f64) {
                out.double(*number, value);
            }
        }
        for (number, field) in self.sizes {
            if let Some(size) = document.get(field).and_then(Value::as_i64).and_then(|size| u64::try_from(size).ok()) {
                out.number(*number, size);
            }
        }
        out
    }
}

/// Writes a map as entries with a number.
pub(super) fn map(number: u32, document: &Value, field: &str, write: impl Fn(&Value) -> Message) -> Message {
    let mut all = Message::default();
    for (name, document) in entries(document, field) {
        all.message(number, &named(name, &write(document)));
    }
    all
}

/// The schema of further properties, or that there may be some.
pub(super) fn additional(out: &mut Message, number: u32, document: &Value, write: impl Fn(&Value) -> Message) {
    match document.get("additionalProperties") {
        Some(Value::Bool(true)) => drop(out.message(number, Message::default().flag(2, true))),
        Some(inner @ Value::Object(_)) => drop(out.message(number, &within(1, &write(inner)))),
        _ => {}
    }
}

/// A reference to something that stands elsewhere.
pub(super) fn reference(to: &str) -> Message {
    let mut out = Message::default();
    out.text(1, to);
    within(2, &out)
}

fn entries<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    value.get(field).and_then(Value::as_object).into_iter().flat_map(Object::iter)
}

pub(super) fn texts(out: &mut Message, number: u32, value: &Value, field: &str) {
    for text in value.list(field) {
        out.text(number, text.as_str().unwrap_or_default());
    }
}

pub(super) fn extensions(out: &mut Message, number: u32, document: &Value) {
    for (name, value) in
        document.as_object().into_iter().flat_map(Object::iter).filter(|(name, _)| name.starts_with("x-"))
    {
        out.message(number, &named(name, &any(value)));
    }
}

pub(super) fn any(value: &Value) -> Message {
    // JSON is YAML.
    let mut any = Message::default();
    any.text(2, &api::json::to_string(value));
    any
}

fn named(name: &str, value: &Message) -> Message {
    let mut named = Message::default();
    named.text(1, name).message(2, value);
    named
}

/// A message with one field.
pub(super) fn within(number: u32, message: &Message) -> Message {
    let mut outer = Message::default();
    outer.message(number, message);
    outer
}

/// A protobuf message.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn into_bytes(self) -> Bytes {
        self.0.into()
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) -> &mut Self {
        // Wire type 2: a length, then this many bytes.
        self.varint(u64::from(number) << 3 | 2);
        self.varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(bytes);
        self
    }

    /// A text that is not empty.
    pub(super) fn text(&mut self, number: u32, text: &str) -> &mut Self {
        if text.is_empty() { self } else { self.bytes(number, text.as_bytes()) }
    }

    pub(super) fn message(&mut self, number: u32, message: &Message) -> &mut Self {
        self.bytes(number, &message.0)
    }

    pub(super) fn number(&mut self, number: u32, value: u64) -> &mut Self {
        self.varint(u64::from(number) << 3);
        self.varint(value);
        self
    }

    pub(super) fn flag(&mut self, number: u32, value: bool) -> &mut Self {
        if value { self.number(number, 1) } else { self }
    }

    pub(super) fn double(&mut self, number: u32, value: f64) -> &mut Self {
        // Wire type 1: eight bytes.
        self.varint(u64::from(number) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap_or(0));
    }
}
