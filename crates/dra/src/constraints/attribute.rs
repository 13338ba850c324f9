//! Constraints on one attribute, judged device by device.
//!
//! Follows `matchAttributeConstraint` and `distinctAttributeConstraint`: a device without the attribute violates both.
//! Attributes that are lists are sets: to match is to have an element in common, to be distinct is to have none.

use std::sync::Arc;

use api::resource::v1::DeviceAttribute;

/// The devices that count for a constraint so far. Each successful `add` is undone by one [`Attributes::remove`].
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    added: Vec<Arc<DeviceAttribute>>,
    /// Common values after each device.
    common: Vec<Elements>,
}

impl Attributes {
    /// Adds a device that must have the same value; returns whether it has.
    pub(crate) fn add_matching(&mut self, attribute: &Arc<DeviceAttribute>, lists: bool) -> bool {
        if lists {
            let common = match (Elements::of(attribute), self.common.last()) {
                (None, _) => None,
                (Some(elements), None) => Some(elements),
                (Some(elements), Some(common)) => common.intersection(&elements),
            };
            let Some(common) = common else { return false };
            self.common.push(common);
        } else if let Some(first) = self.added.first()
            && !(has_scalar(attribute) && same_scalar(attribute, first))
        {
            // Kubernetes: the first device only has to have the attribute, whatever it is.
            return false;
        }
        self.added.push(attribute.clone());
        true
    }

    /// Adds a device that must have another value than all before; returns whether it has.
    pub(crate) fn add_distinct(&mut self, attribute: &Arc<DeviceAttribute>, lists: bool) -> bool {
        let is_distinct = if lists {
            Elements::of(attribute).is_some_and(|elements| {
                let mut others = self.added.iter().filter_map(|other| Elements::of(other));
                others.all(|other| elements.intersection(&other).is_none())
            })
        } else {
            self.added.iter().all(|other| has_scalar(attribute) && !same_scalar(attribute, other))
        };
        if is_distinct {
            self.added.push(attribute.clone());
        }
        is_distinct
    }

    /// Removes the device that was added last.
    pub(crate) fn remove(&mut self) {
        self.added.pop();
        self.common.pop();
    }
}

fn has_scalar(attribute: &DeviceAttribute) -> bool {
    attribute.string.is_some() || attribute.int.is_some() || attribute.bool.is_some() || attribute.version.is_some()
}

/// Whether both have the same value of one kind. Versions are in their shortest form: equal ones are equal
/// texts.
fn same_scalar(left: &DeviceAttribute, right: &DeviceAttribute) -> bool {
    match left {
        DeviceAttribute { string: Some(value), .. } => right.string.as_ref() == Some(value),
        DeviceAttribute { int: Some(value), .. } => right.int == Some(*value),
        DeviceAttribute { bool: Some(value), .. } => right.bool == Some(*value),
        DeviceAttribute { version: Some(value), .. } => right.version.as_ref() == Some(value),
        _ => false,
    }
}

/// The values of an attribute as a set of one kind.
#[derive(Debug, Clone)]
enum Elements {
    Ints(Vec<i64>),
    Bools(Vec<bool>),
    Strings(Vec<api::json::Text>),
    Versions(Vec<api::json::Text>),
}

impl Elements {
    fn of(attribute: &DeviceAttribute) -> Option<Elements> {
        Some(match attribute {
            it if !it.ints.is_empty() => Elements::Ints(it.ints.clone()),
            it if !it.bools.is_empty() => Elements::Bools(it.bools.clone()),
            it if !it.strings.is_empty() => Elements::Strings(it.strings.clone()),
            it if !it.versions.is_empty() => Elements::Versions(it.versions.clone()),
            DeviceAttribute { int: Some(value), .. } => Elements::Ints(vec![*value]),
            DeviceAttribute { bool: Some(value), .. } => Elements::Bools(vec![*value]),
            DeviceAttribute { string: Some(value), .. } => Elements::Strings(vec![value.clone()]),
            DeviceAttribute { version: Some(value), .. } => Elements::Versions(vec![value.clone()]),
            _ => return None,
        })
    }

    /// Common values; `None` if there are none or the kinds differ.
    fn intersection(&self, other: &Elements) -> Option<Elements> {
        fn both<T: PartialEq + Clone>(left: &[T], right: &[T]) -> Option<Vec<T>> {
            let both: Vec<T> = left.iter().filter(|it| right.contains(it)).cloned().collect();
            (!both.is_empty()).then_some(both)
        }
        match (self, other) {
            (Elements::Ints(left), Elements::Ints(right)) => both(left, right).map(Elements::Ints),
            (Elements::Bools(left), Elements::Bools(right)) => both(left, right).map(Elements::Bools),
            (Elements::Strings(left), Elements::Strings(right)) => both(left, right).map(Elements::Strings),
            (Elements::Versions(left), Elements::Versions(right)) => both(left, right).map(Elements::Versions),
            _ => None,
        }
    }
}
