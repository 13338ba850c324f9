//! The first set of devices, in canonical order, that satisfies one constraint.
//!
//! The search of an allocation for one request with one constraint, without all other conditions: for
//! measurements, for explanations, and for comparison with an exhaustive search.

use cel::program::{Memory, Verdict};
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::device::Device;

use super::meter::{Meter, Run};
use super::outlook::{Outlooks, Pool};
use super::pruning::PlacedDevice;

/// Result of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// This set satisfies the constraint: positions in the list of devices.
    Found(Vec<usize>),
    /// No set does.
    None,
    /// The expression failed on this set, before any set was found.
    Failed(Vec<usize>),
    /// The limit on cost was reached.
    TooCostly,
}

/// A search for the first set.
#[derive(Debug)]
pub struct FirstSet<'s> {
    expression: &'s CompiledExpression,
    devices: &'s [&'s Device],
    cost_limit: u64,
    outlooks: Option<Outlooks>,
    memory: Memory,
    /// Evaluations so far.
    pub meter: Meter,
    /// Number of partial and complete sets visited.
    pub visits: u64,
}

impl<'s> FirstSet<'s> {
    /// A search among devices in canonical order. Without outlooks it tries every set.
    #[must_use]
    pub fn new(
        expression: &'s CompiledExpression,
        devices: &'s [&'s Device],
        cost_limit: u64,
        outlooks: Option<Outlooks>,
    ) -> Self {
        FirstSet {
            expression,
            devices,
            cost_limit,
            outlooks,
            memory: Memory::default(),
            meter: Meter::default(),
            visits: 0,
        }
    }

    /// Looks for a set of this many devices.
    pub fn run(&mut self, count: usize) -> Outcome {
        let mut chosen = Vec::with_capacity(count);
        self.from(&mut chosen, 0, count).unwrap_or(Outcome::None)
    }

    /// Continues from the chosen devices; `None` if every completion is false.
    fn from(&mut self, chosen: &mut Vec<usize>, start: usize, places: usize) -> Option<Outcome> {
        self.visits = self.visits.saturating_add(1);
        let devices = self.devices;
        let seen: Vec<&Device> = chosen.iter().filter_map(|index| devices.get(*index).copied()).collect();
        if places == 0 {
            let verdict = self.meter.run(self.expression, &mut self.memory, &Run::Whole(&seen));
            return match verdict {
                _ if self.meter.cost > self.cost_limit => Some(Outcome::TooCostly),
                Verdict::TRUE => Some(Outcome::Found(chosen.clone())),
                Verdict::FALSE => None,
                _ => Some(Outcome::Failed(chosen.clone())),
            };
        }
        if devices.len().saturating_sub(start) < places {
            return None;
        }
        if let Some(outlooks) = &mut self.outlooks {
            let placed = |at: usize| devices.get(at).map(|device| PlacedDevice { at, device });
            let chosen: Vec<PlacedDevice<'_>> = chosen.iter().filter_map(|at| placed(*at)).collect();
            let pool = Pool { places, candidates: (start..devices.len()).filter_map(placed).collect() };
            let verdict = outlooks.judge(self.expression, &chosen, &[pool], &mut self.meter);
            if self.meter.cost > self.cost_limit {
                return Some(Outcome::TooCostly);
            }
            if verdict.is_never_but_false() {
                return None;
            }
        }
        for index in start..devices.len() {
            chosen.push(index);
            let outcome = self.from(chosen, index.saturating_add(1), places.saturating_sub(1));
            chosen.pop();
            if outcome.is_some() {
                return outcome;
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "tests")]
mod tests;
