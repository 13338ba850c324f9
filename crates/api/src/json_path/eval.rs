//! Following a path through a value.
//!
//! Steps map lists to lists. A failing step also returns a list, because an existence filter tests only its
//! length.

use std::cmp::Ordering;

use super::{Filter, Item, JsonPath, Node, Operator, PathError, Slice};
use crate::json::Value;

type Items<'a> = Vec<Item<'a>>;

/// A list, and the error that ended its computation.
type Outcome<'a> = (Items<'a>, Option<PathError>);

pub(super) fn find<'a>(path: &'a JsonPath, value: &'a Value) -> Result<Vec<Items<'a>>, PathError> {
    let mut evaluation = Evaluation::new(path);
    let mut results = Vec::new();
    evaluation.template(0, Item::Value(value), &mut results)?;
    Ok(results)
}

pub(super) fn find_in_list<'a>(
    path: &'a JsonPath,
    steps: &'a [Node],
    value: &'a Value,
) -> Result<Items<'a>, PathError> {
    match Evaluation::new(path).list(vec![Item::Value(value)], steps) {
        (items, None) => Ok(items),
        (_, Some(error)) => Err(error),
    }
}

/// Whether the steps hold `range`, `end` or another word.
pub(super) fn has_identifier(steps: &[Node]) -> bool {
    steps.iter().any(|step| matches!(step, Node::Identifier(_)))
}

struct Evaluation<'a> {
    path: &'a JsonPath,
    ranges_to_begin: usize,
    ranges_entered: usize,
    ranges_to_end: usize,
    /// The node that ended the most recent range.
    last_end: Option<usize>,
}

impl<'a> Evaluation<'a> {
    fn new(path: &'a JsonPath) -> Self {
        Self { path, ranges_to_begin: 0, ranges_entered: 0, ranges_to_end: 0, last_end: None }
    }

    /// Evaluates the template from node `first` on, up to the end of the range around it.
    fn template(&mut self, first: usize, value: Item<'a>, out: &mut Vec<Items<'a>>) -> Result<(), PathError> {
        let mut position = first;
        while let Some(node) = self.path.nodes.get(position) {
            let results = match self.step(vec![value], node) {
                (results, None) => results,
                (_, Some(error)) => return Err(error),
            };
            if self.ranges_to_end > 0 && self.ranges_to_end <= self.ranges_entered {
                self.ranges_to_end = self.ranges_to_end.saturating_sub(1);
                self.last_end = Some(position);
                return Ok(());
            }
            if self.ranges_to_begin > 0 {
                self.ranges_to_begin = self.ranges_to_begin.saturating_sub(1);
                self.ranges_entered = self.ranges_entered.saturating_add(1);
                let inner = position.saturating_add(1);
                if results.is_empty() {
                    // Evaluates the range once, only to determine its end.
                    self.template(inner, Item::Nothing, &mut Vec::new())?;
                }
                for result in results {
                    self.template(inner, result, out)?;
                }
                self.ranges_entered = self.ranges_entered.saturating_sub(1);
                if let Some(end) = self.last_end.filter(|end| *end > position) {
                    position = end;
                }
            } else {
                out.push(results);
            }
            position = position.saturating_add(1);
        }
        Ok(())
    }

