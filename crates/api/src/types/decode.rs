//! From what a client sends to what a type holds: Go's decoding and encoding in one step.
//!
//! The result has the fields of the type in Go's order, without what Go leaves out; maps are sorted, quantities, times
//! and base64 canonical. What does not fit is Go's error text, the first one in the text; what the type does not know
//! is dropped and listed. Follows `sigs.k8s.io/json` and the marshalers of the special types.

use super::given::{GivenEmpty, Part};
use super::{Field, Kind, Type};
use crate::base64;
use crate::duration::Duration;
use crate::int_or_string::IntOrString;
use crate::json::{Object, Text, Value};
use crate::quantity::{ParseError, Quantity};
use crate::time::{Layout, Timestamp};

/// An object in its type's normal form.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// Paths of fields that the type does not have, in the order of the text.
    pub unknown_fields: Vec<String>,
    /// Where empty lists and maps were given.
    pub given_empty: GivenEmpty,
}

/// Brings a value into the normal form of its type.
///
/// # Errors
/// Go's text for the first part that does not fit.
pub fn decode(it: &Type, value: &Value) -> Result<Decoded, String> {
    let mut decoder = Decoder::default();
    let value = match value {
        Value::Object(fields) => Value::Object(decoder.object(it, fields)),
        Value::Null => zero(Kind::Any),
        other => {
            let kind = other.kind();
            return Err(format!("json: cannot unmarshal {kind} into Go value of type {}", it.go_type()));
        }
    };
    match decoder.error {
        Some(error) => Err(error),
        None => Ok(Decoded { value, unknown_fields: decoder.unknown_fields, given_empty: decoder.given_empty }),
    }
}

/// A step to the current value.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    /// An entry of a map, which type errors do not name.
    Entry(&'a str),
    /// A struct inside of a struct, which only type errors name.
    Embedded(&'static str),
}

#[derive(Default)]
pub(super) struct Decoder<'a> {
    unknown_fields: Vec<String>,
    /// The first mismatch, behind which decoding goes on as Go's does, or what ended it.
    error: Option<String>,
    /// Whether a value with its own decoder ended decoding.
    is_over: bool,
    /// Where the current value stands.
    path: Vec<Step<'a>>,
    given_empty: GivenEmpty,
    /// The struct around the current value, for type errors.
    owner: &'static str,
    /// Whether unknown fields are passed over in silence, as inside values with their own decoder.
    lenient: bool,
}

impl<'a> Decoder<'a> {
    /// A part by itself in normal form, `None` if it does not fit.
    pub(super) fn alone(kind: Kind, value: &'a Value) -> Option<Value> {
        let mut decoder = Self::default();
        let normal = decoder.value(kind, "", value);
        normal.filter(|_| decoder.error.is_none())
    }

    /// Why a part by itself does not fit.
    pub(super) fn complaint(kind: Kind, value: &'a Value) -> Option<String> {
        let mut decoder = Self::default();
        decoder.value(kind, "", value);
        decoder.error
    }

    fn fail(&mut self, message: impl Into<String>) {
        self.error.get_or_insert_with(|| message.into());
    }

    /// A value with its own decoder does not fit: Go stops, and forgets what did not fit before.
    fn stop(&mut self, message: impl Into<String>) {
        if !self.is_over {
            self.is_over = true;
            self.error = Some(message.into());
        }
    }

    /// A value of the wrong type.
    fn mismatch(&self, found: &str, go_type: &str) -> String {
        let names: Vec<&str> = self
            .path
            .iter()
            .filter_map(|step| match step {
                Step::Field(name) | Step::Embedded(name) => Some(*name),
                Step::Index(_) | Step::Entry(_) => None,
            })
            .collect();
        let (owner, names) = (self.owner, names.join("."));
        let go_type = go_type.trim_start_matches('*');
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{names} of type {go_type}")
    }

    fn object(&mut self, it: &Type, fields: &'a Object) -> Object {
        let mut slots: Vec<Option<Value>> = vec![None; it.fields.len()];
        let owner = std::mem::replace(&mut self.owner, it.name);
        let mut next = 0;
        for (key, value) in fields.iter() {
            // What was written by us or by Go has the order of the type: the field is among the next ones.
            let from = |at: usize| it.fields.iter().enumerate().skip(at).find(|(_, field)| field.name == key);
            let known = from(next).or_else(|| from(0));
            let depth = self.path.len();
            if known.is_some_and(|(_, field)| !field.embedded.is_empty()) {
                self.path.push(Step::Embedded(embedded_in(it)));
            }
            self.path.push(Step::Field(key));
            match known {
                Some(_) if value.is_null() => {}
                Some((at, field)) => {
                    next = at.saturating_add(1);
                    let value = self.value(field.kind, field.go_type, value);
                    if let Some(slot) = slots.get_mut(at) {
                        *slot = value;
                    }
                }
                None if self.lenient => {}
                None => {
                    let path = render(&self.path);
                    self.unknown_fields.push(path);
                }
            }
            self.path.truncate(depth);
        }
        self.owner = owner;
        let mut out = Vec::with_capacity(slots.iter().flatten().count());
        for (field, slot) in it.fields.iter().zip(slots) {
            self.note_empty(it, field, slot.as_ref());
            if let Some(value) = shown(field, slot) {
                out.push((Text::const_new(field.name), value));
            }
        }
        // A type has no field twice.
        Object::from_distinct(out)
    }

