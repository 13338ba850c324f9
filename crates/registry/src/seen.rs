//! Keys that occurred before in a list.
//!
//! Users can write lists of any length, so that finding a repeated key must not compare each with all others. Most lists
//! have few elements, for which comparing is the fastest.

use std::collections::BTreeSet;

/// Number of keys that are compared one by one.
const FEW: usize = 16;

/// Keys that occurred before.
#[derive(Debug)]
pub(crate) struct SeenKeys<K> {
    few: Vec<K>,
    /// All keys, once there are more than a few.
    many: BTreeSet<K>,
}

impl<K> Default for SeenKeys<K> {
    fn default() -> Self {
        SeenKeys { few: Vec::new(), many: BTreeSet::new() }
    }
}

impl<K: Ord> SeenKeys<K> {
    /// Whether the key occurred.
    pub(crate) fn contains(&self, key: &K) -> bool {
        if self.many.is_empty() { self.few.contains(key) } else { self.many.contains(key) }
    }

    /// Number of distinct keys.
    pub(crate) fn len(&self) -> usize {
        self.few.len().max(self.many.len())
    }

    /// Adds a key; false if it occurred before.
    pub(crate) fn insert(&mut self, key: K) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(key);
        }
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < FEW {
            self.few.push(key);
        } else {
            self.many.extend(self.few.drain(..));
            self.many.insert(key);
        }
        true
    }
}

impl<K: Ord> FromIterator<K> for SeenKeys<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        let mut seen = SeenKeys::default();
        for key in keys {
            seen.insert(key);
        }
        seen
    }
}

/// The indexes of keys that occurred before.
pub(crate) fn repeats<K: Ord>(keys: impl IntoIterator<Item = K>) -> impl Iterator<Item = usize> {
    let mut seen = SeenKeys::default();
    keys.into_iter().enumerate().filter_map(move |(index, key)| (!seen.insert(key)).then_some(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_are_found_in_short_and_long_lists() {
        for length in [0, 1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let keys: Vec<usize> = (0..length).chain(0..length).collect();
            assert_eq!(repeats(&keys).collect::<Vec<_>>(), (length..2 * length).collect::<Vec<_>>(), "{length}");
            let seen: SeenKeys<usize> = keys.into_iter().collect();
            assert!((0..length).all(|key| seen.contains(&key)) && !seen.contains(&length), "{length}");
            assert_eq!(seen.len(), length);
        }
    }
}
