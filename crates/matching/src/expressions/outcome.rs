//! Outcomes of expressions, and the one function that runs programs and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cel::program::Activation;
use cel::value::{ErrorKind, Value};
use cel_kubernetes::compile::{CompiledExpression, not_a_bool};

/// Outcome of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// True.
    Yes,
    /// False.
    No,
    /// No result, which counts as false.
    Failed(Arc<Failure>),
}

/// An evaluation without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Category, for metrics.
    pub reason: Reason,
    /// Message of the evaluator.
    pub message: Box<str>,
}

/// Category of a failure, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The cost limit was exceeded.
    CostLimit,
    /// A key, field or index is missing.
    Missing,
    /// A value has not the form that is needed.
    Conversion,
    /// A number is beyond its range, or divided by zero.
    Arithmetic,
    /// The result is neither true nor false.
    NotABool,
    /// Any other reason.
    Other,
    /// The budget of the attempt did not permit an evaluation. Not a failure of the expression: neither counted
    /// nor cached.
    Budget,
}

impl Reason {
    /// All reasons that are counted.
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
            Reason::Budget => "budget",
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

    /// Returns the failure of the expression itself; `None` if only the budget of the attempt was used up.
    pub fn own_failure(&self) -> Option<&Failure> {
        self.failure().filter(|failure| failure.reason != Reason::Budget)
    }

    /// No answer, because the budget of the attempt is spent.
    pub(super) fn over_budget() -> Self {
        let message = "not evaluated: the budget of the attempt is spent".into();
        Outcome::Failed(Arc::new(Failure { reason: Reason::Budget, message }))
    }

    /// Returns the failure, if there is one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Outcome::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// Counters of the expressions of a cache.
#[derive(Debug, Default)]
pub(super) struct Counters {
    evaluations: AtomicU64,
    cost: AtomicU64,
    hits: AtomicU64,
    /// Verdicts that all expressions remember together.
    kept: AtomicU64,
    failures: [AtomicU64; Reason::ALL.len()],
}

/// Counters of the expressions of a cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Number of evaluations.
    pub evaluations: u64,
    /// Total cost of the evaluations.
    pub cost: u64,
    /// Number of cached outcomes used.
    pub hits: u64,
    /// Number of failures by reason.
    pub failures: Vec<(Reason, u64)>,
}

impl Counters {
    /// Runs a program: its outcome and cost.
    pub(super) fn run(&self, compiled: &CompiledExpression, input: &dyn Activation) -> (Outcome, u64) {
        let evaluation = compiled.eval(input);
        let cost = evaluation.cost;
        add(&self.evaluations, 1);
        add(&self.cost, cost);
        let (reason, message): (Reason, Box<str>) = match evaluation.result {
            Ok(Value::Bool(true)) => return (Outcome::Yes, cost),
            Ok(Value::Bool(false)) => return (Outcome::No, cost),
            Ok(other) => (Reason::NotABool, not_a_bool(&other).unwrap_or_default().into()),
            Err(error) => (Reason::of(error.kind()), error.to_string().into()),
        };
        if let Some(counter) = self.failures.get(reason as usize) {
            add(counter, 1);
        }
        (Outcome::Failed(Arc::new(Failure { reason, message })), cost)
    }

    /// Verdicts were added.
    pub(super) fn keep(&self, count: usize) {
        add(&self.kept, count as u64);
    }

    /// Subtracts removed verdicts.
    pub(super) fn forget(&self, count: usize) {
        self.kept.fetch_sub(count as u64, Ordering::Relaxed);
    }

    /// Number of verdicts that all expressions remember together.
    pub(super) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Counts the use of a cached outcome.
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
