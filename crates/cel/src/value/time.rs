//! Points and spans of time.
//!
//! A duration is Go's: signed nanoseconds in 64 bits. A timestamp is a UTC second and nanosecond between the years 1 and 9999;
//! it remembers the offset it was written with, because `string()` shows it again.

mod civil;
mod text;

use std::cmp::Ordering;
use std::fmt;

pub use civil::Civil;

use super::{ErrorKind, EvalError};

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    /// Signed nanoseconds: at most about 292 years.
    pub nanoseconds: i64,
}

/// A point in time.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: i64,
    nanoseconds: u32,
    offset_seconds: i32,
}

/// 0001-01-01T00:00:00Z
const SECONDS_MIN: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z
const SECONDS_MAX: i64 = 253_402_300_799;

const NANOS_PER_SECOND: i64 = 1_000_000_000;

impl Timestamp {
    /// A point in time, in seconds and nanoseconds since 1970 in UTC; fails outside the years 1 to 9999.
    pub fn new(seconds: i64, nanoseconds: u32) -> Result<Self, EvalError> {
        let in_range = (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) && i64::from(nanoseconds) < NANOS_PER_SECOND;
        if in_range {
            Ok(Timestamp { seconds, nanoseconds, offset_seconds: 0 })
        } else {
            Err(EvalError::new(ErrorKind::Overflow, "timestamp overflow"))
        }
    }

    /// The same point, written with an offset from UTC.
    #[must_use]
    pub fn with_offset(self, offset_seconds: i32) -> Self {
        Timestamp { offset_seconds, ..self }
    }

    /// Seconds since 1970 in UTC.
    pub fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds within the second.
    pub fn subsecond_nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// The offset from UTC that it was written with.
    pub fn offset_seconds(self) -> i32 {
        self.offset_seconds
    }

    /// Whether this is the first moment of year 1, Go's zero time.
    pub fn is_zero(self) -> bool {
        self.seconds == SECONDS_MIN && self.nanoseconds == 0
    }

    /// The point a span later; keeps the offset.
    pub fn checked_add(self, span: Duration) -> Result<Self, EvalError> {
        let nanoseconds = i64::from(self.nanoseconds).saturating_add(span.nanoseconds.rem_euclid(NANOS_PER_SECOND));
        let seconds = self
            .seconds
            .saturating_add(span.nanoseconds.div_euclid(NANOS_PER_SECOND))
            .saturating_add(nanoseconds.div_euclid(NANOS_PER_SECOND));
        let nanoseconds = u32::try_from(nanoseconds.rem_euclid(NANOS_PER_SECOND)).unwrap_or(0);
        Ok(Timestamp::new(seconds, nanoseconds)?.with_offset(self.offset_seconds))
    }

    /// The span from another point to this one.
    pub fn checked_since(self, earlier: Timestamp) -> Result<Duration, EvalError> {
        // As the reference: whole seconds must fit by themselves.
        let whole = self.seconds.checked_sub(earlier.seconds).and_then(|whole| whole.checked_mul(NANOS_PER_SECOND));
        let rest = i64::from(self.nanoseconds).saturating_sub(i64::from(earlier.nanoseconds));
        let nanoseconds = whole.and_then(|whole| whole.checked_add(rest)).ok_or_else(EvalError::int_overflow)?;
        Ok(Duration { nanoseconds })
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanoseconds).cmp(&(other.seconds, other.nanoseconds))
    }
}

/// Prints a timestamp as Go's `%v` does.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.go_text())
    }
}
