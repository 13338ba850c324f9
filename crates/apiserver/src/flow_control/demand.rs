//! Demand of a priority level over a period: maximum, average, and smoothed over periods.
//!
//! Levels lend what they do not need to those that do; how much that is, is read from here.

use std::time::Instant;

/// Decay of an earlier demand: half of it in five minutes, at one period every ten seconds.
const SMOOTHING: f64 = 0.977;

/// A number that is followed over time.
#[derive(Debug)]
pub(super) struct Demand {
    value: f64,
    since: Instant,
    started: Instant,
    /// Value times time, and value squared times time.
    sum: f64,
    square_sum: f64,
    highest: f64,
    smoothed: f64,
}

/// Demand of a period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct ObservedDemand {
    pub(super) highest: f64,
    pub(super) average: f64,
    pub(super) deviation: f64,
    pub(super) smoothed: f64,
}

impl Demand {
    pub(super) fn new(now: Instant) -> Self {
        Self { value: 0.0, since: now, started: now, sum: 0.0, square_sum: 0.0, highest: 0.0, smoothed: 0.0 }
    }

    /// The value from now on.
    pub(super) fn note(&mut self, now: Instant, value: f64) {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.sum += self.value * passed;
        self.square_sum += self.value * self.value * passed;
        self.since = now;
        self.value = value;
        self.highest = self.highest.max(value);
    }

    /// Ends a period and begins the next one.
    pub(super) fn end_period(&mut self, now: Instant) -> ObservedDemand {
        self.note(now, self.value);
        let passed = now.saturating_duration_since(self.started).as_secs_f64();
        let (average, deviation) = if passed > 0.0 {
            let average = self.sum / passed;
            (average, (self.square_sum / passed - average * average).max(0.0).sqrt())
        } else {
            (self.value, 0.0)
        };
        let envelope = average + deviation;
        self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
        let observed = ObservedDemand { highest: self.highest, average, deviation, smoothed: self.smoothed };
        (self.started, self.sum, self.square_sum, self.highest) = (now, 0.0, 0.0, self.value);
        observed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_period_is_summed_up() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut demand = Demand::new(start);
        demand.note(at(0), 10.0);
        demand.note(at(5), 0.0);
        let observed = demand.end_period(at(10));
        assert_eq!((observed.highest, observed.average, observed.deviation), (10.0, 5.0, 5.0));
        assert_eq!(observed.smoothed, 10.0);
        // Past demand decays slowly.
        let quiet = demand.end_period(at(20));
        assert_eq!((quiet.highest, quiet.average), (0.0, 0.0));
        assert!((quiet.smoothed - 9.77).abs() < 1e-9);
    }
}
