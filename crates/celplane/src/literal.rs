//! Values as text that CEL reads again: `[1, 2u, "three"]`, `timestamp("2026-01-01T00:00:00Z")`.

use std::fmt::Write;

use cel::value::{Value, double_text};

/// The value as CEL would write it. Values of a library's own type appear as a call of that type: `net.IP("::1")`.
pub(crate) fn text(value: &Value<'_>) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value<'_>) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(truth) => write_display(out, truth),
        Value::Int(number) => write_display(out, number),
        Value::Uint(number) => {
            write_display(out, number);
            out.push('u');
        }
        Value::Double(number) => write_double(out, *number),
        Value::String(text) => write_string(out, text),
        Value::Bytes(bytes) => {
            out.push_str("b\"");
            for byte in bytes.iter() {
                match byte {
                    b'"' | b'\\' => out.extend(['\\', char::from(*byte)]),
                    b' '..=b'~' => out.push(char::from(*byte)),
                    _ => write_display(out, format_args!("\\x{byte:02x}")),
                }
            }
            out.push('"');
        }
        Value::Duration(duration) => write_call(out, "duration", &duration.exact_text()),
        Value::Timestamp(timestamp) => write_call(out, "timestamp", &timestamp.rfc3339()),
        Value::List(list) => {
            out.push('[');
            for (index, element) in list.iter().enumerate() {
                separate(out, index);
                write_value(out, &element);
            }
            out.push(']');
        }
        Value::Map(map) => {
            out.push('{');
            for (index, (key, value)) in map.entries().iter().enumerate() {
                separate(out, index);
                write_value(out, key);
                out.push_str(": ");
                write_value(out, value);
            }
            out.push('}');
        }
        Value::Type(of) => out.push_str(of.name()),
        Value::Optional(None) => out.push_str("optional.none()"),
        Value::Optional(Some(value)) => {
            out.push_str("optional.of(");
            write_value(out, value);
            out.push(')');
        }
        Value::Object(object) => {
            out.push_str(object.type_name());
            out.push('{');
            let mut index = 0_usize;
            object.for_each(&mut |field, value| {
                separate(out, index);
                index = index.saturating_add(1);
                write_display(out, format_args!("{field}: "));
                write_value(out, &value);
                std::ops::ControlFlow::Continue(())
            });
            out.push('}');
        }
        Value::Opaque(opaque) => write_call(out, opaque.type_of().name(), &opaque.text()),
        Value::Unknown(unknown) => {
            out.push_str("unknown: ");
            for (index, input) in unknown.inputs().enumerate() {
                separate(out, index);
                write_display(out, input);
            }
        }
        Value::Error(error) => write_display(out, format_args!("error: {error}")),
    }
}

fn write_display(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a string does not fail.
    let _ = write!(out, "{value}");
}

fn write_double(out: &mut String, number: f64) {
    if !number.is_finite() {
        return write_call(out, "double", &double_text(number));
    }
    let text = double_text(number);
    out.push_str(&text);
    if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        out.push_str(".0");
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => write_display(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write_call(out: &mut String, function: &str, argument: &str) {
    out.push_str(function);
    out.push('(');
    write_string(out, argument);
    out.push(')');
}

fn separate(out: &mut String, index: usize) {
    if index > 0 {
        out.push_str(", ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_quoted_as_cel_quotes_it() {
        assert_eq!(text(&Value::str("a\"b\\\n\u{7}é")), r#""a\"b\\\n\u0007é""#);
        assert_eq!(text(&Value::some(Value::Double(-0.0))), "optional.of(-0.0)");
        assert_eq!(text(&Value::Double(f64::NAN)), r#"double("NaN")"#);
    }
}
