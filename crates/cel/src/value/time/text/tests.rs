//! Expectations are Go's.

use super::*;

#[track_caller]
fn reads(text: &str, utc: &str) {
    let at = Timestamp::parse(text).unwrap().unwrap();
    assert_eq!(at.with_offset(0).rfc3339(), utc);
}

#[test]
fn timestamps_are_read_as_go_reads_them() {
    reads("2024-01-01T00:00:00+01:00", "2023-12-31T23:00:00Z");
    reads("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z");
    reads("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z");
    reads("2024-01-01T00:00:00.1234567899Z", "2024-01-01T00:00:00.123456789Z");
    reads("2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00.5Z");
    reads("2024-01-01T1:02:03Z", "2024-01-01T01:02:03Z");
    reads("2024-01-01T00:00:00+24:60", "2023-12-30T23:00:00Z");
    reads("2024-02-29T12:34:56.789-08:00", "2024-02-29T20:34:56.789Z");
}

#[test]
fn other_text_is_no_timestamp() {
    for text in [
        "",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00Z",
        "2024-01-01t00:00:00Z",
        "2024-01-01T00:00:00z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T23:59:60Z",
        "2024-02-30T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-00-01T00:00:00Z",
        "2024-1-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2024-01-01T00:00:00.Z",
        "2024-01-01T00:00:00+0100",
        "2024-01-01T00:00:00+25:00",
        "2024-01-01T00:00:00Zx",
        "2024-01-01T00:00:00é",
    ] {
        assert_eq!(Timestamp::parse(text).map(|at| at.is_ok()), None, "{text}");
    }
}

#[test]
fn the_range_is_checked_in_utc() {
    for text in ["0000-12-31T23:59:59Z", "0001-01-01T00:30:00+01:00", "9999-12-31T23:30:00-01:00"] {
        assert_eq!(Timestamp::parse(text).unwrap().unwrap_err().message(), "timestamp overflow", "{text}");
    }
}

#[test]
fn timestamps_keep_their_offset() {
    for text in [
        "2024-01-01T00:00:00+02:00",
        "2024-01-01T00:00:00.5-00:30",
        "1969-12-31T23:59:59.5Z",
        "2024-01-01T00:00:00.000000001Z",
    ] {
        assert_eq!(Timestamp::parse(text).unwrap().unwrap().rfc3339(), text);
    }
    let zero = Timestamp::parse("2024-01-01T00:00:00+00:00").unwrap().unwrap();
    assert_eq!(zero.rfc3339(), "2024-01-01T00:00:00Z");
    assert_eq!(zero.go_text(), "2024-01-01 00:00:00 +0000 UTC");
    let late = Timestamp::new(253_402_300_799, 0).unwrap().with_offset(3_600);
    assert_eq!(late.rfc3339(), "10000-01-01T00:59:59+01:00");
}

#[track_caller]
fn parses(text: &str, exact: &str) {
    assert_eq!(Duration::parse(text).map(Duration::exact_text).as_deref(), Some(exact), "{text}");
}

#[test]
fn durations_are_read_as_go_reads_them() {
    parses("1s", "1s");
    parses("1.5s", "1.5s");
    parses(".5s", "0.5s");
    parses("5.s", "5s");
    parses("0", "0s");
    parses("+0", "0s");
    parses("-1h", "-3600s");
    parses("1us", "0.000001s");
    parses("1µs", "0.000001s");
    parses("1μs", "0.000001s");
    parses("1h2m3.5s4ms5us6ns", "3723.504005006s");
    parses("2562047h47m16.854775807s", "9223372036.854775807s");
    parses("-2562047h47m16.854775808s", "-9223372036.854775808s");
    parses("9223372036s", "9223372036s");
    parses("0.3333333333333333333h", "1200s");
    parses("0.9223372036854775807h", "3320.413933267s");
    for text in ["", "-", "s", "1", "1w", "1h-1m", ".s", "1x", "9223372037s", "2562047h47m16.854775808s", "1 s", "1S"] {
        assert_eq!(Duration::parse(text), None, "{text}");
    }
}

#[test]
fn durations_print_as_seconds_or_as_go_prints_them() {
    for (text, seconds, go) in [
        ("1h", "3600s", "1h0m0s"),
        ("90s", "90s", "1m30s"),
        ("-1.5s", "-1.5s", "-1.5s"),
        ("300ms", "0.3s", "300ms"),
        ("1.5us", "0.0000015s", "1.5µs"),
        ("7ns", "0.000000007s", "7ns"),
        ("0s", "0s", "0s"),
        ("25h1m1.25s", "90061.25s", "25h1m1.25s"),
        ("-2562047h47m16.854775808s", "-9223372036.854776s", "-2562047h47m16.854775808s"),
    ] {
        let duration = Duration::parse(text).unwrap();
        assert_eq!(duration.seconds_text(), seconds);
        assert_eq!(duration.go_text(), go);
    }
}
