//! Writing JSON as Go's `encoding/json` does.
//!
//! The API server escapes `<`, `>`, `&` and the two Unicode line separators; so does everything here that others read.

use std::fmt::Write as _;

use super::Value;
use super::scan::is_plain;

/// Compact JSON.
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// JSON over several lines, each level indented by `indent`.
#[must_use]
pub fn to_pretty_string(value: &Value, indent: &str) -> String {
    let mut out = String::new();
    write_pretty(&mut out, value, indent, 0);
    out
}

/// Appends compact JSON to `out`.
pub fn write_value(out: &mut String, value: &Value) {
    write_compact(out, value, true);
}

/// Appends compact JSON to `out`, without escapes for HTML.
pub(super) fn write_unescaped(out: &mut String, value: &Value) {
    write_compact(out, value, false);
}

fn write_compact(out: &mut String, value: &Value, escape_html: bool) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_compact(out, item, escape_html);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_quoted(out, key, escape_html);
                out.push(':');
                write_compact(out, value, escape_html);
            }
            out.push('}');
        }
        scalar => write_scalar(out, scalar, escape_html),
    }
}

fn write_scalar(out: &mut String, value: &Value, escape_html: bool) {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Bool(value) => {
            out.push_str(if *value { "true" } else { "false" });
            Ok(())
        }
        Value::Int(value) => {
            out.push_str(itoa::Buffer::new().format(*value));
            Ok(())
        }
        Value::Float(value) => write!(out, "{value}"),
        Value::String(value) => {
            write_quoted(out, value, escape_html);
            Ok(())
        }
        _ => {
            out.push_str("null");
            Ok(())
        }
    };
}

fn write_pretty(out: &mut String, value: &Value, indent: &str, level: usize) {
    let inner = level.saturating_add(1);
    let start_line = |out: &mut String, level: usize| {
        out.push('\n');
        (0..level).for_each(|_| out.push_str(indent));
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                start_line(out, inner);
                write_pretty(out, item, indent, inner);
            }
            start_line(out, level);
            out.push(']');
        }
        Value::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                start_line(out, inner);
                write_quoted(out, key, true);
                out.push_str(": ");
                write_pretty(out, value, indent, inner);
            }
            start_line(out, level);
            out.push('}');
        }
        other => write_compact(out, other, true),
    }
}

/// Appends a JSON string to `out`, with Go's escapes.
pub fn write_string(out: &mut String, text: &str) {
    write_quoted(out, text, true);
}

fn write_quoted(out: &mut String, text: &str, escape_html: bool) {
    out.reserve(text.len().saturating_add(2));
    out.push('"');
    if is_plain(text.as_bytes()) {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut rest = text;
    // INVARIANT: the run ends at one ASCII byte, or at the three bytes of a line separator.
    while let Some(at) = rest.bytes().position(|byte| needs_escape(byte, escape_html)) {
        let (run, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(run);
        let mut chars = tail.chars();
        if let Some(c) = chars.next() {
            push_escaped(out, c);
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}

/// Treatment of a byte: none, escape, or escape for HTML.
const PLAIN: u8 = 0;
const ESCAPED: u8 = 1;
const ESCAPED_IN_HTML: u8 = 2;

/// 0xE2 starts the line separators, and other characters that [`push_escaped`] leaves alone.
#[expect(clippy::indexing_slicing, reason = "the index is below the length, and this runs at compile time")]
static ESCAPES: [u8; 256] = {
    let mut table = [PLAIN; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = match byte {
            0..0x20 | 0x22 | 0x5C | 0xE2 => ESCAPED,
            0x26 | 0x3C | 0x3E => ESCAPED_IN_HTML,
            _ => PLAIN,
        };
        byte += 1;
    }
    table
};

fn needs_escape(byte: u8, escape_html: bool) -> bool {
    let action = ESCAPES.get(usize::from(byte)).copied().unwrap_or_default();
    action == ESCAPED || (escape_html && action != PLAIN)
}

fn push_escaped(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        // Tables usually contain characters that are escaped for HTML.
        '<' => out.push_str("\\u003c"),
        '>' => out.push_str("\\u003e"),
        '&' => out.push_str("\\u0026"),
        '\0'..'\u{20}' | '\u{2028}' | '\u{2029}' => {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        }
        _ => out.push(c),
    }
}
