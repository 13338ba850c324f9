//! Verdicts by projection, at most this many.
//!
//! Two generations: what was asked for since the last change of generations is kept, the rest goes. Readers share a lock.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{PoisonError, RwLock};

use super::outcome::{Counters, Outcome};

/// How many verdicts a generation holds.
const GENERATION_MAX: usize = 4096;

/// Verdicts by projection.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    generations: RwLock<Generations>,
}

type Table = HashMap<Box<[u8]>, Outcome, BuildHasherDefault<Mixer>>;

#[derive(Debug, Default)]
struct Generations {
    young: Table,
    old: Table,
}

impl Verdicts {
    /// The verdict that was given before, or a new one.
    pub(super) fn get_or_insert(
        &self,
        projection: &[u8],
        counters: &Counters,
        evaluate: impl FnOnce() -> Outcome,
    ) -> Outcome {
        let found = {
            let generations = self.generations.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(verdict) = generations.young.get(projection) {
                counters.hit();
                return verdict.clone();
            }
            generations.old.get(projection).cloned()
        };
        if found.is_some() {
            counters.hit();
        }
        let verdict = found.unwrap_or_else(evaluate);
        let mut generations = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        if generations.young.len() >= GENERATION_MAX {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(projection.into(), verdict.clone());
        verdict
    }

    /// How many verdicts there are.
    pub(super) fn len(&self) -> usize {
        let generations = self.generations.read().unwrap_or_else(PoisonError::into_inner);
        let only_old = generations.old.keys().filter(|key| !generations.young.contains_key(*key)).count();
        generations.young.len().saturating_add(only_old)
    }
}

/// A fast hash for keys whose number is bounded: who makes them collide makes only their own lookups slow.
#[derive(Debug, Default, Clone, Copy)]
struct Mixer(u64);

/// From the fractional part of the golden ratio: an odd number without pattern.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Mixer {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word).wrapping_mul(u128::from(MULTIPLIER));
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.mix(u64::from_le_bytes(last));
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64 | 1 << 63);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(holds: bool) -> Outcome {
        if holds { Outcome::Yes } else { Outcome::No }
    }

    #[test]
    fn a_verdict_is_given_once() {
        let (verdicts, counters) = (Verdicts::default(), Counters::default());
        assert!(verdicts.get_or_insert(b"a", &counters, || of(true)).holds());
        assert!(verdicts.get_or_insert(b"a", &counters, || panic!("evaluated twice")).holds());
        assert!(!verdicts.get_or_insert(b"b", &counters, || of(false)).holds());
        assert_eq!((verdicts.len(), counters.counts().hits), (2, 1));
    }

    #[test]
    fn the_number_of_verdicts_is_bounded_and_what_is_used_stays() {
        let (verdicts, counters) = (Verdicts::default(), Counters::default());
        for number in 0..20_000_u32 {
            verdicts.get_or_insert(&number.to_le_bytes(), &counters, || of(number % 2 == 0));
            verdicts.get_or_insert(b"often", &counters, || of(number == 0));
        }
        assert!(verdicts.len() <= 2 * GENERATION_MAX);
        assert!(verdicts.get_or_insert(b"often", &counters, || panic!("was used all the time")).holds());
    }
}
