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

/// Below this many sets, trying each is cheaper than looking ahead.
pub const EXHAUSTIVE_BELOW: u64 = 200;

/// Most searches end before this many sets were looked at; only then is it worth the while to look at each candidate of each of them.
const JUDGED_BEFORE_LEAVING: u64 = 32;

/// A device and the number that stands for it.
pub(crate) type Numbered<'d> = (u32, &'d Device);

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

#[derive(Debug)]
struct Left {
    chosen: Vec<u32>,
    places: usize,
    /// What could be chosen there. Another search may have others.
    pool: BTreeSet<u32>,
    candidates: BTreeSet<u32>,
}

/// What a request still has to choose.
#[derive(Debug, Clone)]
pub struct Pool<'d> {
    /// How many devices.
    pub places: usize,
    /// From which, without repetition.
    pub candidates: Vec<&'d Device>,
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
    /// `chosen_first`: the devices that are chosen stand before all others, in their order. The devices must stay where they are in memory
    /// as long as this is used.
    pub fn judge(
        &mut self,
        expression: &Compiled,
        chosen: &[&Device],
        pools: &[Pool<'_>],
        chosen_first: bool,
        meter: &mut Meter,
    ) -> Verdict {
        if chosen.is_empty() {
            let count = |pool: &Pool<'_>| combinations(pool.candidates.len(), pool.places);
            self.is_small = pools.iter().map(count).fold(1, u64::saturating_mul) < self.exhaustive_below;
        }
        if self.is_small {
            return Verdict::ANY;
        }
        let chosen: Vec<Numbered<'_>> = chosen.iter().map(|device| (self.number(device), *device)).collect();
        let mut numbered: Vec<(usize, Vec<Numbered<'_>>)> = Vec::with_capacity(pools.len());
        for pool in pools {
            let candidates = pool.candidates.iter().map(|device| (self.number(device), *device)).collect();
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
        let numbers = |sets: &Sets<'_>| -> BTreeSet<u32> {
            sets.pools.iter().flat_map(|(_, candidates)| candidates).map(|(number, _)| *number).collect()
        };
        // Those that left before are part of what could be chosen.
        let left_before = self.left.iter().flat_map(|left| left.candidates.iter().copied());
        let pool: BTreeSet<u32> = numbers(sets).into_iter().chain(left_before).collect();
        let mut gone = BTreeSet::new();
        let is_hopeless = sets.let_leave(&mut gone, &mut self.memory, meter);
        if let [(places, _)] = sets.pools.as_slice()
            && !gone.is_empty()
        {
            let chosen = sets.chosen.iter().map(|(number, _)| *number).collect();
            self.left.push(Left { chosen, places: *places, pool, candidates: gone });
        }
        is_hopeless
    }

    fn number(&mut self, device: &Device) -> u32 {
        let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(std::ptr::from_ref(device).addr()).or_insert(next)
    }

    /// Leaves out what has left in a set that this one goes on from; true if that decides.
    fn forget_left(&mut self, sets: &mut Sets<'_>) -> bool {
        let [(places, candidates)] = sets.pools.as_mut_slice() else { return false };
        let chosen: Vec<u32> = sets.chosen.iter().map(|(number, _)| *number).collect();
        let goes_on = |left: &Left| {
            let mut here = chosen.iter().skip(left.chosen.len()).chain(candidates.iter().map(|(number, _)| number));
            chosen.starts_with(&left.chosen)
                && left.places.checked_sub(*places) == chosen.len().checked_sub(left.chosen.len())
                && here.all(|number| left.pool.contains(number))
        };
        while self.left.last().is_some_and(|left| !goes_on(left)) {
            self.left.pop();
        }
        let has_left = |number: &u32| self.left.iter().any(|left| left.candidates.contains(number));
        // What was chosen before stays, also where another with the same content has left.
        let is_chosen =
            |left: &Left| chosen.iter().skip(left.chosen.len()).any(|number| left.candidates.contains(number));
        if self.left.iter().any(is_chosen) {
            return true;
        }
        candidates.retain(|(number, _)| !has_left(number));
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
        let taken = |number: &u32| more.iter().any(|(taken, _)| taken == number);
        let candidates = self.pools.iter().flat_map(|(_, candidates)| candidates.iter().copied());
        let candidates = candidates.filter(|(number, _)| !taken(number));
        let front = if self.chosen_first { self.chosen.len() } else { 0 };
        let chosen = self.chosen.iter().chain(more).copied();
        let devices = PartialDevices::new(chosen, candidates, places..=places, front);
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
        if in_pools.filter(|(number, _)| *number == candidate.0).count() > 1 {
            return Verdict::ANY;
        }
        self.ask(&[candidate], Effort::Quick, memory, meter)
    }

    /// Lets candidates leave with which every completion is false, until none does; true if too few stay.
    fn let_leave(&mut self, gone: &mut BTreeSet<u32>, memory: &mut Memory, meter: &mut Meter) -> bool {
        loop {
            let mut has_left = false;
            for at in 0..self.pools.len() {
                let candidates = self.pools.get(at).map(|(_, candidates)| candidates.clone()).unwrap_or_default();
                for candidate in candidates {
                    if self.ask_with(at, candidate, memory, meter).is_never_but_false() {
                        has_left = true;
                        gone.insert(candidate.0);
                        if self.leave(at, candidate.0) {
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
    fn leave(&mut self, pool: usize, number: u32) -> bool {
        match self.pools.get_mut(pool) {
            Some((places, candidates)) => {
                candidates.retain(|(other, _)| *other != number);
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
