//! Times as text: RFC 3339 and durations, as Go's `time` package reads and writes them.

use std::fmt::Write as _;

use super::civil::{Civil, DAY, days_from_civil, days_in_month};
use super::{Duration, NANOS_PER_SECOND, Timestamp};

impl Timestamp {
    /// Reads RFC 3339 as Go's `time.Parse` does; nothing if the text is something else.
    ///
    /// The outer result is about the text, the inner one about the range: the years 1 to 9999.
    /// Go is lenient: the hour may have one digit, a comma may stand before the fraction, and an offset may reach `24:60`.
    pub fn parse(text: &str) -> Option<Result<Timestamp, crate::value::EvalError>> {
        let mut rest = text.as_bytes();
        let year = i64::from(digits(&mut rest, 4, 4)?);
        literal(&mut rest, b'-')?;
        let month = digits(&mut rest, 2, 2)?;
        literal(&mut rest, b'-')?;
        let day = digits(&mut rest, 2, 2)?;
        literal(&mut rest, b'T')?;
        let hour = digits(&mut rest, 1, 2)?;
        literal(&mut rest, b':')?;
        let minute = digits(&mut rest, 2, 2)?;
        literal(&mut rest, b':')?;
        let second = digits(&mut rest, 2, 2)?;
        let nanoseconds = fraction(&mut rest);
        let offset = offset(&mut rest)?;
        let valid = (1..=12).contains(&month) && hour < 24 && minute < 60 && second < 60;
        if !rest.is_empty() || !valid || day < 1 || day > days_in_month(year, month) {
            return None;
        }
        let seconds = days_from_civil(year, month, day)
            .saturating_mul(DAY)
            .saturating_add(clock_seconds(hour, minute, second))
            .saturating_sub(i64::from(offset));
        Some(Timestamp::new(seconds, nanoseconds).map(|at| at.with_offset(offset)))
    }

