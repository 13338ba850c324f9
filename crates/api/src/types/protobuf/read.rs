//! Conversion of a message to the JSON document of the same object.
//!
//! Only fields on the wire are added to the document; the normal form adds or removes others as Go does.
//! Unknown fields are skipped, repeated parts of a message are merged, the last of two scalars wins.

use std::cell::Cell;

use super::ProtobufError;
use super::wire::{Tag, Wire};
use crate::base64;
use crate::duration::Duration;
use crate::json::{self, ELEMENTS_MAX, Float, Object, Text, Value};
use crate::time::Timestamp;
use crate::types::{Field, Kind, Type};

type Result<T> = std::result::Result<T, ProtobufError>;

/// Maximum nesting depth of messages. A level is at most two of a document.
const DEPTH_MAX: usize = 200;

const SCHEMAS: &str = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";

/// The last second that RFC 3339 can show.
const SECONDS_MAX: i64 = 253_402_300_799;

/// Reads a message of a type.
///
/// # Errors
/// [`ProtobufError`].
pub fn read(object_type: &'static Type, message: &[u8]) -> Result<Value> {
    let (mut fields, left) = (Object::new(), Cell::new(ELEMENTS_MAX));
    read_message(object_type, &[], message, &mut fields, Level { depth: 0, left: &left })?;
    Ok(Value::Object(fields))
}

/// The place of a message in the document.
#[derive(Clone, Copy)]
struct Level<'l> {
    depth: usize,
    /// Objects that lists may still hold. An empty one takes two bytes here, and a hundred times as many when it is read.
    left: &'l Cell<usize>,
}

impl Level<'_> {
    fn inner(self) -> Self {
        Self { depth: self.depth.saturating_add(1), ..self }
    }
}