    /// Remembers an empty list or map.
    fn note_empty(&mut self, owner: &Type, field: &Field, slot: Option<&Value>) {
        let empty = match (field.kind, slot) {
            (Kind::List(_), Some(Value::Array(items))) if items.is_empty() => Value::Array(Vec::new()),
            (Kind::Map(_), Some(Value::Object(fields))) if fields.is_empty() => Value::object(),
            _ => return,
        };
        // Label selectors and the like are written as JSON in messages, too.
        let is_written = owner.package.ends_with("/meta/v1") && owner.name != "ObjectMeta";
        if !field.pointer && !is_written {
            let steps = self.path.iter().filter_map(|step| match step {
                Step::Index(index) => Some(Part::Item(*index)),
                Step::Field(name) | Step::Entry(name) => Some(Part::Key(Text::new(name))),
                Step::Embedded(_) => None,
            });
            self.given_empty.add(steps.chain([Part::Key(Text::const_new(field.name))]).collect(), empty);
        }
    }

    /// The value in normal form, `None` if it does not fit.
    fn value(&mut self, kind: Kind, go_type: &str, value: &'a Value) -> Option<Value> {
        if value.is_null() && !matches!(kind, Kind::Any) {
            return Some(zero(kind));
        }
        match (kind, value) {
            (Kind::Any, _) => Some(value.clone()),
            (Kind::Bool, Value::Bool(_)) | (Kind::String, Value::String(_)) => Some(value.clone()),
            (Kind::Int64, Value::Int(_)) => Some(value.clone()),
            (Kind::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => Some(value.clone()),
            (Kind::Int32, Value::Int(number)) => self.refuse(&format!("number {number}"), go_type),
            (Kind::Int32 | Kind::Int64, Value::Float(number)) => {
                self.refuse(&format!("number {}", number.text()), go_type)
            }
            (Kind::Float64, Value::Int(_) | Value::Float(_)) => Some(value.clone()),
            (Kind::Bytes, Value::String(text)) => {
                let bytes = base64::decode(text).map(|bytes| base64::encode(&bytes).into());
                bytes.map_err(|error| self.fail(error.to_string())).ok()
            }
            (Kind::Quantity, _) => {
                let parsed = match value {
                    Value::String(text) => Quantity::parse(text.trim()),
                    Value::Int(number) => Quantity::parse(&number.to_string()),
                    Value::Float(number) => Quantity::parse(&number.text()),
                    _ => Err(ParseError::Format),
                };
                self.keep(parsed.map(|quantity| quantity.to_string().into()))
            }
            (Kind::IntOrString, _) => match IntOrString::from_value(value) {
                Ok(value) => Some(Value::from(&value)),
                // Told with the place, as all mismatches are.
                Err(_) => match value {
                    Value::Int(number) => self.refuse_special(&format!("number {number}"), "int32"),
                    Value::Float(number) => self.refuse_special(&format!("number {}", number.text()), "int32"),
                    other => self.refuse_special(other.kind(), "int32"),
                },
            },
            (Kind::Time | Kind::MicroTime | Kind::Duration, Value::String(text)) => {
                let result = match kind {
                    Kind::Duration => {
                        Duration::parse(text).map(|it| it.to_string().into()).map_err(|it| it.to_string())
                    }
                    Kind::MicroTime => parse_time(text, Layout::Micros),
                    _ => parse_time(text, Layout::Seconds),
                };
                self.keep(result)
            }
            (Kind::Time | Kind::MicroTime | Kind::Duration, other) => self.refuse_special(other.kind(), "string"),
            (Kind::Struct(it), Value::Object(fields)) => Some(Value::Object(self.object(it, fields))),
            (Kind::List(inner), Value::Array(items)) => {
                let inner_type = element_type(go_type);
                let mut out = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    self.path.push(Step::Index(index));
                    out.push(self.value(*inner, inner_type, item).unwrap_or_else(|| zero(*inner)));
                    self.path.pop();
                }
                Some(Value::Array(out))
            }
            (Kind::Map(inner), Value::Object(fields)) => {
                let inner_type = element_type(go_type);
                let mut out = Vec::with_capacity(fields.len());
                for (key, value) in fields.iter() {
                    self.path.push(Step::Entry(key));
                    let value = self.value(*inner, inner_type, value).unwrap_or_else(|| zero(*inner));
                    self.path.pop();
                    out.push((Text::new(key), value));
                }
                let mut out = Object::from_distinct(out);
                out.sort();
                Some(Value::Object(out))
            }
            (Kind::SchemaOrBool, Value::Bool(_)) => Some(value.clone()),
            // Go takes anything here, and keeps nothing of it.
            (Kind::SchemaOrList, Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_)) => {
                Some(Value::Null)
            }
            (Kind::SchemaOrBool | Kind::SchemaOrList, _) => self.schema(value),
            (_, other) => self.refuse(other.kind(), go_type),
        }
    }

    /// A schema or a list of schemas, which have a decoder of their own.
    fn schema(&mut self, value: &'a Value) -> Option<Value> {
        let it = super::by_name("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaProps")?;
        let lenient = std::mem::replace(&mut self.lenient, true);
        let decoded = match value {
            Value::Object(fields) => Some(Value::Object(self.object(it, fields))),
            Value::Array(items) => {
                let decoded = items.iter().map(|item| self.value(Kind::Struct(it), "v1.JSONSchemaProps", item));
                Some(Value::Array(decoded.map(Option::unwrap_or_default).collect()))
            }
            _ => {
                self.stop("boolean or JSON schema expected");
                None
            }
        };
        self.lenient = lenient;
        decoded
    }

    fn refuse(&mut self, found: &str, go_type: &str) -> Option<Value> {
        let message = self.mismatch(found, go_type);
        self.fail(message);
        None
    }

    /// The same for a value with its own decoder.
    fn refuse_special(&mut self, found: &str, go_type: &str) -> Option<Value> {
        let message = self.mismatch(found, go_type);
        self.stop(message);
        None
    }

    fn keep<E: ToString>(&mut self, result: Result<Value, E>) -> Option<Value> {
        result.map_err(|error| self.stop(error.to_string())).ok()
    }
}

