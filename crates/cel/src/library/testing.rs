//! Calls a library's functions as an evaluator would, and shows values and costs for comparison.

use crate::env::{Env, Implementation, Library};
use crate::value::{EvalError, Value, double_text};

/// A value as the tables of tests write it: strings in single quotes, `u` behind unsigned numbers.
pub(super) fn shown(value: &Value<'_>) -> String {
    match value {
        Value::String(text) => format!("'{}'", text.as_str()),
        Value::Uint(number) => format!("{number}u"),
        Value::Double(number) => double_text(*number),
        Value::Null => "null".to_owned(),
        Value::List(list) => {
            let elements: Vec<String> = list.iter().map(|element| shown(&element)).collect();
            format!("[{}]", elements.join(", "))
        }
        other => other.to_string(),
    }
}

/// Calls a function of a library and compares value or error, and the cost.
#[track_caller]
pub(super) fn check(
    library: &Library,
    function: &str,
    operands: &[Value<'static>],
    expected: Result<&str, &str>,
    cost: u64,
) {
    let env = Env::builder().library(library).build().unwrap();
    let function = env.function(function).unwrap();
    // Shared code accepts operands that no overload accepts; the price is then that of the first one.
    let accepting = function.overloads.iter().find(|overload| overload.accepts(operands));
    let overload = accepting.or_else(|| function.singleton.and(function.overloads.first())).unwrap();
    let outcome: Result<Value<'static>, EvalError> = match (&overload.implementation, function.singleton) {
        (Implementation::Native(call), _) => call(operands),
        (Implementation::Singleton, Some(singleton)) => {
            assert!((singleton.accepts)(&operands[0]));
            (singleton.call)(operands)
        }
        other => panic!("{other:?}"),
    };
    let text = outcome.as_ref().map(shown).map_err(|error| error.message().to_owned());
    let text = text.as_deref().map_err(String::as_str);
    assert_eq!(text, expected, "{}({operands:?})", function.name);
    let actual = overload.price.actual(operands, outcome.as_ref());
    assert_eq!(actual, cost, "cost of {}({operands:?})", function.name);
}

pub(super) fn int(number: i64) -> Value<'static> {
    Value::Int(number)
}

pub(super) fn double(number: f64) -> Value<'static> {
    Value::Double(number)
}

pub(super) fn s(text: &'static str) -> Value<'static> {
    Value::str(text)
}

pub(super) fn list(elements: Vec<Value<'static>>) -> Value<'static> {
    Value::list(elements)
}
