//! A profile of the scheduler on demand: where plugins spend their time, for as long as somebody wants to know.
//!
//! Only while one is taken, every plugin is measured in every attempt.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scheduling::timing::Timing;

/// What was measured: the stack, how long, and in how many calls.
type Spent = BTreeMap<String, (Duration, u64)>;

/// Takes profiles. Clones share what is measured.
#[derive(Debug, Clone, Default)]
pub struct Profiler {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// How many profiles are being taken.
    wanted: AtomicUsize,
    spent: Mutex<Spent>,
}

/// While it lives, a profile is taken.
struct Taking<'p>(&'p Inner);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Profiler {
    /// Whether somebody wants to know.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.inner.wanted.load(Ordering::Relaxed) > 0
    }

    /// An attempt was measured, and took this long in all.
    pub fn add(&self, timings: &[Timing], whole: Duration) {
        let mut spent = self.inner.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let mut note = |stack: String, duration: Duration, calls: u64| {
            let known = spent.entry(stack).or_default();
            known.0 = known.0.saturating_add(duration);
            known.1 = known.1.saturating_add(calls);
        };
        let mut in_plugins = Duration::ZERO;
        for timing in timings.iter().filter(|timing| !timing.plugin.is_empty()) {
            in_plugins = in_plugins.saturating_add(timing.duration);
            note(format!("scheduler;{};{}", timing.point, timing.plugin), timing.duration, timing.calls.into());
        }
        note("scheduler;other".to_owned(), whole.saturating_sub(in_plugins), 1);
    }

    /// Measures for this long, and tells it as folded stacks: a stack and its microseconds in each line, the form that
    /// programs for flame graphs read. How many calls that were stands in comments.
    pub async fn take(&self, duration: Duration) -> String {
        self.inner.wanted.fetch_add(1, Ordering::Relaxed);
        let taking = Taking(&self.inner);
        let before = self.spent();
        tokio::time::sleep(duration).await;
        let after = self.spent();
        drop(taking);
        let mut text = String::new();
        for (stack, (spent, calls)) in &after {
            let (known, known_calls) = before.get(stack).copied().unwrap_or_default();
            let (spent, calls) = (spent.saturating_sub(known), calls.saturating_sub(known_calls));
            if calls > 0 {
                // Writing to a string does not fail.
                let _ = writeln!(text, "# {stack}: {calls} calls\n{stack} {}", spent.as_micros());
            }
        }
        text
    }

    fn spent(&self) -> Spent {
        self.inner.spent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use scheduling::framework::Point;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_profile_tells_what_happened_while_it_was_taken() {
        let profiler = Profiler::default();
        let micros = Duration::from_micros;
        let timing = Timing {
            point: Point::Filter,
            plugin: "TaintToleration",
            status: "Success",
            duration: micros(30),
            calls: 3,
        };
        profiler.add(&[timing], micros(100));
        assert!(!profiler.is_wanted());
        let (profile, ()) = tokio::join!(profiler.take(Duration::from_secs(1)), async {
            assert!(profiler.is_wanted());
            profiler.add(&[timing, Timing { plugin: "", ..timing }], micros(50));
        });
        assert_eq!(
            profile,
            "# scheduler;Filter;TaintToleration: 3 calls\nscheduler;Filter;TaintToleration 30\n\
             # scheduler;other: 1 calls\nscheduler;other 20\n"
        );
        assert!(!profiler.is_wanted());
    }
}
