//! The time of day as an argument: tests pass their own.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

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
