//! Order of values, across numeric kinds as in cel-go.

use std::cmp::Ordering;

use super::{ErrorKind, EvalError, Value};

/// 2^63 and 2^64, beyond which a double is not an integer of 64 bits.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

impl Value<'_> {
    /// Compares two values; fails where their types have no order, or with NaN.
    pub fn compare(&self, other: &Value<'_>) -> Result<Ordering, EvalError> {
        let ordering = match (self, other) {
            (Value::Int(a), Value::Int(b)) => a.cmp(b),
            (Value::String(a), Value::String(b)) => a.as_str().cmp(b.as_str()),
            (Value::Uint(a), Value::Uint(b)) => a.cmp(b),
            (Value::Double(a), Value::Double(b)) => compare_doubles(*a, *b)?,
            (Value::Int(a), Value::Uint(b)) => compare_int_uint(*a, *b),
            (Value::Uint(a), Value::Int(b)) => compare_int_uint(*b, *a).reverse(),
            (Value::Int(a), Value::Double(b)) => compare_int_double(*a, *b)?,
            (Value::Double(a), Value::Int(b)) => compare_int_double(*b, *a)?.reverse(),
            (Value::Uint(a), Value::Double(b)) => compare_uint_double(*a, *b)?,
            (Value::Double(a), Value::Uint(b)) => compare_uint_double(*b, *a)?.reverse(),
            (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
            (Value::Bytes(a), Value::Bytes(b)) => a.as_slice().cmp(b.as_slice()),
            (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
            (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
            (Value::Unknown(_), _) | (_, Value::Unknown(_)) => return Err(EvalError::undetermined()),
            // What the other one is, is asked only afterwards.
            (Value::Double(a), _) if a.is_nan() => compare_doubles(*a, *a)?,
            _ => return Err(EvalError::no_such_overload()),
        };
        Ok(ordering)
    }

    /// Whether values of this kind have an order.
    pub fn is_comparable(&self) -> bool {
        matches!(
            self,
            Value::Bool(_)
                | Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
        )
    }
}

fn compare_doubles(a: f64, b: f64) -> Result<Ordering, EvalError> {
    a.partial_cmp(&b).ok_or_else(|| EvalError::new(ErrorKind::Other, "NaN values cannot be ordered"))
}

fn compare_int_uint(a: i64, b: u64) -> Ordering {
    match u64::try_from(a) {
        Ok(a) => a.cmp(&b),
        Err(_) => Ordering::Less,
    }
}

fn compare_int_double(a: i64, b: f64) -> Result<Ordering, EvalError> {
    compare_doubles(int_to_double(a), b)
}

fn compare_uint_double(a: u64, b: f64) -> Result<Ordering, EvalError> {
    compare_doubles(uint_to_double(a), b)
}

pub(crate) fn int_to_double(number: i64) -> f64 {
    number as f64
}

pub(crate) fn uint_to_double(number: u64) -> f64 {
    number as f64
}

/// The integer that a double is exactly.
pub(crate) fn double_to_int_lossless(number: f64) -> Option<i64> {
    let fits = number.trunc() == number && (-TWO_TO_63..TWO_TO_63).contains(&number);
    fits.then_some(number as i64)
}

/// The unsigned integer that a double is exactly.
pub(crate) fn double_to_uint_lossless(number: f64) -> Option<u64> {
    let fits = number.trunc() == number && (0.0..TWO_TO_64).contains(&number);
    fits.then_some(number as u64)
}
