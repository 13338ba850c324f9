//! Comparison of two documents.
//!
//! Follows `typed/compare.go` of structured-merge-diff.

use api::json::{Lookup, Value};

use super::{ValueKind, alike, choose, element_of};
use crate::apply::element::Element;
use crate::apply::set::{FieldSet, Node};
use crate::apply::shape::{List, Map, Relation, Shape};
use crate::apply::values::same;

/// The paths in which two documents differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Paths that only the old object has.
    pub removed: FieldSet,
    /// Paths whose values differ.
    pub modified: FieldSet,
    /// Paths that only the new object has.
    pub added: FieldSet,
}

impl Comparison {
    /// Whether the documents are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }
}

/// Compares two documents that fit their shape.
#[must_use]
pub fn compare(shape: Shape<'_>, old: &Value, new: &Value) -> Comparison {
    let mut level = Level::default();
    place(shape, Some(old), Some(new), &mut level);
    level.finish()
}

/// Differences among the steps of one object or list.
#[derive(Default)]
struct Level {
    removed: Vec<Node>,
    modified: Vec<Node>,
    added: Vec<Node>,
}

/// Differences of a place itself.
#[derive(Clone, Copy, Default)]
struct Marks {
    removed: bool,
    modified: bool,
    added: bool,
}

impl Level {
    fn finish(self) -> Comparison {
        Comparison {
            removed: FieldSet::from_nodes(self.removed),
            modified: FieldSet::from_nodes(self.modified),
            added: FieldSet::from_nodes(self.added),
        }
    }

    /// Adds a step, which is created only if it differs.
    fn step(&mut self, marks: Marks, below: Level, element: impl FnOnce() -> Element) {
        let mut sides = [
            (marks.removed, below.removed, &mut self.removed),
            (marks.modified, below.modified, &mut self.modified),
            (marks.added, below.added, &mut self.added),
        ];
        if sides.iter().all(|(member, below, _)| !member && below.is_empty()) {
            return;
        }
        let element = element();
        for (member, below, out) in &mut sides {
            if *member || !below.is_empty() {
                let children = FieldSet::from_nodes(std::mem::take(below));
                out.push(Node { element: element.clone(), member: *member, children });
            }
        }
    }
}

fn place(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Level) -> Marks {
    if let (None, Some(new)) = (old, new) {
        out.added = added(shape, new);
        return Marks { added: true, ..Marks::default() };
    }
    let atom = shape.atom();
    let (left, right) = (choose(&atom, old), choose(&atom, new));
    let mut marks = Marks::default();
    let is_leaf = match (old, new) {
        (_, None) => handle(left.0, old, new, out, &mut marks),
        (Some(_), Some(_)) if !alike(&atom, left, right) => {
            handle(left.0, old, new, out, &mut marks);
            handle(right.0, old, new, out, &mut marks)
        }
        _ => handle(right.0, old, new, out, &mut marks),
    };
    if !is_leaf {
        marks.added |= old.is_none();
        marks.removed |= new.is_none() && old.is_some();
    }
    marks
}

