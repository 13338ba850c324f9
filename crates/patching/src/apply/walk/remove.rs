//! A document without some of its paths, or with nothing but them.
//!
//! Follows `typed/remove.go` of structured-merge-diff: containers that become empty become null.

use api::json::{Object, Value};

use super::{ValueKind, choose, element_of};
use crate::apply::set::FieldSet;
use crate::apply::shape::{Relation, Shape};

/// The document without `paths` and everything below them.
#[must_use]
pub fn remove(shape: Shape<'_>, value: &Value, paths: &FieldSet) -> Value {
    place(shape, value, paths, false)
}

/// Returns the parts of a document at `paths`.
#[must_use]
pub fn extract(shape: Shape<'_>, value: &Value, paths: &FieldSet) -> Value {
    place(shape, value, paths, true)
}

fn place(shape: Shape<'_>, value: &Value, paths: &FieldSet, extracts: bool) -> Value {
    let whole = || if extracts { value.clone() } else { Value::Null };
    match (choose(&shape.atom(), Some(value)).0, value) {
        (ValueKind::Scalar(_), _) => value.clone(),
        (ValueKind::List(list), Value::Array(items)) => {
            if items.is_empty() || matches!(list.relation, Relation::Atomic) {
                return whole();
            }
            let mut out = Vec::with_capacity(items.len());
            for item in items {
                let node = element_of(&list, item).ok().and_then(|element| paths.get(&element));
                let below = node.map(|node| &node.children).filter(|children| !children.is_empty());
                let is_member = node.is_some_and(|node| node.member);
                match below {
                    _ if is_member && !extracts => {}
                    None if !is_member && extracts => {}
                    Some(below) => out.push(place(list.element, item, below, extracts)),
                    None => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        (ValueKind::Map(map), Value::Object(fields)) => {
            if fields.is_empty() || map.atomic {
                return whole();
            }
            let mut out = Vec::with_capacity(fields.len());
            for (key, value) in fields.iter() {
                let node = paths.get_field(key);
                let below = node.map(|node| &node.children).filter(|children| !children.is_empty());
                let is_member = node.is_some_and(|node| node.member);
                let child = |below: &FieldSet| match map.field_or_element(key) {
                    Some(shape) => place(shape, value, below, extracts),
                    None => Value::Null,
                };
                let kept = match below {
                    _ if is_member && !extracts => continue,
                    Some(below) => child(below),
                    None if is_member => match child(&FieldSet::new()) {
                        // A manager that owns no part of it may own its existence.
                        Value::Null if matches!(value, Value::Object(_)) => Value::object(),
                        whole => whole,
                    },
                    None if extracts => continue,
                    None => value.clone(),
                };
                out.push((key.into(), kept));
            }
            if out.is_empty() { Value::Null } else { Value::Object(Object::from_distinct(out)) }
        }
        _ => Value::Null,
    }
}
