//! Reading and changing what all objects have.

use api::json::{Object, Value};

/// The text of a metadata field, empty if it is missing.
#[must_use]
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.str_at(&["metadata", field]).unwrap_or_default()
}

/// The metadata, made if it is missing.
pub(crate) fn make(object: &mut Value) -> &mut Object {
    if !matches!(object, Value::Object(_)) {
        *object = Value::object();
    }
    let Value::Object(fields) = object else { return leaked() };
    let metadata = fields.get_or_insert("metadata", Value::object);
    if !matches!(metadata, Value::Object(_)) {
        *metadata = Value::object();
    }
    match metadata {
        Value::Object(metadata) => metadata,
        _ => leaked(),
    }
}

/// Stands for what cannot happen: both callers have just made an object.
fn leaked() -> &'static mut Object {
    Box::leak(Box::default())
}

/// Sets a metadata field.
pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    make(object).insert(field, value);
}

/// Removes a metadata field.
pub(crate) fn remove(object: &mut Value, field: &str) {
    make(object).remove(field);
}

/// The labels.
#[must_use]
pub(crate) fn labels(object: &Value) -> Option<&Object> {
    object.at(&["metadata", "labels"])?.as_object()
}

/// The finalizers.
#[must_use]
pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    let list = object.at(&["metadata", "finalizers"]).and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

/// Whether the object is being deleted.
#[must_use]
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.at(&["metadata", "deletionTimestamp"]).is_some_and(|value| !value.is_null())
}

/// Copies a metadata field from another object, or removes it where the other has none.
pub(crate) fn copy(object: &mut Value, from: &Value, field: &str) {
    match from.at(&["metadata", field]) {
        Some(value) => set(object, field, value.clone()),
        None => remove(object, field),
    }
}
