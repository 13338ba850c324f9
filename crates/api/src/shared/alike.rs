//! Interchangeable values: equal, and serialized identically.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use super::Parts;
use crate::int_or_string::IntOrString;
use crate::json::{Object, Text, Value};
use crate::structural_schema::Schema;
use crate::time::{MicroTime, Timestamp};

/// A value that can be replaced by another one without a visible difference. This is stricter than equality:
/// `1k` equals `1000`, but is written differently.
pub trait Shareable {
    /// Hashes the value; identical values have equal hashes.
    fn feed<H: Hasher>(&self, hasher: &mut H);

    /// Whether `other` can replace it.
    fn is_alike(&self, other: &Self) -> bool;

    /// Replaces its parts by known identical ones.
    fn share(&mut self, _parts: &mut Parts) {}
}

macro_rules! plain {
    ($($type:ty),* $(,)?) => {
        $(impl Shareable for $type {
            fn feed<H: Hasher>(&self, hasher: &mut H) {
                self.hash(hasher);
            }

            fn is_alike(&self, other: &Self) -> bool {
                self == other
            }
        })*
    };
}

plain!(bool, i32, i64, u32, Timestamp, MicroTime, IntOrString);

impl Shareable for Text {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_usize(self.len());
        hasher.write(self.as_bytes());
    }

    fn is_alike(&self, other: &Self) -> bool {
        self == other
    }
}

impl<T: Shareable> Shareable for Option<T> {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        self.is_some().hash(hasher);
        if let Some(value) = self {
            value.feed(hasher);
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Some(left), Some(right)) => left.is_alike(right),
            (left, right) => left.is_none() && right.is_none(),
        }
    }

    fn share(&mut self, parts: &mut Parts) {
        if let Some(value) = self {
            value.share(parts);
        }
    }
}

impl<T: Shareable> Shareable for Box<T> {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        (**self).feed(hasher);
    }

    fn is_alike(&self, other: &Self) -> bool {
        (**self).is_alike(other)
    }

    fn share(&mut self, parts: &mut Parts) {
        (**self).share(parts);
    }
}

impl<T: Shareable> Shareable for Vec<T> {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        self.len().hash(hasher);
        for item in self {
            item.feed(hasher);
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().zip(other).all(|(left, right)| left.is_alike(right))
    }

    fn share(&mut self, parts: &mut Parts) {
        for item in self {
            item.share(parts);
        }
    }
}

impl<K: Shareable + Ord, V: Shareable> Shareable for BTreeMap<K, V> {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        self.len().hash(hasher);
        for (key, value) in self {
            key.feed(hasher);
            value.feed(hasher);
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        let is_alike =
            |((key, value), (other_key, other)): ((&K, &V), (&K, &V))| key.is_alike(other_key) && value.is_alike(other);
        self.len() == other.len() && self.iter().zip(other).all(is_alike)
    }

    fn share(&mut self, parts: &mut Parts) {
        for value in self.values_mut() {
            value.share(parts);
        }
    }
}

impl Shareable for Value {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        std::mem::discriminant(self).hash(hasher);
        match self {
            Value::Null => {}
            Value::Bool(value) => value.hash(hasher),
            Value::Int(value) => value.hash(hasher),
            Value::Float(value) => value.get().to_bits().hash(hasher),
            Value::String(value) => value.hash(hasher),
            Value::Array(items) => items.feed(hasher),
            Value::Object(fields) => fields.feed(hasher),
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::Float(left), Value::Float(right)) => left.text() == right.text(),
            (Value::Array(left), Value::Array(right)) => left.is_alike(right),
            (Value::Object(left), Value::Object(right)) => left.is_alike(right),
            (left, right) => left == right,
        }
    }
}

/// Schemas are large, and in no part.
impl Shareable for Schema {
    fn feed<H: Hasher>(&self, _hasher: &mut H) {}

    fn is_alike(&self, _other: &Self) -> bool {
        false
    }
}

impl Shareable for Object {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        self.len().hash(hasher);
        for (name, value) in self.iter() {
            name.hash(hasher);
            value.feed(hasher);
        }
    }

    fn is_alike(&self, other: &Self) -> bool {
        let is_alike = |((name, value), (other_name, other))| name == other_name && Value::is_alike(value, other);
        self.len() == other.len() && self.iter().zip(other.iter()).all(is_alike)
    }
}
