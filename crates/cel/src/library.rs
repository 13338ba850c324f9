//! Libraries for environments: one file per library, one entry per overload.
//!
//! Each function here returns a [`Library`](crate::env::Library) up to a version, so that an environment
//! contains exactly the selected functions. Identifiers, signatures, prices and texts of errors are cel-go's.
//! If cel-go itself has no price for a function but Kubernetes' cost estimator has one, the entry has
//! Kubernetes' price, which applies by the function's name.
//!
//! A library also has macros, most of which are in [`syntax::macros`](crate::syntax::macros), and validators.

mod bindings;
mod comprehensions;
mod encoders;
mod lists;
mod math;
mod optionals;
mod price;
mod regex;
mod sets;
mod standard;
mod strings;
#[cfg(test)]
mod testing;

pub use bindings::bindings;
pub use comprehensions::two_variable_comprehensions;
pub use encoders::encoders;
pub use lists::lists;
pub use math::math;
pub use optionals::optionals;
pub use regex::regex;
pub use sets::sets;
pub use standard::standard;
pub use strings::strings;

use crate::cost::Price;
use crate::env::{Call, LibraryVersion, NativeFunction, Overload, PlanTime};
use crate::value::{EvalError, List, Value};

/// An overload that is implemented by a function.
const fn native(id: &'static str, signature: &'static str, price: Price, call: NativeFunction) -> Overload {
    Overload { id, signature, since: LibraryVersion(0), price, call: Call::Native(call), plan_time: PlanTime::Nothing }
}

/// An overload that shares its function's code, see [`Singleton`](crate::env::Singleton).
const fn shared(id: &'static str, signature: &'static str, price: Price) -> Overload {
    Overload { id, signature, since: LibraryVersion(0), price, call: Call::Singleton, plan_time: PlanTime::Nothing }
}

/// An overload that the evaluator implements itself.
const fn builtin(id: &'static str, signature: &'static str, price: Price) -> Overload {
    Overload { id, signature, since: LibraryVersion(0), price, call: Call::Builtin, plan_time: PlanTime::Nothing }
}

/// The same overload, available from a later version of the library on.
const fn since(version: u32, overload: Overload) -> Overload {
    Overload { since: LibraryVersion(version), ..overload }
}

/// Total number of overloads in all parts.
const fn count(parts: &[&[Overload]]) -> usize {
    let mut total = 0;
    let mut rest = parts;
    while let [part, after @ ..] = rest {
        total = usize::saturating_add(total, part.len());
        rest = after;
    }
    total
}

/// The parts as one list.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "runs only when the crate is compiled")]
const fn join<const N: usize>(parts: &[&[Overload]]) -> [Overload; N] {
    let mut joined = [builtin("", "", Price::ONE); N];
    let mut index = 0;
    let mut rest = parts;
    while let [part, after @ ..] = rest {
        let mut position = 0;
        while position < part.len() {
            joined[index] = part[position];
            index += 1;
            position += 1;
        }
        rest = after;
    }
    joined
}

/// The error of a call whose operands do not match its overload. The evaluator checks the operands first, so it
/// is never returned to a caller.
fn unexpected() -> EvalError {
    EvalError::no_such_overload()
}

/// The string that an operand is.
fn text<'o>(operands: &'o [Value<'_>], operand: usize) -> Result<&'o str, EvalError> {
    operands.get(operand).and_then(Value::as_str).ok_or_else(unexpected)
}

/// The integer that an operand is.
fn int(operands: &[Value<'_>], operand: usize) -> Result<i64, EvalError> {
    match operands.get(operand) {
        Some(Value::Int(number)) => Ok(*number),
        _ => Err(unexpected()),
    }
}

/// The list that an operand is.
fn list<'o, 'v>(operands: &'o [Value<'v>], operand: usize) -> Result<&'o List<'v>, EvalError> {
    match operands.get(operand) {
        Some(Value::List(list)) => Ok(list),
        _ => Err(unexpected()),
    }
}
