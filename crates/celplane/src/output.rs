//! Output of tools: text for people, JSON or YAML for programs.

use std::io::{self, Write};

use api::json::{self, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Standard output. Errors name it and keep their kind, by which a closed pipe is recognized.
///
/// `println!` panics where nothing can be written: a pipe whose reader has left, or a full disk.
pub(crate) fn stdout() -> Stdout {
    Stdout(std::io::stdout())
}

/// A writer to standard output; see [`stdout`].
pub(crate) struct Stdout(std::io::Stdout);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(not_written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(not_written)
    }
}

fn not_written(error: io::Error) -> io::Error {
    match error.kind() {
        // The standard library's own loops retry these.
        io::ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("cannot write to standard output: {error}")),
    }
}

/// Prints to standard output; an error if that fails.
macro_rules! print_text {
    ($($text:tt)*) => { std::io::Write::write_fmt(&mut $crate::output::stdout(), format_args!($($text)*)) };
}
/// Prints a line to standard output; an error if that fails.
macro_rules! print_line {
    ($($text:tt)*) => { $crate::output::print_text!("{}\n", format_args!($($text)*)) };
}
/// Prints to standard error, as far as that is possible.
macro_rules! complain_text {
    ($($text:tt)*) => {{ let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!($($text)*)); }};
}
/// Prints a line to standard error, as far as that is possible.
macro_rules! complain_line {
    ($($text:tt)*) => { $crate::output::complain_text!("{}\n", format_args!($($text)*)) };
}
pub(crate) use {complain_line, complain_text, print_line, print_text};

/// Output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Readable text.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Output format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Report {
    /// Readable text.
    Text,
    /// One JSON object with every detail.
    Json,
}

/// The `--output` flag.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Output format.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub(crate) format: Format,
}

impl Output {
    /// Prints an answer: the text, or the document.
    pub(crate) fn print(&self, text: &str, document: impl FnOnce() -> Value) -> io::Result<()> {
        match self.format {
            Format::Text => print_line!("{text}"),
            Format::Json => print_line!("{}", json::to_pretty_string(&document(), "  ")),
            Format::Yaml => print_text!("{}", to_yaml(&document())),
        }
    }

    /// Reports an error: as text on standard error, or in the machine-readable output.
    pub(crate) fn fail(&self, message: &str) -> io::Result<std::process::ExitCode> {
        match self.format {
            Format::Text => complain_line!("{message}"),
            Format::Json | Format::Yaml => self.print("", || api::json!({ "error": message }))?,
        }
        Ok(std::process::ExitCode::FAILURE)
    }
}

/// A value of the language as JSON without types: what a program expects to read.
///
/// What JSON has no notation for is text: bytes in Base64, durations, timestamps, values of libraries' own types.
pub(crate) fn document(value: &cel::value::Value<'_>) -> Value {
    use cel::value::Value as Cel;
    match value {
        Cel::Null | Cel::Optional(None) => Value::Null,
        Cel::Bool(truth) => Value::Bool(*truth),
        Cel::Int(number) => Value::Int(*number),
        Cel::Uint(number) => unsigned(*number),
        Cel::Double(number) if number.is_finite() => Value::from(*number),
        Cel::Double(number) => Value::from(cel::value::double_text(*number)),
        Cel::String(text) => Value::from(text.as_str()),
        Cel::Bytes(bytes) => Value::from(STANDARD.encode(bytes.as_slice())),
        Cel::Duration(duration) => Value::from(duration.exact_text()),
        Cel::Timestamp(timestamp) => Value::from(timestamp.rfc3339()),
        Cel::List(list) => Value::Array(list.iter().map(|element| document(&element)).collect()),
        Cel::Map(map) => {
            let mut object = json::Object::new();
            for (key, value) in map.entries() {
                let name = key.as_str().map_or_else(|| crate::literal::text(&key), str::to_owned);
                object.insert(name, document(&value));
            }
            object.sort();
            Value::Object(object)
        }
        Cel::Type(of) => Value::from(of.name()),
        Cel::Optional(Some(value)) => document(value),
        Cel::Object(_) => document(&value.clone().into_owned()),
        Cel::Opaque(opaque) => Value::from(opaque.text()),
        Cel::Unknown(_) | Cel::Error(_) => Value::from(crate::literal::text(value)),
    }
}

