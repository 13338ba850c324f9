//! Objects in the order of their keys, in chunks that views share.
//!
//! A view of 50,000 objects holds some hundred pointers, so that a list neither copies the collection nor holds the lock
//! for long. A change copies one chunk, and only if a view still has it.

use std::sync::Arc;

use crate::stored::ServedObject;

/// A key and its object.
pub type Entry = (Arc<str>, Arc<ServedObject>);

/// A longer chunk is split.
const CHUNK_MAX: usize = 256;

type Chunk = Arc<Vec<Entry>>;

/// All objects of a resource.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// INVARIANT: none is empty; keys ascend within and between them.
    chunks: Vec<Chunk>,
    len: usize,
}

/// Objects as they were at some moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    chunks: Vec<Chunk>,
    /// The place of the first object in the first chunk.
    start: usize,
    len: usize,
}

impl Objects {
    /// From entries in the order of their keys.
    pub(super) fn from_sorted(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut objects = Self::default();
        let mut chunk = Vec::new();
        for entry in entries {
            objects.len = objects.len.saturating_add(1);
            chunk.push(entry);
            // Half full, so that there is room.
            if chunk.len() >= CHUNK_MAX / 2 {
                objects.chunks.push(Arc::new(std::mem::take(&mut chunk)));
            }
        }
        if !chunk.is_empty() {
            objects.chunks.push(Arc::new(chunk));
        }
        objects
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The chunk in which a key is, or would be.
    fn chunk_of(&self, key: &str) -> usize {
        let begins_before = |chunk: &Chunk| chunk.first().is_some_and(|(first, _)| **first <= *key);
        self.chunks.partition_point(begins_before).saturating_sub(1)
    }

    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|(it, _)| (**it).cmp(key)).ok()?;
        chunk.get(at)
    }

    /// Inserts an object; returns the previous one.
    pub(super) fn insert(&mut self, key: Arc<str>, object: Arc<ServedObject>) -> Option<Arc<ServedObject>> {
        let place = self.chunk_of(&key);
        let Some(chunk) = self.chunks.get_mut(place) else {
            self.len = 1;
            self.chunks.push(Arc::new(vec![(key, object)]));
            return None;
        };
        let entries = Arc::make_mut(chunk);
        match entries.binary_search_by(|(it, _)| (**it).cmp(&*key)) {
            Ok(at) => entries.get_mut(at).map(|(_, it)| std::mem::replace(it, object)),
            Err(at) => {
                entries.insert(at, (key, object));
                self.len = self.len.saturating_add(1);
                if entries.len() > CHUNK_MAX {
                    let rest = entries.split_off(CHUNK_MAX / 2);
                    self.chunks.insert(place.saturating_add(1), Arc::new(rest));
                }
                None
            }
        }
    }

    /// Takes an object out.
    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<ServedObject>> {
        let place = self.chunk_of(key);
        let chunk = self.chunks.get_mut(place)?;
        let at = chunk.binary_search_by(|(it, _)| (**it).cmp(key)).ok()?;
        self.len = self.len.saturating_sub(1);
        if chunk.len() == 1 {
            return self.chunks.remove(place).first().map(|(_, object)| object.clone());
        }
        Some(Arc::make_mut(chunk).remove(at).1)
    }

    /// The objects whose keys start so.
    pub(super) fn view(&self, prefix: &str) -> View {
        let is_before = |(key, _): &Entry| **key < *prefix;
        let is_not_after = |(key, _): &Entry| **key < *prefix || key.starts_with(prefix);
        let first = self.chunks.partition_point(|chunk| chunk.last().is_some_and(is_before));
        let end = self.chunks.partition_point(|chunk| chunk.first().is_some_and(is_not_after));
        let chunks = self.chunks.get(first..end).unwrap_or_default();
        let start = chunks.first().map_or(0, |chunk| chunk.partition_point(is_before));
        let after = chunks.last().map_or(0, |chunk| chunk.len().saturating_sub(chunk.partition_point(is_not_after)));
        let all = chunks.iter().map(|chunk| chunk.len()).fold(0, usize::saturating_add);
        View { chunks: chunks.to_vec(), start, len: all.saturating_sub(start).saturating_sub(after) }
    }
}

impl View {
    /// Creates a list of objects, which must be in the order of their keys.
    #[must_use]
    pub fn of(entries: Vec<Entry>) -> Self {
        let len = entries.len();
        Self { chunks: vec![Arc::new(entries)], start: 0, len }
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The objects in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).skip(self.start).take(self.len)
    }

    /// Takes the next object out.
    pub fn next_entry(&mut self) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        while self.chunks.first().is_some_and(|chunk| self.start >= chunk.len()) {
            self.chunks.remove(0);
            self.start = 0;
        }
        let entry = self.chunks.first()?.get(self.start)?.clone();
        self.start = self.start.saturating_add(1);
        self.len = self.len.saturating_sub(1);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn object(revision: u64) -> Arc<ServedObject> {
        let mut document =
            api::json!({"kind": "K", "apiVersion": "v1", "metadata": {"creationTimestamp": null, "name": "n"}});
        let bytes = crate::stored::encode(&mut document).unwrap();
        Arc::new(ServedObject::new(&bytes, revision).unwrap())
    }

    fn keys<'e>(entries: impl Iterator<Item = &'e Entry>) -> Vec<(String, u64)> {
        entries.map(|(key, object)| (key.to_string(), object.revision)).collect()
    }

    /// Compares all operations with those of a map.
    #[test]
    fn it_is_a_sorted_map() {
        let (mut objects, mut model) = (Objects::default(), BTreeMap::new());
        let mut state = 12_345_u64;
        for step in 0..6000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("/{}/{:04}", (state >> 40) % 3, (state >> 33) % 700);
            if (state >> 20).is_multiple_of(3) {
                let removed = objects.remove(&key).map(|it| it.revision);
                assert_eq!(removed, model.remove(&key));
            } else {
                let replaced = objects.insert(key.as_str().into(), object(step)).map(|it| it.revision);
                assert_eq!(replaced, model.insert(key.clone(), step));
            }
            assert_eq!(objects.get(&key).map(|(_, it)| it.revision), model.get(&key).copied());
            assert_eq!(objects.len(), model.len());
            if step.is_multiple_of(500) {
                for prefix in ["/0/", "/1/", "/2/", "/", "/1/00", "/9", ""] {
                    let view = objects.view(prefix);
                    let expected: Vec<_> = model.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
                    let expected: Vec<_> = expected.into_iter().map(|(key, it)| (key.clone(), *it)).collect();
                    assert_eq!(keys(view.iter()), expected);
                    assert_eq!(view.len(), expected.len());
                }
            }
        }
        assert_eq!(keys(objects.view("").iter()).len(), model.len());
        assert!(objects.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_MAX));
    }

    #[test]
    fn a_view_does_not_change() {
        let entry = |number: u64| -> Entry { (format!("/a/{number:05}").into(), object(number)) };
        let mut objects = Objects::from_sorted((0..1000).map(entry));
        let mut view = objects.view("/a/005");
        let before = keys(view.iter());
        assert_eq!(before.len(), 100);
        for number in 0..1000 {
            objects.remove(&format!("/a/{number:05}"));
        }
        assert_eq!((objects.len(), keys(view.iter())), (0, before.clone()));
        let mut taken = Vec::new();
        while let Some(entry) = view.next_entry() {
            taken.push(entry);
        }
        let taken = keys(taken.iter());
        assert_eq!(taken, before);
        assert!(view.is_empty());
    }
}
