//! Which objects have which value of a label, for the few labels by which large resources are asked.
//!
//! An index is made when somebody first asks by its label, beside the lock, and kept up to date from then on. There are few
//! for each resource, so that nobody fills memory with labels that do not matter; who asks by others searches.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::{Change, ChangeKind, Entry};
use crate::storage::stored::Served;

/// This many labels of a resource are indexed, or followed by.
pub(super) const LABELS_MAX: usize = 8;
/// Fewer objects are looked through.
const OBJECTS_MIN: usize = 1000;

/// The indexes of a resource.
#[derive(Debug, Default)]
pub(super) struct LabelIndexes(Vec<LabelIndex>);

/// The keys of objects by the value of one label.
#[derive(Debug)]
pub(super) struct LabelIndex {
    label: Box<str>,
    keys: HashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl LabelIndexes {
    /// Whether an index is missing that is worth its price.
    pub(super) fn want(&self, label: &str, objects: usize) -> bool {
        objects >= OBJECTS_MIN && self.0.len() < LABELS_MAX && self.of(label).is_none()
    }

    fn of(&self, label: &str) -> Option<&LabelIndex> {
        self.0.iter().find(|index| &*index.label == label)
    }

    /// Adds an index, unless somebody else has done so.
    pub(super) fn add(&mut self, index: LabelIndex, objects: usize) {
        if self.want(&index.label, objects) {
            self.0.push(index);
        }
    }

    /// Takes note of a change of one object.
    pub(super) fn changed(&mut self, key: &Arc<str>, before: Option<&Served>, after: Option<&Served>) {
        if self.0.is_empty() || before.map(Served::labels) == after.map(Served::labels) {
            return;
        }
        for index in &mut self.0 {
            index.changed(key, before, after);
        }
    }

    /// The keys of the objects whose label has this value, below a prefix and in order, if that is known; and how many there
    /// are with the value at most.
    pub(super) fn keys<'a>(
        &'a self,
        label: &str,
        value: &str,
        prefix: &'a str,
    ) -> Option<(usize, impl Iterator<Item = &'a Arc<str>>)> {
        let found = self.of(label)?.keys.get(value);
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let keys = found.into_iter().flat_map(move |keys| keys.range::<str, _>(from));
        Some((found.map_or(0, BTreeSet::len), keys.take_while(move |key| key.starts_with(prefix))))
    }
}

impl LabelIndex {
    pub(super) fn new<'o>(label: &str, objects: impl Iterator<Item = &'o Entry>) -> Self {
        let mut index = Self { label: label.into(), keys: HashMap::new() };
        for (key, object) in objects {
            index.changed(key, None, Some(object));
        }
        index
    }

    /// Takes note of a change that came while the index was made.
    pub(super) fn apply(&mut self, change: &Change) {
        let after = Some(&*change.object).filter(|_| change.kind != ChangeKind::Deleted);
        self.changed(&change.key, change.previous.as_deref(), after);
    }

    fn changed(&mut self, key: &Arc<str>, before: Option<&Served>, after: Option<&Served>) {
        let before = before.and_then(|it| it.label(&self.label));
        let after = after.and_then(|it| it.label(&self.label));
        if before == after {
            return;
        }
        if let Some(value) = before
            && let Some(keys) = self.keys.get_mut(value)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(value);
            }
        }
        if let Some(value) = after {
            self.keys.entry(value.into()).or_default().insert(key.clone());
        }
    }
}
