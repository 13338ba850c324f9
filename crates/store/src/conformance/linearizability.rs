//! Linearizability: searches for an order of all operations on a key that explains their results.
//!
//! The search follows Wing and Gong, and caches the sets of operations that have failed already. Keys are
//! independent, so each is searched separately.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{done, fresh_prefix};
use crate::{Change, Guard, Outcome, Revision, Store, Write};

/// An operation on one key, and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A read, and the revision at which the key was last written, if it exists.
    Read(Option<Revision>),
    /// A guarded write that succeeded with this revision; `deletes` is true if it deleted the key.
    Written {
        /// Precondition.
        guard: Guard,
        /// The revision it made.
        revision: Revision,
        /// Whether it was a delete.
        deletes: bool,
    },
    /// A guarded write whose guard did not hold.
    Conflicted(Guard),
    /// A guarded write with an unknown result.
    Unknown {
        /// Precondition.
        guard: Guard,
        /// Whether it was a delete.
        deletes: bool,
    },
}

/// An operation with the times of its start and end, on one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedOperation {
    /// Start time.
    pub asked: u64,
    /// End time.
    pub answered: u64,
    /// The operation.
    pub operation: Operation,
}

/// Possible value of a key: written at a revision, or, after a write with an unknown result, at one after the
/// last known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Register {
    exists: Option<KnownState>,
    highest: Revision,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum KnownState {
    At(Revision),
    After(Revision),
}

impl Register {
    fn is_at(self, revision: Revision) -> bool {
        match self.exists {
            Some(KnownState::At(at)) => at == revision,
            Some(KnownState::After(at)) => revision > at,
            None => false,
        }
    }

    fn allows(self, guard: Guard) -> bool {
        match guard {
            Guard::Absent => self.exists.is_none(),
            Guard::Unchanged(revision) => self.is_at(revision),
        }
    }

    /// The register after the operation, if that could have had this result.
    fn apply(self, operation: &Operation) -> Option<Self> {
        match operation {
            Operation::Read(None) => self.exists.is_none().then_some(self),
            Operation::Read(Some(revision)) => self
                .is_at(*revision)
                .then_some(Self { exists: Some(KnownState::At(*revision)), highest: self.highest.max(*revision) }),
            Operation::Written { guard, revision, deletes } => (self.allows(*guard) && *revision > self.highest)
                .then_some(Self { exists: (!deletes).then_some(KnownState::At(*revision)), highest: *revision }),
            // A register that is "somewhere after" may or may not be at the guard's revision.
            Operation::Conflicted(guard) => {
                let unsure = matches!(self.exists, Some(KnownState::After(_))) && *guard != Guard::Absent;
                (unsure || !self.allows(*guard)).then_some(self)
            }
            Operation::Unknown { guard, deletes } => self.allows(*guard).then_some(Self {
                exists: (!deletes).then_some(KnownState::After(self.highest)),
                highest: self.highest,
            }),
        }
    }
}

/// Searches for an order that explains a key's history from its beginning; returns a description if there is none.
#[must_use]
pub fn find_violation(mut history: Vec<TimedOperation>) -> Option<String> {
    history.sort_by_key(|timed| timed.asked);
    let words = history.len().div_ceil(64);
    let mut failed: HashSet<(Vec<u64>, Register)> = HashSet::new();
    let mut placed = vec![0_u64; words];
    let has = |placed: &[u64], n: usize| placed[n / 64] & (1 << (n % 64)) != 0;
    let certain = |timed: &TimedOperation| !matches!(timed.operation, Operation::Unknown { .. });
    // Each level: the operation placed to get here, the register after it, and the next operation to try.
    let mut path: Vec<(usize, Register, usize)> = Vec::new();
    let mut register = Register { exists: None, highest: 0 };
    let mut next = 0;
    let mut longest = 0;
    loop {
        let open = || history.iter().enumerate().filter(|(n, _)| !has(&placed, *n));
        // An operation cannot precede one that ended before it started. Once all are placed there is no
        // violation.
        let bound = open().filter(|(_, timed)| certain(timed)).map(|(_, timed)| timed.answered).min()?;
        let candidate = open()
            .skip_while(|(n, _)| *n < next)
            .take_while(|(_, timed)| timed.asked <= bound)
            .find_map(|(n, timed)| Some((n, register.apply(&timed.operation)?)));
        let Some((n, after)) = candidate else {
            let Some((last, before, following)) = path.pop() else {
                return Some(format!("no order explains this history, {longest} operations at most: {history:#?}"));
            };
            placed[last / 64] &= !(1 << (last % 64));
            (register, next) = (before, following);
            continue;
        };
        next = n + 1;
        placed[n / 64] |= 1 << (n % 64);
        if failed.insert((placed.clone(), after)) {
            path.push((n, register, next));
            longest = longest.max(path.len());
            (register, next) = (after, 0);
        } else {
            placed[n / 64] &= !(1 << (n % 64));
        }
    }
}

