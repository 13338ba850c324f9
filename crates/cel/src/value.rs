//! Values: inputs and results of evaluation.
//!
//! A value borrows where it can: constants from the program, everything else from the host's data, so that reading a field
//! neither copies nor counts references. Lists, maps and objects of the host stay where they are, behind the traits in [`host`].

pub(crate) mod bounds;
mod conversion;
pub(crate) mod drawn;
pub(crate) mod equality;
mod error;
pub mod host;
#[cfg(feature = "serde_json")]
mod json;
mod list;
mod map;
mod order;
mod text;
mod time;
pub(crate) mod unknown;
mod verdict;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

pub use drawn::{Member, PartialList};
pub use error::{ErrorKind, EvalError};
pub use host::{HostData, HostList, HostMap, HostObject, HostValue, ListShape, MapShape};
#[cfg(feature = "serde_json")]
pub use json::ToJsonError;
pub use list::List;
pub use map::{Key, Map};
pub(crate) use order::{double_to_int_lossless, double_to_uint_lossless};
pub use text::{Bytes, Str, double_text, go_quote};
pub use time::{Civil, Duration, Timestamp};
pub use unknown::{FailureChance, Shape, UnknownValue};
pub use verdict::Verdict;

use crate::syntax::ast::Literal;
use crate::types::Type;

/// A CEL value that lives at least as long as `'a`, the shorter of program and input.
// The discriminant is as wide as the payload that follows it: a value is copied in whole words, never byte by
// byte.
#[derive(Clone, Debug)]
#[repr(u64)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A signed 64-bit integer.
    Int(i64),
    /// An unsigned 64-bit integer.
    Uint(u64),
    /// A 64-bit floating point number.
    Double(f64),
    /// Text.
    String(Str<'a>),
    /// Octets.
    Bytes(Bytes<'a>),
    /// A span of time.
    Duration(Duration),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// A type as a value.
    Type(Type),
    /// An optional value, present or absent.
    Optional(Option<Arc<Value<'a>>>),
    /// An object of a type whose fields the host declares, in place.
    Object(&'a dyn HostObject),
    /// A value of a type that the host or a library defines.
    Opaque(Arc<dyn HostValue>),
    /// Not known (yet): the evaluation continues as long as known values decide.
    Unknown(UnknownValue<'a>),
    /// A value that cannot be had, inside a container or an accumulator; reading it is an error.
    Error(EvalError),
}

impl<'a> Value<'a> {
    /// A string that borrows its text.
    pub fn str(text: &'a str) -> Self {
        Value::String(Str::Borrowed(text))
    }

    /// A string that owns its text.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Value::String(Str::Shared(text.into()))
    }

    /// A list that owns its elements.
    pub fn list(elements: Vec<Value<'a>>) -> Self {
        Value::List(List::Shared(Arc::new(elements)))
    }

    /// A map that owns its entries; of entries with one key, the last one counts.
    ///
    /// Fails where a key cannot be one, such as an unknown value.
    pub fn map(entries: impl IntoIterator<Item = (Value<'a>, Value<'a>)>) -> Result<Self, EvalError> {
        Map::from_entries(entries).map(Value::Map)
    }

    /// A present optional.
    pub fn some(value: Value<'a>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    /// An absent optional.
    pub const NONE: Value<'static> = Value::Optional(None);

    /// A value of a library's own type.
    pub fn opaque(value: impl HostValue) -> Self {
        Value::Opaque(Arc::new(value))
    }

    /// The value's type, as `type(x)` shows it: containers without their element types.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Type(_) => Type::Type(None),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Object(object) => Type::object(object.type_name()),
            Value::Opaque(opaque) => opaque.type_of(),
            Value::Unknown(_) => Type::opaque("unknown"),
            Value::Error(_) => Type::opaque("error"),
        }
    }

    /// The name of the value's type, as messages show it.
    pub fn type_name(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Value::List(_) => "list".into(),
            Value::Map(_) => "map".into(),
            Value::Optional(_) => "optional_type".into(),
            Value::Object(object) => object.type_name().into(),
            other => other.type_of().name().to_owned().into(),
        }
    }

    /// The text, if this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The truth value, if this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(truth) => Some(*truth),
            _ => None,
        }
    }

    /// The value of a library's own type, if this is one.
    pub fn as_opaque<T: HostValue>(&self) -> Option<&T> {
        match self {
            Value::Opaque(opaque) => {
                let any: &dyn std::any::Any = opaque.as_ref();
                any.downcast_ref()
            }
            _ => None,
        }
    }

    /// Size of the value for the cost meter: code points, octets, elements or entries; 1 for values without a
    /// size.
    pub fn size(&self) -> u64 {
        let size = match self {
            Value::String(text) => text.code_points(),
            Value::Bytes(bytes) => bytes.len(),
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            Value::Optional(Some(value)) => return value.size(),
            Value::Opaque(opaque) => return opaque.size(),
            _ => 1,
        };
        size as u64
    }

    /// The same value, borrowed: if possible, without copies and reference counting.
    pub fn borrowed(&self) -> Value<'_> {
        match self {
            Value::String(text) => Value::String(Str::Borrowed(text)),
            Value::Bytes(bytes) => Value::Bytes(Bytes::Borrowed(bytes)),
            Value::List(List::Shared(elements)) => Value::List(List::Borrowed(elements)),
            Value::Map(Map::Shared(map)) => Value::Map(Map::Borrowed(map)),
            other => other.clone(),
        }
    }

    /// The name of the Go type that cel-go has for such a value: some of its messages show it.
    pub fn go_type_name(&self) -> &'static str {
        match self {
            Value::Null => "types.Null",
            Value::Bool(_) => "types.Bool",
            Value::Int(_) => "types.Int",
            Value::Uint(_) => "types.Uint",
            Value::Double(_) => "types.Double",
            Value::String(_) => "types.String",
            Value::Bytes(_) => "types.Bytes",
            Value::Duration(_) => "types.Duration",
            Value::Timestamp(_) => "types.Timestamp",
            Value::List(_) => "*types.baseList",
            Value::Map(_) => "*types.baseMap",
            Value::Type(_) => "*types.Type",
            Value::Optional(_) => "*types.Optional",
            Value::Object(object) => object.go_type_name(),
            Value::Opaque(opaque) => opaque.go_type_name(),
            Value::Unknown(_) => "*types.Unknown",
            Value::Error(_) => "*types.Err",
        }
    }

    /// A copy of the value without borrowed parts, which can outlive program and input.
    ///
    /// Objects of the host become maps of their fields.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(truth) => Value::Bool(truth),
            Value::Int(number) => Value::Int(number),
            Value::Uint(number) => Value::Uint(number),
            Value::Double(number) => Value::Double(number),
            Value::String(text) => Value::String(text.into_owned()),
            Value::Bytes(bytes) => Value::Bytes(bytes.into_owned()),
            Value::Duration(duration) => Value::Duration(duration),
            Value::Timestamp(timestamp) => Value::Timestamp(timestamp),
            Value::List(list) => Value::list(list.iter().map(Value::into_owned).collect()),
            Value::Map(map) => Value::Map(map.into_owned()),
            Value::Type(of) => Value::Type(of),
            Value::Optional(value) => Value::Optional(value.map(|value| Arc::new(Value::clone(&value).into_owned()))),
            Value::Object(object) => Value::Map(Map::from_object(object)),
            Value::Opaque(opaque) => Value::Opaque(opaque),
            Value::Unknown(unknown) => Value::Unknown(unknown.into_owned()),
            Value::Error(error) => Value::Error(error),
        }
    }
}

