//! The entries as an environment sees them, and calls with the values and texts of the golden data.

use super::*;
use crate::env::{Env, Implementation};
use crate::value::{Bytes, EvalError};

#[track_caller]
fn call(function: &str, operands: &[Value<'static>]) -> Result<Value<'static>, EvalError> {
    let env = Env::builder().library(&standard()).build().unwrap();
    let function = env.function(function).unwrap();
    if let Some(singleton) = function.singleton {
        if !(singleton.accepts)(&operands[0]) {
            return Err(EvalError::other(format!("no such overload: {}", function.name)));
        }
        return (singleton.call)(operands);
    }
    let overload = function.overloads.iter().find(|overload| overload.accepts(operands)).unwrap();
    match &overload.implementation {
        Implementation::Native(call) => call(operands),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn gives(function: &str, operands: &[Value<'static>], expected: Value<'static>) {
    let value = call(function, operands).unwrap();
    assert!(value.equals(&expected).unwrap(), "{value:?}");
    assert_eq!(value.type_of(), expected.type_of());
}

#[track_caller]
fn fails(function: &str, operands: &[Value<'static>], message: &str) {
    assert_eq!(call(function, operands).unwrap_err().message(), message);
}

fn int(number: i64) -> Value<'static> {
    Value::Int(number)
}

fn timestamp(text: &'static str) -> Value<'static> {
    Value::str(text).to_timestamp().unwrap()
}

fn duration(text: &'static str) -> Value<'static> {
    Value::str(text).to_duration().unwrap()
}

#[test]
fn every_entry_has_code() {
    let env = Env::builder().library(&standard()).build().unwrap();
    let mut overloads = 0;
    for function in env.functions() {
        for overload in &function.overloads {
            overloads += 1;
            let shared = matches!(overload.implementation, Implementation::Singleton);
            assert_eq!(shared, function.singleton.is_some(), "{}", overload.id);
        }
    }
    assert_eq!(overloads, OVERLOADS.len());
}

#[test]
fn arithmetic_is_checked() {
    gives("_+_", &[int(1), int(2)], int(3));
    gives("_+_", &[Value::str("a"), Value::str("b")], Value::str("ab"));
    gives("_+_", &[timestamp("2024-01-01T00:00:00Z"), duration("24h")], timestamp("2024-01-02T00:00:00Z"));
    gives("_/_", &[int(-7), int(2)], int(-3));
    gives("_%_", &[int(-7), int(2)], int(-1));
    gives("-_", &[duration("1s")], duration("-1s"));
    fails("_+_", &[int(i64::MAX), int(1)], "integer overflow");
    fails("_*_", &[int(i64::MIN), int(-1)], "integer overflow");
    fails("_/_", &[int(i64::MIN), int(-1)], "integer overflow");
    fails("_%_", &[int(i64::MIN), int(-1)], "integer overflow");
    fails("-_", &[int(i64::MIN)], "integer overflow");
    fails("_-_", &[Value::Uint(1), Value::Uint(2)], "unsigned integer overflow");
    fails("_/_", &[int(1), int(0)], "division by zero");
    fails("_%_", &[Value::Uint(1), Value::Uint(0)], "modulus by zero");
    fails("_+_", &[timestamp("9999-12-31T23:59:59Z"), duration("1s")], "timestamp overflow");
    fails("_-_", &[timestamp("0001-01-01T00:00:00Z"), duration("1s")], "timestamp overflow");
    fails("_-_", &[timestamp("9999-01-01T00:00:00Z"), timestamp("0001-01-01T00:00:00Z")], "integer overflow");
    fails("_-_", &[duration("-2562047h"), duration("2562047h")], "integer overflow");
}

#[test]
fn wrong_first_operand_error_names_the_function() {
    fails("_+_", &[int(1), Value::Uint(1)], "no such overload");
    fails("_+_", &[Value::Bool(true), int(1)], "no such overload: _+_");
    fails("_+_", &[Value::Null, int(1)], "no such overload: _+_");
    // Strings and times answer themselves.
    fails("_-_", &[Value::str("a"), int(1)], "no such overload");
    fails("_*_", &[duration("1s"), int(1)], "no such overload");
    fails("-_", &[Value::Bool(true)], "no such overload");
    fails("-_", &[Value::Uint(1)], "no such overload: -_");
    fails("_<_", &[Value::Null, int(1)], "no such overload: _<_");
    fails("_<_", &[Value::list(vec![]), int(1)], "no such overload: _<_");
    fails("size", &[int(1)], "no such overload: size");
    fails("size", &[duration("1s")], "no such overload");
    fails("matches", &[int(1), Value::str("a")], "no such overload: matches");
    fails("startsWith", &[int(1), Value::str("a")], "no such overload");
    fails("@in", &[int(1), int(1)], "no such overload");
    fails("!_", &[int(1)], "no such overload");
}

#[test]
fn order_crosses_numeric_types() {
    gives("_<_", &[int(1), Value::Double(1.5)], Value::Bool(true));
    gives("_>_", &[Value::Uint(1), int(-1)], Value::Bool(true));
    gives("_>=_", &[Value::Double(9_007_199_254_740_992.0), int(9_007_199_254_740_993)], Value::Bool(true));
    gives("_<=_", &[Value::str("a"), Value::str("ab")], Value::Bool(true));
    fails("_<_", &[Value::Double(f64::NAN), int(1)], "NaN values cannot be ordered");
    fails("_<_", &[int(1), Value::Double(f64::NAN)], "NaN values cannot be ordered");
    fails("_<_", &[int(1), Value::str("a")], "no such overload");
}

#[test]
fn sizes_and_members() {
    gives("size", &[Value::str("héllo😀")], int(6));
    gives("size", &[Value::Bytes(Bytes::Borrowed("é".as_bytes()))], int(2));
    gives("@in", &[int(2), Value::list(vec![Value::Uint(1), Value::Double(2.0)])], Value::Bool(true));
    gives("@in", &[Value::str("a"), Value::list(vec![int(1)])], Value::Bool(false));
}

#[test]
fn strings_are_searched() {
    gives("contains", &[Value::str("hello"), Value::str("ll")], Value::Bool(true));
    gives("startsWith", &[Value::str("hello"), Value::str("he")], Value::Bool(true));
    gives("endsWith", &[Value::str("hello"), Value::str("he")], Value::Bool(false));
    gives("matches", &[Value::str("123-456"), Value::str("^[0-9]+(-[0-9]+)?$")], Value::Bool(true));
    fails("matches", &[Value::str("a"), Value::str("(")], "error parsing regexp: missing closing ): `(`");
}

#[test]
fn parts_of_times() {
    let leap_day = || timestamp("2024-02-29T23:45:06.789Z");
    for (function, zone, expected) in [
        ("getFullYear", None, 2024),
        ("getMonth", None, 1),
        ("getMonth", Some("+05:30"), 2),
        ("getDayOfYear", Some("+05:30"), 60),
        ("getDayOfMonth", None, 28),
        ("getDate", Some("+99:99"), 5),
        ("getDate", Some("Asia/Kolkata"), 1),
        ("getDayOfWeek", Some("+05:30"), 5),
        ("getHours", Some("America/New_York"), 18),
        ("getHours", Some("+99:99"), 4),
        ("getMinutes", Some("-00:30"), 15),
        ("getSeconds", Some("-08:00"), 6),
        ("getMilliseconds", None, 789),
    ] {
        let mut operands = vec![leap_day()];
        operands.extend(zone.map(Value::str));
        gives(function, &operands, int(expected));
    }
    fails("getHours", &[leap_day(), Value::str("Z")], "unknown time zone Z");
    gives("getHours", &[duration("-90m")], int(-1));
    gives("getSeconds", &[duration("-1.5s")], int(-1));
    gives("getMilliseconds", &[duration("1.5s")], int(1500));
}

#[test]
fn constant_zones_and_expressions_are_prepared() {
    let prepared = |id: &str, second: &Value<'static>| {
        let overload = OVERLOADS.iter().find(|overload| overload.id == id).unwrap();
        let (crate::env::PlanTime::Prepare(prepare) | crate::env::PlanTime::Replace(prepare)) = overload.plan_time
        else {
            panic!("{id}")
        };
        prepare(&[None, Some(second)])
    };
    let hours = prepared("timestamp_to_hours_with_tz", &Value::str("+14:00")).unwrap().unwrap();
    let operands = [timestamp("2024-02-29T23:45:06Z"), Value::str("+14:00")];
    assert!(matches!(hours.run(&operands), Ok(Value::Int(13))));
    assert!(prepared("timestamp_to_hours_with_tz", &Value::str("Z")).is_none());
    let matches = prepared("matches_string", &Value::str("^a+$")).unwrap().unwrap();
    assert!(matches!(matches.run(&[Value::str("aaa"), Value::str("^a+$")]), Ok(Value::Bool(true))));
    assert!(prepared("matches_string", &Value::str("(")).unwrap().is_err());
}
