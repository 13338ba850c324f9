//! Cached results of loop bodies, for elements that occur again in the next evaluation.

use std::collections::HashMap;

use super::super::Program;
use super::super::node::Node;
use super::super::trace::Tracer;
use super::closed::{ClosedTerm, can_end, closed};
use crate::syntax::ast::ExprId;
use crate::value::{EvalError, Value};

/// Answers that depend on nothing but one element of a list, or a pair of them.
///
/// Belongs to one program, and to one numbering of elements: a number in [`PartialList`](crate::value::PartialList) must
/// denote the same value in every evaluation that uses the memory.
#[derive(Debug, Default)]
pub struct Memory {
    answers: HashMap<Question, Value<'static>>,
    chains: HashMap<(u32, ExprId), u32>,
    closed: HashMap<ExprId, Option<ClosedTerm>>,
    can_end: HashMap<ExprId, bool>,
    bodies_run: u64,
    answers_used: u64,
}

impl Memory {
    /// Number of times a loop body ran on an element.
    pub fn bodies_run(&self) -> u64 {
        self.bodies_run
    }

    /// Number of times a cached result was used instead.
    pub fn answers_used(&self) -> u64 {
        self.answers_used
    }
}

/// A part of the program, and the elements that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    body: ExprId,
    about: [Origin; 2],
}

/// Origin of a variable's value: its derivation and the element.
type Origin = (u32, u32);

const NOWHERE: Origin = (u32::MAX, u32::MAX);

/// Maximum number of cached results.
const ANSWERS_MAX: usize = 1 << 20;

/// The memory during one evaluation.
#[derive(Debug, Default)]
pub(in super::super) struct Recall {
    pub(in super::super) memory: Memory,
    /// Whether bodies that depend on more than their elements are skipped for candidates.
    pub(in super::super) is_quick: bool,
    /// The candidates that the bodies around are about: there they have been drawn.
    pub(in super::super) drawn: Vec<u32>,
    /// Origins of the local variables.
    origins: Vec<Option<Origin>>,
}

impl Recall {
    pub(in super::super) fn new(memory: Memory, is_quick: bool, slot_count: usize) -> Self {
        Recall { memory, is_quick, drawn: Vec::new(), origins: vec![None; slot_count] }
    }

    /// A variable has a value that comes from an element, or does not.
    pub(in super::super) fn bind(&mut self, slot: usize, origin: Option<Origin>) {
        if let Some(bound) = self.origins.get_mut(slot) {
            *bound = origin;
        }
    }

    pub(super) fn closed(&mut self, program: &Program, body: &Node) -> Option<&ClosedTerm> {
        self.memory.closed.entry(body.id).or_insert_with(|| closed(program, body)).as_ref()
    }

    /// Whether a call in the body ends the whole evaluation if its operand fails.
    pub(super) fn can_end(&mut self, program: &Program, body: &Node) -> bool {
        *self.memory.can_end.entry(body.id).or_insert_with(|| can_end(program, body))
    }

    /// Returns the cache key of a body, if its result can be cached.
    pub(super) fn question(&mut self, program: &Program, body: &Node) -> Option<Question> {
        let slots = self.closed(program, body)?.slots;
        let mut about = [NOWHERE; 2];
        for (origin, slot) in about.iter_mut().zip(slots.into_iter().flatten()) {
            *origin = (*self.origins.get(slot)?)?;
        }
        Some(Question { body: body.id, about })
    }

    pub(super) fn answer(&mut self, question: &Question) -> Option<Value<'static>> {
        let answer = self.memory.answers.get(question)?.clone();
        self.memory.answers_used = self.memory.answers_used.saturating_add(1);
        Some(answer)
    }

    pub(super) fn count_body(&mut self) {
        self.memory.bodies_run = self.memory.bodies_run.saturating_add(1);
    }

    pub(super) fn remember(&mut self, question: Question, answer: &Value<'_>) {
        let is_plain = matches!(
            answer,
            Value::Null
                | Value::Bool(_)
                | Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
                | Value::Opaque(_)
                | Value::Error(_)
        );
        if is_plain && self.memory.answers.len() < ANSWERS_MAX {
            self.memory.answers.insert(question, answer.clone().into_owned());
        }
    }

    /// Extends a derivation by a body that maps a value to a value.
    pub(super) fn chain(&mut self, from: u32, body: ExprId) -> u32 {
        let next = u32::try_from(self.memory.chains.len()).unwrap_or(u32::MAX).saturating_add(1);
        *self.memory.chains.entry((from, body)).or_insert(next)
    }
}

impl<'a> Tracer<'a> for Recall {
    const ENABLED: bool = false;

    fn record(&mut self, _id: ExprId, _cost: u64, _result: &Result<Value<'a>, EvalError>) {}

    fn recall(&mut self) -> Option<&mut Recall> {
        Some(self)
    }
}
