//! Possible results of the completions of a partial set.
//!
//! First the expression is evaluated on the partial set. Then each candidate is tried: one with which every
//! completion is false is removed, until none is removed any more; with fewer candidates than open places every
//! completion is false. If the expression is independent of the order of devices and cannot fail, the rest is
//! searched once more in the order of the attributes that it reads.

mod satisfiable;

use std::collections::{BTreeSet, HashMap};

use cel::program::{Effort, Memory, Verdict};
use cel_kubernetes::compile::CompiledExpression;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::PartialDevices;

use super::meter::{Meter, Run};
use super::pruning::{PlacedDevice, stand_before};

/// Below this many sets, trying each is cheaper than looking ahead.
pub const EXHAUSTIVE_BELOW: u64 = 200;

/// Number of sets after which candidates are tried one by one: most searches end earlier, and do not need it.
const JUDGED_BEFORE_LEAVING: u64 = 32;

/// A device, its position in canonical order, and a number that identifies its properties.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedDevice<'d> {
    at: usize,
    number: u32,
    device: &'d Device,
}

/// State of an expression during one search.
#[derive(Debug)]
pub struct Outlooks {
    /// Below this many sets, each is tried.
    exhaustive_below: u64,
    memory: Memory,
    /// Numbers of devices, by where they are in memory.
    numbers: HashMap<usize, u32>,
    /// Whether there are so few sets that each is tried.
    is_small: bool,
    /// Number of sets that were neither complete nor decided at once.
    judged: u64,
    /// Candidates that have left, by the set in which they did.
    left: Vec<RemovedCandidates>,
    analysis: Option<satisfiable::Analysis>,
}

/// Removed candidates, by position.
#[derive(Debug)]
struct RemovedCandidates {
    chosen: Vec<usize>,
    places: usize,
    /// The candidates there. Another search may have others.
    pool: BTreeSet<usize>,
    candidates: BTreeSet<usize>,
}

/// Open choice of a request.
#[derive(Debug, Clone)]
pub struct Pool<'d> {
    /// Number of devices to choose.
    pub places: usize,
    /// Candidates in canonical order, without repetition.
    pub candidates: Vec<PlacedDevice<'d>>,
}

impl Default for Outlooks {
    fn default() -> Self {
        Outlooks::new(EXHAUSTIVE_BELOW)
    }
}

impl Outlooks {
    /// Looks ahead only where there are this many sets.
    #[must_use]
    pub fn new(exhaustive_below: u64) -> Self {
        Outlooks {
            exhaustive_below,
            memory: Memory::default(),
            numbers: HashMap::new(),
            is_small: false,
            judged: 0,
            left: Vec::new(),
            analysis: None,
        }
    }

    /// Returns the possible results of a set's completions.
    ///
    /// The chosen devices are in canonical order. The devices must not move in memory as long as this is used.
    pub fn judge(
        &mut self,
        expression: &CompiledExpression,
        chosen: &[PlacedDevice<'_>],
        pools: &[Pool<'_>],
        meter: &mut Meter,
    ) -> Verdict {
        if chosen.is_empty() {
            let count = |pool: &Pool<'_>| combinations(pool.candidates.len(), pool.places);
            self.is_small = pools.iter().map(count).fold(1, u64::saturating_mul) < self.exhaustive_below;
        }
        if self.is_small {
            return Verdict::ANY;
        }
        let chosen_first = pools.iter().all(|pool| stand_before(chosen, &pool.candidates));
        let chosen: Vec<NumberedDevice<'_>> = chosen.iter().map(|device| self.number(*device)).collect();
        let mut numbered: Vec<(usize, Vec<NumberedDevice<'_>>)> = Vec::with_capacity(pools.len());
        for pool in pools {
            let candidates = pool.candidates.iter().map(|device| self.number(*device)).collect();
            numbered.push((pool.places, candidates));
        }
        let mut sets = Sets { expression, chosen, pools: numbered, chosen_first };
        if self.forget_left(&mut sets) {
            return Verdict::FALSE;
        }
        let verdict = sets.ask(&[], Effort::Full, &mut self.memory, meter);
        if verdict.is_never_but_false() || sets.places() < 2 {
            return verdict;
        }
        self.judged = self.judged.saturating_add(1);
        let judged_before = JUDGED_BEFORE_LEAVING.min(self.exhaustive_below);
        if (sets.chosen.is_empty() || self.judged > judged_before) && self.let_leave(&mut sets, meter) {
            return Verdict::FALSE;
        }
        match self.is_satisfiable(&sets, verdict, meter) {
            Some(false) => Verdict::FALSE,
            _ => verdict,
        }
    }

    /// Removes candidates, and records them; returns true if too few remain.
    fn let_leave(&mut self, sets: &mut Sets<'_>, meter: &mut Meter) -> bool {
        let candidates = sets.pools.iter().flat_map(|(_, candidates)| candidates).map(|candidate| candidate.at);
        // Candidates removed earlier were part of the choice.
        let left_before = self.left.iter().flat_map(|left| left.candidates.iter().copied());
        let pool: BTreeSet<usize> = candidates.chain(left_before).collect();
        let mut gone = BTreeSet::new();
        let is_hopeless = sets.let_leave(&mut gone, &mut self.memory, meter);
        if let [(places, _)] = sets.pools.as_slice()
            && !gone.is_empty()
        {
            let chosen = sets.chosen.iter().map(|device| device.at).collect();
            self.left.push(RemovedCandidates { chosen, places: *places, pool, candidates: gone });
        }
        is_hopeless
    }

    fn number<'d>(&mut self, PlacedDevice { at, device }: PlacedDevice<'d>) -> NumberedDevice<'d> {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(std::ptr::from_ref(device).addr()).or_insert(next);
        NumberedDevice { at, number, device }
    }

    /// Removes the candidates that were removed for a subset of this set; returns true if that decides.
    fn forget_left(&mut self, sets: &mut Sets<'_>) -> bool {
        let [(places, candidates)] = sets.pools.as_mut_slice() else { return false };
        let chosen: Vec<usize> = sets.chosen.iter().map(|device| device.at).collect();
        let goes_on = |left: &RemovedCandidates| {
            let mut here =
                chosen.iter().skip(left.chosen.len()).chain(candidates.iter().map(|candidate| &candidate.at));
            chosen.starts_with(&left.chosen)
                && left.places.checked_sub(*places) == chosen.len().checked_sub(left.chosen.len())
                && here.all(|at| left.pool.contains(at))
        };
        while self.left.last().is_some_and(|left| !goes_on(left)) {
            self.left.pop();
        }
        let has_left = |at: &usize| self.left.iter().any(|left| left.candidates.contains(at));
        // Devices chosen before stay.
        let is_chosen =
            |left: &RemovedCandidates| chosen.iter().skip(left.chosen.len()).any(|at| left.candidates.contains(at));
        if self.left.iter().any(is_chosen) {
            return true;
        }
        candidates.retain(|candidate| !has_left(&candidate.at));
        candidates.len() < *places
    }
}

/// The sets that are left to choose from.
#[derive(Debug)]
struct Sets<'d> {
    expression: &'d CompiledExpression,
    chosen: Vec<NumberedDevice<'d>>,
    pools: Vec<(usize, Vec<NumberedDevice<'d>>)>,
    chosen_first: bool,
}

impl<'d> Sets<'d> {
    fn places(&self) -> usize {
        self.pools.iter().fold(0, |places, (more, _)| places.saturating_add(*more))
    }

