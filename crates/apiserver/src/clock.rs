//! The time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use api::time::Timestamp;

/// Now, to the microsecond, as `MicroTime` fields show it.
#[must_use]
pub(crate) fn now_micros() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: since.subsec_nanos() }.to_micro_string()
}

/// Now, in whole seconds.
#[must_use]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: 0 }
}
