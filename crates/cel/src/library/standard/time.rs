//! Parts of timestamps, in a time zone or in UTC, and durations in units.

use super::zone::Zone;
use crate::cost::Price;
use crate::env::{Overload, PlanTime, PreparedCall};
use crate::library::{native, text, unexpected};
use crate::value::{Civil, EvalError, Timestamp, Value};

/// A part of a timestamp: without and with a time zone. A zone that is constant is looked up while planning.
macro_rules! part {
    ($plain:literal, $zoned:literal, $function:literal, $part:path) => {
        [
            native($plain, concat!("timestamp.", $function, "() -> int"), Price::ONE, |operands| {
                part_of(timestamp(operands)?, &Zone::UTC, $part)
            }),
            Overload {
                plan_time: PlanTime::Prepare(|operands| {
                    let [_, Some(Value::String(zone))] = operands else { return None };
                    // An unknown zone is an error of run time.
                    let zone = Zone::parse(zone).ok()?;
                    Some(Ok(PreparedCall::new(move |operands| part_of(timestamp(operands)?, &zone, $part))))
                }),
                ..native($zoned, concat!("timestamp.", $function, "(string) -> int"), Price::ONE, |operands| {
                    part_of(timestamp(operands)?, &Zone::parse(text(operands, 1)?)?, $part)
                })
            },
        ]
    };
}

const YEAR: [Overload; 2] = part!("timestamp_to_year", "timestamp_to_year_with_tz", "getFullYear", year);
const MONTH: [Overload; 2] = part!("timestamp_to_month", "timestamp_to_month_with_tz", "getMonth", month);
const DAY_OF_YEAR: [Overload; 2] =
    part!("timestamp_to_day_of_year", "timestamp_to_day_of_year_with_tz", "getDayOfYear", day_of_year);
const DAY_OF_MONTH: [Overload; 2] =
    part!("timestamp_to_day_of_month", "timestamp_to_day_of_month_with_tz", "getDayOfMonth", day_of_month);
const DATE: [Overload; 2] =
    part!("timestamp_to_day_of_month_1_based", "timestamp_to_day_of_month_1_based_with_tz", "getDate", date);
const DAY_OF_WEEK: [Overload; 2] =
    part!("timestamp_to_day_of_week", "timestamp_to_day_of_week_with_tz", "getDayOfWeek", day_of_week);
const HOURS: [Overload; 2] = part!("timestamp_to_hours", "timestamp_to_hours_with_tz", "getHours", hour);
const MINUTES: [Overload; 2] = part!("timestamp_to_minutes", "timestamp_to_minutes_with_tz", "getMinutes", minute);
// The reference's identifier of the zoned form differs from its siblings'.
const SECONDS: [Overload; 2] = part!("timestamp_to_seconds", "timestamp_to_seconds_tz", "getSeconds", second);
const MILLISECONDS: [Overload; 2] =
    part!("timestamp_to_milliseconds", "timestamp_to_milliseconds_with_tz", "getMilliseconds", millisecond);

const DURATIONS: [Overload; 4] = [
    native("duration_to_hours", "duration.getHours() -> int", Price::ONE, |operands| {
        units(operands, 3_600_000_000_000)
    }),
    native("duration_to_minutes", "duration.getMinutes() -> int", Price::ONE, |operands| {
        units(operands, 60_000_000_000)
    }),
    native("duration_to_seconds", "duration.getSeconds() -> int", Price::ONE, |operands| {
        units(operands, 1_000_000_000)
    }),
    native("duration_to_milliseconds", "duration.getMilliseconds() -> int", Price::ONE, |operands| match operands {
        [Value::Duration(span)] => Ok(Value::Int(span.nanoseconds.wrapping_div(1_000_000))),
        _ => Err(unexpected()),
    }),
];

const PARTS: &[&[Overload]] = &[
    &YEAR,
    &MONTH,
    &DAY_OF_YEAR,
    &DAY_OF_MONTH,
    &DATE,
    &DAY_OF_WEEK,
    &HOURS,
    &MINUTES,
    &SECONDS,
    &MILLISECONDS,
    &DURATIONS,
];

pub(super) const OVERLOADS: &[Overload] = &crate::library::join::<{ crate::library::count(PARTS) }>(PARTS);

type Part = fn(&Civil, Timestamp) -> i64;

fn part_of<'v>(at: Timestamp, zone: &Zone, part: Part) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(part(&at.civil(zone.offset_seconds(at)), at)))
}

fn timestamp(operands: &[Value<'_>]) -> Result<Timestamp, EvalError> {
    match operands.first() {
        Some(Value::Timestamp(at)) => Ok(*at),
        _ => Err(unexpected()),
    }
}

fn year(civil: &Civil, _: Timestamp) -> i64 {
    civil.year
}

/// January is 0.
fn month(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.month).saturating_sub(1)
}

fn day_of_year(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.day_of_year)
}

/// The first is 0.
fn day_of_month(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.day).saturating_sub(1)
}

/// The first is 1.
fn date(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.day)
}

fn day_of_week(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.weekday)
}

fn hour(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.hour)
}

fn minute(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.minute)
}

fn second(civil: &Civil, _: Timestamp) -> i64 {
    i64::from(civil.second)
}

fn millisecond(_: &Civil, at: Timestamp) -> i64 {
    i64::from(at.subsecond_nanoseconds().wrapping_div(1_000_000))
}

/// Whole units; goes through floating point as the reference does, which shows in spans of centuries.
fn units<'v>(operands: &[Value<'v>], unit: i64) -> Result<Value<'v>, EvalError> {
    match operands {
        [Value::Duration(span)] => Ok(Value::Int(span.units_float(unit) as i64)),
        _ => Err(unexpected()),
    }
}
