//! The machine's time of day, for HTTP dates and certificate files. Everything in objects uses [`::clock::Clock`].

use std::time::{SystemTime, UNIX_EPOCH};

use api::time::Timestamp;

/// A time as headers of HTTP have it: `Sun, 15 Nov 2026 19:45:13 GMT`.
#[must_use]
pub(crate) fn http_date(time: Timestamp) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    // The first day of all was a Thursday.
    let day = usize::try_from(time.seconds.div_euclid(86_400).rem_euclid(7)).unwrap_or_default();
    let text = time.to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().unwrap_or(1).saturating_sub(1);
    let named = |names: &'static [&'static str], at: usize| names.get(at).copied().unwrap_or_default();
    format!("{}, {} {} {} {} GMT", named(&DAYS, day), part(8, 10), named(&MONTHS, month), part(0, 4), part(11, 19))
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
        ] {
            assert_eq!(http_date(Timestamp::parse(time).unwrap()), expected);
        }
    }
}
