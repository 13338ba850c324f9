//! Where lists go that are printed and forgotten.

use crate::value::{EvalError, Value};

/// Takes a list element by element. An element that is itself a list comes as one, between a begin and an end of its own,
/// or as a value, whichever is faster.
///
/// What it was given is void if the evaluation does not end with the list.
pub trait ListSink {
    /// A list begins.
    fn begin(&mut self);

    /// The next element.
    fn element(&mut self, value: &Value<'_>);

    /// The list that began last is complete.
    fn end(&mut self);
}

/// What an evaluation came to whose list went to a [`ListSink`].
#[derive(Clone, Debug)]
pub struct ListEvaluation<'a> {
    /// The value, or why there is none. Nothing stands for the list that the sink has; where there is a value, the sink is not needed.
    pub result: Result<Option<Value<'a>>, EvalError>,
    /// What it cost, whether there is a value or not.
    pub cost: u64,
}
