//! Places of the items of a list by their merge key.
//!
//! Lists of a patch are as long as a client makes them: looking each item up in the other list takes time in
//! proportion to the square of their lengths.

use std::collections::HashMap;

use api::json::{self, Value};

/// The places of items by their merge key; without one, by the items themselves.
pub(super) struct Places<'k> {
    merge_key: &'k str,
    places: HashMap<String, usize>,
}

impl<'k> Places<'k> {
    /// Places in a list. Of equal items the first one counts.
    pub(super) fn of<'i>(items: impl IntoIterator<Item = &'i Value>, merge_key: &'k str) -> Self {
        let mut places = Self { merge_key, places: HashMap::new() };
        for (place, item) in items.into_iter().enumerate() {
            places.add(item, place);
        }
        places
    }

    /// Place of an item; `None` if it is not in the list, or has no merge key.
    pub(super) fn get(&self, item: &Value) -> Option<usize> {
        self.places.get(&self.key(item)?).copied()
    }

    /// Adds an item, unless there is one with its merge key; returns whether it was added.
    pub(super) fn add(&mut self, item: &Value, place: usize) -> bool {
        let Some(key) = self.key(item) else { return false };
        let count = self.places.len();
        self.places.entry(key).or_insert(place);
        self.places.len() > count
    }

    fn key(&self, item: &Value) -> Option<String> {
        let value = if self.merge_key.is_empty() { item } else { item.get(self.merge_key)? };
        Some(json::to_string(value))
    }
}
