//! Numbers as `format` prints them.

use std::fmt::Write as _;

/// More digits than any double has after the point; further digits are zeros.
const DIGITS_MAX: usize = 1_100;

/// A double with this many digits after the point, as Go's `%.Nf` prints it.
pub(super) fn fixed(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        return crate::value::double_text(number);
    }
    let mut text = format!("{number:.*}", precision.min(DIGITS_MAX));
    pad(&mut text, precision);
    text
}

/// A double with an exponent of at least two digits, as Go's `%.Ne` prints it.
pub(super) fn scientific(number: f64, precision: usize) -> String {
    let (mut mantissa, exponent) = mantissa_and_exponent(number, precision);
    let sign = if exponent < 0 { '-' } else { '+' };
    _ = write!(mantissa, "e{sign}{:02}", exponent.unsigned_abs());
    mantissa
}

fn mantissa_and_exponent(number: f64, precision: usize) -> (String, i32) {
    let text = format!("{number:.*e}", precision.min(DIGITS_MAX));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let mut mantissa = mantissa.to_owned();
    pad(&mut mantissa, precision);
    (mantissa, exponent.parse().unwrap_or(0))
}

fn pad(text: &mut String, precision: usize) {
    text.extend(std::iter::repeat_n('0', precision.saturating_sub(DIGITS_MAX)));
}

/// Text that the reference's localized printer writes for a number that is too large for a format.
const NO_VERB: &str = "%!(NOVERB)";
const FORMAT_NUMBER_MAX: usize = 1_000_000;

/// `%.Nf` in American English: groups of three digits.
///
/// The reference keeps only eight bits of the least number of digits, so beyond 255 zeros at the end go missing.
pub(super) fn localized_fixed(number: f64, precision: usize) -> String {
    if precision > FORMAT_NUMBER_MAX {
        return NO_VERB.to_owned();
    }
    if let Some(special) = special(number) {
        return special.to_owned();
    }
    let text = fixed(number.abs(), precision);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let least = precision & 0xff;
    let significant = fraction.trim_end_matches('0').len();
    let fraction = fraction.get(..significant.max(least)).unwrap_or(fraction);
    let mut localized = String::with_capacity(text.len().saturating_mul(4).saturating_div(3));
    if number < 0.0 {
        localized.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && whole.len().saturating_sub(index).is_multiple_of(3) {
            localized.push(',');
        }
        localized.push(digit);
    }
    if !fraction.is_empty() {
        localized.push('.');
        localized.push_str(fraction);
    }
    localized
}

/// `%Ne`: always six digits after the point, and the exponent raised. The reference takes the precision for a width.
pub(super) fn localized_scientific(number: f64, width: usize) -> String {
    if width > FORMAT_NUMBER_MAX {
        return NO_VERB.to_owned();
    }
    let mut text = match special(number) {
        Some(special) => special.to_owned(),
        None => {
            let (mantissa, exponent) = mantissa_and_exponent(number.abs(), 6);
            let sign = if number < 0.0 { "-" } else { "" };
            let exponent_sign = if exponent < 0 { "⁻" } else { "" };
            let digits: String = format!("{:02}", exponent.unsigned_abs()).chars().map(raised).collect();
            format!("{sign}{mantissa}×10{exponent_sign}{digits}")
        }
    };
    // Widths have sixteen bits there.
    let missing = (width & 0xffff).saturating_sub(text.chars().count());
    text.insert_str(0, &" ".repeat(missing));
    text
}

fn special(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

fn raised(digit: char) -> char {
    match digit {
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        _ => '⁹',
    }
}
