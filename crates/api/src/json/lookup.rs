//! Objects that users size: fields found by hashing, once there are more than a few.
//!
//! Looking up each field of one large object in another one takes time in proportion to the square of their size without an
//! index. Small objects are scanned, which is faster.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::{Object, Text, Value};

/// Number of fields up to which an object is scanned.
pub(super) const SCANNED_MAX: usize = 32;

/// Finds fields of an object.
#[derive(Debug)]
pub struct Lookup<'o> {
    object: &'o Object,
    /// Built by the first lookup that needs it.
    index: OnceCell<HashMap<&'o str, &'o Value>>,
}

impl<'o> Lookup<'o> {
    /// Lookups in an object.
    #[must_use]
    pub fn new(object: &'o Object) -> Self {
        Self { object, index: OnceCell::new() }
    }

    /// The value of the field `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'o Value> {
        if self.object.len() <= SCANNED_MAX {
            return self.object.get(key);
        }
        self.index.get_or_init(|| self.object.iter().collect()).get(key).copied()
    }

    /// The value of the field `key`, which is most likely at `index`.
    #[must_use]
    pub fn get_at(&self, key: &str, index: usize) -> Option<&'o Value> {
        match self.object.entry_at(index) {
            Some((found, value)) if found == key => Some(value),
            _ => self.get(key),
        }
    }
}

/// An object to which many changes are made.
#[derive(Debug)]
pub struct ObjectEditor {
    /// Removed fields are empty.
    entries: Vec<Option<(Text, Value)>>,
    /// Positions of fields; empty as long as there are few.
    index: HashMap<Text, usize>,
}

impl ObjectEditor {
    /// Changes to an object.
    #[must_use]
    pub fn new(object: Object) -> Self {
        let entries: Vec<Option<(Text, Value)>> = object.into_iter().map(Some).collect();
        let mut edited = Self { entries, index: HashMap::new() };
        edited.build_index();
        edited
    }

    /// The value of the field `key`, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let position = self.position(key)?;
        self.entries.get_mut(position)?.as_mut().map(|(_, value)| value)
    }

    /// Sets a field, in its place if it exists, else at the end.
    pub fn insert(&mut self, key: impl Into<Text>, value: impl Into<Value>) {
        let key = key.into();
        if let Some(slot) = self.get_mut(&key) {
            *slot = value.into();
            return;
        }
        if !self.index.is_empty() {
            self.index.insert(key.clone(), self.entries.len());
        }
        self.entries.push(Some((key, value.into())));
        self.build_index();
    }

    /// Removes a field.
    pub fn remove(&mut self, key: &str) {
        let Some(position) = self.position(key) else { return };
        if let Some(entry) = self.entries.get_mut(position) {
            *entry = None;
        }
        self.index.remove(key);
    }

    /// The object with all changes.
    #[must_use]
    pub fn into_object(self) -> Object {
        Object::from_distinct(self.entries.into_iter().flatten().collect())
    }

    fn position(&self, key: &str) -> Option<usize> {
        if self.index.is_empty() {
            return self.entries.iter().position(|entry| entry.as_ref().is_some_and(|(it, _)| it == key));
        }
        self.index.get(key).copied()
    }

    fn build_index(&mut self) {
        if self.index.is_empty() && self.entries.len() > SCANNED_MAX {
            let entries = self.entries.iter().enumerate();
            self.index = entries.filter_map(|(at, entry)| Some((entry.as_ref()?.0.clone(), at))).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(length: usize) -> Object {
        (0..length).map(|number| (format!("k{number}"), i64::try_from(number).unwrap_or_default())).collect()
    }

    #[test]
    fn fields_are_found_in_small_and_large_objects() {
        for length in [0, 1, SCANNED_MAX, SCANNED_MAX + 1, 1000] {
            let object = object(length);
            let lookup = Lookup::new(&object);
            for (index, (key, value)) in object.iter().enumerate() {
                assert_eq!(lookup.get(key), Some(value));
                assert_eq!((lookup.get_at(key, index), lookup.get_at(key, 0)), (Some(value), Some(value)));
            }
            assert_eq!(lookup.get("other"), None);
        }
    }

    #[test]
    fn changes_are_those_of_an_object() {
        for length in [0, 1, SCANNED_MAX - 1, SCANNED_MAX, SCANNED_MAX + 1, 200] {
            let (mut plain, mut edited) = (object(length), ObjectEditor::new(object(length)));
            for number in 0..length + 60 {
                let key = format!("k{}", number * 7 % (length + 40));
                if number % 3 == 0 {
                    plain.remove(&key);
                    edited.remove(&key);
                } else {
                    plain.insert(key.as_str(), "new");
                    edited.insert(key.as_str(), "new");
                }
                assert_eq!(edited.get_mut(&key).is_some(), plain.contains_key(&key));
            }
            let edited = edited.into_object();
            assert!(edited.keys().eq(plain.keys()), "the order is the same, too");
            assert_eq!(edited, plain);
        }
    }
}
