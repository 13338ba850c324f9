//! Paths of printer columns agree with the reference implementation, on its recorded tables.

use api::json::{self, Value};
use api::json_path::{Item, JsonPath};

/// Content of a column's cell, for the types that need no clock.
fn cell(path: &JsonPath, column_type: &str, object: &Value) -> Option<Value> {
    let item = path.find_first(object);
    if column_type == "date" {
        return None;
    }
    Some(match (column_type, item) {
        (_, None) => Value::Null,
        ("string", Some(Item::Value(Value::Null))) => "<no value>".into(),
        ("string", Some(item)) => {
            let mut text = String::new();
            item.print(&mut text);
            text.into()
        }
        ("integer", Some(Item::Value(Value::Int(value)))) => (*value).into(),
        #[allow(clippy::cast_possible_truncation, reason = "an integer column truncates")]
        ("integer", Some(Item::Value(Value::Float(value)))) if value.get().abs() < 9e18 => (value.get() as i64).into(),
        // Go's conversion of floats that are too large, on amd64.
        ("integer", Some(Item::Value(Value::Float(_)))) => i64::MIN.into(),
        ("number", Some(Item::Value(value @ (Value::Int(_) | Value::Float(_))))) => value.as_f64().unwrap().into(),
        ("boolean", Some(Item::Value(Value::Bool(value)))) => (*value).into(),
        _ => Value::Null,
    })
}

/// The recorded cells are JSON, where a whole float reads as an integer.
fn same(actual: &Value, expected: &Value) -> bool {
    actual == expected || (actual.as_f64().is_some() && actual.as_f64() == expected.as_f64())
}

#[test]
fn columns_agree_with_kubernetes() {
    let mut compared = 0;
    for line in include_str!("data/custom_tables.jsonl").lines() {
        let case = json::parse(line.as_bytes()).unwrap();
        let (input, expected) = (case.get("input").unwrap(), case.get("expected").unwrap());
        let columns = input.get("additionalPrinterColumns").and_then(Value::as_array).unwrap_or_default();
        let mut paths = Vec::new();
        let mut failed = false;
        for column in columns {
            let text = column.text("jsonPath");
            match JsonPath::parse_column(text) {
                Ok(path) => paths.push((path, column.str_at(&["type"]).unwrap())),
                Err(_) => {
                    failed = true;
                    let message = format!("unrecognized column definition {}", api::go_text::quote(text));
                    assert_eq!(expected.str_at(&["newError"]), Some(message.as_str()), "{line}");
                    break;
                }
            }
        }
        assert_eq!(failed, expected.get("newError").is_some(), "{line}");
        let rows = expected.get("rows").and_then(Value::as_array).unwrap_or_default();
        let objects = input.get("objects").and_then(Value::as_array).unwrap();
        for (object, row) in objects.iter().zip(rows) {
            let cells = row.get("cells").and_then(Value::as_array).unwrap();
            assert_eq!(cells.len(), paths.len() + 1, "{line}");
            for ((path, column_type), expected) in paths.iter().zip(&cells[1..]) {
                if let Some(actual) = cell(path, column_type, object) {
                    assert!(same(&actual, expected), "{path:?} {actual} {expected}\n{line}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

#[track_caller]
fn check(template: &str, expected: &str) {
    let object = json::parse(
        br#"{"kind":"List","items":[
            {"name":"a","ip":["1","2"],"n":1,"x":{"y":null}},
            {"name":"b","ip":["3"],"n":2.5}],
            "users":[{"name":"u","user":{"pw":"p"}},{"name":"v","user":{}}]}"#,
    );
    let object = object.unwrap();
    let actual = JsonPath::parse_template(template).and_then(|path| path.execute(&object));
    let actual = actual.unwrap_or_else(|error| format!("error: {error}"));
    assert_eq!(actual, expected, "{template}");
}

#[test]
fn templates_are_filled_as_kubectl_fills_them() {
    check("kind is {.kind}", "kind is List");
    check("{.items[*].name}", "a b");
    check("{.items[*]['name','n']}", "a b 1 2.5");
    check("{.items[-1:].name} {.items[0:1].ip}", "b [\"1\",\"2\"]");
    check("{range .items[*]}{.name}:{.ip[*]}{\"\\n\"}{end}done", "a:1 2\nb:3\ndone");
    check("{range .items[?(@.name == 'z')]}{'-'}{end}!", "!");
    check("{.users[?(@.name==\"v\")].user}", "{}");
    check("{.users[?(@.user.pw)].name}", "u");
    check("{..ip[0]}", "1 3");
    check("{.items[0].x.y}", "null");
    check("{.items[?(@.n > 1)].name}", "error: incompatible types for comparison");
    check("{.nothing}", "error: nothing is not found");
    check("{.items[5]}", "error: array index out of bounds: index 5, length 2");
    check("{.items[a]}", "error: invalid array index a");
    check("{.kind", "error: unclosed action");
    check("{end}", "error: not in range, nothing to end");
    check("{.kind[0]}", "error: string is not array or slice");
}
