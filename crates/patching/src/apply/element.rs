//! One step of a path into an object, and paths as messages show them.
//!
//! Follows `fieldpath.PathElement` of structured-merge-diff.

use std::cmp::Ordering;

use api::json::{Text, Value};

use super::values;

/// A step from an object or list to something in it.
#[derive(Debug, Clone)]
pub enum Element {
    /// A field of an object.
    Field(Text),
    /// The item of a list whose fields have these values. Sorted by name.
    Key(Vec<(Text, Value)>),
    /// The item of a set that has this value.
    Value(Value),
    /// The item at this place.
    Index(i64),
}

impl Element {
    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(left), Element::Field(right)) => left.cmp(right),
            (Element::Key(left), Element::Key(right)) => compare_keys(left, right),
            (Element::Value(left), Element::Value(right)) => values::compare(left, right),
            (Element::Index(left), Element::Index(right)) => left.cmp(right),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

fn compare_keys(left: &[(Text, Value)], right: &[(Text, Value)]) -> Ordering {
    let order = |(left, right): (&(Text, Value), &(Text, Value))| {
        left.0.cmp(&right.0).then_with(|| values::compare(&left.1, &right.1))
    };
    left.iter().zip(right).map(order).find(|it| it.is_ne()).unwrap_or_else(|| left.len().cmp(&right.len()))
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

impl From<&str> for Element {
    fn from(name: &str) -> Self {
        Element::Field(name.into())
    }
}

impl std::fmt::Display for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(fields) => {
                let fields: Vec<_> =
                    fields.iter().map(|(name, value)| format!("{name}={}", values::text(value))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Element::Value(value) => write!(f, "[={}]", values::text(value)),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as messages show it, `.spec.ports[port=80,protocol="TCP"].targetPort`.
#[must_use]
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}
