//! Documents become objects of a built-in type: known fields only, zero values left out, in Go's order.
//!
//! The result is what Go writes after it has read the document: quantities, times and durations in canonical form,
//! fields of required lists null where they are missing. Errors are those of Kubernetes' decoder
//! (`sigs.k8s.io/json`): the first wrong type is kept and reading goes on, a malformed scalar ends it at once.

use api::Quantity;
use api::duration::Duration;
use api::int_or_string::IntOrString;
use api::json::{Object, Text, Value};
use api::time::{Layout, Timestamp};
use api::types::{self, Field, Kind, Type};

/// A document as an object of its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object in normal form.
    pub object: Value,
    /// What strict field validation complains about: `unknown field "spec.bogus"`.
    pub strict_errors: Vec<String>,
}

/// Why a document is no object of its type; the text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

/// Reads `document` as an object of `of`.
///
/// # Errors
/// The first field whose value does not fit.
pub fn decode(of: &'static Type, document: &Value) -> Result<Decoded, DecodeError> {
    let mut decoder = Decoder { fields: Vec::new(), path: String::new(), saved: None, strict_errors: Vec::new() };
    let object = decoder.structure(of, document, &format!("{}.{}", version(of), of.name)).map_err(DecodeError)?;
    match decoder.saved {
        Some(error) => Err(DecodeError(error)),
        None => Ok(Decoded { object, strict_errors: decoder.strict_errors }),
    }
}

/// Brings an object that was changed back into normal form.
#[must_use]
pub fn normalize(of: &'static Type, object: &Value) -> Value {
    decode(of, object).map_or_else(|_| object.clone(), |decoded| decoded.object)
}

fn version(of: &Type) -> &str {
    of.package.rsplit('/').next().unwrap_or_default()
}

struct Decoder {
    /// The struct that is being read, and the fields on the way.
    fields: Vec<(&'static str, &'static str)>,
    /// The same for strict errors, with indexes and keys.
    path: String,
    saved: Option<String>,
    strict_errors: Vec<String>,
}

impl Decoder {
    fn structure(&mut self, of: &'static Type, value: &Value, go_type: &str) -> Result<Value, String> {
        let fields = match value {
            Value::Null => &Object::new(),
            Value::Object(fields) => fields,
            other => {
                self.mismatch(other, go_type);
                &Object::new()
            }
        };
        let mut decoded: Vec<Option<Value>> = vec![None; of.fields.len()];
        for (name, value) in fields.iter() {
            let Some((index, field)) = of.fields.iter().enumerate().find(|(_, field)| field.name == name) else {
                let dot = if self.path.is_empty() { "" } else { "." };
                self.strict_errors.push(format!("unknown field \"{}{dot}{name}\"", self.path));
                continue;
            };
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            self.fields.push((of.name, field.name));
            let result = self.field(field, value);
            self.fields.pop();
            self.path.truncate(length);
            if let (Some(slot), Some(value)) = (decoded.get_mut(index), result?) {
                *slot = Some(value);
            }
        }
        let mut object = Object::with_capacity(fields.len());
        for (field, value) in of.fields.iter().zip(decoded) {
            if let Some(value) = value.or_else(|| zero(field)) {
                object.insert(field.name, value);
            }
        }
        Ok(Value::Object(object))
    }

    /// The value of a field in normal form, none if it is left out.
    fn field(&mut self, field: &'static Field, value: &Value) -> Result<Option<Value>, String> {
        if value.is_null() {
            return Ok(None);
        }
        let go_type = field.go_type.trim_start_matches('*');
        let value = self.value(&field.kind, value, go_type)?;
        let is_left_out = match &value {
            Value::Null => true,
            Value::Array(items) => field.omit_empty && items.is_empty() && !field.pointer,
            Value::Object(fields) => {
                (matches!(field.kind, Kind::Map(_)) && field.omit_empty && fields.is_empty() && !field.pointer)
                    || (field.omit_zero && !field.pointer && is_zero_struct(&value))
            }
            Value::String(text) if matches!(field.kind, Kind::Quantity | Kind::Duration | Kind::IntOrString) => {
                field.omit_zero && !field.pointer && matches!(text.as_str(), "0" | "0s")
            }
            Value::String(text) => field.omit_empty && text.is_empty() && !field.pointer,
            Value::Bool(value) => field.omit_empty && !value && !field.pointer,
            Value::Int(value) => {
                let is_scalar = !matches!(field.kind, Kind::IntOrString);
                (field.omit_empty && is_scalar || field.omit_zero) && *value == 0 && !field.pointer
            }
            Value::Float(value) => field.omit_empty && value.get() == 0.0 && !field.pointer,
        };
        Ok((!is_left_out).then_some(value))
    }

