//! The look ahead that searches use: partial evaluation of the expression itself.

use std::collections::HashMap;

use cel::program::Verdict;

use super::meter::Meter;
use super::outlook::{EXHAUSTIVE_BELOW, Outlooks, Pool};
use super::pruning::{Outlook, PartialSet, Pruning};

/// Looks ahead by partial evaluation, during one search: expressions and devices must stay where they are in memory.
#[derive(Debug)]
pub struct LookAhead {
    exhaustive_below: u64,
    /// State of each expression, by its address in memory.
    expressions: HashMap<usize, Outlooks>,
    meter: Meter,
}

impl Default for LookAhead {
    fn default() -> Self {
        LookAhead::new(EXHAUSTIVE_BELOW)
    }
}

impl LookAhead {
    /// Looks ahead only where there are this many sets.
    #[must_use]
    pub fn new(exhaustive_below: u64) -> Self {
        LookAhead { exhaustive_below, expressions: HashMap::new(), meter: Meter::default() }
    }

    /// A look-ahead for one search, in the form of [`NewPruning`](crate::attempt::NewPruning).
    #[must_use]
    pub fn boxed() -> Box<dyn Pruning> {
        Box::new(LookAhead::default())
    }

    /// Evaluations so far.
    #[must_use]
    pub fn meter(&self) -> Meter {
        self.meter
    }
}

impl Pruning for LookAhead {
    fn look_ahead(&mut self, set: &PartialSet<'_>) -> (Outlook, u64) {
        let at = std::ptr::from_ref(set.expression).addr();
        let outlooks = self.expressions.entry(at).or_insert_with(|| Outlooks::new(self.exhaustive_below));
        let pools: Vec<Pool<'_>> =
            set.open.iter().map(|open| Pool { places: open.places, candidates: open.candidates.to_vec() }).collect();
        let before = self.meter.cost;
        let verdict = outlooks.judge(set.expression.compiled(), set.chosen, &pools, &mut self.meter);
        let outlook = Outlook {
            may_hold: verdict.can_be(Verdict::TRUE),
            may_fail: verdict.can_be(Verdict::ERROR | Verdict::OTHER),
        };
        (outlook, self.meter.cost.saturating_sub(before))
    }

    fn patience(&self) -> u64 {
        self.exhaustive_below.min(64)
    }
}
