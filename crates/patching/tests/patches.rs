//! Recorded answers of the patch step alone: JSON patch, merge patch and strategic merge patch.

use api::json::{self, Value};
use celplane_patching::patch::{Error, json_patch, merge_patch, strategic_merge_patch};

/// Cases that differ, each with the reason.
const KNOWN_GAPS: &[(&str, &str)] = &[];

fn run(input: &Value, patch: &serde_json::Value) -> Result<Value, (u16, String)> {
    let object = input.get("object").cloned().unwrap_or_default();
    let patch = match input.str_at(&["patchText"]) {
        Some(text) => text.to_owned(),
        None => patch.to_string(),
    };
    let result = match input.str_at(&["type"]).unwrap() {
        "json" => json_patch(&object, patch.as_bytes()),
        "merge" => merge_patch(&object, patch.as_bytes()),
        _ => {
            let text = |field: &str| object.text(field);
            let of = api::types::by_api_version(text("apiVersion"), text("kind")).unwrap();
            strategic_merge_patch(&object, patch.as_bytes(), of).map(|(value, _)| value)
        }
    };
    result.map_err(|error| (code(&error), error.to_string()))
}

/// The code with which the API server returns an error.
fn code(error: &Error) -> u16 {
    match error {
        Error::Malformed(_) => 400,
        Error::TooLarge(_) => 413,
        Error::Inapplicable(_) => 422,
        _ => 500,
    }
}

#[test]
fn recorded_patches_agree() {
    let cases = include_str!("data/patches.jsonl");
    let (mut count, mut wrong) = (0, Vec::new());
    for line in cases.lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        // Numbers in the patch keep their text.
        let raw: serde_json::Value = serde_json::from_str(line).unwrap();
        let id = case.str_at(&["id"]).unwrap();
        let expected = case.get("expected").unwrap();
        let real = run(case.get("input").unwrap(), &raw["input"]["patch"]);
        count += 1;
        let agrees = match (&real, expected.str_at(&["error"])) {
            (Err((code, message)), Some(error)) => {
                message == error && i64::from(*code) == expected.get("code").and_then(Value::as_i64).unwrap()
            }
            (Ok(value), None) => Some(value) == expected.get("result"),
            _ => false,
        };
        let listed = KNOWN_GAPS.iter().any(|(gap, _)| *gap == id);
        if agrees == listed {
            wrong.push(format!("{id}: {real:?}\n   instead of {expected}"));
        }
    }
    assert!(count > 200);
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn entries_moved_by_a_json_patch_are_bounded() {
    let numbers = |count: usize| json::parse(format!("{{\"l\":[{}0]}}", "0,".repeat(count)).as_bytes()).unwrap();
    let inserts = |count: usize| vec![serde_json::json!({"op": "add", "path": "/l/0", "value": 1}); count];
    let apply = |numbers: &Value, count: usize| {
        let patch = serde_json::Value::Array(inserts(count)).to_string();
        json_patch(numbers, patch.as_bytes()).map_err(|error| code(&error))
    };
    assert!(apply(&numbers(1_000), 9_000).is_ok());
    assert_eq!(apply(&numbers(300_000), 9_000), Err(413));
}

/// The texts of the reference for keys that are no index or do not exist.
#[test]
fn json_patch_names_the_last_key() {
    let object = json::parse(br#"{"spec": {"list": [1, 2], "map": {"a": 1}}}"#).unwrap();
    for (patch, expected) in [
        (
            r#"[{"op": "remove", "path": "/spec/list/-"}]"#,
            "error in remove for path: '/spec/list/-': strconv.Atoi: parsing \"-\": invalid syntax",
        ),
        (
            r#"[{"op": "remove", "path": "/spec/list/2"}]"#,
            "error in remove for path: '/spec/list/2': Unable to access invalid index: 2: invalid index referenced",
        ),
        (
            r#"[{"op": "remove", "path": "/spec/map/b"}]"#,
            "error in remove for path: '/spec/map/b': Unable to remove nonexistent key: b: missing value",
        ),
        (
            r#"[{"op": "move", "from": "/spec/map/b", "path": "/spec/map/c"}]"#,
            "error in move for path: 'b': Unable to remove nonexistent key: b: missing value",
        ),
        (
            r#"[{"op": "move", "from": "/spec/list/-", "path": "/spec/map/c"}]"#,
            "error in move for path: '-': strconv.Atoi: parsing \"-\": invalid syntax",
        ),
        (
            r#"[{"op": "add", "path": "/spec/list/x", "value": 1}]"#,
            "error in add for path: '/spec/list/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
        ),
    ] {
        let error = json_patch(&object, patch.as_bytes()).unwrap_err();
        assert_eq!((code(&error), error.to_string().as_str()), (422, expected), "{patch}");
    }
}
