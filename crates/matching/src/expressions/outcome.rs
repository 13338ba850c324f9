//! What an expression says, and the one function that runs programs and counts what they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::program::Activation;
use cel::value::{ErrorKind, Value};
use cel_kubernetes::compile::{Compiled, not_a_bool};

/// What an expression says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Yes,
    /// It does not.
    No,
    /// It has no answer, which counts as no.
    Failed(Arc<Failure>),
}

/// Why an expression has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In few words, for metrics.
    pub reason: Reason,
    /// What the evaluator says.
    pub message: Box<str>,
}

/// Why an expression has no answer, in few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// It would have cost too much.
    CostLimit,
    /// A key, field or index is missing.
    Missing,
    /// A value has not the form that is needed.
    Conversion,
    /// A number is beyond its range, or divided by zero.
    Arithmetic,
    /// The result is neither true nor false.
    NotABool,
    /// Something else.
    Other,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 6] =
        [Reason::CostLimit, Reason::Missing, Reason::Conversion, Reason::Arithmetic, Reason::NotABool, Reason::Other];

    /// The value of the label in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Reason::CostLimit => "cost_limit",
            Reason::Missing => "missing",
            Reason::Conversion => "conversion",
            Reason::Arithmetic => "arithmetic",
            Reason::NotABool => "not_a_bool",
            Reason::Other => "other",
        }
    }

    fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NoSuchKey | ErrorKind::NoSuchIndex | ErrorKind::NoSuchAttribute => Reason::Missing,
            ErrorKind::Conversion => Reason::Conversion,
            ErrorKind::Overflow | ErrorKind::DivideByZero => Reason::Arithmetic,
            ErrorKind::CostLimit | ErrorKind::TooLarge => Reason::CostLimit,
            _ => Reason::Other,
        }
    }
}

impl Outcome {
    /// Whether it holds.
    pub fn holds(&self) -> bool {
        *self == Outcome::Yes
    }

    /// Why there is no answer.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// What the expressions of a cache did so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    evaluations: AtomicU64,
    cost: AtomicU64,
    hits: AtomicU64,
    failures: [AtomicU64; Reason::ALL.len()],
}

/// What the expressions of a cache did so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// How often a program was run.
    pub evaluations: u64,
    /// What that cost.
    pub cost: u64,
    /// How often a remembered outcome was used.
    pub hits: u64,
    /// How often there was no answer, by reason.
    pub failures: Vec<(Reason, u64)>,
}

impl Counters {
    /// Runs a program.
    pub(super) fn run(&self, compiled: &Compiled, input: &dyn Activation) -> Outcome {
        let evaluation = compiled.eval(input);
        add(&self.evaluations, 1);
        add(&self.cost, evaluation.cost);
        let (reason, message): (Reason, Box<str>) = match evaluation.result {
            Ok(Value::Bool(true)) => return Outcome::Yes,
            Ok(Value::Bool(false)) => return Outcome::No,
            Ok(other) => (Reason::NotABool, not_a_bool(&other).unwrap_or_default().into()),
            Err(error) => (Reason::of(error.kind()), error.to_string().into()),
        };
        if let Some(counter) = self.failures.get(reason as usize) {
            add(counter, 1);
        }
        Outcome::Failed(Arc::new(Failure { reason, message }))
    }

    /// A remembered outcome was used.
    pub(super) fn hit(&self) {
        add(&self.hits, 1);
    }

    pub(super) fn counts(&self) -> Counts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            evaluations: read(&self.evaluations),
            cost: read(&self.cost),
            hits: read(&self.hits),
            failures: Reason::ALL.into_iter().zip(self.failures.iter().map(read)).collect(),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
