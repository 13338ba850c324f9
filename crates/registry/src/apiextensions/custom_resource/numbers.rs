//! Numbers against bounds: integers are compared as integers, where the bound is one that the type can hold.
//!
//! Follows `IsValueValidAgainstRange` and its siblings in `kube-openapi`, which reads bounds as floats.

use std::cmp::Ordering;

use api::json::Value;

use super::checker::shown_float;

/// The largest integer that a float holds without loss.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// Whether a float is an integer, within a small tolerance.
pub(super) fn is_integer(value: f64) -> bool {
    const EPSILON: f64 = 1e-9;
    if !value.is_finite() || value.abs() > EXACT_MAX {
        return false;
    }
    if value.fract() == 0.0 {
        return true;
    }
    let whole = value.trunc();
    if value == 0.0 || whole <= 0.0 {
        return false;
    }
    (value - whole).abs() / (value.abs() + whole.abs()) < EPSILON
}

/// The integer part, as Go converts floats.
pub(super) fn truncated(value: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
    (value.is_finite() && value.abs() < 9.2e18).then_some(value as i64)
}

/// Range of values of a schema's type and format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range<'s> {
    /// `integer`, `number`, or nothing.
    pub(super) kind: &'s str,
    /// `int32`, `int64`, `float`, `double`, or nothing.
    pub(super) format: &'s str,
}

impl Range<'_> {
    /// Whether a number can be held.
    pub(super) fn holds(self, value: &Value) -> bool {
        match (self.kind, self.format) {
            ("integer", format) => {
                let number = match value {
                    Value::Int(number) => Some(*number),
                    Value::Float(number) => Some(number.get()).filter(|it| it.fract() == 0.0).and_then(truncated),
                    _ => None,
                };
                number.is_some_and(|number| format != "int32" || i32::try_from(number).is_ok())
            }
            #[expect(clippy::cast_possible_truncation, reason = "whether it becomes infinite is the question")]
            ("number", "float") => value.as_f64().is_some_and(|number| (number as f32).is_finite()),
            _ => true,
        }
    }
}

/// A bound as texts show it.
pub(super) fn shown(bound: f64, value: &Value, native: bool) -> String {
    match (value, truncated(bound)) {
        (Value::Int(_), Some(bound)) if native => bound.to_string(),
        _ => shown_float(bound),
    }
}

/// Compares a number with a bound.
pub(super) fn compare(value: &Value, bound: f64, native: bool) -> Ordering {
    match (value, truncated(bound)) {
        (Value::Int(number), Some(bound)) if native => number.cmp(&bound),
        _ => value.as_f64().and_then(|number| number.partial_cmp(&bound)).unwrap_or(Ordering::Equal),
    }
}

/// Whether a number is a multiple of a factor; none if the factor is not positive.
pub(super) fn is_multiple(value: &Value, factor: f64, native: bool) -> Option<bool> {
    if let (Value::Int(number), true) = (value, native) {
        let factor = truncated(factor)?;
        return (factor > 0).then(|| number.checked_rem(factor) == Some(0));
    }
    if factor <= 0.0 {
        return None;
    }
    let number = value.as_f64()?;
    let quotient = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
    Some(is_integer(quotient))
}
