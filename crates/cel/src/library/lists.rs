//! Lists: parts, order, duplicates.
//!
//! Until version 3 every call costs 1; from then on, prices depend on sizes. The macro `sortBy` belongs to this library from
//! version 2 on and expands to `@sortByAssociatedKeys`.
//!
//! Follows cel-go's `ext.Lists`, versions 0 to 3.

mod partial;

use super::price::{result_size, size};
use super::{int, list, native, shared, since, unexpected};
use crate::cost::{CallEstimate, CallSite, Cost, LIST_CREATION, Price, Size};
use crate::env::{Library, LibraryVersion, Overload, Singleton};
use crate::syntax::ast::Literal;
use crate::syntax::macros;
use crate::value::bounds::check_elements;
use crate::value::equality::count_comparison;
use crate::value::{ErrorKind, EvalError, List, Value};

/// Functions over lists. Version 1 brought `flatten`; 2 `sort`, `sortBy`, `lists.range`, `reverse`, `distinct`; 3 the prices.
pub fn lists(version: u32) -> Library {
    Library {
        name: "cel.lib.ext.lists",
        version: LibraryVersion(version),
        overloads: &OVERLOADS,
        singletons: SINGLETONS,
        types: Vec::new(),
        macros: if version >= 2 { macros::SORT_BY } else { &[] },
        validators: &[],
        partial: partial::FUNCTIONS,
    }
}

/// The most that `lists.range` makes.
const RANGE_MAX: i64 = 1_000_000;

/// The overloads of `sort` and `@sortByAssociatedKeys`, one for each type that has an order.
macro_rules! sorting {
    ($version:literal, $numbers:expr, $text:expr, $key_numbers:expr, $key_text:expr) => {
        &[
            sorting!(@sort $version, "int", "int", $numbers),
            sorting!(@sort $version, "uint", "uint", $numbers),
            sorting!(@sort $version, "double", "double", $numbers),
            sorting!(@sort $version, "bool", "bool", $numbers),
            sorting!(@sort $version, "google.protobuf.Duration", "duration", $numbers),
            sorting!(@sort $version, "google.protobuf.Timestamp", "timestamp", $numbers),
            sorting!(@sort $version, "string", "string", $text),
            sorting!(@sort $version, "bytes", "bytes", $text),
            sorting!(@keys $version, "int", "int", $key_numbers),
            sorting!(@keys $version, "uint", "uint", $key_numbers),
            sorting!(@keys $version, "double", "double", $key_numbers),
            sorting!(@keys $version, "bool", "bool", $key_numbers),
            sorting!(@keys $version, "google.protobuf.Duration", "duration", $key_numbers),
            sorting!(@keys $version, "google.protobuf.Timestamp", "timestamp", $key_numbers),
            sorting!(@keys $version, "string", "string", $key_text),
            sorting!(@keys $version, "bytes", "bytes", $key_text),
        ]
    };
    (@sort $version:literal, $id:literal, $of:literal, $price:expr) => {
        since(
            $version,
            shared(concat!("list_", $id, "_sort"), concat!("list(", $of, ").sort() -> list(", $of, ")"), $price),
        )
    };
    (@keys $version:literal, $id:literal, $of:literal, $price:expr) => {
        since(
            $version,
            shared(
                concat!("list_", $id, "_sortByAssociatedKeys"),
                concat!("list(T).@sortByAssociatedKeys(list(", $of, ")) -> list(T)"),
                $price,
            ),
        )
    };
}

const FUNCTIONS: &[Overload] = &[
    native("list_slice", "list(T).slice(int, int) -> list(T)", Price::ONE, slice),
    since(1, shared("list_flatten", "list(list(T)).flatten() -> list(T)", Price::ONE)),
    since(1, shared("list_flatten_int", "list(dyn).flatten(int) -> list(dyn)", Price::ONE)),
    since(2, native("lists_range", ":lists.range(int) -> list(int)", Price::ONE, range)),
    since(2, native("list_reverse", "list(T).reverse() -> list(T)", Price::ONE, reverse)),
    since(2, native("list_distinct", "list(T).distinct() -> list(T)", Price::ONE, distinct)),
];

/// The same functions with prices: a later entry with the same identifier replaces an earlier one.
const PRICED: &[Overload] = &[
    since(3, native("list_slice", "list(T).slice(int, int) -> list(T)", SLICE, slice)),
    since(3, shared("list_flatten", "list(list(T)).flatten() -> list(T)", FLATTEN)),
    since(3, shared("list_flatten_int", "list(dyn).flatten(int) -> list(dyn)", FLATTEN)),
    since(3, native("lists_range", ":lists.range(int) -> list(int)", RANGE, range)),
    since(3, native("list_reverse", "list(T).reverse() -> list(T)", REVERSE, reverse)),
    since(3, native("list_distinct", "list(T).distinct() -> list(T)", DISTINCT, distinct)),
];

