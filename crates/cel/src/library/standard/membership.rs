//! `in` and `size`.

use super::receives;
use crate::cost::Price;
use crate::env::Overload;
use crate::library::{price, shared};
use crate::value::{ErrorKind, EvalError, List, Value};

pub(super) const OVERLOADS: &[Overload] = &[
    shared("in_list", "@in(A, list(A)) -> bool", price::LIST_MEMBERSHIP),
    shared("in_map", "@in(A, map(A, B)) -> bool", Price::ONE),
    shared("size_bytes", "size(bytes) -> int", Price::ONE),
    shared("bytes_size", "bytes.size() -> int", Price::ONE),
    shared("size_list", "size(list(A)) -> int", Price::ONE),
    shared("list_size", "list(A).size() -> int", Price::ONE),
    shared("size_map", "size(map(A, B)) -> int", Price::ONE),
    shared("map_size", "map(A, B).size() -> int", Price::ONE),
    shared("size_string", "size(string) -> int", Price::ONE),
    shared("string_size", "string.size() -> int", Price::ONE),
];

pub(super) fn is_in<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [element, Value::List(list)] => contains(list, element).map(Value::Bool),
        [key, Value::Map(map)] => map.contains(key).map(Value::Bool).ok_or_else(EvalError::undetermined),
        [Value::String(field), Value::Object(object)] => Ok(Value::Bool(object.has(field))),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// The list has an element that equals this one.
///
/// An element that cannot be compared matters only if no other one is equal.
pub(in crate::library) fn contains(list: &List<'_>, element: &Value<'_>) -> Result<bool, EvalError> {
    let mut undecided = None;
    let mut is_equal = |candidate: &Value<'_>| match element.equals_in_evaluation(candidate) {
        Ok(equal) => equal,
        // Values that refuse to be compared are not equal.
        Err(error) if error.kind() == ErrorKind::NoSuchOverload => false,
        // Nothing more is compared.
        Err(fatal) if fatal.is_fatal() => {
            undecided = Some(fatal);
            true
        }
        Err(error) => {
            undecided.get_or_insert(error);
            false
        }
    };
    let found = match list {
        List::Borrowed(elements) => elements.iter().any(is_equal),
        List::Shared(elements) | List::Meant(elements, _) => elements.iter().any(is_equal),
        List::Host(_) | List::Shaped(..) => list.iter().any(|candidate| is_equal(&candidate)),
    };
    match undecided {
        Some(error) if !found || error.is_fatal() => Err(error),
        _ => Ok(found),
    }
}

pub(super) fn is_sizer(value: &Value<'_>) -> bool {
    matches!(value, Value::Bytes(_) | Value::List(_) | Value::Map(_)) || receives(value)
}

pub(super) fn size<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let size = match operands {
        [Value::String(text)] => text.code_points(),
        [Value::List(list)] => list.len(),
        [Value::Map(map)] if map.is_partial() => return Err(EvalError::undetermined()),
        [Value::Map(map)] => map.len(),
        [Value::Bytes(octets)] => octets.len(),
        _ => return Err(EvalError::no_such_overload()),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}
