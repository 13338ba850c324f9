//! The machine's time of day, for HTTP dates and certificate files. Everything in objects uses [`::clock::Clock`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::time::Timestamp;

/// The last second of the year 9999, beyond which HTTP has no dates.
const HTTP_DATE_MAX: u64 = 253_402_300_799;

/// A time as headers of HTTP have it: `Sun, 15 Nov 2026 19:45:13 GMT`.
#[must_use]
pub(crate) fn http_date(time: Timestamp) -> String {
    let seconds = u64::try_from(time.seconds).unwrap_or_default().min(HTTP_DATE_MAX);
    httpdate::fmt_http_date(UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH))
}

/// The machine's time in whole seconds.
#[must_use]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_http_name_the_day() {
        for (time, expected) in [
            ("2026-11-15T19:45:13Z", "Sun, 15 Nov 2026 19:45:13 GMT"),
            ("1970-01-01T00:00:00Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("2024-02-29T23:59:59Z", "Thu, 29 Feb 2024 23:59:59 GMT"),
            ("9999-12-31T23:59:59Z", "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(Timestamp::parse(time).unwrap()), expected);
        }
        let beyond = Timestamp { seconds: i64::MAX, nanos: 0 };
        assert_eq!(http_date(beyond), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
