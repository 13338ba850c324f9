//! Decoding of client input into the normal form of a type: Go's decoding and encoding in one step.
//!
//! The result has the fields of the type in Go's order, without what Go leaves out; maps are sorted, quantities, times
//! and base64 canonical. What does not fit is Go's error text, the first one in the text; what the type does not know
//! is dropped and listed. Follows `sigs.k8s.io/json` and the marshalers of the special types.

use super::given::{EmptyPositions, Part};
use super::{Field, Kind, PresentFields, Type};
use crate::base64;
use crate::duration::Duration;
use crate::int_or_string::IntOrString;
use crate::json::{COMPLAINT_BYTES_MAX, COMPLAINTS_MAX, Object, Text, Value};
use crate::quantity::{ParseError, Quantity};
use crate::time::{Layout, Timestamp};

/// An object in its type's normal form.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedObject {
    /// The object.
    pub value: Value,
    /// Paths of fields that the type does not have, in the order of the text.
    pub unknown_fields: Vec<String>,
    /// Positions of empty lists and maps in the input.
    pub given_empty: EmptyPositions,
}

/// Details of the input that decoding drops from an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// Paths of fields that the type does not have, in the order of the text.
    pub unknown_fields: Vec<String>,
    /// Positions of empty lists and maps in the input.
    pub given_empty: EmptyPositions,
}

impl Notes {
    /// Whether another unknown field is reported.
    fn has_room(&self) -> bool {
        let bytes: usize = self.unknown_fields.iter().map(String::len).sum();
        self.unknown_fields.len() < COMPLAINTS_MAX && bytes < COMPLAINT_BYTES_MAX
    }
}

/// Converts a value to the normal form of its type.
///
/// # Errors
/// Go's text for the first part that does not fit.
pub fn decode(object_type: &Type, value: &Value) -> Result<DecodedObject, String> {
    let mut value = value.clone();
    let Notes { unknown_fields, given_empty } = decode_in_place(object_type, &mut value)?;
    Ok(DecodedObject { value, unknown_fields, given_empty })
}

/// Like [`decode`], but in place: parts in normal form are not copied.
///
/// # Errors
/// Go's text for the first part that does not fit; the value is of no use then.
pub fn decode_in_place(object_type: &Type, value: &mut Value) -> Result<Notes, String> {
    let mut decoder = Decoder::default();
    match value {
        Value::Object(fields) => decoder.object(object_type, fields, None),
        Value::Null => {}
        other => {
            let kind = other.kind();
            return Err(format!("json: cannot unmarshal {kind} into Go value of type {}", object_type.go_type()));
        }
    }
    decoder.error.map_or(Ok(decoder.notes), Err)
}

/// Converts a changed object back to its type's normal form. Parts that do not fit the type are unchanged.
pub fn normalize(object_type: &Type, value: &mut Value) {
    if let Value::Object(fields) = value {
        Decoder { lenient: true, normalizes: true, ..Decoder::default() }.object(object_type, fields, None);
    }
}

/// Returns the error of a part that does not fit on its own.
pub(super) fn complaint(kind: Kind, value: &Value) -> Option<String> {
    let mut decoder = Decoder::default();
    decoder.value(kind, "", &mut value.clone(), None);
    decoder.error
}

/// An object without content, in normal form.
#[must_use]
pub fn empty(object_type: &'static Type) -> Value {
    zero(Kind::Struct(object_type))
}

/// Position of a value: the last step, and those before it.
struct Place<'a> {
    before: Option<&'a Place<'a>>,
    step: Step<'a>,
}

