//! Lists that are sets or maps: nothing may occur twice.
//!
//! Follows `apiextensions-apiserver/pkg/apiserver/schema/listtype`. Each repeated value is reported once, at its second
//! occurrence.

use std::collections::HashMap;

use api::field::{Errors, Path};
use api::json::{Object, Value, to_string};
use api::structural_schema::{ListType, Schema};

/// Adds what occurs twice in an object.
pub(super) fn validate(value: &Value, schema: &Schema, at: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter() {
                if let Some(property) = schema.properties.get(name) {
                    validate(field, property, &at.child(name), errors);
                } else if let Some(other) = schema.additional_properties_schema() {
                    validate(field, other, &at.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type() {
                ListType::Atomic => {}
                ListType::Set => {
                    for index in repeated(items.iter().map(text_of)) {
                        let item = items.get(index).cloned().unwrap_or_default();
                        errors.duplicate(at.index(index), item);
                    }
                }
                ListType::Map => validate_map(items, &schema.x_list_map_keys, at, errors),
            }
            if let Some(inner) = schema.items_schema() {
                for (index, item) in items.iter().enumerate() {
                    validate(item, inner, &at.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn validate_map(items: &[Value], keys: &[String], at: &Path<'_>, errors: &mut Errors) {
    for (index, item) in items.iter().enumerate() {
        if !matches!(item, Value::Null | Value::Object(_)) {
            errors.invalid(at.index(index), item.clone(), "must be an object for an array of list-type map");
            return;
        }
    }
    let of = |item: &Value| -> Object {
        keys.iter().filter_map(|key| item.get(key).map(|value| (key.as_str(), value.clone()))).collect()
    };
    for index in repeated(items.iter().map(|item| text_of(&Value::Object(of(item))))) {
        let mut shown = items.get(index).map(of).unwrap_or_default();
        shown.sort();
        errors.duplicate(at.index(index), shown);
    }
}

/// A text that is the same for equal values.
fn text_of(value: &Value) -> String {
    if matches!(value, Value::Array(_) | Value::Object(_)) {
        let mut sorted = value.clone();
        sorted.sort_keys();
        return to_string(&sorted);
    }
    to_string(value)
}

/// Positions of repeated values.
fn repeated(texts: impl ExactSizeIterator<Item = String>) -> Vec<usize> {
    if texts.len() <= 1 {
        return Vec::new();
    }
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(texts.len());
    let mut found = Vec::new();
    for (index, text) in texts.enumerate() {
        let times = seen.entry(text).or_default();
        *times = times.saturating_add(1);
        if *times == 2 {
            found.push(index);
        }
    }
    found
}
