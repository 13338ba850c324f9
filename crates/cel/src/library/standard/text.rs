//! Predicates over strings.

use crate::cost::Price;
use crate::env::{Call, LibraryVersion, Overload, PlanTime, PreparedCall};
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
    on_texts(operands, is_part)
}

pub(super) fn ends_with<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    on_texts(operands, is_suffix)
}

pub(super) fn starts_with<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    on_texts(operands, is_prefix)
}

pub(super) fn is_part(text: &str, part: &str) -> bool {
    text.contains(part)
}

pub(super) fn is_suffix(text: &str, suffix: &str) -> bool {
    text.ends_with(suffix)
}

pub(super) fn is_prefix(text: &str, prefix: &str) -> bool {
    text.starts_with(prefix)
}

#[inline]
fn on_texts<'v>(operands: &[Value<'v>], test: impl Fn(&str, &str) -> bool) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::String(text), Value::String(other)] => Ok(Value::Bool(test(text, other))),
        _ => Err(EvalError::no_such_overload()),
    }
}

/// `matches` with a pattern that is known only at run time.
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
fn prepare_matches(operands: &[Option<&Value<'static>>]) -> Option<Result<PreparedCall, EvalError>> {
    let [_, Some(Value::String(pattern))] = operands else { return None };
    let regex = match Regex::new(pattern) {
        Ok(regex) => regex,
        Err(error) => return Some(Err(regex_error(error))),
    };
    Some(Ok(PreparedCall::test(move |text| regex.is_match(text).map_err(regex_error))))
}

fn regex_error(error: crate::regex::Error) -> EvalError {
    EvalError::other(error.to_string())
}
