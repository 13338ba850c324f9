//! A small map: labels, annotations, amounts of resources.
//!
//! Objects have few entries each, and there are many objects: sorted pairs in one block take a fifth of the room that a
//! tree takes for them, and are found as fast. Order and methods are those of `BTreeMap`.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hasher;
use std::marker::PhantomData;
use std::ops::Index;

use crate::shared::{Parts, Shareable};

/// Pairs in the order of their keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SortedMap<K, V> {
    /// INVARIANT: keys ascend.
    entries: Vec<(K, V)>,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SortedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

impl<K, V> SortedMap<K, V> {
    /// No entries.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries, by key.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.entries.iter().map(pair)
    }

    /// All keys, ascending.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> + DoubleEndedIterator + Clone {
        self.entries.iter().map(|(key, _)| key)
    }

    /// All values, by key.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> + DoubleEndedIterator + Clone {
        self.entries.iter().map(|(_, value)| value)
    }

    /// All values, to be changed.
    pub fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut V> + DoubleEndedIterator {
        self.entries.iter_mut().map(|(_, value)| value)
    }

    /// Drops all entries that `keep` is false for.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(key, value));
    }

    /// Drops all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Returns the index of a key's entry, or the index at which to insert it.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.entries.binary_search_by(|(it, _)| it.borrow().cmp(key))
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(self.find(key).ok()?).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        self.entries.get_mut(at).map(|(_, value)| value)
    }

    /// Whether there is an entry for a key.
    #[must_use]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Takes an entry out.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(self.entries.remove(at).1)
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    /// Sets the value of a key; gives back the one it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        // Entries in sorted order are appended.
        let at = match self.entries.last() {
            Some((last, _)) if *last >= key => self.find(&key),
            _ => Err(self.entries.len()),
        };
        match at {
            Ok(at) => self.entries.get_mut(at).map(|(_, old)| std::mem::replace(old, value)),
            Err(at) => {
                self.entries.insert(at, (key, value));
                None
            }
        }
    }

    /// The value of a key, set to `value()` first if there is none.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.entries.insert(at, (key, value()));
            at
        });
        #[expect(clippy::indexing_slicing, reason = "it was found or inserted there")]
        &mut self.entries[at].1
    }
}

type Iter<'a, K, V> = std::iter::Map<std::slice::Iter<'a, (K, V)>, fn(&'a (K, V)) -> (&'a K, &'a V)>;

fn pair<K, V>((key, value): &(K, V)) -> (&K, &V) {
    (key, value)
}

impl<'a, K, V> IntoIterator for &'a SortedMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<K: Ord, V> Extend<(K, V)> for SortedMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut entries: Vec<(K, V)> = entries.into_iter().collect();
        if !entries.is_sorted_by(|(left, _), (right, _)| left < right) {
            // The sort is stable: of those with one key, the last is the one to keep.
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            entries.dedup_by(|later, earlier| {
                let is_double = later.0 == earlier.0;
                if is_double {
                    std::mem::swap(&mut later.1, &mut earlier.1);
                }
                is_double
            });
        }
        Self { entries }
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for SortedMap<K, V> {
    fn from(entries: [(K, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<K: Borrow<Q>, V, Q: Ord + ?Sized> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    #[expect(clippy::expect_used, reason = "as other maps do")]
    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key is there")
    }
}

impl<K: Shareable, V: Shareable> Shareable for SortedMap<K, V> {
    fn feed<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_usize(self.len());
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

impl<K: serde::Serialize, V: serde::Serialize> serde::Serialize for SortedMap<K, V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl<'de, K, V> serde::Deserialize<'de> for SortedMap<K, V>
where
    K: serde::Deserialize<'de> + Ord,
    V: serde::Deserialize<'de>,
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<K, V>(PhantomData<(K, V)>);
        impl<'de, K, V> serde::de::Visitor<'de> for Visitor<K, V>
        where
            K: serde::Deserialize<'de> + Ord,
            V: serde::Deserialize<'de>,
        {
            type Value = SortedMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
                /// Maximum capacity to reserve: a size hint from the input is not trusted beyond this.
                const ROOM_MAX: usize = 64;
                let room = access.size_hint().unwrap_or(0).min(ROOM_MAX);
                let mut map = SortedMap { entries: Vec::with_capacity(room) };
                while let Some((key, value)) = access.next_entry()? {
                    map.insert(key, value);
                }
                Ok(map)
            }
        }
        deserializer.deserialize_map(Visitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_as_a_tree_is() {
        let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
        for step in 0_u32..2000 {
            let key = step.wrapping_mul(2_654_435_761) >> 27;
            match step % 5 {
                0 => assert_eq!(map.remove(&key), tree.remove(&key)),
                1 => {
                    *map.get_or_insert_with(key, || step) += 1;
                    *tree.entry(key).or_insert(step) += 1;
                }
                _ => assert_eq!(map.insert(key, step), tree.insert(key, step)),
            }
            assert!(map.iter().eq(&tree) && map.keys().eq(tree.keys()) && map.values().eq(tree.values()));
            assert_eq!((map.get(&key), map.contains_key(&key)), (tree.get(&key), tree.contains_key(&key)));
        }
        let doubled = [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd'), (1, 'e'), (3, 'f')];
        assert!(SortedMap::from(doubled).into_iter().eq(BTreeMap::from(doubled)));
        let mut extended = SortedMap::from([(2, 'x')]);
        extended.extend(doubled);
        assert_eq!(extended, SortedMap::from(doubled));
    }

    #[test]
    fn of_keys_that_come_twice_the_last_counts() {
        let map: SortedMap<String, i32> = serde_json::from_str(r#"{"b":1,"a":2,"b":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&map).unwrap(), r#"{"a":2,"b":3}"#);
        assert!(serde_json::from_str::<SortedMap<String, i32>>("[]").is_err());
    }
}
