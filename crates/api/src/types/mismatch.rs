//! Every value of a document that does not fit its type, with its path.
//!
//! [`decode`](super::decode) stops where Go stops, with Go's texts; tools that read files report all
//! mismatches.

use super::decode::complaint;
use super::{Kind, Type};
use crate::json::Value;

/// A value that does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The path of the value: `spec.containers[0].resources.limits[cpu]`.
    pub path: String,
    /// The expected and the given value.
    pub message: String,
    /// Whether a boolean is given instead of a text, such as unquoted `yes` and `on` in YAML.
    pub is_bool_for_text: bool,
}

/// Takes all values that do not fit out of a document, so that the rest can be decoded; returns them in the order of the
/// document.
pub fn take_mismatches(object_type: &'static Type, document: &mut Value) -> Vec<Mismatch> {
    let mut found = Vec::new();
    match document {
        Value::Object(_) => check(Kind::Struct(object_type), document, "", &mut found),
        _ => found.push(mismatch(Kind::Any, "an object", document, "")),
    }
    found
}

fn check(kind: Kind, value: &mut Value, path: &str, found: &mut Vec<Mismatch>) {
    if value.is_null() {
        return;
    }
    match (kind, &mut *value) {
        (Kind::Struct(of), Value::Object(fields)) => {
            for (name, value) in fields.iter_mut() {
                let Some(field) = of.fields.iter().find(|field| field.name == name) else { continue };
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                check(field.kind, value, &path, found);
            }
        }
        (Kind::List(inner), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                check(*inner, item, &format!("{path}[{index}]"), found);
            }
        }
        (Kind::Map(inner), Value::Object(fields)) => {
            for (name, value) in fields.iter_mut() {
                check(*inner, value, &format!("{path}[{name}]"), found);
            }
        }
        _ => {
            if complaint(kind, value).is_some() {
                found.push(mismatch(kind, expected(kind), value, path));
                *value = Value::Null;
            }
        }
    }
}

fn mismatch(kind: Kind, expected: &str, value: &Value, path: &str) -> Mismatch {
    const SHOWN_MAX: usize = 60;
    let text = value.to_string();
    let shown = match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    };
    let message = format!("expected {expected}, found {} {shown}", value.kind());
    let is_bool_for_text = matches!(kind, Kind::String) && matches!(value, Value::Bool(_));
    Mismatch { path: path.to_owned(), message, is_bool_for_text }
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "true or false",
        Kind::String => "a string",
        Kind::Int32 => "an integer of 32 bits",
        Kind::Int64 => "an integer",
        Kind::Float64 => "a number",
        Kind::Bytes => "text in base64",
        Kind::Quantity => "a quantity such as 500m, 2 or 1Gi",
        Kind::IntOrString => "an integer or a string",
        Kind::Time | Kind::MicroTime => "a time such as 2026-01-31T12:00:00Z",
        Kind::Duration => "a duration such as 1h30m",
        Kind::List(_) => "a list",
        Kind::Struct(_) | Kind::Map(_) => "an object",
        _ => "another value",
    }
}

#[cfg(test)]
mod tests {
    use crate::types;

    #[test]
    fn all_mismatches_are_found_with_their_paths() {
        let of = types::by_api_version("apps/v1", "Deployment").unwrap();
        let mut document = crate::json!({
            "metadata": {"name": "web", "labels": {"on": true}},
            "spec": {"replicas": "3", "template": {"spec": {"containers": [
                {"name": "c", "env": [{"name": "A", "value": 1}], "resources": {"limits": {"memory": "1GB", "cpu": "1"}}},
                7,
            ]}}},
        });
        let found = types::take_mismatches(of, &mut document);
        let shown: Vec<String> = found.iter().map(|it| format!("{}: {}", it.path, it.message)).collect();
        let container = "spec.template.spec.containers[0]";
        assert_eq!(
            shown,
            [
                "metadata.labels[on]: expected a string, found bool true".to_owned(),
                "spec.replicas: expected an integer of 32 bits, found string \"3\"".to_owned(),
                format!("{container}.env[0].value: expected a string, found number 1"),
                format!(
                    "{container}.resources.limits[memory]: expected a quantity such as 500m, 2 or 1Gi, found string \"1GB\""
                ),
                "spec.template.spec.containers[1]: expected an object, found number 7".to_owned(),
            ]
        );
        assert!(found[0].is_bool_for_text);
        assert!(types::decode(of, &document).is_ok(), "the rest fits");
        assert_eq!(types::take_mismatches(of, &mut document), []);
    }
}
