//! The objects of an informer, and indexes over them.
//!
//! [`Contents`] is shared code for objects of all types; [`Store`] is the typed interface for readers.

use locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::collections::{BTreeSet, HashMap};
use std::marker::PhantomData;
use std::sync::Arc;

use api::json::Text;

use super::{AnyObject, Change, Key};

type Values = Box<dyn Fn(&AnyObject) -> Vec<Text> + Send + Sync>;

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

struct Entry {
    object: Arc<AnyObject>,
    /// The object's version as the server wrote it.
    version: Text,
}

#[derive(Default)]
struct State {
    objects: HashMap<Key, Entry>,
    /// INVARIANT: as many as there are functions in `Contents::functions`, in the same order.
    indexes: Vec<Index>,
}

/// The objects of an informer, of whatever type they are.
#[derive(Default)]
pub(super) struct Contents {
    state: RwLock<State>,
    /// Functions of the indexes. Held during every change, because functions are called without a lock on the
    /// objects.
    functions: Mutex<Vec<Values>>,
}

impl Contents {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    fn functions(&self) -> MutexGuard<'_, Vec<Values>> {
        self.functions.lock()
    }

    fn get(&self, key: &Key) -> Option<Arc<AnyObject>> {
        self.read().objects.get(key).map(|entry| entry.object.clone())
    }

    fn list(&self) -> Vec<Arc<AnyObject>> {
        self.read().objects.values().map(|entry| entry.object.clone()).collect()
    }

    pub(super) fn entries(&self) -> Vec<(Key, Arc<AnyObject>)> {
        self.read().objects.iter().map(|(key, entry)| (key.clone(), entry.object.clone())).collect()
    }

    fn add_index(&self, name: &'static str, values: Values) {
        let mut functions = self.functions();
        if self.read().indexes.iter().any(|index| index.name == name) {
            return;
        }
        let mut index = Index { name, keys: HashMap::new() };
        for (key, object) in self.entries() {
            index.add(&key, values(&*object));
        }
        self.write().indexes.push(index);
        functions.push(values);
    }

    fn by_index(&self, name: &str, value: &str) -> Vec<Arc<AnyObject>> {
        let state = self.read();
        let index = state.indexes.iter().find(|index| index.name == name);
        let keys = index.and_then(|index| index.keys.get(value)).into_iter().flatten();
        keys.filter_map(|key| state.objects.get(key)).map(|entry| entry.object.clone()).collect()
    }

    /// Stores an object; returns the change, `None` if this version is already stored.
    pub(super) fn set(&self, key: &Key, version: Text, object: Arc<AnyObject>) -> Option<Change<AnyObject>> {
        let functions = self.functions();
        let known = self.read().objects.get(key).map(|entry| (entry.object.clone(), entry.version == version));
        if known.as_ref().is_some_and(|(_, same)| *same) {
            return None;
        }
        let old = known.map(|(old, _)| old);
        let values: Vec<(Vec<Text>, Vec<Text>)> =
            functions.iter().map(|values| (old.as_deref().map(values).unwrap_or_default(), values(&*object))).collect();
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

    /// Removes an object. `last` is its last state from the server.
    pub(super) fn remove(&self, key: &Key, last: Option<Arc<AnyObject>>) -> Option<Change<AnyObject>> {
        let functions = self.functions();
        let old = self.get(key)?;
        let values: Vec<Vec<Text>> = functions.iter().map(|values| values(&*old)).collect();
        let mut state = self.write();
        state.objects.remove(key);
        for (index, values) in state.indexes.iter_mut().zip(values) {
            index.remove(key, &values);
        }
        Some(Change::Deleted(last.unwrap_or(old)))
    }

    /// The keys that are here but not in `present`.
    pub(super) fn missing_in(&self, present: &HashMap<Key, (Text, Arc<AnyObject>)>) -> Vec<Key> {
        let mut missing: Vec<Key> =
            self.read().objects.keys().filter(|key| !present.contains_key(key)).cloned().collect();
        missing.sort();
        missing
    }
}

