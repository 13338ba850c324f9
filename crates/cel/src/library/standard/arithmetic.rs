//! Arithmetic: checked, within one numeric type; concatenation; sums and differences of times.
//!
//! Which first operands an operator takes is cel-go's test for a trait of the operand's type: other operands fail with
//! `no such overload: _+_`, a wrong second operand with `no such overload`.

use std::sync::Arc;

use super::receives;
use crate::cost::Price;
use crate::env::Overload;
use crate::library::{price, shared};
use crate::value::{Bytes, Duration, ErrorKind, EvalError, Value};

const ONE: Price = Price::ONE;

pub(super) const OVERLOADS: &[Overload] = &[
    shared("add_bytes", "_+_(bytes, bytes) -> bytes", price::CONCATENATION),
    shared("add_double", "_+_(double, double) -> double", ONE),
    shared("add_duration_duration", "_+_(duration, duration) -> duration", ONE),
    shared("add_duration_timestamp", "_+_(duration, timestamp) -> timestamp", ONE),
    shared("add_timestamp_duration", "_+_(timestamp, duration) -> timestamp", ONE),
    shared("add_int64", "_+_(int, int) -> int", ONE),
    shared("add_list", "_+_(list(A), list(A)) -> list(A)", price::LIST_CONCATENATION),
    shared("add_string", "_+_(string, string) -> string", price::CONCATENATION),
    shared("add_uint64", "_+_(uint, uint) -> uint", ONE),
    shared("divide_double", "_/_(double, double) -> double", ONE),
    shared("divide_int64", "_/_(int, int) -> int", ONE),
    shared("divide_uint64", "_/_(uint, uint) -> uint", ONE),
    shared("modulo_int64", "_%_(int, int) -> int", ONE),
    shared("modulo_uint64", "_%_(uint, uint) -> uint", ONE),
    shared("multiply_double", "_*_(double, double) -> double", ONE),
    shared("multiply_int64", "_*_(int, int) -> int", ONE),
    shared("multiply_uint64", "_*_(uint, uint) -> uint", ONE),
    shared("negate_double", "-_(double) -> double", ONE),
    shared("negate_int64", "-_(int) -> int", ONE),
    shared("subtract_double", "_-_(double, double) -> double", ONE),
    shared("subtract_duration_duration", "_-_(duration, duration) -> duration", ONE),
    shared("subtract_int64", "_-_(int, int) -> int", ONE),
    shared("subtract_timestamp_duration", "_-_(timestamp, duration) -> timestamp", ONE),
    shared("subtract_timestamp_timestamp", "_-_(timestamp, timestamp) -> duration", ONE),
    shared("subtract_uint64", "_-_(uint, uint) -> uint", ONE),
];

type Outcome<'v> = Result<Value<'v>, EvalError>;

pub(super) fn is_adder(value: &Value<'_>) -> bool {
    is_number(value) || receives(value) || matches!(value, Value::Bytes(_) | Value::List(_))
}

pub(super) fn is_subtracter(value: &Value<'_>) -> bool {
    is_number(value) || receives(value)
}

/// Whether a value can be divided, or multiplied.
pub(super) fn is_divider(value: &Value<'_>) -> bool {
    is_number(value) || receives(value)
}

pub(super) fn is_modder(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_)) || receives(value)
}

pub(super) fn is_negater(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Double(_) | Value::Bool(_)) || receives(value)
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

pub(super) fn add<'v>(operands: &[Value<'v>]) -> Outcome<'v> {
    match operands {
        [Value::Int(a), Value::Int(b)] => int(a.checked_add(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_add(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a + b)),
        [Value::String(a), Value::String(b)] => {
            if a.is_empty() {
                return Ok(Value::String(b.clone()));
            }
            if b.is_empty() {
                return Ok(Value::String(a.clone()));
            }
            let mut text = String::with_capacity(a.len().saturating_add(b.len()));
            text.push_str(a);
            text.push_str(b);
            Ok(Value::string(text))
        }
        [Value::List(a), b] => a.concat(b),
        [Value::Bytes(a), Value::Bytes(b)] => {
            let octets: Arc<[u8]> = [a.as_slice(), b.as_slice()].concat().into();
            Ok(Value::Bytes(Bytes::Shared(octets)))
        }
        [Value::Timestamp(at), Value::Duration(span)] | [Value::Duration(span), Value::Timestamp(at)] => {
            at.checked_add(*span).map(Value::Timestamp)
        }
        [Value::Duration(a), Value::Duration(b)] => duration(a.nanoseconds.checked_add(b.nanoseconds)),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn subtract<'v>(operands: &[Value<'v>]) -> Outcome<'v> {
    match operands {
        [Value::Int(a), Value::Int(b)] => int(a.checked_sub(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_sub(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a - b)),
        [Value::Timestamp(a), Value::Timestamp(b)] => a.checked_since(*b).map(Value::Duration),
        [Value::Timestamp(at), Value::Duration(span)] => {
            let nanoseconds = span.nanoseconds.checked_neg().ok_or_else(EvalError::int_overflow)?;
            at.checked_add(Duration { nanoseconds }).map(Value::Timestamp)
        }
        [Value::Duration(a), Value::Duration(b)] => duration(a.nanoseconds.checked_sub(b.nanoseconds)),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn multiply<'v>(operands: &[Value<'v>]) -> Outcome<'v> {
    match operands {
        [Value::Int(a), Value::Int(b)] => int(a.checked_mul(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_mul(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a * b)),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn divide<'v>(operands: &[Value<'v>]) -> Outcome<'v> {
    match operands {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::new(ErrorKind::DivideByZero, "division by zero"))
        }
        [Value::Int(a), Value::Int(b)] => int(a.checked_div(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_div(*b)),
        [Value::Double(a), Value::Double(b)] => Ok(Value::Double(a / b)),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn modulo<'v>(operands: &[Value<'v>]) -> Outcome<'v> {
    match operands {
        [Value::Int(_), Value::Int(0)] | [Value::Uint(_), Value::Uint(0)] => {
            Err(EvalError::new(ErrorKind::DivideByZero, "modulus by zero"))
        }
        [Value::Int(a), Value::Int(b)] => int(a.checked_rem(*b)),
        [Value::Uint(a), Value::Uint(b)] => uint(a.checked_rem(*b)),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn negate<'v>(operands: &[Value<'v>]) -> Outcome<'v> {
    match operands {
        [Value::Int(number)] => int(number.checked_neg()),
        [Value::Double(number)] => Ok(Value::Double(-number)),
        // No signature declares it, but for overloads chosen at run time the reference negates durations, too.
        [Value::Duration(span)] => duration(span.nanoseconds.checked_neg()),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn int<'v>(number: Option<i64>) -> Outcome<'v> {
    number.map(Value::Int).ok_or_else(EvalError::int_overflow)
}

fn uint<'v>(number: Option<u64>) -> Outcome<'v> {
    number.map(Value::Uint).ok_or_else(EvalError::uint_overflow)
}

fn duration<'v>(nanoseconds: Option<i64>) -> Outcome<'v> {
    let nanoseconds = nanoseconds.ok_or_else(EvalError::int_overflow)?;
    Ok(Value::Duration(Duration { nanoseconds }))
}
