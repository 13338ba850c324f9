//! Typed tree → plan → value.
//!
//! A [`Program`] is planned once and evaluated many times, from many threads. There is one evaluator: it meters
//! its cost, stops at a limit or when interrupted, and evaluates as far as possible where input is unknown.

mod activation;
mod attribute;
mod call;
mod collect;
mod fold;
mod machine;
mod memory;
mod node;
mod partial;
mod planner;
mod sink;
mod trace;

use std::fmt;

pub use activation::{Activation, Bindings, EmptyActivation};
use machine::{Machine, Slot};
use node::{Kind, Node};
pub use partial::Memory;
use partial::Recall;
pub use sink::{ListEvaluation, ListSink};
use trace::NoTrace;
pub use trace::{Step, Trace};

use crate::checker::TypedAst;
use crate::types::Type;
pub use crate::value::Verdict;
use crate::value::{EvalError, Value};

/// An expression that is ready to run.
#[derive(Debug)]
pub struct Program {
    root: Node,
    /// First values of accumulators that are computed only when they are read.
    lazies: Vec<Node>,
    slot_count: usize,
    result_type: Type,
    presence_test_has_cost: bool,
    error_on_bad_presence_test: bool,
}

/// A checked expression cannot be planned, because one of its constant parts fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(pub(crate) EvalError);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for PlanError {}

/// Limits of an evaluation.
#[derive(Clone, Copy)]
pub struct Limits<'l> {
    /// The evaluation ends with an error when it has cost more than this.
    pub cost: u64,
    /// Called periodically; the evaluation ends with an error when it returns true.
    pub interrupt: Option<&'l (dyn Fn() -> bool + Sync)>,
}

impl Limits<'_> {
    /// No limits.
    pub const NONE: Limits<'static> = Limits { cost: u64::MAX, interrupt: None };

    /// A limit on the cost.
    pub const fn cost(cost: u64) -> Limits<'static> {
        Limits { cost, interrupt: None }
    }
}

/// Result and cost of an evaluation.
#[derive(Clone, Debug)]
pub struct Evaluation<'a> {
    /// The value, or why there is none.
    pub result: Result<Value<'a>, EvalError>,
    /// Cost of the evaluation, whether it succeeded or failed.
    pub cost: u64,
}

impl Evaluation<'_> {
    /// Returns the possible results of a predicate over all completions of partly known input.
    ///
    /// The verdict of an evaluation that was stopped by a limit does not cover completions.
    pub fn verdict(&self) -> Verdict {
        verdict_of(&self.result)
    }
}

#[cold]
fn verdict_of(result: &Result<Value<'_>, EvalError>) -> Verdict {
    match result {
        Ok(value) => value.verdict().shown(),
        Err(fatal) if fatal.is_fatal() => Verdict::ANY,
        Err(_) => Verdict::ERROR,
    }
}

/// Thoroughness of an evaluation on partly known input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Loop bodies that also read other elements run only on members, not on candidates.
    Quick,
    /// Bodies of loops run on all that the list can have.
    Full,
}

/// Programs with at most this many local variables need no memory from the heap to run.
const INLINE_SLOTS: usize = 8;

/// Most programs have so few that clearing more would show.
const FEW_SLOTS: usize = 2;

impl Program {
    /// Plans a checked expression.
    pub fn new(typed: &TypedAst) -> Result<Program, PlanError> {
        planner::plan(typed)
    }

    /// Evaluates without limits.
    pub fn eval<'a>(&'a self, input: &'a dyn Activation) -> Evaluation<'a> {
        self.eval_within(input, Limits::NONE)
    }

