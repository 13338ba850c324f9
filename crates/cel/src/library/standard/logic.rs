//! Logic, equality and access.
//!
//! All but `!` is implemented by the evaluator. The price is that of the call itself, without its operands:
//! `&&`, `||` and `?:` are free, and their estimates come from the estimator, because not all operands are
//! evaluated.

use crate::cost::Price;
use crate::env::Overload;
use crate::library::{builtin, price, shared};
use crate::value::{EvalError, Value};

pub(super) const OVERLOADS: &[Overload] = &[
    builtin("conditional", "_?_:_(bool, A, A) -> A", Price::Fixed(0)),
    builtin("logical_and", "_&&_(bool, bool) -> bool", Price::Fixed(0)),
    builtin("logical_or", "_||_(bool, bool) -> bool", Price::Fixed(0)),
    shared("logical_not", "!_(bool) -> bool", Price::ONE),
    builtin("not_strictly_false", "@not_strictly_false(bool) -> bool", Price::ONE),
    builtin("equals", "_==_(A, A) -> bool", price::EQUALITY),
    builtin("not_equals", "_!=_(A, A) -> bool", price::COMPARISON),
    builtin("index_list", "_[_](list(A), int) -> A", Price::ONE),
    builtin("index_map", "_[_](map(A, B), A) -> B", Price::ONE),
];

pub(super) fn not<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::Bool(truth)] => Ok(Value::Bool(!truth)),
        _ => Err(EvalError::no_such_overload()),
    }
}
