//! Text with a format: durations, dates, octets, read as the API server's format checkers read them.

use base64::Engine as _;
use cel::value::{Bytes, Duration, EvalError, Timestamp, Value};

pub(super) fn duration(text: &str) -> Value<'static> {
    match Duration::parse(text).or_else(|| parse_words(text)) {
        Some(duration) => Value::Duration(duration),
        None => failed(format!("Invalid duration {text}: unable to parse {text} as duration")),
    }
}

/// `2024-05-01`: midnight in UTC.
pub(super) fn date(text: &str) -> Value<'static> {
    match parse_timestamp(&format!("{text}T00:00:00Z")) {
        Some(timestamp) if text.len() == 10 => Value::Timestamp(timestamp),
        _ => failed(format!(
            "Invalid date formatted string {text}: parsing time \"{text}\" as \"2006-01-02\": cannot parse \"{text}\" as \"2006\""
        )),
    }
}

/// RFC 3339, or the same without an offset, which then is UTC.
pub(super) fn date_time(text: &str) -> Value<'static> {
    let parsed = if text.is_empty() {
        // The reference's zero date-time.
        Timestamp::new(0, 0).ok()
    } else {
        parse_timestamp(text).or_else(|| parse_timestamp(&format!("{text}Z")))
    };
    match parsed {
        Some(timestamp) => Value::Timestamp(timestamp),
        None => failed(format!(
            "Invalid date-time formatted string {text}: parsing time \"{text}\" as \"2006-01-02T15:04:05\": cannot parse \"{text}\" as \"2006\""
        )),
    }
}

/// Base64 with the URL alphabet, padded.
pub(super) fn octets(text: &str) -> Value<'static> {
    // Line breaks do not count, as in Go's decoder.
    let decoded = if text.contains(['\r', '\n']) {
        base64::engine::general_purpose::URL_SAFE.decode(text.replace(['\r', '\n'], ""))
    } else {
        base64::engine::general_purpose::URL_SAFE.decode(text)
    };
    match decoded {
        Ok(octets) => Value::Bytes(Bytes::Shared(octets.into())),
        Err(_) => failed(format!("Invalid byte formatted string {text}: illegal base64 data at input byte 0")),
    }
}

fn failed(message: String) -> Value<'static> {
    Value::Error(EvalError::other(message))
}

fn parse_timestamp(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text)?.ok()
}

/// Units in words, such as `3 days 2 hours`: each number with the letters behind it.
fn parse_words(text: &str) -> Option<Duration> {
    const SECOND: i64 = 1_000_000_000;
    // A unit's exact names, and the beginning that any longer form has.
    const UNITS: [(&[&str], &str, i64); 8] = [
        (&["ns"], "nano", 1),
        (&["us", "µs"], "micro", 1_000),
        (&["ms"], "milli", 1_000_000),
        (&["s"], "sec", SECOND),
        (&["m"], "min", 60 * SECOND),
        (&["h", "hr"], "hour", 3_600 * SECOND),
        (&["d"], "day", 86_400 * SECOND),
        (&["w", "wk"], "week", 604_800 * SECOND),
    ];
    let mut total = 0_i64;
    let mut found = false;
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        rest = rest.get(start..)?;
        let (number, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let behind = behind.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
        let is_unit = |c: char| c.is_ascii_alphabetic() || c == 'µ';
        let (unit, after) = behind.split_at(behind.find(|c| !is_unit(c)).unwrap_or(behind.len()));
        rest = after;
        if unit.is_empty() {
            continue;
        }
        let number: i64 = number.parse().ok()?;
        let unit = unit.to_lowercase();
        for (names, beginning, nanoseconds) in UNITS {
            if names.contains(&unit.as_str()) || unit.starts_with(beginning) {
                found = true;
                total = total.wrapping_add(number.wrapping_mul(nanoseconds));
            }
        }
    }
    found.then_some(Duration { nanoseconds: total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, nanoseconds: i64) {
        match duration(text) {
            Value::Duration(duration) => assert_eq!(duration.nanoseconds, nanoseconds, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn durations_have_units_or_words() {
        check("1h30m", 5_400_000_000_000);
        check("3 days", 259_200_000_000_000);
        check("2 wk 1 hour", 1_213_200_000_000_000);
        assert!(matches!(duration("soon"), Value::Error(_)));
    }

    #[test]
    fn date_times_may_lack_an_offset() {
        assert!(matches!(date_time("2024-05-01T10:00:00"), Value::Timestamp(_)));
        assert!(matches!(date_time("2024-05-01T10:00:00.5+02:00"), Value::Timestamp(_)));
        assert!(matches!(date("2024-05-01"), Value::Timestamp(_)));
        assert!(matches!(date("2024-05-01T10:00:00Z"), Value::Error(_)));
    }
}
