//! Quantities as text: splitting, suffixes, and the canonical form.
//!
//! Follows `ParseQuantity` and `CanonicalizeBytes` in Kubernetes' `apimachinery/pkg/api/resource`.

use std::fmt;

use num_bigint::BigInt;

use super::amount::{ScaledValue, multiply};
use super::decimal::{Decimal, MAX_SHIFT};
use super::{Amount, Format, ParseError, Quantity};

/// The largest exponent that is held; Kubernetes has no limit, and runs out of memory instead.
const MAX_EXPONENT: u32 = 1_000_000;

/// Decimal digits that a 64-bit integer can always hold.
const I64_DIGITS: i32 = 18;

/// The smallest scale that is kept: a nano.
const NANO: i32 = -9;

/// A quantity's text, taken apart.
struct Parts<'a> {
    negative: bool,
    /// Sign, digits and point, as written.
    number: &'a str,
    /// Digits before the point, without leading zeros unless there are no others.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

/// Factor of a suffix.
#[derive(Clone, Copy)]
enum Unit {
    Ten(i32),
    Two(u32),
}

pub(super) fn parse(text: &str) -> Result<Quantity, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Format);
    }
    let parts = split(text)?;
    let (unit, format) = interpret(parts.suffix).ok_or(ParseError::Suffix)?;
    if let Unit::Ten(exponent) = unit
        && exponent.unsigned_abs() > MAX_EXPONENT
    {
        return Err(ParseError::Numeric);
    }
    if let Some(scaled) = parse_scaled(&parts, unit) {
        let written = keeps_text(&parts, unit, scaled) && !is_canonical(text, &parts, unit, format);
        return Ok(Quantity { amount: Amount::Scaled(scaled), format, written: written.then(|| text.into()) });
    }
    parse_decimal(&parts, unit, format)
}

fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..)),
        Some(b'+') => (false, text.get(1..)),
        _ => (false, Some(text)),
    };
    let rest = rest.unwrap_or_default().trim_start_matches('0');
    if rest.is_empty() {
        return Ok(Parts { negative: false, number: "0", whole: "0", fraction: "", suffix: "" });
    }
    let (whole, rest) = split_digits(rest);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    let number = text.strip_suffix(suffix).unwrap_or(text);
    let letters = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
    let exponent = letters.strip_prefix(['-', '+']).unwrap_or(letters);
    if !split_digits(exponent).1.is_empty() {
        return Err(ParseError::Format);
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    Ok(Parts { negative, number, whole, fraction, suffix })
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn interpret(suffix: &str) -> Option<(Unit, Format)> {
    let unit = match suffix {
        "n" => Unit::Ten(-9),
        "u" => Unit::Ten(-6),
        "m" => Unit::Ten(-3),
        "" => Unit::Ten(0),
        "k" => Unit::Ten(3),
        "M" => Unit::Ten(6),
        "G" => Unit::Ten(9),
        "T" => Unit::Ten(12),
        "P" => Unit::Ten(15),
        "E" => Unit::Ten(18),
        "Ki" => Unit::Two(10),
        "Mi" => Unit::Two(20),
        "Gi" => Unit::Two(30),
        "Ti" => Unit::Two(40),
        "Pi" => Unit::Two(50),
        "Ei" => Unit::Two(60),
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Kubernetes keeps the low 32 bits.
            #[expect(clippy::cast_possible_truncation, reason = "the truncation is Kubernetes' own")]
            return Some((Unit::Ten(exponent as i32), Format::DecimalExponent));
        }
    };
    Some((unit, if matches!(unit, Unit::Two(_)) { Format::BinarySi } else { Format::DecimalSi }))
}

/// The decimal suffix for an exponent; Kubernetes prints none for those it does not know.
fn decimal_suffix(exponent: i32) -> &'static str {
    match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    }
}

fn binary_suffix(times: i32) -> &'static str {
    match times {
        1 => "Ki",
        2 => "Mi",
        3 => "Gi",
        4 => "Ti",
        5 => "Pi",
        6 => "Ei",
        _ => "",
    }
}

