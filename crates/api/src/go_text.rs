//! Text as Go's standard library writes it.
//!
//! Messages that users of `kubectl` see quote strings with `%q` and print floats with `%v`; parsers and
//! error lists of this crate share the rules here. Follows Go's `strconv` and `unicode.IsPrint`.

use std::fmt::Write as _;

use crate::json::Value;

/// The name of a decoded value's type in Go's `%T`.
#[must_use]
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `text` in double quotes as Go's `%q` writes it: printable Unicode stays, the rest is escaped.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len().saturating_add(2));
    push_quoted(&mut out, text);
    out
}

/// Appends [`quote`] of `text` to `out`.
pub fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(c),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            _ if is_printable(c) => out.push(c),
            _ => {
                let code = u32::from(c);
                // Writing to a String cannot fail.
                let _ = match code {
                    0..0x80 => write!(out, "\\x{code:02x}"),
                    0x80..0x1_0000 => write!(out, "\\u{code:04x}"),
                    _ => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
}

/// Whether Go's `unicode.IsPrint` holds: letters, marks, numbers, punctuation, symbols and the ASCII space.
#[must_use]
pub fn is_printable(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // `str::escape_debug` escapes unprintable characters; behind the first character it leaves marks alone.
    let mut buffer = [b'a'; 5];
    let length = c.len_utf8().saturating_add(1);
    if let Some(tail) = buffer.get_mut(1..) {
        c.encode_utf8(tail);
    }
    let text = buffer.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.is_some_and(|text| text.escape_debug().nth(1).is_none_or(|second| second != '\\'))
}

/// A float as Go's `%v` writes it: shortest digits, in exponent form below 1e-4 and from a million on.
#[must_use]
pub fn format_float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let (negative, digits, exponent) = shortest_digits(value);
    let mut out = String::new();
    if negative {
        out.push('-');
    }
    if !(-4..6).contains(&exponent) {
        push_exponent_form(&mut out, &digits, exponent, 2);
    } else {
        push_plain_form(&mut out, &digits, exponent);
    }
    out
}

/// A float as Go's `encoding/json` writes it: exponent form below 1e-6 and from 1e21 on, `e-9` instead of `e-09`.
/// `None` when the value is not finite, which JSON cannot hold.
#[must_use]
pub fn format_json_float(value: f64) -> Option<String> {
    if !value.is_finite() {
        return None;
    }
    let (negative, digits, exponent) = shortest_digits(value);
    let mut out = String::new();
    if negative {
        out.push('-');
    }
    if value != 0.0 && !(-6..21).contains(&exponent) {
        push_exponent_form(&mut out, &digits, exponent, if exponent < 0 { 1 } else { 2 });
    } else {
        push_plain_form(&mut out, &digits, exponent);
    }
    Some(out)
}

/// Sign, shortest digits that read back as `value`, and the decimal exponent of the first digit.
fn shortest_digits(value: f64) -> (bool, String, i32) {
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = mantissa.chars().filter(char::is_ascii_digit).collect();
    (value.is_sign_negative(), digits, exponent.parse().unwrap_or(0))
}

fn push_exponent_form(out: &mut String, digits: &str, exponent: i32, exponent_width: usize) {
    let mut chars = digits.chars();
    out.extend(chars.next());
    let rest = chars.as_str();
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    out.push('e');
    out.push(if exponent < 0 { '-' } else { '+' });
    let _ = write!(out, "{:0exponent_width$}", exponent.unsigned_abs());
}

fn push_plain_form(out: &mut String, digits: &str, exponent: i32) {
    if exponent < 0 {
        out.push_str("0.");
        out.extend((exponent.saturating_add(1)..0).map(|_| '0'));
        out.push_str(digits);
        return;
    }
    let whole = usize::try_from(exponent).unwrap_or(0).saturating_add(1);
    for position in 0..whole {
        out.push(digits.as_bytes().get(position).map_or('0', |digit| char::from(*digit)));
    }
    if let Some(fraction) = digits.get(whole..).filter(|fraction| !fraction.is_empty()) {
        out.push('.');
        out.push_str(fraction);
    }
}

/// A value as Go's `%v` shows it: `map[a:1 b:[x y] c:<nil>]`.
#[must_use]
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::String(text) => text.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut entries: Vec<(&str, &Value)> = fields.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{}", plain(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        Value::Float(number) => format_float(number.get()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        assert_eq!(
            quote("a\"b\\\n\u{1}é\u{301}\u{200b}\u{e000}\u{10ffff}"),
            "\"a\\\"b\\\\\\n\\x01é\u{301}\\u200b\\ue000\\U0010ffff\""
        );
        assert_eq!(quote("\u{301}"), "\"\u{301}\"");
        assert_eq!(quote("\u{7f}\u{a0}"), "\"\\x7f\\u00a0\"");
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        assert_eq!(format_float(123_456.75), "123456.75");
        assert_eq!(format_float(1e6), "1e+06");
        assert_eq!(format_float(-0.00001), "-1e-05");
        assert_eq!(format_float(1.5), "1.5");
        assert_eq!(format_float(0.0), "0");
        assert_eq!(format_json_float(1e-7).as_deref(), Some("1e-7"));
        assert_eq!(format_json_float(1.25e-12).as_deref(), Some("1.25e-12"));
        assert_eq!(format_json_float(0.000001).as_deref(), Some("0.000001"));
        assert_eq!(format_json_float(1e21).as_deref(), Some("1e+21"));
        assert_eq!(format_json_float(123456.789).as_deref(), Some("123456.789"));
    }
}
