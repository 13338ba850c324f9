//! Time zones: names of the IANA database, which is part of the program, and offsets from UTC.
//!
//! A text with a colon is an offset, read as loosely as the reference reads it; anything else is a name, as Go's
//! `time.LoadLocation` knows them: case counts, and the empty name is UTC.

use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::value::{EvalError, Timestamp};

/// A place on earth, or a fixed distance from UTC.
#[derive(Clone, Debug)]
pub(super) enum Zone {
    /// Seconds east of UTC; any number, the reference has no limit.
    Offset(i64),
    /// A place whose offset changes.
    Named(TimeZone),
}

impl Zone {
    pub(super) const UTC: Zone = Zone::Offset(0);

    pub(super) fn parse(text: &str) -> Result<Zone, EvalError> {
        match text.split_once(':') {
            Some((hours, minutes)) => parse_offset(hours, minutes),
            None if text.is_empty() || text == "UTC" => Ok(Zone::UTC),
            None => find(text).map(Zone::Named),
        }
    }

    /// Seconds east of UTC at a point in time.
    pub(super) fn offset_seconds(&self, at: Timestamp) -> i64 {
        match self {
            Zone::Offset(seconds) => *seconds,
            Zone::Named(zone) => {
                // The database's calendar ends a day before ours; no zone changes on that day.
                let at = jiff::Timestamp::from_second(at.seconds()).unwrap_or(jiff::Timestamp::MAX);
                i64::from(zone.to_offset(at).seconds())
            }
        }
    }
}

fn find(name: &str) -> Result<TimeZone, EvalError> {
    // The process's own zone is not an input of an expression: it counts as UTC.
    if name == "Local" {
        return Ok(TimeZone::UTC);
    }
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err(EvalError::other("time: invalid location name"));
    }
    let zone = TimeZoneDatabase::bundled().get(name).ok();
    // The database finds names in any case.
    zone.filter(|zone| zone.iana_name() == Some(name))
        .ok_or_else(|| EvalError::other(format!("unknown time zone {name}")))
}

/// `+5:30`, `-08:00`, `24:00`, `+99:99`: hours and minutes, the sign of the text's first character counts for both.
fn parse_offset(hours: &str, minutes: &str) -> Result<Zone, EvalError> {
    let negative = hours.starts_with('-');
    let (hours, minutes) = (parse_number(hours)?, parse_number(minutes)?);
    let hours = hours.wrapping_mul(60);
    let minutes = if negative { hours.wrapping_sub(minutes) } else { hours.wrapping_add(minutes) };
    Ok(Zone::Offset(minutes.wrapping_mul(60)))
}

/// Go's `strconv.Atoi`, with its errors.
fn parse_number(text: &str) -> Result<i64, EvalError> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let reason = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let quoted = crate::value::go_quote(text);
        EvalError::other(format!("strconv.Atoi: parsing {quoted}: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn offset(text: &str, seconds: i64) {
        let leap_day = Timestamp::new(1_709_250_306, 0).unwrap();
        assert_eq!(Zone::parse(text).unwrap().offset_seconds(leap_day), seconds, "{text}");
    }

    #[track_caller]
    fn fails(text: &str, message: &str) {
        assert_eq!(Zone::parse(text).unwrap_err().message(), message);
    }

    #[test]
    fn names_and_offsets() {
        offset("", 0);
        offset("UTC", 0);
        offset("GMT", 0);
        offset("EST", -5 * 3_600);
        offset("Asia/Kolkata", 19_800);
        offset("America/New_York", -5 * 3_600);
        offset("Europe/London", 0);
        offset("+5:30", 19_800);
        offset("+05:30", 19_800);
        offset("-00:30", -1_800);
        offset("-08:00", -8 * 3_600);
        offset("24:00", 86_400);
        offset("+99:99", 99 * 3_600 + 99 * 60);
    }

    #[test]
    fn summer_time_changes_the_offset() {
        let new_york = Zone::parse("America/New_York").unwrap();
        let at = |text| Timestamp::parse(text).unwrap().unwrap();
        assert_eq!(new_york.offset_seconds(at("2024-03-10T06:59:59Z")), -5 * 3_600);
        assert_eq!(new_york.offset_seconds(at("2024-03-10T07:00:00Z")), -4 * 3_600);
        assert_eq!(new_york.offset_seconds(at("9999-12-31T23:59:59Z")), -5 * 3_600);
        assert_eq!(new_york.offset_seconds(at("0001-01-01T00:00:00Z")), -17_762);
    }

    #[test]
    fn invalid_zone_fails_with_reference_texts() {
        fails("Z", "unknown time zone Z");
        fails("utc", "unknown time zone utc");
        fails("+0530", "unknown time zone +0530");
        fails("america/new_york", "unknown time zone america/new_york");
        fails("Tacocat", "unknown time zone Tacocat");
        fails("../etc", "time: invalid location name");
        fails("a:b", "strconv.Atoi: parsing \"a\": invalid syntax");
        fails(":30", "strconv.Atoi: parsing \"\": invalid syntax");
        fails("1:2:3", "strconv.Atoi: parsing \"2:3\": invalid syntax");
    }
}
