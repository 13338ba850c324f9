//! The times of a schedule: five fields of sets, or a descriptor, in a time zone.
//!
//! If both day fields are restricted, a day that matches either of them is selected.

use api::duration::Duration;
use api::time::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};

/// Times further away than this are not looked for.
const YEARS_MAX: i16 = 5;
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A reason why a schedule does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ScheduleError(String);

/// Numbers of a field, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    bits: u64,
    /// Whether everything is selected.
    is_star: bool,
}

impl Field {
    fn has(self, number: i8) -> bool {
        u32::try_from(number).ok().and_then(|number| self.bits.checked_shr(number)).is_some_and(|bits| bits & 1 == 1)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Times {
    Fields {
        minute: Field,
        hour: Field,
        day: Field,
        month: Field,
        weekday: Field,
    },
    /// Every this many seconds.
    Every(i64),
}

/// A cron schedule and its time zone.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Schedule {
    times: Times,
    zone: TimeZone,
}

/// A zone by its name; UTC where there is none.
pub(super) fn zone(name: Option<&str>) -> Result<TimeZone, ScheduleError> {
    match name {
        None | Some("" | "UTC") => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| ScheduleError(format!("unknown time zone {name}"))),
    }
}

impl Schedule {
    /// Reads a schedule, which may name its zone itself.
    pub(super) fn parse(text: &str, zone_name: Option<&str>) -> Result<Self, ScheduleError> {
        let own = text.strip_prefix("TZ=").or(text.strip_prefix("CRON_TZ="));
        let (zone_name, text) = match own {
            Some(rest) => rest.split_once(' ').map(|(name, rest)| (Some(name), rest)).unwrap_or((Some(rest), "")),
            None => (zone_name, text),
        };
        let zone = zone(zone_name)?;
        let text = text.trim();
        let times = match text.strip_prefix('@') {
            Some(word) => word_times(word)?,
            None => field_times(text)?,
        };
        Ok(Self { times, zone })
    }

    /// The first time after a given one.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let start = Timestamp { seconds: after.seconds.saturating_add(1), nanos: 0 };
        match &self.times {
            Times::Every(seconds) => Some(Timestamp { seconds: after.seconds.saturating_add(*seconds), nanos: 0 }),
            Times::Fields { minute, hour, day, month, weekday } => {
                let zoned = jiff::Timestamp::from_second(start.seconds).ok()?.to_zoned(self.zone.clone());
                let limit = zoned.year().saturating_add(YEARS_MAX);
                // A whole minute: schedules have no seconds.
                let mut at = round_up(&zoned)?;
                loop {
                    if at.year() > limit {
                        return None;
                    }
                    if !month.has(at.month()) {
                        let first = Date::new(at.year(), at.month(), 1).ok()?;
                        at = midnight(first.checked_add(1.month()).ok()?, &self.zone)?;
                        continue;
                    }
                    let is_day = day.has(at.day());
                    let is_weekday = weekday.has(at.weekday().to_sunday_zero_offset());
                    let both = day.is_star || weekday.is_star;
                    if !(if both { is_day && is_weekday } else { is_day || is_weekday }) {
                        at = midnight(at.date().checked_add(1.day()).ok()?, &self.zone)?;
                        continue;
                    }
                    if !hour.has(at.hour()) {
                        at = start_of_hour(&at)?.checked_add(1.hour()).ok()?;
                        continue;
                    }
                    if !minute.has(at.minute()) {
                        at = at.checked_add(1.minute()).ok()?;
                        continue;
                    }
                    return Some(Timestamp { seconds: at.timestamp().as_second(), nanos: 0 });
                }
            }
        }
    }

    /// Formats a time in a time zone.
    pub(super) fn written(at: Timestamp, zone: &TimeZone) -> String {
        let Ok(time) = jiff::Timestamp::from_second(at.seconds) else { return at.to_string() };
        let zoned = time.to_zoned(zone.clone());
        if zoned.offset().is_zero() { at.to_string() } else { zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string() }
    }
}

/// The minute, or the next one if seconds have passed.
fn round_up(at: &Zoned) -> Option<Zoned> {
    let seconds = i64::from(at.second());
    if seconds == 0 { Some(at.clone()) } else { at.checked_add((60_i64.saturating_sub(seconds)).seconds()).ok() }
}

fn start_of_hour(at: &Zoned) -> Option<Zoned> {
    at.checked_sub(i64::from(at.minute()).minutes()).ok()
}

fn midnight(date: Date, zone: &TimeZone) -> Option<Zoned> {
    date.at(0, 0, 0, 0).to_zoned(zone.clone()).ok()
}

