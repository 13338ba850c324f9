//! What the completions of a partial set can come to.
//!
//! First the expression itself is asked, on the set as far as it is chosen. Then each candidate is tried: one with which every completion
//! is false leaves, until none leaves any more; with fewer candidates than open places every completion is false. Where the expression
//! does not care for the order of devices and cannot fail, the whole rest is searched once more in the order of what it reads.

mod satisfiable;

use std::collections::{BTreeSet, HashMap};

use cel::program::{Effort, Memory, Verdict};
use cel_kubernetes::compile::Compiled;
use cel_kubernetes::environments::device::Device;
use cel_kubernetes::environments::devices::PartialDevices;

use super::meter::{Meter, Run};
use super::pruning::{Placed, stand_before};

/// Below this many sets, trying each is cheaper than looking ahead.
pub const EXHAUSTIVE_BELOW: u64 = 200;

/// Most searches end before this many sets were looked at; only then is it worth the while to look at each candidate of each of them.
const JUDGED_BEFORE_LEAVING: u64 = 32;

/// A device, where it stands in canonical order, and the number that stands for all that is seen of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered<'d> {
    at: usize,
    number: u32,
    device: &'d Device,
}

/// What is known about an expression, during one search.
#[derive(Debug)]
pub struct Outlooks {
    /// Below this many sets, each is tried.
    exhaustive_below: u64,
    memory: Memory,
    /// Numbers of devices, by where they are in memory.
    numbers: HashMap<usize, u32>,
    /// There are so few sets that each is tried.
    is_small: bool,
    /// How many sets were neither whole nor told at once.
    judged: u64,
    /// Candidates that have left, by the set in which they did.
    left: Vec<Left>,
    analysis: Option<satisfiable::Analysis>,
}

/// Candidates that have left, by where they stand.
#[derive(Debug)]
struct Left {
    chosen: Vec<usize>,
    places: usize,
    /// What could be chosen there. Another search may have others.
    pool: BTreeSet<usize>,
    candidates: BTreeSet<usize>,
}

/// What a request still has to choose.
#[derive(Debug, Clone)]
pub struct Pool<'d> {
    /// How many devices.
    pub places: usize,
    /// From which, in canonical order, without repetition.
    pub candidates: Vec<Placed<'d>>,
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

    /// What the completions of a set can come to.
    ///
    /// Those that are chosen are in canonical order. The devices must stay where they are in memory as long as this is used.
    pub fn judge(
        &mut self,
        expression: &Compiled,
        chosen: &[Placed<'_>],
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
        let chosen: Vec<Numbered<'_>> = chosen.iter().map(|device| self.number(*device)).collect();
        let mut numbered: Vec<(usize, Vec<Numbered<'_>>)> = Vec::with_capacity(pools.len());
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

    /// Lets candidates leave, and remembers which; true if too few stay.
    fn let_leave(&mut self, sets: &mut Sets<'_>, meter: &mut Meter) -> bool {
        let candidates = sets.pools.iter().flat_map(|(_, candidates)| candidates).map(|candidate| candidate.at);
        // Those that left before are part of what could be chosen.
        let left_before = self.left.iter().flat_map(|left| left.candidates.iter().copied());
        let pool: BTreeSet<usize> = candidates.chain(left_before).collect();
        let mut gone = BTreeSet::new();
        let is_hopeless = sets.let_leave(&mut gone, &mut self.memory, meter);
        if let [(places, _)] = sets.pools.as_slice()
            && !gone.is_empty()
        {
            let chosen = sets.chosen.iter().map(|device| device.at).collect();
            self.left.push(Left { chosen, places: *places, pool, candidates: gone });
        }
        is_hopeless
    }

    fn number<'d>(&mut self, Placed { at, device }: Placed<'d>) -> Numbered<'d> {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(std::ptr::from_ref(device).addr()).or_insert(next);
        Numbered { at, number, device }
    }

    /// Leaves out what has left in a set that this one goes on from; true if that decides.
    fn forget_left(&mut self, sets: &mut Sets<'_>) -> bool {
        let [(places, candidates)] = sets.pools.as_mut_slice() else { return false };
        let chosen: Vec<usize> = sets.chosen.iter().map(|device| device.at).collect();
        let goes_on = |left: &Left| {
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
        // What was chosen before stays.
        let is_chosen = |left: &Left| chosen.iter().skip(left.chosen.len()).any(|at| left.candidates.contains(at));
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
    expression: &'d Compiled,
    chosen: Vec<Numbered<'d>>,
    pools: Vec<(usize, Vec<Numbered<'d>>)>,
    chosen_first: bool,
}

impl<'d> Sets<'d> {
    fn places(&self) -> usize {
        self.pools.iter().fold(0, |places, (more, _)| places.saturating_add(*more))
    }

    /// What completions can come to.
    fn ask(&self, more: &[Numbered<'d>], effort: Effort, memory: &mut Memory, meter: &mut Meter) -> Verdict {
        let places = self.places().saturating_sub(more.len());
        let is_taken = |candidate: &&Numbered<'_>| more.iter().any(|taken| taken.at == candidate.at);
        let candidates = self.pools.iter().flat_map(|(_, candidates)| candidates).filter(|it| !is_taken(it));
        let front = if self.chosen_first { self.chosen.len() } else { 0 };
        let chosen = self.chosen.iter().chain(more);
        let seen = |it: &Numbered<'d>| (it.number, it.device);
        let devices = PartialDevices::new(chosen.map(seen), candidates.map(seen), places..=places, front);
        meter.run(self.expression, memory, &Run::Partial(&devices, effort))
    }

    /// What completions with a candidate can come to.
    fn ask_with(&self, pool: usize, candidate: Numbered<'d>, memory: &mut Memory, meter: &mut Meter) -> Verdict {
        match self.pools.get(pool) {
            Some((1.., _)) => {}
            // Nothing is drawn from there.
            _ => return Verdict::ANY,
        }
        // A device that several requests can have may be had by each of them.
        let in_pools = self.pools.iter().flat_map(|(_, candidates)| candidates);
        if in_pools.filter(|other| other.at == candidate.at).count() > 1 {
            return Verdict::ANY;
        }
        self.ask(&[candidate], Effort::Quick, memory, meter)
    }

    /// Lets candidates leave with which every completion is false, until none does; true if too few stay.
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

    /// A candidate leaves; true if too few stay.
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

/// How many ways there are to choose some of a number of things.
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
