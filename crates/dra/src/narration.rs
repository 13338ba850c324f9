//! Steps of a search with set constraints, for the log lines of KEP-5254.
//!
//! Recorded only on request: a search has many steps. Steps beyond the first thousand are counted.

use std::sync::Arc;

/// A step of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The set is not whole yet.
    Collecting {
        /// Number of devices that the request has.
        current: i64,
        /// Number of devices that it needs.
        expected: i64,
    },
    /// No completion of the set can satisfy the expression.
    Cut {
        /// The devices so far.
        devices: String,
    },
    /// The set is whole.
    Evaluating {
        /// The constraint.
        expression: Arc<str>,
        /// The set.
        devices: String,
    },
    /// The set is not the one.
    NotSatisfied {
        /// Cost of the evaluation.
        actual_cost: u64,
    },
}

/// The steps of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Narration {
    /// The first of them.
    pub steps: Vec<Step>,
    /// Number of omitted steps.
    pub omitted: u64,
    /// The largest set that was not rejected at once, as a list of devices.
    pub best: String,
    best_count: usize,
}

/// More steps are not kept.
const STEPS_MAX: usize = 1000;

impl Narration {
    /// Appends the steps of another search.
    pub fn extend(&mut self, more: Narration) {
        for step in more.steps {
            self.add(|| step);
        }
        self.omitted = self.omitted.saturating_add(more.omitted);
        self.reach(more.best_count, || more.best);
    }

    /// A set of this many devices may be completed.
    pub(crate) fn reach(&mut self, count: usize, devices: impl FnOnce() -> String) {
        if count > self.best_count {
            self.best_count = count;
            self.best = devices();
        }
    }

    pub(crate) fn add(&mut self, step: impl FnOnce() -> Step) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step());
        } else {
            self.omitted = self.omitted.saturating_add(1);
        }
    }
}
