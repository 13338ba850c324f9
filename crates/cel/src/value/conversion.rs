//! From one type to another, as Go's `strconv` and cel-go's values convert.

use super::{Bytes, Duration, EvalError, Str, Timestamp, Value, double_text};
use crate::types::Type;

/// 2^63 and 2^64 as doubles.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

impl<'a> Value<'a> {
    /// The value as an `int`.
    pub fn to_int(&self) -> Result<Value<'a>, EvalError> {
        let number = match self {
            Value::Int(number) => *number,
            Value::Uint(number) => i64::try_from(*number).map_err(|_| EvalError::int_overflow())?,
            // Both ends are excluded in the reference, although -2^63 would fit.
            Value::Double(number) if *number > -TWO_TO_63 && *number < TWO_TO_63 => *number as i64,
            Value::Double(_) => return Err(EvalError::int_overflow()),
            Value::String(text) => text.parse().map_err(|_| self.inconvertible(&Type::Int))?,
            Value::Duration(span) => span.nanoseconds,
            Value::Timestamp(at) => at.seconds(),
            _ => return Err(self.inconvertible(&Type::Int)),
        };
        Ok(Value::Int(number))
    }

    /// The value as a `uint`.
    pub fn to_uint(&self) -> Result<Value<'a>, EvalError> {
        let number = match self {
            Value::Uint(number) => *number,
            Value::Int(number) => u64::try_from(*number).map_err(|_| EvalError::uint_overflow())?,
            Value::Double(number) if *number >= 0.0 && *number < TWO_TO_64 => *number as u64,
            Value::Double(_) => return Err(EvalError::uint_overflow()),
            Value::String(text) => parse_uint(text).ok_or_else(|| self.inconvertible(&Type::Uint))?,
            _ => return Err(self.inconvertible(&Type::Uint)),
        };
        Ok(Value::Uint(number))
    }

    /// The value as a `double`.
    pub fn to_double(&self) -> Result<Value<'a>, EvalError> {
        let number = match self {
            Value::Double(number) => *number,
            Value::Int(number) => super::order::int_to_double(*number),
            Value::Uint(number) => super::order::uint_to_double(*number),
            Value::String(text) => parse_double(text).ok_or_else(|| self.inconvertible(&Type::Double))?,
            _ => return Err(self.inconvertible(&Type::Double)),
        };
        Ok(Value::Double(number))
    }

    /// The value as a `bool`.
    pub fn to_bool(&self) -> Result<Value<'a>, EvalError> {
        match self {
            Value::Bool(truth) => Ok(Value::Bool(*truth)),
            Value::String(text) => match text.as_str() {
                "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
                "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
                _ => Err(self.inconvertible(&Type::Bool)),
            },
            _ => Err(self.inconvertible(&Type::Bool)),
        }
    }

    /// The value as `bytes`: a string's UTF-8.
    pub fn to_bytes(&self) -> Result<Value<'a>, EvalError> {
        match self {
            Value::Bytes(octets) => Ok(Value::Bytes(octets.clone())),
            Value::String(Str::Borrowed(text)) => Ok(Value::Bytes(Bytes::Borrowed(text.as_bytes()))),
            Value::String(Str::Shared(text)) => Ok(Value::Bytes(Bytes::Shared(text.as_bytes().into()))),
            _ => Err(self.inconvertible(&Type::Bytes)),
        }
    }

    /// The value as a `string`.
    pub fn to_text(&self) -> Result<Value<'a>, EvalError> {
        let text = match self {
            Value::String(text) => return Ok(Value::String(text.clone())),
            Value::Bytes(Bytes::Borrowed(octets)) => {
                return std::str::from_utf8(octets).map(Value::str).map_err(|_| invalid_utf8());
            }
            Value::Bytes(Bytes::Shared(octets)) => std::str::from_utf8(octets).map_err(|_| invalid_utf8())?.to_owned(),
            Value::Bool(truth) => return Ok(Value::str(if *truth { "true" } else { "false" })),
            Value::Int(number) => number.to_string(),
            Value::Uint(number) => number.to_string(),
            Value::Double(number) => double_text(*number),
            Value::Duration(span) => span.seconds_text(),
            Value::Timestamp(at) => at.rfc3339(),
            Value::Null => return Ok(Value::str("null")),
            _ => return Err(self.inconvertible(&Type::String)),
        };
        Ok(Value::string(text))
    }

    /// The value as a `timestamp`: RFC 3339, or seconds since 1970.
    pub fn to_timestamp(&self) -> Result<Value<'a>, EvalError> {
        let at = match self {
            Value::Timestamp(at) => *at,
            Value::Int(seconds) => Timestamp::new(*seconds, 0)?,
            Value::String(text) => Timestamp::parse(text).ok_or_else(|| self.inconvertible(&Type::Timestamp))??,
            _ => return Err(self.inconvertible(&Type::Timestamp)),
        };
        Ok(Value::Timestamp(at))
    }

    /// The value as a `duration`, such as `1h30m`.
    pub fn to_duration(&self) -> Result<Value<'a>, EvalError> {
        let span = match self {
            Value::Duration(span) => *span,
            Value::String(text) => Duration::parse(text).ok_or_else(|| self.inconvertible(&Type::Duration))?,
            _ => return Err(self.inconvertible(&Type::Duration)),
        };
        Ok(Value::Duration(span))
    }

    /// Whether `optional.ofNonZeroValue` treats the value as absent.
    pub fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(truth) => !truth,
            Value::Int(number) => *number == 0,
            Value::Uint(number) => *number == 0,
            Value::Double(number) => *number == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(octets) => octets.is_empty(),
            Value::Duration(span) => span.nanoseconds == 0,
            Value::Timestamp(at) => at.is_zero(),
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
            Value::Opaque(opaque) => opaque.is_zero(),
            _ => false,
        }
    }

    fn inconvertible(&self, to: &Type) -> EvalError {
        EvalError::conversion(&self.type_name(), to.name())
    }
}

