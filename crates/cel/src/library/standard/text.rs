//! Predicates over strings.

use std::sync::Arc;

use crate::cost::Price;
use crate::env::{Call, LibraryVersion, Overload, PlanTime, Prepared};
use crate::library::{price, shared};
use crate::regex::Regex;
use crate::value::{EvalError, Value};

pub(super) const OVERLOADS: &[Overload] = &[
    shared("contains_string", "string.contains(string) -> bool", price::SEARCH),
    shared("ends_with_string", "string.endsWith(string) -> bool", price::AFFIX),
    shared("starts_with_string", "string.startsWith(string) -> bool", price::AFFIX),
    regex("matches", "matches(string, string) -> bool"),
    regex("matches_string", "string.matches(string) -> bool"),
];

const fn regex(id: &'static str, signature: &'static str) -> Overload {
    let price: Price = price::REGEX;
    Overload {
        id,
        signature,
        since: LibraryVersion(0),
        price,
        call: Call::Singleton,
        plan_time: PlanTime::Replace(prepare_matches),
    }
}

pub(super) fn contains<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.contains(part.as_str()))),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn ends_with<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::String(text), Value::String(suffix)] => Ok(Value::Bool(text.ends_with(suffix.as_str()))),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn starts_with<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::String(text), Value::String(prefix)] => Ok(Value::Bool(text.starts_with(prefix.as_str()))),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// `matches` with an expression that only run time tells.
pub(super) fn matches<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::String(text), Value::String(pattern)] => {
            let regex = Regex::new(pattern).map_err(regex_error)?;
            regex.is_match(text).map(Value::Bool).map_err(regex_error)
        }
        _ => Err(EvalError::no_such_overload()),
    }
}

/// Code for a constant expression; with a bad one there is no program.
fn prepare_matches(operands: &[Option<&Value<'static>>]) -> Option<Result<Prepared, EvalError>> {
    let [_, Some(Value::String(pattern))] = operands else { return None };
    let regex = match Regex::new(pattern) {
        Ok(regex) => regex,
        Err(error) => return Some(Err(regex_error(error))),
    };
    Some(Ok(Arc::new(move |operands| match operands.first() {
        Some(Value::String(text)) => regex.is_match(text).map(Value::Bool).map_err(regex_error),
        _ => Err(EvalError::no_such_overload()),
    })))
}

fn regex_error(error: crate::regex::Error) -> EvalError {
    EvalError::other(error.to_string())
}
