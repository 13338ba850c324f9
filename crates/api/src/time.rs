//! Points in time as API fields hold them.
//!
//! `metav1.Time` shows whole seconds, `metav1.MicroTime` exactly six digits. Parsing accepts and refuses what Go's
//! `time.Parse` does with these two layouts, with its texts.

use std::fmt;

/// A point in time, to the nanosecond, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Below a billion.
    pub nanos: u32,
}

/// The two text forms of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `2006-01-02T15:04:05Z07:00`; a fraction is read and dropped when written.
    Seconds,
    /// `2006-01-02T15:04:05.000000Z07:00`.
    Micros,
}

/// Invalid time; the text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(String);

const SECONDS_PER_DAY: i64 = 86_400;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

impl Timestamp {
    /// Go's zero time, which is written as null.
    pub const ZERO: Timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };

    /// Reads a time in whole seconds, perhaps with a fraction.
    ///
    /// # Errors
    /// The first part that does not fit.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::parse_layout(text, Layout::Seconds)
    }

    /// Reads a time of the given form.
    ///
    /// # Errors
    /// The first part that does not fit.
    pub fn parse_layout(text: &str, layout: Layout) -> Result<Self, ParseError> {
        Parser { whole: text, rest: text, layout }.run()
    }

    /// Whether this is Go's zero time.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// Nanoseconds since 1970, wrapping as Go's do.
    #[must_use]
    pub fn unix_nanos(self) -> i64 {
        self.seconds.wrapping_mul(1_000_000_000).wrapping_add(i64::from(self.nanos))
    }

    /// The text of a [`Layout::Micros`] field.
    #[must_use]
    pub fn to_micro_string(self) -> String {
        let seconds = self.to_string();
        let micros = self.nanos.checked_div(1000).unwrap_or(0);
        format!("{}.{micros:06}Z", seconds.trim_end_matches('Z'))
    }

    /// The time `span` later.
    #[must_use]
    pub fn plus(self, span: std::time::Duration) -> Self {
        let nanos = self.nanos.saturating_add(span.subsec_nanos());
        let (carry, nanos) = nanos.checked_sub(NANOS_PER_SECOND).map_or((0, nanos), |rest| (1, rest));
        let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
        Self { seconds: self.seconds.saturating_add(seconds).saturating_add(carry), nanos }
    }

    /// Time until `later`; zero if that has passed.
    #[must_use]
    pub fn until(self, later: Self) -> std::time::Duration {
        let since = |time: Self| {
            let seconds = time.seconds.saturating_sub(self.seconds.min(later.seconds));
            std::time::Duration::new(u64::try_from(seconds).unwrap_or(0), time.nanos)
        };
        since(later).saturating_sub(since(self))
    }

    /// The time `seconds` later, or earlier if negative.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self { seconds: self.seconds.saturating_add(seconds), nanos: self.nanos }
    }
}

impl fmt::Display for Timestamp {
    /// The text of a [`Layout::Seconds`] field.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.seconds.div_euclid(SECONDS_PER_DAY));
        let second_of_day = self.seconds.rem_euclid(SECONDS_PER_DAY);
        let (minutes, second) = (second_of_day.div_euclid(60), second_of_day.rem_euclid(60));
        let (hour, minute) = (minutes.div_euclid(60), minutes.rem_euclid(60));
        if !(0..10_000).contains(&year) {
            return write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z");
        }
        // Every write of an object shows some times: this is much quicker than the formatter.
        let mut text = *b"0000-00-00T00:00:00Z";
        let numbers = [(year.div_euclid(100), 0), (year.rem_euclid(100), 2), (month, 5), (day, 8)];
        for (number, at) in numbers.into_iter().chain([(hour, 11), (minute, 14), (second, 17)]) {
            let digits = [number.div_euclid(10), number.rem_euclid(10)].map(|digit| u8::try_from(digit).unwrap_or(0));
            for (slot, digit) in text.iter_mut().skip(at).zip(digits) {
                *slot = b'0'.saturating_add(digit);
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_zero() { serializer.serialize_none() } else { serializer.collect_str(self) }
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    /// Reads both forms; null is the zero time.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Option<std::borrow::Cow<'de, str>> = serde::Deserialize::deserialize(deserializer)?;
        text.map_or(Ok(Self::ZERO), |text| Self::parse(&text).map_err(serde::de::Error::custom))
    }
}

/// A time that is written with six digits of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(pub Timestamp);

impl serde::Serialize for MicroTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_zero() { serializer.serialize_none() } else { serializer.serialize_str(&self.0.to_micro_string()) }
    }
}

impl<'de> serde::Deserialize<'de> for MicroTime {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <Timestamp as serde::Deserialize>::deserialize(deserializer).map(Self)
    }
}

struct Parser<'a> {
    whole: &'a str,
    rest: &'a str,
    layout: Layout,
}

