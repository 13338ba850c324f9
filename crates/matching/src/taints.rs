//! Sets of taints, each kept once: nodes that have the same taints share one set and one verdict.
//!
//! A cluster has few distinct sets. The owner of the nodes also owns [`Sets`] and interns a node's taints when
//! the node changes; matchers cache results by the set's serial number.

use locks::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use api::core::v1::{Taint, TaintEffect};
use api::json::Text;
use api::time::Timestamp;
use api::well_known::TAINT_UNSCHEDULABLE;
use cel_kubernetes::environments::toleration;

/// Taints of a node, in the node's order.
#[derive(Debug, Default)]
pub struct Set {
    /// Never reused by one [`Sets`]; 0 for sets without an owner. Sets that differ only in the times of their
    /// taints share it: few expressions read the time, and in an outage every node has a different one.
    serial: u64,
    /// A serial number for each distinct set of times.
    timed_serial: u64,
    owner: Owner,
    taints: Box<[Taint]>,
    /// Mask of the taints that exclude pods, if there are few enough for a mask.
    hard: u32,
    /// Mask of the taints that lower the score.
    soft: u32,
}

/// The [`Sets`] that assigned a serial number: two owners are equal if they are one allocation.
pub(crate) type Owner = Arc<()>;

/// Sets of at most this many taints are judged by masks with a bit for each taint.
pub(crate) const MASK_BITS: u32 = 24;

/// All distinct sets that are in use.
#[derive(Debug, Default)]
pub struct Sets {
    owner: Owner,
    known: Mutex<KnownSets>,
}

#[derive(Debug, Default)]
struct KnownSets {
    sets: HashMap<TimedKey, Weak<Set>>,
    /// The serial number of each set without its times, and how many sets there are that differ only in them.
    serials: HashMap<Key, (u64, Vec<Weak<Set>>)>,
    /// The last assigned numbers. Each is counted separately, so that tables by number have no gaps.
    last_serial: u64,
    last_timed_serial: u64,
    /// Unused sets are removed when there are this many.
    clear_at: usize,
}

type Key = Box<[(Text, Text, Text)]>;
type TimedKey = (Key, Box<[Option<Timestamp>]>);

impl Set {
    /// A set without an owner, for a single evaluation.
    pub fn new(taints: &[Taint]) -> Self {
        Self::with_serial(taints, (0, 0), Owner::default())
    }

    fn with_serial(taints: &[Taint], (serial, timed_serial): (u64, u64), owner: Owner) -> Self {
        let mask = |counts: fn(&Taint) -> bool| {
            let bits = (0..MASK_BITS).zip(taints).filter(|(_, taint)| counts(taint));
            bits.fold(0, |mask, (bit, _)| mask | 1 << bit)
        };
        Set { serial, timed_serial, owner, taints: taints.into(), hard: mask(is_hard), soft: mask(is_soft) }
    }

    /// The taints, in the node's order.
    pub fn taints(&self) -> &[Taint] {
        &self.taints
    }

    /// Whether there are no taints.
    pub fn is_empty(&self) -> bool {
        self.taints.is_empty()
    }

    /// The serial number, with or without regard to when taints were added.
    pub(crate) fn serial(&self, timed: bool) -> u64 {
        if timed { self.timed_serial } else { self.serial }
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Whether there are few enough taints for masks.
    pub(crate) fn has_masks(&self) -> bool {
        self.taints.len() <= MASK_BITS as usize
    }

    pub(crate) fn hard_mask(&self) -> u32 {
        self.hard
    }

    pub(crate) fn soft_mask(&self) -> u32 {
        self.soft
    }
}

impl Sets {
    /// No sets yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The one set that holds these taints in this order, added at these times.
    pub fn intern(&self, taints: &[Taint]) -> Arc<Set> {
        let key: Key =
            taints.iter().map(|taint| (taint.key.clone(), taint.value.clone(), taint.effect.clone())).collect();
        let times: Box<[Option<Timestamp>]> = taints.iter().map(|taint| taint.time_added).collect();
        let timed = (key, times);
        let mut known = self.known.lock();
        let known = &mut *known;
        if let Some(set) = known.sets.get(&timed).and_then(Weak::upgrade) {
            return set;
        }
        let (serial, users) = known.serials.entry(timed.0.clone()).or_insert_with(|| {
            known.last_serial = known.last_serial.saturating_add(1);
            (known.last_serial, Vec::new())
        });
        known.last_timed_serial = known.last_timed_serial.saturating_add(1);
        let set = Arc::new(Set::with_serial(taints, (*serial, known.last_timed_serial), self.owner.clone()));
        users.push(Arc::downgrade(&set));
        known.sets.insert(timed, Arc::downgrade(&set));
        if known.sets.len() >= known.clear_at {
            known.sets.retain(|_, set| set.strong_count() > 0);
            known.serials.retain(|_, (_, users)| {
                users.retain(|set| set.strong_count() > 0);
                !users.is_empty()
            });
            known.clear_at = known.sets.len().saturating_mul(2).max(64);
        }
        set
    }
}

/// Whether a taint excludes or evicts pods.
pub fn is_hard(taint: &Taint) -> bool {
    matches!(TaintEffect::from_name(&taint.effect), Some(TaintEffect::NoSchedule | TaintEffect::NoExecute))
}

/// Whether a taint only lowers the score of its node.
pub fn is_soft(taint: &Taint) -> bool {
    TaintEffect::from_name(&taint.effect) == Some(TaintEffect::PreferNoSchedule)
}

/// Whether a taint evicts pods.
pub fn is_no_execute(taint: &Taint) -> bool {
    TaintEffect::from_name(&taint.effect) == Some(TaintEffect::NoExecute)
}

/// The taint of a cordoned node.
pub fn unschedulable() -> Taint {
    let key = TAINT_UNSCHEDULABLE.into();
    Taint { key, effect: TaintEffect::NoSchedule.name().into(), ..Taint::default() }
}

/// The taint as expressions see it.
pub fn seen_by_expressions(taint: &Taint) -> toleration::Taint<'_> {
    let time_added = taint.time_added.and_then(|time| cel::value::Timestamp::new(time.seconds, time.nanos).ok());
    toleration::Taint { key: &taint.key, value: &taint.value, effect: &taint.effect, time_added }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str) -> Taint {
        Taint { key: key.into(), effect: "NoSchedule".into(), ..Taint::default() }
    }

    #[test]
    fn equal_taints_are_one_set() {
        let sets = Sets::new();
        let first = sets.intern(&[taint("a"), taint("b")]);
        assert!(Arc::ptr_eq(&first, &sets.intern(&[taint("a"), taint("b")])));
        assert!(!Arc::ptr_eq(&first, &sets.intern(&[taint("b"), taint("a")])));
    }

    #[test]
    fn unused_sets_are_removed_and_serials_never_reused() {
        let sets = Sets::new();
        let mut last = 0;
        for number in 0..1000 {
            let set = sets.intern(&[taint(&number.to_string())]);
            assert!(set.serial(false) > last);
            last = set.serial(false);
        }
        assert!(sets.known.lock().sets.len() <= 64);
    }
}
