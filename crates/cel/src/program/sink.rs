//! Sinks for lists that are printed and not kept.

use crate::value::{EvalError, Value};

/// Takes a list element by element. An element that is itself a list comes as one, between a begin and an end of its own,
/// or as a value, whichever is faster.
///
/// The received elements are void if the evaluation does not end with the list.
pub trait ListSink {
    /// A list begins.
    fn begin(&mut self);

    /// The next element.
    fn element(&mut self, value: &Value<'_>);

    /// The list that began last is complete.
    fn end(&mut self);
}

/// Result of an evaluation whose list was passed to a [`ListSink`].
#[derive(Clone, Debug)]
pub struct ListEvaluation<'a> {
    /// The value or the error. `None` stands for the list that the sink received; if there is a value, the sink
    /// is not used.
    pub result: Result<Option<Value<'a>>, EvalError>,
    /// Cost of the evaluation, whether it succeeded or failed.
    pub cost: u64,
}