fn invalid_utf8() -> EvalError {
    EvalError::new(super::ErrorKind::Conversion, "invalid UTF-8 in bytes, cannot convert to string")
}

/// An unsigned number in decimal, without a sign.
fn parse_uint(text: &str) -> Option<u64> {
    if text.starts_with('+') { None } else { text.parse().ok() }
}

/// A double as Go's `strconv.ParseFloat` reads it: decimal or hexadecimal, with `_` between digits; nothing beyond the range.
fn parse_double(text: &str) -> Option<f64> {
    let (sign, unsigned) = match text.as_bytes() {
        [b'-', ..] => (-1.0, text.get(1..)?),
        [b'+', ..] => (1.0, text.get(1..)?),
        _ => (1.0, text),
    };
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        return Some(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    if unsigned.contains('_') && !underscores_separate_digits(unsigned) {
        return None;
    }
    let plain = unsigned.replace('_', "");
    let magnitude = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
        Some(hexadecimal) => parse_hexadecimal(hexadecimal)?,
        // What Rust also takes: names, which begin with a letter, and a second sign.
        None if plain.bytes().next().is_some_and(|byte| byte.is_ascii_digit() || byte == b'.') => plain.parse().ok()?,
        None => return None,
    };
    magnitude.is_finite().then_some(sign * magnitude)
}

/// Whether each underscore is between two digits, or between a base prefix and a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let is_digit = |byte: u8| byte.is_ascii_digit() || hexadecimal && byte.is_ascii_hexdigit();
    let octets = text.as_bytes();
    octets.iter().enumerate().filter(|(_, octet)| **octet == b'_').all(|(index, _)| {
        let before = index.checked_sub(1).and_then(|index| octets.get(index));
        let after = octets.get(index.saturating_add(1));
        let prefix = hexadecimal && index == 2;
        (prefix || before.is_some_and(|octet| is_digit(*octet))) && after.is_some_and(|octet| is_digit(*octet))
    })
}

/// `1.8p-3`: hexadecimal digits and a binary exponent, which must be there. Rounds to the nearest double.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_exponent = exponent.bytes().last().is_some_and(|byte| byte.is_ascii_digit());
    if whole.is_empty() && fraction.is_empty() || !is_exponent {
        return None;
    }
    // An exponent too large to count makes the number zero or infinite either way.
    let mut power: i64 = match exponent.parse() {
        Ok(power) => power,
        Err(_) if exponent.trim_start_matches(['+', '-']).bytes().all(|byte| byte.is_ascii_digit()) => {
            if exponent.starts_with('-') { -1_000_000 } else { 1_000_000 }
        }
        Err(_) => return None,
    };
    power = power.clamp(-1_000_000, 1_000_000);
    let mut digits = 0_u64;
    let mut sticky = false;
    for (octet, fractional) in
        whole.bytes().map(|octet| (octet, false)).chain(fraction.bytes().map(|octet| (octet, true)))
    {
        let digit = u64::from(char::from(octet).to_digit(16)?);
        if digits >> 56 == 0 {
            digits = digits << 4 | digit;
            power = power.saturating_sub(if fractional { 4 } else { 0 });
        } else {
            // 57 or more bits are kept: what follows only decides which way a tie goes.
            sticky |= digit != 0;
            power = power.saturating_add(if fractional { 0 } else { 4 });
        }
    }
    Some(scale(digits << 1 | u64::from(sticky), power.saturating_sub(1)))
}

