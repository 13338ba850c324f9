//! Interface for data of the host.
//!
//! Each trait reads in place: what it returns may borrow from the host's data for as long as the evaluation's result lives.

use std::any::Any;
use std::fmt;
use std::ops::ControlFlow;

use super::{EvalError, List, Str, Value};
use crate::types::Type;

/// A list that the host keeps.
pub trait HostList: fmt::Debug + Send + Sync {
    /// Number of elements.
    fn len(&self) -> usize;

    /// Whether the list is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index below [`len`](Self::len).
    fn get(&self, index: usize) -> Option<Value<'_>>;
}

/// A map that the host keeps.
pub trait HostMap: fmt::Debug + Send + Sync {
    /// Number of entries.
    fn len(&self) -> usize;

    /// Whether the map is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a key.
    fn get(&self, key: &Value<'_>) -> Option<Value<'_>>;

    /// The value under a key if it is text that can be lent. Answers what [`get`](Self::get) does; only faster.
    fn text(&self, key: &Value<'_>) -> Option<&str> {
        match self.get(key) {
            Some(Value::String(Str::Borrowed(text))) => Some(text),
            _ => None,
        }
    }

    /// Whether the key exists. Not called if [`is_partial`](Self::is_partial).
    fn contains(&self, key: &Value<'_>) -> bool {
        self.get(key).is_some()
    }

    /// Whether some entries are unknown: [`get`](Self::get) returns [`Value::Unknown`] for their keys, and
    /// neither the number of entries nor the set of keys is known.
    fn is_partial(&self) -> bool {
        false
    }

    /// Calls `visit` for each key and value in a stable order, until it breaks.
    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>);
}

/// Data of the host that a [`MapShape`] or [`ListShape`] reads.
pub type HostData = dyn Any + Send + Sync;

/// Reads a map from data without type information: a document, interpreted by a schema.
///
/// Lets a value be a view of two references, so that going down a document allocates nothing.
pub trait MapShape: fmt::Debug + Send + Sync {
    /// Number of entries.
    fn len(&self, data: &HostData) -> usize;

    /// The value under a key.
    fn get<'v>(&'v self, data: &'v HostData, key: &Value<'_>) -> Option<Value<'v>>;

    /// Reads the value at the end of a path into `out`. Equivalent to one [`get`](Self::get) after the other,
    /// but faster. Returns false if the path cannot be read this way.
    fn read_path<'v>(&'v self, data: &'v HostData, path: &[Str<'_>], out: &mut Value<'v>) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        let mut value = self.get(data, &Value::str(first));
        for key in rest {
            value = match &value {
                Some(Value::Map(map)) => map.get(&Value::str(key)),
                _ => return false,
            };
        }
        value.map(|value| *out = value).is_some()
    }

    /// The text at the end of a path, if it can be lent.
    fn text_at<'v>(&'v self, data: &'v HostData, path: &[Str<'_>]) -> Option<&'v str> {
        let mut value = Value::Null;
        match (self.read_path(data, path, &mut value), value) {
            (true, Value::String(Str::Borrowed(text))) => Some(text),
            _ => None,
        }
    }

    /// Whether the key exists.
    fn contains(&self, data: &HostData, key: &Value<'_>) -> bool {
        self.get(data, key).is_some()
    }

    /// Calls `visit` for each key and value in a stable order, until it breaks.
    fn for_each<'v>(&'v self, data: &'v HostData, visit: &mut dyn FnMut(Value<'v>, Value<'v>) -> ControlFlow<()>);

    /// Overrides `this == other`.
    fn equals(&self, _data: &HostData, _other: &Value<'_>) -> Option<Result<bool, EvalError>> {
        None
    }
}

/// Reads a list from data without type information.
pub trait ListShape: fmt::Debug + Send + Sync {
    /// Number of elements.
    fn len(&self, data: &HostData) -> usize;

    /// The element at an index.
    fn get<'v>(&'v self, data: &'v HostData, index: usize) -> Option<Value<'v>>;

    /// Reads the element at an index to where it is needed, or says that there is none. Answers what [`get`](Self::get) does; only faster.
    fn read<'v>(&'v self, data: &'v HostData, index: usize, out: &mut Value<'v>) -> bool {
        self.get(data, index).map(|value| *out = value).is_some()
    }

    /// Calls `visit` for each element in order, until it breaks.
    fn for_each<'v>(&'v self, data: &'v HostData, visit: &mut dyn FnMut(Value<'v>) -> ControlFlow<()>) {
        _ = (0..self.len(data)).try_for_each(|index| visit(self.get(data, index).unwrap_or(Value::Null)));
    }

    /// Overrides `list == other` for lists of this shape, which may have a meaning of their own, such as sets.
    fn equals(&self, _list: &List<'_>, _other: &Value<'_>) -> Option<Result<bool, EvalError>> {
        None
    }

    /// Overrides `list + other` for lists of this shape; the sum is again of this shape.
    fn concat<'v>(&self, _list: &List<'v>, _other: &Value<'v>) -> Option<Result<Vec<Value<'v>>, EvalError>> {
        None
    }
}

/// An object that the host keeps, of a type whose fields it declares.
pub trait HostObject: fmt::Debug + Send + Sync {
    /// The name of the object's type.
    fn type_name(&self) -> &str;

    /// The field's value, or nothing where the object does not have it.
    fn get(&self, field: &str) -> Option<Value<'_>>;

    /// The field's value if it is text that can be lent. Answers what [`get`](Self::get) does; only faster.
    fn text(&self, field: &str) -> Option<&str> {
        match self.get(field) {
            Some(Value::String(Str::Borrowed(text))) => Some(text),
            _ => None,
        }
    }

    /// Whether the field exists: `has(this.field)`.
    fn has(&self, field: &str) -> bool {
        self.get(field).is_some()
    }

    /// Shows each field that is set, in a stable order.
    fn for_each<'v>(&'v self, visit: &mut dyn FnMut(&'v str, Value<'v>) -> ControlFlow<()>);

    /// The name of the Go type that the reference implementation has for such an object.
    fn go_type_name(&self) -> &'static str {
        "*types.protoObj"
    }

    /// Overrides `this == other`; by default objects are equal when their types and all their fields are.
    fn equals(&self, _other: &dyn HostObject) -> Option<Result<bool, EvalError>> {
        None
    }
}

/// A value of a type that a library or the host defines: a quantity, a version, an address.
pub trait HostValue: fmt::Debug + Send + Sync + Any {
    /// The value's type.
    fn type_of(&self) -> Type;

    /// Equality with a value of the same type: `this == other`.
    fn equals(&self, other: &dyn HostValue) -> bool;

    /// The value as text, for people.
    fn text(&self) -> String;

    /// The name of the Go type that the reference implementation has for such a value.
    fn go_type_name(&self) -> &'static str {
        "types.Opaque"
    }

    /// Size of the value for the cost meter.
    fn size(&self) -> u64 {
        1
    }

    /// Whether the reference can look it up in a set of constants; otherwise `x in [constants]` fails.
    fn is_hashable(&self) -> bool {
        true
    }

    /// Whether `optional.ofNonZeroValue` treats the value as absent.
    fn is_zero(&self) -> bool {
        false
    }
}