/// Reads into `out` the fields of the message `prefix` of a type: `[]` for its own, else an embedded struct.
fn read_message(
    it: &'static Type,
    prefix: &'static [u16],
    message: &[u8],
    out: &mut Object,
    level: Level<'_>,
) -> Result<()> {
    if level.depth > DEPTH_MAX {
        return Err(ProtobufError::malformed("proto: message nested too deep"));
    }
    let mut maps: Vec<(&'static Field, Vec<(Text, Value)>)> = Vec::new();
    let mut wire = Wire::new(message);
    while let Some(tag) = wire.tag(it.name)? {
        let is_tag = |number: u16| u32::from(number) == tag.number;
        if let Some(field) = it.fields.iter().find(|field| is_tag(field.number) && field.embedded == prefix) {
            if let Kind::Map(inner) = field.kind {
                let entry = read_entry(field, *inner, wire.message(tag, field.go_name)?, level)?;
                match maps.iter_mut().find(|(it, _)| it.name == field.name) {
                    Some((_, entries)) => entries.push(entry),
                    None => maps.push((field, vec![entry])),
                }
            } else {
                read_field(field, tag, &mut wire, out, level)?;
            }
            continue;
        }
        let inner = it.fields.iter().find_map(|field| {
            let inner = field.embedded.get(..=prefix.len())?;
            (inner.starts_with(prefix) && inner.last().copied().is_some_and(is_tag)).then_some(inner)
        });
        match inner {
            Some(inner) => {
                let message = wire.message(tag, it.name)?;
                read_message(it, inner, message, out, level.inner())?;
            }
            None => wire.skip(tag)?,
        }
    }
    for (field, mut entries) in maps {
        if let Some(Value::Object(earlier)) = out.remove(field.name) {
            let earlier = earlier.iter().map(|(key, value)| (key.into(), value.clone()));
            entries.splice(..0, earlier.collect::<Vec<_>>());
        }
        out.insert(field.name, Value::Object(distinct(entries)));
    }
    Ok(())
}

/// The entries of a map by key; the last of several with the same one counts.
fn distinct(mut entries: Vec<(Text, Value)>) -> Object {
    entries.reverse();
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    entries.dedup_by(|(later, _), (kept, _)| later == kept);
    Object::from_distinct(entries)
}

fn read_field(field: &'static Field, tag: Tag, wire: &mut Wire<'_>, out: &mut Object, level: Level<'_>) -> Result<()> {
    match field.kind {
        Kind::List(inner) if !is_named_list(field.go_type) => {
            let list = out.get_or_insert(field.name, || Value::Array(Vec::new()));
            let Some(items) = list.as_array_mut() else { return Ok(()) };
            if matches!(inner, Kind::Struct(_)) {
                let left = level.left.get().checked_sub(1).ok_or(ProtobufError::TooManyElements)?;
                level.left.set(left);
            }
            if tag.kind == 2 && matches!(inner, Kind::Bool | Kind::Int32 | Kind::Int64) {
                let mut packed = Wire::new(wire.delimited()?);
                while !packed.is_empty() {
                    let item = Tag { kind: 0, ..tag };
                    items.push(read_value(field, *inner, item, &mut packed, level)?);
                }
            } else {
                items.push(read_value(field, *inner, tag, wire, level)?);
            }
        }
        Kind::Struct(it) => {
            let message = wire.message(tag, field.go_name)?;
            if let Some(inner) = out.get_or_insert(field.name, Value::object).as_object_mut() {
                read_message(it, &[], message, inner, level.inner())?;
            }
        }
        kind => {
            let value = read_value(field, kind, tag, wire, level)?;
            out.insert(field.name, value);
        }
    }
    Ok(())
}

fn read_entry(field: &'static Field, inner: Kind, message: &[u8], level: Level<'_>) -> Result<(Text, Value)> {
    let mut wire = Wire::new(message);
    let (mut key, mut value) = (Text::default(), None);
    while let Some(tag) = wire.tag(field.go_name)? {
        match tag.number {
            1 => key = wire.text(tag, field.go_name)?.into(),
            2 => value = Some(read_value(field, inner, tag, &mut wire, level)?),
            _ => wire.skip(tag)?,
        }
    }
    let missing = || match inner {
        // Not null, as a field would be.
        Kind::Bytes => "".into(),
        kind => crate::types::decode::zero(kind),
    };
    Ok((key, value.unwrap_or_else(missing)))
}

/// A scalar, an item of a list, or a value of a map.
fn read_value(field: &'static Field, kind: Kind, tag: Tag, wire: &mut Wire<'_>, level: Level<'_>) -> Result<Value> {
    let name = field.go_name;
    match kind {
        Kind::Bool => return Ok((wire.number(tag, name)? != 0).into()),
        Kind::Int64 => return Ok(wire.number(tag, name)?.cast_signed().into()),
        Kind::Int32 => return Ok(i64::from(low_32(wire.number(tag, name)?)).into()),
        Kind::Float64 => {
            let number = wire.double(tag, name)?;
            if !number.is_finite() {
                return Err(ProtobufError::malformed(format!("json: unsupported value: {number}")));
            }
            return Ok(Value::Float(Float::new(number)));
        }
        _ => {}
    }
    let message = wire.message(tag, name)?;
    let inner = level.inner();
    match kind {
        Kind::String => Ok(Value::String(String::from_utf8_lossy(message).into())),
        Kind::Bytes => Ok(base64::encode(message).into()),
        Kind::Quantity => read_quantity(message),
        Kind::IntOrString => read_int_or_string(message),
        Kind::Time | Kind::MicroTime => read_time(message, matches!(kind, Kind::MicroTime)),
        Kind::Duration => {
            let nanos = read_number(message, "Duration")?;
            Ok(Duration { nanos }.to_string().into())
        }
        Kind::Struct(it) => {
            let mut fields = Object::new();
            read_message(it, &[], message, &mut fields, inner)?;
            Ok(Value::Object(fields))
        }
        // A list in a list or in a map is a message with one repeated field.
        Kind::List(item) => {
            let mut items = Vec::new();
            let mut wire = Wire::new(message);
            while let Some(tag) = wire.tag(name)? {
                match tag.number {
                    1 => items.push(read_value(field, *item, tag, &mut wire, inner)?),
                    _ => wire.skip(tag)?,
                }
            }
            Ok(Value::Array(items))
        }
        Kind::SchemaOrBool | Kind::SchemaOrList => read_schema_or(kind, message, inner),
        Kind::Any if field.go_type.ends_with("JSONSchemaDependencies") => read_schema_or(kind, message, inner),
        Kind::Any if is_raw(field.go_type) => read_raw(message),
        _ => Err(ProtobufError::Unsupported(field.name)),
    }
}

/// Whether a type is a message whose only field holds JSON.
pub(super) fn is_raw(go_type: &str) -> bool {
    [".RawExtension", ".FieldsV1", ".JSON"].iter().any(|end| go_type.ends_with(end))
}

/// Whether a list has a named type: then it is a message even as a field.
pub(super) fn is_named_list(go_type: &str) -> bool {
    go_type == "v1.Verbs"
}

fn low_32(number: u64) -> i32 {
    u32::try_from(number & 0xffff_ffff).unwrap_or_default().cast_signed()
}

/// The number in the first field of a message.
fn read_number(message: &[u8], owner: &str) -> Result<i64> {
    let mut wire = Wire::new(message);
    let mut number = 0;
    while let Some(tag) = wire.tag(owner)? {
        match tag.number {
            1 => number = wire.number(tag, owner)?.cast_signed(),
            _ => wire.skip(tag)?,
        }
    }
    Ok(number)
}

fn read_quantity(message: &[u8]) -> Result<Value> {
    let mut wire = Wire::new(message);
    let mut text = None;
    while let Some(tag) = wire.tag("Quantity")? {
        match tag.number {
            1 => text = Some(wire.text(tag, "String_")?),
            _ => wire.skip(tag)?,
        }
    }
    let Some(text) = text else { return Ok("0".into()) };
    crate::quantity::Quantity::parse(&text).map_err(|error| ProtobufError::malformed(error.to_string()))?;
    Ok(text.into())
}

fn read_int_or_string(message: &[u8]) -> Result<Value> {
    let mut wire = Wire::new(message);
    let (mut kind, mut number, mut text) = (0, 0, String::new());
    while let Some(tag) = wire.tag("IntOrString")? {
        match tag.number {
            1 => kind = wire.number(tag, "Type")?.cast_signed(),
            2 => number = low_32(wire.number(tag, "IntVal")?),
            3 => text = wire.text(tag, "StrVal")?,
            _ => wire.skip(tag)?,
        }
    }
    match kind {
        0 => Ok(i64::from(number).into()),
        1 => Ok(text.into()),
        _ => Err(ProtobufError::malformed("impossible IntOrString.Type")),
    }
}

fn read_time(message: &[u8], micros: bool) -> Result<Value> {
    if message.is_empty() {
        return Ok(Value::Null);
    }
    let mut wire = Wire::new(message);
    let (mut seconds, mut nanos) = (0, 0);
    while let Some(tag) = wire.tag("Timestamp")? {
        match tag.number {
            1 => seconds = wire.number(tag, "Seconds")?.cast_signed(),
            2 => nanos = low_32(wire.number(tag, "Nanos")?),
            _ => wire.skip(tag)?,
        }
    }
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    let nanos = if micros { nanos } else { Some(0) };
    let Some(nanos) = nanos.filter(|_| (Timestamp::ZERO.seconds..=SECONDS_MAX).contains(&seconds)) else {
        return Err(ProtobufError::malformed("Time.MarshalJSON: year outside of range [0,9999]"));
    };
    let time = Timestamp { seconds, nanos };
    Ok(match micros {
        _ if time.is_zero() => Value::Null,
        true => time.to_micro_string().into(),
        false => time.to_string().into(),
    })
}

/// JSON as bytes in the first field of a message.
fn read_raw(message: &[u8]) -> Result<Value> {
    let mut wire = Wire::new(message);
    let mut raw: &[u8] = &[];
    while let Some(tag) = wire.tag("RawExtension")? {
        match tag.number {
            1 => raw = wire.message(tag, "Raw")?,
            _ => wire.skip(tag)?,
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    json::parse(raw).map_err(|error| ProtobufError::malformed(error.message))
}

/// A schema or something else: a boolean, a list of schemas, or a list of names.
fn read_schema_or(kind: Kind, message: &[u8], level: Level<'_>) -> Result<Value> {
    let Some(it) = crate::types::by_name(SCHEMAS, "JSONSchemaProps") else { return Ok(Value::Null) };
    let (schema_number, other_number) = if matches!(kind, Kind::SchemaOrBool) { (2, 1) } else { (1, 2) };
    let mut schema: Option<Object> = None;
    let (mut allows, mut others) = (false, Vec::new());
    let mut wire = Wire::new(message);
    while let Some(tag) = wire.tag("JSONSchemaProps")? {
        if tag.number == schema_number {
            let message = wire.message(tag, "Schema")?;
            read_message(it, &[], message, schema.get_or_insert_default(), level.inner())?;
        } else if tag.number != other_number {
            wire.skip(tag)?;
        } else if matches!(kind, Kind::SchemaOrBool) {
            allows = wire.number(tag, "Allows")? != 0;
        } else if matches!(kind, Kind::SchemaOrList) {
            let mut item = Object::new();
            let message = wire.message(tag, "JSONSchemas")?;
            read_message(it, &[], message, &mut item, level.inner())?;
            others.push(Value::Object(item));
        } else {
            others.push(wire.text(tag, "Property")?.into());
        }
    }
    Ok(match schema {
        _ if !others.is_empty() => Value::Array(others),
        Some(schema) => Value::Object(schema),
        None if matches!(kind, Kind::SchemaOrBool) => allows.into(),
        None => Value::Null,
    })
}