/// The steps below a value that there was nothing to compare with: every path is new.
fn added(shape: Shape<'_>, new: &Value) -> Vec<Node> {
    match (choose(&shape.atom(), Some(new)).0, new) {
        (ValueKind::Map(map), Value::Object(fields)) if !map.atomic => {
            let mut hint = 0;
            let node = |(key, value): (&str, &Value)| {
                let children = map.next_field_or_element(key, &mut hint).map(|shape| added(shape, value));
                let children = FieldSet::from_nodes(children.unwrap_or_default());
                Node { element: Element::Field(key.into()), member: true, children }
            };
            fields.iter().map(node).collect()
        }
        (ValueKind::List(list), Value::Array(items)) if !matches!(list.relation, Relation::Atomic) => {
            let node = |(element, items): (Element, Vec<&Value>)| {
                let children = match items.as_slice() {
                    [item] => FieldSet::from_nodes(added(list.element, item)),
                    _ => FieldSet::new(),
                };
                Node { element, member: true, children }
            };
            grouped(&list, items).into_iter().map(node).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the place was compared as a whole.
fn handle(
    handled: ValueKind<'_>,
    old: Option<&Value>,
    new: Option<&Value>,
    out: &mut Level,
    marks: &mut Marks,
) -> bool {
    let is_leaf = match handled {
        ValueKind::Nothing => return false,
        ValueKind::Scalar(_) => true,
        ValueKind::List(list) => {
            let items = |side: Option<&Value>| side.and_then(Value::as_array).is_some_and(|items| !items.is_empty());
            matches!(list.relation, Relation::Atomic) || !items(old) && !items(new)
        }
        ValueKind::Map(map) => {
            let fields = |side: Option<&Value>| side.and_then(Value::as_object).is_some_and(|it| !it.is_empty());
            map.atomic || !fields(old) && !fields(new)
        }
    };
    if is_leaf {
        match (old, new) {
            (None, _) => marks.added = true,
            (_, None) => marks.removed = true,
            (Some(old), Some(new)) => marks.modified |= !same(old, new),
        }
        return true;
    }
    match handled {
        ValueKind::List(list) => items(&list, old, new, out),
        ValueKind::Map(map) => fields(&map, old, new, out),
        ValueKind::Scalar(_) | ValueKind::Nothing => {}
    }
    false
}

fn fields(map: &Map<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Level) {
    let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
    let mut hint = 0;
    let mut field = |key: &str, old: Option<&Value>, new: Option<&Value>| {
        // The common case of fields that did not change.
        if let (Some(old), Some(new)) = (old, new)
            && old == new
        {
            return;
        }
        let mut below = Level::default();
        let marks = match map.next_field_or_element(key, &mut hint) {
            Some(shape) => place(shape, old, new, &mut below),
            None => Marks { added: old.is_none(), removed: new.is_none(), modified: false },
        };
        out.step(marks, below, || Element::Field(key.into()));
    };
    let (old_fields, new_fields) = (old.map(Lookup::new), new.map(Lookup::new));
    for (index, (key, value)) in old.into_iter().flat_map(|it| it.iter()).enumerate() {
        field(key, Some(value), new_fields.as_ref().and_then(|new| new.get_at(key, index)));
    }
    for (index, (key, value)) in new.into_iter().flat_map(|it| it.iter()).enumerate() {
        if old_fields.as_ref().is_none_or(|old| old.get_at(key, index).is_none()) {
            field(key, None, Some(value));
        }
    }
}

fn items(list: &List<'_>, old: Option<&Value>, new: Option<&Value>, out: &mut Level) {
    if let (Some(old), Some(new)) = (old, new)
        && same(old, new)
    {
        return;
    }
    let old = grouped(list, old.and_then(Value::as_array).unwrap_or_default());
    let new = grouped(list, new.and_then(Value::as_array).unwrap_or_default());
    let mut new = new.into_iter().peekable();
    let mut item = |element: Element, old: &[&Value], new: &[&Value]| {
        let mut below = Level::default();
        let mut marks = Marks::default();
        match (old, new) {
            ([] | [_], [] | [_]) => {
                marks = place(list.element, old.first().copied(), new.first().copied(), &mut below);
            }
            ([_, _, ..], [_, _, ..]) => {
                let equal = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| same(old, new));
                marks.modified = !equal;
            }
            ([_, _, ..], _) => {
                if let Some(new) = new.first() {
                    marks = place(list.element, None, Some(new), &mut below);
                }
                marks.removed = true;
            }
            (_, _) => {
                if let Some(old) = old.first() {
                    marks = place(list.element, Some(old), None, &mut below);
                }
                marks.added = true;
            }
        }
        out.step(marks, below, || element);
    };
    for (element, old) in old {
        while let Some((element, new)) = new.next_if(|(it, _)| *it < element) {
            item(element, &[], &new);
        }
        match new.next_if(|(it, _)| *it == element) {
            Some((_, new)) => item(element, &old, &new),
            None => item(element, &old, &[]),
        }
    }
    for (element, new) in new {
        item(element, &[], &new);
    }
}

/// Groups the items of a list by identity, in order.
fn grouped<'v>(list: &List<'_>, items: &'v [Value]) -> Vec<(Element, Vec<&'v Value>)> {
    let mut groups: Vec<(Element, Vec<&Value>)> =
        items.iter().filter_map(|item| Some((element_of(list, item).ok()?, vec![item]))).collect();
    groups.sort_by(|left, right| left.0.cmp(&right.0));
    groups.dedup_by(|later, earlier| {
        let repeated = later.0 == earlier.0;
        if repeated {
            earlier.1.append(&mut later.1);
        }
        repeated
    });
    groups
}