/// A step to a value.
#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    /// An entry of a map, which type errors do not name.
    Entry(&'a str),
    /// A struct inside of a struct, which only type errors name.
    Embedded(&'static str),
}

impl Place<'_> {
    /// Formats a path such as `spec.containers[0].name`; entries of maps are written like fields.
    fn render(&self) -> String {
        let mut out = self.before.map(Place::render).unwrap_or_default();
        match self.step {
            Step::Index(index) => out.push_str(&format!("[{index}]")),
            Step::Embedded(_) => {}
            Step::Field(name) | Step::Entry(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
        }
        out
    }

    /// The fields alone: `spec.containers.name`.
    fn fields(&self) -> String {
        let mut out = self.before.map(Place::fields).unwrap_or_default();
        if let Step::Field(name) | Step::Embedded(name) = self.step {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(name);
        }
        out
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = self.before.map(Place::parts).unwrap_or_default();
        match self.step {
            Step::Index(index) => parts.push(Part::Item(index)),
            Step::Field(name) | Step::Entry(name) => parts.push(Part::Key(Text::new(name))),
            Step::Embedded(_) => {}
        }
        parts
    }
}

#[derive(Default)]
struct Decoder {
    notes: Notes,
    /// The first mismatch, after which decoding continues as in Go, or the error that ended it.
    error: Option<String>,
    /// Whether a value with its own decoder ended decoding.
    is_over: bool,
    /// The struct around the current value, for type errors.
    owner: &'static str,
    /// Whether unknown fields are passed over in silence, as inside values with their own decoder.
    lenient: bool,
    /// Whether the object has been decoded before, so that no notes are needed.
    normalizes: bool,
}

impl Decoder {
    fn fail(&mut self, message: impl Into<String>) {
        self.error.get_or_insert_with(|| message.into());
    }

    /// A value with its own decoder does not fit: Go stops and discards earlier mismatches.
    fn stop(&mut self, message: impl Into<String>) {
        if !self.is_over {
            self.is_over = true;
            self.error = Some(message.into());
        }
    }

    fn mismatch(&self, found: &str, go_type: &str, at: Option<&Place<'_>>) -> String {
        let (owner, names) = (self.owner, at.map(Place::fields).unwrap_or_default());
        let go_type = go_type.trim_start_matches('*');
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{names} of type {go_type}")
    }

    /// A value of the wrong type.
    fn refuse(&mut self, found: &str, go_type: &str, at: Option<&Place<'_>>) {
        let message = self.mismatch(found, go_type, at);
        self.fail(message);
    }

    /// Reports a mismatch of a value with its own decoder.
    fn refuse_special(&mut self, found: &str, go_type: &str, at: Option<&Place<'_>>) {
        let message = self.mismatch(found, go_type, at);
        self.stop(message);
    }

    fn object(&mut self, object_type: &Type, fields: &mut Object, at: Option<&Place<'_>>) {
        let owner = std::mem::replace(&mut self.owner, object_type.name);
        let mut present: PresentFields = 0;
        let mut next = 0;
        let mut is_normal = true;
        for (key, value) in fields.iter_mut() {
            let Some((index, field)) = object_type.find_from(next, key) else {
                is_normal = false;
                if !self.lenient && self.notes.has_room() {
                    let place = Place { before: at, step: Step::Field(key) };
                    self.notes.unknown_fields.push(place.render());
                }
                continue;
            };
            let embedding = (!field.embedded.is_empty())
                .then(|| Place { before: at, step: Step::Embedded(embedded_in(object_type)) });
            let before = embedding.as_ref().or(at);
            let place = Place { before, step: Step::Field(key) };
            is_normal &= index >= next;
            next = index.saturating_add(1);
            if value.is_null() {
                is_normal = false;
                continue;
            }
            self.value(field.kind, field.go_type, value, Some(&place));
            self.note_empty(object_type, field, value, &place);
            match bit(index)
                .filter(|_| !is_left_out(field, value) || (!self.normalizes && keeps_empty(object_type, field)))
            {
                Some(bit) => present |= bit,
                None => is_normal = false,
            }
        }
        self.owner = owner;
        let is_complete = present & object_type.required == object_type.required;
        if !is_normal || !is_complete {
            put_together(object_type, fields, present);
        }
    }

    /// Records an empty list or map.
    fn note_empty(&mut self, owner: &Type, field: &Field, value: &Value, at: &Place<'_>) {
        let empty = match (field.kind, value) {
            (Kind::List(_), Value::Array(items)) if items.is_empty() => Value::Array(Vec::new()),
            (Kind::Map(_), Value::Object(fields)) if fields.is_empty() => Value::object(),
            _ => return,
        };
        // Label selectors and the like are written as JSON in messages, too.
        let is_written = owner.package.ends_with("/meta/v1") && owner.name != "ObjectMeta";
        if !self.normalizes && !field.pointer && !is_written {
            self.notes.given_empty.add(|| at.parts(), empty);
        }
    }

    /// Converts a value to normal form; one that does not fit is unchanged.
    fn value(&mut self, kind: Kind, go_type: &str, value: &mut Value, at: Option<&Place<'_>>) {
        match (kind, &mut *value) {
            (Kind::Any, _) | (Kind::Bool, Value::Bool(_)) | (Kind::String, Value::String(_)) => {}
            (Kind::Int64, Value::Int(_)) | (Kind::Float64, Value::Int(_) | Value::Float(_)) => {}
            (Kind::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => {}
            (Kind::Time, Value::String(text)) if is_usual_time(text) => {}
            (Kind::Quantity, Value::String(text)) if Quantity::is_usual(text) => {}
            (Kind::IntOrString, Value::String(_)) => {}
            (Kind::Int32, Value::Int(number)) => self.refuse(&format!("number {number}"), go_type, at),
            (Kind::Int32 | Kind::Int64, Value::Float(number)) => {
                self.refuse(&format!("number {}", number.text()), go_type, at);
            }
            (Kind::Bytes, Value::String(text)) => match base64::decode(text) {
                Ok(bytes) => *value = base64::encode(&bytes).into(),
                Err(error) => self.fail(error.to_string()),
            },
            (Kind::Bytes, Value::Array(items)) => {
                if let Some(bytes) = self.bytes(items, at) {
                    *value = base64::encode(&bytes).into();
                }
            }
            (Kind::Quantity, _) => {
                let parsed = match value {
                    Value::String(text) => Quantity::parse(text.trim()),
                    Value::Int(number) => Quantity::parse(&number.to_string()),
                    Value::Float(number) => Quantity::parse(&number.text()),
                    _ => Err(ParseError::Format),
                };
                self.keep(value, parsed.map(|quantity| quantity.to_string().into()));
            }
            (Kind::IntOrString, _) => match IntOrString::from_value(value) {
                Ok(parsed) => *value = Value::from(&parsed),
                // Reported with the position, as all mismatches are.
                Err(_) => match value {
                    Value::Int(number) => self.refuse_special(&format!("number {number}"), "int32", at),
                    Value::Float(number) => self.refuse_special(&format!("number {}", number.text()), "int32", at),
                    other => self.refuse_special(other.kind(), "int32", at),
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
                self.keep(value, result);
            }
            (Kind::Time | Kind::MicroTime | Kind::Duration, other) => self.refuse_special(other.kind(), "string", at),
            (Kind::Struct(it), Value::Object(fields)) => self.object(it, fields, at),
            (Kind::List(inner), Value::Array(items)) => {
                let inner_type = element_type(go_type);
                for (index, item) in items.iter_mut().enumerate() {
                    self.element(*inner, inner_type, item, &Place { before: at, step: Step::Index(index) });
                }
            }
            (Kind::Map(inner), Value::Object(fields)) => {
                let inner_type = element_type(go_type);
                for (key, value) in fields.iter_mut() {
                    self.element(*inner, inner_type, value, &Place { before: at, step: Step::Entry(key) });
                }
                fields.sort();
            }
            (Kind::SchemaOrBool, Value::Bool(_)) => {}
            // Go takes anything here, and keeps nothing of it.
            (Kind::SchemaOrList, Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_)) => {
                *value = Value::Null;
            }
            (Kind::SchemaOrBool | Kind::SchemaOrList, _) => self.schema(value, at),
            (_, other) => self.refuse(other.kind(), go_type, at),
        }
    }

    /// Bytes written as a list of numbers, which Go reads as well as base64.
    fn bytes(&mut self, items: &[Value], at: Option<&Place<'_>>) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(items.len());
        for item in items {
            let number = match item {
                Value::Null => Some(0),
                Value::Int(number) => u8::try_from(*number).ok(),
                _ => None,
            };
            let found = match item {
                Value::Int(number) => format!("number {number}"),
                Value::Float(number) => format!("number {}", number.text()),
                other => other.kind().to_owned(),
            };
            let Some(number) = number else {
                self.refuse(&found, "uint8", at);
                return None;
            };
            bytes.push(number);
        }
        Some(bytes)
    }

    /// An item of a list or the value of an entry.
    fn element(&mut self, kind: Kind, go_type: &str, value: &mut Value, at: &Place<'_>) {
        if value.is_null() && !matches!(kind, Kind::Any) {
            *value = zero(kind);
        } else {
            self.value(kind, go_type, value, Some(at));
        }
    }

    /// Decodes a schema or a list of schemas, which have their own decoder.
    fn schema(&mut self, value: &mut Value, at: Option<&Place<'_>>) {
        let package = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
        let Some(it) = super::by_name(package, "JSONSchemaProps") else { return };
        let lenient = std::mem::replace(&mut self.lenient, true);
        match value {
            Value::Object(fields) => self.object(it, fields, at),
            Value::Array(items) => {
                for item in items.iter_mut().filter(|item| !item.is_null()) {
                    self.value(Kind::Struct(it), "v1.JSONSchemaProps", item, at);
                }
                items.iter_mut().filter(|item| item.is_null()).for_each(|item| *item = zero(Kind::Struct(it)));
            }
            _ => self.stop("boolean or JSON schema expected"),
        }
        self.lenient = lenient;
    }

    fn keep<E: ToString>(&mut self, value: &mut Value, normal: Result<Value, E>) {
        match normal {
            Ok(normal) => *value = normal,
            Err(error) => self.stop(error.to_string()),
        }
    }
}

/// Go's name of the struct that is embedded in a type.
fn embedded_in(object_type: &Type) -> &'static str {
    match object_type.name {
        "EphemeralContainer" => "EphemeralContainerCommon",
        "PersistentVolumeSpec" => "PersistentVolumeSource",
        "Probe" => "ProbeHandler",
        "Volume" => "VolumeSource",
        // Selectors, projections and sources of config maps and secrets.
        _ => "LocalObjectReference",
    }
}

/// Rebuilds the object from its parts, which are in normal form.
fn put_together(it: &Type, fields: &mut Object, present: PresentFields) {
    let mut next = 0;
    let mut parts: Vec<(usize, Text, Value)> = Vec::with_capacity(fields.len().saturating_add(4));
    for (key, value) in std::mem::take(fields) {
        let Some((at, field)) = it.find_from(next, &key) else { continue };
        next = at.saturating_add(1);
        if !value.is_null() {
            let is_kept = keeps_empty(it, field) && bit(at).is_some_and(|bit| present & bit != 0);
            let value = if is_kept { Some(value) } else { shown(field, Some(value)) };
            parts.extend(value.map(|value| (at, key, value)));
        }
    }
    for (at, field) in it.fields.iter().enumerate() {
        let is_present = bit(at).is_some_and(|bit| present & bit != 0);
        if !is_present && !field.is_left_out_if_missing() && !parts.iter().any(|(it, ..)| *it == at) {
            parts.extend(shown(field, None).map(|value| (at, Text::const_new(field.name), value)));
        }
    }
    parts.sort_unstable_by_key(|(at, ..)| *at);
    // A type has no field twice.
    *fields = Object::from_distinct(parts.into_iter().map(|(_, key, value)| (key, value)).collect());
}

/// The bit of the field at an index.
fn bit(index: usize) -> Option<PresentFields> {
    u32::try_from(index).ok().and_then(|index| PresentFields::checked_shl(1, index))
}

/// Whether an empty list stays when an object is read, because defaults fill in only a missing one.
fn keeps_empty(owner: &Type, field: &Field) -> bool {
    (owner.name, field.name) == ("HPAScalingRules", "policies")
}

/// Whether Go leaves a field with this value out.
fn is_left_out(field: &Field, value: &Value) -> bool {
    !field.pointer
        && ((field.omit_empty && field.is_plain() && is_empty(value)) || (field.omit_zero && value.is_null()))
}

/// Whether this is a time as we write it: `2006-01-02T15:04:05Z`. Rare ones are parsed.
fn is_usual_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let form = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |(byte, form): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { byte == form };
    let number = |at: usize| text.get(at..at.saturating_add(2)).and_then(|digits| digits.parse::<u8>().ok());
    let within = |at: usize, least: u8, most: u8| number(at).is_some_and(|number| (least..=most).contains(&number));
    bytes.len() == form.len()
        && bytes.iter().zip(form).all(fits)
        && !text.starts_with('0')
        && within(5, 1, 12)
        && within(8, 1, 28)
        && within(11, 0, 23)
        && within(14, 0, 59)
        && within(17, 0, 59)
}

