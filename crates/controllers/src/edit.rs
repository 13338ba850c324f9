//! Small changes to whole documents.

use api::json::{Text, Value, to_value};
use api::meta::v1::ObjectMeta;
use api::time::Timestamp;
use serde::Serialize;

/// Sets the field at the end of a path; objects on the way are made where they are missing.
pub fn set(document: &mut Value, path: &[&str], value: impl Into<Value>) {
    if let Some(slot) = slot(document, path) {
        *slot = value.into();
    }
}

/// The field at the end of a path, null if it was missing.
fn slot<'a>(document: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    let mut at = document;
    for key in path {
        if at.as_object().is_none() {
            *at = Value::object();
        }
        at = at.as_object_mut()?.get_or_insert(key, || Value::Null);
    }
    Some(at)
}

/// Removes the field at the end of a path.
pub fn remove(document: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    let mut at = document;
    for key in way {
        at = at.get_mut(key)?;
    }
    at.as_object_mut()?.remove(last)
}

/// The list at the end of a path, made if it is missing.
pub fn list<'a>(document: &'a mut Value, path: &[&str]) -> Option<&'a mut Vec<Value>> {
    let slot = slot(document, path)?;
    if slot.as_array().is_none() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut()
}

/// The whole number at the end of a path, 0 if there is none.
#[must_use]
pub fn int(document: &Value, path: &[&str]) -> i64 {
    document.at(path).and_then(Value::as_i64).unwrap_or(0)
}

/// Sets a number, or removes it if it is 0 and the field is left out then.
pub fn set_count(document: &mut Value, path: &[&str], count: i32) {
    if count == 0 {
        remove(document, path);
    } else {
        set(document, path, count);
    }
}

/// Sets a text, or removes the field if there is none.
pub fn set_or_remove<V: Into<Value>>(document: &mut Value, path: &[&str], value: Option<V>) {
    match value {
        Some(value) => set(document, path, value),
        None => drop(remove(document, path)),
    }
}

/// The name of a document.
#[must_use]
pub fn name(document: &Value) -> &str {
    document.str_at(&["metadata", "name"]).unwrap_or_default()
}

/// The namespace of a document, empty if it has none.
#[must_use]
pub fn namespace(document: &Value) -> &str {
    document.str_at(&["metadata", "namespace"]).unwrap_or_default()
}

/// An annotation of a document.
#[must_use]
pub fn annotation<'a>(document: &'a Value, key: &str) -> Option<&'a str> {
    document.str_at(&["metadata", "annotations", key])
}

/// The key that the object has in informers and queues.
#[must_use]
pub fn key(metadata: &ObjectMeta) -> client::informer::Key {
    client::informer::Key::new(metadata.namespace.clone(), metadata.name.clone())
}

/// A time as documents hold it.
#[must_use]
pub fn time(at: Timestamp) -> Value {
    Value::String(Text::from(at.to_string()))
}

/// A complete type as a document; null if it cannot be written, which types of this workspace always can.
#[must_use]
pub fn document<T: Serialize>(value: &T) -> Value {
    to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_made_on_the_way_and_removed_without_trace() {
        let mut document = api::json!({"a": {"b": 1}});
        set(&mut document, &["a", "c", "d"], 2);
        set_count(&mut document, &["a", "b"], 0);
        assert_eq!(document, api::json!({"a": {"c": {"d": 2}}}));
        assert_eq!(remove(&mut document, &["a", "x", "y"]), None);
        list(&mut document, &["l"]).unwrap().push(Value::Int(1));
        assert_eq!(document.get("l"), Some(&api::json!([1])));
        assert_eq!(int(&document, &["a", "c", "d"]), 2);
    }
}
