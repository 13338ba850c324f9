//! A profile of the scheduler on demand: the time spent in plugins during the profile.
//!
//! Only while one is taken, every plugin is measured in every attempt.

use locks::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use scheduling::timing::Timing;

/// Measurements: stack, duration, and number of calls.
type StackTimes = BTreeMap<String, (Duration, u64)>;

/// Takes profiles. Clones share what is measured.
#[derive(Debug, Clone, Default)]
pub struct Profiler {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Number of profiles in progress.
    wanted: AtomicUsize,
    spent: Mutex<StackTimes>,
}

/// Keeps profiling enabled until it is dropped.
struct ProfileGuard<'p>(&'p Inner);

impl Drop for ProfileGuard<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Profiler {
    /// Whether a profile is in progress.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.inner.wanted.load(Ordering::Relaxed) > 0
    }

    /// Adds the measurements of an attempt; `whole` is its total duration.
    pub fn add(&self, timings: &[Timing], whole: Duration) {
        let mut spent = self.inner.spent.lock();
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

    /// Measures for this long, and returns folded stacks: a stack and its microseconds in each line, the input
    /// of flame graph tools. The number of calls is in comments.
    pub async fn take(&self, duration: Duration) -> String {
        self.inner.wanted.fetch_add(1, Ordering::Relaxed);
        let taking = ProfileGuard(&self.inner);
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

    fn spent(&self) -> StackTimes {
        self.inner.spent.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use scheduling::framework::Point;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn profile_covers_its_duration() {
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
