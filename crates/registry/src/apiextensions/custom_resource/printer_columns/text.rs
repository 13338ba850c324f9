//! Values of expressions as people read them: strings bare at every depth, `[a, b]`, `{k: v}` sorted by key.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use api::go_text::format_float;
use cel::program::ListSink;
use cel::value::Value;

/// A longer text is not a cell: small values can share their parts many times over.
const BYTES_MAX: usize = 1 << 20;

/// Prints a list while it is evaluated.
#[derive(Debug)]
pub(super) struct Printer<'t> {
    text: &'t mut String,
    /// An element came before the next one.
    is_behind_element: bool,
    error: Option<String>,
}

impl<'t> Printer<'t> {
    /// Prints behind a text.
    pub(super) fn new(text: &'t mut String) -> Self {
        Self { text, is_behind_element: false, error: None }
    }

    /// The text so far.
    ///
    /// # Errors
    /// It is too long, or a part of the list cannot be had.
    pub(super) fn finish(self) -> Result<&'t str, String> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.text),
        }
    }

    #[inline]
    fn separate(&mut self) {
        if self.is_behind_element {
            self.text.push_str(", ");
        }
    }
}

impl ListSink for Printer<'_> {
    fn begin(&mut self) {
        if self.error.is_some() {
            return;
        }
        self.separate();
        self.is_behind_element = false;
        if self.text.len() > BYTES_MAX {
            self.error = Some(too_long());
        } else {
            self.text.push('[');
        }
    }

    fn element(&mut self, value: &Value<'_>) {
        if self.error.is_some() {
            return;
        }
        self.separate();
        self.is_behind_element = true;
        if let Err(error) = write(self.text, value) {
            self.error = Some(error);
        }
    }

    fn end(&mut self) {
        if self.error.is_none() {
            self.is_behind_element = true;
            self.text.push(']');
        }
    }
}

#[cold]
fn too_long() -> String {
    format!("the text of the value has more than {BYTES_MAX} bytes")
}

/// Appends the text of a value.
///
/// # Errors
/// It is too long, or a part of the value cannot be had.
pub(super) fn write(out: &mut String, value: &Value<'_>) -> Result<(), String> {
    if out.len() > BYTES_MAX {
        return Err(too_long());
    }
    if let Value::String(text) = value {
        out.push_str(text);
        return Ok(());
    }
    write_other(out, value)
}

fn write_other(out: &mut String, value: &Value<'_>) -> Result<(), String> {
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
            map.for_each(|key, value| {
                let mut text = String::new();
                match write(&mut text, &key) {
                    Ok(()) => {
                        entries.push((text, value));
                        ControlFlow::Continue(())
                    }
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
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
