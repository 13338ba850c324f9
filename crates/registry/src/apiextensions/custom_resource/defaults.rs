//! Applying the defaults of a schema, and dropping disallowed nulls.
//!
//! Follows `apiextensions-apiserver/pkg/apiserver/schema/defaulting`. A null stands for a missing value where the schema
//! does not allow it: it goes, or gives way to the default. Nulls in lists stay, and are refused later.

use api::json::Value;
use api::structural_schema::Schema;

/// A null default is ignored.
fn default_of(schema: &Schema) -> Option<&Value> {
    schema.default.as_ref().filter(|default| !default.is_null())
}

fn schema_of<'s>(schema: &'s Schema, field: &str) -> Option<&'s Schema> {
    schema.properties.get(field).or_else(|| schema.additional_properties_schema())
}

/// Drops nulls that the schema does not allow and that no default replaces.
pub(super) fn drop_nulls(value: &mut Value, schema: Option<&Schema>) {
    let Some(schema) = schema else { return };
    match value {
        Value::Object(fields) => fields.retain(|key, field| {
            let inner = schema_of(schema, key);
            if field.is_null() && inner.is_some_and(|inner| !inner.nullable && default_of(inner).is_none()) {
                return false;
            }
            drop_nulls(field, inner);
            true
        }),
        Value::Array(items) => {
            let inner = schema.items_schema();
            items.iter_mut().for_each(|item| drop_nulls(item, inner));
        }
        _ => {}
    }
}

/// Fills in defaults.
pub(super) fn apply(value: &mut Value, schema: &Schema) {
    let replaces = |value: &Value, schema: &Schema| value.is_null() && !schema.nullable;
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                let Some(default) = default_of(property) else { continue };
                if fields.get(name).is_none_or(|found| replaces(found, property)) {
                    fields.insert(name.as_str(), default.clone());
                }
            }
            for (name, field) in fields.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    apply(field, property);
                } else if let Some(other) = schema.additional_properties_schema() {
                    if replaces(field, other) {
                        *field = default_of(other).cloned().unwrap_or_default();
                    }
                    apply(field, other);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items_schema() else { return };
            for item in items {
                if replaces(item, inner) {
                    *item = default_of(inner).cloned().unwrap_or_default();
                }
                apply(item, inner);
            }
        }
        _ => {}
    }
}
