//! Sets of paths that were written under another schema, or that lack the fields that stand on their way.
//!
//! Follows `typed/reconcile_schema.go` and `Set.EnsureNamedFieldsAreMembers` of structured-merge-diff.

use super::{Handled, choose};
use crate::objects::apply::element::Element;
use crate::objects::apply::set::{FieldSet, Node};
use crate::objects::apply::shape::{Map, Relation, Shape};

/// The set as the shape allows it: where something is now replaced as a whole, paths into it become the place itself.
/// None if nothing changes.
#[must_use]
pub fn reconcile(shape: Shape<'_>, set: &FieldSet) -> Option<FieldSet> {
    needs(shape, set, false).then(|| level(shape, set))
}

/// What a place is, as far as the schema says without a value.
fn handled(shape: Shape<'_>) -> Handled<'_> {
    choose(&shape.atom(), None).0
}

/// Whether the place turned from parts into a whole.
fn collapses(handled: &Handled<'_>, set: &FieldSet, is_whole: bool) -> bool {
    match handled {
        Handled::List(list) => !is_whole && matches!(list.relation, Relation::Atomic),
        Handled::Map(map) => !map.is_deduced() && !is_whole && map.atomic && !set.is_empty(),
        Handled::Scalar(_) | Handled::Nothing => false,
    }
}

/// The shapes of the steps below; none where the schema says nothing.
fn below<'s>(handled: &Handled<'s>, element: &Element) -> Option<Shape<'s>> {
    match handled {
        Handled::List(list) => Some(list.element),
        Handled::Map(map) if !map.is_deduced() => step(map, element),
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
    if matches!(&handled, Handled::Map(map) if map.atomic) || matches!(&handled, Handled::Scalar(_)) {
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

/// The set with every field on the way to a member that the schema names.
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