const SORTING: &[Overload] = sorting!(2, Price::ONE, Price::ONE, Price::ONE, Price::ONE);
const PRICED_SORTING: &[Overload] = sorting!(3, SORT, SORT_TEXT, SORT_BY, SORT_BY_TEXT);

const PARTS: &[&[Overload]] = &[FUNCTIONS, SORTING, PRICED, PRICED_SORTING];

static OVERLOADS: [Overload; super::count(PARTS)] = super::join(PARTS);

static SINGLETONS: &[Singleton] = &[
    Singleton::new("flatten", |_| true, flatten),
    Singleton::new("sort", is_lister, sort),
    Singleton::new("@sortByAssociatedKeys", is_lister, sort_by_keys),
];

/// A new list of this many elements, each of which costs a factor.
fn estimate_new_list(factor: f64, elements: Size) -> CallEstimate {
    let cost = elements.times_factor(factor).plus(Cost::exactly(1)).plus(Cost::exactly(LIST_CREATION));
    CallEstimate { cost, result_size: Some(elements) }
}

/// Rounds down, unlike the estimate.
fn actual_new_list(factor: f64, elements: u64) -> u64 {
    let factor = if factor < 0.0 { 1.0 } else { factor };
    ((elements as f64 * factor) as u64).saturating_add(1).saturating_add(LIST_CREATION)
}

/// A literal index; a negative one counts as 0.
fn literal_index(site: &dyn CallSite, operand: usize) -> Option<u64> {
    match site.operand_literal(operand) {
        Some(Literal::Int(index)) => Some(u64::try_from(*index).unwrap_or(0)),
        _ => None,
    }
}

const SLICE: Price = Price::Sized {
    estimate: |site| {
        let start = literal_index(site, 1).unwrap_or(0);
        let end = literal_index(site, 2).unwrap_or_else(|| site.size(0).max);
        // The reference does not check: an end before the start is an enormous slice.
        estimate_new_list(1.0, Size::exactly(end.wrapping_sub(start)))
    },
    actual: |_, outcome| actual_new_list(1.0, result_size(outcome)),
    when_dynamic: false,
};

const RANGE: Price = Price::Sized {
    estimate: |site| estimate_new_list(1.0, Size::exactly(literal_index(site, 0).unwrap_or(u64::MAX))),
    actual: |_, outcome| actual_new_list(1.0, result_size(outcome)),
    when_dynamic: false,
};

const REVERSE: Price = Price::Sized {
    estimate: |site| estimate_new_list(1.0, site.size(0)),
    actual: |_, outcome| actual_new_list(1.0, result_size(outcome)),
    when_dynamic: false,
};

const FLATTEN: Price = Price::Sized {
    estimate: |site| {
        let depth = if site.operand_count() > 1 { literal_index(site, 1).unwrap_or(u64::MAX) } else { 1 };
        estimate_new_list(depth as f64, site.size(0))
    },
    actual: |operands, _| {
        let depth = match operands.get(1) {
            Some(Value::Int(depth)) => *depth as f64,
            _ => 1.0,
        };
        actual_new_list(depth, size(operands, 0))
    },
    when_dynamic: false,
};

/// Every element is compared with every other one, twice.
const COMPARE_ALL: f64 = 2.0;
/// Elements that are text weigh a little more.
const COMPARE_ALL_TEXT: f64 = 2.1;

const DISTINCT: Price = self_comparison::<0>(false);
const SORT: Price = self_comparison::<0>(false);
const SORT_TEXT: Price = self_comparison::<0>(true);
const SORT_BY: Price = self_comparison::<1>(false);
const SORT_BY_TEXT: Price = self_comparison::<1>(true);

/// The price of comparing the elements of an operand with each other.
const fn self_comparison<const OPERAND: usize>(text: bool) -> Price {
    Price::OfList {
        operand: OPERAND,
        estimate: if text {
            |site| estimate_new_list(COMPARE_ALL_TEXT, site.size(OPERAND).times(site.size(OPERAND)))
        } else {
            |site| estimate_new_list(COMPARE_ALL, site.size(OPERAND).times(site.size(OPERAND)))
        },
        actual: |operands, _| actual_self_comparison(operands.get(OPERAND)),
    }
}

fn actual_self_comparison(operand: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = operand else { return actual_new_list(COMPARE_ALL, 1) };
    let elements = list.len() as u64;
    let factor = match list.get(0) {
        Some(Value::String(_) | Value::Bytes(_)) => COMPARE_ALL_TEXT,
        _ => COMPARE_ALL,
    };
    actual_new_list(factor, elements.saturating_mul(elements))
}

