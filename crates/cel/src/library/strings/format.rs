//! `format`: clauses such as `%s` and `%.2f` replaced by the elements of a list.
//!
//! Up to version 3 of the library, numbers are localized as American English and elements of containers are quoted;
//! from version 4 on, the text is plain.

use std::fmt::Write as _;
use std::num::IntErrorKind;

use super::number;
use crate::value::bounds::check_text;
use crate::value::{EvalError, List, Value, go_quote};

/// Style of formatting values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Format of versions up to 3.
    Localized,
    /// Format from version 4 on.
    Plain,
}

/// Verb of a formatting clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    String,
    Decimal,
    Fixed(Option<usize>),
    Scientific(Option<usize>),
    Binary,
    Hexadecimal { upper: bool },
    Octal,
}

/// A piece of a format string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece<'f> {
    Text(&'f str),
    Clause(Verb),
}

/// Number of digits after the decimal point if the clause does not give a precision.
const DEFAULT_PRECISION: usize = 6;

pub(super) fn format(format: &str, arguments: &List<'_>, style: Style) -> Result<String, EvalError> {
    let mut output = String::with_capacity(format.len().saturating_mul(2));
    let mut rest = format;
    let mut next = 0_usize;
    loop {
        let argument = arguments.get(next);
        match next_piece(&mut rest, || argument.is_some().then_some(()).ok_or_else(|| missing(next))) {
            None => return Ok(output),
            Some(piece) => match piece.map_err(EvalError::other)? {
                Piece::Text(text) => output.push_str(text),
                Piece::Clause(verb) => {
                    let argument = argument.ok_or_else(|| EvalError::other(missing(next)))?;
                    next = next.saturating_add(1);
                    write_clause(&mut output, verb, &argument, style).map_err(|error| error.in_clause())?;
                    check_text(output.len())?;
                }
            },
        }
    }
}

/// `index 1 out of range`
pub(super) fn missing(index: usize) -> String {
    format!("index {index} out of range")
}

/// Takes the next piece off the format string; `ready` is asked before a clause is read.
pub(super) fn next_piece<'f>(
    rest: &mut &'f str,
    ready: impl FnOnce() -> Result<(), String>,
) -> Option<Result<Piece<'f>, String>> {
    let text = *rest;
    if text.is_empty() {
        return None;
    }
    let Some(clause) = text.strip_prefix('%') else {
        let end = text.find('%').unwrap_or(text.len());
        let (plain, after) = text.split_at_checked(end)?;
        *rest = after;
        return Some(Ok(Piece::Text(plain)));
    };
    if let Some(after) = clause.strip_prefix('%') {
        *rest = after;
        return Some(Ok(Piece::Text("%")));
    }
    if let Err(error) = ready() {
        return Some(Err(error));
    }
    if clause.is_empty() {
        return Some(Err("unexpected end of string".to_owned()));
    }
    let read = read_clause(clause).map(|(verb, after)| {
        *rest = after;
        Piece::Clause(verb)
    });
    Some(read.map_err(|error| format!("could not parse formatting clause: {error}")))
}

fn read_clause(clause: &str) -> Result<(Verb, &str), String> {
    let (precision, rest) = match clause.strip_prefix('.') {
        None => (None, clause),
        Some(after) => {
            let (precision, rest) =
                read_precision(after).map_err(|error| format!("error while parsing precision: {error}"))?;
            (Some(precision), rest)
        }
    };
    let mut characters = rest.chars();
    let verb = match characters.next() {
        Some('s') => Verb::String,
        Some('d') => Verb::Decimal,
        Some('f') => Verb::Fixed(precision),
        Some('e') => Verb::Scientific(precision),
        Some('b') => Verb::Binary,
        Some('x') => Verb::Hexadecimal { upper: false },
        Some('X') => Verb::Hexadecimal { upper: true },
        Some('o') => Verb::Octal,
        _ => {
            // The reference looks at a single octet.
            let octet = rest.bytes().next().map_or(' ', char::from);
            return Err(format!("unrecognized formatting clause \"{octet}\""));
        }
    };
    Ok((verb, characters.as_str()))
}

