//! Indexes of objects by the value of a label or a field, for large resources.
//!
//! An index is built outside the lock when a selector first uses it, and maintained from then on. The number of
//! indexes by labels and by fields of custom resources is limited for each resource, so that arbitrary
//! selectors cannot fill the memory; other selectors search. Indexes by other fields exist only for those that
//! the resource offers.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use super::{Change, ChangeKind, Entry};
use crate::field_selectors::value_in;
use crate::stored::ServedObject;

/// This many labels of a resource, or fields that users named, are indexed or followed by.
const NAMED_MAX: usize = 8;
/// Fewer objects are looked through.
const OBJECTS_MIN: usize = 1000;
/// Maximum number of objects that are looked up one by one, under the lock: for more, all are examined outside
/// of it.
const FOUND_MAX: usize = 4096;

/// The node of pods, slices and other objects. It is the most frequent selector, so objects cache it.
const NODE_NAME: &str = "spec.nodeName";

/// Key of an index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IndexKey {
    /// A label.
    Label(Box<str>),
    /// A field that the resource offers.
    Field(Box<str>),
    /// A field of a custom resource, located at the path of its name.
    CustomField(Box<str>),
}

impl IndexKey {
    /// The node that an object is on.
    #[must_use]
    pub fn node() -> Self {
        Self::Field(NODE_NAME.into())
    }

    /// Returns the value of an object; `None` if it has no such label.
    pub(super) fn value<'o>(&self, object: &'o ServedObject) -> Option<Cow<'o, str>> {
        match self {
            IndexKey::Label(label) => object.label(label).map(Cow::Borrowed),
            IndexKey::Field(field) if **field == *NODE_NAME => Some(Cow::Borrowed(object.node_name())),
            IndexKey::Field(field) => Some(value_in(object, field, false)),
            IndexKey::CustomField(field) => Some(value_in(object, field, true)),
        }
    }

    /// Whether a change is of objects that have a value here, or had it.
    pub(super) fn concerns(&self, value: &str, change: &Change) -> bool {
        let has_it = |object: &ServedObject| self.value(object).as_deref() == Some(value);
        has_it(&change.object) || change.previous.as_deref().is_some_and(has_it)
    }

    fn is_label(&self) -> bool {
        matches!(self, IndexKey::Label(_))
    }

    /// Whether users gave it its name: such names are without end.
    fn is_named(&self) -> bool {
        !matches!(self, IndexKey::Field(_))
    }
}

/// Whether one more index or interest is allowed, in addition to others.
pub(super) fn has_room<'b>(by: &IndexKey, others: impl Iterator<Item = &'b IndexKey>) -> bool {
    !by.is_named() || others.filter(|it| it.is_named()).count() < NAMED_MAX
}

/// The indexes of a resource.
#[derive(Debug, Default)]
pub(super) struct Indexes(Vec<Index>);

/// The keys of objects by value.
#[derive(Debug)]
pub(super) struct Index {
    by: IndexKey,
    keys: HashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl Indexes {
    /// Whether an index is missing that is worth its price.
    pub(super) fn want(&self, by: &IndexKey, objects: usize) -> bool {
        let is_many = objects >= OBJECTS_MIN || *by == IndexKey::node();
        is_many && self.of(by).is_none() && has_room(by, self.0.iter().map(|index| &index.by))
    }

    fn of(&self, by: &IndexKey) -> Option<&Index> {
        self.0.iter().find(|index| index.by == *by)
    }

    /// Adds an index, unless another thread has added it.
    pub(super) fn add(&mut self, index: Index, objects: usize) {
        if self.want(&index.by, objects) {
            self.0.push(index);
        }
    }

    /// Records a change of one object.
    pub(super) fn changed(&mut self, key: &Arc<str>, before: Option<&ServedObject>, after: Option<&ServedObject>) {
        if self.0.is_empty() {
            return;
        }
        let same_labels = before.map(ServedObject::labels) == after.map(ServedObject::labels);
        for index in self.0.iter_mut().filter(|index| !index.by.is_label() || !same_labels) {
            index.changed(key, before, after);
        }
    }

    /// The keys of the objects with this value, below a prefix and in order, if the index exists and they are
    /// not too many.
    pub(super) fn keys<'a>(
        &'a self,
        by: &IndexKey,
        value: &str,
        prefix: &'a str,
    ) -> Option<impl Iterator<Item = &'a Arc<str>>> {
        let found = self.of(by)?.keys.get(value);
        if found.is_some_and(|keys| keys.len() > FOUND_MAX) {
            return None;
        }
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let keys = found.into_iter().flat_map(move |keys| keys.range::<str, _>(from));
        Some(keys.take_while(move |key| key.starts_with(prefix)))
    }
}

impl Index {
    pub(super) fn new<'o>(by: IndexKey, objects: impl Iterator<Item = &'o Entry>) -> Self {
        let mut index = Self { by, keys: HashMap::new() };
        for (key, object) in objects {
            index.changed(key, None, Some(object));
        }
        index
    }

    /// Records a change that occurred while the index was built.
    pub(super) fn apply(&mut self, change: &Change) {
        let after = Some(&*change.object).filter(|_| change.kind != ChangeKind::Deleted);
        self.changed(&change.key, change.previous.as_deref(), after);
    }

    fn changed(&mut self, key: &Arc<str>, before: Option<&ServedObject>, after: Option<&ServedObject>) {
        let before = before.and_then(|it| self.by.value(it));
        let after = after.and_then(|it| self.by.value(it));
        if before == after {
            return;
        }
        if let Some(value) = before
            && let Some(keys) = self.keys.get_mut(&*value)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.keys.remove(&*value);
            }
        }
        if let Some(value) = after {
            match self.keys.get_mut(&*value) {
                Some(keys) => drop(keys.insert(key.clone())),
                None => drop(self.keys.insert(value.into(), BTreeSet::from([key.clone()]))),
            }
        }
    }
}