/// Bytes that a value takes besides its text.
const VALUE_BYTES: u64 = 32;

impl Value<'_> {
    /// Like [`Value::into_owned`], for at most `left` bytes, which are counted down.
    ///
    /// A value that holds another one at several places shares it; a copy does not. Without a limit, a chain of lists that
    /// hold the one before twice fills the memory.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`]
    pub fn try_into_owned(self, left: &mut u64) -> Result<Value<'static>, EvalError> {
        self.count_copy(left)?;
        Ok(self.into_owned())
    }

    /// Like [`Value::try_into_owned`], within the budget of the evaluation on this thread.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`]
    pub fn into_owned_in_evaluation(self) -> Result<Value<'static>, EvalError> {
        let before = equality::copy_bytes_left();
        let mut left = before;
        let copy = self.try_into_owned(&mut left);
        equality::count_copied(before.saturating_sub(left));
        copy
    }

    /// Counts the bytes of a copy.
    fn count_copy(&self, left: &mut u64) -> Result<(), EvalError> {
        let text = match self {
            Value::String(Str::Borrowed(text)) => text.len(),
            Value::Bytes(Bytes::Borrowed(octets)) => octets.len(),
            _ => 0,
        };
        let bytes = VALUE_BYTES.saturating_add(text as u64);
        *left = left.checked_sub(bytes).ok_or_else(bounds::too_large)?;
        match self {
            Value::List(list) => list.iter().try_for_each(|item| item.count_copy(left)),
            Value::Map(map) => map.entries().iter().try_for_each(|(key, value)| {
                key.count_copy(left)?;
                value.count_copy(left)
            }),
            Value::Optional(Some(value)) => value.count_copy(left),
            Value::Object(object) => {
                let mut outcome = Ok(());
                object.for_each(&mut |_, value| {
                    outcome = value.count_copy(left);
                    if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                });
                outcome
            }
            _ => Ok(()),
        }
    }
}

