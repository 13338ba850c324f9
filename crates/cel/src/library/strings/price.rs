//! Kubernetes' prices of string functions.

use std::ops::ControlFlow;

use crate::cost::{CallEstimate, CallSite, Cost, Price, STRING_TRAVERSAL_FACTOR, Size};
use crate::library::price::{result_size, size, traversal};
use crate::syntax::ast::Literal;
use crate::types::Type;
use crate::value::Value;

/// `indexOf`, `lastIndexOf`: the text is read once; rounded down, and in octets.
pub(super) const SEARCH: Price = Price::Sized {
    estimate: |site| site.size(0).times_factor(STRING_TRAVERSAL_FACTOR).into(),
    actual: |operands, _| operands.first().map_or(0, walk),
    when_dynamic: true,
};

/// Cost of traversing a value: 1 for each leaf, a tenth for each octet of text.
fn walk(value: &Value<'_>) -> u64 {
    let octets = |length: usize| (length as f64 * STRING_TRAVERSAL_FACTOR) as u64;
    match value {
        Value::String(text) => octets(text.len()),
        Value::Bytes(bytes) => octets(bytes.len()),
        Value::List(list) => list.iter().fold(0, |total, element| total.saturating_add(walk(&element))),
        Value::Map(map) => {
            let mut total = 0_u64;
            map.for_each(|key, value| {
                total = total.saturating_add(walk(&key)).saturating_add(walk(&value));
                ControlFlow::Continue(())
            });
            total
        }
        _ => 1,
    }
}

/// The text is read once, and the result is at most as long: `lowerAscii`, `upperAscii`, `substring`, `trim`.
pub(super) const COPY: Price = Price::Sized {
    estimate: |site| {
        let text = site.size(0);
        CallEstimate { cost: text.times_factor(STRING_TRAVERSAL_FACTOR), result_size: Some(text) }
    },
    actual: |operands, _| traversal(size(operands, 0)),
    when_dynamic: true,
};

/// The text is read, and the result written.
fn read_and_write(text: Size) -> Cost {
    text.times_factor(2.0 * STRING_TRAVERSAL_FACTOR)
}

fn actual_read_and_write(size: u64) -> u64 {
    (size as f64 * 2.0 * STRING_TRAVERSAL_FACTOR).ceil() as u64
}

/// `replace`
pub(super) const REPLACE: Price = Price::Sized {
    estimate: |site| {
        let result = replaced_size(site.size(0), site.size(1), site.size(2));
        CallEstimate { cost: read_and_write(site.size(0)), result_size: Some(result) }
    },
    actual: |operands, _| actual_read_and_write(size(operands, 0)),
    when_dynamic: true,
};

/// Range of the length of a text after parts of it were replaced.
fn replaced_size(text: Size, part: Size, replacement: Size) -> Size {
    let fitting = |text: u64, part: u64| (text as f64 / part as f64).ceil() as u64;
    // An empty part matches around every code point. If a replacement cannot lengthen (or shorten) the text,
    // the extreme is no replacement; otherwise it is the replacement of everything.
    let (count, kept) = if part.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if replacement.max <= part.min {
        (0, text.max)
    } else {
        (fitting(text.max, part.min), 0)
    };
    let max = count.saturating_mul(replacement.max).saturating_add(kept);
    let (count, kept) = if part.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if part.max <= replacement.min {
        (0, text.min)
    } else {
        (fitting(text.min, part.max), 0)
    };
    Size { min: count.saturating_mul(replacement.min).saturating_add(kept), max }
}

/// `split`: at worst each code point is a part, or as many as a literal limit says.
pub(super) const SPLIT: Price = Price::Sized {
    estimate: |site| {
        let text = site.size(0);
        let max = match site.operand_literal(2) {
            // A negative limit means none: the largest number, as the reference converts it.
            Some(Literal::Int(limit)) => limit.cast_unsigned(),
            _ => text.max,
        };
        CallEstimate { cost: read_and_write(text), result_size: Some(Size::at_most(max)) }
    },
    actual: |operands, _| actual_read_and_write(size(operands, 0)),
    when_dynamic: true,
};

/// `join`: the estimate counts the result once, the meter twice.
pub(super) const JOIN: Price = Price::Sized {
    estimate: |site| {
        let result = joined_size(site);
        CallEstimate { cost: result.times_factor(STRING_TRAVERSAL_FACTOR), result_size: Some(result) }
    },
    actual: |_, outcome| actual_read_and_write(result_size(outcome)),
    when_dynamic: true,
};

fn joined_size(site: &dyn CallSite) -> Size {
    let list = site.size(0);
    let elements = match site.operand_type(0) {
        Type::List(_) => list.times(site.known_element_size(0).unwrap_or(Size::UNKNOWN)),
        _ => Size::exactly(0),
    };
    if site.operand_count() < 2 {
        return elements;
    }
    let gaps = Size { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
    elements.plus(site.size(1).times(gaps))
}

/// `strings.quote`: two quotes are added, and at worst each code point is escaped.
pub(super) const QUOTE: Price = Price::Sized {
    estimate: |site| {
        let text = site.size(0);
        // The reference does not check these sums.
        let result = Size { min: text.min.wrapping_add(2), max: text.max.wrapping_mul(2).wrapping_add(2) };
        CallEstimate { cost: text.times_factor(STRING_TRAVERSAL_FACTOR), result_size: Some(result) }
    },
    actual: |operands, _| traversal(size(operands, 0)),
    when_dynamic: false,
};

/// `format`: only the format string counts.
pub(super) const FORMAT: Price = Price::Sized {
    estimate: |site| site.size(0).times_factor(STRING_TRAVERSAL_FACTOR).into(),
    actual: |operands, _| traversal(size(operands, 0)),
    when_dynamic: false,
};
