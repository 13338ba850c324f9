//! Objects: fields in order, found by comparing keys.
//!
//! Objects of Kubernetes have few fields, so that a scan over keys that are stored in place beats hashing. Code that
//! looks up many keys of objects that users size (merges, comparisons) uses [`Lookup`](super::Lookup) or
//! [`ObjectEditor`](super::ObjectEditor).

use super::lookup::{ObjectEditor, SCANNED_MAX};
use super::{Text, Value};

/// Whether a key is this one. Most that are of the same length begin or end differently.
#[inline]
fn is(text: &Text, key: &str) -> bool {
    let (text, key) = (text.as_bytes(), key.as_bytes());
    text.len() == key.len() && text.first() == key.first() && text.last() == key.last() && text == key
}

/// The fields of an object, in order.
#[derive(Debug, Clone, Default)]
pub struct Object {
    /// INVARIANT: no key occurs twice.
    entries: Vec<(Text, Value)>,
}

impl Object {
    /// No fields.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// No fields yet, and room for `capacity`.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { entries: Vec::with_capacity(capacity) }
    }

    /// Creates an object from fields whose keys must be distinct.
    #[must_use]
    pub fn from_distinct(entries: Vec<(Text, Value)>) -> Self {
        Self { entries }
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Index of the field `key`.
    #[must_use]
    pub fn position(&self, key: &str) -> Option<usize> {
        self.entries.iter().position(|(it, _)| is(it, key))
    }

    /// The value of the field `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(it, _)| is(it, key)).map(|(_, value)| value)
    }

    /// The value of the field `key`, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.entries.iter_mut().find(|(it, _)| is(it, key)).map(|(_, value)| value)
    }

    /// Whether there is a field `key`.
    #[must_use]
    pub fn contains_key(&self, key: &str) -> bool {
        self.position(key).is_some()
    }

    /// The field at `index`.
    #[must_use]
    pub fn entry_at(&self, index: usize) -> Option<(&str, &Value)> {
        self.entries.get(index).map(|(key, value)| (key.as_str(), value))
    }

    /// Sets a field, in its place if it exists, else at the end; gives back the value it had.
    pub fn insert(&mut self, key: impl Into<Text>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        match self.get_mut(&key) {
            Some(slot) => Some(std::mem::replace(slot, value)),
            None => {
                self.entries.push((key, value));
                None
            }
        }
    }

    /// The value of the field `key`, which is set to `default` at the end if it is missing.
    pub fn get_or_insert(&mut self, key: &str, default: impl FnOnce() -> Value) -> &mut Value {
        let index = self.position(key).unwrap_or_else(|| {
            self.entries.push((key.into(), default()));
            self.entries.len().saturating_sub(1)
        });
        #[expect(clippy::indexing_slicing, reason = "the index was found or just pushed")]
        &mut self.entries[index].1
    }

    /// Removes the field `key`; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let index = self.position(key)?;
        Some(self.entries.remove(index).1)
    }

    /// Keeps the fields for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &mut Value) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// Sorts the fields by key, as Go writes maps.
    pub fn sort(&mut self) {
        if !self.entries.is_sorted_by(|left, right| left.0 <= right.0) {
            self.entries.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        }
    }

    /// Sorts the fields by a rank of their keys; equal ranks keep their order.
    pub fn sort_by_rank<R: Ord>(&mut self, mut rank: impl FnMut(&str) -> R) {
        self.entries.sort_by_cached_key(|(key, _)| rank(key));
    }

    /// The fields in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> + DoubleEndedIterator {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The fields in order, values to be changed.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&str, &mut Value)> {
        self.entries.iter_mut().map(|(key, value)| (key.as_str(), value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|(key, _)| key.as_str())
    }

    /// The values in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> {
        self.entries.iter().map(|(_, value)| value)
    }

    /// The values in order, to be changed.
    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Value> {
        self.entries.iter_mut().map(|(_, value)| value)
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        if self.len() != other.len() {
            return false;
        }
        // Most often the order is the same, too. A key occurs once, so that two values of it decide.
        let mut pairs = self.entries.iter().zip(&other.entries);
        match pairs.find(|(left, right)| left.0 != right.0 || left.1 != right.1) {
            None => return true,
            Some((left, right)) if left.0 == right.0 => return false,
            Some(_) => {}
        }
        let mut right: Vec<&(Text, Value)> = other.entries.iter().collect();
        right.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        self.entries.iter().all(|(key, value)| {
            let found = right.binary_search_by(|entry| entry.0.cmp(key)).ok();
            found.and_then(|index| right.get(index)).is_some_and(|entry| entry.1 == *value)
        })
    }
}

impl IntoIterator for Object {
    type Item = (Text, Value);
    type IntoIter = std::vec::IntoIter<(Text, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<K: Into<Text>, V: Into<Value>> FromIterator<(K, V)> for Object {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        // Later values win, in the place of the first.
        let mut object = Object::new();
        let mut entries = entries.into_iter();
        for (key, value) in entries.by_ref() {
            object.insert(key, value);
            if object.len() > SCANNED_MAX {
                let mut edited = ObjectEditor::new(object);
                entries.for_each(|(key, value)| edited.insert(key, value));
                return edited.into_object();
            }
        }
        object
    }
}
