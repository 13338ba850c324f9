//! Merges two documents: values of the second one win, the rest is kept.
//!
//! Follows `typed/merge.go` of structured-merge-diff, its order of list items included.

use api::json::{Lookup, Object, Value};

use super::{ValueKind, choose, element_of};
use crate::apply::element::Element;
use crate::apply::shape::{List, Map, Relation, Shape};

/// Lays `config` over `live`. Both fit the shape; items may repeat only in `live`.
#[must_use]
pub fn merge(shape: Shape<'_>, live: &Value, config: &Value) -> Value {
    place(shape, Some(live), Some(config)).unwrap_or_default()
}

/// The merged value, none if nothing is left of it.
fn place<'v>(shape: Shape<'_>, live: Option<&'v Value>, config: Option<&'v Value>) -> Option<Value> {
    let atom = shape.atom();
    let handled = choose(&atom, config.or(live)).0;
    let keep = || config.or(live).cloned();
    match handled {
        ValueKind::Nothing => None,
        ValueKind::Scalar(_) => keep(),
        ValueKind::List(list) => {
            let side = |value: Option<&'v Value>| value.and_then(Value::as_array).unwrap_or_default();
            let (live, config) = (side(live), side(config));
            if matches!(list.relation, Relation::Atomic) || live.is_empty() && config.is_empty() {
                return keep();
            }
            let merged = items(&list, live, config);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        ValueKind::Map(map) => {
            let (live, config) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            let is_empty = |side: Option<&Object>| side.is_none_or(Object::is_empty);
            if map.atomic || is_empty(live) && is_empty(config) {
                return keep();
            }
            let merged = fields(&map, live, config);
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

fn fields(map: &Map<'_>, live: Option<&Object>, config: Option<&Object>) -> Object {
    let mut out = Vec::new();
    let mut field = |key: &str, live: Option<&Value>, config: Option<&Value>| {
        let merged = map.field_or_element(key).and_then(|shape| place(shape, live, config));
        out.extend(merged.map(|value| (key.into(), value)));
    };
    let (live_fields, config_fields) = (live.map(Lookup::new), config.map(Lookup::new));
    for (index, (key, value)) in live.into_iter().flat_map(|it| it.iter()).enumerate() {
        field(key, Some(value), config_fields.as_ref().and_then(|config| config.get_at(key, index)));
    }
    for (index, (key, value)) in config.into_iter().flat_map(|it| it.iter()).enumerate() {
        if live_fields.as_ref().is_none_or(|live| live.get_at(key, index).is_none()) {
            field(key, None, Some(value));
        }
    }
    Object::from_distinct(out)
}

/// The items of one side with their steps, and an index from steps to items.
struct Side<'v> {
    steps: Vec<(Element, &'v Value)>,
    /// Sorted by step; the value is none where a step occurs twice.
    index: Vec<(Element, Option<&'v Value>)>,
}

impl<'v> Side<'v> {
    fn new(list: &List<'_>, items: &'v [Value]) -> Self {
        let steps: Vec<(Element, &Value)> =
            items.iter().filter_map(|item| Some((element_of(list, item).ok()?, item))).collect();
        let mut index: Vec<(Element, Option<&Value>)> =
            steps.iter().map(|(element, item)| (element.clone(), Some(*item))).collect();
        index.sort_by(|left, right| left.0.cmp(&right.0));
        index.dedup_by(|later, earlier| {
            let repeated = later.0 == earlier.0;
            if repeated {
                earlier.1 = None;
            }
            repeated
        });
        Self { steps, index }
    }

    /// Position of a step in the index.
    fn position(&self, element: &Element) -> Option<usize> {
        self.index.binary_search_by(|(it, _)| it.cmp(element)).ok()
    }

    /// The item of a step; none if the step does not occur, an inner none if it occurs twice.
    fn get(&self, element: &Element) -> Option<Option<&'v Value>> {
        self.index.get(self.position(element)?).map(|(_, item)| *item)
    }
}

/// Merges lists: items of `config` in its order, those that only `live` has at their positions.
fn items(list: &List<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let (left, right) = (Side::new(list, live), Side::new(list, config));
    // A duplicate item in the live list is replaced by the applied one.
    let nothing = Value::Null;
    let merged = |element: &Element| {
        let live = left.get(element).map(|item| item.unwrap_or(&nothing));
        let config = right.get(element).map(|item| item.unwrap_or(&nothing));
        place(list.element, live, config)
    };
    let mut shared = right.steps.iter().map(|(element, _)| element).filter(|it| left.get(it).is_some());
    let mut next_shared = shared.next();
    let mut done = vec![false; right.index.len()];
    let mark = |done: &mut Vec<bool>, element: &Element| {
        if let Some(done) = right.position(element).and_then(|at| done.get_mut(at)) {
            *done = true;
        }
    };
    let mut out = Vec::with_capacity(live.len().max(config.len()));
    let mut live_steps = left.steps.iter().peekable();
    let mut config_steps = right.steps.iter().peekable();
    while live_steps.peek().is_some() || config_steps.peek().is_some() {
        if let (Some((element, _)), Some((other, _))) = (live_steps.peek(), config_steps.peek()) {
            if element == other {
                out.extend(merged(element));
                mark(&mut done, other);
                live_steps.next();
                config_steps.next();
                next_shared = shared.next();
                continue;
            }
            // It follows later, in the order of the applied list.
            if right.get(element).is_some() && next_shared.is_some_and(|next| next != element) {
                live_steps.next();
                continue;
            }
        }
        if let Some((element, item)) = live_steps.peek() {
            if right.get(element).is_none() {
                out.extend(place(list.element, Some(item), None));
                live_steps.next();
                continue;
            }
            if right.position(element).and_then(|at| done.get(at)) == Some(&true) {
                live_steps.next();
            }
        }
        if let Some((element, _)) = config_steps.next() {
            out.extend(merged(element));
            mark(&mut done, element);
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    out
}
