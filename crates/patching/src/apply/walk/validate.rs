//! Validation of a document against its shape.
//!
//! Follows `typed/validate.go` of structured-merge-diff, whose texts users see when they apply something wrong.

use api::json::Value;

use super::{ValueKind, choose, element_of};
use crate::apply::element::Element;
use crate::apply::shape::{Relation, Scalar, Shape};
use crate::apply::values;

/// The rule for items of sets and maps that occur twice, as they may in objects that are stored already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Duplicates {
    Allowed,
    Refused,
}

/// Mismatches, each with its path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Errors(Vec<(String, String)>);

impl Errors {
    fn push(&mut self, path: &[Element], message: impl Into<String>) {
        self.0.push((crate::apply::element::path_text(path), message.into()));
    }

    /// Whether everything fits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for Errors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |(path, message): &(String, String)| match path.as_str() {
            "" => message.clone(),
            path => format!("{path}: {message}"),
        };
        match self.0.as_slice() {
            [one] => f.write_str(&show(one)),
            all => {
                f.write_str("errors:")?;
                all.iter().try_for_each(|error| write!(f, "\n  {}", show(error)))
            }
        }
    }
}

/// Holds a document against its shape.
///
/// # Errors
/// The mismatches.
pub fn validate(shape: Shape<'_>, value: &Value, duplicates: Duplicates) -> Result<(), Errors> {
    let mut walk = Walk { errors: Errors::default(), path: Vec::new(), duplicates };
    walk.value(shape, value);
    if walk.errors.is_empty() { Ok(()) } else { Err(walk.errors) }
}

struct Walk {
    errors: Errors,
    path: Vec<Element>,
    duplicates: Duplicates,
}

impl Walk {
    fn fail(&mut self, message: impl Into<String>) {
        self.errors.push(&self.path, message);
    }

    fn value(&mut self, shape: Shape<'_>, value: &Value) {
        match (choose(&shape.atom(), Some(value)).0, value) {
            (_, Value::Null) => {}
            (ValueKind::Scalar(scalar), _) => {
                if let Some(complaint) = misfit(scalar, value) {
                    self.fail(complaint);
                }
            }
            (ValueKind::List(list), Value::Array(items)) => self.list(list, items),
            (ValueKind::List(_), other) => self.fail(format!("expected list, got &{{{}}}", values::plain(other))),
            (ValueKind::Map(map), Value::Object(fields)) => {
                for (key, value) in fields.iter() {
                    self.path.push(Element::Field(key.into()));
                    match map.field_or_element(key) {
                        Some(shape) => self.value(shape, value),
                        None => {
                            self.fail("field not declared in schema");
                            self.path.pop();
                            // The library stops at the first.
                            return;
                        }
                    }
                    self.path.pop();
                }
            }
            (ValueKind::Map(_), other) => self.fail(format!("expected map, got &{{{}}}", values::plain(other))),
            (ValueKind::Nothing, _) => self.fail("schema error: invalid atom: inlined"),
        }
    }

    fn list(&mut self, list: crate::apply::shape::List<'_>, items: &[Value]) {
        let mut seen = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let element = if matches!(list.relation, Relation::Atomic) {
                Element::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match element_of(&list, item) {
                    Ok(element) => element,
                    Err(why) => return self.fail(format!("element {index}: {why}")),
                }
            };
            if !matches!(list.relation, Relation::Atomic) && self.duplicates == Duplicates::Refused {
                seen.push(element.clone());
            }
            self.path.push(element);
            self.value(list.element, item);
            self.path.pop();
        }
        seen.sort();
        let repeated = seen.windows(2).filter_map(|pair| match pair {
            [left, right] if left == right => Some(left.clone()),
            _ => None,
        });
        for element in repeated.collect::<Vec<_>>() {
            self.fail(format!("duplicate entries for key {element}"));
        }
    }
}

/// Returns the error of a value that is not such a scalar.
fn misfit(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (Scalar::Numeric, Value::Int(_) | Value::Float(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Untyped, Value::Int(_) | Value::Float(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Numeric, other) => {
            Some(format!("expected numeric (int or float), got {}", api::go_text::type_name(other)))
        }
        (Scalar::String, other) => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", values::syntax(other)))
        }
        (Scalar::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", values::plain(other))),
        (Scalar::Untyped, other) => Some(format!("expected any scalar, got &{{{}}}", values::plain(other))),
    }
}