/// The objects of an informer. Reading never waits for the network, nor for a function of an index.
pub struct Store<T> {
    /// INVARIANT: holds only objects of type `T`.
    contents: Arc<Contents>,
    form: PhantomData<fn() -> T>,
}

impl<T> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self { contents: self.contents.clone(), form: PhantomData }
    }
}

impl<T: Send + Sync + 'static> Store<T> {
    pub(super) fn of(contents: Arc<Contents>) -> Self {
        Self { contents, form: PhantomData }
    }

    /// The object of this name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.get_key(&Key::new(namespace, name))
    }

    /// The object of this key.
    #[must_use]
    pub fn get_key(&self, key: &Key) -> Option<Arc<T>> {
        self.contents.get(key)?.downcast().ok()
    }

    /// All objects, in no order.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<T>> {
        typed(self.contents.list())
    }

    /// All objects with their keys, in no order.
    #[must_use]
    pub fn entries(&self) -> Vec<(Key, Arc<T>)> {
        let entries = self.contents.entries().into_iter();
        entries.filter_map(|(key, object)| Some((key, object.downcast().ok()?))).collect()
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.contents.read().objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Indexes objects by the result of `values`, unless an index of this name already exists: it is shared.
    ///
    /// The function may read the store, but must not add indexes.
    pub fn add_index(&self, name: &'static str, values: impl Fn(&T) -> Vec<Text> + Send + Sync + 'static) {
        let of_anything = move |object: &AnyObject| object.downcast_ref().map(&values).unwrap_or_default();
        self.contents.add_index(name, Box::new(of_anything));
    }

    /// The objects with a value in an index, sorted by key; none if there is no such index.
    #[must_use]
    pub fn by_index(&self, name: &str, value: &str) -> Vec<Arc<T>> {
        typed(self.contents.by_index(name, value))
    }
}

fn typed<T: Send + Sync + 'static>(objects: Vec<Arc<AnyObject>>) -> Vec<Arc<T>> {
    objects.into_iter().filter_map(|object| object.downcast().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(store: &Store<u32>, key: &Key, version: &str, number: u32) -> Option<Change<AnyObject>> {
        store.contents.set(key, version.into(), Arc::new(number))
    }

    #[test]
    fn an_index_follows_changes_and_deletions() {
        let store: Store<u32> = Store::of(Arc::default());
        set(&store, &Key::new("", "before"), "1", 4);
        store.add_index("even", |number| if number.is_multiple_of(2) { vec!["yes".into()] } else { Vec::new() });
        let key = Key::new("a", "b");
        assert!(matches!(set(&store, &key, "2", 6), Some(Change::Added(_))));
        assert_eq!(store.by_index("even", "yes"), [Arc::new(4), Arc::new(6)]);
        assert!(set(&store, &key, "2", 7).is_none(), "the same version is not a change");
        assert!(matches!(set(&store, &key, "3", 7), Some(Change::Updated { .. })));
        assert_eq!(store.by_index("even", "yes"), [Arc::new(4)]);
        assert!(store.contents.remove(&Key::new("", "before"), None).is_some());
        assert!(store.by_index("even", "yes").is_empty());
        assert!(store.contents.remove(&Key::new("", "before"), None).is_none());
    }

    #[test]
    fn the_function_of_an_index_may_read_the_store() {
        let store: Store<u32> = Store::of(Arc::default());
        let inside = Arc::downgrade(&store.contents);
        store.add_index("size", move |_| {
            let contents = inside.upgrade();
            vec![contents.map_or(0, |contents| contents.list().len()).to_string().into()]
        });
        set(&store, &Key::new("", "a"), "1", 4);
        assert_eq!(store.by_index("size", "0").len(), 1);
    }
}
