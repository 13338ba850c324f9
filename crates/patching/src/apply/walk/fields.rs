//! Paths of a document.
//!
//! Follows `typed/tofieldset.go` of structured-merge-diff.

use api::json::Value;

use super::{ValueKind, choose, element_of};
use crate::apply::element::Element;
use crate::apply::set::{FieldSet, Node};
use crate::apply::shape::{List, Map, Relation, Shape};

/// The paths of a document that fits its shape.
#[must_use]
pub fn field_set(shape: Shape<'_>, value: &Value) -> FieldSet {
    fields(shape, value).1
}

/// Whether the place itself is a path, and those below it.
pub(super) fn fields(shape: Shape<'_>, value: &Value) -> (bool, FieldSet) {
    match choose(&shape.atom(), Some(value)).0 {
        ValueKind::Scalar(_) => (true, FieldSet::new()),
        ValueKind::List(List { relation: Relation::Atomic, .. }) | ValueKind::Map(Map { atomic: true, .. }) => {
            (true, FieldSet::new())
        }
        ValueKind::List(list) => (false, items(&list, value.as_array().unwrap_or_default())),
        ValueKind::Map(map) => {
            let Value::Object(object) = value else { return (false, FieldSet::new()) };
            let mut nodes = Vec::with_capacity(object.len());
            for (key, value) in object.iter() {
                let named = map.field(key);
                let (member, children) = match named.or(map.element) {
                    Some(shape) => fields(shape, value),
                    None => (false, FieldSet::new()),
                };
                let is_empty = match value {
                    Value::Null => true,
                    Value::Object(fields) => fields.is_empty(),
                    _ => false,
                };
                let member = member || is_empty || named.is_none();
                nodes.push(Node { element: Element::Field(key.into()), member, children });
            }
            (false, FieldSet::from_nodes(nodes))
        }
        ValueKind::Nothing => (false, FieldSet::new()),
    }
}

fn items(list: &List<'_>, items: &[Value]) -> FieldSet {
    let mut nodes: Vec<Node> = Vec::with_capacity(items.len());
    for item in items {
        let Ok(element) = element_of(list, item) else { continue };
        let (_, children) = fields(list.element, item);
        nodes.push(Node { element, member: true, children });
    }
    // Duplicate items are owned as a whole.
    nodes.sort_by(|left, right| left.element.cmp(&right.element));
    nodes.dedup_by(|later, earlier| {
        let repeated = later.element == earlier.element;
        if repeated {
            earlier.children = FieldSet::new();
        }
        repeated
    });
    FieldSet::from_nodes(nodes)
}
