//! Prices that several functions share.
//!
//! Sizes are code points, octets, elements or entries; a traversal of text costs a tenth of its size, rounded up.

use crate::cost::{CallEstimate, CallSite, Cost, Outcome, Price, STRING_TRAVERSAL_FACTOR, Size};
use crate::value::Value;

/// Cost of one code point of a regular expression, for each tenth of the text.
pub(super) const REGEX_FACTOR: f64 = 0.25;

/// The size of an operand of a call that was made.
pub(super) fn size(operands: &[Value<'_>], operand: usize) -> u64 {
    operands.get(operand).map_or(1, Value::size)
}

/// The size of a result; a failure has size 1.
pub(super) fn result_size(outcome: Outcome<'_, '_>) -> u64 {
    outcome.map_or(1, Value::size)
}

/// Cost of traversing text of this size.
pub(super) fn traversal(size: u64) -> u64 {
    crate::cost::traversal_cost(size)
}

/// A size times a factor, rounded up; goes through floating point as the reference does.
pub(super) fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The text of operand 1 is read: `startsWith`, `endsWith`.
pub(super) const AFFIX: Price = Price::Traversal { operand: 1 };

/// Operand 1 is looked for in operand 0: `contains`.
pub(super) const SEARCH: Price = Price::Sized {
    estimate: |site| {
        let text = site.size(0).times_factor(STRING_TRAVERSAL_FACTOR);
        text.times(site.size(1).times_factor(STRING_TRAVERSAL_FACTOR)).into()
    },
    actual: |operands, _| traversal(size(operands, 0)).saturating_mul(traversal(size(operands, 1))),
    when_dynamic: false,
};

/// The regular expression in operand 1 is looked for in operand 0.
pub(super) const REGEX: Price = Price::Sized {
    estimate: |site| estimate_regex(site).into(),
    actual: |operands, _| actual_regex(operands),
    when_dynamic: false,
};

fn estimate_regex(site: &dyn CallSite) -> Cost {
    // One is added so that an empty text does not make an expensive expression free.
    let text = site.size(0).plus(Size::exactly(1)).times_factor(STRING_TRAVERSAL_FACTOR);
    text.times(site.size(1).times_factor(REGEX_FACTOR))
}

fn actual_regex(operands: &[Value<'_>]) -> u64 {
    let text = traversal(size(operands, 0).saturating_add(1));
    text.saturating_mul(scaled(size(operands, 1), REGEX_FACTOR))
}

/// The shorter of two operands is read: comparison of strings and octets, inequality of anything.
pub(super) const COMPARISON: Price = Price::Sized {
    estimate: |site| estimate_comparison(site).into(),
    actual: |operands, _| actual_comparison(operands),
    when_dynamic: false,
};

/// Like [`COMPARISON`], but values of types that the host or a library defines are compared for 1.
pub(super) const EQUALITY: Price = Price::Sized {
    estimate: |site| estimate_comparison(site).into(),
    actual: |operands, _| match operands.first() {
        Some(Value::Opaque(_)) => 1,
        _ => actual_comparison(operands),
    },
    when_dynamic: false,
};

fn estimate_comparison(site: &dyn CallSite) -> Cost {
    let max = site.size(0).max.min(site.size(1).max);
    Cost { min: max.min(1), max }.times_factor(STRING_TRAVERSAL_FACTOR)
}

fn actual_comparison(operands: &[Value<'_>]) -> u64 {
    traversal(size(operands, 0).min(size(operands, 1)))
}

/// Both operands are copied into one: `+` of strings and octets.
pub(super) const CONCATENATION: Price = Price::Sized {
    estimate: |site| {
        let result = site.size(0).plus(site.size(1));
        CallEstimate { cost: result.times_factor(STRING_TRAVERSAL_FACTOR), result_size: Some(result) }
    },
    actual: |operands, _| traversal(size(operands, 0).saturating_add(size(operands, 1))),
    when_dynamic: false,
};

/// `+` of lists costs 1 whatever their size; the estimate tracks the sum.
pub(super) const LIST_CONCATENATION: Price = Price::Sized {
    estimate: |site| CallEstimate { cost: Cost::exactly(1), result_size: Some(site.size(0).plus(site.size(1))) },
    actual: |_, _| 1,
    when_dynamic: false,
};

/// `in` is charged for the whole list, regardless of the position of the element; the sizes of elements do not
/// count.
pub(super) const LIST_MEMBERSHIP: Price = Price::Sized {
    estimate: |site| site.size(1).as_cost().into(),
    actual: |operands, _| size(operands, 1),
    when_dynamic: false,
};

/// `bytes(string)`: a code point has at most four octets.
pub(super) const STRING_TO_BYTES: Price = Price::Sized {
    estimate: |site| {
        let text = site.size(0);
        // The reference multiplies without a check: nearly everything, times four, is not everything.
        let result = Size { min: text.min, max: text.max.wrapping_mul(4) };
        CallEstimate { cost: text.times_factor(STRING_TRAVERSAL_FACTOR), result_size: Some(result) }
    },
    actual: |operands, _| traversal(size(operands, 0)),
    when_dynamic: false,
};

/// `string(bytes)`: up to four octets are one code point.
pub(super) const BYTES_TO_STRING: Price = Price::Sized {
    estimate: |site| {
        let octets = site.size(0);
        let result = Size { min: octets.min.wrapping_div(4), max: octets.max };
        CallEstimate { cost: octets.times_factor(STRING_TRAVERSAL_FACTOR), result_size: Some(result) }
    },
    actual: |operands, _| traversal(size(operands, 0)),
    when_dynamic: false,
};