/// The amount as a scaled integer, where Kubernetes holds it as one.
fn parse_scaled(parts: &Parts<'_>, unit: Unit) -> Option<ScaledValue> {
    let whole = i32::try_from(parts.whole.len()).ok()?;
    let fraction = i32::try_from(parts.fraction.len()).ok()?;
    let (precision, factor, scale) = match unit {
        Unit::Ten(exponent) => {
            (I64_DIGITS.checked_sub(whole)?.checked_sub(fraction)?, 1, exponent.checked_sub(fraction)?)
        }
        Unit::Two(exponent) if fraction == 0 => {
            // 2^10 takes about three decimal digits of the fifteen that are spent here.
            let taken = i32::try_from(exponent).ok()?.checked_mul(3)?.checked_div(10)?;
            (14_i32.checked_sub(whole)?.checked_sub(taken)?, 1_i64.checked_shl(exponent)?, 0)
        }
        Unit::Two(_) => return None,
    };
    if precision < 0 || scale < NANO {
        return None;
    }
    let digits = parts.whole.bytes().chain(parts.fraction.bytes());
    let value =
        digits.fold(0_i64, |value, digit| value.wrapping_mul(10).wrapping_add(i64::from(digit.wrapping_sub(b'0'))));
    let (value, fits) = multiply(value, factor);
    fits.then_some(ScaledValue { value: if parts.negative { value.wrapping_neg() } else { value }, scale })
}

/// Whether Kubernetes keeps the text as written because it treats it as canonical.
fn keeps_text(parts: &Parts<'_>, unit: Unit, amount: ScaledValue) -> bool {
    match unit {
        Unit::Two(exponent) => {
            let written = amount.value.unsigned_abs().checked_shr(exponent).unwrap_or(0);
            exponent.checked_rem(10) == Some(0) && written & 7 != 0
        }
        Unit::Ten(_) => {
            let (whole, fraction) = (parts.whole.as_bytes(), parts.fraction.as_bytes());
            let thousands = whole.iter().chain(fraction).rev().take(3).filter(|digit| **digit == b'0').count() == 3;
            amount.scale.checked_rem(3) == Some(0) && !thousands && whole.first() != Some(&b'0')
        }
    }
}

/// Whether a text that Kubernetes keeps is the one that [`write_canonical`] would write anyway.
fn is_canonical(text: &str, parts: &Parts<'_>, unit: Unit, format: Format) -> bool {
    let suffix = match unit {
        Unit::Ten(exponent) if format == Format::DecimalExponent => {
            exponent != 0 && parts.suffix.strip_prefix('e').is_some_and(|digits| is_number_text(digits, exponent))
        }
        _ => true,
    };
    suffix && !text.starts_with(['+', '0']) && !text.starts_with("-0") && !parts.number.contains('.')
}

/// Whether `digits` is how `number` is printed.
fn is_number_text(digits: &str, number: i32) -> bool {
    !digits.starts_with(['+', '0']) && !digits.starts_with("-0") && digits.parse() == Ok(number)
}

/// The amount as a decimal, rounded up to a nano and, if binary, capped.
fn parse_decimal(parts: &Parts<'_>, unit: Unit, mut format: Format) -> Result<Quantity, ParseError> {
    let fraction = i32::try_from(parts.fraction.len()).map_err(|_| ParseError::Numeric)?;
    let digits: Vec<u8> = parts.whole.bytes().chain(parts.fraction.bytes()).collect();
    let mut unscaled = BigInt::parse_bytes(&digits, 10).ok_or(ParseError::Numeric)?;
    let mut scale = fraction;
    match unit {
        Unit::Ten(exponent) => scale = scale.checked_sub(exponent).ok_or(ParseError::Numeric)?,
        Unit::Two(exponent) => {
            unscaled = BigInt::from(2).pow(exponent).checked_mul(&unscaled).ok_or(ParseError::Numeric)?;
        }
    }
    if scale.checked_add(NANO).is_none_or(|shift| shift < 0 && shift.unsigned_abs() > MAX_SHIFT) {
        return Err(ParseError::Numeric);
    }
    let mut amount = Decimal { unscaled, scale };
    if amount.sign() != 0 {
        amount = amount.rounded_up(NANO.saturating_neg());
    }
    if format == Format::BinarySi {
        let largest = Decimal::from_scaled(i64::MAX, 0);
        if amount.cmp(&largest).is_gt() {
            amount = largest;
        }
        if amount.sign() > 0 && amount.cmp(&Decimal::from_scaled(1, 0)).is_lt() {
            format = Format::DecimalSi;
        }
    }
    if parts.negative {
        amount = amount.negated();
    }
    Ok(Quantity { amount: Amount::Decimal(Box::new(amount)), format, written: None })
}

