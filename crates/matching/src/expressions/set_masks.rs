//! Verdicts of an expression about whole sets of taints: one word for each set that was asked about lately.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::taints::{MASK_BITS, Owner, Set};

/// A table in which a newer set may take an older one's place. Sets of one owner only, because serial numbers are its.
#[derive(Debug, Default)]
pub(super) struct SetMasks {
    table: OnceLock<Table>,
}

#[derive(Debug)]
struct Table {
    owner: Owner,
    /// A set's serial number above the mask of its tolerated taints.
    slots: Box<[AtomicU64; SLOTS]>,
}

const SLOTS: usize = 1024;
const MASK: u64 = (1 << MASK_BITS) - 1;

impl SetMasks {
    /// What was found before.
    pub(super) fn get(&self, set: &Set, timed: bool) -> Option<u32> {
        let table = self.table.get()?;
        let serial = set.serial(timed);
        let entry = table.slot(serial)?.load(Ordering::Relaxed);
        let is_it = entry >> MASK_BITS == serial && serial != 0 && Owner::ptr_eq(&table.owner, set.owner());
        is_it.then_some((entry & MASK) as u32)
    }

    /// Remembers what was found, unless the set is nobody's or another owner's.
    pub(super) fn put(&self, set: &Set, timed: bool, mask: u32) {
        let Some(serial) = set.serial(timed).checked_mul(1 << MASK_BITS).filter(|serial| *serial != 0) else { return };
        let table = self.table.get_or_init(|| Table {
            owner: set.owner().clone(),
            slots: Box::new([const { AtomicU64::new(0) }; SLOTS]),
        });
        if Owner::ptr_eq(&table.owner, set.owner())
            && let Some(slot) = table.slot(set.serial(timed))
        {
            slot.store(serial | u64::from(mask), Ordering::Relaxed);
        }
    }
}

impl Table {
    fn slot(&self, serial: u64) -> Option<&AtomicU64> {
        self.slots.get(serial as usize % SLOTS)
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
        let all: Vec<_> = (0..3 * SLOTS).map(|number| sets.intern(&taints(number))).collect();
        for (number, set) in all.iter().enumerate() {
            masks.put(set, false, number as u32 % 5);
        }
        for (number, set) in all.iter().enumerate() {
            assert!(masks.get(set, false).is_none_or(|mask| mask == number as u32 % 5));
        }
        assert_eq!(masks.get(&all[3 * SLOTS - 1], false), Some((3 * SLOTS as u32 - 1) % 5));
    }
}
