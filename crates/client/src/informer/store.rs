//! The objects of an informer, and indexes over them.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::json::Text;

use super::{Change, Key};

type Values<T> = Arc<dyn Fn(&T) -> Vec<Text> + Send + Sync>;

/// Objects by a value that is computed from them.
struct Index {
    name: &'static str,
    keys: HashMap<Text, BTreeSet<Key>>,
}

impl Index {
    fn add(&mut self, key: &Key, values: Vec<Text>) {
        for value in values {
            self.keys.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, values: &[Text]) {
        for value in values {
            if let Some(keys) = self.keys.get_mut(value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.keys.remove(value);
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
    /// INVARIANT: as many as there are functions in `Store::functions`, in the same order.
    indexes: Vec<Index>,
}

/// The objects of an informer. Reading never waits for the network, nor for a function of an index.
pub struct Store<T> {
    state: RwLock<State<T>>,
    /// What the indexes are by. Whoever changes something holds it: functions are called without a lock on the objects.
    functions: Mutex<Vec<Values<T>>>,
}

impl<T> Store<T> {
    pub(super) fn new() -> Self {
        let state = State { objects: HashMap::new(), indexes: Vec::new() };
        Self { state: RwLock::new(state), functions: Mutex::new(Vec::new()) }
    }

    fn read(&self) -> RwLockReadGuard<'_, State<T>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn functions(&self) -> MutexGuard<'_, Vec<Values<T>>> {
        self.functions.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Keeps objects by what `values` computes from each, unless there is an index of this name already: it is shared.
    ///
    /// The function may read the store, but must not add indexes.
    pub fn add_index(&self, name: &'static str, values: impl Fn(&T) -> Vec<Text> + Send + Sync + 'static) {
        let mut functions = self.functions();
        if self.read().indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, keys: HashMap::new() };
        for (key, object) in self.entries() {
            index.add(&key, values(&object));
        }
        self.write().indexes.push(index);
        functions.push(Arc::new(values));
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
        let functions = self.functions();
        let known = self.read().objects.get(key).map(|entry| (entry.object.clone(), entry.version == version));
        if known.as_ref().is_some_and(|(_, same)| *same) {
            return None;
        }
        let old = known.map(|(old, _)| old);
        let values: Vec<(Vec<Text>, Vec<Text>)> = functions
            .iter()
            .map(|values| (old.as_deref().map(|old| values(old)).unwrap_or_default(), values(&object)))
            .collect();
        let mut state = self.write();
        state.objects.insert(key.clone(), Entry { object: object.clone(), version });
        for (index, (before, after)) in state.indexes.iter_mut().zip(values) {
            if before != after {
                index.remove(key, &before);
                index.add(key, after);
            }
        }
        Some(match old {
            None => Change::Added(object),
            Some(old) => Change::Updated { old, new: object },
        })
    }

    /// Forgets an object. `last` is what the server said last about it.
    pub(super) fn remove(&self, key: &Key, last: Option<Arc<T>>) -> Option<Change<T>> {
        let functions = self.functions();
        let old = self.get_key(key)?;
        let values: Vec<Vec<Text>> = functions.iter().map(|values| values(&old)).collect();
        let mut state = self.write();
        state.objects.remove(key);
        for (index, values) in state.indexes.iter_mut().zip(values) {
            index.remove(key, &values);
        }
        Some(Change::Deleted(last.unwrap_or(old)))
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
        assert!(store.set(&key, "2".into(), Arc::new(7)).is_none(), "the same version is not a change");
        assert!(matches!(store.set(&key, "3".into(), Arc::new(7)), Some(Change::Updated { .. })));
        assert_eq!(store.by_index("even", "yes"), [Arc::new(4)]);
        assert!(store.remove(&Key::new("", "before"), None).is_some());
        assert!(store.by_index("even", "yes").is_empty());
        assert!(store.remove(&Key::new("", "before"), None).is_none());
    }

    #[test]
    fn the_function_of_an_index_may_read_the_store() {
        let store: Arc<Store<u32>> = Arc::new(Store::new());
        let inside = Arc::downgrade(&store);
        store.add_index("size", move |_| {
            let store = inside.upgrade();
            vec![store.map_or(0, |store| store.len()).to_string().into()]
        });
        store.set(&Key::new("", "a"), "1".into(), Arc::new(4));
        assert_eq!(store.by_index("size", "0").len(), 1);
    }
}