    fn list(&mut self, mut items: Items<'a>, steps: &'a [Node]) -> Outcome<'a> {
        for step in steps {
            let (next, error) = self.step(items, step);
            if error.is_some() {
                return (next, error);
            }
            items = next;
        }
        (items, None)
    }

    fn step(&mut self, input: Items<'a>, node: &'a Node) -> Outcome<'a> {
        let length = input.len();
        let repeat = |item: Item<'a>| (vec![item; length], None);
        match node {
            Node::List(steps) => self.list(input, steps),
            Node::Text(text) => (vec![Item::Text(text)], None),
            Node::Int(value) => repeat(Item::Int(*value)),
            Node::Float(value) => repeat(Item::Float(*value)),
            Node::Bool(value) => repeat(Item::Bool(*value)),
            Node::Field(name) => self.field(input, name),
            Node::Slice(slice) => slice_items(input, *slice),
            Node::Filter(filter) => self.filter(input, filter),
            Node::Wildcard => (input.iter().flat_map(|item| contents(*item)).collect(), None),
            Node::Recursive => {
                let mut out = Vec::new();
                input.iter().for_each(|item| descend(*item, &mut out));
                (out, None)
            }
            Node::Union(lists) => {
                let mut out = Vec::new();
                for steps in lists {
                    let (mut items, error) = self.list(input.clone(), steps);
                    if error.is_some() {
                        return (input, error);
                    }
                    out.append(&mut items);
                }
                (out, None)
            }
            Node::Identifier(name) => match &**name {
                "range" => {
                    self.ranges_to_begin = self.ranges_to_begin.saturating_add(1);
                    (input, None)
                }
                "end" if self.ranges_entered > 0 => {
                    self.ranges_to_end = self.ranges_to_end.saturating_add(1);
                    (Vec::new(), None)
                }
                "end" => (Vec::new(), Some(PathError("not in range, nothing to end".into()))),
                name => (input, Some(PathError(format!("unrecognized identifier {name}")))),
            },
        }
    }

    /// Replaces each object by its field, in place.
    fn field(&self, mut items: Items<'a>, name: &str) -> Outcome<'a> {
        let was_empty = items.is_empty();
        items.retain_mut(|item| {
            let found = match *item {
                Item::Value(Value::Object(fields)) => fields.get(name),
                _ => None,
            };
            if let Some(value) = found {
                *item = Item::Value(value);
            }
            found.is_some()
        });
        let missing = items.is_empty() && !was_empty && !self.path.allow_missing_keys;
        let error = missing.then(|| PathError(format!("{name} is not found")));
        (items, error)
    }

    fn filter(&mut self, input: Items<'a>, filter: &'a Filter) -> Outcome<'a> {
        let mut out = Vec::new();
        for item in &input {
            let Item::Value(Value::Array(elements)) = item else {
                let mut text = String::new();
                item.print(&mut text);
                let error = PathError(format!("{text} is not array or slice and cannot be filtered"));
                return (input, Some(error));
            };
            for element in elements {
                let left = self.operand(&filter.left, element);
                if filter.operator == Operator::Exists {
                    // An error that leaves a list behind counts as existing.
                    if !matches!(left, Operand::None | Operand::Failed { empty: true, .. }) {
                        out.push(Item::Value(element));
                    }
                    continue;
                }
                let left = match left {
                    Operand::One(left) => left,
                    Operand::None => continue,
                    Operand::Many => return (input, Some(too_many())),
                    Operand::Failed { error, .. } => return (input, Some(error)),
                };
                let right = match self.operand(&filter.right, element) {
                    Operand::One(right) => right,
                    Operand::None => continue,
                    Operand::Many => return (input, Some(too_many())),
                    Operand::Failed { error, .. } => return (input, Some(error)),
                };
                match compare(left, &filter.operator, right) {
                    Ok(true) => out.push(Item::Value(element)),
                    Ok(false) => {}
                    Err(error) => return (out, Some(error)),
                }
            }
        }
        (out, None)
    }

    /// One side of a comparison; the common forms need no list.
    fn operand(&mut self, steps: &'a [Node], element: &'a Value) -> Operand<'a> {
        match steps {
            [] => Operand::One(Item::Value(element)),
            [Node::Text(text)] => Operand::One(Item::Text(text)),
            [Node::Int(value)] => Operand::One(Item::Int(*value)),
            [Node::Field(name)] if self.path.allow_missing_keys => {
                element.get(name).map_or(Operand::None, |value| Operand::One(Item::Value(value)))
            }
            _ => match self.list(vec![Item::Value(element)], steps) {
                (items, Some(error)) => Operand::Failed { empty: items.is_empty(), error },
                (items, None) => match items.as_slice() {
                    [] => Operand::None,
                    [item] => Operand::One(*item),
                    _ => Operand::Many,
                },
            },
        }
    }
}

enum Operand<'a> {
    None,
    One(Item<'a>),
    Many,
    Failed { empty: bool, error: PathError },
}

fn too_many() -> PathError {
    PathError("can only compare one element at a time".into())
}

fn slice_items(input: Items<'_>, slice: Slice) -> Outcome<'_> {
    let mut out = Vec::new();
    for item in &input {
        let elements = match item {
            Item::Value(Value::Null) => continue,
            Item::Value(Value::Array(elements)) => elements,
            _ => {
                let error = PathError(format!("{} is not array or slice", go_type(*item)));
                return (input, Some(error));
            }
        };
        match bounds(elements.len(), slice) {
            Ok(Some((start, end, step))) => {
                let chosen = elements.get(start..end).unwrap_or_default();
                out.reserve(chosen.len());
                out.extend(chosen.iter().step_by(step).map(Item::Value));
            }
            // Asking for no element ends the step.
            Ok(None) => return (out, None),
            Err(error) => return (input, Some(error)),
        }
    }
    (out, None)
}

/// Start, end and step, or `None` if start equals end.
fn bounds(length: usize, slice: Slice) -> Result<Option<(usize, usize, usize)>, PathError> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let mut start = slice.start.unwrap_or(0);
    if start < 0 {
        start = start.saturating_add(length);
    }
    let mut end = slice.end.unwrap_or(length);
    if end < 0 || (end == 0 && slice.end_is_derived) {
        end = end.saturating_add(length);
    }
    if start == end {
        return Ok(None);
    }
    let out_of_bounds =
        |index: i64| Err(PathError(format!("array index out of bounds: index {index}, length {length}")));
    if start >= length || start < 0 {
        return out_of_bounds(start);
    }
    if end > length || end < 0 {
        return out_of_bounds(end.saturating_sub(1));
    }
    if start > end {
        return Err(PathError(format!("starting index {start} is greater than ending index {end}")));
    }
    let step = slice.step.unwrap_or(1);
    if step <= 0 {
        return Err(PathError("step must be > 0".into()));
    }
    let index = |value: i64| usize::try_from(value).unwrap_or(0);
    Ok(Some((index(start), index(end), index(step))))
}

