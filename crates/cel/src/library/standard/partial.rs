//! Operators and `size` of unknown operands, computed from their minimum and maximum values.

use super::{arithmetic, order};
use crate::env::{NativeFunction, PartialFunction};
use crate::value::drawn::{Member, PartialList};
use crate::value::{UnknownValue, Value, Verdict};

pub(super) const FUNCTIONS: &[(&str, PartialFunction)] = &[
    ("_+_", add),
    ("_-_", |operands| corners(operands, arithmetic::subtract, &[(0, 1), (1, 0)])),
    ("_*_", |operands| corners(operands, arithmetic::multiply, &[(0, 0), (0, 1), (1, 0), (1, 1)])),
    ("_/_", divide),
    ("-_", negate),
    ("_<_", |operands| compare(operands, order::less, true)),
    ("_<=_", |operands| compare(operands, order::less_equals, true)),
    ("_>_", |operands| compare(operands, order::greater, false)),
    ("_>=_", |operands| compare(operands, order::greater_equals, false)),
    ("@in", is_in),
    ("size", size),
    ("dyn", |operands| operands.first().cloned()),
];

type Range<'v> = (Value<'v>, Value<'v>);

fn ranges<'v>(operands: &[Value<'v>]) -> Option<(Range<'v>, Range<'v>)> {
    match operands {
        [a, b] => Some((a.range()?, b.range()?)),
        _ => None,
    }
}

/// Whether a value is a number or a time, for which operators are monotonic in each operand.
fn is_quantity(value: &Value<'_>) -> bool {
    match value {
        Value::Double(number) => number.is_finite(),
        Value::Int(_) | Value::Uint(_) | Value::Duration(_) | Value::Timestamp(_) => true,
        _ => false,
    }
}

/// The extremes of the result occur at extremes of the operands: 0 and 1.
fn corners<'v>(operands: &[Value<'v>], call: NativeFunction, at: &[(usize, usize)]) -> Option<Value<'v>> {
    let ((a, b), (c, d)) = ranges(operands)?;
    let (left, right) = ([a, b], [c, d]);
    if !left.iter().chain(&right).all(is_quantity) {
        return None;
    }
    let mut range: Option<Range<'v>> = None;
    for (first, second) in at {
        let Ok(result) = call(&[left.get(*first)?.clone(), right.get(*second)?.clone()]) else {
            return Some(Value::Unknown(UnknownValue::anything_or_error()));
        };
        if !is_quantity(&result) {
            return None;
        }
        range = Some(match range {
            None => (result.clone(), result),
            Some((low, high)) if result.compare(&low).ok()?.is_lt() => (result, high),
            Some((low, high)) if result.compare(&high).ok()?.is_gt() => (low, result),
            Some(range) => range,
        });
    }
    let (first, last) = range?;
    Some(Value::between(first, last))
}

fn add<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    if let Some(sum) = corners(operands, arithmetic::add, &[(0, 0), (1, 1)]) {
        return Some(sum);
    }
    let [left, right] = operands else { return None };
    let (left, right) = (as_drawn(left)?, as_drawn(right)?);
    // Elements on the right follow an unknown number of others, unless everything on the left is known.
    let is_left_known = left.prefix() == left.members().len() && left.open().1 == 0;
    let prefix = left.prefix().saturating_add(if is_left_known { right.prefix() } else { 0 });
    let join = |a: &[Member<'v>], b: &[Member<'v>]| a.iter().chain(b).cloned().collect::<Vec<_>>();
    let open = (left.open().0.saturating_add(right.open().0), left.open().1.saturating_add(right.open().1));
    let members = join(left.members(), right.members());
    let candidates = join(drawable(&left), drawable(&right));
    // A candidate of both may be drawn for each: their values are independent.
    let loose =
        |members: Vec<Member<'v>>| members.into_iter().map(|it| Member::loose(it.value, it.is_certain)).collect();
    Some(PartialList::from_parts(loose(members), loose(candidates), open, prefix).into_value())
}

fn drawable<'l, 'v>(list: &'l PartialList<'v>) -> &'l [Member<'v>] {
    if list.open().1 == 0 { &[] } else { list.candidates() }
}

/// A list, also one that is known, as one of which a part is known.
fn as_drawn<'v>(value: &Value<'v>) -> Option<PartialList<'v>> {
    match value {
        Value::List(list) if !list.has_meaning() => {
            let members: Vec<_> = list.iter().map(|value| Member::loose(value, true)).collect();
            let is_known = |member: &Member<'_>| !matches!(member.value, Value::Unknown(_) | Value::Error(_));
            let count = members.len();
            members.iter().all(is_known).then(|| PartialList::from_parts(members, Vec::new(), (0, 0), count))
        }
        Value::Unknown(unknown) => unknown.as_drawn().cloned(),
        _ => None,
    }
}

fn divide<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let (_, (first, last)) = ranges(operands)?;
    let has_zero = match (&first, &last) {
        (Value::Int(first), Value::Int(last)) => *first <= 0 && *last >= 0,
        (Value::Uint(first), Value::Uint(_)) => *first == 0,
        (Value::Double(first), Value::Double(last)) => *first <= 0.0 && *last >= 0.0,
        _ => return None,
    };
    if has_zero {
        return Some(Value::Unknown(UnknownValue::anything_or_error()));
    }
    corners(operands, arithmetic::divide, &[(0, 0), (0, 1), (1, 0), (1, 1)])
}

fn negate<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let (first, last) = operands.first()?.range()?;
    match (arithmetic::negate(&[last]), arithmetic::negate(&[first])) {
        (Ok(first), Ok(last)) if is_quantity(&first) && is_quantity(&last) => Some(Value::between(first, last)),
        _ => Some(Value::Unknown(UnknownValue::anything_or_error())),
    }
}

/// Compares where the answer is hardest to reach, and where it is easiest.
fn compare<'v>(operands: &[Value<'v>], call: NativeFunction, is_less: bool) -> Option<Value<'v>> {
    let ((first, last), (other_first, other_last)) = ranges(operands)?;
    let (hardest, easiest) =
        if is_less { ([last, other_first], [first, other_last]) } else { ([first, other_last], [last, other_first]) };
    match (call(&hardest), call(&easiest)) {
        (Ok(Value::Bool(true)), _) => Some(Value::Bool(true)),
        (_, Ok(Value::Bool(false))) => Some(Value::Bool(false)),
        (Ok(_), Ok(_)) => Some(Value::of_verdict(Verdict::TRUE | Verdict::FALSE)),
        _ => Some(Value::Unknown(UnknownValue::anything_or_error())),
    }
}

fn is_in<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let [element, list] = operands else { return None };
    Some(Value::of_verdict(as_drawn(list)?.holds(element)))
}

fn size<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let Some(Value::Unknown(unknown)) = operands.first() else { return None };
    let (least, most) = unknown.as_drawn()?.length();
    let int = |size: usize| Value::Int(i64::try_from(size).unwrap_or(i64::MAX));
    Some(Value::between(int(least), int(most)))
}
