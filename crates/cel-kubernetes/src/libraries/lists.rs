//! `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf` and `includes` on lists.
//!
//! Like Kubernetes, these are lenient: incomparable elements count as in order, and elements that cannot be
//! compared for equality do not match. Follows Kubernetes `apiserver/pkg/cel/library/lists.go`.

mod partial;

use std::cmp::Ordering;

use cel::env::{Library, Overload};
use cel::value::{Duration, ErrorKind, EvalError, List, Value};

use super::price::{INCLUDES, LIST_TRAVERSAL};
use super::{library, native, since};

/// The library in a version: 0, or 1 with `includes`.
pub fn lists(version: u32) -> Library {
    Library { partial: partial::FUNCTIONS, ..library("kubernetes.lists", version, OVERLOADS) }
}

static OVERLOADS: &[Overload] = &[
    native("list_int_is_sorted_bool", "list(int).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_uint_is_sorted_bool", "list(uint).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_double_is_sorted_bool", "list(double).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_bool_is_sorted_bool", "list(bool).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_duration_is_sorted_bool", "list(duration).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_timestamp_is_sorted_bool", "list(timestamp).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_string_is_sorted_bool", "list(string).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_bytes_is_sorted_bool", "list(bytes).isSorted() -> bool", LIST_TRAVERSAL, is_sorted),
    native("list_int_sum_int", "list(int).sum() -> int", LIST_TRAVERSAL, |operands| sum(operands, Value::Int(0))),
    native("list_uint_sum_uint", "list(uint).sum() -> uint", LIST_TRAVERSAL, |operands| sum(operands, Value::Uint(0))),
    native("list_double_sum_double", "list(double).sum() -> double", LIST_TRAVERSAL, |operands| {
        sum(operands, Value::Double(0.0))
    }),
    native("list_duration_sum_duration", "list(duration).sum() -> duration", LIST_TRAVERSAL, |operands| {
        sum(operands, Value::Duration(Duration { nanoseconds: 0 }))
    }),
    native("list_int_max_int", "list(int).max() -> int", LIST_TRAVERSAL, max),
    native("list_uint_max_uint", "list(uint).max() -> uint", LIST_TRAVERSAL, max),
    native("list_double_max_double", "list(double).max() -> double", LIST_TRAVERSAL, max),
    native("list_bool_max_bool", "list(bool).max() -> bool", LIST_TRAVERSAL, max),
    native("list_duration_max_duration", "list(duration).max() -> duration", LIST_TRAVERSAL, max),
    native("list_timestamp_max_timestamp", "list(timestamp).max() -> timestamp", LIST_TRAVERSAL, max),
    native("list_string_max_string", "list(string).max() -> string", LIST_TRAVERSAL, max),
    native("list_bytes_max_bytes", "list(bytes).max() -> bytes", LIST_TRAVERSAL, max),
    native("list_int_min_int", "list(int).min() -> int", LIST_TRAVERSAL, min),
    native("list_uint_min_uint", "list(uint).min() -> uint", LIST_TRAVERSAL, min),
    native("list_double_min_double", "list(double).min() -> double", LIST_TRAVERSAL, min),
    native("list_bool_min_bool", "list(bool).min() -> bool", LIST_TRAVERSAL, min),
    native("list_duration_min_duration", "list(duration).min() -> duration", LIST_TRAVERSAL, min),
    native("list_timestamp_min_timestamp", "list(timestamp).min() -> timestamp", LIST_TRAVERSAL, min),
    native("list_string_min_string", "list(string).min() -> string", LIST_TRAVERSAL, min),
    native("list_bytes_min_bytes", "list(bytes).min() -> bytes", LIST_TRAVERSAL, min),
    native("list_a_index_of_int", "list(A).indexOf(A) -> int", LIST_TRAVERSAL, index_of),
    native("list_a_last_index_of_int", "list(A).lastIndexOf(A) -> int", LIST_TRAVERSAL, last_index_of),
    since(1, native("list_includes_dyn_dyn", "dyn.includes(dyn) -> bool", INCLUDES, includes)),
];

