//! The smallest parts of a pattern: counts, escapes, class elements. None of them touches the parser's state.

use super::super::error::{Error, ErrorKind};
use super::super::tree::ClassItem;
use super::{REPEAT_MAX, consumed, skip, unicode};

/// The minimum and the maximum of a repetition; `None` for no maximum.
pub(super) type Counts = (u32, Option<u32>);

/// Parses `{2}`, `{2,}` or `{2,3}`. `None` when the text has another form and so is literal;
/// the inner `None` when the numbers are not allowed.
pub(super) fn counts(text: &str) -> Option<(Option<Counts>, &str)> {
    let (min, rest) = number(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => {
            let (max, rest) = number(rest)?;
            (Some(max), rest)
        }
    };
    let rest = rest.strip_prefix('}')?;
    let valid = min <= REPEAT_MAX && max.is_none_or(|max| max <= REPEAT_MAX && min <= max);
    Some((valid.then_some((min, max)), rest))
}

/// Parses a decimal number without leading zeros; a huge one becomes some number that is too large.
fn number(text: &str) -> Option<(u32, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = consumed(text, rest);
    if digits.is_empty() || digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    Some((digits.parse().unwrap_or(u32::MAX), rest))
}

/// Parses `[:name:]` or `[:^name:]`. `None` when the text is not of this form.
pub(super) fn named_class(text: &str) -> Result<Option<(ClassItem, &str)>, Error> {
    let Some((name, rest)) = text.strip_prefix("[:").and_then(|name| name.split_once(":]")) else {
        return Ok(None);
    };
    let negated = name.starts_with('^');
    match unicode::posix_class(name.strip_prefix('^').unwrap_or(name)) {
        Some(ranges) => Ok(Some((ClassItem::Ascii { ranges, negated }, rest))),
        None => Err(Error::new(ErrorKind::InvalidCharacterRange, consumed(text, rest))),
    }
}

/// Parses `\d` and the like, `\pL`, `\p{Greek}`, `\P{^Greek}`. `None` when the text is not of this form.
pub(super) fn class_escape(text: &str) -> Result<Option<(ClassItem, &str)>, Error> {
    let Some(escaped) = text.strip_prefix('\\') else {
        return Ok(None);
    };
    let Some(letter) = escaped.chars().next() else {
        return Ok(None);
    };
    let rest = skip(escaped, letter.len_utf8());
    if let Some((ranges, negated)) = unicode::perl_class(letter) {
        return Ok(Some((ClassItem::Ascii { ranges, negated }, rest)));
    }
    if !matches!(letter, 'p' | 'P') {
        return Ok(None);
    }
    let (name, rest) = match rest.strip_prefix('{') {
        Some(braced) => braced.split_once('}').ok_or_else(|| Error::new(ErrorKind::InvalidCharacterRange, text))?,
        None => {
            let after = skip(rest, rest.chars().next().map_or(0, char::len_utf8));
            (consumed(rest, after), after)
        }
    };
    let positive_name = name.strip_prefix('^');
    let negated = (letter == 'P') != positive_name.is_some();
    match unicode::property(positive_name.unwrap_or(name)) {
        Some(property) => Ok(Some((ClassItem::Unicode { property, negated }, rest))),
        None => Err(Error::new(ErrorKind::InvalidCharacterRange, consumed(text, rest))),
    }
}

/// Parses one character or a range of them inside brackets; `class` starts at the opening bracket.
pub(super) fn class_range<'r>(text: &'r str, class: &str) -> Result<(ClassItem, &'r str), Error> {
    let (low, rest) = class_character(text, class)?;
    // In `[a-]` the hyphen is an ordinary character.
    let Some(upper) = rest.strip_prefix('-').filter(|upper| !upper.is_empty() && !upper.starts_with(']')) else {
        return Ok((ClassItem::Range(low, low), rest));
    };
    let (high, rest) = class_character(upper, class)?;
    if high < low {
        return Err(Error::new(ErrorKind::InvalidCharacterRange, consumed(text, rest)));
    }
    Ok((ClassItem::Range(low, high), rest))
}

fn class_character<'r>(text: &'r str, class: &str) -> Result<(u32, &'r str), Error> {
    match text.chars().next() {
        None => Err(Error::new(ErrorKind::MissingBracket, class)),
        Some('\\') => character_escape(text),
        Some(c) => Ok((c.into(), skip(text, c.len_utf8()))),
    }
}

/// Parses an escape of one character, which may be a surrogate.
pub(super) fn character_escape(text: &str) -> Result<(u32, &str), Error> {
    let escaped = skip(text, "\\".len());
    let Some(c) = escaped.chars().next() else {
        return Err(Error::new(ErrorKind::TrailingBackslash, ""));
    };
    let rest = skip(escaped, c.len_utf8());
    let invalid = |rest: &str| Err(Error::new(ErrorKind::InvalidEscape, consumed(text, rest)));
    let code = match c {
        '0' => return Ok(octal(escaped)),
        // A single digit would be a back reference.
        '1'..='7' if rest.starts_with(|next: char| next.is_digit(8)) => return Ok(octal(escaped)),
        'x' => {
            let (code, rest) = hexadecimal(rest);
            return code.map_or_else(|| invalid(rest), |code| Ok((code, rest)));
        }
        'a' => 0x07,
        'f' => 0x0c,
        'n' => 0x0a,
        'r' => 0x0d,
        't' => 0x09,
        'v' => 0x0b,
        _ if c.is_ascii() && !c.is_ascii_alphanumeric() => c.into(),
        _ => return invalid(rest),
    };
    Ok((code, rest))
}

/// Reads up to three octal digits.
fn octal(digits: &str) -> (u32, &str) {
    let len = digits.bytes().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
    let rest = skip(digits, len);
    (u32::from_str_radix(consumed(digits, rest), 8).unwrap_or_default(), rest)
}

/// Parses the text behind `\x`: two digits, or any number of digits in braces. Returns the rest behind the last
/// examined character, also without a number.
fn hexadecimal(text: &str) -> (Option<u32>, &str) {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return (None, "");
    };
    if first != '{' {
        let digits = (first.to_digit(16), chars.next().and_then(|second| second.to_digit(16)));
        let code = match digits {
            (Some(high), Some(low)) => Some((high << 4) | low),
            _ => None,
        };
        return (code, chars.as_str());
    }
    let mut code = None;
    while let Some(c) = chars.next() {
        if c == '}' {
            return (code, chars.as_str());
        }
        let Some(digit) = c.to_digit(16) else { break };
        let value = (code.unwrap_or(0_u32) << 4) | digit;
        if value > char::MAX.into() {
            break;
        }
        code = Some(value);
    }
    (None, chars.as_str())
}
