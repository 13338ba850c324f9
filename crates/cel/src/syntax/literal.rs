//! Values of literals: numbers, strings and bytes.
//!
//! Follows Go's `strconv` for numbers and cel-go's `unescape.go` for escapes, with its error texts.

use std::sync::Arc;

use super::ast::Literal;
use super::lexer::Kind;

/// The value of a literal token, including the sign of a number; or its error.
pub(crate) fn parse_literal(kind: Kind, text: &str, negative: bool) -> Result<Literal, &'static str> {
    match kind {
        Kind::Int => parse_int(text, negative).map(Literal::Int).ok_or("invalid int literal"),
        Kind::Uint => parse_uint(text).map(Literal::Uint).ok_or("invalid uint literal"),
        Kind::Float => parse_double(text, negative).map(Literal::Double).ok_or("invalid double literal"),
        Kind::True => Ok(Literal::Bool(true)),
        Kind::False => Ok(Literal::Bool(false)),
        Kind::Null => Ok(Literal::Null),
        Kind::String => parse_string(text).map(Literal::String),
        Kind::Bytes => parse_bytes(text).map(Literal::Bytes),
        _ => Err("unexpected literal"),
    }
}

fn parse_magnitude(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse_int(text: &str, negative: bool) -> Option<i64> {
    let magnitude = parse_magnitude(text)?;
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

fn parse_uint(text: &str) -> Option<u64> {
    parse_magnitude(text.strip_suffix(['u', 'U'])?)
}

fn parse_double(text: &str, negative: bool) -> Option<f64> {
    let magnitude: f64 = text.parse().ok()?;
    magnitude.is_finite().then_some(if negative { -magnitude } else { magnitude })
}

/// A quoted text without its quotes and its raw prefix.
struct QuotedText<'a> {
    content: &'a str,
    raw: bool,
}

fn unquote(text: &str) -> QuotedText<'_> {
    let unprefixed = text.strip_prefix(['r', 'R']);
    let raw = unprefixed.is_some();
    let text = unprefixed.unwrap_or(text);
    let triple = |quotes: &str| text.strip_prefix(quotes)?.strip_suffix(quotes);
    let single = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let content =
        triple("'''").or_else(|| triple("\"\"\"")).or_else(|| single('\'')).or_else(|| single('"')).unwrap_or(text);
    QuotedText { content, raw }
}

fn parse_string(text: &str) -> Result<Arc<str>, &'static str> {
    let QuotedText { content, raw } = unquote(text);
    if (raw || !content.contains('\\')) && !content.contains('\r') {
        return Ok(content.into());
    }
    let mut out = String::with_capacity(content.len());
    unescape(content, raw, false, |piece| match piece {
        Piece::Char(character) => out.push(character),
        // Only bytes literals have bare bytes.
        Piece::Byte(byte) => out.push(char::from(byte)),
    })?;
    Ok(out.into())
}

fn parse_bytes(text: &str) -> Result<Arc<[u8]>, &'static str> {
    let text = text.strip_prefix(['b', 'B']).unwrap_or(text);
    let QuotedText { content, raw } = unquote(text);
    if (raw || !content.contains('\\')) && !content.contains('\r') {
        return Ok(content.as_bytes().into());
    }
    let mut out = Vec::with_capacity(content.len());
    unescape(content, raw, true, |piece| match piece {
        Piece::Char(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        Piece::Byte(byte) => out.push(byte),
    })?;
    Ok(out.into())
}

enum Piece {
    Char(char),
    Byte(u8),
}

const UNABLE: &str = "unable to unescape string";

/// Feeds the meaning of an escaped text to `push`; line ends become `\n` even in raw text.
fn unescape(content: &str, raw: bool, bytes: bool, mut push: impl FnMut(Piece)) -> Result<(), &'static str> {
    let mut rest = content.chars();
    while let Some(character) = rest.next() {
        match character {
            '\r' => {
                if rest.as_str().starts_with('\n') {
                    rest.next();
                }
                push(Piece::Char('\n'));
            }
            '\\' if !raw => push(unescape_one(&mut rest, bytes)?),
            other => push(Piece::Char(other)),
        }
    }
    Ok(())
}

/// The meaning of the escape sequence whose backslash was just read.
fn unescape_one(rest: &mut std::str::Chars<'_>, bytes: bool) -> Result<Piece, &'static str> {
    let Some(letter) = rest.next() else {
        return Err("unable to unescape string, found '\\' as last character");
    };
    Ok(Piece::Char(match letter {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' | '\'' | '"' | '`' | '?' => letter,
        'x' | 'X' => return code_point(digits(rest, None, 2, 16).ok_or(UNABLE)?, bytes),
        'u' | 'U' if bytes => return Err(UNABLE),
        'u' => return code_point(digits(rest, None, 4, 16).ok_or(UNABLE)?, false),
        'U' => return code_point(digits(rest, None, 8, 16).ok_or(UNABLE)?, false),
        '0'..='3' => {
            let value = digits(rest, Some(letter), 2, 8).ok_or("unable to unescape octal sequence in string")?;
            return code_point(value, bytes);
        }
        _ => return Err(UNABLE),
    }))
}

fn digits(rest: &mut std::str::Chars<'_>, first: Option<char>, count: usize, radix: u32) -> Option<u32> {
    let mut value = first.and_then(|digit| digit.to_digit(radix)).unwrap_or(0);
    for _ in 0..count {
        value = value.wrapping_mul(radix) | rest.next()?.to_digit(radix)?;
    }
    Some(value)
}

fn code_point(value: u32, bytes: bool) -> Result<Piece, &'static str> {
    match u8::try_from(value) {
        Ok(byte) if bytes => Ok(Piece::Byte(byte)),
        _ => char::from_u32(value).map(Piece::Char).ok_or("invalid unicode code point"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: Kind, text: &str, expected: Result<Literal, &'static str>) {
        assert_eq!(parse_literal(kind, text, false), expected, "{text}");
    }

    #[test]
    fn numbers_have_their_range() {
        check(Kind::Int, "9223372036854775807", Ok(Literal::Int(i64::MAX)));
        check(Kind::Int, "9223372036854775808", Err("invalid int literal"));
        assert_eq!(parse_literal(Kind::Int, "9223372036854775808", true), Ok(Literal::Int(i64::MIN)));
        check(Kind::Uint, "0xffffffffffffffffU", Ok(Literal::Uint(u64::MAX)));
        check(Kind::Float, "1e400", Err("invalid double literal"));
    }

    #[test]
    fn escapes_mean_code_points_in_strings_and_bytes_in_bytes() {
        check(Kind::String, r"'\x41\303\u00e9\U0001F600\''", Ok(Literal::String("AÃé😀'".into())));
        check(Kind::Bytes, r"b'\xff\377é'", Ok(Literal::Bytes([0xff, 0xff, 0xc3, 0xa9].into())));
        check(Kind::Bytes, r"b'\u0041'", Err(UNABLE));
        check(Kind::String, r"'\ud800'", Err("invalid unicode code point"));
    }

    #[test]
    fn raw_text_keeps_its_backslashes_and_loses_its_carriage_returns() {
        check(Kind::String, "r'''a\\n\r\nb\rc'''", Ok(Literal::String("a\\n\nb\nc".into())));
    }
}