fn parse_time(text: &str, layout: Layout) -> Result<Value, String> {
    let time = Timestamp::parse_layout(text, layout).map_err(|error| error.to_string())?;
    Ok(match layout {
        _ if time.is_zero() => Value::Null,
        Layout::Seconds => time.to_string().into(),
        Layout::Micros => time.to_micro_string().into(),
    })
}

/// Go's name for the items of a list or the values of a map.
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

/// Returns the value to write for a field; `None` if Go omits it.
fn shown(field: &Field, value: Option<Value>) -> Option<Value> {
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

fn is_empty(value: &Value) -> bool {
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
            let fields = it.fields.iter().filter(|field| !field.is_left_out_if_missing());
            let fields = fields.filter_map(|field| Some((Text::const_new(field.name), shown(field, None)?)));
            Value::Object(Object::from_distinct(fields.collect()))
        }
        Kind::SchemaOrBool => false.into(),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_times_are_those_that_decoding_keeps() {
        for text in ["2020-01-02T03:04:05Z", "1999-12-28T23:59:59Z"] {
            assert!(is_usual_time(text), "{text}");
            assert_eq!(parse_time(text, Layout::Seconds), Ok(text.into()));
        }
        for text in ["0001-01-01T00:00:00Z", "2020-01-29T00:00:00Z", "2020-13-01T00:00:00Z", "2020-01-02T03:04:05+", ""]
        {
            assert!(!is_usual_time(text), "{text}");
        }
    }
}