fn read_precision(text: &str) -> Result<(usize, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).ok_or("could not find end of precision specifier")?;
    let (digits, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    match digits.parse::<i64>() {
        Ok(precision) => Ok((usize::try_from(precision).unwrap_or(usize::MAX), rest)),
        Err(error) => {
            let reason = match error.kind() {
                IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            let quoted = go_quote(digits);
            Err(format!("error while converting precision to integer: strconv.Atoi: parsing {quoted}: {reason}"))
        }
    }
}

/// A reason why a value cannot be formatted.
pub(super) enum Refusal {
    /// The clause does not take values of this type.
    Type(Verb, Style, String),
    /// Something else.
    Other(String),
    /// The value inside is itself an error or unknown.
    Value(EvalError),
}

impl Refusal {
    /// The reference's text.
    pub(super) fn message(&self) -> String {
        match self {
            Refusal::Type(verb, style, name) => format!("{}, was given {name}", expectation(*verb, *style)),
            Refusal::Other(message) => message.clone(),
            Refusal::Value(error) => error.message().to_owned(),
        }
    }

    fn in_clause(self) -> EvalError {
        match self {
            Refusal::Value(error) => error,
            other => EvalError::other(format!("error during formatting: {}", other.message())),
        }
    }
}

/// Message that lists the types a clause can be used on.
fn expectation(verb: Verb, style: Style) -> &'static str {
    match (verb, style) {
        (Verb::String, _) => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        (Verb::Decimal, Style::Localized) => "decimal clause can only be used on integers",
        (Verb::Decimal, Style::Plain) => "decimal clause can only be used on ints, uints, and doubles",
        (Verb::Fixed(_), Style::Localized) => "fixed-point clause can only be used on doubles",
        (Verb::Fixed(_), Style::Plain) => "fixed-point clause can only be used on ints, uints, and doubles",
        (Verb::Scientific(_), Style::Localized) => "scientific clause can only be used on doubles",
        (Verb::Scientific(_), Style::Plain) => "scientific clause can only be used on ints, uints, and doubles",
        (Verb::Binary, Style::Localized) => "only integers and bools can be formatted as binary",
        (Verb::Binary, Style::Plain) => "only ints, uints, and bools can be formatted as binary",
        (Verb::Hexadecimal { .. }, Style::Localized) => {
            "only integers, byte buffers, and strings can be formatted as hex"
        }
        (Verb::Hexadecimal { .. }, Style::Plain) => "only ints, uints, bytes, and strings can be formatted as hex",
        (Verb::Octal, Style::Localized) => "octal clause can only be used on integers",
        (Verb::Octal, Style::Plain) => "octal clause can only be used on ints and uints",
    }
}

fn refuse(verb: Verb, style: Style, value: &Value<'_>) -> Refusal {
    match value {
        Value::Error(error) => Refusal::Value(error.clone()),
        Value::Unknown(_) => Refusal::Value(EvalError::undetermined()),
        other => Refusal::Type(verb, style, other.type_name().into_owned()),
    }
}

fn write_clause(output: &mut String, verb: Verb, value: &Value<'_>, style: Style) -> Result<(), Refusal> {
    // Writing to a string does not fail.
    match (verb, value) {
        (Verb::String, _) => return write_value(output, value, style),
        (Verb::Decimal, Value::Int(number)) => _ = write!(output, "{number}"),
        (Verb::Decimal, Value::Uint(number)) => _ = write!(output, "{number}"),
        (Verb::Decimal, Value::Double(number)) if style == Style::Plain => output.push_str(&plain_double(*number)),
        (Verb::Binary, Value::Int(number)) => _ = write!(output, "{}{:b}", sign(*number), number.unsigned_abs()),
        (Verb::Binary, Value::Uint(number)) => _ = write!(output, "{number:b}"),
        (Verb::Binary, Value::Bool(truth)) => output.push(if *truth { '1' } else { '0' }),
        (Verb::Octal, Value::Int(number)) => _ = write!(output, "{}{:o}", sign(*number), number.unsigned_abs()),
        (Verb::Octal, Value::Uint(number)) => _ = write!(output, "{number:o}"),
        (Verb::Hexadecimal { upper }, _) => {
            write_hexadecimal(output, value, upper).ok_or_else(|| refuse(verb, style, value))?
        }
        (Verb::Fixed(precision), _) => {
            let number = number(value, style).ok_or_else(|| refuse(verb, style, value))?;
            let precision = precision.unwrap_or(DEFAULT_PRECISION);
            output.push_str(&match style {
                Style::Localized => number::localized_fixed(number, precision),
                Style::Plain if number.is_finite() => number::fixed(number, precision),
                Style::Plain => plain_double(number),
            });
        }
        (Verb::Scientific(precision), _) => {
            let number = number(value, style).ok_or_else(|| refuse(verb, style, value))?;
            let precision = precision.unwrap_or(DEFAULT_PRECISION);
            output.push_str(&match style {
                Style::Localized => number::localized_scientific(number, precision),
                Style::Plain if number.is_finite() => number::scientific(number, precision),
                Style::Plain => plain_double(number),
            });
        }
        _ => return Err(refuse(verb, style, value)),
    }
    Ok(())
}

fn sign(number: i64) -> &'static str {
    if number < 0 { "-" } else { "" }
}

/// The number that a fixed-point or scientific clause writes.
fn number(value: &Value<'_>, style: Style) -> Option<f64> {
    match (value, style) {
        (Value::Double(number), _) => Some(*number),
        (Value::String(text), Style::Localized) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        (Value::Int(number), Style::Plain) => Some(*number as f64),
        (Value::Uint(number), Style::Plain) => Some(*number as f64),
        _ => None,
    }
}