    /// RFC 3339 with the offset that it was written with and as many digits of the fraction as it needs.
    pub fn rfc3339(self) -> String {
        let civil = Civil::from_seconds(self.seconds.saturating_add(i64::from(self.offset_seconds)));
        let Civil { year, month, day, hour, minute, second, .. } = civil;
        let mut text = String::with_capacity(35);
        _ = write!(text, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
        push_fraction(&mut text, self.nanoseconds);
        if self.offset_seconds == 0 {
            text.push('Z');
        } else {
            let sign = if self.offset_seconds < 0 { '-' } else { '+' };
            let minutes = self.offset_seconds.unsigned_abs().wrapping_div(60);
            _ = write!(text, "{sign}{:02}:{:02}", minutes.wrapping_div(60), minutes.wrapping_rem(60));
        }
        text
    }

    /// As Go prints a `time.Time`: `2024-01-01 00:00:00 +0000 UTC`.
    pub fn go_text(self) -> String {
        let civil = Civil::from_seconds(self.seconds.saturating_add(i64::from(self.offset_seconds)));
        let Civil { year, month, day, hour, minute, second, .. } = civil;
        let mut text = String::with_capacity(40);
        _ = write!(text, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
        push_fraction(&mut text, self.nanoseconds);
        let sign = if self.offset_seconds < 0 { '-' } else { '+' };
        let minutes = self.offset_seconds.unsigned_abs().wrapping_div(60);
        let (hours, minutes) = (minutes.wrapping_div(60), minutes.wrapping_rem(60));
        _ = write!(text, " {sign}{hours:02}{minutes:02} ");
        if self.offset_seconds == 0 {
            text.push_str("UTC");
        } else {
            _ = write!(text, "{sign}{hours:02}{minutes:02}");
        }
        text
    }

    /// The calendar and clock at an offset from UTC.
    pub fn civil(self, offset_seconds: i64) -> Civil {
        Civil::from_seconds(self.seconds.wrapping_add(offset_seconds))
    }
}

fn clock_seconds(hour: u32, minute: u32, second: u32) -> i64 {
    i64::from(hour)
        .saturating_mul(3_600)
        .saturating_add(i64::from(minute).saturating_mul(60))
        .saturating_add(i64::from(second))
}

/// `.5`, `.000000001`; nothing for a whole second.
fn push_fraction(text: &mut String, nanoseconds: u32) {
    if nanoseconds != 0 {
        let digits = format!("{nanoseconds:09}");
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
}

fn literal(rest: &mut &[u8], expected: u8) -> Option<()> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    (*first == expected).then_some(())
}

/// A number of at least and at most this many digits.
fn digits(rest: &mut &[u8], min: usize, max: usize) -> Option<u32> {
    let count = rest.iter().take(max).take_while(|byte| byte.is_ascii_digit()).count();
    let (number, after) = rest.split_at_checked(count)?;
    *rest = after;
    (count >= min).then(|| decimal(number))
}

fn decimal(digits: &[u8]) -> u32 {
    digits
        .iter()
        .fold(0_u32, |number, digit| number.saturating_mul(10).saturating_add(u32::from(digit.wrapping_sub(b'0'))))
}

/// An optional fraction of a second; digits beyond the ninth are cut.
fn fraction(rest: &mut &[u8]) -> u32 {
    let [b'.' | b',', after @ ..] = *rest else { return 0 };
    let count = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let Some((digits, after)) = after.split_at_checked(count).filter(|_| count > 0) else { return 0 };
    *rest = after;
    let kept = digits.get(..9).unwrap_or(digits);
    let missing = 9_usize.saturating_sub(kept.len());
    (0..missing).fold(decimal(kept), |number, _| number.saturating_mul(10))
}

/// `Z` or `±hh:mm`, in seconds.
fn offset(rest: &mut &[u8]) -> Option<i32> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    if *first == b'Z' {
        return Some(0);
    }
    let hours = digits(rest, 2, 2)?;
    literal(rest, b':')?;
    let minutes = digits(rest, 2, 2)?;
    if hours > 24 || minutes > 60 {
        return None;
    }
    let seconds = i32::try_from(clock_seconds(hours, minutes, 0)).ok()?;
    match first {
        b'+' => Some(seconds),
        b'-' => seconds.checked_neg(),
        _ => None,
    }
}

/// 2^63, which a negative duration may reach.
const LIMIT: u64 = 1 << 63;

impl Duration {
    /// Reads `1h30m`, `-1.5s`, `300ms` as Go's `time.ParseDuration` does.
    pub fn parse(text: &str) -> Option<Duration> {
        let (negative, mut rest) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if rest == b"0" {
            return Some(Duration { nanoseconds: 0 });
        }
        if rest.is_empty() {
            return None;
        }
        let mut total = 0_u64;
        while !rest.is_empty() {
            total = total.checked_add(parse_part(&mut rest)?).filter(|total| *total <= LIMIT)?;
        }
        let nanoseconds = if negative { 0_i64.checked_sub_unsigned(total) } else { i64::try_from(total).ok() };
        Some(Duration { nanoseconds: nanoseconds? })
    }

    /// As CEL's `string()` shows it: `3600s`, `1.5s`. Goes through floating point, so large spans lose digits.
    pub fn seconds_text(self) -> String {
        format!("{}s", self.seconds_float())
    }

    /// All digits: `9223372036.854775807s`.
    pub fn exact_text(self) -> String {
        let magnitude = self.nanoseconds.unsigned_abs();
        let sign = if self.nanoseconds < 0 { "-" } else { "" };
        let mut text = format!("{sign}{}", magnitude.wrapping_div(1_000_000_000));
        push_fraction(&mut text, u32::try_from(magnitude.wrapping_rem(1_000_000_000)).unwrap_or(0));
        text.push('s');
        text
    }

    /// Seconds as Go's `Duration.Seconds` computes them.
    pub fn seconds_float(self) -> f64 {
        self.units_float(NANOS_PER_SECOND)
    }