fn parse_time(text: &str, layout: Layout) -> Result<Value, String> {
    let time = Timestamp::parse_layout(text, layout).map_err(|error| error.to_string())?;
    Ok(match layout {
        _ if time.is_zero() => Value::Null,
        Layout::Seconds => time.to_string().into(),
        Layout::Micros => time.to_micro_string().into(),
    })
}

/// What Go calls the items of a list or the values of a map.
pub(super) fn element_type(go_type: &str) -> &str {
    let go_type = go_type.trim_start_matches('*');
    if let Some(inner) = go_type.strip_prefix("[]") {
        return inner;
    }
    match go_type.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        Some((_, inner)) => inner,
        None => "string",
    }
}

/// What Go calls the struct that is embedded in a type.
fn embedded_in(it: &Type) -> &'static str {
    match it.name {
        "EphemeralContainer" => "EphemeralContainerCommon",
        "PersistentVolumeSpec" => "PersistentVolumeSource",
        "Probe" => "ProbeHandler",
        "Volume" => "VolumeSource",
        // Selectors, projections and sources of config maps and secrets.
        _ => "LocalObjectReference",
    }
}

/// `spec.containers[0].name`; entries of maps stand behind a point like fields.
fn render(path: &[Step<'_>]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Index(index) => out.push_str(&format!("[{index}]")),
            Step::Embedded(_) => {}
            Step::Field(name) | Step::Entry(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
        }
    }
    out
}

/// What is written for a field, `None` if Go leaves it out.
pub(super) fn shown(field: &Field, value: Option<Value>) -> Option<Value> {
    if field.pointer {
        return match value {
            None => (!field.omit_empty).then_some(Value::Null),
            some => some,
        };
    }
    let value = value.unwrap_or_else(|| zero(field.kind));
    let omitted = (field.omit_empty && field.is_plain() && is_empty(&value)) || (field.omit_zero && value.is_null());
    (!omitted).then_some(value)
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => true,
        Value::Float(number) => number.get() == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Go's zero value, as JSON shows it.
pub(super) fn zero(kind: Kind) -> Value {
    match kind {
        Kind::Bool => false.into(),
        Kind::Int32 | Kind::Int64 | Kind::IntOrString => 0_i64.into(),
        Kind::Float64 => 0_i64.into(),
        Kind::String => "".into(),
        Kind::Quantity => "0".into(),
        Kind::Duration => "0s".into(),
        Kind::Struct(it) => {
            let fields = it.fields.iter().filter_map(|field| Some((Text::const_new(field.name), shown(field, None)?)));
            Value::Object(Object::from_distinct(fields.collect()))
        }
        Kind::SchemaOrBool => false.into(),
        _ => Value::Null,
    }
}
