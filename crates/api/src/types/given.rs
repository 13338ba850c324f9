//! Lists and maps that a document gives, but empty: the normal form leaves them out, messages show them.
//!
//! Go distinguishes `labels: {}` from missing labels until it writes the object, and validation prints the
//! input. Decoding records the positions of such parts, and [`EmptyPositions::in_place`] restores them for
//! validators. Required lists stay in the normal form, but are null when read from storage:
//! [`EmptyPositions::settle`].

use std::borrow::Cow;

use crate::json::{Text, Value};

/// A step from an object to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// A field of a struct, or an entry of a map.
    Key(Text),
    /// An item of a list.
    Item(usize),
}

/// Positions of empty lists and maps.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EmptyPositions {
    places: Vec<(Vec<Part>, Value)>,
    /// Bytes of the places.
    bytes: usize,
}

/// Number of places that are noted: each is looked up again, field by field.
const PLACES_MAX: usize = 1_000;
/// Bytes of places that are noted.
const PLACES_BYTES_MAX: usize = 256 << 10;

impl EmptyPositions {
    /// Records a position, unless there are too many.
    pub(super) fn add(&mut self, place: impl FnOnce() -> Vec<Part>, empty: Value) {
        if self.places.len() >= PLACES_MAX || self.bytes >= PLACES_BYTES_MAX {
            return;
        }
        let place = place();
        let bytes = place.iter().map(|part| match part {
            Part::Key(key) => key.len().saturating_add(size_of::<Part>()),
            Part::Item(_) => size_of::<Part>(),
        });
        self.bytes = bytes.fold(self.bytes, usize::saturating_add);
        self.places.push((place, empty));
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the object with the empty parts at their positions, unless there is another value now or their
    /// parent is missing.
    #[must_use]
    pub fn in_place<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if self.is_empty() {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        for (place, empty) in &self.places {
            put(&mut object, place, empty);
        }
        Cow::Owned(object)
    }

    /// Makes empty lists null, as they are after having been stored.
    pub fn settle(&self, object: &mut Value) {
        for (place, _) in &self.places {
            if let Some(value) = find(object, place)
                && value.as_array().is_some_and(<[Value]>::is_empty)
            {
                *value = Value::Null;
            }
        }
    }
}

fn find<'a>(value: &'a mut Value, place: &[Part]) -> Option<&'a mut Value> {
    place.iter().try_fold(value, |value, part| match (part, value) {
        (Part::Key(key), Value::Object(fields)) => fields.get_mut(key),
        (Part::Item(index), Value::Array(items)) => items.get_mut(*index),
        _ => None,
    })
}

fn put(value: &mut Value, place: &[Part], empty: &Value) {
    match (place, value) {
        ([Part::Key(key)], Value::Object(fields)) if fields.get(key).is_none_or(Value::is_null) => {
            fields.insert(key.as_str(), empty.clone());
        }
        ([Part::Key(key), rest @ ..], Value::Object(fields)) => {
            if let Some(value) = fields.get_mut(key) {
                put(value, rest, empty);
            }
        }
        ([Part::Item(index), rest @ ..], Value::Array(items)) => {
            if let Some(value) = items.get_mut(*index) {
                put(value, rest, empty);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::json::{parse, to_string};
    use crate::types::{by_api_version, decode};

    #[test]
    fn empty_parts_are_noted_and_put_back() {
        let text = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{},"annotations":null},"spec":{"containers":[{"name":"c","env":[],"resources":{"limits":{}}}]},"status":{}}"#;
        let of = by_api_version("v1", "Pod").unwrap();
        let decoded = decode(of, &parse(text.as_bytes()).unwrap()).unwrap();
        assert!(!to_string(&decoded.value).contains("labels"));
        let shown = decoded.given_empty.in_place(&decoded.value);
        assert_eq!(
            to_string(&shown),
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{}},"spec":{"containers":[{"name":"c","resources":{"limits":{}},"env":[]}]},"status":{}}"#
        );
    }

    #[test]
    fn required_lists_are_null_once_stored() {
        let of = by_api_version("v1", "Pod").unwrap();
        let text = r#"{"metadata":{"name":"p"},"spec":{"containers":[],"tolerations":[]},"status":{}}"#;
        let mut decoded = decode(of, &parse(text.as_bytes()).unwrap()).unwrap();
        assert_eq!(to_string(&decoded.value), r#"{"metadata":{"name":"p"},"spec":{"containers":[]},"status":{}}"#);
        decoded.given_empty.settle(&mut decoded.value);
        assert_eq!(to_string(&decoded.value), r#"{"metadata":{"name":"p"},"spec":{"containers":null},"status":{}}"#);
    }
}
