//! Interpretation of a scalar by its text, quotes and tag.
//!
//! Follows the resolution of `go.yaml.in/yaml/v2`, and then the effect of encoding the result as JSON on
//! numbers.

use crate::go_text::{format_float, format_json_float};
use crate::json::{Float, Text, Value};

/// The value of a scalar; `plain` means without quotes.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&str>) -> Result<Value, String> {
    let tag = tag.map(|tag| tag.strip_prefix("tag:yaml.org,2002:").or(tag.strip_prefix("!!")).unwrap_or(tag));
    match tag {
        None if plain => resolve_plain(text),
        None | Some("str" | "!") => Ok(text.into()),
        Some("binary") => decode_base64(text).map(Value::from),
        Some(tag @ ("bool" | "int" | "float" | "null")) => {
            let value = resolve_plain(text)?;
            let fits = matches!(
                (&value, tag),
                (Value::Bool(_), "bool") | (Value::Int(_) | Value::Float(_), "int" | "float") | (Value::Null, "null")
            );
            if fits { Ok(value) } else { Err(format!("cannot decode !!{} `{text}` as a !!{tag}", kind(&value))) }
        }
        Some(_) => Ok(text.into()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int",
        Value::Float(_) => "float",
        _ => "str",
    }
}

fn resolve_plain(text: &str) -> Result<Value, String> {
    Ok(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => true.into(),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => false.into(),
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        ".nan" | ".NaN" | ".NAN" => return Err("json: unsupported value: NaN".into()),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Err("json: unsupported value: +Inf".into());
        }
        "-.inf" | "-.Inf" | "-.INF" => return Err("json: unsupported value: -Inf".into()),
        _ if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) => {
            resolve_number(text).unwrap_or_else(|| text.into())
        }
        _ => text.into(),
    })
}

fn resolve_number(text: &str) -> Option<Value> {
    if text.starts_with('.') {
        return is_float(text).then(|| number_from_f64(text.parse().ok()?)).flatten();
    }
    let plain = text.replace('_', "");
    if let Some(value) = parse_integer(&plain) {
        return Some(value);
    }
    is_float(&plain).then(|| number_from_f64(plain.parse().ok()?)).flatten()
}

/// Go's `ParseInt(text, 0, 64)`: decimal, or octal, hexadecimal and binary by prefix.
fn parse_integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, lower.get(1..)?)
    } else {
        (10, lower.as_str())
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    let value = if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
    match value {
        Some(value) => Some(Value::Int(value)),
        None if negative => None,
        None => Float::parse(&magnitude.to_string()).map(Value::Float),
    }
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(left, right)| (left, Some(right)));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    mantissa_fits && exponent_fits
}

/// The number that reading Go's JSON form of the float gives: an integer, if it is whole and short enough.
fn number_from_f64(value: f64) -> Option<Value> {
    let text = format_json_float(value)?;
    match text.parse() {
        Ok(value) => Some(Value::Int(value)),
        Err(_) => Float::parse(&text).map(Value::Float),
    }
}

/// The text of a key, which need not be a string in YAML.
pub(super) fn key_text(key: &Value) -> Option<Text> {
    match key {
        Value::String(text) => Some(text.clone()),
        Value::Int(value) => Some(value.to_string().into()),
        Value::Float(value) => Some(format_float(value.get()).into()),
        Value::Bool(value) => Some(if *value { "true" } else { "false" }.into()),
        _ => None,
    }
}

fn decode_base64(text: &str) -> Result<String, String> {
    let bad = || "!!binary value contains invalid base64 data".to_owned();
    let mut bytes = Vec::new();
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte.wrapping_sub(b'A'),
            b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
            b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
            b'+' => 62,
            b'/' => 63,
            _ => return Err(bad()),
        };
        buffer = (buffer << 6) | u32::from(digit);
        bits = bits.saturating_add(6);
        if bits >= 8 {
            bits = bits.saturating_sub(8);
            bytes.push(u8::try_from((buffer >> bits) & 0xFF).map_err(|_| bad())?);
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