    /// Evaluates within limits.
    pub fn eval_within<'a>(&'a self, input: &'a dyn Activation, limits: Limits<'_>) -> Evaluation<'a> {
        if self.slot_count == 0 {
            Machine::new(self, input, limits, &mut [], NoTrace).evaluate(&self.root)
        } else {
            self.with_slots(|slots| Machine::new(self, input, limits, slots, NoTrace).evaluate(&self.root))
        }
    }

    /// Returns the same verdict as [`Evaluation::verdict`], but faster.
    pub fn verdict_within(&self, input: &dyn Activation, limits: Limits<'_>) -> Verdict {
        if self.slot_count == 0 {
            Machine::new(self, input, limits, &mut [], NoTrace).judge_root(&self.root)
        } else {
            self.with_slots(|slots| Machine::new(self, input, limits, slots, NoTrace).judge_root(&self.root))
        }
    }

    /// Evaluates within limits on partly known input, such as a [`PartialList`](crate::value::PartialList) list; caches the
    /// results of loop bodies for its elements.
    pub fn eval_partial<'a>(
        &'a self,
        input: &'a dyn Activation,
        limits: Limits<'_>,
        memory: &mut Memory,
        effort: Effort,
    ) -> Evaluation<'a> {
        self.with_slots(|slots| {
            let recall = Recall::new(std::mem::take(memory), effort == Effort::Quick, self.slot_count);
            let mut machine = Machine::new(self, input, limits, slots, recall);
            let evaluation = machine.evaluate(&self.root);
            *memory = machine.into_tracer().memory;
            evaluation
        })
    }

    /// Evaluates within limits. A list that the expression builds is passed to the sink, element by element,
    /// and is never in memory as a whole; so are lists that are its elements. The cost is that of
    /// [`eval_within`](Self::eval_within).
    pub fn eval_list<'a>(
        &'a self,
        input: &'a dyn Activation,
        limits: Limits<'_>,
        sink: &mut dyn ListSink,
    ) -> ListEvaluation<'a> {
        let Kind::Collect(collect) = &self.root.kind else {
            let Evaluation { result, cost } = self.eval_within(input, limits);
            return ListEvaluation { result: result.map(Some), cost };
        };
        self.with_slots(|slots| {
            let mut machine = Machine::new(self, input, limits, slots, NoTrace);
            let result = machine.list(collect, sink).map(|unknown| unknown.map(|unknown| *unknown));
            ListEvaluation { result, cost: machine.cost() }
        })
    }

    /// Evaluates within limits, and reports the value of each part of the expression that was evaluated.
    pub fn trace<'a>(&'a self, input: &'a dyn Activation, limits: Limits<'_>) -> (Evaluation<'a>, Trace<'a>) {
        self.with_slots(|slots| {
            let mut machine = Machine::new(self, input, limits, slots, Trace::default());
            (machine.evaluate(&self.root), machine.into_tracer())
        })
    }

    /// Whether the expression builds a list, so that [`eval_list`](Self::eval_list) saves memory.
    pub fn makes_list(&self) -> bool {
        matches!(self.root.kind, Kind::Collect(_))
    }

    /// Whether a call in the expression ends the whole evaluation if its operand fails: no other operand of
    /// `&&` or `||`, and no other round of a loop, absorbs that error. Then the order of evaluation decides
    /// whether there is an error.
    pub fn can_end_early(&self) -> bool {
        partial::can_end(self, &self.root)
    }

    /// The type of the program's value.
    pub fn result_type(&self) -> &Type {
        &self.result_type
    }

    /// Size of the program in bytes, including the text of its constants.
    pub fn memory_bytes(&self) -> usize {
        let lazies: usize = self.lazies.iter().map(Node::memory_bytes).sum();
        size_of::<Program>().saturating_add(self.root.memory_bytes()).saturating_add(lazies)
    }

    /// Allocates the local variables. A separate function, so that programs without any do not pay for it.
    #[inline(never)]
    fn with_slots<'a, R>(&self, run: impl FnOnce(&mut [Slot<'a>]) -> R) -> R {
        if self.slot_count <= FEW_SLOTS {
            run(&mut [const { Slot::Unset }; FEW_SLOTS])
        } else if self.slot_count <= INLINE_SLOTS {
            run(&mut [const { Slot::Unset }; INLINE_SLOTS])
        } else {
            let mut many = Vec::new();
            many.resize_with(self.slot_count, || Slot::Unset);
            run(&mut many)
        }
    }
}
