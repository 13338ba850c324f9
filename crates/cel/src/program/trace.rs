//! Traces: the results of an expression's parts, for explanations.
//!
//! Tracing is a type parameter of the one evaluator: without it, nothing of it is compiled in.

use super::partial::Recall;
use crate::syntax::ast::ExprId;
use crate::value::{EvalError, Value};

/// Receives each part of an expression that was evaluated.
pub(super) trait Tracer<'a> {
    /// Whether anything is recorded.
    const ENABLED: bool;

    /// Records the result of a part of the expression.
    fn record(&mut self, id: ExprId, cost: u64, result: &Result<Value<'a>, EvalError>);

    /// Results cached from other evaluations.
    #[inline(always)]
    fn recall(&mut self) -> Option<&mut Recall> {
        None
    }
}

/// Records nothing.
pub(super) struct NoTrace;

impl Tracer<'_> for NoTrace {
    const ENABLED: bool = false;

    fn record(&mut self, _id: ExprId, _cost: u64, _result: &Result<Value<'_>, EvalError>) {}
}

/// A part of an expression and its result.
#[derive(Clone, Debug)]
pub struct Step<'a> {
    /// The part, in the tree that the program was planned from.
    pub id: ExprId,
    /// Cost of the evaluation up to this step.
    pub cost: u64,
    /// Value of the part, or its error.
    pub result: Result<Value<'a>, EvalError>,
}

/// All parts that were evaluated, in the order in which they were done; a loop's body appears once per round.
#[derive(Clone, Debug, Default)]
pub struct Trace<'a> {
    steps: Vec<Step<'a>>,
    omitted: usize,
}

/// Maximum number of recorded steps; further ones are only counted.
const STEPS_MAX: usize = 10_000;

impl<'a> Trace<'a> {
    /// The steps, in the order in which they were done.
    pub fn steps(&self) -> &[Step<'a>] {
        &self.steps
    }

    /// Number of steps that were not recorded.
    pub fn omitted(&self) -> usize {
        self.omitted
    }

    /// The last value of a part.
    pub fn last(&self, id: ExprId) -> Option<&Step<'a>> {
        self.steps.iter().rev().find(|step| step.id == id)
    }
}

impl<'a> Tracer<'a> for Trace<'a> {
    const ENABLED: bool = true;

    fn record(&mut self, id: ExprId, cost: u64, result: &Result<Value<'a>, EvalError>) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(Step { id, cost, result: result.clone() });
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
    }
}
