//! Verdicts by projection, at most this many.
//!
//! Two generations: verdicts used since the last change of generations are kept, the others are dropped.
//! Readers share a lock.

use locks::RwLock;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use api::hash::Mixer;

use super::outcome::{Counters, Outcome};

/// Maximum number of verdicts in a generation.
const GENERATION_MAX: usize = 4096;

/// Maximum number of verdicts in a generation once all expressions together cache [`KEPT_MAX`] verdicts: pods
/// keep their expressions alive, and a cluster may have thousands of pods with dozens each.
const GENERATION_MIN: usize = 16;

/// Number of verdicts of all expressions, some 60 MB, above which each expression caches only a few.
const KEPT_MAX: u64 = 500_000;

/// Verdicts by projection.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    generations: RwLock<Generations>,
}

/// The number of keys is bounded, and collisions slow down only the lookups of their author.
type Table = HashMap<Box<[u8]>, Outcome, BuildHasherDefault<Mixer>>;

#[derive(Debug, Default)]
struct Generations {
    young: Table,
    old: Table,
}

impl Verdicts {
    /// The verdict that was given before, or a new one; nothing if none can be given now.
    pub(super) fn get_or_insert(
        &self,
        projection: &[u8],
        counters: &Counters,
        evaluate: impl FnOnce() -> Option<Outcome>,
    ) -> Option<Outcome> {
        let found = {
            let generations = self.generations.read();
            if let Some(verdict) = generations.young.get(projection) {
                counters.hit();
                return Some(verdict.clone());
            }
            generations.old.get(projection).cloned()
        };
        if found.is_some() {
            counters.hit();
        }
        let verdict = found.or_else(evaluate)?;
        let mut generations = self.generations.write();
        let is_tight = counters.kept() >= KEPT_MAX;
        if generations.young.len() >= if is_tight { GENERATION_MIN } else { GENERATION_MAX } {
            counters.forget(generations.old.len());
            generations.old = std::mem::take(&mut generations.young);
        }
        if generations.young.insert(projection.into(), verdict.clone()).is_none() {
            counters.keep(1);
        }
        Some(verdict)
    }

    /// Number of table entries.
    pub(super) fn stored(&self) -> usize {
        let generations = self.generations.read();
        generations.young.len().saturating_add(generations.old.len())
    }

    /// Number of verdicts.
    pub(super) fn len(&self) -> usize {
        let generations = self.generations.read();
        let only_old = generations.old.keys().filter(|key| !generations.young.contains_key(*key)).count();
        generations.young.len().saturating_add(only_old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(holds: bool) -> Option<Outcome> {
        Some(if holds { Outcome::Yes } else { Outcome::No })
    }

    fn ask(verdicts: &Verdicts, key: &[u8], counters: &Counters, evaluate: impl FnOnce() -> Option<Outcome>) -> bool {
        verdicts.get_or_insert(key, counters, evaluate).unwrap().holds()
    }

    #[test]
    fn a_verdict_is_given_once() {
        let (verdicts, counters) = (Verdicts::default(), Counters::default());
        assert!(ask(&verdicts, b"a", &counters, || of(true)));
        assert!(ask(&verdicts, b"a", &counters, || panic!("evaluated twice")));
        assert!(!ask(&verdicts, b"b", &counters, || of(false)));
        assert!(verdicts.get_or_insert(b"c", &counters, || None).is_none(), "nothing is remembered");
        assert_eq!((verdicts.len(), counters.counts().hits), (2, 1));
    }

    #[test]
    fn verdicts_are_bounded_and_used_ones_stay() {
        let (verdicts, counters) = (Verdicts::default(), Counters::default());
        for number in 0..20_000_u32 {
            verdicts.get_or_insert(&number.to_le_bytes(), &counters, || of(number % 2 == 0));
            verdicts.get_or_insert(b"often", &counters, || of(number == 0));
        }
        assert!(verdicts.len() <= 2 * GENERATION_MAX);
        assert!(ask(&verdicts, b"often", &counters, || panic!("was used all the time")));
        assert_eq!(counters.kept(), verdicts.stored() as u64);
    }

    #[test]
    fn each_expression_remembers_few_where_all_remember_many() {
        let counters = Counters::default();
        counters.keep(KEPT_MAX as usize);
        let verdicts = Verdicts::default();
        for number in 0..20_000_u32 {
            verdicts.get_or_insert(&number.to_le_bytes(), &counters, || of(true));
        }
        assert!(verdicts.stored() <= 2 * GENERATION_MIN);
    }
}
