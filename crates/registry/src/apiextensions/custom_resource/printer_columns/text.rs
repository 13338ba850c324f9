//! Values of expressions as people read them: strings bare at every depth, `[a, b]`, `{k: v}` sorted by key.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use api::go_text::format_float;
use cel::program::ListSink;
use cel::value::Value;

/// Characters of a cell; a longer text is cut, and ends with an ellipsis. A cell is for a terminal.
pub(super) const CHARACTERS_MAX: usize = 1024;
/// Limit on printed bytes, which covers all shown characters: a character has at most four bytes, and small
/// values can share their parts many times over.
const BYTES_MAX: usize = 4 * (CHARACTERS_MAX + 1);

/// A reason to stop printing.
#[derive(Debug)]
pub(super) enum Stop {
    /// The cell is full.
    Full,
    /// A part of the value cannot be had.
    Error(String),
}

/// A text as a cell shows it.
pub(super) fn cut(text: &str) -> api::json::Text {
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => [text.get(..end).unwrap_or_default(), "…"].concat().into(),
        None => text.into(),
    }
}

/// Appends the beginning of a text.
fn push(out: &mut String, text: &str) -> Result<(), Stop> {
    let room = BYTES_MAX.saturating_sub(out.len());
    if text.len() <= room {
        out.push_str(text);
        return Ok(());
    }
    let end = text.floor_char_boundary(room);
    out.push_str(text.get(..end).unwrap_or_default());
    Err(Stop::Full)
}

/// Prints a list while it is evaluated.
#[derive(Debug)]
pub(super) struct Printer<'t> {
    text: &'t mut String,
    /// An element came before the next one.
    is_behind_element: bool,
    stop: Option<Stop>,
}

impl<'t> Printer<'t> {
    /// Prints behind a text.
    pub(super) fn new(text: &'t mut String) -> Self {
        Self { text, is_behind_element: false, stop: None }
    }

    /// The text, as far as a cell shows it.
    ///
    /// # Errors
    /// A part of the list cannot be had.
    pub(super) fn finish(self) -> Result<&'t str, String> {
        match self.stop {
            Some(Stop::Error(error)) => Err(error),
            Some(Stop::Full) | None => Ok(self.text),
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
        if self.stop.is_some() {
            return;
        }
        self.separate();
        self.is_behind_element = false;
        self.stop = push(self.text, "[").err();
    }

    fn element(&mut self, value: &Value<'_>) {
        if self.stop.is_some() {
            return;
        }
        self.separate();
        self.is_behind_element = true;
        self.stop = write(self.text, value).err();
    }

    fn end(&mut self) {
        if self.stop.is_none() {
            self.is_behind_element = true;
            self.text.push(']');
        }
    }
}

/// Appends the text of a value, as far as a cell shows it.
///
/// # Errors
/// [`Stop`].
pub(super) fn write(out: &mut String, value: &Value<'_>) -> Result<(), Stop> {
    if let Value::String(text) = value {
        return push(out, text);
    }
    if out.len() >= BYTES_MAX {
        return Err(Stop::Full);
    }
    write_other(out, value)
}

fn write_other(out: &mut String, value: &Value<'_>) -> Result<(), Stop> {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Null | Value::Optional(None) => out.write_str("null"),
        Value::Bool(truth) => write!(out, "{truth}"),
        Value::Int(number) => write!(out, "{number}"),
        Value::Uint(number) => write!(out, "{number}"),
        Value::Double(number) => out.write_str(&format_float(*number)),
        Value::String(text) => return push(out, text),
        // Three bytes are four letters.
        Value::Bytes(bytes) => return push(out, &api::base64::encode(bytes.get(..BYTES_MAX).unwrap_or(bytes))),
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
                    // A longer key is truncated.
                    Ok(()) | Err(Stop::Full) => {
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
                push(out, key)?;
                out.push_str(": ");
                write(out, value)?;
            }
            out.write_str("}")
        }
        Value::Error(error) => return Err(Stop::Error(error.to_string())),
        other => write!(out, "{other}"),
    };
    Ok(())
}
