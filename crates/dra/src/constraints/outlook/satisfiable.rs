//! Existence of any set, searched in the order of the attributes that the expression reads.
//!
//! Names do not reflect the position of a device. In the order of the attributes that an expression reads,
//! related devices are adjacent, and most unsuitable sets are rejected by their first devices. Only for
//! expressions that are independent of the order and cannot fail: then it does not matter which set is found.

use std::collections::BTreeSet;

use cel::program::{Effort, Memory, Verdict};
use cel::value::{HostObject, Map, Value};
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices;
use cel_kubernetes::order::is_indifferent_to_order;
use cel_kubernetes::reads::{ELEMENT, Reads};

use super::{NumberedDevice, Outlooks, Sets};
use crate::constraints::meter::{Meter, Run};

/// Number of partial sets after which candidates are removed at each of them, and number after which the search
/// is abandoned.
const VISITS_BEFORE_LEAVING: u64 = 500;
const VISITS_MAX: u64 = 5_000;

/// Static properties of an expression.
#[derive(Debug)]
pub(super) struct Analysis {
    is_indifferent: bool,
    /// Attributes that it reads: the steps below the device.
    reads: Vec<Vec<Box<str>>>,
    /// Whether a search in this order was abandoned.
    is_hard: bool,
}

impl Analysis {
    fn of(expression: &CompiledExpression) -> Analysis {
        let typed = expression.typed();
        let reads = Reads::of(typed);
        let below = |path: &[Box<str>]| match path {
            [_, element, below @ ..] if element.as_ref() == ELEMENT => Some(below.to_vec()),
            _ => None,
        };
        Analysis {
            is_indifferent: is_indifferent_to_order(typed, devices::VARIABLE),
            reads: reads.paths().filter_map(below).collect(),
            is_hard: false,
        }
    }
}

/// A search for any set.
struct Search<'s, 'd> {
    expression: &'d CompiledExpression,
    memory: &'s mut Memory,
    meter: &'s mut Meter,
    visits: u64,
    chosen: Vec<NumberedDevice<'d>>,
}

impl Outlooks {
    /// Whether some completion is true; nothing where that was not found out.
    pub(super) fn is_satisfiable(&mut self, sets: &Sets<'_>, verdict: Verdict, meter: &mut Meter) -> Option<bool> {
        let [(places, candidates)] = sets.pools.as_slice() else { return None };
        let analysis = self.analysis.get_or_insert_with(|| Analysis::of(sets.expression));
        if !analysis.is_indifferent || analysis.is_hard || verdict.can_be(Verdict::ERROR | Verdict::OTHER) {
            return None;
        }
        let ordered = in_order_of(candidates, &analysis.reads)?;
        let mut search = Search {
            expression: sets.expression,
            memory: &mut self.memory,
            meter,
            visits: 0,
            chosen: sets.chosen.clone(),
        };
        let found = search.any(&ordered, *places);
        analysis.is_hard |= found.is_none();
        found
    }
}

impl<'d> Search<'_, 'd> {
    /// Whether there is a set; `None` if the search was abandoned.
    fn any(&mut self, candidates: &[NumberedDevice<'d>], places: usize) -> Option<bool> {
        self.visits = self.visits.saturating_add(1);
        if self.visits > VISITS_MAX {
            return None;
        }
        if places == 0 {
            let devices: Vec<&Device> = self.chosen.iter().map(|chosen| chosen.device).collect();
            let verdict = self.meter.run(self.expression, self.memory, &Run::Whole(&devices));
            return match verdict {
                Verdict::TRUE => Some(true),
                Verdict::FALSE => Some(false),
                _ => None,
            };
        }
        let mut sets = Sets {
            expression: self.expression,
            chosen: self.chosen.clone(),
            pools: vec![(places, candidates.to_vec())],
            chosen_first: false,
        };
        match sets.ask(&[], Effort::Full, self.memory, self.meter) {
            Verdict::TRUE => return Some(true),
            verdict if verdict.is_never_but_false() => return Some(false),
            verdict if verdict.can_be(Verdict::ERROR | Verdict::OTHER) => return None,
            _ => {}
        }
        let is_hard = self.visits > VISITS_BEFORE_LEAVING && places > 1;
        if is_hard && sets.let_leave(&mut BTreeSet::new(), self.memory, self.meter) {
            return Some(false);
        }
        let candidates = sets.pools.pop().map(|(_, candidates)| candidates).unwrap_or_default();
        let mut rest = candidates.as_slice();
        while let Some((first, others)) = rest.split_first() {
            if rest.len() < places {
                break;
            }
            self.chosen.push(*first);
            let found = self.any(others, places.saturating_sub(1));
            self.chosen.pop();
            if found != Some(false) {
                return found;
            }
            rest = others;
        }
        Some(false)
    }
}

/// The candidates in the order of the numbers that are read of all of them; nothing if there are none, or that is their order anyway.
fn in_order_of<'d>(candidates: &[NumberedDevice<'d>], reads: &[Vec<Box<str>>]) -> Option<Vec<NumberedDevice<'d>>> {
    let mut columns: Vec<Vec<i64>> = reads
        .iter()
        .filter_map(|path| candidates.iter().map(|it| number_at(it.device, path)).collect::<Option<Vec<_>>>())
        .collect();
    columns.sort_by_key(|column| std::cmp::Reverse(column.iter().collect::<BTreeSet<_>>().len()));
    if columns.is_empty() {
        return None;
    }
    let key = |index: usize| columns.iter().map(|column| column.get(index).copied()).collect::<Vec<_>>();
    let mut keyed: Vec<(Vec<Option<i64>>, NumberedDevice<'d>)> =
        candidates.iter().enumerate().map(|(index, candidate)| (key(index), *candidate)).collect();
    if keyed.is_sorted_by(|(a, _), (b, _)| a <= b) {
        return None;
    }
    keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(keyed.into_iter().map(|(_, candidate)| candidate).collect())
}

/// The number at the end of a path.
fn number_at(device: &Device, path: &[Box<str>]) -> Option<i64> {
    let (field, rest) = path.split_first()?;
    let mut value = device.get(field)?;
    for key in rest {
        value = match &value {
            Value::Map(map) => Map::get(map, &Value::str(key))?,
            _ => return None,
        };
    }
    match value {
        Value::Int(number) => Some(number),
        _ => None,
    }
}