fn plain_double(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        number.to_string()
    }
}

fn write_hexadecimal(output: &mut String, value: &Value<'_>, upper: bool) -> Option<()> {
    let octets = match value {
        Value::Int(number) => {
            let (sign, number) = (sign(*number), number.unsigned_abs());
            _ = if upper { write!(output, "{sign}{number:X}") } else { write!(output, "{sign}{number:x}") };
            return Some(());
        }
        Value::Uint(number) => {
            _ = if upper { write!(output, "{number:X}") } else { write!(output, "{number:x}") };
            return Some(());
        }
        Value::String(text) => text.as_bytes(),
        Value::Bytes(octets) => octets.as_slice(),
        _ => return None,
    };
    for octet in octets {
        _ = if upper { write!(output, "{octet:02X}") } else { write!(output, "{octet:02x}") };
    }
    Some(())
}

/// A value as `%s` writes it.
fn write_value(output: &mut String, value: &Value<'_>, style: Style) -> Result<(), Refusal> {
    match (value, style) {
        (Value::List(list), _) => write_list(output, list, style),
        (Value::Map(map), _) => {
            let mut entries = Vec::with_capacity(map.len());
            let mut length = 0_usize;
            for (key, value) in map.entries() {
                let (key, value) = (key_text(&key, style)?, element_text(&value, style)?);
                length = length.saturating_add(key.len()).saturating_add(value.len());
                check_text(length).map_err(Refusal::Value)?;
                entries.push((key, value));
            }
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            let separator = if style == Style::Localized { ":" } else { ": " };
            output.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                _ = write!(output, "{}{key}{separator}{value}", if index > 0 { ", " } else { "" });
            }
            output.push('}');
            Ok(())
        }
        (Value::Null, _) => {
            output.push_str("null");
            Ok(())
        }
        (Value::Type(of), _) => {
            output.push_str(of.name());
            Ok(())
        }
        (Value::Double(number), Style::Plain) => {
            output.push_str(&plain_double(*number));
            Ok(())
        }
        (Value::Timestamp(at), Style::Plain) => {
            output.push_str(&at.with_offset(0).rfc3339());
            Ok(())
        }
        (Value::Bytes(octets), Style::Plain) => {
            // Text of ours is always valid; the reference copies any octets.
            output.push_str(&String::from_utf8_lossy(octets));
            Ok(())
        }
        (
            Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_),
            _,
        ) => match value.to_text() {
            Ok(Value::String(text)) => {
                output.push_str(&text);
                Ok(())
            }
            Ok(_) => Err(refuse(Verb::String, style, value)),
            Err(error) => {
                let quoted = go_quote(error.message());
                Err(Refusal::Other(format!("could not convert argument {quoted} to string")))
            }
        },
        _ => Err(refuse(Verb::String, style, value)),
    }
}

fn write_list(output: &mut String, list: &List<'_>, style: Style) -> Result<(), Refusal> {
    output.push('[');
    for (index, element) in list.iter().enumerate() {
        if index > 0 {
            output.push_str(", ");
        }
        output.push_str(&element_text(&element, style)?);
        check_text(output.len()).map_err(Refusal::Value)?;
    }
    output.push(']');
    Ok(())
}

fn key_text(key: &Value<'_>, style: Style) -> Result<String, Refusal> {
    match (key, style) {
        (_, Style::Plain) | (Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_), _) => {
            element_text(key, style)
        }
        _ => Err(Refusal::Other(format!("no formatting function for map key of type {}", key.type_name()))),
    }
}

/// A value inside a list or map.
fn element_text(value: &Value<'_>, style: Style) -> Result<String, Refusal> {
    let mut text = String::new();
    match (value, style) {
        (_, Style::Plain) => write_value(&mut text, value, style)?,
        (Value::Double(number), _) => {
            text = number::fixed(*number, DEFAULT_PRECISION);
            if !number.is_finite() {
                text = go_quote(&text);
            }
        }
        (Value::Timestamp(at), _) => text = format!("timestamp({})", go_quote(&at.rfc3339())),
        (Value::Duration(span), _) => text = format!("duration({})", go_quote(&span.seconds_text())),
        (Value::String(string), _) => text = go_quote(string),
        (Value::Bytes(_), _) => {
            write_value(&mut text, value, style)?;
            text = format!("b{}", go_quote(&text));
        }
        (
            Value::Null
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::List(_)
            | Value::Map(_)
            | Value::Type(_),
            _,
        ) => write_value(&mut text, value, style)?,
        (Value::Error(error), _) => return Err(Refusal::Value(error.clone())),
        (Value::Unknown(_), _) => return Err(Refusal::Value(EvalError::undetermined())),
        _ => return Err(Refusal::Other(format!("no formatting function for {}", value.type_name()))),
    }
    Ok(text)
}
