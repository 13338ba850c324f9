//! The time of day as an argument: tests pass their own.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::time::Timestamp;

/// Says what time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's clock.
#[must_use]
pub fn wall() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
    })
}

/// The time that lies `duration` after `time`.
#[must_use]
pub fn after(time: Timestamp, duration: Duration) -> Timestamp {
    let nanos = time.nanos.saturating_add(duration.subsec_nanos());
    let carry = i64::from(nanos >= 1_000_000_000);
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timestamp {
        seconds: time.seconds.saturating_add(seconds).saturating_add(carry),
        nanos: if carry == 1 { nanos.saturating_sub(1_000_000_000) } else { nanos },
    }
}

/// How long it is from `from` to `to`; nothing if that has passed.
#[must_use]
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    let since = |time: Timestamp| {
        let seconds = u64::try_from(time.seconds.saturating_sub(from.seconds.min(to.seconds))).unwrap_or(0);
        Duration::new(seconds, time.nanos)
    };
    since(to).saturating_sub(since(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_and_taking_away_agree() {
        let start = Timestamp { seconds: 10, nanos: 700_000_000 };
        let later = after(start, Duration::from_millis(1500));
        assert_eq!(later, Timestamp { seconds: 12, nanos: 200_000_000 });
        assert_eq!(between(start, later), Duration::from_millis(1500));
        assert_eq!(between(later, start), Duration::ZERO);
    }
}
