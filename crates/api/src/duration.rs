//! Durations as `metav1.Duration` holds them: `1h30m0s`.
//!
//! Follows Go's `time.ParseDuration` and `Duration.String`.

use std::fmt;

use crate::go_text::quote;

/// A signed span of time in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration {
    /// The span.
    pub nanos: i64,
}

/// Invalid duration; the message is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

impl Duration {
    /// Reads `-1h30m`, `1.5h`, `0` and the like.
    ///
    /// # Errors
    /// Go's error for the text.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let invalid = || ParseError(format!("time: invalid duration {}", quote(text)));
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::default());
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0_u64;
        while !rest.is_empty() {
            let (whole, after) = split_digits(rest);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => {
                    let (fraction, after) = split_digits(after);
                    (Some(fraction), after)
                }
                None => (None, after),
            };
            if whole.is_empty() && fraction.unwrap_or_default().is_empty() {
                return Err(invalid());
            }
            let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
            let (unit, after) = after.split_at_checked(end).unwrap_or((after, ""));
            if unit.is_empty() {
                return Err(ParseError(format!("time: missing unit in duration {}", quote(text))));
            }
            let Some(unit_nanos) = unit_nanos(unit) else {
                return Err(ParseError(format!("time: unknown unit {} in duration {}", quote(unit), quote(text))));
            };
            let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
            let value = whole.checked_mul(unit_nanos).ok_or_else(invalid)?;
            let value =
                value.checked_add(fraction_nanos(fraction.unwrap_or_default(), unit_nanos)).ok_or_else(invalid)?;
            total = total.checked_add(value).filter(|total| *total <= 1 << 63).ok_or_else(invalid)?;
            rest = after;
        }
        let nanos = if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
        nanos.map(|nanos| Self { nanos }).ok_or_else(invalid)
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn unit_nanos(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// The part of a unit behind the point, cut off at nanoseconds. Go computes it in floats, so does this.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the fraction is below one unit, and Go's result is a float cut off as well"
)]
fn fraction_nanos(digits: &str, unit_nanos: u64) -> u64 {
    let mut fraction = 0_u64;
    let mut scale = 1.0_f64;
    for digit in digits.bytes() {
        let Some(next) = fraction.checked_mul(10).and_then(|it| it.checked_add(u64::from(digit.wrapping_sub(b'0'))))
        else {
            break;
        };
        if next > 1 << 63 {
            break;
        }
        fraction = next;
        scale *= 10.0;
    }
    (fraction as f64 * (unit_nanos as f64 / scale)) as u64
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        let nanos = self.nanos.unsigned_abs();
        let with_unit = |f: &mut fmt::Formatter<'_>, unit: u64, name: &str| {
            let whole = nanos.checked_div(unit).unwrap_or(0);
            write!(f, "{whole}{}{name}", fraction_text(nanos.checked_rem(unit).unwrap_or(0), unit))
        };
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => with_unit(f, 1_000, "µs"),
            1_000_000..1_000_000_000 => with_unit(f, 1_000_000, "ms"),
            _ => {
                let seconds = nanos.checked_div(1_000_000_000).unwrap_or(0);
                let (minutes, second) = (seconds.checked_div(60).unwrap_or(0), seconds.checked_rem(60).unwrap_or(0));
                let (hours, minute) = (minutes.checked_div(60).unwrap_or(0), minutes.checked_rem(60).unwrap_or(0));
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if minutes > 0 {
                    write!(f, "{minute}m")?;
                }
                let rest = nanos.checked_rem(1_000_000_000).unwrap_or(0);
                write!(f, "{second}{}s", fraction_text(rest, 1_000_000_000))
            }
        }
    }
}

/// `.5` for 500 of 1000, without trailing zeros; nothing for 0.
fn fraction_text(part: u64, unit: u64) -> String {
    if part == 0 {
        return String::new();
    }
    let width = unit.checked_ilog10().and_then(|width| usize::try_from(width).ok()).unwrap_or(0);
    let digits = format!("{part:0width$}");
    format!(".{}", digits.trim_end_matches('0'))
}

impl serde::Serialize for Duration {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: std::borrow::Cow<'de, str> = serde::Deserialize::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
