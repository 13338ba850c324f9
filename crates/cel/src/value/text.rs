//! Strings and octets, borrowed or shared; numbers as Go prints them.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Text, borrowed from program or input, or shared.
#[derive(Clone)]
pub enum Str<'a> {
    /// Borrowed.
    Borrowed(&'a str),
    /// Shared.
    Shared(Arc<str>),
}

impl Str<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Str::Borrowed(text) => text,
            Str::Shared(text) => text,
        }
    }

    /// Number of code points: CEL's size of a string.
    pub fn code_points(&self) -> usize {
        code_points(self.as_str())
    }

    /// The same text, shared.
    pub fn into_owned(self) -> Str<'static> {
        match self {
            Str::Borrowed(text) => Str::Shared(text.into()),
            Str::Shared(text) => Str::Shared(text),
        }
    }
}

impl Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl PartialEq for Str<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

/// Number of code points of a text. Most text is ASCII and short: testing its high bits is cheaper than
/// decoding.
#[inline]
pub(crate) fn code_points(text: &str) -> usize {
    let octets = text.as_bytes();
    let is_ascii = match octets.last_chunk::<8>() {
        Some(last) => {
            let (words, _) = octets.as_chunks::<8>();
            let bits = words.iter().fold(u64::from_le_bytes(*last), |bits, word| bits | u64::from_le_bytes(*word));
            bits & 0x8080_8080_8080_8080 == 0
        }
        None => octets.is_ascii(),
    };
    if is_ascii { text.len() } else { text.chars().count() }
}

/// Octets, borrowed from program or input, or shared.
#[derive(Clone)]
pub enum Bytes<'a> {
    /// Borrowed.
    Borrowed(&'a [u8]),
    /// Shared.
    Shared(Arc<[u8]>),
}

impl Bytes<'_> {
    /// The octets.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Borrowed(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        }
    }

    /// The same octets, shared.
    pub fn into_owned(self) -> Bytes<'static> {
        match self {
            Bytes::Borrowed(bytes) => Bytes::Shared(bytes.into()),
            Bytes::Shared(bytes) => Bytes::Shared(bytes),
        }
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.as_slice().escape_ascii())
    }
}

impl PartialEq for Bytes<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

/// A double as Go's `%g` prints it: the shortest form, with an exponent below 1e-4 and from 1e6 on.
pub fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = number.abs();
    if number == 0.0 || (1e-4..1e6).contains(&magnitude) {
        return format!("{number}");
    }
    // Rust prints `1e-7`, Go `1e-07`: the exponent has a sign and at least two digits.
    let text = format!("{number:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// Text in double quotes with escapes, as Go's `strconv.Quote` writes it.
pub fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{0}'..' ' | '\u{7f}' => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            // Rust's debug escapes know which characters can be printed.
            _ if c.is_ascii() || c.is_alphanumeric() || c.escape_debug().len() == 1 => quoted.push(c),
            _ if u32::from(c) < 0x1_0000 => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_go_prints_them() {
        for (number, text) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (999_999.5, "999999.5"),
            (1e6, "1e+06"),
            (123_456_789.123_456_79, "1.2345678912345679e+08"),
            (1e20, "1e+20"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e100, "1e+100"),
            (-5e-324, "-5e-324"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(double_text(number), text);
        }
    }

    #[test]
    fn quotes_are_go_s() {
        assert_eq!(go_quote("a\"\\\n\u{0}é\u{7f}\u{200b}😀"), r#""a\"\\\n\x00é\x7f\u200b😀""#);
    }
}
