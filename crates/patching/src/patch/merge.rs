//! Merge patch: a document that is laid over another, where null removes.

use api::json::{self, Object, ObjectEditor, Value};

use super::{Error, Result};

/// Lays the patch over the document.
///
/// # Errors
/// The patch is neither an object nor a list.
pub fn apply(document: &Value, patch: &[u8]) -> Result<Value> {
    let invalid = || Error::malformed("Invalid JSON Patch");
    match json::parse(patch).map_err(|_| invalid())? {
        Value::Object(patch) => {
            let mut result = document.clone();
            match &mut result {
                Value::Object(fields) => merge(fields, patch),
                other => *other = Value::Object(without_nulls(patch)),
            }
            Ok(result)
        }
        list @ Value::Array(_) => Ok(list),
        _ => Err(invalid()),
    }
}

fn merge(fields: &mut Object, patch: Object) {
    let mut edited = ObjectEditor::new(std::mem::take(fields));
    merge_into(&mut edited, patch);
    *fields = edited.into_object();
}

fn merge_into(fields: &mut ObjectEditor, patch: Object) {
    for (key, value) in patch {
        match (fields.get_mut(&key), value) {
            (_, Value::Null) => {
                fields.remove(&key);
            }
            (Some(Value::Object(inner)), Value::Object(patch)) => merge(inner, patch),
            (_, Value::Object(patch)) => {
                fields.insert(key, without_nulls(patch));
            }
            // A value that replaces an object is used unchanged.
            (Some(Value::Object(_)), value) => {
                fields.insert(key, value);
            }
            (_, value) => {
                fields.insert(key, pruned(value));
            }
        }
    }
}

fn without_nulls(fields: Object) -> Object {
    let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
    kept.map(|(key, value)| (key, pruned(value))).collect()
}

/// The value without fields that are null, in the items of lists as well.
fn pruned(value: Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(without_nulls(fields)),
        Value::Array(items) => Value::Array(items.into_iter().map(pruned).collect()),
        other => other,
    }
}
