//! Events by watcher: each change must arrive once, at the watcher of its node, and at no other.

use locks::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Result, bail};
use memchr::memmem;

use super::pods::{read_round, round_mark};

/// The pod that a change is of. Neighbors are on other nodes.
#[must_use]
pub fn pod_of(change: u64, pods: usize) -> usize {
    usize::try_from(change).unwrap_or_default().checked_rem(pods).unwrap_or_default()
}

/// Value that a change writes: never the present one.
#[must_use]
pub fn round_of(change: u64) -> u64 {
    change.saturating_add(1)
}

/// Events received by watchers.
#[derive(Debug)]
pub struct Tally {
    first: u64,
    pods: usize,
    nodes: usize,
    finder: memmem::Finder<'static>,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    reported: HashSet<u64>,
    /// Events of changes that their watcher knew.
    repeated: u64,
    /// Events of another node's pods, or of changes from before.
    astray: u64,
}

impl Tally {
    /// For the changes from `first` on, with as many watchers as nodes.
    #[must_use]
    pub fn new(first: u64, pods: usize, nodes: usize) -> Arc<Self> {
        let finder = memmem::Finder::new(round_mark().as_bytes()).into_owned();
        Arc::new(Self { first, pods, nodes, finder, counts: Mutex::default() })
    }

    fn counts(&self) -> locks::MutexGuard<'_, Counts> {
        self.counts.lock()
    }

    /// Takes note of the events that a watcher was sent.
    pub fn read(&self, watcher: usize, text: &[u8]) {
        let mut counts = self.counts();
        for at in self.finder.find_iter(text) {
            let value = text.get(at.saturating_add(self.finder.needle().len())..).unwrap_or_default();
            let change = read_round(value).and_then(|round| round.checked_sub(1)).filter(|it| *it >= self.first);
            let node = |change| pod_of(change, self.pods).checked_rem(self.nodes).unwrap_or_default();
            match change.filter(|change| node(*change) == watcher) {
                None => counts.astray = counts.astray.saturating_add(1),
                Some(change) if counts.reported.insert(change) => {}
                Some(_) => counts.repeated = counts.repeated.saturating_add(1),
            }
        }
    }

    /// Number of changes that reached their watcher.
    #[must_use]
    pub fn reported(&self) -> u64 {
        u64::try_from(self.counts().reported.len()).unwrap_or(u64::MAX)
    }

    /// Checks that each change arrived once, at the watcher of its node.
    ///
    /// # Errors
    /// What came instead.
    pub fn check(&self, changes: u64) -> Result<()> {
        let (reported, counts) = (self.reported(), self.counts());
        if reported == changes && counts.repeated == 0 && counts.astray == 0 {
            return Ok(());
        }
        let (repeated, astray) = (counts.repeated, counts.astray);
        bail!(
            "watchers received {reported} of {changes} changes, {repeated} of them repeatedly, and {astray} changes of other nodes"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_comes_once_to_its_watcher() {
        let event =
            |change: u64| format!("{{\"object\":{{{}{:020}\"}}}}\n", round_mark(), round_of(change)).into_bytes();
        let reported = |events: &[(usize, u64)]| {
            let tally = Tally::new(10, 4, 2);
            events.iter().for_each(|(watcher, change)| tally.read(*watcher, &event(*change)));
            tally.check(3).map_err(|error| error.to_string())
        };
        let well = [(0, 10), (1, 11), (0, 12)];
        assert_eq!(reported(&well), Ok(()));
        assert!(reported(&well[..2]).unwrap_err().contains("received 2 of 3 changes, 0 of them repeatedly, and 0"));
        assert!(
            reported(&[(0, 10), (1, 11), (0, 12), (0, 10)])
                .unwrap_err()
                .contains("received 3 of 3 changes, 1 of them repeatedly, and 0")
        );
        assert!(
            reported(&[(0, 10), (0, 11), (0, 12)])
                .unwrap_err()
                .contains("received 2 of 3 changes, 0 of them repeatedly, and 1")
        );
        assert!(
            reported(&[(0, 8), (1, 11), (0, 12)])
                .unwrap_err()
                .contains("received 2 of 3 changes, 0 of them repeatedly, and 1")
        );
    }
}
