//! Reading the fields of a value, by name or by path.
//!
//! Two forms: readers that return an `Option`, and readers in which a missing field, `null` or a value of another type is
//! the zero value of the requested type. The latter are for documents in normal form, whose types decoding has enforced.

use super::{Object, Value};
use crate::Quantity;

static NOTHING: Object = Object::new();
static NULL: Value = Value::Null;

/// Fields at the end of a path: `value.at(&["metadata", "name"])`.
impl Value {
    /// Follows fields from object to object: `value.at(&["metadata", "name"])`.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    /// The string at the end of a path of fields.
    #[must_use]
    pub fn str_at(&self, path: &[&str]) -> Option<&str> {
        self.at(path)?.as_str()
    }

    /// The integer at the end of a path of fields.
    #[must_use]
    pub fn i64_at(&self, path: &[&str]) -> Option<i64> {
        self.at(path)?.as_i64()
    }

    /// The boolean at the end of a path of fields.
    #[must_use]
    pub fn bool_at(&self, path: &[&str]) -> Option<bool> {
        self.at(path)?.as_bool()
    }

    /// The list at the end of a path of fields.
    #[must_use]
    pub fn array_at(&self, path: &[&str]) -> Option<&[Value]> {
        self.at(path)?.as_array()
    }

    /// The object at the end of a path of fields.
    #[must_use]
    pub fn object_at(&self, path: &[&str]) -> Option<&Object> {
        self.at(path)?.as_object()
    }

    /// The string at the end of a path of fields, empty if there is none.
    #[must_use]
    pub fn text_at(&self, path: &[&str]) -> &str {
        self.str_at(path).unwrap_or_default()
    }

    /// The integer at the end of a path of fields, 0 if there is none.
    #[must_use]
    pub fn int_at(&self, path: &[&str]) -> i64 {
        self.i64_at(path).unwrap_or_default()
    }

    /// The boolean at the end of a path of fields, false if there is none.
    #[must_use]
    pub fn flag_at(&self, path: &[&str]) -> bool {
        self.bool_at(path).unwrap_or_default()
    }

    /// The items of the list at the end of a path of fields, none if there is no list.
    #[must_use]
    pub fn list_at(&self, path: &[&str]) -> &[Value] {
        self.array_at(path).unwrap_or_default()
    }
}

/// Fields by name.
impl Value {
    /// The text of a field, empty if missing.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.optional_text(key).unwrap_or_default()
    }

    /// The text of a field, if it is set, perhaps to the empty text.
    #[must_use]
    pub fn optional_text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    /// The number of a field, 0 if missing.
    #[must_use]
    pub fn int(&self, key: &str) -> i64 {
        self.optional_int(key).unwrap_or_default()
    }

    /// The number of a field, if it is set.
    #[must_use]
    pub fn optional_int(&self, key: &str) -> Option<i64> {
        self.get(key)?.as_i64()
    }

    /// The boolean of a field, false if missing.
    #[must_use]
    pub fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or_default()
    }

    /// The boolean of a field, if it is set.
    #[must_use]
    pub fn optional_flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.as_bool()
    }

    /// The items of a field.
    #[must_use]
    pub fn list(&self, key: &str) -> &[Value] {
        self.get(key).and_then(Value::as_array).unwrap_or_default()
    }

    /// The texts of a list; an item of another type is the empty text.
    pub fn texts<'a>(&'a self, key: &str) -> impl ExactSizeIterator<Item = &'a str> + Clone + use<'a> {
        self.list(key).iter().map(|item| item.as_str().unwrap_or_default())
    }

    /// The entries of a map, or the fields of a struct.
    #[must_use]
    pub fn map(&self, key: &str) -> &Object {
        self.get(key).and_then(Value::as_object).unwrap_or(&NOTHING)
    }

    /// The field, `null` if missing.
    #[must_use]
    pub fn field(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NULL)
    }

    /// The field, if it is set and not `null`.
    #[must_use]
    pub fn optional(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|value| !value.is_null())
    }

    /// Whether the field is set and not `null`.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.optional(key).is_some()
    }

    /// The quantity of a field.
    #[must_use]
    pub fn quantity(&self, key: &str) -> Option<Quantity> {
        self.get(key)?.as_quantity()
    }

    /// The quantity that a text or an integer holds.
    #[must_use]
    pub fn as_quantity(&self) -> Option<Quantity> {
        match self {
            Value::String(text) => Quantity::parse(text).ok(),
            Value::Int(number) => Quantity::parse(&number.to_string()).ok(),
            _ => None,
        }
    }
}
