//! Rate limits for retries.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use tokio::time::Instant;

/// A pause that doubles with every failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub first: Duration,
    /// Maximum delay.
    pub max: Duration,
}

impl Default for Backoff {
    /// The defaults of Kubernetes' controllers: 5 ms to 1000 s.
    fn default() -> Self {
        Self { first: Duration::from_millis(5), max: Duration::from_secs(1000) }
    }
}

impl Backoff {
    /// The pause after this many earlier failures.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.max)
    }

    /// Like [`delay`](Self::delay), but half of it random, so that many clients do not retry at once.
    #[must_use]
    pub fn pause(&self, failures: u32) -> Duration {
        let half = self.delay(failures).checked_div(2).unwrap_or_default();
        let micros = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        half.saturating_add(Duration::from_micros(chance().checked_rem(micros.saturating_add(1)).unwrap_or(0)))
    }
}

/// A number by chance: good enough to spread load.
pub(crate) fn chance() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// A rate with a reserve: a number at once, then a number per second.
#[derive(Debug, Clone)]
pub struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Option<Instant>,
}

impl Default for Bucket {
    /// The defaults of Kubernetes' controllers: 10 per second, 100 at once.
    fn default() -> Self {
        Self::new(10.0, 100)
    }
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self { per_second, burst: f64::from(burst), tokens: f64::from(burst), filled: None }
    }

    fn fill(&mut self, now: Instant) {
        if let Some(before) = self.filled {
            let seconds = now.saturating_duration_since(before).as_secs_f64();
            self.tokens = (self.tokens + seconds * self.per_second).min(self.burst);
        }
        self.filled = Some(now);
    }

    /// Takes a token, if one is available.
    pub fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    /// Takes a token, possibly in advance, and returns the time to wait for it.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        self.fill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 || self.per_second <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.per_second).unwrap_or(Duration::MAX)
    }
}