/// Concurrent readers and writers of a few keys see a history that some order explains.
pub async fn concurrent_history_is_linearizable(store: Arc<dyn Store>) {
    const TASKS: u64 = 6;
    const STEPS: u64 = 40;
    const KEYS: u64 = 3;
    let prefix = fresh_prefix(&*store, "linearizable").await;
    let clock = Arc::new(AtomicU64::new(0));
    let tasks = (0..TASKS).map(|task| {
        let (store, clock, prefix) = (store.clone(), clock.clone(), prefix.clone());
        tokio::spawn(async move {
            let mut seed = task.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
            let mut random = move |below: u64| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed % below
            };
            let mut known: Vec<Option<Revision>> = vec![None; KEYS as usize];
            let mut histories: Vec<Vec<TimedOperation>> = vec![Vec::new(); KEYS as usize];
            for _ in 0..STEPS {
                let at = random(KEYS) as usize;
                let key = format!("{prefix}{at}");
                let asked = clock.fetch_add(1, Ordering::SeqCst);
                let guard = known[at].map_or(Guard::Absent, Guard::Unchanged);
                let operation = match random(4) {
                    0 => {
                        let entry = store.get(&key, 0).await.expect("a get succeeds").entry;
                        known[at] = entry.map(|entry| entry.revision);
                        Operation::Read(known[at])
                    }
                    choice => {
                        let deletes = choice == 1 && known[at].is_some();
                        let change =
                            if deletes { Change::Delete } else { Change::Put { value: "x".into(), ttl: None } };
                        match store.write(Write { key, guard, change }).await.expect("an answer") {
                            Outcome::Conflict { current } => {
                                known[at] = current.map(|entry| entry.revision);
                                Operation::Conflicted(guard)
                            }
                            outcome => {
                                let revision = done(outcome);
                                known[at] = (!deletes).then_some(revision);
                                Operation::Written { guard, revision, deletes }
                            }
                        }
                    }
                };
                let answered = clock.fetch_add(1, Ordering::SeqCst);
                histories[at].push(TimedOperation { asked, answered, operation });
            }
            histories
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut histories: Vec<Vec<TimedOperation>> = vec![Vec::new(); KEYS as usize];
    for task in tasks {
        for (whole, part) in histories.iter_mut().zip(task.await.expect("a task finishes")) {
            whole.extend(part);
        }
    }
    for history in histories {
        assert!(history.iter().any(|timed| matches!(timed.operation, Operation::Written { .. })));
        if let Some(violation) = find_violation(history) {
            panic!("{violation}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(asked: u64, answered: u64, operation: Operation) -> TimedOperation {
        TimedOperation { asked, answered, operation }
    }

    fn created(revision: Revision) -> Operation {
        Operation::Written { guard: Guard::Absent, revision, deletes: false }
    }

    fn updated(since: Revision, revision: Revision) -> Operation {
        Operation::Written { guard: Guard::Unchanged(since), revision, deletes: false }
    }

    #[track_caller]
    fn check(history: &[TimedOperation], explainable: bool) {
        assert_eq!(find_violation(history.to_vec()).is_none(), explainable);
    }

    #[test]
    fn histories_that_an_order_explains() {
        check(&[], true);
        check(&[timed(0, 1, created(2)), timed(2, 3, Operation::Read(Some(2)))], true);
        // The read overlaps the write: it may see either.
        check(&[timed(0, 9, created(2)), timed(1, 2, Operation::Read(None))], true);
        check(&[timed(0, 9, created(2)), timed(1, 2, Operation::Read(Some(2)))], true);
        // Needs to go back on a first choice.
        let overlapping = [timed(0, 9, created(2)), timed(1, 8, updated(2, 3)), timed(2, 7, Operation::Read(Some(2)))];
        check(&overlapping, true);
        // A write without an answer may have happened, or not, or later.
        let unknown = Operation::Unknown { guard: Guard::Absent, deletes: false };
        check(&[timed(0, 1, unknown.clone()), timed(2, 3, Operation::Read(None))], true);
        check(&[timed(0, 1, unknown.clone()), timed(2, 3, Operation::Read(Some(5)))], true);
        let later = [timed(0, 1, unknown), timed(2, 3, Operation::Read(None)), timed(4, 5, Operation::Read(Some(5)))];
        check(&later, true);
    }

    #[test]
    fn histories_that_no_order_explains() {
        check(&[timed(0, 1, created(2)), timed(2, 3, Operation::Read(None))], false);
        check(&[timed(0, 1, Operation::Read(Some(2))), timed(2, 3, created(2))], false);
        // A lost update: both were based on the same revision.
        let lost = [timed(0, 1, created(2)), timed(2, 9, updated(2, 3)), timed(3, 8, updated(2, 4))];
        check(&lost, false);
        // Revisions go back.
        check(&[timed(0, 1, created(5)), timed(2, 3, updated(5, 4))], false);
        // A step back between two reads.
        let back = [
            timed(0, 1, created(2)),
            timed(2, 20, updated(2, 3)),
            timed(3, 4, Operation::Read(Some(3))),
            timed(5, 6, Operation::Read(Some(2))),
        ];
        check(&back, false);
        check(&[timed(0, 1, Operation::Conflicted(Guard::Absent))], false);
    }
}