    /// Returns the possible results of completions.
    fn ask(&self, more: &[NumberedDevice<'d>], effort: Effort, memory: &mut Memory, meter: &mut Meter) -> Verdict {
        let places = self.places().saturating_sub(more.len());
        let is_taken = |candidate: &&NumberedDevice<'_>| more.iter().any(|taken| taken.at == candidate.at);
        let candidates = self.pools.iter().flat_map(|(_, candidates)| candidates).filter(|it| !is_taken(it));
        let front = if self.chosen_first { self.chosen.len() } else { 0 };
        let chosen = self.chosen.iter().chain(more);
        let seen = |it: &NumberedDevice<'d>| (it.number, it.device);
        let devices = PartialDevices::new(chosen.map(seen), candidates.map(seen), places..=places, front);
        meter.run(self.expression, memory, &Run::Partial(&devices, effort))
    }

    /// Returns the possible results of completions with a candidate.
    fn ask_with(&self, pool: usize, candidate: NumberedDevice<'d>, memory: &mut Memory, meter: &mut Meter) -> Verdict {
        match self.pools.get(pool) {
            Some((1.., _)) => {}
            // No devices are chosen from this pool.
            _ => return Verdict::ANY,
        }
        // A device that several requests can have may be had by each of them.
        let in_pools = self.pools.iter().flat_map(|(_, candidates)| candidates);
        if in_pools.filter(|other| other.at == candidate.at).count() > 1 {
            return Verdict::ANY;
        }
        self.ask(&[candidate], Effort::Quick, memory, meter)
    }

    /// Removes candidates with which every completion is false, until none is left; returns true if too few
    /// remain.
    fn let_leave(&mut self, gone: &mut BTreeSet<usize>, memory: &mut Memory, meter: &mut Meter) -> bool {
        loop {
            let mut has_left = false;
            for at in 0..self.pools.len() {
                let candidates = self.pools.get(at).map(|(_, candidates)| candidates.clone()).unwrap_or_default();
                for candidate in candidates {
                    if self.ask_with(at, candidate, memory, meter).is_never_but_false() {
                        has_left = true;
                        gone.insert(candidate.at);
                        if self.leave(at, candidate.at) {
                            return true;
                        }
                    }
                }
            }
            if !has_left {
                return false;
            }
        }
    }

    /// Removes a candidate; returns true if too few remain.
    fn leave(&mut self, pool: usize, at: usize) -> bool {
        match self.pools.get_mut(pool) {
            Some((places, candidates)) => {
                candidates.retain(|other| other.at != at);
                candidates.len() < *places
            }
            None => false,
        }
    }
}

/// Number of ways to choose `count` of a number of things.
pub fn combinations(of: usize, count: usize) -> u64 {
    if count > of {
        return 0;
    }
    let (of, count) = (of as u64, count.min(of.saturating_sub(count)) as u64);
    let mut all = 1_u64;
    for index in 0..count {
        let next = u128::from(all).saturating_mul(u128::from(of.saturating_sub(index)));
        let next = next.checked_div(u128::from(index).saturating_add(1)).unwrap_or_default();
        all = u64::try_from(next).unwrap_or(u64::MAX);
    }
    all
}
