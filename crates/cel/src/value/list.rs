//! Lists: borrowed from the program, shared, or kept by the host.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::bounds::check_elements;
use super::host::{HostData, HostList, ListShape};
use super::{EvalError, Value};

/// A list of values.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Borrowed, for instance a constant of the program.
    Borrowed(&'a [Value<'a>]),
    /// Shared.
    Shared(Arc<Vec<Value<'a>>>),
    /// Kept by the host.
    Host(&'a dyn HostList),
    /// A part of the host's data, and how to read it.
    Shaped(&'a HostData, &'a dyn ListShape),
    /// Shared, with the meaning that lists of a shape have: the sum of two sets is a set.
    Meant(Arc<Vec<Value<'a>>>, &'a dyn ListShape),
}

impl<'a> List<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            List::Borrowed(elements) => elements.len(),
            List::Shared(elements) | List::Meant(elements, _) => elements.len(),
            List::Host(list) => list.len(),
            List::Shaped(data, shape) => shape.len(*data),
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Borrowed(elements) => elements.get(index).cloned(),
            List::Shared(elements) | List::Meant(elements, _) => elements.get(index).cloned(),
            List::Host(list) => list.get(index),
            List::Shaped(data, shape) => shape.get(*data, index),
        }
    }

    /// All elements in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Null))
    }

    /// Calls `visit` for each element in order, until it breaks.
    pub fn for_each(&self, mut visit: impl FnMut(Value<'a>) -> ControlFlow<()>) {
        let elements = match self {
            List::Borrowed(elements) => elements,
            List::Shared(elements) | List::Meant(elements, _) => elements.as_slice(),
            List::Shaped(data, shape) => return shape.for_each(*data, &mut visit),
            List::Host(list) => {
                _ = (0..list.len()).try_for_each(|index| visit(list.get(index).unwrap_or(Value::Null)));
                return;
            }
        };
        _ = elements.iter().try_for_each(|element| visit(element.clone()));
    }

    /// The elements as a vector.
    pub fn to_vec(&self) -> Vec<Value<'a>> {
        match self {
            List::Borrowed(elements) => elements.to_vec(),
            List::Shared(elements) | List::Meant(elements, _) => elements.as_ref().clone(),
            List::Host(_) | List::Shaped(..) => self.iter().collect(),
        }
    }

    /// The shape that gives the list its own semantics.
    pub(super) fn shape(&self) -> Option<&'a dyn ListShape> {
        match self {
            List::Shaped(_, shape) | List::Meant(_, shape) => Some(*shape),
            _ => None,
        }
    }

    /// Whether the list has its own rule of equality.
    pub(crate) fn has_meaning(&self) -> bool {
        self.shape().is_some()
    }

    /// `this + other`
    pub fn concat(&self, other: &Value<'a>) -> Result<Value<'a>, EvalError> {
        if let Some(shape) = self.shape()
            && let Some(answer) = shape.concat(self, other)
        {
            return answer.map(|elements| Value::List(List::Meant(Arc::new(elements), shape)));
        }
        match other {
            Value::List(other) if self.is_empty() => Ok(Value::List(other.clone())),
            Value::List(other) if other.is_empty() => Ok(Value::List(self.clone())),
            Value::List(other) => {
                let length = self.len().saturating_add(other.len());
                check_elements(length)?;
                let mut elements = Vec::with_capacity(length);
                elements.extend(self.iter());
                elements.extend(other.iter());
                Ok(Value::list(elements))
            }
            _ => Err(EvalError::no_such_overload()),
        }
    }

    /// Appends an element, in place if the list is not shared.
    #[must_use]
    pub fn push(self, element: Value<'a>) -> List<'a> {
        let mut elements = match self {
            List::Shared(mut shared) => {
                if let Some(unique) = Arc::get_mut(&mut shared) {
                    unique.push(element);
                    return List::Shared(shared);
                }
                shared.as_ref().clone()
            }
            other => other.to_vec(),
        };
        elements.push(element);
        List::Shared(Arc::new(elements))
    }
}