    /// Number of units of this many nanoseconds, as Go computes them: whole units plus the rest, each as a
    /// double.
    pub(crate) fn units_float(self, unit: i64) -> f64 {
        let whole = self.nanoseconds.checked_div(unit).unwrap_or(0);
        let rest = self.nanoseconds.checked_rem(unit).unwrap_or(0);
        whole as f64 + rest as f64 / unit as f64
    }

    /// As Go prints a `time.Duration`: `1h30m0s`, `1.5s`, `300ms`.
    pub fn go_text(self) -> String {
        let magnitude = self.nanoseconds.unsigned_abs();
        let sign = if self.nanoseconds < 0 { "-" } else { "" };
        if magnitude == 0 {
            return "0s".to_owned();
        }
        if magnitude < NANOS_PER_SECOND.unsigned_abs() {
            let (unit, scale) = match magnitude {
                0..1_000 => ("ns", 1),
                1_000..1_000_000 => ("µs", 1_000),
                _ => ("ms", 1_000_000),
            };
            return format!("{sign}{}{unit}", scaled_text(magnitude, scale));
        }
        let minutes = magnitude.wrapping_div(60_000_000_000);
        let seconds = scaled_text(magnitude.wrapping_rem(60_000_000_000), NANOS_PER_SECOND.unsigned_abs());
        match (minutes.wrapping_div(60), minutes.wrapping_rem(60)) {
            (0, 0) => format!("{sign}{seconds}s"),
            (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
            (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
        }
    }
}

/// An amount in a larger unit, with as many decimals as it needs.
fn scaled_text(amount: u64, scale: u64) -> String {
    let mut text = amount.checked_div(scale).unwrap_or(0).to_string();
    let rest = amount.checked_rem(scale).unwrap_or(0);
    if rest != 0 {
        let width = scale.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
    text
}

/// A number with a unit, in nanoseconds.
fn parse_part(rest: &mut &[u8]) -> Option<u64> {
    let whole_digits = take_while(rest, u8::is_ascii_digit);
    let whole = whole_digits.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit.wrapping_sub(b'0'))).filter(|number| *number <= LIMIT)
    })?;
    let mut fraction_digits: &[u8] = &[];
    if let [b'.', after @ ..] = *rest {
        *rest = after;
        fraction_digits = take_while(rest, u8::is_ascii_digit);
    }
    if whole_digits.is_empty() && fraction_digits.is_empty() {
        return None;
    }
    let unit = match take_while(rest, |byte| *byte != b'.' && !byte.is_ascii_digit()) {
        b"ns" => 1,
        b"us" => 1_000,
        unit if unit == "µs".as_bytes() || unit == "μs".as_bytes() => 1_000,
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"m" => 60_000_000_000,
        b"h" => 3_600_000_000_000_u64,
        _ => return None,
    };
    let mut total = whole.checked_mul(unit).filter(|total| *total <= LIMIT)?;
    let (fraction, scale) = leading_fraction(fraction_digits);
    if fraction > 0 {
        total = total.checked_add((fraction as f64 * (unit as f64 / scale)) as u64)?;
    }
    Some(total).filter(|total| *total <= LIMIT)
}

fn take_while<'t>(rest: &mut &'t [u8], mut accept: impl FnMut(&u8) -> bool) -> &'t [u8] {
    let count = rest.iter().take_while(|byte| accept(byte)).count();
    let (taken, after) = rest.split_at_checked(count).unwrap_or((rest, &[]));
    *rest = after;
    taken
}

/// The digits of a fraction and the power of ten they are divided by; digits that do not fit are dropped.
fn leading_fraction(digits: &[u8]) -> (u64, f64) {
    let mut number = 0_u64;
    let mut scale = 1.0;
    for digit in digits {
        let next = number.checked_mul(10).and_then(|next| next.checked_add(u64::from(digit.wrapping_sub(b'0'))));
        match next {
            Some(next) if number <= (LIMIT - 1) / 10 && next <= LIMIT => number = next,
            _ => break,
        }
        scale *= 10.0;
    }
    (number, scale)
}

#[cfg(test)]
mod tests;
