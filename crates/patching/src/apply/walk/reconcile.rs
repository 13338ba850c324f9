//! Sets of paths that were written under another schema, or that lack intermediate fields.
//!
//! Follows `typed/reconcile_schema.go` and `Set.EnsureNamedFieldsAreMembers` of structured-merge-diff.

use super::{ValueKind, choose};
use crate::apply::element::Element;
use crate::apply::set::{FieldSet, Node};
use crate::apply::shape::{Map, Relation, Shape};

/// The set as the shape allows it: where something is now replaced as a whole, paths into it become the place itself.
/// None if nothing changes.
#[must_use]
pub fn reconcile(shape: Shape<'_>, set: &FieldSet) -> Option<FieldSet> {
    needs(shape, set, false).then(|| level(shape, set))
}

/// Treatment of a place according to the schema, without a value.
fn handled(shape: Shape<'_>) -> ValueKind<'_> {
    choose(&shape.atom(), None).0
}

/// Whether the place turned from parts into a whole.
fn collapses(handled: &ValueKind<'_>, set: &FieldSet, is_whole: bool) -> bool {
    match handled {
        ValueKind::List(list) => !is_whole && matches!(list.relation, Relation::Atomic),
        ValueKind::Map(map) => !map.is_deduced() && !is_whole && map.atomic && !set.is_empty(),
        ValueKind::Scalar(_) | ValueKind::Nothing => false,
    }
}

/// Shapes of the steps below; `None` if the schema has none.
fn below<'s>(handled: &ValueKind<'s>, element: &Element) -> Option<Shape<'s>> {
    match handled {
        ValueKind::List(list) => Some(list.element),
        ValueKind::Map(map) if !map.is_deduced() => step(map, element),
        _ => None,
    }
}

fn step<'s>(map: &Map<'s>, element: &Element) -> Option<Shape<'s>> {
    match element {
        Element::Field(name) => map.field_or_element(name),
        _ => map.element,
    }
}

fn needs(shape: Shape<'_>, set: &FieldSet, is_whole: bool) -> bool {
    let handled = handled(shape);
    if collapses(&handled, set, is_whole) {
        return true;
    }
    if matches!(&handled, ValueKind::Map(map) if map.atomic) || matches!(&handled, ValueKind::Scalar(_)) {
        return false;
    }
    set.nodes().iter().any(|node| match below(&handled, &node.element) {
        Some(shape) => needs(shape, &node.children, node.member && node.children.is_empty()),
        None => false,
    })
}

fn level(shape: Shape<'_>, set: &FieldSet) -> FieldSet {
    let handled = handled(shape);
    set.map(|node| match below(&handled, &node.element) {
        Some(shape) => {
            let is_whole = node.member && node.children.is_empty();
            if collapses(&self::handled(shape), &node.children, is_whole) {
                (true, FieldSet::new())
            } else {
                (node.member, level(shape, &node.children))
            }
        }
        None => (node.member, node.children.clone()),
    })
}

/// The set with every named field on the path to a member.
#[must_use]
pub fn name_members(shape: Option<Shape<'_>>, set: &FieldSet) -> FieldSet {
    let atom = shape.map(Shape::atom).unwrap_or_default();
    let nodes = set.nodes().iter().map(|node| {
        let (named, below) = match (&node.element, &atom.map, &atom.list) {
            (Element::Field(name), Some(map), _) => (map.field(name).is_some(), map.field_or_element(name)),
            (Element::Key(_), _, Some(list)) => (false, Some(list.element)),
            _ => (false, None),
        };
        let member = node.member || named && !node.children.is_empty();
        Node { element: node.element.clone(), member, children: name_members(below, &node.children) }
    });
    FieldSet::from_nodes(nodes.collect())
}
