//! JSON is read, written and converted as the reference does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::*;
use crate::Quantity;

fn read(text: &str) -> Value {
    parse(text.as_bytes()).unwrap()
}

#[track_caller]
fn check_error(text: &str, message: &str) {
    assert_eq!(parse(text.as_bytes()).unwrap_err().message, message, "{text}");
}

#[test]
fn syntax_errors_have_the_texts_of_go() {
    check_error("", "unexpected end of JSON input");
    check_error("{", "unexpected end of JSON input");
    check_error("[1", "unexpected end of JSON input");
    check_error("\"a", "unexpected end of JSON input");
    check_error("-", "unexpected end of JSON input");
    check_error("not", "invalid character 'o' in literal null (expecting 'u')");
    check_error("x", "invalid character 'x' looking for beginning of value");
    check_error("'", "invalid character '\\'' looking for beginning of value");
    check_error("[\u{1}", "invalid character '\\x01' looking for beginning of value");
    check_error("é", "invalid character 'Ã' looking for beginning of value");
    check_error("[1,]", "invalid character ']' looking for beginning of value");
    check_error("[1 2]", "invalid character '2' after array element");
    check_error("[01]", "invalid character '1' after array element");
    check_error("{a", "invalid character 'a' looking for beginning of object key string");
    check_error("{\"a\":1,}", "invalid character '}' looking for beginning of object key string");
    check_error("{\"a\" 1}", "invalid character '1' after object key");
    check_error("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair");
    check_error("1 2", "invalid character '2' after top-level value");
    check_error("-a", "invalid character 'a' in numeric literal");
    check_error("1.a", "invalid character 'a' after decimal point in numeric literal");
    check_error("1ea", "invalid character 'a' in exponent of numeric literal");
    check_error("\"a\nb\"", "invalid character '\\n' in string literal");
    check_error("\"\\x\"", "invalid character 'x' in string escape code");
    check_error("\"\\u12g4\"", "invalid character 'g' in \\u hexadecimal character escape");
    check_error("1e999", "json: cannot unmarshal number 1e999 into Go value of type float64");
    check_error(&"[".repeat(MAX_DEPTH + 1), "exceeded max depth");
}

#[test]
fn deep_values_are_read_and_dropped() {
    let text = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
    assert_eq!(to_string(&read(&text)), text);
}

#[test]
fn numbers_keep_the_distinctions_of_go() {
    assert_eq!(read("9223372036854775807"), Value::Int(i64::MAX));
    assert_eq!(read("-9223372036854775808"), Value::Int(i64::MIN));
    assert_eq!(read("-0"), Value::Int(0));
    for (text, written) in [
        ("1.0", "1"),
        ("1e3", "1000"),
        ("9223372036854775808", "9223372036854775808"),
        ("1.5", "1.5"),
        ("1E400e", ""),
        ("1e-7", "1e-7"),
    ] {
        match parse(text.as_bytes()) {
            Ok(Value::Float(float)) => {
                assert_eq!(float.text(), text);
                assert_eq!(float.to_string(), written.replace("9223372036854775808", "9223372036854776000"));
            }
            other => assert!(written.is_empty() && other.is_err(), "{text}"),
        }
    }
    assert_ne!(read("1"), read("1.0"));
}

