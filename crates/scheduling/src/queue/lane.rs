//! Pods whose expressions are costly: by namespace in turn, and with pauses, so that other pods do not wait for them.
//!
//! Each namespace has an allowance for the cost of its pods' expressions. The pods with expressions of a
//! namespace that has overdrawn it are tried from here; pods without expressions are not affected. After an
//! attempt the lane is closed for a multiple of the time it took, so that all costly attempts together take
//! about a fifth of the scheduler's time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::time::Duration;

use api::json::Text;
use matching::expressions::meter;

use super::Order;

/// Cost that a namespace may spend each second.
const ALLOWANCE: u64 = meter::COST_MAX / 4;
/// Cost up to which a namespace may run ahead of its allowance.
const OVERDRAFT: u64 = meter::COST_MAX / 2;
/// The lane is closed for this many times the duration of an attempt that spent its whole budget.
const PAUSES: u32 = 4;
/// Namespaces whose debts are kept; those that owe nothing are dropped first.
const DEBTORS_MAX: usize = 10_000;

/// Pods whose expressions are costly.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pods: BTreeMap<Text, BTreeSet<(Order, Text)>>,
    /// The namespace that was served last.
    last: Text,
    /// The lane is closed until then.
    opens_at: Duration,
    /// Closes the lane when the attempt that is being made has ended.
    pause: Duration,
    debts: HashMap<Text, Debt>,
}

/// The cost that a namespace owed at some time.
#[derive(Debug, Clone, Copy)]
struct Debt {
    cost: u64,
    at: Duration,
}

impl Debt {
    fn at(self, now: Duration) -> u64 {
        let passed = u64::try_from(now.saturating_sub(self.at).as_millis()).unwrap_or(u64::MAX);
        self.cost.saturating_sub(passed.saturating_mul(ALLOWANCE / 1000))
    }
}

impl Lane {
    pub(super) fn insert(&mut self, namespace: &Text, order: Order, uid: Text) {
        self.pods.entry(namespace.clone()).or_default().insert((order, uid));
    }

    pub(super) fn remove(&mut self, namespace: &Text, order: Order, uid: Text) {
        if let Some(pods) = self.pods.get_mut(namespace) {
            pods.remove(&(order, uid));
            if pods.is_empty() {
                self.pods.remove(namespace);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pods.values().map(BTreeSet::len).sum()
    }

    /// Whether no namespace has spent anything: plain pods are most, and pay nothing.
    pub(super) fn is_unused(&self) -> bool {
        self.debts.is_empty()
    }

    /// Whether the namespace has overdrawn its allowance.
    pub(super) fn is_overdrawn(&self, namespace: &str, now: Duration) -> bool {
        self.debts.get(namespace).is_some_and(|debt| debt.at(now) >= OVERDRAFT)
    }

    /// The pod to be tried next, if the lane is open: the first of the namespace after the one that was served last.
    pub(super) fn next(&mut self, now: Duration) -> Option<Text> {
        if self.pods.is_empty() || self.opens_at > now {
            return None;
        }
        let after = self.pods.range((Bound::Excluded(self.last.clone()), Bound::Unbounded)).next();
        let (namespace, pods) = after.or_else(|| self.pods.first_key_value())?;
        let uid = pods.first().map(|(_, uid)| uid.clone())?;
        self.last = namespace.clone();
        Some(uid)
    }

    /// Time at which a pod can be tried; `None` if there is none.
    pub(super) fn wake_up(&self, now: Duration) -> Option<Duration> {
        (!self.pods.is_empty()).then(|| self.opens_at.max(now))
    }

    /// An attempt of this namespace had this cost.
    pub(super) fn spent(&mut self, namespace: &Text, cost: u64, now: Duration) {
        if cost == 0 {
            return;
        }
        if self.debts.len() >= DEBTORS_MAX {
            self.debts.retain(|_, debt| debt.at(now) > 0);
        }
        let owed = self.debts.get(namespace).map_or(0, |debt| debt.at(now));
        let debt = Debt { cost: owed.saturating_add(cost).min(2 * meter::COST_MAX), at: now };
        self.debts.insert(namespace.clone(), debt);
        if debt.cost >= OVERDRAFT {
            let share = u32::try_from(cost.min(meter::COST_MAX) / (meter::COST_MAX / 100)).unwrap_or(100);
            let pause = meter::TIME_MAX.saturating_mul(PAUSES).saturating_mul(share).checked_div(100);
            self.pause = self.pause.saturating_add(pause.unwrap_or_default());
            self.opens_at = now.saturating_add(self.pause);
        }
    }

    /// Records the start of an attempt.
    pub(super) fn attempt_begun(&mut self) {
        self.pause = Duration::ZERO;
    }

    /// The attempt has ended: the pause begins. On a busy machine an attempt takes longer than the time that it is charged for.
    pub(super) fn attempt_ended(&mut self, now: Duration) {
        let pause = std::mem::take(&mut self.pause);
        if !pause.is_zero() {
            self.opens_at = now.saturating_add(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn add(lane: &mut Lane, namespace: &str, number: u64) {
        lane.insert(&namespace.into(), (0, Duration::ZERO, number), format!("{namespace}{number}").into());
    }

    #[test]
    fn namespaces_are_served_in_turn() {
        let mut lane = Lane::default();
        (0..3).for_each(|number| add(&mut lane, "a", number));
        add(&mut lane, "b", 7);
        let mut served = Vec::new();
        while let Some(uid) = lane.next(at(0)) {
            let (namespace, number) = uid.split_at(1);
            lane.remove(&namespace.into(), (0, Duration::ZERO, number.parse().unwrap()), uid.clone());
            served.push(uid);
        }
        assert_eq!(served, ["a0", "b7", "a1", "a2"]);
    }

    #[test]
    fn lane_closes_after_a_costly_attempt() {
        let mut lane = Lane::default();
        add(&mut lane, "a", 0);
        lane.spent(&"a".into(), meter::COST_MAX, at(100));
        assert!(lane.is_overdrawn("a", at(100)) && !lane.is_overdrawn("b", at(100)));
        assert_eq!((lane.next(at(899)), lane.wake_up(at(200))), (None, Some(at(900))));
        assert!(lane.next(at(900)).is_some());
    }

    #[test]
    fn pause_begins_when_the_attempt_ends() {
        let mut lane = Lane::default();
        add(&mut lane, "a", 0);
        lane.spent(&"a".into(), meter::COST_MAX, at(100));
        lane.attempt_ended(at(700));
        assert_eq!((lane.next(at(1499)), lane.wake_up(at(700))), (None, Some(at(1500))));
        // An attempt without cost does not close it again.
        lane.attempt_ended(at(1500));
        assert!(lane.next(at(1500)).is_some());
    }

    #[test]
    fn allowance_is_earned_back() {
        let mut lane = Lane::default();
        lane.spent(&"a".into(), meter::COST_MAX, at(0));
        assert!(lane.is_overdrawn("a", at(1900)));
        assert!(!lane.is_overdrawn("a", at(2100)));
        // Small costs add up.
        (0..10).for_each(|_| lane.spent(&"b".into(), meter::COST_MAX / 20, at(0)));
        assert!(lane.is_overdrawn("b", at(0)));
    }
}