/// Writes the shortest text in the quantity's notation, with an exponent that is a multiple of three.
pub(super) fn write_canonical(quantity: &Quantity, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if quantity.is_zero() {
        return f.write_str("0");
    }
    let mut format = quantity.format;
    if format == Format::BinarySi {
        let small = quantity.cmp_i64(-1024).is_gt() && quantity.cmp_i64(1024).is_lt();
        // Small amounts and fractions would lose digits in binary notation.
        match (!small).then(|| binary_digits(quantity)).flatten() {
            Some((digits, times)) => return write!(f, "{digits}{}", binary_suffix(times)),
            None => format = Format::DecimalSi,
        }
    }
    let exponent = match &quantity.amount {
        Amount::Scaled(scaled) => match scaled.canonical() {
            Some((mantissa, exponent)) => {
                write!(f, "{mantissa}")?;
                exponent
            }
            None => write_decimal_mantissa(&scaled.to_decimal(), f)?,
        },
        Amount::Decimal(decimal) => write_decimal_mantissa(decimal, f)?,
    };
    match format {
        Format::DecimalExponent if exponent == 0 => Ok(()),
        Format::DecimalExponent => write!(f, "e{exponent}"),
        _ => f.write_str(decimal_suffix(exponent)),
    }
}

/// Writes the digits so that the exponent, which is returned, is a multiple of three.
fn write_decimal_mantissa(decimal: &Decimal, f: &mut fmt::Formatter<'_>) -> Result<i32, fmt::Error> {
    let digits = decimal.unscaled.to_string();
    let mantissa = digits.trim_end_matches('0');
    let zeros = i32::try_from(digits.len().saturating_sub(mantissa.len())).map_err(|_| fmt::Error)?;
    let exponent = decimal.scale.saturating_neg().saturating_add(zeros);
    let surplus = exponent.rem_euclid(3);
    f.write_str(mantissa)?;
    for _ in 0..surplus {
        f.write_str("0")?;
    }
    Ok(exponent.saturating_sub(surplus))
}

/// Digits and power of 1024 of a whole number, `None` if the amount has a fraction.
fn binary_digits(quantity: &Quantity) -> Option<(String, i32)> {
    if let Amount::Scaled(scaled) = &quantity.amount {
        let (whole, exact) = scaled.rounded_up(0);
        if !exact {
            return None;
        }
        if let Some(mut value) = whole.as_i64() {
            let mut times = 0_i32;
            while value.unsigned_abs() >= 1024 && value.checked_rem(1024) == Some(0) && value != i64::MIN {
                value = value.checked_div(1024)?;
                times = times.checked_add(1)?;
            }
            return Some((value.to_string(), times));
        }
    }
    let decimal = quantity.to_decimal();
    let whole = decimal.rounded_up(0);
    if whole.cmp(&decimal).is_ne() {
        return None;
    }
    let mut value = whole.unscaled;
    if whole.scale < 0 {
        // Too far from zero fraction digits to be aligned: print in decimal notation.
        return None;
    }
    let times = value.trailing_zeros().unwrap_or(0).checked_div(10)?;
    let divisor = BigInt::from(2).pow(u32::try_from(times.checked_mul(10)?).ok()?);
    value = value.checked_div(&divisor)?;
    Some((value.to_string(), i32::try_from(times).ok()?))
}
