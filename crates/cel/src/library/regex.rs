//! Regular expressions: parts that match, and replacement.
//!
//! An expression that is constant is read while planning; a bad one fails when it is evaluated, as the reference does.
//!
//! Follows cel-go's `ext.Regex`, version 0. Needs the library of optional values for its result types.

use super::price::{REGEX_FACTOR, result_size, size};
use super::{int, native, text, unexpected};
use crate::cost::{CallEstimate, CallSite, Cost, LIST_CREATION, Price, STRING_TRAVERSAL_FACTOR, Size};
use crate::env::{Library, LibraryVersion, Overload, PlanTime, PreparedCall};
use crate::regex::Regex;
use crate::value::{EvalError, Value, go_quote};

/// `regex.extract`, `regex.extractAll`, `regex.replace`.
pub fn regex(version: u32) -> Library {
    Library {
        name: "cel.lib.ext.regex",
        version: LibraryVersion(version),
        overloads: OVERLOADS,
        singletons: &[],
        types: Vec::new(),
        macros: &[],
        validators: &[],
        partial: &[],
    }
}

static OVERLOADS: &[Overload] = &[
    entry(
        native(
            "regex_extract_string_string",
            ":regex.extract(string, string) -> optional(string)",
            EXTRACT,
            |operands| extract(&compile(operands)?, operands),
        ),
        PlanTime::Prepare(|operands| prepare(operands, extract)),
    ),
    entry(
        native(
            "regex_extractAll_string_string",
            ":regex.extractAll(string, string) -> list(string)",
            ALL,
            |operands| extract_all(&compile(operands)?, operands),
        ),
        PlanTime::Prepare(|operands| prepare(operands, extract_all)),
    ),
    entry(
        native(
            "regex_replace_string_string_string",
            ":regex.replace(string, string, string) -> string",
            REPLACE,
            replace,
        ),
        PlanTime::Prepare(|operands| prepare(operands, replace_all)),
    ),
    entry(
        native(
            "regex_replace_string_string_string_int",
            ":regex.replace(string, string, string, int) -> string",
            REPLACE,
            replace,
        ),
        PlanTime::Prepare(|operands| prepare(operands, replace_all)),
    ),
];

const fn entry(overload: Overload, plan_time: PlanTime) -> Overload {
    Overload { plan_time, ..overload }
}

/// Cost of a search, without the size of its result.
fn estimate_search(site: &dyn CallSite) -> Cost {
    let one = Size::exactly(1);
    let text = site.size(0).plus(one).times_factor(STRING_TRAVERSAL_FACTOR);
    text.times(site.size(1).plus(one).times_factor(REGEX_FACTOR))
}

/// Rounded only with the whole.
fn actual_search(operands: &[Value<'_>]) -> f64 {
    let text = size(operands, 0).saturating_add(1) as f64 * STRING_TRAVERSAL_FACTOR;
    let regex = size(operands, 1).saturating_add(1) as f64 * REGEX_FACTOR;
    1.0 + text * regex
}

const EXTRACT: Price = Price::Sized {
    estimate: |site| {
        let max = site.size(0).max;
        CallEstimate { cost: estimate_search(site).plus(Cost { min: 0, max }), result_size: Some(Size::at_most(max)) }
    },
    // An optional counts 1 here, whatever is in it.
    actual: |operands, _| (actual_search(operands) + 1.0).ceil() as u64,
    when_dynamic: false,
};

const ALL: Price = Price::Sized {
    estimate: |site| {
        let max = site.size(0).max;
        let result = Cost { min: LIST_CREATION, max: max.saturating_add(LIST_CREATION) };
        CallEstimate { cost: estimate_search(site).plus(result), result_size: Some(Size::at_most(max)) }
    },
    actual: |operands, outcome| {
        (actual_search(operands) + result_size(outcome) as f64 + LIST_CREATION as f64).ceil() as u64
    },
    when_dynamic: false,
};

const REPLACE: Price = Price::Sized {
    estimate: |site| {
        let (text, replacement) = (site.size(0).max, site.size(2).max);
        // The reference does not check this product.
        let replaced = text.wrapping_mul(replacement);
        let result =
            if replacement == 0 { Size { min: replaced, max: text } } else { Size { min: text, max: replaced } };
        CallEstimate { cost: estimate_search(site).plus(result.as_cost()), result_size: Some(result) }
    },
    actual: |operands, outcome| (actual_search(operands) + result_size(outcome) as f64) as u64,
    when_dynamic: false,
};

type Search = for<'v> fn(&Regex, &[Value<'v>]) -> Result<Value<'v>, EvalError>;

