//! How long does one repetition take, side by side with others?
//!
//! Repetitions are grouped into samples long enough for the clock; the samples of all contestants are
//! interleaved, so that a busy moment of the machine hits all of them. Median and minimum are kept:
//! the median is what one sees, the minimum what the machine can do.

use crate::engine::Batch;
use std::time::Duration;

/// Duration of the measurement.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Time given to each contestant before anything counts.
    pub warm_up: Duration,
    /// Target duration of one sample.
    pub sample: Duration,
    /// Number of samples of each contestant.
    pub samples: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { warm_up: Duration::from_millis(100), sample: Duration::from_millis(2), samples: 101 }
    }
}

/// Nanoseconds per repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// The middle sample.
    pub median_ns: f64,
    /// The fastest sample.
    pub min_ns: f64,
}

/// Measures with a clock: any function that returns the time since a fixed moment.
#[derive(Debug)]
pub struct Harness<C> {
    clock: C,
    settings: Settings,
}

impl<C: Fn() -> Duration> Harness<C> {
    /// A harness on the given clock.
    pub fn new(clock: C, settings: Settings) -> Self {
        Self { clock, settings }
    }

    /// Times all contestants, sample by sample in turn; a missing contestant has no timing.
    pub fn side_by_side(&self, contestants: &mut [Option<Batch>]) -> Vec<Option<Timing>> {
        let mut counts = Vec::new();
        for contestant in contestants.iter_mut() {
            counts.push(contestant.as_mut().map(|batch| self.calibrate(batch)));
        }
        let mut samples = vec![Vec::with_capacity(self.settings.samples); contestants.len()];
        for _ in 0..self.settings.samples {
            let contestants = contestants.iter_mut().zip(&counts).zip(&mut samples);
            for ((contestant, count), samples) in contestants {
                if let (Some(batch), Some(count)) = (contestant, count) {
                    samples.push(nanoseconds(self.time(batch, *count)) / *count as f64);
                }
            }
        }
        samples.into_iter().map(summarize).collect()
    }

    /// Warms up, and returns how many repetitions fill one sample.
    fn calibrate(&self, batch: &mut Batch) -> u64 {
        let mut count = 1_u64;
        let mut spent = Duration::ZERO;
        loop {
            let taken = self.time(batch, count);
            spent = spent.saturating_add(taken);
            if spent >= self.settings.warm_up && taken.saturating_mul(2) >= self.settings.sample {
                let exact = nanoseconds(self.settings.sample) / nanoseconds(taken) * count as f64;
                return (exact as u64).max(1);
            }
            if taken < self.settings.sample {
                count = count.saturating_mul(2);
            }
        }
    }

    fn time(&self, batch: &mut Batch, count: u64) -> Duration {
        let start = (self.clock)();
        batch(count);
        (self.clock)().saturating_sub(start)
    }
}

/// A harness on the machine's monotonic clock, measuring long enough for stable ratios.
#[must_use]
pub fn on_this_machine() -> Harness<impl Fn() -> Duration> {
    let start = std::time::Instant::now();
    Harness::new(move || start.elapsed(), Settings::default())
}

fn nanoseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}

fn summarize(mut samples: Vec<f64>) -> Option<Timing> {
    samples.sort_by(f64::total_cmp);
    Some(Timing { median_ns: *samples.get(samples.len() / 2)?, min_ns: *samples.first()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// A clock that only moves when work is done.
    fn fake() -> (Rc<Cell<Duration>>, impl Fn() -> Duration) {
        let now = Rc::new(Cell::new(Duration::ZERO));
        let clock = Rc::clone(&now);
        (now, move || clock.get())
    }

    /// Work of a fixed length; `totals` counts repetitions.
    fn work(now: &Rc<Cell<Duration>>, ns: u64, total: &Rc<Cell<u64>>) -> Option<Batch> {
        let (now, total) = (Rc::clone(now), Rc::clone(total));
        Some(Box::new(move |count| {
            let taken = Duration::from_nanos(ns.saturating_mul(count));
            now.set(now.get().saturating_add(taken));
            total.set(total.get().saturating_add(count));
        }))
    }

    const SETTINGS: Settings =
        Settings { warm_up: Duration::from_micros(50), sample: Duration::from_micros(10), samples: 5 };

    #[test]
    fn work_of_known_length_is_timed_exactly() {
        let (now, clock) = fake();
        let total = Rc::new(Cell::new(0));
        let mut contestants = [work(&now, 25, &total), None, work(&now, 400, &total)];
        let timings = Harness::new(clock, SETTINGS).side_by_side(&mut contestants);
        let exactly = |ns: f64| Timing { median_ns: ns, min_ns: ns };
        assert_eq!(timings, [Some(exactly(25.0)), None, Some(exactly(400.0))]);
    }

    #[test]
    fn a_sample_holds_as_many_repetitions_as_fit() {
        let (now, clock) = fake();
        let total = Rc::new(Cell::new(0));
        let harness = Harness::new(clock, SETTINGS);
        let mut batch = work(&now, 25, &total).unwrap();
        assert_eq!(harness.calibrate(&mut batch), 400);
        assert!(now.get() >= SETTINGS.warm_up);
    }

    #[test]
    fn work_longer_than_a_sample_is_done_once_per_sample() {
        let (now, clock) = fake();
        let total = Rc::new(Cell::new(0));
        let harness = Harness::new(clock, SETTINGS);
        let mut batch = work(&now, 70_000, &total).unwrap();
        assert_eq!(harness.calibrate(&mut batch), 1);
        assert_eq!(total.get(), 1);
    }

    #[test]
    fn the_median_ignores_outliers_and_the_minimum_is_the_fastest() {
        let samples = vec![900.0, 10.0, 11.0, 12.0, 8.0];
        let expected = Timing { median_ns: 11.0, min_ns: 8.0 };
        assert_eq!(summarize(samples), Some(expected));
        assert_eq!(summarize(Vec::new()), None);
    }
}
