//! Comparison of values in paths: numbers by value, objects regardless of order.
//!
//! Follows `value.Equals` and `value.Compare` of structured-merge-diff.

use std::cmp::Ordering;

use api::go_text;
use api::json::{Lookup, Object, Value};

/// Whether two values are equal; `1` and `1.0` are.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Float(_), _) | (_, Value::Float(_)) => match (left.as_f64(), right.as_f64()) {
            (Some(left), Some(right)) => left == right,
            _ => false,
        },
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let other = Lookup::new(right);
            let mut fields = left.iter().enumerate();
            left.len() == right.len()
                && fields.all(|(index, (key, value))| other.get_at(key, index).is_some_and(|other| same(value, other)))
        }
        _ => left == right,
    }
}

/// The order of values: numbers, strings, booleans, lists, objects, null.
pub(super) fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(right),
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => {
            let unequal = left.iter().zip(right).map(|(left, right)| compare(left, right)).find(|it| it.is_ne());
            unequal.unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (Value::Object(left), Value::Object(right)) => compare_objects(left, right),
        _ => rank(left).cmp(&rank(right)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::Float(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_objects(left: &Object, right: &Object) -> Ordering {
    let sorted = |object: &Object| {
        let mut fields: Vec<_> = object.iter().map(|(key, value)| (key.to_owned(), value.clone())).collect();
        fields.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        fields
    };
    let (left, right) = (sorted(left), sorted(right));
    let order = |(left, right): (&(String, Value), &(String, Value))| {
        left.0.cmp(&right.0).then_with(|| compare(&left.1, &right.1))
    };
    left.iter().zip(&right).map(order).find(|it| it.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
}

/// A value inside a path, `name="a"`.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Float(number) => go_text::format_float(number.get()),
        Value::String(text) => go_text::quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => fields.iter().map(|(key, value)| format!("{key}={}", text(value))).collect(),
        other => other.to_string(),
    }
}

/// A value as Go's `%v` prints it in the errors of the library.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::Float(number) => go_text::format_float(number.get()),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<_> =
                sorted(fields).into_iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        other => other.to_string(),
    }
}

/// A value as Go's `%#v` prints it.
pub(super) fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => go_text::quote(text),
        Value::Float(number) => go_text::format_float(number.get()),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<_> = sorted(fields)
                .into_iter()
                .map(|(key, value)| format!("{}:{}", go_text::quote(key), syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

fn sorted(fields: &Object) -> Vec<(&str, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable_by_key(|(key, _)| *key);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_equal_by_worth_and_objects_in_any_order() {
        let value = |text: &str| api::json::parse(text.as_bytes()).unwrap();
        assert!(same(&value("1"), &value("1.0")));
        assert!(same(&value(r#"{"a":[1],"b":null}"#), &value(r#"{"b":null,"a":[1.0]}"#)));
        assert!(!same(&value("1"), &value("\"1\"")));
        assert!(!same(&value(r#"{"a":1}"#), &value(r#"{"b":1}"#)));
        assert_eq!(compare(&value("2"), &value("1.5")), Ordering::Greater);
        assert_eq!(compare(&value("9"), &value("\"a\"")), Ordering::Less);
        assert_eq!(compare(&value(r#"{"b":1,"a":2}"#), &value(r#"{"a":2,"b":1}"#)), Ordering::Equal);
        assert_eq!(compare(&value("[1]"), &value("[1,2]")), Ordering::Less);
    }
}
