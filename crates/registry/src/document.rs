//! Reading documents in normal form: what is missing is the zero value of its type.
//!
//! Validators know the type of every field they ask for, and decoding made sure that documents have
//! it; so these readers never fail. Changing a document goes through [`Edit`].

use api::Quantity;
use api::json::{Object, Value};

static NOTHING: Object = Object::new();
static NULL: Value = Value::Null;

/// Reads fields of a document.
pub(crate) trait Read {
    /// The text of a field, empty if missing.
    fn text(&self, key: &str) -> &str;
    /// The text of a field, if it is set, perhaps to the empty text.
    fn optional_text(&self, key: &str) -> Option<&str>;
    /// The number of a field, 0 if missing.
    fn int(&self, key: &str) -> i64;
    /// The number of a field, if it is set.
    fn optional_int(&self, key: &str) -> Option<i64>;
    /// The truth of a field, false if missing.
    fn flag(&self, key: &str) -> bool;
    /// The truth of a field, if it is set.
    fn optional_flag(&self, key: &str) -> Option<bool>;
    /// The items of a field.
    fn list(&self, key: &str) -> &[Value];
    /// The entries of a map, or the fields of a struct.
    fn map(&self, key: &str) -> &Object;
    /// The struct of a field, if it is set.
    fn optional(&self, key: &str) -> Option<&Value>;
    /// The field, null if missing.
    fn field(&self, key: &str) -> &Value;
    /// Whether the field is there and not null.
    fn has(&self, key: &str) -> bool {
        self.optional(key).is_some()
    }
    /// The quantity of a field.
    fn quantity(&self, key: &str) -> Option<Quantity> {
        self.optional(key).and_then(as_quantity)
    }
    /// The texts of a list.
    fn texts<'a>(&'a self, key: &str) -> impl ExactSizeIterator<Item = &'a str> + Clone {
        self.list(key).iter().map(|it| it.as_str().unwrap_or_default())
    }
}

/// The quantity that a text or number holds.
pub(crate) fn as_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Int(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

impl Read for Value {
    fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn optional_text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Value::as_str)
    }

    fn int(&self, key: &str) -> i64 {
        self.optional_int(key).unwrap_or_default()
    }

    fn optional_int(&self, key: &str) -> Option<i64> {
        self.get(key).and_then(Value::as_i64)
    }

    fn flag(&self, key: &str) -> bool {
        self.optional_flag(key).unwrap_or_default()
    }

    fn optional_flag(&self, key: &str) -> Option<bool> {
        self.get(key).and_then(Value::as_bool)
    }

    fn list(&self, key: &str) -> &[Value] {
        self.get(key).and_then(Value::as_array).unwrap_or_default()
    }

    fn map(&self, key: &str) -> &Object {
        self.get(key).and_then(Value::as_object).unwrap_or(&NOTHING)
    }

    fn optional(&self, key: &str) -> Option<&Value> {
        self.get(key).filter(|it| !it.is_null())
    }

    fn field(&self, key: &str) -> &Value {
        self.get(key).unwrap_or(&NULL)
    }
}

/// Whether two fields are the same; missing, null and empty are not told apart.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    if left == right || (is_empty(left) && is_empty(right)) {
        return true;
    }
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let both = |one: &Object, other: &Object| {
                one.iter().all(|(key, value)| same(value, other.get(key).unwrap_or(&NULL)))
            };
            both(left, right) && both(right, left)
        }
        _ => false,
    }
}

/// The value without empty lists and maps inside, as Go writes structs whose fields may be left out.
pub(crate) fn without_empty(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(without_empty).collect()),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty(),
                _ => true,
            });
            Value::Object(kept.map(|(key, value)| (key, without_empty(value))).collect())
        }
        _ => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Changes fields of a document.
pub(crate) trait Edit {
    /// Sets a field.
    fn set(&mut self, key: &str, value: impl Into<Value>);
    /// Sets a field that is missing, null, or the zero value of its type.
    fn set_default(&mut self, key: &str, value: impl Into<Value>);
    /// Sets a field that is missing or null: a pointer may hold a zero.
    fn set_missing(&mut self, key: &str, value: impl Into<Value>);
    /// Removes a field.
    fn unset(&mut self, key: &str);
    /// The items of a field, to be changed.
    fn list_mut(&mut self, key: &str) -> &mut [Value];
    /// The struct of a field, to be changed, made if missing.
    fn make(&mut self, key: &str) -> &mut Value;
}

impl Edit for Value {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(object) = self.as_object_mut() {
            object.insert(key, value);
        }
    }

    fn set_default(&mut self, key: &str, value: impl Into<Value>) {
        let is_zero = match self.get(key) {
            None | Some(Value::Null | Value::Bool(false) | Value::Int(0)) => true,
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => false,
        };
        if is_zero {
            self.set(key, value);
        }
    }

    fn set_missing(&mut self, key: &str, value: impl Into<Value>) {
        if !self.has(key) {
            self.set(key, value);
        }
    }

    fn unset(&mut self, key: &str) {
        if let Some(object) = self.as_object_mut() {
            object.remove(key);
        }
    }

    fn list_mut(&mut self, key: &str) -> &mut [Value] {
        self.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], |items| items.as_mut_slice())
    }

    fn make(&mut self, key: &str) -> &mut Value {
        if !matches!(self, Value::Object(_)) {
            *self = Value::object();
        }
        if !self.has(key) {
            self.set(key, Value::object());
        }
        match self {
            Value::Object(object) => object.get_or_insert(key, Value::object),
            other => other,
        }
    }
}