/// A constant, sharing its text with the tree that holds it.
impl From<&Literal> for Value<'_> {
    fn from(literal: &Literal) -> Self {
        match literal {
            Literal::Null => Value::Null,
            Literal::Bool(truth) => Value::Bool(*truth),
            Literal::Int(number) => Value::Int(*number),
            Literal::Uint(number) => Value::Uint(*number),
            Literal::Double(number) => Value::Double(*number),
            Literal::String(text) => Value::String(Str::Shared(text.clone())),
            Literal::Bytes(octets) => Value::Bytes(Bytes::Shared(octets.clone())),
        }
    }
}

impl From<bool> for Value<'_> {
    fn from(truth: bool) -> Self {
        Value::Bool(truth)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Uint(number)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Value::Double(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::str(text)
    }
}

impl<'a, T: Into<Value<'a>>> From<Vec<T>> for Value<'a> {
    fn from(elements: Vec<T>) -> Self {
        Value::list(elements.into_iter().map(Into::into).collect())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::string(text)
    }
}

/// Prints a value as Go's `%v` prints cel-go's values, for messages such as `no such key: k`; at most its first 256 KiB.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_bounded(f, self)
    }
}

impl Value<'_> {
    /// Appends the output of [`Display`](fmt::Display) to a text, but faster.
    pub fn append_to(&self, text: &mut String) {
        // Writing to a text does not fail.
        _ = write_bounded(text, self);
    }
}

fn write_bounded<W: fmt::Write>(out: &mut W, value: &Value<'_>) -> fmt::Result {
    let mut out = DisplayAdapter { out, left: bounds::SHOWN_BYTES_MAX };
    match write_value(&mut out, value) {
        Err(_) if out.left == 0 => Ok(()),
        result => result,
    }
}

/// Stops when enough has been written: a value that shares its parts many times over is small, but its text is not.
struct DisplayAdapter<'w, W> {
    out: &'w mut W,
    left: usize,
}

impl<W: fmt::Write> fmt::Write for DisplayAdapter<'_, W> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.left = self.left.saturating_sub(text.len());
        self.out.write_str(text)?;
        if self.left == 0 { Err(fmt::Error) } else { Ok(()) }
    }
}

fn write_value<W: fmt::Write>(f: &mut DisplayAdapter<'_, W>, value: &Value<'_>) -> fmt::Result {
    use fmt::Write as _;
    match value {
        Value::Null => f.write_str("NULL_VALUE"),
        Value::Bool(truth) => write!(f, "{truth}"),
        Value::Int(number) => write!(f, "{number}"),
        Value::Uint(number) => write!(f, "{number}"),
        Value::Double(number) => f.write_str(&double_text(*number)),
        Value::String(text) => f.write_str(text),
        Value::Bytes(bytes) => {
            f.write_str("[")?;
            for (index, byte) in bytes.iter().enumerate() {
                write!(f, "{}{byte}", if index > 0 { " " } else { "" })?;
            }
            f.write_str("]")
        }
        Value::Duration(duration) => write!(f, "{}", duration.go_text()),
        Value::Timestamp(timestamp) => write!(f, "{timestamp}"),
        Value::List(list) => {
            f.write_str("[")?;
            match list {
                List::Borrowed(elements) => write_elements(f, elements.iter())?,
                List::Shared(elements) | List::Meant(elements, _) => write_elements(f, elements.iter())?,
                List::Host(_) | List::Shaped(..) => write_elements(f, list.iter())?,
            }
            f.write_str("]")
        }
        Value::Map(map) => {
            f.write_str("{")?;
            for (index, (key, value)) in map.entries().into_iter().enumerate() {
                if index > 0 {
                    f.write_str(", ")?;
                }
                write_value(f, &key)?;
                f.write_str(": ")?;
                write_value(f, &value)?;
            }
            f.write_str("}")
        }
        Value::Type(of) => f.write_str(of.name()),
        Value::Optional(None) => f.write_str("optional.none()"),
        Value::Optional(Some(value)) => {
            f.write_str("optional(")?;
            write_value(f, value)?;
            f.write_str(")")
        }
        Value::Object(object) => write!(f, "{object:?}"),
        Value::Opaque(opaque) => f.write_str(&opaque.text()),
        Value::Unknown(unknown) => {
            f.write_str("unknown(")?;
            for (index, input) in unknown.inputs().enumerate() {
                write!(f, "{}{input}", if index > 0 { ", " } else { "" })?;
            }
            f.write_str(")")
        }
        Value::Error(error) => write!(f, "{error}"),
    }
}

fn write_elements<'v, W: fmt::Write, E: std::borrow::Borrow<Value<'v>>>(
    f: &mut DisplayAdapter<'_, W>,
    elements: impl Iterator<Item = E>,
) -> fmt::Result {
    use fmt::Write as _;
    for (index, element) in elements.enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write_value(f, element.borrow())?;
    }
    Ok(())
}
