//! The one place where set constraints are evaluated and metered.

use cel::program::{Effort, Limits, Memory, Verdict};
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::{Devices, PartialDevices};

/// Input of an evaluation.
#[derive(Debug)]
pub enum Run<'r> {
    /// A whole set, in canonical order.
    Whole(&'r [&'r Device]),
    /// A set of which a part is chosen.
    Partial(&'r PartialDevices<'r>, Effort),
}

/// Number and total cost of evaluations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meter {
    /// Runs on whole sets.
    pub whole: u64,
    /// Runs on partial sets. Bodies of loops in them ran on single devices and pairs.
    pub partial: u64,
    /// Number of cached results of loop bodies that were used.
    pub remembered: u64,
    /// The metered cost of all runs.
    pub cost: u64,
}

/// Cost limit of one evaluation on a partial set.
const PARTIAL_COST_MAX: u64 = 1_000_000;

impl Meter {
    /// Runs an expression.
    pub fn run(&mut self, expression: &CompiledExpression, memory: &mut Memory, run: &Run<'_>) -> Verdict {
        let (verdict, cost) = match run {
            Run::Whole(devices) => {
                self.whole = self.whole.saturating_add(1);
                let devices = Devices(devices);
                let evaluation = expression.eval(&devices);
                let verdict = match &evaluation.result {
                    Err(_) => Verdict::ERROR,
                    Ok(_) => evaluation.verdict(),
                };
                (verdict, evaluation.cost)
            }
            Run::Partial(devices, effort) => {
                self.partial = self.partial.saturating_add(1);
                let before = memory.answers_used();
                let answer = expression.possible(*devices, Limits::cost(PARTIAL_COST_MAX), memory, *effort);
                let used = memory.answers_used().saturating_sub(before);
                self.remembered = self.remembered.saturating_add(used);
                answer
            }
        };
        self.cost = self.cost.saturating_add(cost);
        verdict
    }
}
