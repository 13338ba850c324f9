//! Values as YAML, in the style of `kubectl get -o yaml`.
//!
//! Lists are at the indentation of their key, text over several lines is a block, and quotes are used where a
//! reader of YAML 1.1 would interpret the text differently. Fields keep their order; sort them first to get
//! `kubectl`'s.

use super::scalar;
use crate::json::{self, Value};

/// The value as a YAML document, with a line break at the end.
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => write_block(&mut out, value, 0, false),
        Value::Array(items) if !items.is_empty() => write_block(&mut out, value, 0, false),
        scalar => {
            write_scalar(&mut out, scalar, 0);
            out.push('\n');
        }
    }
    out
}

/// Writes a list or object that is not empty; `inline` means that its first line has been indented already.
fn write_block(out: &mut String, value: &Value, level: usize, inline: bool) {
    let mut indented = inline;
    let mut start_line = |out: &mut String| {
        if !std::mem::take(&mut indented) {
            indent(out, level);
        }
    };
    match value {
        Value::Array(items) => {
            for item in items {
                start_line(out);
                out.push_str("- ");
                write_nested(out, item, level.saturating_add(1), true);
            }
        }
        Value::Object(fields) => {
            for (key, value) in fields.iter() {
                start_line(out);
                write_text(out, key, None);
                out.push(':');
                // Lists are at the indentation of their key.
                let inner = if matches!(value, Value::Array(_)) { level } else { level.saturating_add(1) };
                write_nested(out, value, inner, false);
            }
        }
        _ => {}
    }
}

/// Writes the value behind `- ` or `key:`.
fn write_nested(out: &mut String, value: &Value, level: usize, behind_dash: bool) {
    let is_block = match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    };
    if is_block {
        if !behind_dash {
            out.push('\n');
        }
        write_block(out, value, level, behind_dash);
        return;
    }
    if !behind_dash {
        out.push(' ');
    }
    write_scalar(out, value, level);
    out.push('\n');
}

fn write_scalar(out: &mut String, value: &Value, level: usize) {
    match value {
        Value::String(text) => write_text(out, text, Some(level)),
        other => json::write_value(out, other),
    }
}

/// Writes a text; `block_level` is the indentation of a block, if one is allowed here.
fn write_text(out: &mut String, text: &str, block_level: Option<usize>) {
    let is_printable =
        text.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{feff}' || c == '\u{2028}' || c == '\u{2029}'));
    if let (true, true, Some(level)) = (is_printable, text.contains('\n'), block_level)
        && !text.starts_with([' ', '\n'])
    {
        write_literal(out, text, level);
    } else if !is_printable
        || text.contains('\n')
        || looks_like_time(text)
        || !matches!(scalar::resolve(text, true, None), Ok(Value::String(_)))
    {
        json::write_string(out, text);
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    }
}

fn write_literal(out: &mut String, text: &str, level: usize) {
    let body = text.trim_end_matches('\n');
    let breaks = text.len().saturating_sub(body.len());
    out.push('|');
    match breaks {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(out, level);
            out.push_str(line);
        }
    }
    (1..breaks).for_each(|_| out.push('\n'));
}

/// Whether Go's reader would take the text for a time, or for a number to the base of 60.
fn looks_like_time(text: &str) -> bool {
    let is_number = |part: &str, sizes: std::ops::RangeInclusive<usize>| {
        sizes.contains(&part.len()) && part.bytes().all(|it| it.is_ascii_digit())
    };
    let mut parts = text.splitn(3, '-');
    if let (Some(year), Some(month), Some(rest)) = (parts.next(), parts.next(), parts.next())
        && is_number(year, 4..=4)
        && is_number(month, 1..=2)
    {
        let (day, time) = rest.split_once(['T', 't', ' ']).unwrap_or((rest, "0:0:0"));
        return is_number(day, 1..=2) && time.split(':').count() >= 3 && time.starts_with(|c: char| c.is_ascii_digit());
    }
    let number = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut parts = number.split(':');
    let is_first = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_digit()) && part.bytes().all(|it| it.is_ascii_digit() || it == b'_')
    };
    number.contains(':')
        && parts.next().is_some_and(is_first)
        && parts.all(|part| is_number(part.split('.').next().unwrap_or_default(), 1..=2))
}

/// Whether the text needs no quotes.
fn is_plain(text: &str) -> bool {
    let starts_well = match text.chars().next() {
        None => false,
        Some('-' | '?' | ':') => text.chars().nth(1).is_some_and(|c| c != ' '),
        Some(c) => !matches!(
            c,
            ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' | ' ' | '='
        ),
    };
    starts_well
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
}

fn indent(out: &mut String, level: usize) {
    (0..level).for_each(|_| out.push_str("  "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::yaml::parse_documents;

    #[test]
    fn the_style_is_that_of_kubectl() {
        let value = json!({
            "a": {"b": [{"c": 1, "d": [true, null]}, [], "x"], "e": {}},
            "text": "line 1\n\n  line 2\n",
            "odd": ["yes", "1", "1.5", "", "null", "- a", "a: b", "#", "it's", "'q'", "a\tb", "x\ny", "*", "2001-01-01", "2026-11-15T19:45:13Z", "2026-11-15-a", "1:30", "a:1", "0x1f", "~"],
        });
        let expected = "\
a:
  b:
  - c: 1
    d:
    - true
    - null
  - []
  - x
  e: {}
text: |
  line 1

    line 2
odd:
- \"yes\"
- \"1\"
- \"1.5\"
- \"\"
- \"null\"
- '- a'
- 'a: b'
- '#'
- it's
- '''q'''
- \"a\\tb\"
- |-
  x
  y
- '*'
- \"2001-01-01\"
- \"2026-11-15T19:45:13Z\"
- 2026-11-15-a
- \"1:30\"
- a:1
- \"0x1f\"
- \"~\"
";
        assert_eq!(to_string(&value), expected);
    }

    #[test]
    fn written_values_round_trip() {
        let texts = [
            "",
            " ",
            "a ",
            " a",
            "a\n",
            "\na",
            "a\n\n",
            "  a\nb",
            "\u{7}",
            "é\u{2028}",
            "a:",
            ":a",
            "-",
            "--- a",
            "%",
            "@x",
            "=",
            "<<",
            "1_0",
            "0b1",
            "y",
            "NaN",
            "?x",
            "a,b",
            "[",
            "a #b",
            "a#b",
            "\u{feff}",
        ];
        for text in texts {
            let value = json!({"k": text, "l": [text, [text]], "m": {"n": {"o": text}}});
            let written = to_string(&value);
            let (documents, error) = parse_documents(&written);
            assert_eq!(error, None, "{text:?}\n{written}");
            assert_eq!(documents[0].value, value, "{text:?}\n{written}");
        }
        for scalar in [json!(null), json!(1), json!("x"), json!([]), json!({}), json!("a\nb")] {
            let written = to_string(&scalar);
            let (documents, _) = parse_documents(&written);
            let read = documents.first().map_or(&json::Value::Null, |document| &document.value);
            assert_eq!(read, &scalar, "{written}");
        }
    }
}
