//! OpenAPI v3 schemas of custom resources, as data.
//!
//! The fields of `apiextensions.k8s.io/v1` `JSONSchemaProps`, including all `x-kubernetes-*` ones, and their
//! interpretation. Structural checks and validation of objects are implemented elsewhere.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::json::Value;

/// A schema, at any depth.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields are those of OpenAPI, and named as there")]
pub struct Schema {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(rename = "$schema", skip_serializing_if = "String::is_empty")]
    pub schema: String,
    #[serde(rename = "$ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub type_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub format: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub title: String,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<f64>,
    #[serde(skip_serializing_if = "is_false")]
    pub exclusive_maximum: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<f64>,
    #[serde(skip_serializing_if = "is_false")]
    pub exclusive_minimum: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<i64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pattern: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_items: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_items: Option<i64>,
    #[serde(skip_serializing_if = "is_false")]
    pub unique_items: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiple_of: Option<f64>,
    #[serde(rename = "enum", skip_serializing_if = "Vec::is_empty")]
    pub enumeration: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_properties: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_properties: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<SchemaOrList>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub all_of: Vec<Schema>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<Schema>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub any_of: Vec<Schema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not: Option<Box<Schema>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Schema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_properties: Option<SchemaOrBool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pattern_properties: BTreeMap<String, Schema>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub dependencies: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_items: Option<SchemaOrBool>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub definitions: BTreeMap<String, Schema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_docs: Option<Value>,
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub example: Option<Value>,
    #[serde(skip_serializing_if = "is_false")]
    pub nullable: bool,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields", skip_serializing_if = "Option::is_none")]
    pub x_preserve_unknown_fields: Option<bool>,
    #[serde(rename = "x-kubernetes-embedded-resource", skip_serializing_if = "is_false")]
    pub x_embedded_resource: bool,
    #[serde(rename = "x-kubernetes-int-or-string", skip_serializing_if = "is_false")]
    pub x_int_or_string: bool,
    #[serde(rename = "x-kubernetes-list-map-keys", skip_serializing_if = "Vec::is_empty")]
    pub x_list_map_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-list-type", skip_serializing_if = "Option::is_none")]
    pub x_list_type: Option<String>,
    #[serde(rename = "x-kubernetes-map-type", skip_serializing_if = "Option::is_none")]
    pub x_map_type: Option<String>,
    #[serde(rename = "x-kubernetes-validations", skip_serializing_if = "Vec::is_empty")]
    pub x_validations: Vec<ValidationRule>,
}

/// A CEL rule of a schema.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ValidationRule {
    /// The expression over `self` and perhaps `oldSelf`.
    pub rule: String,
    /// The text of a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// An expression that gives the text of a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message_expression: String,
    /// The machine-readable cause of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The field that a failure is reported at, relative to this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
    /// Whether `oldSelf` is an optional, and the rule runs without an old value, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional_old_self: Option<bool>,
}

/// The type of the values that a schema allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `object`
    Object,
    /// `array`
    Array,
    /// `string`
    String,
    /// `integer`
    Integer,
    /// `number`
    Number,
    /// `boolean`
    Boolean,
    /// No type: any value, or an integer or string if so marked.
    Unspecified,
}

/// Merge strategy of a list, and its rule for duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Distinct scalars.
    Set,
    /// Objects, distinct by their keys.
    Map,
}

impl Schema {
    /// Decodes a schema.
    ///
    /// # Errors
    /// The first part that has the wrong type.
    pub fn from_value(value: &Value) -> Result<Self, crate::json::ConvertError> {
        crate::json::from_value(value)
    }

