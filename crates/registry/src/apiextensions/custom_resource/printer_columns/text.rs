//! Values of expressions as people read them: strings bare at every depth, `[a, b]`, `{k: v}` sorted by key.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use api::go_text::format_float;
use cel::value::Value;

/// A longer text is no cell: small values can share their parts many times over.
const BYTES_MAX: usize = 1 << 20;

/// The text of a value.
///
/// # Errors
/// It is too long, or a part of the value cannot be had.
pub(super) fn of(value: &Value<'_>) -> Result<String, String> {
    let mut text = String::new();
    write(&mut text, value)?;
    Ok(text)
}

fn write(out: &mut String, value: &Value<'_>) -> Result<(), String> {
    if out.len() > BYTES_MAX {
        return Err(format!("the text of the value has more than {BYTES_MAX} bytes"));
    }
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Null | Value::Optional(None) => out.write_str("null"),
        Value::Bool(truth) => write!(out, "{truth}"),
        Value::Int(number) => write!(out, "{number}"),
        Value::Uint(number) => write!(out, "{number}"),
        Value::Double(number) => out.write_str(&format_float(*number)),
        Value::String(text) => out.write_str(text),
        Value::Bytes(bytes) => out.write_str(&api::base64::encode(bytes)),
        Value::Duration(duration) => out.write_str(&duration.go_text()),
        Value::Timestamp(time) => out.write_str(&time.rfc3339()),
        Value::Optional(Some(value)) => return write(out, value),
        Value::List(list) => {
            out.push('[');
            for (index, item) in list.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write(out, &item)?;
            }
            out.write_str("]")
        }
        Value::Map(map) => {
            let mut entries: Vec<(String, Value<'_>)> = Vec::with_capacity(map.len());
            let mut failed = None;
            map.for_each(|key, value| match of(&key) {
                Ok(key) => {
                    entries.push((key, value));
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            entries.sort_by(|left, right| left.0.cmp(&right.0));
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                out.push_str(key);
                out.push_str(": ");
                write(out, value)?;
            }
            out.write_str("}")
        }
        Value::Error(error) => return Err(error.to_string()),
        other => write!(out, "{other}"),
    };
    Ok(())
}
