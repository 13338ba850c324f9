//! Latencies of requests: a count per bucket, 3 % wide, so that millions of them need little memory.

use std::time::Duration;

/// Buckets per doubling.
const STEPS: f64 = 24.0;
/// From a microsecond to half an hour.
const BUCKETS: usize = 750;

/// A histogram of durations.
#[derive(Debug, Clone)]
pub struct Latencies {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Latencies {
    /// Counts one.
    pub fn add(&mut self, took: Duration) {
        let micros = took.as_secs_f64() * 1e6;
        let bucket = (micros.max(1.0).log2() * STEPS) as usize;
        if let Some(count) = self.counts.get_mut(bucket.min(BUCKETS.saturating_sub(1))) {
            *count = count.saturating_add(1);
        }
        self.total = self.total.saturating_add(1);
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.total = self.total.saturating_add(other.total);
    }

    /// Number of measurements.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The duration that this part of all does not exceed, in seconds; none if there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = (self.total as f64 * part).ceil() as u64;
        let mut seen = 0_u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen = seen.saturating_add(*count);
            if seen >= wanted.max(1) {
                // The middle of the bucket.
                return Some(((bucket as f64 + 0.5) / STEPS).exp2() / 1e6);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile(0.5), None);
        for ms in 1..=1000 {
            latencies.add(Duration::from_millis(ms));
        }
        let near = |quantile: f64, expected: f64| {
            let found = latencies.quantile(quantile).unwrap();
            assert!((found / expected - 1.0).abs() < 0.03, "{found} is not {expected}");
        };
        near(0.5, 0.5);
        near(0.99, 0.99);
        assert_eq!(latencies.count(), 1000);
    }
}
