//! Lists: borrowed from the program, shared, or kept by the host.

use std::sync::Arc;

use super::{HostList, Value};

/// A list of values.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Borrowed, for instance a constant of the program.
    Borrowed(&'a [Value<'a>]),
    /// Shared.
    Shared(Arc<Vec<Value<'a>>>),
    /// Kept by the host.
    Host(&'a dyn HostList),
}

impl<'a> List<'a> {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self {
            List::Borrowed(elements) => elements.len(),
            List::Shared(elements) => elements.len(),
            List::Host(list) => list.len(),
        }
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            List::Borrowed(elements) => elements.get(index).cloned(),
            List::Shared(elements) => elements.get(index).cloned(),
            List::Host(list) => list.get(index),
        }
    }

    /// All elements in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Value<'a>> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index).unwrap_or(Value::Null))
    }

    /// The elements as a vector.
    pub fn to_vec(&self) -> Vec<Value<'a>> {
        match self {
            List::Borrowed(elements) => elements.to_vec(),
            List::Shared(elements) => elements.as_ref().clone(),
            List::Host(_) => self.iter().collect(),
        }
    }

    /// Adds an element at the end: in place if nobody else holds the list.
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
