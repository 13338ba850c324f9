//! Which objects have which value in the one field that is asked for most: pods and slices by node.
//!
//! An index is made when somebody first asks by its field, and kept up to date from then on. A change that leaves the
//! field's surroundings as they were costs it a comparison.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Entry;
use crate::storage::stored::Served;

/// A resource and the field by which it is indexed.
#[derive(Debug, PartialEq, Eq)]
pub struct Indexed {
    prefix: &'static str,
    /// The field as selectors name it.
    pub field: &'static str,
    path: &'static [&'static str],
}

const INDEXED: &[Indexed] = &[
    Indexed { prefix: "/registry/core/pods/", field: "spec.nodeName", path: &["spec", "nodeName"] },
    Indexed {
        prefix: "/registry/resource.k8s.io/resourceslices/",
        field: "spec.nodeName",
        path: &["spec", "nodeName"],
    },
];

impl Indexed {
    /// The field by which a resource is indexed.
    #[must_use]
    pub fn of(prefix: &str) -> Option<&'static Self> {
        INDEXED.iter().find(|it| it.prefix == prefix)
    }

    /// What an object has there.
    pub(super) fn value<'o>(&self, object: &'o Served) -> &'o Arc<str> {
        object.indexed(self.path)
    }
}

/// The keys of objects by value.
#[derive(Debug)]
pub(super) struct Index {
    by: &'static Indexed,
    keys: HashMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Index {
    pub(super) fn new<'o>(by: &'static Indexed, objects: impl Iterator<Item = &'o Entry>) -> Self {
        let mut index = Self { by, keys: HashMap::new() };
        for (key, object) in objects {
            index.changed(key, None, Some(object));
        }
        index
    }

    /// Takes note of a change of one object.
    pub(super) fn changed(&mut self, key: &Arc<str>, before: Option<&Served>, after: Option<&Served>) {
        let (before, after) = (before.map(|it| self.by.value(it)), after.map(|it| self.by.value(it)));
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
        if let Some(value) = after.filter(|value| !value.is_empty()) {
            self.keys.entry(value.clone()).or_default().insert(key.clone());
        }
    }

    /// The keys of the objects with this value, in order.
    pub(super) fn keys(&self, value: &str) -> impl Iterator<Item = &Arc<str>> {
        self.keys.get(value).into_iter().flatten()
    }
}
