//! The objects of an informer, and indexes over them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::json::Text;

use super::{Change, Key};

type Values<T> = Box<dyn Fn(&T) -> Vec<Text> + Send + Sync>;

/// Objects by a value that is computed from them.
struct Index<T> {
    name: &'static str,
    values: Values<T>,
    keys: HashMap<Text, BTreeSet<Key>>,
}

impl<T> Index<T> {
    fn add(&mut self, key: &Key, object: &T) {
        for value in (self.values)(object) {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, object: &T) {
        for value in (self.values)(object) {
            if let Some(keys) = self.keys.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(&value);
                }
            }
        }
    }
}

struct Entry<T> {
    object: Arc<T>,
    /// The object's version as the server wrote it.
    version: Text,
}

struct State<T> {
    objects: HashMap<Key, Entry<T>>,
    indexes: Vec<Index<T>>,
}

/// The objects of an informer. Reading never waits for the network.
pub struct Store<T> {
    state: RwLock<State<T>>,
}

impl<T> Store<T> {
    pub(super) fn new() -> Self {
        Self { state: RwLock::new(State { objects: HashMap::new(), indexes: Vec::new() }) }
    }

    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of this name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.get_key(&Key::new(namespace, name))
    }

    /// The object of this key.
    #[must_use]
    pub fn get_key(&self, key: &Key) -> Option<Arc<T>> {
        self.read().objects.get(key).map(|entry| entry.object.clone())
    }

    /// All objects, in no order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<T>> {
        self.read().objects.values().map(|entry| entry.object.clone()).collect()
    }

    /// All objects with their keys, in no order.
    #[must_use]
    pub fn entries(&self) -> Vec<(Key, Arc<T>)> {
        self.read().objects.iter().map(|(key, entry)| (key.clone(), entry.object.clone())).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps objects by what `values` computes from each; replaces an index of the same name.
    pub fn add_index(&self, name: &'static str, values: impl Fn(&T) -> Vec<Text> + Send + Sync + 'static) {
        let mut index = Index { name, values: Box::new(values), keys: HashMap::new() };
        let mut state = self.write();
        for (key, entry) in &state.objects {
            index.add(key, &entry.object);
        }
        state.indexes.retain(|it| it.name != name);
        state.indexes.push(index);
    }

    /// The objects with a value in an index, sorted by key; none if there is no such index.
    #[must_use]
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<T>> {
        let state = self.read();
        let index = state.indexes.iter().find(|index| index.name == name);
        let keys = index.and_then(|index| index.keys.get(value)).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key)).map(|entry| entry.object.clone()).collect()
    }

    /// Stores an object; tells what changed, nothing if this version is here already.
    pub(super) fn set(&self, key: &Key, version: Text, object: Arc<T>) -> Option<Change<T>> {
        let mut state = self.write();
        let State { objects, indexes } = &mut *state;
        let entry = Entry { object: object.clone(), version };
        if objects.get(key).is_some_and(|known| known.version == entry.version) {
            return None;
        }
        let old = objects.insert(key.clone(), entry);
        for index in indexes {
            if let Some(old) = &old {
                index.remove(key, &old.object);
            }
            index.add(key, &object);
        }
        Some(match old {
            None => Change::Added(object),
            Some(old) => Change::Updated { old: old.object, new: object },
        })
    }

    /// Forgets an object. `last` is what the server said last about it.
    pub(super) fn remove(&self, key: &Key, last: Option<Arc<T>>) -> Option<Change<T>> {
        let mut state = self.write();
        let State { objects, indexes } = &mut *state;
        let old = objects.remove(key)?;
        for index in indexes {
            index.remove(key, &old.object);
        }
        Some(Change::Deleted(last.unwrap_or(old.object)))
    }

    /// The keys that are here but not in `present`.
    pub(super) fn missing_in(&self, present: &HashMap<Key, (Text, Arc<T>)>) -> Vec<Key> {
        let mut missing: Vec<Key> =
            self.read().objects.keys().filter(|key| !present.contains_key(key)).cloned().collect();
        missing.sort();
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_follows_changes_and_deletions() {
        let store: Store<u32> = Store::new();
        store.set(&Key::new("", "before"), "1".into(), Arc::new(4));
        store.add_index("even", |number| if number.is_multiple_of(2) { vec!["yes".into()] } else { Vec::new() });
        let key = Key::new("a", "b");
        assert!(matches!(store.set(&key, "2".into(), Arc::new(6)), Some(Change::Added(_))));
        assert_eq!(store.by_index("even", "yes"), [Arc::new(4), Arc::new(6)]);
        assert!(store.set(&key, "2".into(), Arc::new(7)).is_none(), "the same version is no change");
        assert!(matches!(store.set(&key, "3".into(), Arc::new(7)), Some(Change::Updated { .. })));
        assert_eq!(store.by_index("even", "yes"), [Arc::new(4)]);
        assert!(store.remove(&Key::new("", "before"), None).is_some());
        assert!(store.by_index("even", "yes").is_empty());
        assert!(store.remove(&Key::new("", "before"), None).is_none());
    }
}