#[test]
fn strings_are_unescaped_and_escaped_as_go_does() {
    let value = read(r#""\u003c\ud83d\ude00\ud83d\n\/\b\u2028é""#);
    assert_eq!(value.as_str(), Some("<😀\u{fffd}\n/\u{8}\u{2028}é"));
    assert_eq!(to_string(&value), r#""\u003c😀�\n/\b\u2028é""#);
    assert_eq!(to_string(&Value::from("a&b>\u{1}\u{7f}\u{2020}")), "\"a\\u0026b\\u003e\\u0001\u{7f}\u{2020}\"");
    assert_eq!(parse(b"\"a\xffb\"").unwrap().as_str(), Some("a\u{fffd}b"));
    assert_eq!(Value::from("<").to_string(), "\"<\"");
}

#[test]
fn fields_keep_their_order_and_the_last_duplicate_counts() {
    let text = r#"{"b":1,"a":{"x":[{"k":1,"k":2}]},"b":3}"#;
    let (value, duplicates) = parse_strict(text.as_bytes()).unwrap();
    assert_eq!(to_string(&value), r#"{"b":3,"a":{"x":[{"k":2}]}}"#);
    let paths: Vec<_> = duplicates.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["a.x[0].k", "b"]);
}

#[test]
fn duplicates_are_found_in_large_objects() {
    let fields: Vec<_> = (0..2000).map(|index| format!("\"k{}\":{index}", index % 1000)).collect();
    let text = format!("{{{}}}", fields.join(","));
    let (value, duplicates) = parse_strict(text.as_bytes()).unwrap();
    assert_eq!((value.as_object().unwrap().len(), duplicates.len()), (1000, 100));
    assert_eq!(value.get("k7"), Some(&Value::Int(1007)));
}

#[test]
fn equality_ignores_the_order_of_fields() {
    assert_eq!(read(r#"{"a":1,"b":{"c":2,"d":3}}"#), read(r#"{"b":{"d":3,"c":2},"a":1}"#));
    assert_ne!(read(r#"{"a":1,"b":2}"#), read(r#"{"a":1,"c":2}"#));
}

#[test]
fn parts_are_located_by_field_path() {
    let text = "{\n  \"metadata\": {\"labels\": {\"a.b/c\": \"x\"}},\n  \"spec\": {\"list\": [\n    {\"k\": 1},\n    {\"k\": 2}]}}";
    let document = parse_document(text.as_bytes()).unwrap();
    let position = |path: &str| {
        let span = document.spans.locate(&document.value, path);
        let position = Position::of(text.as_bytes(), span.offset);
        (position.line, position.column)
    };
    assert_eq!(position("spec.list[1].k"), (5, 6));
    assert_eq!(position("spec.list[1].missing"), (5, 5));
    assert_eq!(position("metadata.labels[a.b/c]"), (2, 27));
    assert_eq!(position("metadata.labels.a.b/c"), (2, 27));
    assert_eq!(position("nothing"), (1, 1));
}

#[test]
fn pretty_form_is_that_of_go() {
    let value = json!({"a": [1, {}], "b": {"c": []}});
    assert_eq!(
        to_pretty_string(&value, "  "),
        "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": []\n  }\n}"
    );
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct View<'a> {
    name: &'a str,
    count: Option<i32>,
    items: Vec<String>,
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<Quantity>,
    mode: Mode,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
enum Mode {
    #[default]
    Off,
    On(i64),
}

#[test]
fn typed_views_are_decoded_without_text() {
    let value =
        read(r#"{"name":"n","count":null,"items":null,"labels":{"a":null},"amount":1.500,"mode":{"On":3},"other":[]}"#);
    let view: View<'_> = from_value(&value).unwrap();
    assert_eq!((view.name, view.count, view.items.len()), ("n", None, 0));
    assert_eq!(view.labels, BTreeMap::from([("a".to_owned(), String::new())]));
    assert_eq!(view.amount.as_ref().unwrap().to_string(), "1.500");
    assert_eq!(view.mode, Mode::On(3));
    let encoded = to_value(&view).unwrap();
    assert_eq!(
        to_string(&encoded),
        r#"{"name":"n","count":null,"items":[],"labels":{"a":""},"amount":"1.500","mode":{"On":3}}"#
    );
    assert_eq!(to_value(&View::default()).unwrap().get("mode"), Some(&Value::from("Off")));
}

#[test]
fn decode_errors_name_the_field() {
    let value = json!({"labels": {"a": 1}});
    let error = from_value::<View<'_>>(&value).unwrap_err();
    assert_eq!(error.to_string(), "labels.a: invalid type: integer `1`, expected a string");
}

#[test]
fn values_pass_through_serde() {
    let value = json!({"a": [1, 1.5, "x", null, true], "b": {}});
    assert_eq!(to_value(&value).unwrap(), value);
    assert_eq!(from_value::<Value>(&value).unwrap(), value);
}

#[test]
fn a_value_is_four_words() {
    assert_eq!(size_of::<Value>(), 32);
}

#[test]
fn lines_know_every_place_of_a_text() {
    for text in ["", "a", "\n", "a\nb", "ä\n\nöü\n", "one\r\ntwo\n"] {
        let lines = Lines::of(text.as_bytes());
        for offset in 0..text.len() + 3 {
            let expected = Position::of(text.as_bytes(), offset);
            assert_eq!(lines.position(text.as_bytes(), offset), expected, "{text:?} at {offset}");
        }
    }
}

#[test]
fn values_end_where_the_next_thing_starts() {
    for (text, length) in [
        ("{\"a\":[1,{}]},x", 12),
        ("\"a\\\"}\",1", 6),
        ("12,", 2),
        ("true}", 4),
        ("null", 4),
        ("[]", 2),
        ("\"\"", 2),
        ("", 0),
    ] {
        assert_eq!(value_length(text.as_bytes()), length, "{text}");
    }
}

#[test]
fn unread_fields_are_passed_over() {
    let text = br#"{"a":{"x":"}\"","b":1},"x":[{}],"c":[{"x":null},{"d":2,"x":7}]}"#;
    let value = parse_without(text, &NameFilter::new(&["x"])).unwrap();
    assert_eq!(to_string(&value), r#"{"a":{"b":1},"c":[{},{"d":2}]}"#);
    assert_eq!(to_string(&parse_without(br#"{"x":1}"#, &NameFilter::new(&["x"])).unwrap()), "{}");
}

#[test]
fn duplicates_at_long_paths_are_bounded() {
    let key = "k".repeat(10_000);
    let text = format!(r#"{{"{key}":{{{}}}}}"#, vec![r#""a":1"#; 5000].join(","));
    let (_, duplicates) = parse_strict(text.as_bytes()).unwrap();
    let bytes: usize = duplicates.iter().map(|it| it.path.len()).sum();
    assert!((10_000..100_000).contains(&bytes), "{bytes}");
}
