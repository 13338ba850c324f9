//! Protobuf's well-known messages for values of the language: every environment has them, in addition to the
//! host's types.
//!
//! They can be built in an expression and become a value at once: `google.protobuf.Int64Value{value: 1}` is `1`.
//! Follows cel-go's registry; as there, only timestamps and durations are types at run time.

use std::sync::Arc;

use super::{FieldType, TypeProvider};
use crate::syntax::ast::Name;
use crate::types::{Primitive, Type};
use crate::value::{Bytes, Duration, ErrorKind, EvalError, Map, Timestamp, Value};

/// The host's types, and protobuf's own.
#[derive(Clone, Debug)]
pub(super) struct WellKnown(pub(super) Arc<dyn TypeProvider>);

impl TypeProvider for WellKnown {
    fn find_type(&self, name: &str) -> Option<Type> {
        self.0.find_type(name).or_else(|| message_type(message(name)?))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<FieldType> {
        let own = || Some(FieldType { field_type: field_type(message(type_name)?, field)? });
        self.0.find_field(type_name, field).or_else(own)
    }

    fn field_names(&self, type_name: &str) -> Vec<Name> {
        self.0.field_names(type_name)
    }

    fn find_type_value(&self, name: &str) -> Option<Type> {
        self.0.find_type_value(name)
    }

    fn find_constant(&self, name: &str) -> Option<Value<'static>> {
        self.0.find_constant(name)
    }

    fn construct<'v>(&self, type_name: &str, fields: Vec<(Name, Value<'v>)>) -> Result<Value<'v>, EvalError> {
        match message(type_name) {
            Some(message) if self.0.find_type(type_name).is_none() && is_built(message) => build(message, fields),
            _ => self.0.construct(type_name, fields),
        }
    }
}

/// The message's name in protobuf's own package.
fn message(type_name: &str) -> Option<&str> {
    type_name.strip_prefix("google.protobuf.")
}

fn message_type(message: &str) -> Option<Type> {
    Some(match message {
        "Any" => Type::Any,
        "Duration" => Type::Duration,
        "ListValue" => Type::list(Type::Dyn),
        "Struct" => Type::map(Type::String, Type::Dyn),
        "Timestamp" => Type::Timestamp,
        "Value" => Type::Dyn,
        _ => Type::Wrapper(wrapped(message)?),
    })
}

fn wrapped(message: &str) -> Option<Primitive> {
    Some(match message {
        "BoolValue" => Primitive::Bool,
        "BytesValue" => Primitive::Bytes,
        "DoubleValue" | "FloatValue" => Primitive::Double,
        "Int32Value" | "Int64Value" => Primitive::Int,
        "StringValue" => Primitive::String,
        "UInt32Value" | "UInt64Value" => Primitive::Uint,
        _ => return None,
    })
}

fn field_type(message: &str, field: &str) -> Option<Type> {
    Some(match (message, field) {
        ("Any", "type_url") | ("Value", "string_value") => Type::String,
        ("Any", "value") => Type::Bytes,
        ("Duration" | "Timestamp", "seconds" | "nanos") => Type::Int,
        ("ListValue", "values") | ("Value", "list_value") => Type::list(Type::Dyn),
        ("Struct", "fields") | ("Value", "struct_value") => Type::map(Type::String, Type::Dyn),
        ("Value", "bool_value") => Type::Bool,
        ("Value", "number_value") => Type::Double,
        ("Value", "null_value") => Type::Null,
        (_, "value") => wrapped(message)?.unwrapped(),
        _ => return None,
    })
}

fn is_built(message: &str) -> bool {
    message_type(message).is_some()
}

fn build<'v>(message: &str, fields: Vec<(Name, Value<'v>)>) -> Result<Value<'v>, EvalError> {
    let int = |name: &str| match fields.iter().rev().find(|(field, _)| field == name) {
        Some((_, Value::Int(number))) => *number,
        _ => 0,
    };
    match message {
        "Any" => return Err(EvalError::other("unsupported conversion to ref.Val: (*dynamicpb.Message)")),
        "Timestamp" => {
            let nanos = u32::try_from(int("nanos")).map_err(|_| overflow("timestamp overflow"))?;
            return Timestamp::new(int("seconds"), nanos).map(Value::Timestamp);
        }
        "Duration" => {
            let seconds = int("seconds").checked_mul(1_000_000_000);
            let total = seconds.and_then(|seconds| seconds.checked_add(int("nanos")));
            let nanoseconds = total.ok_or_else(|| overflow("duration overflow"))?;
            return Ok(Value::Duration(Duration { nanoseconds }));
        }
        _ => {}
    }
    // All others have one field that matters, the last one that is set.
    match fields.into_iter().next_back() {
        None => Ok(default_value(message)),
        Some((_, value)) => narrowed(message, value),
    }
}

fn default_value<'v>(message: &str) -> Value<'v> {
    match wrapped(message) {
        Some(Primitive::Bool) => Value::Bool(false),
        Some(Primitive::Bytes) => Value::Bytes(Bytes::Borrowed(&[])),
        Some(Primitive::Double) => Value::Double(0.0),
        Some(Primitive::Int) => Value::Int(0),
        Some(Primitive::String) => Value::str(""),
        Some(Primitive::Uint) => Value::Uint(0),
        None if message == "ListValue" => Value::list(Vec::new()),
        None if message == "Struct" => Map::from_entries([]).map_or(Value::Null, Value::Map),
        None => Value::Null,
    }
}

/// The value as the message's field can hold it.
fn narrowed<'v>(message: &str, value: Value<'v>) -> Result<Value<'v>, EvalError> {
    match (message, value) {
        ("Int32Value", Value::Int(number)) if i32::try_from(number).is_err() => Err(EvalError::int_overflow()),
        ("UInt32Value", Value::Uint(number)) if u32::try_from(number).is_err() => Err(EvalError::uint_overflow()),
        #[expect(clippy::cast_possible_truncation, reason = "a field of single precision holds no more")]
        ("FloatValue", Value::Double(number)) => Ok(Value::Double(f64::from(number as f32))),
        (_, value) => Ok(value),
    }
}

fn overflow(message: &'static str) -> EvalError {
    EvalError::new(ErrorKind::Overflow, message)
}