    fn value(&mut self, kind: &'static Kind, value: &Value, go_type: &str) -> Result<Value, String> {
        Ok(match (kind, value) {
            (Kind::Struct(of), _) => self.structure(of, value, go_type)?,
            (Kind::Any, _) => value.clone(),
            (Kind::SchemaOrList, Value::Array(items)) => {
                let items = items.iter().map(|item| self.schema(item));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            (Kind::SchemaOrBool, Value::Bool(_)) => value.clone(),
            (Kind::SchemaOrList | Kind::SchemaOrBool, _) => self.schema(value)?,
            (Kind::Quantity, _) => quantity(value)?,
            (Kind::IntOrString, _) => match IntOrString::from_value(value)? {
                IntOrString::Int(number) => Value::from(number),
                IntOrString::String(text) => Value::String(text),
            },
            (_, Value::Null) => Value::Null,
            (Kind::Time, Value::String(text)) => time(text, Layout::Seconds)?,
            (Kind::MicroTime, Value::String(text)) => time(text, Layout::Micros)?,
            (Kind::Duration, Value::String(text)) => {
                Value::from(Duration::parse(text).map_err(|error| error.to_string())?.to_string())
            }
            (Kind::Time | Kind::MicroTime | Kind::Duration, other) => {
                return Err(format!("json: cannot unmarshal {} into Go value of type string", other.kind()));
            }
            (Kind::Bool, Value::Bool(_)) | (Kind::String, Value::String(_)) => value.clone(),
            (Kind::Int64 | Kind::Float64, Value::Int(_)) => value.clone(),
            (Kind::Float64, Value::Float(number)) => Value::from(number.get()),
            (Kind::Int32, Value::Int(number)) if i32::try_from(*number).is_ok() => value.clone(),
            (Kind::Int32 | Kind::Int64, Value::Int(number)) => {
                self.complain(&format!("number {number}"), go_type);
                Value::Null
            }
            (Kind::Int32 | Kind::Int64, Value::Float(number)) => {
                self.complain(&format!("number {}", number.text()), go_type);
                Value::Null
            }
            (Kind::Bytes, Value::String(text)) => {
                if let Some(position) = base64_error(text) {
                    self.save(format!("illegal base64 data at input byte {position}"));
                    return Ok(Value::Null);
                }
                Value::from(text.replace(['\r', '\n'], ""))
            }
            (Kind::List(inner), Value::Array(items)) => {
                let item_type = go_type.strip_prefix("[]").unwrap_or(go_type).trim_start_matches('*');
                let mut list = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let length = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    let decoded = self.value(inner, item, item_type);
                    self.path.truncate(length);
                    list.push(or_zero(inner, decoded?));
                }
                Value::Array(list)
            }
            (Kind::Map(inner), Value::Object(fields)) => {
                let item_type = go_type.strip_prefix("map[string]").unwrap_or(match inner {
                    Kind::Quantity => "resource.Quantity",
                    _ => go_type,
                });
                let mut map = Object::with_capacity(fields.len());
                for (key, value) in fields.iter() {
                    let length = self.path.len();
                    self.path.push('.');
                    self.path.push_str(key);
                    let decoded = self.value(inner, value, item_type.trim_start_matches('*'));
                    self.path.truncate(length);
                    map.insert(Text::from(key), or_zero(inner, decoded?));
                }
                map.sort();
                Value::Object(map)
            }
            (_, other) => {
                self.mismatch(other, go_type);
                Value::Null
            }
        })
    }

