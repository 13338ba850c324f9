//! JSON documents: the one form in which objects are read, kept and written.
//!
//! A [`Value`] distinguishes integers from floats as Kubernetes' decoder does, keeps the text of numbers that would be
//! written differently, and keeps fields in the order in which they were read: strict decoding reports errors in that
//! order, and an object that was brought into its type's order (Go's struct order, maps sorted) is written in it.
//! Typed views are decoded from a value and encoded into one without text in between ([`from_value`], [`to_value`]).

mod de;
mod edit;
mod elements;
mod lookup;
mod number;
mod object;
mod parse;
mod read;
mod scan;
mod ser;
mod spans;
mod unread;
mod write;

pub(crate) use de::NUMBER_TEXT;
pub use de::from_value;
pub use elements::{ELEMENTS_MAX, TOO_MANY_ELEMENTS, has_too_many_elements};
pub use lookup::{Lookup, ObjectEditor};
pub use number::Float;
pub use object::Object;
pub(crate) use parse::{COMPLAINT_BYTES_MAX, COMPLAINTS_MAX};
pub use parse::{
    Document, Duplicate, MAX_DEPTH, SyntaxError, parse, parse_document, parse_prefix, parse_strict, parse_without,
};
pub(crate) use scan::plain_length;
pub use scan::{has_more_values, value_at, value_length};
pub use ser::to_value;
pub use spans::{Lines, Position, Spans};
pub use unread::NameFilter;
pub use write::{to_pretty_string, to_string, write_string, write_value};

/// Short strings live in place, without an allocation.
pub type Text = compact_str::CompactString;

/// A JSON value does not fit a Rust type, or the other way round.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConvertError(pub(crate) String);

impl serde::de::Error for ConvertError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl serde::ser::Error for ConvertError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// A JSON value. Equality ignores the order of an object's fields; `1` and `1.0` differ, as they do in Go.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Value {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction or exponent that fits 64 bits.
    Int(i64),
    /// Any other number.
    Float(Float),
    /// A string.
    String(Text),
    /// A list.
    Array(Vec<Value>),
    /// Fields in the order in which they were read or set.
    Object(Object),
}

impl Value {
    /// An object without fields.
    #[must_use]
    pub fn object() -> Self {
        Value::Object(Object::new())
    }

    /// The field `key`, if this is an object that has it.
    #[must_use]
    #[inline]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// The field `key`, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(key)
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The boolean, if this is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The integer, if this is one.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The number as a float, if this is a number.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "the nearest float is what is asked for")]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(value) => Some(*value as f64),
            Value::Float(value) => Some(value.get()),
            _ => None,
        }
    }

    /// The string, if this is one.
    #[must_use]
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(value) => Some(value),
            _ => None,
        }
    }

    /// The list, if this is one.
    #[must_use]
    pub fn as_array(&self) -> Option<&[Value]> {
        match self {
            Value::Array(value) => Some(value),
            _ => None,
        }
    }

    /// The list, to be changed.
    pub fn as_array_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::Array(value) => Some(value),
            _ => None,
        }
    }

    /// The object, if this is one.
    #[must_use]
    pub fn as_object(&self) -> Option<&Object> {
        match self {
            Value::Object(value) => Some(value),
            _ => None,
        }
    }

    /// The object, to be changed; anything else becomes an empty object first.
    pub fn make_object(&mut self) -> &mut Object {
        if !matches!(self, Value::Object(_)) {
            *self = Value::object();
        }
        match self {
            Value::Object(fields) => fields,
            #[expect(clippy::unreachable, reason = "the value has become an object above")]
            _ => unreachable!("the value is an object"),
        }
    }

    /// The object, to be changed.
    pub fn as_object_mut(&mut self) -> Option<&mut Object> {
        match self {
            Value::Object(value) => Some(value),
            _ => None,
        }
    }

    /// Leaves `null` behind.
    #[must_use]
    pub fn take(&mut self) -> Value {
        std::mem::take(self)
    }

    /// Name of this kind of value in Go's decode errors.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// Sorts the fields of every object inside, as Go writes maps.
    pub fn sort_keys(&mut self) {
        match self {
            Value::Array(items) => items.iter_mut().for_each(Value::sort_keys),
            Value::Object(fields) => {
                fields.sort();
                fields.values_mut().for_each(Value::sort_keys);
            }
            _ => {}
        }
    }
}

impl std::fmt::Display for Value {
    /// Compact JSON, without Go's escaping of HTML characters.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = String::new();
        write::write_unescaped(&mut out, self);
        f.write_str(&out)
    }
}

macro_rules! value_from {
    ($($type:ty => |$it:ident| $value:expr),* $(,)?) => {
        $(impl From<$type> for Value {
            fn from($it: $type) -> Self {
                $value
            }
        })*
    };
}

value_from! {
    bool => |it| Value::Bool(it),
    i64 => |it| Value::Int(it),
    i32 => |it| Value::Int(i64::from(it)),
    u32 => |it| Value::Int(i64::from(it)),
    f64 => |it| Value::Float(Float::new(it)),
    &str => |it| Value::String(it.into()),
    &String => |it| Value::String(it.as_str().into()),
    String => |it| Value::String(it.into()),
    Text => |it| Value::String(it),
    Vec<Value> => |it| Value::Array(it),
    Object => |it| Value::Object(it),
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// Builds a [`Value`](crate::json::Value) that looks like JSON: `json!({"a": 1, "b": [true, null], "c": (expression)})`.
///
/// A value is one token: a literal, a variable, a list, an object, or an expression in parentheses.
#[macro_export]
macro_rules! json {
    (null) => { $crate::json::Value::Null };
    ([ $($item:tt),* $(,)? ]) => { $crate::json::Value::Array(vec![$($crate::json!($item)),*]) };
    ({ $($key:tt : $value:tt),* $(,)? }) => {{
        #[allow(unused_mut, reason = "an empty object is not changed")]
        let mut object = $crate::json::Object::new();
        $(object.insert($key, $crate::json!($value));)*
        $crate::json::Value::Object(object)
    }};
    ($other:expr) => { $crate::json::Value::from($other) };
}

#[cfg(test)]
mod tests;
