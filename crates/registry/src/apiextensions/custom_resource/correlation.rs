//! Correlation with the old object: fields by name, items of list-maps by their keys, other items never.
//!
//! An error about a part that is as it was is not a reason to refuse an update. Follows `CorrelatedObject` and `MapList` of
//! `apiserver/pkg/cel/common`: what the schema does not name counts as changed.

use std::collections::HashMap;

use api::json::Value;
use api::structural_schema::{ListType, Schema};

/// A value and the value that it replaces.
#[derive(Debug, Clone, Copy)]
pub(super) struct CorrelatedValue<'v> {
    pub(super) new: &'v Value,
    pub(super) old: &'v Value,
    pub(super) schema: &'v Schema,
}

impl<'v> CorrelatedValue<'v> {
    /// Correlates a field, if both objects have it and the schema declares it.
    pub(super) fn key(&self, field: &str) -> Option<Self> {
        let (new, old) = (self.new.get(field)?, self.old.get(field)?);
        let schema = self.schema.properties.get(field).or_else(|| self.schema.additional_properties_schema())?;
        Some(Self { new, old, schema })
    }

    /// The old items by key, if they have keys.
    pub(super) fn old_items(&self) -> Option<MapList<'v>> {
        MapList::new(self.schema, self.old.as_array()?)
    }

    /// Returns an item with the old item that it replaces.
    pub(super) fn item(&self, item: &'v Value, old_items: Option<&MapList<'v>>) -> Option<Self> {
        let old = old_items?.get(item)?;
        Some(Self { new: item, old, schema: self.schema.items_schema()? })
    }

    /// Whether nothing changed.
    pub(super) fn is_unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if self.schema.list_type() != ListType::Map {
                    return new == old;
                }
                let old_items = self.old_items();
                new.iter().all(|item| self.item(item, old_items.as_ref()).is_some_and(|item| item.is_unchanged()))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|key| self.key(key).is_some_and(|field| field.is_unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

/// The items of a list-map, by their keys.
#[derive(Debug)]
pub(super) struct MapList<'v> {
    keys: &'v [String],
    items: HashMap<String, &'v Value>,
}

impl<'v> MapList<'v> {
    /// The first of two items with the same keys counts. `None` if the schema is not a list-map.
    pub(super) fn new(schema: &'v Schema, items: &'v [Value]) -> Option<Self> {
        if schema.type_name != "array" || schema.list_type() != ListType::Map || schema.x_list_map_keys.is_empty() {
            return None;
        }
        let keys = schema.x_list_map_keys.as_slice();
        let mut list = Self { keys, items: HashMap::with_capacity(items.len()) };
        for item in items {
            if let Some(key) = key_of(keys, item) {
                list.items.entry(key).or_insert(item);
            }
        }
        Some(list)
    }

    /// The item with the keys of this one.
    pub(super) fn get(&self, item: &Value) -> Option<&'v Value> {
        self.items.get(&key_of(self.keys, item)?).copied()
    }
}

/// A text that is the same for items with the same keys; none if a key is missing or no scalar.
fn key_of(keys: &[String], item: &Value) -> Option<String> {
    let mut text = String::new();
    for key in keys {
        let value = item.get(key)?;
        if matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
            return None;
        }
        text.push('\0');
        api::json::write_value(&mut text, value);
    }
    Some(text)
}
