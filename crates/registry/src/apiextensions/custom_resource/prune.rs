//! Dropping the fields that a schema does not name.
//!
//! Follows `apiextensions-apiserver/pkg/apiserver/schema/pruning`. What is dropped is reported by path, for strict field
//! validation. Type and metadata of objects, also of embedded ones, do not concern the schema.

use std::fmt::Write as _;

use api::json::Value;
use api::structural_schema::{Schema, SchemaOrBool};

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// State of the walk, and the dropped fields.
#[derive(Default)]
struct Walk {
    /// The path of the current value; `None` if no paths are recorded.
    path: Option<String>,
    dropped: Vec<String>,
}

/// Drops unknown fields of an object; gives back their paths, sorted.
pub(super) fn prune_reporting(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut walk = Walk { path: Some(String::new()), dropped: Vec::new() };
    walk.prune(object, Some(schema), true);
    walk.dropped.sort();
    walk.dropped
}

/// Drops unknown fields of an object.
pub(super) fn prune(object: &mut Value, schema: &Schema) {
    Walk::default().prune(object, Some(schema), true);
}

/// The schema of a field that is not a property: that of the other fields, if any are allowed.
enum OtherFields<'s> {
    None,
    /// `additionalProperties: true` allows the field, and nothing inside.
    Allowed,
    Schema(&'s Schema),
}

fn other(schema: &Schema) -> OtherFields<'_> {
    match &schema.additional_properties {
        None => OtherFields::None,
        Some(SchemaOrBool::Bool(_)) => OtherFields::Allowed,
        Some(SchemaOrBool::Schema(schema)) => OtherFields::Schema(schema),
    }
}

impl Walk {
    fn inside(&mut self, step: Step<'_>, visit: impl FnOnce(&mut Self)) {
        let length = self.path.as_ref().map(String::len);
        if let Some(path) = &mut self.path {
            match step {
                Step::Key(key) if path.is_empty() => path.push_str(key),
                // Writing to a String cannot fail.
                Step::Key(key) => drop(write!(path, ".{key}")),
                Step::Index(index) => drop(write!(path, "[{index}]")),
            }
        }
        visit(self);
        if let (Some(path), Some(length)) = (&mut self.path, length) {
            path.truncate(length);
        }
    }

    fn drop_field(&mut self, key: &str) {
        if let Some(path) = &self.path {
            let whole = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            self.dropped.push(whole);
        }
    }

    fn prune(&mut self, value: &mut Value, schema: Option<&Schema>, is_root: bool) {
        if let Some(schema) = schema
            && schema.preserves_unknown_fields()
        {
            self.keep(value, schema, is_root);
            return;
        }
        match value {
            Value::Object(fields) => {
                let is_resource = is_root || schema.is_some_and(|schema| schema.x_embedded_resource);
                fields.retain(|key, field| {
                    let Some(schema) = schema else {
                        self.drop_field(key);
                        return false;
                    };
                    if is_resource && META_FIELDS.contains(&key) {
                        return true;
                    }
                    let inner = match (schema.properties.get(key), other(schema)) {
                        (Some(property), _) => Some(property),
                        (None, OtherFields::Schema(other)) => Some(other),
                        (None, OtherFields::Allowed) => None,
                        (None, OtherFields::None) => {
                            self.drop_field(key);
                            return false;
                        }
                    };
                    self.inside(Step::Key(key), |walk| walk.prune(field, inner, false));
                    true
                });
            }
            Value::Array(items) => {
                let schema = schema.and_then(Schema::items_schema);
                for (index, item) in items.iter_mut().enumerate() {
                    self.inside(Step::Index(index), |walk| walk.prune(item, schema, false));
                }
            }
            _ => {}
        }
    }

    /// Keeps everything, but prunes below fields that the schema names.
    fn keep(&mut self, value: &mut Value, schema: &Schema, is_root: bool) {
        match value {
            Value::Object(fields) => {
                let is_resource = is_root || schema.x_embedded_resource;
                for (key, field) in fields.iter_mut() {
                    if is_resource && META_FIELDS.contains(&key) {
                        continue;
                    }
                    let inner = match (schema.properties.get(key), other(schema)) {
                        (Some(property), _) => Some(property),
                        (None, OtherFields::Schema(other)) => Some(other),
                        (None, OtherFields::Allowed) => None,
                        (None, OtherFields::None) => continue,
                    };
                    self.inside(Step::Key(key), |walk| walk.prune(field, inner, false));
                }
            }
            Value::Array(items) => {
                let Some(schema) = schema.items_schema() else { return };
                for (index, item) in items.iter_mut().enumerate() {
                    self.inside(Step::Index(index), |walk| walk.keep(item, schema, false));
                }
            }
            _ => {}
        }
    }
}

enum Step<'k> {
    Key(&'k str),
    Index(usize),
}