fn compile(operands: &[Value<'_>]) -> Result<Regex, EvalError> {
    Regex::new(text(operands, 1)?).map_err(|error| EvalError::other(error.to_string()))
}

fn prepare(operands: &[Option<&Value<'static>>], search: Search) -> Option<Result<PreparedCall, EvalError>> {
    let [_, Some(Value::String(pattern)), ..] = operands else { return None };
    let regex = Regex::new(pattern).ok()?;
    Some(Ok(PreparedCall::new(move |operands| search(&regex, operands))))
}

fn too_large(error: crate::regex::Error) -> EvalError {
    EvalError::other(error.to_string())
}

fn one_group(regex: &Regex) -> Result<(), EvalError> {
    if regex.group_count() > 1 {
        let pattern = go_quote(regex.pattern());
        return Err(EvalError::other(format!("regular expression has more than one capturing group: {pattern}")));
    }
    Ok(())
}

/// The group of the first match, or the whole match if there is no group; an empty group is nothing.
fn extract<'v>(regex: &Regex, operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    one_group(regex)?;
    let Some(captures) = regex.captures(text(operands, 0)?).map_err(too_large)? else { return Ok(Value::NONE) };
    let found = match regex.group_count() {
        0 => captures.get(0),
        _ => captures.get(1).filter(|group| !group.is_empty()),
    };
    Ok(found.map_or(Value::NONE, |found| Value::some(Value::string(found))))
}

/// Extracts the group from all matches.
fn extract_all<'v>(regex: &Regex, operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    one_group(regex)?;
    let mut found = Vec::new();
    for captures in regex.captures_iter(text(operands, 0)?).map_err(too_large)? {
        let part = match regex.group_count() {
            0 => captures.get(0),
            _ => captures.get(1).filter(|group| !group.is_empty()),
        };
        found.extend(part.map(Value::string));
    }
    Ok(Value::list(found))
}

/// A count of 0 replaces nothing and does not even look at the expression; a negative one replaces all.
fn replace<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    if let [text, _, _, Value::Int(0)] = operands {
        return Ok(text.clone());
    }
    replace_all(&compile(operands)?, operands)
}

fn replace_all<'v>(regex: &Regex, operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let limit = match operands.len() {
        3 => None,
        4 => usize::try_from(int(operands, 3)?).ok(),
        _ => return Err(unexpected()),
    };
    let replaced = regex.replace(text(operands, 0)?, text(operands, 2)?, limit);
    replaced.map(Value::string).map_err(|error| EvalError::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Call;

    #[track_caller]
    fn call(id: &str, operands: &[Value<'static>]) -> Result<String, String> {
        let overload = OVERLOADS.iter().find(|overload| overload.id == id).unwrap();
        let Call::Native(call) = overload.call else { panic!() };
        let PlanTime::Prepare(prepare) = overload.plan_time else { panic!() };
        let answer = call(operands).map(|value| value.to_string()).map_err(|error| error.message().to_owned());
        let constant: Vec<_> = operands.iter().map(Some).collect();
        if let Some(prepared) = prepare(&constant) {
            let prepared = prepared.unwrap().run(operands).map(|value| value.to_string());
            assert_eq!(prepared.map_err(|error| error.message().to_owned()), answer);
        }
        answer
    }

    fn strings(texts: &[&'static str]) -> Vec<Value<'static>> {
        texts.iter().copied().map(Value::str).collect()
    }

    #[test]
    fn parts_are_extracted() {
        let extract = |texts: &[&'static str]| call("regex_extract_string_string", &strings(texts));
        assert_eq!(extract(&["item-A, item-B", r"item-(\w+)"]), Ok("optional(A)".into()));
        assert_eq!(extract(&["HELLO", "hello"]), Ok("optional.none()".into()));
        assert_eq!(extract(&["abc", "b(x*)"]), Ok("optional.none()".into()));
        assert_eq!(extract(&["abc", ""]), Ok("optional()".into()));
        let groups = "regular expression has more than one capturing group: \"(a)(b)\"";
        assert_eq!(extract(&["ab", "(a)(b)"]), Err(groups.into()));
        let all = |texts: &[&'static str]| call("regex_extractAll_string_string", &strings(texts));
        assert_eq!(all(&["id:123, id:456", r"id:(\d+)"]), Ok("[123, 456]".into()));
        assert_eq!(all(&["none", r"\d+"]), Ok("[]".into()));
        assert_eq!(all(&["a", "("]), Err("error parsing regexp: missing closing ): `(`".into()));
    }

    #[test]
    fn matches_are_replaced() {
        let replace = |texts: &[&'static str], count: Option<i64>| {
            let mut operands = strings(texts);
            operands.extend(count.map(Value::Int));
            let id = "regex_replace_string_string_string";
            if count.is_some() { call(&format!("{id}_int"), &operands) } else { call(id, &operands) }
        };
        assert_eq!(replace(&["banana", "a", "x"], None), Ok("bxnxnx".into()));
        assert_eq!(replace(&["banana", "a", "x"], Some(2)), Ok("bxnxna".into()));
        assert_eq!(replace(&["banana", "a", "x"], Some(-5)), Ok("bxnxnx".into()));
        assert_eq!(replace(&["foo bar", "(fo)o (ba)r", r"\2 \1"], None), Ok("ba fo".into()));
        let missing = "replacement string references group 2 but regex has only 1 group(s)";
        assert_eq!(replace(&["test", "(.)", r"\2"], None), Err(missing.into()));
    }

    #[test]
    fn a_count_of_zero_does_not_look_at_the_expression() {
        let operands = [Value::str("a"), Value::str("("), Value::str("x"), Value::Int(0)];
        assert!(matches!(replace(&operands), Ok(Value::String(text)) if &*text == "a"));
    }
}
