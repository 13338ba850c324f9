//! Sums, extremes and order of partly known lists, whose other elements are still to be drawn from candidates.
//!
//! For a number of open places, the minimum comes from the smallest candidates and the maximum from the
//! greatest. Elements of several kinds have no such order: the result is then unknown.

use std::cmp::Ordering;

use cel::env::PartialFunction;
use cel::value::{Duration, FailureChance, PartialList, Shape, UnknownValue, Value, Verdict};

pub(super) const FUNCTIONS: &[(&str, PartialFunction)] = &[
    ("min", |operands| extreme(operands, Ordering::Less)),
    ("max", |operands| extreme(operands, Ordering::Greater)),
    ("sum", sum),
    ("isSorted", is_sorted),
    ("includes", includes),
];

fn drawn<'o, 'v>(operands: &'o [Value<'v>]) -> Option<&'o PartialList<'v>> {
    match operands.first() {
        Some(Value::Unknown(unknown)) => unknown.as_drawn(),
        _ => None,
    }
}

fn order(a: &Value<'_>, b: &Value<'_>) -> Ordering {
    a.compare(b).unwrap_or(Ordering::Equal)
}

/// The greatest element where `better` is greater, the least where it is less.
fn extreme<'v>(operands: &[Value<'v>], better: Ordering) -> Option<Value<'v>> {
    let list = drawn(operands)?;
    if !list.is_of_one_kind() {
        return None;
    }
    // The end of a range that is better, and the other one.
    let ends = |value: &Value<'v>| {
        let (first, last) = value.range()?;
        Some(if better == Ordering::Greater { (last, first) } else { (first, last) })
    };
    let best_of =
        |values: Vec<Value<'v>>| values.into_iter().reduce(|a, b| if order(&b, &a) == better { b } else { a });
    let best = best_of(list.all().map(|member| Some(ends(&member.value)?.0)).collect::<Option<_>>()?)?;
    // The minimum contents: certain members, and the worst candidates.
    let mut certain: Vec<Value<'v>> =
        list.certain_members().map(|member| Some(ends(&member.value)?.1)).collect::<Option<_>>()?;
    let mut worst: Vec<Value<'v>> =
        list.candidates().iter().map(|member| Some(ends(&member.value)?.1)).collect::<Option<_>>()?;
    worst.sort_by(|a, b| if better == Ordering::Greater { order(a, b) } else { order(b, a) });
    let (open, _) = list.open();
    certain.extend(open.checked_sub(1).and_then(|last| worst.get(last).cloned()));
    let can_be_empty = list.length().0 == 0;
    let least = match best_of(certain) {
        Some(value) => value,
        None => {
            let all = list.all().map(|member| Some(ends(&member.value)?.1)).collect::<Option<Vec<_>>>()?;
            all.into_iter().reduce(|a, b| if order(&b, &a) == better { a } else { b })?
        }
    };
    let value = if better == Ordering::Greater { Value::between(least, best) } else { Value::between(best, least) };
    Some(if can_be_empty { or_error(value) } else { value })
}

/// The value, or an error.
fn or_error(value: Value<'_>) -> Value<'_> {
    let shape = match &value {
        Value::Unknown(unknown) => unknown.shape().cloned(),
        value => Some(Shape::OneOf(vec![value.clone()])),
    };
    Value::Unknown(
        shape.map_or_else(UnknownValue::anything_or_error, |shape| UnknownValue::new(FailureChance::Perhaps, shape)),
    )
}

/// A number to add up, and how to turn a sum back into a value of its kind.
fn number(value: &Value<'_>) -> Option<i128> {
    match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        Value::Duration(duration) => Some(i128::from(duration.nanoseconds)),
        _ => None,
    }
}

fn value_like<'v>(kind: &Value<'v>, sum: i128) -> Option<Value<'v>> {
    match kind {
        Value::Int(_) => i64::try_from(sum).ok().map(Value::Int),
        Value::Uint(_) => u64::try_from(sum).ok().map(Value::Uint),
        Value::Duration(_) => i64::try_from(sum).ok().map(|nanoseconds| Value::Duration(Duration { nanoseconds })),
        _ => None,
    }
}

