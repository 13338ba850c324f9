//! Walks over documents along their shape: one file per question.
//!
//! Shared parts: the kind of a value among those that a shape permits, and the step to an item of a list.
//! Follows `typed/helpers.go` of structured-merge-diff.

mod compare;
mod fields;
mod merge;
mod reconcile;
mod remove;
mod validate;

use api::go_text;
use api::json::{Text, Value};

pub use self::compare::{Comparison, compare};
pub use self::fields::field_set;
pub use self::merge::merge;
pub use self::reconcile::{name_members, reconcile};
pub use self::remove::{extract, remove};
pub use self::validate::{Duplicates, Errors, validate};
use super::element::Element;
use super::shape::{Atom, Keys, List, Map, Relation, Scalar};

/// Treatment of a value.
#[derive(Debug, Clone, Copy)]
enum ValueKind<'s> {
    Map(Map<'s>),
    Scalar(Scalar),
    List(List<'s>),
    /// The schema does not know the place.
    Nothing,
}

impl ValueKind<'_> {
    fn kind(&self) -> u8 {
        match self {
            ValueKind::Map(_) => 0,
            ValueKind::Scalar(_) => 1,
            ValueKind::List(_) => 2,
            ValueKind::Nothing => 3,
        }
    }
}

/// Chooses the treatment of a value, and whether the value itself decided that.
fn choose<'s>(atom: &Atom<'s>, value: Option<&Value>) -> (ValueKind<'s>, bool) {
    match (value, atom.scalar, atom.list, atom.map) {
        (Some(Value::Object(_)), _, _, Some(map)) => (ValueKind::Map(map), true),
        (Some(Value::Array(_)), _, Some(list), _) => (ValueKind::List(list), true),
        (Some(Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::String(_)), Some(scalar), _, _) => {
            (ValueKind::Scalar(scalar), true)
        }
        (_, _, _, Some(map)) => (ValueKind::Map(map), false),
        (_, Some(scalar), _, _) => (ValueKind::Scalar(scalar), false),
        (_, _, Some(list), _) => (ValueKind::List(list), false),
        _ => (ValueKind::Nothing, false),
    }
}

/// Whether two values of one place are handled as the same: where the schema leaves only one kind, they always are.
fn alike(atom: &Atom<'_>, left: (ValueKind<'_>, bool), right: (ValueKind<'_>, bool)) -> bool {
    let kinds = [atom.scalar.is_some(), atom.list.is_some(), atom.map.is_some()];
    kinds.into_iter().filter(|it| *it).count() <= 1 || left.1 == right.1 && left.0.kind() == right.0.kind()
}

/// The step to an item of a list that is a set or a map.
fn element_of(list: &List<'_>, item: &Value) -> Result<Element, String> {
    match list.relation {
        Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        Relation::Map(keys) => key_of(list, keys, item),
        Relation::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            scalar => Ok(Element::Value(scalar.clone())),
        },
    }
}

fn key_of(list: &List<'_>, keys: Keys<'_>, item: &Value) -> Result<Element, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found: Vec<(Text, Value)> = Vec::new();
    for name in keys.names() {
        let value = match fields.get(name) {
            Some(value) => Some(value.clone()),
            None => match list.element.atom().map {
                Some(map) => map.key_default(name),
                None => {
                    let why = "associative list may not have non-map types";
                    return Err(format!("couldn't find default value for {name}: {why}"));
                }
            },
        };
        found.extend(value.map(|value| (Text::from(name), value)));
    }
    if found.is_empty() && keys.names().next().is_some() {
        let names: Vec<String> = keys.names().map(go_text::quote).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] \
             (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(Element::Key(found))
}