/// Returns the values that `*` selects from a value.
fn contents(item: Item<'_>) -> Vec<Item<'_>> {
    match item {
        Item::Value(Value::Object(fields)) => fields.values().map(Item::Value).collect(),
        Item::Value(Value::Array(elements)) => elements.iter().map(Item::Value).collect(),
        Item::Value(Value::String(text)) => text.bytes().map(Item::Byte).collect(),
        Item::Text(text) => text.bytes().map(Item::Byte).collect(),
        _ => Vec::new(),
    }
}

/// Appends everything that holds something, outer values first.
fn descend<'a>(item: Item<'a>, out: &mut Items<'a>) {
    let inner = contents(item);
    if !inner.is_empty() {
        out.push(item);
        inner.into_iter().for_each(|item| descend(item, out));
    }
}

fn go_type(item: Item<'_>) -> &'static str {
    match item {
        Item::Value(Value::Object(_)) => "map[string]interface {}",
        Item::Value(Value::Array(_)) => "[]interface {}",
        Item::Value(Value::String(_)) | Item::Text(_) => "string",
        Item::Value(Value::Bool(_)) | Item::Bool(_) => "bool",
        Item::Value(Value::Float(_)) | Item::Float(_) => "float64",
        Item::Value(Value::Int(_)) => "int64",
        Item::Int(_) => "int",
        Item::Byte(_) => "uint8",
        Item::Value(Value::Null) | Item::Nothing => "<nil>",
    }
}

/// The kinds of values that can be compared.
enum Scalar<'a> {
    Bool(bool),
    Int(i64),
    Float(f64),
    String(&'a str),
}

fn basic(item: Item<'_>) -> Result<Scalar<'_>, PathError> {
    Ok(match item {
        Item::Value(Value::Bool(value)) => Scalar::Bool(*value),
        Item::Value(Value::Int(value)) => Scalar::Int(*value),
        Item::Value(Value::Float(value)) => Scalar::Float(value.get()),
        Item::Value(Value::String(value)) => Scalar::String(value),
        Item::Text(value) => Scalar::String(value),
        Item::Int(value) => Scalar::Int(value),
        Item::Float(value) => Scalar::Float(value),
        Item::Bool(value) => Scalar::Bool(value),
        Item::Byte(value) => Scalar::Int(value.into()),
        Item::Value(_) | Item::Nothing => return Err(bad_type()),
    })
}

fn bad_type() -> PathError {
    PathError("invalid type for comparison".into())
}

fn compare(left: Item<'_>, operator: &Operator, right: Item<'_>) -> Result<bool, PathError> {
    if let Operator::Unknown(text) = operator {
        return Err(PathError(format!("unrecognized filter operator {text}")));
    }
    let ordered = !matches!(operator, Operator::Equal | Operator::NotEqual);
    let order = match (basic(left)?, basic(right)?) {
        (Scalar::Bool(_), Scalar::Bool(_)) if ordered => return Err(bad_type()),
        (Scalar::Bool(left), Scalar::Bool(right)) => Some(left.cmp(&right)),
        (Scalar::Int(left), Scalar::Int(right)) => Some(left.cmp(&right)),
        (Scalar::Float(left), Scalar::Float(right)) => left.partial_cmp(&right),
        (Scalar::String(left), Scalar::String(right)) => Some(left.cmp(right)),
        _ => return Err(PathError("incompatible types for comparison".into())),
    };
    let (less, equal) = (order == Some(Ordering::Less), order == Some(Ordering::Equal));
    Ok(match operator {
        Operator::Less => less,
        Operator::LessOrEqual => less || equal,
        Operator::Greater => !(less || equal),
        Operator::GreaterOrEqual => !less,
        Operator::Equal => equal,
        _ => !equal,
    })
}