/// A number that may be larger than a signed one.
pub(crate) fn unsigned(number: u64) -> Value {
    let large = || json::Float::parse(&number.to_string()).map_or(Value::Null, Value::Float);
    i64::try_from(number).map_or_else(|_| large(), Value::Int)
}

/// A document as YAML, in blocks.
pub(crate) fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    write_block(&mut out, value, 0);
    out
}

/// Writes a value that starts on a new line.
fn write_block(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (index, (name, value)) in fields.iter().enumerate() {
                // The first field of an item stands behind its dash.
                if index > 0 || out.is_empty() || out.ends_with('\n') {
                    indent(out, depth);
                }
                out.push_str(&scalar_text(name));
                out.push(':');
                write_inside(out, value, depth);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(out, depth);
                out.push('-');
                match item {
                    Value::Object(fields) if !fields.is_empty() => {
                        out.push(' ');
                        write_block(out, item, depth.saturating_add(1));
                    }
                    item => write_inside(out, item, depth),
                }
            }
        }
        other => write_inside(out, other, depth),
    }
}

/// Writes a value behind a name or a dash.
fn write_inside(out: &mut String, value: &Value, depth: usize) {
    let inside = depth.saturating_add(1);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            write_block(out, value, inside);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write_block(out, value, inside);
        }
        Value::String(text) if is_block(text) => {
            out.push_str(" |-\n");
            for line in text.lines() {
                indent(out, inside);
                out.push_str(line);
                out.push('\n');
            }
        }
        value => {
            if !out.is_empty() && !out.ends_with('\n') {
                out.push(' ');
            }
            match value {
                Value::String(text) => out.push_str(&scalar_text(text)),
                value => json::write_value(out, value),
            }
            out.push('\n');
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    (0..depth).for_each(|_| out.push_str("  "));
}

/// Several lines that YAML can show as they are.
fn is_block(text: &str) -> bool {
    let is_plain = |c: char| c == '\n' || !c.is_control();
    text.contains('\n') && !text.starts_with([' ', '\n']) && !text.ends_with('\n') && text.chars().all(is_plain)
}

/// The text bare where YAML reads it as that text, and quoted elsewhere.
fn scalar_text(text: &str) -> String {
    let is_simple = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/'));
    let (documents, _) = api::yaml::parse_documents(text);
    if is_simple && documents.first().is_some_and(|read| read.value.as_str() == Some(text)) {
        return text.to_owned();
    }
    let mut quoted = String::new();
    json::write_string(&mut quoted, text);
    quoted
}

/// Prints an optional line: a closed standard error is not a failure.
pub(crate) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints lines; a closed output is not a failure.
pub(crate) fn show(text: &str) {
    let _ = writeln!(stdout(), "{text}");
}

/// Prints an error, and its frequent cause.
pub(crate) fn complain(error: &anyhow::Error) {
    let text = format!("{error:#}");
    complain_line!("error: {text}");
    if let Some(hint) = crate::manifests::hint(&text) {
        complain_line!("hint: {hint}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_output_round_trips() {
        for text in [
            r#"{"a":1,"b":[true,null,"x","yes","1",""],"c":{"d":{},"e":[]}}"#,
            r#"[{"a":1,"b":2},[1,[2]],{"c":{"d":[{"e":"f"}]}}]"#,
            r#"{"error":"ERROR: <input>:1:5: x\n | 1 + x\n | ....^","k: v":" a\nb"}"#,
            r#""text""#,
            "18446744073709551615",
        ] {
            let value = json::parse(text.as_bytes()).unwrap();
            let (documents, error) = api::yaml::parse_documents(&to_yaml(&value));
            assert_eq!(error, None);
            assert_eq!(documents[0].value, value, "{}", to_yaml(&value));
        }
    }

    #[test]
    fn yaml_stands_in_blocks() {
        let value = json::parse(br#"{"type":"bool","cost":{"min":1,"max":2},"list":[1,{"a":1,"b":2}]}"#).unwrap();
        let expected = "type: bool\ncost:\n  min: 1\n  max: 2\nlist:\n  - 1\n  - a: 1\n    b: 2\n";
        assert_eq!(to_yaml(&value), expected);
    }
}
