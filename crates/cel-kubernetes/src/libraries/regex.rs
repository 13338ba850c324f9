//! `find` and `findAll`: the parts of a text that match a regular expression.
//!
//! A pattern that is written in the expression is read when the program is planned. Follows Kubernetes
//! `apiserver/pkg/cel/library/regex.go`; the syntax is RE2's, see [`cel::regex`].

use cel::cost::{CallEstimate, Price, STRING_TRAVERSAL_FACTOR, Size};
use cel::env::{Library, Overload, PlanTime, PreparedCall};
use cel::regex::Regex;
use cel::value::{EvalError, Value};

use super::price::{self, REGEX_FACTOR};
use super::{at_plan_time, int, library, native, text};

/// The library.
pub fn regex() -> Library {
    library("kubernetes.regex", 0, OVERLOADS)
}

const PRICE: Price = Price::Sized {
    estimate: |site| {
        let text = site.size(0);
        let read = text.plus(Size::exactly(1)).times_factor(STRING_TRAVERSAL_FACTOR);
        let cost = read.times(site.size(1).times_factor(REGEX_FACTOR));
        CallEstimate { cost, result_size: Some(Size::at_most(text.max)) }
    },
    actual: |operands, _| price::regex(price::size(operands, 0), price::size(operands, 1)),
    when_dynamic: true,
};

static OVERLOADS: &[Overload] = &[
    at_plan_time(
        PlanTime::Replace(|constants| prepare(constants, find_in)),
        native("string_find_string", "string.find(string) -> string", PRICE, |operands| {
            find_in(&compile(operands)?, operands)
        }),
    ),
    at_plan_time(
        PlanTime::Replace(|constants| prepare(constants, find_all_in)),
        native("string_find_all_string", "string.findAll(string) -> list(string)", PRICE, |operands| {
            find_all_in(&compile(operands)?, operands)
        }),
    ),
    at_plan_time(
        PlanTime::Replace(|constants| prepare(constants, find_all_in)),
        native("string_find_all_string_int", "string.findAll(string, int) -> list(string)", PRICE, |operands| {
            find_all_in(&compile(operands)?, operands)
        }),
    ),
];

type FindFn = for<'v> fn(&Regex, &[Value<'v>]) -> Result<Value<'v>, EvalError>;

fn prepare(constants: &[Option<&Value<'static>>], find: FindFn) -> Option<Result<PreparedCall, EvalError>> {
    let pattern = constants.get(1).copied().flatten()?.as_str()?;
    Some(match Regex::new(pattern) {
        Ok(regex) => Ok(PreparedCall::new(move |operands| find(&regex, operands))),
        Err(error) => Err(EvalError::other(error.to_string())),
    })
}

fn compile(operands: &[Value<'_>]) -> Result<Regex, EvalError> {
    Regex::new(text(operands, 1)?).map_err(illegal)
}

fn illegal(error: cel::regex::Error) -> EvalError {
    EvalError::other(format!("Illegal regex: {error}"))
}

fn find_in<'v>(regex: &Regex, operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = text(operands, 0)?;
    let found = regex.find(text).map_err(illegal)?;
    Ok(Value::string(found.and_then(|range| text.get(range)).unwrap_or_default()))
}

fn find_all_in<'v>(regex: &Regex, operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = text(operands, 0)?;
    let count = if operands.len() > 2 { int(operands, 2)? } else { -1 };
    // A negative count means all of them.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let found = regex.find_iter(text).map_err(illegal)?;
    let found = found.take(count).filter_map(|range| text.get(range)).map(Value::string);
    Ok(Value::list(found.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_all(text: &'static str, pattern: &'static str, count: i64, found: &str) {
        let operands = [Value::str(text), Value::str(pattern), Value::Int(count)];
        let regex = compile(&operands).unwrap();
        assert_eq!(find_all_in(&regex, &operands).unwrap().to_string(), found);
    }

    #[test]
    fn count_limits_the_matches() {
        check_all("123 abc 456", "[0-9]+", -1, "[123, 456]");
        check_all("123 abc 456", "[0-9]+", 1, "[123]");
        check_all("123 abc 456", "[0-9]+", 0, "[]");
        check_all("abc", "", -1, "[, , , ]");
        check_all("abc", "x", -1, "[]");
    }

    #[test]
    fn a_bad_pattern_is_illegal_at_run_time_only() {
        let operands = [Value::str("a"), Value::str("(")];
        let at_run_time = compile(&operands).unwrap_err();
        assert_eq!(at_run_time.message(), "Illegal regex: error parsing regexp: missing closing ): `(`");
        let pattern = Value::str("(");
        let at_plan_time = prepare(&[None, Some(&pattern)], find_in).unwrap().err().unwrap();
        assert_eq!(at_plan_time.message(), "error parsing regexp: missing closing ): `(`");
        assert!(prepare(&[Some(&pattern), None], find_in).is_none());
    }
}