fn list<'o, 'v>(operands: &'o [Value<'v>]) -> Result<&'o List<'v>, EvalError> {
    match operands.first() {
        Some(Value::List(list)) => Ok(list),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// An element that cannot be had, or that is not known, decides for the whole list.
fn readable(element: Value<'_>) -> Result<Value<'_>, EvalError> {
    match element {
        Value::Error(error) => Err(error),
        Value::Unknown(_) => Err(EvalError::undetermined()),
        element => Ok(element),
    }
}

fn comparable(element: Value<'_>) -> Result<Value<'_>, EvalError> {
    let element = readable(element)?;
    if element.is_comparable() { Ok(element) } else { Err(EvalError::no_such_overload()) }
}

fn is_sorted<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let mut previous: Option<Value<'_>> = None;
    for element in list(operands)?.iter() {
        let element = comparable(element)?;
        if previous.is_some_and(|previous| previous.compare(&element) == Ok(Ordering::Greater)) {
            return Ok(Value::Bool(false));
        }
        previous = Some(element);
    }
    Ok(Value::Bool(true))
}

fn sum<'v>(operands: &[Value<'v>], zero: Value<'v>) -> Result<Value<'v>, EvalError> {
    list(operands)?.iter().try_fold(zero, |sum, element| add(&sum, &readable(element)?))
}

fn add<'v>(sum: &Value<'v>, element: &Value<'v>) -> Result<Value<'v>, EvalError> {
    match (sum, element) {
        (Value::Int(a), Value::Int(b)) => a.checked_add(*b).map(Value::Int).ok_or_else(EvalError::int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_add(*b).map(Value::Uint).ok_or_else(EvalError::uint_overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::Duration(a), Value::Duration(b)) => match a.nanoseconds.checked_add(b.nanoseconds) {
            Some(nanoseconds) => Ok(Value::Duration(Duration { nanoseconds })),
            None => Err(EvalError::int_overflow()),
        },
        // A point in time and further spans, in a list of mixed elements.
        (Value::Duration(span), Value::Timestamp(point)) | (Value::Timestamp(point), Value::Duration(span)) => {
            point.checked_add(*span).map(Value::Timestamp)
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

fn max<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    extreme(operands, Ordering::Less, "max")
}

fn min<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    extreme(operands, Ordering::Greater, "min")
}

/// The first element that is not `worse` than any other, as far as they compare.
fn extreme<'v>(operands: &[Value<'v>], worse: Ordering, name: &str) -> Result<Value<'v>, EvalError> {
    let mut best: Option<Value<'v>> = None;
    for element in list(operands)?.iter() {
        let element = comparable(element)?;
        best = match best {
            Some(best) if best.compare(&element) != Ok(worse) => Some(best),
            _ => Some(element),
        };
    }
    best.ok_or_else(|| EvalError::other(format!("{name} called on empty list")))
}

/// Whether an element matches. Failing to compare means no.
fn is_item(element: &Value<'_>, item: &Value<'_>) -> Result<bool, EvalError> {
    match element.equals_in_evaluation(item) {
        Err(error) if error.kind() == ErrorKind::Undetermined || error.is_fatal() => Err(error),
        answer => Ok(answer.unwrap_or(false)),
    }
}

fn index_of<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (list, item) = (list(operands)?, operands.get(1).ok_or_else(EvalError::no_such_overload)?);
    find(list.iter().enumerate(), item)
}

fn last_index_of<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (list, item) = (list(operands)?, operands.get(1).ok_or_else(EvalError::no_such_overload)?);
    find(list.iter().enumerate().rev(), item)
}

fn find<'v>(elements: impl Iterator<Item = (usize, Value<'v>)>, item: &Value<'v>) -> Result<Value<'v>, EvalError> {
    for (index, element) in elements {
        if is_item(&element, item)? {
            return Ok(Value::Int(i64::try_from(index).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}

fn includes<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [container, item] = operands else { return Err(EvalError::no_such_overload()) };
    let Value::List(list) = container else {
        return is_item(container, item).map(Value::Bool);
    };
    let mut undecided = None;
    for element in list.iter() {
        match is_item(&element, item) {
            Ok(true) => return Ok(Value::Bool(true)),
            Ok(false) => {}
            Err(error) => undecided = Some(error),
        }
    }
    undecided.map_or(Ok(Value::Bool(false)), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(numbers: &[i64]) -> Value<'static> {
        Value::list(numbers.iter().copied().map(Value::Int).collect())
    }

    #[track_caller]
    fn check(answer: Result<Value<'_>, EvalError>, text: &str) {
        assert_eq!(answer.map_or_else(|error| format!("error: {error}"), |value| value.to_string()), text);
    }

    #[test]
    fn order_ignores_incomparable_elements() {
        check(is_sorted(&[ints(&[1, 1, 2])]), "true");
        check(is_sorted(&[ints(&[2, 1])]), "false");
        check(is_sorted(&[Value::list(vec![Value::Int(1), Value::str("a"), Value::Int(0)])]), "true");
        check(max(&[Value::list(vec![Value::Int(1), Value::str("a"), Value::Int(3)])]), "3");
        check(max(&[Value::list(vec![Value::str("a"), Value::Int(3)])]), "a");
        check(min(&[ints(&[3, 1, 2])]), "1");
        check(min(&[ints(&[])]), "error: min called on empty list");
        check(max(&[Value::list(vec![Value::Null])]), "error: no such overload");
    }

    #[test]
    fn sums_start_at_the_zero_of_their_type() {
        check(sum(&[ints(&[])], Value::Int(0)), "0");
        check(sum(&[ints(&[1, 2, 3])], Value::Int(0)), "6");
        check(sum(&[ints(&[i64::MAX, 1])], Value::Int(0)), "error: integer overflow");
        check(sum(&[ints(&[1])], Value::Double(0.0)), "error: no such overload");
    }

    #[test]
    fn items_are_found_from_either_end() {
        check(index_of(&[ints(&[5, 7, 5]), Value::Int(5)]), "0");
        check(last_index_of(&[ints(&[5, 7, 5]), Value::Int(5)]), "2");
        check(index_of(&[ints(&[5]), Value::str("5")]), "-1");
        check(includes(&[ints(&[5]), Value::Double(5.0)]), "true");
        check(includes(&[Value::str("a"), Value::str("a")]), "true");
        check(includes(&[Value::list(vec![Value::unknown(0), Value::Int(1)]), Value::Int(1)]), "true");
        check(includes(&[Value::list(vec![Value::unknown(0)]), Value::Int(1)]), "error: undetermined");
    }
}
