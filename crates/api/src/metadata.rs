//! Reading and changing the metadata of objects.

use crate::json::{Object, Value};

/// The text of a metadata field, empty if it is missing.
#[must_use]
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.text_at(&["metadata", field])
}

/// The name of an object, empty if it has none yet.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// The namespace of an object, empty if it has none.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// An annotation of an object.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.str_at(&["metadata", "annotations", key])
}

/// The metadata, which is added if it is missing.
pub fn make(object: &mut Value) -> &mut Object {
    object.make_object().get_or_insert("metadata", Value::object).make_object()
}

/// Sets a metadata field.
pub fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    make(object).insert(field, value);
}

/// Removes a metadata field.
pub fn remove(object: &mut Value, field: &str) {
    make(object).remove(field);
}

/// The labels.
#[must_use]
pub fn labels(object: &Value) -> Option<&Object> {
    object.at(&["metadata", "labels"])?.as_object()
}

/// The finalizers.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<String> {
    object.list_at(&["metadata", "finalizers"]).iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

/// Whether the object is being deleted.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some_and(|value| !value.is_null())
}

/// Copies a metadata field from another object, or removes it where the other has none.
pub fn copy(object: &mut Value, from: &Value, field: &str) {
    match from.at(&["metadata", field]) {
        Some(value) => set(object, field, value.clone()),
        None => remove(object, field),
    }
}
