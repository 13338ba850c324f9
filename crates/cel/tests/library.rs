//! Functions called directly, with values, errors and costs as the reference gave them for one call with literal operands.
//!
//! `data/library.jsonl` holds those of the golden cases that are such calls, taken apart into function and operands.
//! Operands that were written `timestamp('…')` or `duration('…')` are `parsed_timestamp` and `parsed_duration`.

use cel::checker::Validator;
use cel::env::{Env, Implementation};
use cel::library;
use cel::types::Type;
use cel::value::{Bytes, EvalError, Map, Value, double_text};
use serde_json::{Value as Json, json};

fn environment() -> Env {
    Env::builder()
        .library(&library::standard())
        .library(&library::strings(2))
        .library(&library::lists(3))
        .library(&library::sets())
        .library(&library::optionals(2))
        .build()
        .unwrap()
}

fn base64(octets: &[u8]) -> String {
    let env = Env::builder().library(&library::encoders()).build().unwrap();
    let value = call(&env, "base64.encode", &[Value::Bytes(Bytes::Borrowed(octets))]).unwrap();
    value.as_str().unwrap().to_owned()
}

fn value_of(json: &Json) -> Value<'static> {
    let (kind, content) = json.as_object().unwrap().iter().next().unwrap();
    let text = || Value::string(content.as_str().unwrap());
    let elements = || content.as_array().unwrap().iter();
    match kind.as_str() {
        "null" => Value::Null,
        "bool" => Value::Bool(content.as_bool().unwrap()),
        "int" => text().to_int().unwrap(),
        "uint" => text().to_uint().unwrap(),
        "double" => text().to_double().unwrap(),
        "string" => text(),
        "bytes" => {
            let env = Env::builder().library(&library::encoders()).build().unwrap();
            call(&env, "base64.decode", &[text()]).unwrap()
        }
        "parsed_timestamp" => text().to_timestamp().unwrap(),
        "parsed_duration" => text().to_duration().unwrap(),
        "list" => Value::list(elements().map(value_of).collect()),
        "map" => {
            let entries = elements().map(|entry| (value_of(&entry[0]), value_of(&entry[1])));
            Value::Map(Map::from_entries(entries).unwrap())
        }
        other => panic!("{other}"),
    }
}

/// The golden data's form of a value.
fn json_of(value: &Value<'_>) -> Json {
    match value {
        Value::Null => json!({ "null": null }),
        Value::Bool(truth) => json!({ "bool": truth }),
        Value::Int(number) => json!({ "int": number.to_string() }),
        Value::Uint(number) => json!({ "uint": number.to_string() }),
        Value::Double(number) => json!({ "double": double_text(*number).replace("Inf", "Infinity") }),
        Value::String(text) => json!({ "string": text.as_str() }),
        Value::Bytes(octets) => json!({ "bytes": base64(octets) }),
        Value::Duration(span) => json!({ "duration": span.exact_text() }),
        Value::Timestamp(at) => json!({ "timestamp": at.with_offset(0).rfc3339() }),
        Value::List(list) => json!({ "list": list.iter().map(|element| json_of(&element)).collect::<Vec<_>>() }),
        Value::Map(map) => {
            let mut entries: Vec<_> =
                map.entries().iter().map(|(key, value)| json!([json_of(key), json_of(value)])).collect();
            entries.sort_by_key(ToString::to_string);
            json!({ "map": entries })
        }
        Value::Type(of) => json!({ "type": of.name() }),
        Value::Optional(None) => json!({ "optional": null }),
        Value::Optional(Some(value)) => json!({ "optional": json_of(value) }),
        other => panic!("{other:?}"),
    }
}

/// Dispatches as an evaluator does that knows nothing about the operands before it has them.
fn call<'v>(env: &Env, name: &str, operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    match (name, operands) {
        ("_==_", [a, b]) => return a.equals(b).map(Value::Bool),
        ("_!=_", [a, b]) => return a.equals(b).map(|equal| Value::Bool(!equal)),
        _ => {}
    }
    let function = env.function(name).unwrap_or_else(|| panic!("{name}"));
    if let Some(singleton) = function.singleton {
        if !operands.first().is_none_or(singleton.accepts) {
            return Err(EvalError::other(format!("no such overload: {name}")));
        }
        return (singleton.call)(operands);
    }
    let Some(overload) = function.overloads.iter().find(|overload| overload.accepts(operands)) else {
        let types: Vec<_> = operands.iter().map(|operand| operand.type_name().into_owned()).collect();
        return Err(EvalError::other(format!("no such overload: {name}({})", types.join(", "))));
    };
    match &overload.implementation {
        Implementation::Native(call) => call(operands),
        other => panic!("{name}: {other:?}"),
    }
}

/// A call that no overload takes costs 1.
fn cost(env: &Env, name: &str, operands: &[Value<'_>], outcome: &Result<Value<'_>, EvalError>) -> u64 {
    let function = env.function(name).unwrap();
    match function.overloads.iter().find(|overload| overload.accepts(operands)).map(|overload| overload.price) {
        None => 1,
        Some(price) => price.actual(operands, outcome.as_ref()),
    }
}

#[test]
fn calls_agree_with_the_reference() {
    let env = environment();
    let mut failures = Vec::new();
    let mut count = 0;
    for line in include_str!("data/library.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        count += 1;
        let name = case["function"].as_str().unwrap();
        let operands: Vec<Value<'static>> = case["operands"].as_array().unwrap().iter().map(value_of).collect();
        let outcome = call(&env, name, &operands);
        let answer = match &outcome {
            Ok(value) => json_of(value),
            Err(error) => json!(error.message()),
        };
        let expected = case.get("error").unwrap_or(&case["value"]);
        if answer != *expected {
            failures.push(format!("{}: {answer}, not {expected}", case["expr"]));
        }
        if let Some(expected) = case.get("cost").and_then(Json::as_u64) {
            let actual = cost(&env, name, &operands, &outcome);
            if actual != expected {
                failures.push(format!("{}: costs {actual}, not {expected}", case["expr"]));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} cases differ:\n{}", failures.len(), failures.join("\n"));
    assert!(count > 1_000);
}

#[test]
fn bad_formats_do_not_compile() {
    let env = environment()
        .extend()
        .validator(Validator::HomogeneousLiterals)
        .variable("s", Type::String)
        .variable("x", Type::Int)
        .variable("l", Type::list(Type::Int))
        .build()
        .unwrap();
    for line in include_str!("data/format_errors.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let expression = case["expr"].as_str().unwrap();
        let issues = env.compile(expression).expect_err(expression);
        assert_eq!(issues.to_string(), case["error"].as_str().unwrap());
    }
    // Mixed elements are valid where `format` accepts them, and formats that are known only at run time are not
    // checked.
    for expression in ["'%s %d'.format(['a', 1])", "(s + '%d').format(['a'])"] {
        env.compile(expression).expect(expression);
    }
}
