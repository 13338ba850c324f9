//! Schedules and time zones of CronJobs.
//!
//! Follows `robfig/cron`'s standard parser: five fields, or a descriptor such as `@daily` or `@every 1h`.

use api::duration::Duration;
use api::field::{Errors, Path};
use api::go_text::quote;
use jiff::tz::TimeZoneDatabase;

/// Adds what is wrong with a schedule.
pub(super) fn validate(schedule: &str, allows_zone: bool, has_zone: bool, at: Path<'_>, errors: &mut Errors) {
    if let Err(error) = parse(schedule) {
        errors.invalid(at, schedule, error);
    }
    if schedule.contains("TZ") {
        if !allows_zone {
            errors.invalid(at, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        } else if has_zone {
            errors.invalid(at, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule");
        }
    }
}

/// Adds what is wrong with the name of a time zone.
pub(super) fn validate_zone(zone: &str, at: Path<'_>, errors: &mut Errors) {
    if zone.is_empty() {
        errors.invalid(at, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let is_part = |part: &str| {
        (1..=14).contains(&part.len())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+'))
    };
    if zone.split('/').any(|part| !is_part(part) || matches!(part, "." | "..") || part.starts_with('-')) {
        errors.invalid(at, zone, format!("unknown time zone {zone}"));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(at, zone, detail);
    }
    // The database finds names in any case.
    let is_known = |name: &str| TimeZoneDatabase::bundled().get(name).is_ok_and(|it| it.iana_name() == Some(name));
    if !matches!(zone, "UTC" | "Local") && !is_known(zone) {
        let detail = if zone.contains("..") {
            "time: invalid location name".to_owned()
        } else {
            format!("unknown time zone {zone}")
        };
        errors.invalid(at, zone, detail);
    }
}

struct Field {
    min: u64,
    max: u64,
    names: &'static [&'static str],
    first_name: u64,
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Field; 5] = [
    Field { min: 0, max: 59, names: &[], first_name: 0 },
    Field { min: 0, max: 23, names: &[], first_name: 0 },
    Field { min: 1, max: 31, names: &[], first_name: 0 },
    Field { min: 1, max: 12, names: MONTHS, first_name: 1 },
    Field { min: 0, max: 6, names: DAYS, first_name: 0 },
];

fn parse(schedule: &str) -> Result<(), String> {
    let mut spec = schedule;
    if spec.is_empty() {
        return Err("empty spec string".to_owned());
    }
    if spec.starts_with("TZ=") || spec.starts_with("CRON_TZ=") {
        spec = spec.split_once(' ').map_or("", |(_, rest)| rest).trim();
    }
    if spec.starts_with('@') {
        return match spec {
            "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
            _ => match spec.strip_prefix("@every ") {
                Some(text) => match Duration::parse(text) {
                    Ok(_) => Ok(()),
                    Err(error) => Err(format!("failed to parse duration {spec}: {error}")),
                },
                None => Err(format!("unrecognized descriptor: {spec}")),
            },
        };
    }
    let fields: Vec<&str> = spec.split_whitespace().collect();
    if fields.len() != 5 {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for part in text.split(',').filter(|part| !part.is_empty()) {
            parse_range(part, field)?;
        }
    }
    Ok(())
}

fn parse_range(text: &str, field: &Field) -> Result<(), String> {
    let (range, step) = match text.split_once('/') {
        None => (text, None),
        Some((_, rest)) if rest.contains('/') => return Err(format!("too many slashes: {text}")),
        Some((range, step)) => (range, Some(step)),
    };
    let (low, high) = match range.split_once('-') {
        Some((_, rest)) if rest.contains('-') => return Err(format!("too many hyphens: {text}")),
        _ if range == "*" || range == "?" => (field.min, field.max),
        Some((low, high)) => (parse_value(low, field)?, parse_value(high, field)?),
        None => {
            let value = parse_value(range, field)?;
            (value, if step.is_some() { field.max } else { value })
        }
    };
    let step = step.map(parse_number).transpose()?.unwrap_or(1);
    if low < field.min {
        return Err(format!("beginning of range ({low}) below minimum ({}): {text}", field.min));
    }
    if high > field.max {
        return Err(format!("end of range ({high}) above maximum ({}): {text}", field.max));
    }
    if low > high {
        return Err(format!("beginning of range ({low}) beyond end of range ({high}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn parse_value(text: &str, field: &Field) -> Result<u64, String> {
    let name = text.to_lowercase();
    match field.names.iter().position(|it| *it == name) {
        Some(position) => Ok(u64::try_from(position).unwrap_or_default().saturating_add(field.first_name)),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Result<u64, String> {
    let number: Result<i64, _> = text.parse();
    match number {
        Ok(number) => u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}")),
        Err(_) => {
            Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax", quote(text)))
        }
    }
}
