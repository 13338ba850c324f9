//! Verdicts of an expression about whole sets of taints: one word for each recently used set.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::taints::{MASK_BITS, Owner, Set};

/// Tables in which a newer set may take an older one's place. Sets of one owner only, because serial numbers are its.
///
/// The first is small. A larger one is allocated when a set would take another's place: most expressions are those of one
/// pod, and meet few sets.
#[derive(Debug, Default)]
pub(super) struct SetMasks {
    /// Boxed, because most expressions never meet a second set.
    tables: OnceLock<Box<Tables>>,
}

#[derive(Debug)]
struct Tables {
    owner: Owner,
    /// By increasing size. An entry is a set's serial number, followed by the mask of its tolerated taints.
    small: [AtomicU64; SMALL],
    medium: OnceLock<Box<[AtomicU64; MEDIUM]>>,
    large: OnceLock<Box<[AtomicU64; LARGE]>>,
}

const SMALL: usize = 8;
const MEDIUM: usize = 64;
const LARGE: usize = 1024;
const MASK: u64 = (1 << MASK_BITS) - 1;

impl SetMasks {
    /// Returns the cached mask.
    pub(super) fn get(&self, set: &Set, timed: bool) -> Option<u32> {
        let tables = self.tables.get()?;
        let serial = set.serial(timed);
        let entry = tables.slot(serial)?.load(Ordering::Relaxed);
        let is_it = entry >> MASK_BITS == serial && serial != 0 && Owner::ptr_eq(&tables.owner, set.owner());
        is_it.then_some((entry & MASK) as u32)
    }

    /// Caches a mask, unless the set has no owner or another one.
    pub(super) fn put(&self, set: &Set, timed: bool, mask: u32) {
        let Some(shifted) = set.serial(timed).checked_mul(1 << MASK_BITS).filter(|serial| *serial != 0) else { return };
        let tables = self.tables.get_or_init(|| {
            Box::new(Tables {
                owner: set.owner().clone(),
                small: [const { AtomicU64::new(0) }; SMALL],
                medium: OnceLock::new(),
                large: OnceLock::new(),
            })
        });
        if Owner::ptr_eq(&tables.owner, set.owner()) {
            tables.put(set.serial(timed), shifted | u64::from(mask));
        }
    }

    /// Bytes on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let Some(tables) = self.tables.get() else { return 0 };
        let medium = tables.medium.get().map_or(0, |slots| size_of_val(&**slots));
        let large = tables.large.get().map_or(0, |slots| size_of_val(&**slots));
        size_of::<Tables>().saturating_add(medium).saturating_add(large)
    }
}

impl Tables {
    /// The place of a set in the largest table.
    fn slot(&self, serial: u64) -> Option<&AtomicU64> {
        let place = serial as usize;
        match (self.large.get(), self.medium.get()) {
            (Some(large), _) => large.get(place % LARGE),
            (None, Some(medium)) => medium.get(place % MEDIUM),
            (None, None) => self.small.get(place % SMALL),
        }
    }

    fn put(&self, serial: u64, entry: u64) {
        if let Some(slot) = self.slot(serial) {
            let known = slot.load(Ordering::Relaxed) >> MASK_BITS;
            if known != 0 && known != serial && self.grow() {
                // Entries of smaller tables are recomputed soon.
                return self.put(serial, entry);
            }
            slot.store(entry, Ordering::Relaxed);
        }
    }

    /// Allocates the next table; returns whether there is one.
    fn grow(&self) -> bool {
        if self.medium.get().is_none() {
            self.medium.get_or_init(|| Box::new([const { AtomicU64::new(0) }; MEDIUM]));
            return true;
        }
        if self.large.get().is_none() {
            self.large.get_or_init(|| Box::new([const { AtomicU64::new(0) }; LARGE]));
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use api::core::v1::Taint;

    use super::*;
    use crate::taints::Sets;

    fn taints(number: usize) -> Vec<Taint> {
        vec![Taint { key: number.to_string().into(), ..Taint::default() }]
    }

    #[test]
    fn masks_are_those_of_their_set_and_owner() {
        let masks = SetMasks::default();
        let (sets, others) = (Sets::new(), Sets::new());
        let first = sets.intern(&taints(1));
        let foreign = others.intern(&taints(2));
        assert_eq!(first.serial(false), foreign.serial(false));
        masks.put(&first, false, 1);
        masks.put(&foreign, false, 0);
        assert_eq!((masks.get(&first, false), masks.get(&foreign, false)), (Some(1), None));
        assert_eq!(masks.get(&Set::new(&taints(1)), false), None);
    }

    #[test]
    fn sets_that_share_a_slot_do_not_share_a_verdict() {
        let masks = SetMasks::default();
        let sets = Sets::new();
        let all: Vec<_> = (0..3 * LARGE).map(|number| sets.intern(&taints(number))).collect();
        for (number, set) in all.iter().enumerate() {
            masks.put(set, false, number as u32 % 5);
        }
        for (number, set) in all.iter().enumerate() {
            assert!(masks.get(set, false).is_none_or(|mask| mask == number as u32 % 5));
        }
        assert_eq!(masks.get(&all[3 * LARGE - 1], false), Some((3 * LARGE as u32 - 1) % 5));
    }

    #[test]
    fn tables_grow_with_the_number_of_sets() {
        let masks = SetMasks::default();
        let sets = Sets::new();
        assert_eq!(masks.memory_bytes(), 0);
        let all: Vec<_> = (0..SMALL).map(|number| sets.intern(&taints(number))).collect();
        all.iter().for_each(|set| masks.put(set, false, 1));
        assert!(masks.memory_bytes() <= 128, "{}", masks.memory_bytes());
        assert!(all.iter().all(|set| masks.get(set, false) == Some(1)));
        let more: Vec<_> = (SMALL..MEDIUM).map(|number| sets.intern(&taints(number))).collect();
        for _ in 0..2 {
            all.iter().chain(&more).for_each(|set| masks.put(set, false, 1));
        }
        assert!(masks.memory_bytes() <= 128 + 8 * MEDIUM, "{}", masks.memory_bytes());
        assert!(all.iter().chain(&more).all(|set| masks.get(set, false) == Some(1)));
    }
}