    fn schema(&mut self, value: &Value) -> Result<Value, String> {
        let of = types::by_name("k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSONSchemaProps");
        of.map_or_else(|| Ok(value.clone()), |of| self.structure(of, value, "v1.JSONSchemaProps"))
    }

    fn mismatch(&mut self, value: &Value, go_type: &str) {
        self.complain(value.kind(), go_type);
    }

    fn complain(&mut self, what: &str, go_type: &str) {
        let target = match self.fields.last() {
            None => format!("Go value of type {go_type}"),
            Some((structure, _)) => {
                let path: Vec<_> = self.fields.iter().map(|(_, field)| *field).collect();
                format!("Go struct field {structure}.{} of type {go_type}", path.join("."))
            }
        };
        self.save(format!("json: cannot unmarshal {what} into {target}"));
    }

    fn save(&mut self, error: String) {
        self.saved.get_or_insert(error);
    }
}

/// What Go writes for a field that was never set, none if it is left out.
fn zero(field: &'static Field) -> Option<Value> {
    if field.pointer {
        return (!field.omit_empty).then_some(Value::Null);
    }
    match field.kind {
        Kind::Struct(_) => (!field.omit_zero).then(|| zero_of(&field.kind)),
        Kind::Quantity | Kind::IntOrString | Kind::Time | Kind::MicroTime | Kind::Duration => {
            (!field.omit_zero).then(|| zero_of(&field.kind))
        }
        Kind::Any => (!field.omit_empty && !field.omit_zero || field.go_type == "runtime.RawExtension")
            .then_some(Value::Null)
            .filter(|_| !field.omit_zero),
        _ => (!field.omit_empty).then(|| zero_of(&field.kind)),
    }
}

fn or_zero(kind: &Kind, value: Value) -> Value {
    if value.is_null() { zero_of(kind) } else { value }
}

fn zero_of(kind: &Kind) -> Value {
    match kind {
        Kind::Bool => Value::Bool(false),
        Kind::Int32 | Kind::Int64 | Kind::Float64 | Kind::IntOrString => Value::Int(0),
        Kind::String => Value::from(""),
        Kind::Quantity => Value::from("0"),
        Kind::Duration => Value::from("0s"),
        Kind::Struct(of) => {
            let fields = of.fields.iter().filter_map(|field| Some((field.name, zero(field)?)));
            Value::Object(fields.collect())
        }
        _ => Value::Null,
    }
}

fn is_zero_struct(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| {
        fields.values().all(|value| match value {
            Value::Null | Value::Bool(false) | Value::Int(0) => true,
            Value::String(text) => text.is_empty(),
            Value::Object(_) => is_zero_struct(value),
            _ => false,
        })
    })
}

fn quantity(value: &Value) -> Result<Value, String> {
    let text = match value {
        Value::Null => return Ok(Value::from("0")),
        Value::String(text) => text.trim().to_owned(),
        Value::Float(number) => number.text(),
        other => api::json::to_string(other),
    };
    Quantity::parse(&text).map(|it| Value::from(it.to_string())).map_err(|error| error.to_string())
}

fn time(text: &str, layout: Layout) -> Result<Value, String> {
    let time = Timestamp::parse_layout(text, layout).map_err(|error| error.to_string())?;
    Ok(match layout {
        _ if time.is_zero() => Value::Null,
        Layout::Seconds => Value::from(Timestamp { nanos: 0, ..time }.to_string()),
        Layout::Micros => Value::from(time.to_micro_string()),
    })
}

/// Where a text stops being base64, as Go counts it.
fn base64_error(text: &str) -> Option<usize> {
    let mut group = 0_usize;
    let mut bytes = text.bytes().enumerate().filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'));
    while let Some((position, byte)) = bytes.next() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => group = group.wrapping_add(1) % 4,
            b'=' if group == 2 => {
                return match bytes.next() {
                    Some((_, b'=')) => bytes.next().map(|(position, _)| position),
                    Some((position, _)) => Some(position),
                    None => Some(text.len()),
                };
            }
            b'=' if group == 3 => return bytes.next().map(|(position, _)| position),
            _ => return Some(position),
        }
    }
    (group != 0).then_some(text.len().saturating_sub(group))
}