impl Parser<'_> {
    fn run(mut self) -> Result<Timestamp, ParseError> {
        let year = self.year()?;
        self.literal("-")?;
        let month = self.number("01", true)?;
        self.check("month", (1..=12).contains(&month))?;
        self.literal("-")?;
        let day = self.number("02", true)?;
        self.literal("T")?;
        let hour = self.number("15", false)?;
        self.check("hour", hour < 24)?;
        self.literal(":")?;
        let minute = self.number("04", true)?;
        self.check("minute", minute < 60)?;
        self.literal(":")?;
        let second = self.number("05", true)?;
        self.check("second", second < 60)?;
        let nanos = self.fraction()?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(self.message(&format!("extra text: {}", quote(self.rest))));
        }
        self.check("day", (1..=days_in(year, month)).contains(&day))?;
        let days = days_from_civil(year, month, day);
        let seconds = days
            .saturating_mul(SECONDS_PER_DAY)
            .saturating_add(hour.saturating_mul(3600))
            .saturating_add(minute.saturating_mul(60))
            .saturating_add(second)
            .saturating_sub(offset);
        Ok(Timestamp { seconds, nanos })
    }

    fn cannot_parse(&self, element: &str) -> ParseError {
        let layout = match self.layout {
            Layout::Seconds => "2006-01-02T15:04:05Z07:00",
            Layout::Micros => "2006-01-02T15:04:05.000000Z07:00",
        };
        let (whole, rest) = (quote(self.whole), quote(self.rest));
        ParseError(format!("parsing time {whole} as \"{layout}\": cannot parse {rest} as \"{element}\""))
    }

    fn message(&self, message: &str) -> ParseError {
        ParseError(format!("parsing time {}: {message}", quote(self.whole)))
    }

    fn check(&self, part: &str, in_range: bool) -> Result<(), ParseError> {
        if in_range { Ok(()) } else { Err(self.message(&format!("{part} out of range"))) }
    }

    fn literal(&mut self, text: &str) -> Result<(), ParseError> {
        self.rest = self.rest.strip_prefix(text).ok_or_else(|| self.cannot_parse(text))?;
        Ok(())
    }

    fn year(&mut self) -> Result<i64, ParseError> {
        let (digits, rest) = self.rest.split_at_checked(4).ok_or_else(|| self.cannot_parse("2006"))?;
        let year = parse_digits(digits).ok_or_else(|| self.cannot_parse("2006"))?;
        self.rest = rest;
        Ok(year)
    }

    /// Two digits, or one if that is allowed.
    fn number(&mut self, element: &str, two_digits: bool) -> Result<i64, ParseError> {
        let count = self.rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
        if count == 0 || (two_digits && count == 1) {
            return Err(self.cannot_parse(element));
        }
        let (digits, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.cannot_parse(element))?;
        self.rest = rest;
        parse_digits(digits).ok_or_else(|| self.cannot_parse(element))
    }

    fn fraction(&mut self) -> Result<u32, ParseError> {
        let after_point = self.rest.strip_prefix(['.', ',']);
        if self.layout == Layout::Micros {
            if self.rest.len() < 7 {
                return Err(self.cannot_parse(".000000"));
            }
            let digits = after_point.and_then(|text| text.get(..6)).and_then(parse_digits);
            // Go has moved on before it looks at the digits.
            self.rest = self.rest.get(7..).unwrap_or_default();
            let micros = digits.ok_or_else(|| self.cannot_parse(".000000"))?;
            return Ok(u32::try_from(micros).unwrap_or(0).saturating_mul(1000));
        }
        let Some(text) = after_point else { return Ok(0) };
        let count = text.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return Ok(0);
        }
        // Digits beyond nanoseconds are dropped.
        let digits = text.bytes().take(count).chain(std::iter::repeat(b'0')).take(9);
        let nanos = digits
            .fold(0_u32, |nanos, digit| nanos.saturating_mul(10).saturating_add(u32::from(digit.wrapping_sub(b'0'))));
        self.rest = text.get(count..).unwrap_or_default();
        Ok(nanos)
    }

    /// Seconds east of UTC.
    fn offset(&mut self) -> Result<i64, ParseError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let bytes = self.rest.as_bytes();
        if bytes.len() < 6 || bytes.get(3) != Some(&b':') {
            return Err(self.cannot_parse("Z07:00"));
        }
        let sign = match bytes.first() {
            Some(b'+') => Some(1_i64),
            Some(b'-') => Some(-1),
            _ => None,
        };
        let part = |range: std::ops::Range<usize>| self.rest.get(range).and_then(parse_digits);
        let (hours, minutes) = (part(1..3), part(4..6));
        self.rest = self.rest.get(6..).unwrap_or_default();
        let (Some(hours), Some(minutes)) = (hours, minutes) else { return Err(self.cannot_parse("Z07:00")) };
        self.check("time zone offset hour", hours <= 24)?;
        self.check("time zone offset minute", minutes <= 60)?;
        let sign = sign.ok_or_else(|| self.cannot_parse("Z07:00"))?;
        Ok(hours.saturating_mul(60).saturating_add(minutes).saturating_mul(60).saturating_mul(sign))
    }
}

fn parse_digits(text: &str) -> Option<i64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Quotes as Go's `time` package does: non-ASCII bytes are escaped one by one.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' | '\u{7f}' => out.push(c),
            _ => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("\\x{byte:02x}"))),
        }
    }
    out.push('"');
    out
}

fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar.
#[expect(clippy::arithmetic_side_effects, reason = "years have at most four digits, so nothing comes near overflow")]
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March, so that leap days come last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day since 1970-01-01.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "days are seconds divided by 86,400, so nothing comes near overflow"
)]
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn adding_and_taking_away_agree() {
        let start = Timestamp { seconds: 10, nanos: 700_000_000 };
        let later = start.plus(Duration::from_millis(1500));
        assert_eq!(later, Timestamp { seconds: 12, nanos: 200_000_000 });
        assert_eq!(start.until(later), Duration::from_millis(1500));
        assert_eq!(later.until(start), Duration::ZERO);
        assert_eq!(start.plus(Duration::MAX).seconds, i64::MAX);
    }
}