/// `digits * 2^power`, rounded once.
fn scale(digits: u64, power: i64) -> f64 {
    if digits == 0 {
        return 0.0;
    }
    // The place of the highest bit decides how many bits a double keeps; below 2^-1074 there are none.
    let top = i64::from(63_u32.saturating_sub(digits.leading_zeros())).saturating_add(power);
    let lowest = top.saturating_sub(52).max(-1_074);
    let drop = lowest.saturating_sub(power);
    let kept = if drop <= 0 {
        digits
    } else if drop > 64 {
        0
    } else {
        let wide = u128::from(digits);
        let unit = 1_u128 << drop;
        let rest = wide & unit.saturating_sub(1);
        let whole = wide >> drop;
        let up = rest > unit >> 1 || rest == unit >> 1 && whole & 1 == 1;
        u64::try_from(whole.saturating_add(u128::from(up))).unwrap_or(u64::MAX)
    };
    let exponent = if drop <= 0 { power } else { lowest };
    // Exact from here on: 53 bits, times powers of two that stay in range.
    let mut number = kept as f64;
    let mut left = exponent;
    while left != 0 && number != 0.0 && number.is_finite() {
        let step = left.clamp(-1_000, 1_000);
        number *= 2.0_f64.powi(i32::try_from(step).unwrap_or(0));
        left = left.saturating_sub(step);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn double(text: &str, expected: Option<f64>) {
        assert_eq!(parse_double(text).map(f64::to_bits), expected.map(f64::to_bits), "{text}");
    }

    #[test]
    fn doubles_are_read_as_go_reads_them() {
        double("1e3", Some(1000.0));
        double("-0", Some(-0.0));
        double("+1", Some(1.0));
        double(".5", Some(0.5));
        double("5.", Some(5.0));
        double("-inf", Some(f64::NEG_INFINITY));
        double("+Infinity", Some(f64::INFINITY));
        double("nAn", Some(f64::NAN));
        double("1_000", Some(1000.0));
        double("1_23.50_0_0e+1_2", Some(1.235e14));
        double("18446744073709551615", Some(18_446_744_073_709_551_615.0));
        double("1e-400", Some(0.0));
        double("0x1p-2", Some(0.25));
        double("0x1.8p1", Some(3.0));
        double("0x_1.FFFFFFFFFFFFFp1023", Some(f64::MAX));
        double("0x1.fffffffffffff8p0", Some(2.0));
        double("0x1p-1074", Some(5e-324));
        double("0x1p-1075", Some(0.0));
        double("0x1.8p-1075", Some(5e-324));
        double("0x10000000000000000000001p-20", Some(2.0_f64.powi(68)));
        for text in [
            "", "+", "-", ".", "e3", "1e", "1e400", "-1e400", "0x10", "0xp1", "0x1p", "0x1p2000", " 1", "1 ", "1u",
            "+-1", "-nan", "١", "true", "_1", "1_", "1__0", "1_.5", "1._5", "1e_3", "infinit",
        ] {
            double(text, None);
        }
    }

    #[test]
    fn conversions_fail_with_the_reference_texts() {
        let error = |outcome: Result<Value<'_>, EvalError>| outcome.unwrap_err().message().to_owned();
        assert_eq!(error(Value::str("x").to_int()), "type conversion error from 'string' to 'int'");
        assert_eq!(error(Value::str("+1").to_uint()), "type conversion error from 'string' to 'uint'");
        assert_eq!(
            error(Value::str("1").to_duration()),
            "type conversion error from 'string' to 'google.protobuf.Duration'"
        );
        assert_eq!(
            error(Value::str("1").to_timestamp()),
            "type conversion error from 'string' to 'google.protobuf.Timestamp'"
        );
        assert_eq!(error(Value::Double(-TWO_TO_63).to_int()), "integer overflow");
        assert_eq!(error(Value::Double(f64::NAN).to_int()), "integer overflow");
        assert_eq!(error(Value::Double(-0.5).to_uint()), "unsigned integer overflow");
        assert_eq!(error(Value::Int(-1).to_uint()), "unsigned integer overflow");
        assert_eq!(error(Value::Uint(u64::MAX).to_int()), "integer overflow");
        assert_eq!(error(Value::Int(253_402_300_800).to_timestamp()), "timestamp overflow");
        let octets = Value::Bytes(Bytes::Borrowed(b"\xff"));
        assert_eq!(error(octets.to_text()), "invalid UTF-8 in bytes, cannot convert to string");
    }

    #[test]
    fn conversions_give_the_reference_values() {
        let text = |value: Value<'_>| value.to_text().unwrap().as_str().unwrap().to_owned();
        assert_eq!(text(Value::Double(1.0)), "1");
        assert_eq!(text(Value::Double(-1e19)), "-1e+19");
        assert_eq!(text(Value::Bool(true)), "true");
        assert_eq!(text(Value::str("1h").to_duration().unwrap()), "3600s");
        assert_eq!(text(Value::Int(0).to_timestamp().unwrap()), "1970-01-01T00:00:00Z");
        assert!(matches!(Value::Double(-1.9).to_int(), Ok(Value::Int(-1))));
        assert!(matches!(Value::str("+7").to_int(), Ok(Value::Int(7))));
        assert!(matches!(Value::str("True").to_bool(), Ok(Value::Bool(true))));
        assert!(matches!(Value::str("1.5s").to_duration().unwrap().to_int(), Ok(Value::Int(1_500_000_000))));
    }
}