fn sum<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let list = drawn(operands)?;
    // The sum of an empty list is the zero of a type that is known only to the call.
    if !list.is_of_one_kind() || list.length().0 == 0 {
        return None;
    }
    let kind = list.all().next()?.value.range()?.0;
    if matches!(kind, Value::Double(_)) {
        return sum_of_doubles(list);
    }
    let mut magnitude = 0_i128;
    let mut range = |value: &Value<'v>| {
        let (first, last) = value.range()?;
        let (first, last) = (number(&first)?, number(&last)?);
        magnitude = magnitude.checked_add(first.checked_abs()?.max(last.checked_abs()?))?;
        Some((first, last))
    };
    let (mut low, mut high) = (0_i128, 0_i128);
    for member in list.members() {
        let (first, last) = range(&member.value)?;
        low = low.checked_add(if member.is_certain() { first } else { first.min(0) })?;
        high = high.checked_add(if member.is_certain() { last } else { last.max(0) })?;
    }
    let (least, most) = list.open();
    if most > 0 {
        let ends = list.candidates().iter().map(|candidate| range(&candidate.value)).collect::<Option<Vec<_>>>()?;
        let (mut firsts, mut lasts): (Vec<i128>, Vec<i128>) = ends.into_iter().unzip();
        firsts.sort_unstable();
        lasts.sort_unstable_by(|a, b| b.cmp(a));
        // The smallest of as many as must be drawn; of the optional ones, only those that lower the sum.
        for (count, first) in firsts.iter().take(most).enumerate() {
            low = low.checked_add(if count < least { *first } else { (*first).min(0) })?;
        }
        for (count, last) in lasts.iter().take(most).enumerate() {
            high = high.checked_add(if count < least { *last } else { (*last).max(0) })?;
        }
    }
    // A partial sum may overflow even if the total does not.
    value_like(&kind, magnitude)?;
    match (value_like(&kind, low), value_like(&kind, high)) {
        (Some(low), Some(high)) => Some(Value::between(low, high)),
        _ => None,
    }
}

/// Sums of doubles depend on the order of adding: the bounds leave room for that.
fn sum_of_doubles<'v>(list: &PartialList<'v>) -> Option<Value<'v>> {
    /// A margin for rounding: many times the rounding error of a sum over the longest possible list.
    const ROOM: f64 = 1e-12;
    let mut magnitude = 0.0_f64;
    let mut range = |value: &Value<'v>| match value.range()? {
        (Value::Double(first), Value::Double(last)) if first.is_finite() && last.is_finite() => {
            magnitude += first.abs().max(last.abs());
            Some((first, last))
        }
        _ => None,
    };
    let (mut low, mut high) = (0.0_f64, 0.0_f64);
    for member in list.members() {
        let (first, last) = range(&member.value)?;
        low += if member.is_certain() { first } else { first.min(0.0) };
        high += if member.is_certain() { last } else { last.max(0.0) };
    }
    let (least, most) = list.open();
    if most > 0 {
        let ends = list.candidates().iter().map(|candidate| range(&candidate.value)).collect::<Option<Vec<_>>>()?;
        let (mut firsts, mut lasts): (Vec<f64>, Vec<f64>) = ends.into_iter().unzip();
        firsts.sort_unstable_by(f64::total_cmp);
        lasts.sort_unstable_by(|a, b| b.total_cmp(a));
        for (count, first) in firsts.iter().take(most).enumerate() {
            low += if count < least { *first } else { first.min(0.0) };
        }
        for (count, last) in lasts.iter().take(most).enumerate() {
            high += if count < least { *last } else { last.max(0.0) };
        }
    }
    let room = magnitude * ROOM;
    let (low, high) = (low - room, high + room);
    (low.is_finite() && high.is_finite()).then(|| Value::between(Value::Double(low), Value::Double(high)))
}

/// Members at the front that are out of order decide.
fn is_sorted<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let list = drawn(operands)?;
    if !list.is_of_one_kind() {
        return None;
    }
    let front: Vec<_> = list.members().iter().take(list.prefix()).map(|member| member.value.range()).collect();
    let is_violated = front.windows(2).any(|pair| match pair {
        [Some((first, _)), Some((_, last))] => order(first, last) == Ordering::Greater,
        _ => false,
    });
    if is_violated {
        return Some(Value::Bool(false));
    }
    Some(if list.length().1 <= 1 {
        Value::Bool(true)
    } else {
        Value::Unknown(UnknownValue::new(
            FailureChance::Never,
            Shape::OneOf(vec![Value::Bool(true), Value::Bool(false)]),
        ))
    })
}

fn includes<'v>(operands: &[Value<'v>]) -> Option<Value<'v>> {
    let (list, item) = (drawn(operands)?, operands.get(1)?);
    // Incomparable elements do not match.
    match list.holds(item) {
        Verdict::TRUE => Some(Value::Bool(true)),
        Verdict::FALSE => Some(Value::Bool(false)),
        found if found.can_be(Verdict::ERROR) => None,
        _ => Some(Value::Unknown(UnknownValue::new(
            FailureChance::Never,
            Shape::OneOf(vec![Value::Bool(true), Value::Bool(false)]),
        ))),
    }
}
