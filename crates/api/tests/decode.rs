//! Objects take the form that the reference gives them, and are refused with its words.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    reason = "tests"
)]

use api::json::{self, Value};
use api::types;

fn type_of(object: &Value) -> Option<&'static types::Type> {
    types::by_api_version(object.str_at(&["apiVersion"])?, object.str_at(&["kind"])?)
}

#[test]
fn what_the_server_returned_is_in_normal_form() {
    let mut compared = 0;
    for line in include_str!("data/normal_forms.jsonl").lines() {
        let object = json::parse(line.as_bytes()).unwrap();
        let Some(it) = type_of(&object) else { continue };
        let decoded = types::decode(it, &object).unwrap_or_else(|error| panic!("{error}\n{line}"));
        assert_eq!(decoded.unknown_fields, [""; 0], "{line}");
        assert_eq!(json::to_string(&decoded.value), json::to_string(&object), "{line}");
        compared += 1;
    }
    assert!(compared > 250, "{compared}");
}

#[test]
fn normal_form_does_not_depend_on_the_order_of_the_text() {
    for line in include_str!("data/normal_forms.jsonl").lines() {
        let mut object = json::parse(line.as_bytes()).unwrap();
        let Some(it) = type_of(&object) else { continue };
        let expected = types::decode(it, &object).unwrap();
        object.sort_keys();
        assert_eq!(
            json::to_string(&types::decode(it, &object).unwrap().value),
            json::to_string(&expected.value),
            "{line}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_words_of_go() {
    for line in include_str!("data/decode.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let object = case.get("object").unwrap();
        let Some(it) = type_of(object) else { continue };
        let expected = case.str_at(&["decodeError"]);
        match types::decode(it, object) {
            Err(error) => assert_eq!(expected, Some(error.as_str()), "{line}"),
            Ok(decoded) => {
                assert_eq!(expected, None, "{line}");
                let unknown: Vec<_> =
                    decoded.unknown_fields.iter().map(|it| format!("unknown field \"{it}\"")).collect();
                let recorded: Vec<String> = json::from_value(case.get("strictErrors").unwrap()).unwrap();
                assert_eq!(unknown, recorded, "{line}");
            }
        }
    }
}
