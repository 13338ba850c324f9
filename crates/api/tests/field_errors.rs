//! Errors print as the reference prints them, on recorded messages.

use api::field::{BadValue, Error, ErrorType, Errors, Path};
use api::json::{self, Value};

#[test]
fn bodies_and_messages_equal_the_recorded_ones() {
    let mut compared = 0;
    for line in include_str!("data/field_errors.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let mut errors = Errors::new();
        for recorded in case.get("errors").and_then(Value::as_array).unwrap() {
            let text = |name: &str| recorded.text(name);
            let error_type = ErrorType::from_reason(text("type")).unwrap();
            let bad_value = match recorded.get("badValue") {
                Some(value) => BadValue::Value(value.clone()),
                None => compound_value(error_type, text("body"), text("detail")),
            };
            let error = Error { error_type, field: text("field").into(), bad_value, detail: text("detail").into() };
            assert_eq!(error.body(), text("body"), "{line}");
            errors.push(error);
            compared += 1;
        }
        let message = case.str_at(&["message"]).unwrap();
        let (start, _) = message.split_once(" is invalid: ").unwrap();
        let (kind, name) = start.split_once(' ').unwrap();
        let name = json::parse(name.as_bytes()).unwrap();
        assert_eq!(errors.invalid_message(kind, name.as_str().unwrap()), message, "{line}");
    }
    assert!(compared > 300, "{compared}");
}

/// If the record has no value, the error showed a compound one or none: takes it from the body and prints it
/// again.
fn compound_value(error_type: ErrorType, body: &str, detail: &str) -> BadValue {
    let rest = body.strip_prefix(error_type.words()).unwrap();
    let rest = if detail.is_empty() { rest } else { rest.strip_suffix(detail).unwrap().strip_suffix(": ").unwrap() };
    match rest.strip_prefix(": ") {
        None => BadValue::Omitted,
        Some(text) => match json::parse(text.as_bytes()) {
            Ok(value) => BadValue::Value(value),
            Err(_) => BadValue::Rendered(text.into()),
        },
    }
}

#[test]
fn values_are_rendered_as_go_renders_them() {
    let mut errors = Errors::new();
    let at = Path::new("f");
    errors.invalid(at, "a\"b", "d");
    errors.invalid(at, 1.5e9, "");
    errors.invalid(at, api::json!({"a": "<"}), "d");
    errors.not_supported(at, "x", &["a", "b"]);
    errors.too_long(at, 1);
    errors.too_many(at, Some(3), 2);
    errors.too_many(at, None, 1);
    errors.required(at, "");
    errors.internal(at, "broken");
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            r#"f: Invalid value: "a\"b": d"#,
            "f: Invalid value: 1.5e+09",
            r#"f: Invalid value: {"a":"\u003c"}: d"#,
            r#"f: Unsupported value: "x": supported values: "a", "b""#,
            "f: Too long: may not be more than 1 byte",
            "f: Too many: 3: must have at most 2 items",
            "f: Too many: must have at most 1 item",
            "f: Required value",
            "f: Internal error: broken",
        ]
    );
}

#[test]
fn equal_messages_are_shown_once_but_all_are_causes() {
    let mut errors = Errors::new();
    errors.required(Path::new("a"), "");
    errors.required(Path::new("a"), "");
    assert_eq!(errors.invalid_message("Pod", "p"), "Pod \"p\" is invalid: a: Required value");
    let cause = api::json!({"reason": "FieldValueRequired", "message": "Required value", "field": "a"});
    assert_eq!(errors.causes(), [cause.clone(), cause]);
}

/// A few long keys around many wrong values must not yield a message that is many times the object.
#[test]
fn errors_at_long_paths_are_bounded() {
    let key = "k".repeat(100_000);
    let at = Path::new("spec");
    let at = at.key(&key);
    let mut errors = Errors::new();
    for index in 0..10_000 {
        errors.invalid(at.index(index), key.as_str(), "must be short");
    }
    assert!((1..10).contains(&errors.len()), "{}", errors.len());
    let mut more = Errors::new();
    more.required(Path::new("metadata"), "");
    more.append(errors.clone());
    assert!(more.len() <= errors.len() + 1);
    assert!(more.message().len() < 2_000_000);
}

#[test]
fn long_values_are_omitted_from_errors() {
    let empty = api::json!({"apiVersion": "", "kind": "", "name": "", "uid": ""});
    let owners = |count: usize| api::json!({"ownerReferences": (Value::Array(vec![empty.clone(); count]))});
    let message = |value: Value| {
        let mut errors = Errors::new();
        errors.invalid(Path::new("metadata"), value, "must be empty");
        errors.iter().map(ToString::to_string).collect::<String>()
    };
    assert!(message(owners(10)).contains("ownerReferences"));
    assert_eq!(message(owners(10_000)), "metadata: Invalid value: <value omitted>: must be empty");
    assert_eq!(message("x".repeat(100_000).into()), "metadata: Invalid value: <value omitted>: must be empty");
}