    /// The type, if it is an OpenAPI type.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        Some(match self.type_name.as_str() {
            "object" => Kind::Object,
            "array" => Kind::Array,
            "string" => Kind::String,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "" => Kind::Unspecified,
            _ => return None,
        })
    }

    /// Whether fields that the schema does not name are kept.
    #[must_use]
    pub fn preserves_unknown_fields(&self) -> bool {
        self.x_preserve_unknown_fields == Some(true)
    }

    /// The schema of a list's items.
    #[must_use]
    pub fn items_schema(&self) -> Option<&Schema> {
        match self.items.as_ref()? {
            SchemaOrList::Schema(schema) => Some(schema),
            SchemaOrList::List(_) => None,
        }
    }

    /// The schema of a map's values.
    #[must_use]
    pub fn additional_properties_schema(&self) -> Option<&Schema> {
        match self.additional_properties.as_ref()? {
            SchemaOrBool::Schema(schema) => Some(schema),
            SchemaOrBool::Bool(_) => None,
        }
    }

    /// Whether the field must be there.
    #[must_use]
    pub fn requires(&self, field: &str) -> bool {
        self.required.iter().any(|name| name == field)
    }

    /// Merge strategy of the list; the default is atomic.
    #[must_use]
    pub fn list_type(&self) -> ListType {
        match self.x_list_type.as_deref() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            _ => ListType::Atomic,
        }
    }

    /// Whether the object is replaced as a whole; the default is that fields are merged.
    #[must_use]
    pub fn is_atomic_map(&self) -> bool {
        self.x_map_type.as_deref() == Some("atomic")
    }
}

/// A schema for all items, or one for each (which structural schemas do not allow).
#[derive(Debug, Clone, PartialEq)]
pub enum SchemaOrList {
    /// One for all.
    Schema(Box<Schema>),
    /// One for each.
    List(Vec<Schema>),
}

/// A schema, or whether anything goes.
#[derive(Debug, Clone, PartialEq)]
pub enum SchemaOrBool {
    /// The schema.
    Schema(Box<Schema>),
    /// Anything, or nothing.
    Bool(bool),
}

impl Serialize for SchemaOrList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Schema(schema) => schema.serialize(serializer),
            Self::List(schemas) => schemas.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SchemaOrList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SchemaOrListVisitor;
        impl<'de> Visitor<'de> for SchemaOrListVisitor {
            type Value = SchemaOrList;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a schema or a list of them")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SchemaOrList, A::Error> {
                Schema::deserialize(MapAccessDeserializer::new(map)).map(|it| SchemaOrList::Schema(Box::new(it)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<SchemaOrList, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(SchemaOrList::List)
            }
        }
        deserializer.deserialize_any(SchemaOrListVisitor)
    }
}

impl Serialize for SchemaOrBool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Schema(schema) => schema.serialize(serializer),
            Self::Bool(allowed) => serializer.serialize_bool(*allowed),
        }
    }
}

impl<'de> Deserialize<'de> for SchemaOrBool {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SchemaOrBoolVisitor;
        impl<'de> Visitor<'de> for SchemaOrBoolVisitor {
            type Value = SchemaOrBool;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a schema or a boolean")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SchemaOrBool, A::Error> {
                Schema::deserialize(MapAccessDeserializer::new(map)).map(|it| SchemaOrBool::Schema(Box::new(it)))
            }
            fn visit_bool<E>(self, allowed: bool) -> Result<SchemaOrBool, E> {
                Ok(SchemaOrBool::Bool(allowed))
            }
        }
        deserializer.deserialize_any(SchemaOrBoolVisitor)
    }
}

/// A present field counts, even if it is null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this form")]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn schemas_are_read_and_written_back() {
        let text = r#"{"type":"object","maximum":1.5,"required":["a"],"properties":{"a":{"type":"array","items":{"type":"string","maxLength":5},"x-kubernetes-list-type":"set"},"b":{"additionalProperties":{"x-kubernetes-int-or-string":true}},"c":{"default":{"x":[1]},"additionalProperties":false,"enum":["x",null]}},"x-kubernetes-validations":[{"rule":"self.a == 1","messageExpression":"'x'","optionalOldSelf":true}]}"#;
        let value = json::parse(text.as_bytes()).unwrap();
        let schema = Schema::from_value(&value).unwrap();
        let a = &schema.properties["a"];
        assert_eq!((a.kind(), a.list_type()), (Some(Kind::Array), ListType::Set));
        assert_eq!(a.items_schema().unwrap().max_length, Some(5));
        assert!(schema.properties["b"].additional_properties_schema().unwrap().x_int_or_string);
        assert!(schema.requires("a") && !schema.requires("b"));
        assert_eq!(json::to_value(&schema).unwrap(), value);
    }

    #[test]
    fn wrong_types_are_errors() {
        let value = crate::json!({"properties": {"a": {"items": "string"}}});
        let message = Schema::from_value(&value).unwrap_err().to_string();
        assert!(message.starts_with("properties.a.items: "), "{message}");
    }
}