fn word_times(word: &str) -> Result<Times, ScheduleError> {
    if let Some(text) = word.strip_prefix("every ") {
        let failure = || ScheduleError(format!("failed to parse duration @{word}"));
        let duration = Duration::parse(text).map_err(|_| failure())?;
        return Ok(Times::Every(duration.nanos.div_euclid(1_000_000_000).max(1)));
    }
    field_times(match word {
        "yearly" | "annually" => "0 0 1 1 *",
        "monthly" => "0 0 1 * *",
        "weekly" => "0 0 * * 0",
        "daily" | "midnight" => "0 0 * * *",
        "hourly" => "0 * * * *",
        _ => return Err(ScheduleError(format!("unrecognized descriptor: @{word}"))),
    })
}

fn field_times(text: &str) -> Result<Times, ScheduleError> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields.as_slice() else {
        let count = fields.len();
        return Err(ScheduleError(format!("expected exactly 5 fields, found {count}: [{}]", fields.join(" "))));
    };
    Ok(Times::Fields {
        minute: field(minute, 0, 59, &[])?,
        hour: field(hour, 0, 23, &[])?,
        day: field(day, 1, 31, &[])?,
        month: field(month, 1, 12, &MONTHS)?,
        weekday: field(weekday, 0, 6, &DAYS)?,
    })
}

/// Reads `*/5`, `1-5`, `mon,wed` and the like.
fn field(text: &str, least: u32, most: u32, names: &[&str]) -> Result<Field, ScheduleError> {
    let mut field = Field { bits: 0, is_star: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let failure = |what: &str| ScheduleError(format!("{what}: {part}"));
        let number = |text: &str| {
            let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
            let named = named.and_then(|index| u32::try_from(index).ok()).map(|index| index.saturating_add(least));
            named.or_else(|| text.parse().ok()).ok_or_else(|| failure("failed to parse int from"))
        };
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let step: u32 = step.map_or(Ok(1), |step| step.parse().map_err(|_| failure("failed to parse int from")))?;
        let (first, last) = match range {
            "*" | "?" => {
                // Kubernetes: a step takes the star away.
                field.is_star |= step <= 1;
                (least, most)
            }
            _ => match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None if part.contains('/') => (number(range)?, most),
                None => (number(range)?, number(range)?),
            },
        };
        if first < least || last > most || first > last || step == 0 {
            return Err(failure("out of range"));
        }
        let mut at = first;
        while at <= last {
            field.bits |= 1_u64.checked_shl(at).unwrap_or(0);
            at = at.saturating_add(step);
        }
    }
    if field.bits == 0 { Err(ScheduleError(format!("empty field: {text}"))) } else { Ok(field) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &str, zone: Option<&str>, after: &str, expected: &str) {
        let schedule = Schedule::parse(schedule, zone).unwrap();
        let next = schedule.next(Timestamp::parse(after).unwrap());
        assert_eq!(next.map(|next| next.to_string()).unwrap_or_default(), expected);
    }

    #[test]
    fn the_next_time_is_found() {
        check("* * * * *", None, "2026-03-01T10:00:00Z", "2026-03-01T10:01:00Z");
        check("* * * * *", None, "2026-03-01T10:00:59.5Z", "2026-03-01T10:01:00Z");
        check("*/15 * * * *", None, "2026-03-01T10:46:00Z", "2026-03-01T11:00:00Z");
        check("30 4 1,15 * fri", None, "2026-03-01T10:00:00Z", "2026-03-06T04:30:00Z");
        check("0 0 29 2 *", None, "2026-03-01T10:00:00Z", "2028-02-29T00:00:00Z");
        check("0 0 31 2 *", None, "2026-03-01T10:00:00Z", "");
        check("@hourly", None, "2026-12-31T23:30:00Z", "2027-01-01T00:00:00Z");
        check("@every 90s", None, "2026-03-01T10:00:00Z", "2026-03-01T10:01:30Z");
        check("0 9 * * mon-fri", None, "2026-03-06T09:00:00Z", "2026-03-09T09:00:00Z");
    }

    #[test]
    fn times_are_those_of_the_zone() {
        check("0 9 * * *", Some("Europe/Berlin"), "2026-03-28T10:00:00Z", "2026-03-29T07:00:00Z");
        check("0 9 * * *", Some("Asia/Tokyo"), "2026-03-01T00:00:00Z", "2026-03-02T00:00:00Z");
        check("TZ=America/New_York 0 9 * * *", None, "2026-01-01T00:00:00Z", "2026-01-01T14:00:00Z");
        // 02:30 does not exist on this day.
        check("30 2 * * *", Some("Europe/Berlin"), "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z");
        let at = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        assert_eq!(Schedule::written(at, &zone(Some("Asia/Tokyo")).unwrap()), "2026-01-01T09:00:00+09:00");
        assert_eq!(Schedule::written(at, &TimeZone::UTC), "2026-01-01T00:00:00Z");
    }

    #[test]
    fn invalid_schedule_is_rejected() {
        for text in ["", "* * * *", "60 * * * *", "* * * * 7", "*/0 * * * *", "5-1 * * * *", "@sometimes", "x * * * *"]
        {
            assert!(Schedule::parse(text, None).is_err(), "{text}");
        }
        assert!(Schedule::parse("* * * * *", Some("Nowhere/Land")).is_err());
    }
}
