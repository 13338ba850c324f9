//! What a tool prints: text for people, JSON or YAML for programs.

use api::json::{self, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Report {
    /// For people.
    Text,
    /// One JSON object, with every detail.
    Json,
}

/// Chooses the form of the answer.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// The form of the answer.
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    pub(crate) format: Format,
}

impl Output {
    /// Prints an answer: the text, or the document.
    pub(crate) fn print(&self, text: &str, document: impl FnOnce() -> Value) {
        match self.format {
            Format::Text => println!("{text}"),
            Format::Json => println!("{}", json::to_pretty_string(&document(), "  ")),
            Format::Yaml => print!("{}", to_yaml(&document())),
        }
    }

    /// Says what is wrong: to people on standard error, to programs in the answer.
    pub(crate) fn fail(&self, message: &str) -> std::process::ExitCode {
        match self.format {
            Format::Text => eprintln!("{message}"),
            Format::Json | Format::Yaml => self.print("", || api::json!({ "error": message })),
        }
        std::process::ExitCode::FAILURE
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

/// Writes a value that starts on a line of its own.
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

/// Tells what went wrong, and what often lies behind it.
pub(crate) fn complain(error: &anyhow::Error) {
    let text = format!("{error:#}");
    eprintln!("error: {text}");
    if let Some(hint) = crate::manifests::hint(&text) {
        eprintln!("hint: {hint}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_is_read_again_as_what_was_written() {
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
