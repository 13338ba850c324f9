//! `<`, `<=`, `>`, `>=`: within a type, and across numeric types.

use std::cmp::Ordering;

use crate::cost::Price;
use crate::env::Overload;
use crate::library::{price, shared};
use crate::value::{EvalError, Value};

/// The overloads of one operator, in cel-go's order.
macro_rules! overloads {
    ($id:literal, $operator:literal) => {
        &[
            overloads!(@one $id, $operator, "_bool", "bool", "bool", Price::ONE),
            overloads!(@one $id, $operator, "_int64", "int", "int", Price::ONE),
            overloads!(@one $id, $operator, "_int64_double", "int", "double", Price::ONE),
            overloads!(@one $id, $operator, "_int64_uint64", "int", "uint", Price::ONE),
            overloads!(@one $id, $operator, "_uint64", "uint", "uint", Price::ONE),
            overloads!(@one $id, $operator, "_uint64_double", "uint", "double", Price::ONE),
            overloads!(@one $id, $operator, "_uint64_int64", "uint", "int", Price::ONE),
            overloads!(@one $id, $operator, "_double", "double", "double", Price::ONE),
            overloads!(@one $id, $operator, "_double_int64", "double", "int", Price::ONE),
            overloads!(@one $id, $operator, "_double_uint64", "double", "uint", Price::ONE),
            overloads!(@one $id, $operator, "_string", "string", "string", price::COMPARISON),
            overloads!(@one $id, $operator, "_bytes", "bytes", "bytes", price::COMPARISON),
            overloads!(@one $id, $operator, "_timestamp", "timestamp", "timestamp", Price::ONE),
            overloads!(@one $id, $operator, "_duration", "duration", "duration", Price::ONE),
        ]
    };
    (@one $id:literal, $operator:literal, $suffix:literal, $left:literal, $right:literal, $price:expr) => {
        shared(concat!($id, $suffix), concat!($operator, "(", $left, ", ", $right, ") -> bool"), $price)
    };
}

pub(super) const LESS: &[Overload] = overloads!("less", "_<_");
pub(super) const LESS_EQUALS: &[Overload] = overloads!("less_equals", "_<=_");
pub(super) const GREATER: &[Overload] = overloads!("greater", "_>_");
pub(super) const GREATER_EQUALS: &[Overload] = overloads!("greater_equals", "_>=_");

pub(super) fn less<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    compare(operands, Ordering::is_lt)
}

pub(super) fn less_equals<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    compare(operands, Ordering::is_le)
}

pub(super) fn greater<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    compare(operands, Ordering::is_gt)
}

pub(super) fn greater_equals<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    compare(operands, Ordering::is_ge)
}

#[inline]
fn compare<'v>(operands: &[Value<'v>], answer: fn(Ordering) -> bool) -> Result<Value<'v>, EvalError> {
    match operands {
        [a, b] => Ok(Value::Bool(answer(a.compare(b)?))),
        _ => Err(EvalError::no_such_overload()),
    }
}
