//! Back-off of a daemon pod that fails at once: one second, then twice as long, up to 15 minutes.

use std::collections::HashMap;
use std::time::Duration;

use api::apps::v1::DaemonSet;
use api::json::Text;
use api::time::Timestamp;

const FIRST: Duration = Duration::from_secs(1);
const MAX: Duration = Duration::from_secs(15 * 60);

/// The failures of daemon pods, by set, template and node.
#[derive(Debug, Default)]
pub struct Backoff {
    entries: HashMap<(Text, i64, Text), Entry>,
}

#[derive(Debug)]
struct Entry {
    at: Timestamp,
    pause: Duration,
}

impl Backoff {
    /// Asks to replace a failed pod of the set on the node. Returns none if it may be replaced now, which is counted, or
    /// else the time to wait.
    pub fn ask(&mut self, set: &DaemonSet, node: &Text, now: Timestamp) -> Option<Duration> {
        self.entries.retain(|_, entry| entry.at.until(now) < MAX.saturating_mul(2));
        let key = (set.metadata.uid.clone(), set.metadata.generation, node.clone());
        match self.entries.get_mut(&key) {
            None => {
                self.entries.insert(key, Entry { at: now, pause: FIRST });
                None
            }
            Some(entry) => {
                let passed = entry.at.until(now);
                if passed < entry.pause {
                    return Some(entry.pause.saturating_sub(passed));
                }
                *entry = Entry { at: now, pause: entry.pause.saturating_mul(2).min(MAX) };
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_forgotten() {
        let (set, node) = (DaemonSet::default(), Text::from("n"));
        let mut backoff = Backoff::default();
        let mut ask = |seconds| backoff.ask(&set, &node, Timestamp { seconds, nanos: 0 }).map(|it| it.as_secs());
        assert_eq!(ask(0), None);
        assert_eq!(ask(0), Some(1));
        assert_eq!(ask(1), None);
        assert_eq!(ask(2), Some(1));
        assert_eq!(ask(3), None);
        assert_eq!(ask(6), Some(1));
        assert_eq!(ask(10_000), None);
        assert_eq!(ask(10_000), Some(1));
    }
}