fn is_lister(value: &Value<'_>) -> bool {
    // Strings and times answer every call themselves.
    matches!(value, Value::List(_) | Value::String(_) | Value::Duration(_) | Value::Timestamp(_))
}

fn slice<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (list, start, end) = (list(operands, 0)?, int(operands, 1)?, int(operands, 2)?);
    let fail = |reason: &str| Err(EvalError::other(format!("cannot slice({start}, {end}), {reason}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return fail("negative indexes not supported");
    };
    if from > to {
        return fail("start index must be less than or equal to end index");
    }
    if list.len() < to {
        return fail(&format!("list is length {}", list.len()));
    }
    Ok(Value::list(list.iter().take(to).skip(from).collect()))
}

fn flatten<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let (list, depth) = match operands {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        [other] => return Err(EvalError::other(format!("no such overload: {}.flatten()", other.type_of()))),
        [list, depth] => {
            let message = format!("no such overload: {}.flatten({})", list.type_of(), depth.type_of());
            return Err(EvalError::other(message));
        }
        _ => return Err(unexpected()),
    };
    let depth = u64::try_from(depth).map_err(|_| EvalError::other("level must be non-negative"))?;
    let mut flat = Vec::with_capacity(list.len());
    flatten_into(list, depth, &mut flat)?;
    Ok(Value::list(flat))
}

fn flatten_into<'v>(list: &List<'v>, depth: u64, flat: &mut Vec<Value<'v>>) -> Result<(), EvalError> {
    check_elements(flat.len().saturating_add(list.len()))?;
    for element in list.iter() {
        match (element, depth.checked_sub(1)) {
            (Value::List(nested), Some(depth)) => flatten_into(&nested, depth, flat)?,
            (element, _) => flat.push(element),
        }
    }
    Ok(())
}

fn range<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let size = int(operands, 0)?;
    if size < 0 {
        return Err(EvalError::other(format!("lists.range: size must be non-negative, got {size}")));
    }
    if size > RANGE_MAX {
        let message = format!("lists.range: size {size} exceeds maximum allowed ({RANGE_MAX})");
        return Err(EvalError::other(message));
    }
    Ok(Value::list((0..size).map(Value::Int).collect()))
}

fn reverse<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::list(list(operands, 0)?.iter().rev().collect()))
}

fn distinct<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let mut distinct: Vec<Value<'v>> = Vec::new();
    for element in list(operands, 0)?.iter() {
        let mut seen = false;
        for other in &distinct {
            count_comparison()?;
            match element.equals_in_evaluation(other) {
                Ok(equal) => seen = equal,
                // Values that refuse to be compared are not equal.
                Err(error) if error.kind() == ErrorKind::NoSuchOverload => {}
                Err(error) => return Err(error),
            }
            if seen {
                break;
            }
        }
        if !seen {
            distinct.push(element);
        }
    }
    Ok(Value::list(distinct))
}

fn sort<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::List(list)] => sort_by(list, list),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn sort_by_keys<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::List(list), Value::List(keys)] => sort_by(list, keys),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn sort_by<'v>(list: &List<'v>, keys: &List<'v>) -> Result<Value<'v>, EvalError> {
    if list.len() != keys.len() {
        return Err(EvalError::other(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let mut pairs: Vec<(Value<'v>, Value<'v>)> = keys.iter().zip(list.iter()).collect();
    let Some((first, _)) = pairs.first() else { return Ok(Value::List(list.clone())) };
    for (key, _) in &pairs {
        match key {
            Value::Error(error) => return Err(error.clone()),
            Value::Unknown(_) => return Err(EvalError::undetermined()),
            _ => {}
        }
    }
    if !first.is_comparable() {
        return Err(EvalError::other("list elements must be comparable"));
    }
    let kind = std::mem::discriminant(first);
    if pairs.iter().any(|(key, _)| std::mem::discriminant(key) != kind) {
        return Err(EvalError::other("list elements must have the same type"));
    }
    if pairs.iter().any(|(key, _)| matches!(key, Value::Double(number) if number.is_nan())) {
        sort_without_order(&mut pairs);
    } else {
        pairs.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(std::cmp::Ordering::Equal));
    }
    Ok(Value::list(pairs.into_iter().map(|(_, element)| element).collect()))
}

/// Insertion, as the reference sorts short lists: NaN is not less than anything, so there is no order to rely on.
fn sort_without_order(pairs: &mut [(Value<'_>, Value<'_>)]) {
    for end in 1..pairs.len() {
        for at in (1..=end).rev() {
            let before = at.saturating_sub(1);
            let less = match (pairs.get(at), pairs.get(before)) {
                (Some((key, _)), Some((other, _))) => key.compare(other).is_ok_and(std::cmp::Ordering::is_lt),
                _ => false,
            };
            if !less {
                break;
            }
            pairs.swap(at, before);
        }
    }
}

#[cfg(test)]
mod tests;
