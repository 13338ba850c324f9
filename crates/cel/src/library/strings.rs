//! Strings: characters, search, replacement, splitting, joining, formatting.
//!
//! Positions count code points. Prices are Kubernetes': they go by the function's name, whichever overload is called.
//!
//! Follows cel-go's `ext.Strings`, versions 0 to 4, with Kubernetes' `library/cost.go`.

mod format;
mod format_check;
mod number;
mod price;

use std::sync::Arc;

use super::{int, list, native, since, text, unexpected};
use crate::checker::{CustomValidator, TypedAst, Validator};
use crate::cost::Price;
use crate::env::{Library, LibraryVersion, Overload, PlanTime};
use crate::source::Issues;
use crate::value::bounds::check_text;
use crate::value::{EvalError, Str, Value};

/// Functions over strings. Version 1 brought `format` and `strings.quote`, 3 `reverse`, 4 the plainer `format`.
pub fn strings(version: u32) -> Library {
    Library {
        name: "cel.lib.ext.strings",
        version: LibraryVersion(version),
        overloads: OVERLOADS,
        singletons: &[],
        types: Vec::new(),
        macros: &[],
        partial: &[],
        validators: match version {
            0 => &[],
            1..4 => LOCALIZED_FORMAT,
            _ => PLAIN_FORMAT,
        },
    }
}

const LOCALIZED_FORMAT: &[Validator] = &[format_validator(|typed, issues| format_check::report(typed, issues, 1))];

const PLAIN_FORMAT: &[Validator] = &[format_validator(|typed, issues| format_check::report(typed, issues, 4))];

const fn format_validator(validate: fn(&TypedAst, &mut Issues)) -> Validator {
    let name = "cel.validator.string_format";
    Validator::Custom(CustomValidator { name, validate, mixed_literals_within: &["format"] })
}

static OVERLOADS: &[Overload] = &[
    native("string_char_at_int", "string.charAt(int) -> string", Price::ONE, |operands| {
        char_at(text(operands, 0)?, int(operands, 1)?)
    }),
    native("string_index_of_string", "string.indexOf(string) -> int", price::SEARCH, |operands| {
        index_of(text(operands, 0)?, text(operands, 1)?, 0)
    }),
    native("string_index_of_string_int", "string.indexOf(string, int) -> int", price::SEARCH, |operands| {
        index_of(text(operands, 0)?, text(operands, 1)?, int(operands, 2)?)
    }),
    native("string_last_index_of_string", "string.lastIndexOf(string) -> int", price::SEARCH, |operands| {
        last_index_of(text(operands, 0)?, text(operands, 1)?, None)
    }),
    native("string_last_index_of_string_int", "string.lastIndexOf(string, int) -> int", price::SEARCH, |operands| {
        last_index_of(text(operands, 0)?, text(operands, 1)?, Some(int(operands, 2)?))
    }),
    native("string_lower_ascii", "string.lowerAscii() -> string", price::COPY, |operands| {
        change_case(operands, |byte| byte.is_ascii_uppercase(), str::to_ascii_lowercase)
    }),
    native("string_replace_string_string", "string.replace(string, string) -> string", price::REPLACE, |operands| {
        replace(operands, -1)
    }),
    native(
        "string_replace_string_string_int",
        "string.replace(string, string, int) -> string",
        price::REPLACE,
        |operands| replace(operands, int(operands, 3)?),
    ),
    native("string_split_string", "string.split(string) -> list(string)", price::SPLIT, |operands| {
        Ok(split(text(operands, 0)?, text(operands, 1)?, -1))
    }),
    native("string_split_string_int", "string.split(string, int) -> list(string)", price::SPLIT, |operands| {
        Ok(split(text(operands, 0)?, text(operands, 1)?, int(operands, 2)?))
    }),
    native("string_substring_int", "string.substring(int) -> string", price::COPY, |operands| {
        substring(operands, int(operands, 1)?, None)
    }),
    native("string_substring_int_int", "string.substring(int, int) -> string", price::COPY, |operands| {
        substring(operands, int(operands, 1)?, Some(int(operands, 2)?))
    }),
    native("string_trim", "string.trim() -> string", price::COPY, trim),
    native("string_upper_ascii", "string.upperAscii() -> string", price::COPY, |operands| {
        change_case(operands, |byte| byte.is_ascii_lowercase(), str::to_ascii_uppercase)
    }),
    since(
        1,
        Overload {
            plan_time: PlanTime::InTurn,
            ..native("string_format", "string.format(list(dyn)) -> string", price::FORMAT, |operands| {
                format::format(text(operands, 0)?, list(operands, 1)?, format::Style::Localized).map(Value::string)
            })
        },
    ),
    since(
        4,
        Overload {
            plan_time: PlanTime::InTurn,
            ..native("string_format", "string.format(list(dyn)) -> string", price::FORMAT, |operands| {
                format::format(text(operands, 0)?, list(operands, 1)?, format::Style::Plain).map(Value::string)
            })
        },
    ),
    since(
        1,
        native("strings_quote", ":strings.quote(string) -> string", price::QUOTE, |operands| {
            Ok(Value::string(quote(text(operands, 0)?)))
        }),
    ),
    native("list_join", "list(string).join() -> string", price::JOIN, |operands| join(operands, "")),
    native("list_join_string", "list(string).join(string) -> string", price::JOIN, |operands| {
        join(operands, text(operands, 1)?)
    }),
    since(
        3,
        native("string_reverse", "string.reverse() -> string", Price::ONE, |operands| {
            Ok(Value::string(text(operands, 0)?.chars().rev().collect::<String>()))
        }),
    ),
];

fn out_of_range(index: i64) -> EvalError {
    EvalError::other(format!("index out of range: {index}"))
}

/// The byte at which a code point begins; the end of the text counts as one more.
fn byte_of(text: &str, position: usize) -> Option<usize> {
    if text.is_ascii() {
        return (position <= text.len()).then_some(position);
    }
    text.char_indices().map(|(byte, _)| byte).chain([text.len()]).nth(position)
}

fn code_points(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

fn position_value<'v>(position: usize) -> Value<'v> {
    Value::Int(i64::try_from(position).unwrap_or(i64::MAX))
}

/// The part of a string operand: borrowed where the operand is.
fn part<'v>(operand: Option<&Value<'v>>, range: std::ops::Range<usize>) -> Result<Value<'v>, EvalError> {
    match operand {
        Some(Value::String(Str::Borrowed(text))) => text.get(range).map(Value::str).ok_or_else(unexpected),
        Some(Value::String(Str::Shared(text))) if range == (0..text.len()) => {
            Ok(Value::String(Str::Shared(Arc::clone(text))))
        }
        Some(Value::String(Str::Shared(text))) => text.get(range).map(Value::string).ok_or_else(unexpected),
        _ => Err(unexpected()),
    }
}

fn char_at<'v>(text: &str, index: i64) -> Result<Value<'v>, EvalError> {
    let start =
        usize::try_from(index).ok().and_then(|index| byte_of(text, index)).ok_or_else(|| out_of_range(index))?;
    let found = text.get(start..).and_then(|rest| rest.chars().next());
    Ok(Value::string(found.map(String::from).unwrap_or_default()))
}

fn index_of<'v>(text: &str, part: &str, offset: i64) -> Result<Value<'v>, EvalError> {
    let offset = usize::try_from(offset).map_err(|_| out_of_range(offset))?;
    if part.is_empty() {
        return Ok(position_value(offset.min(code_points(text))));
    }
    let found = byte_of(text, offset).and_then(|start| {
        let rest = text.get(start..)?;
        let byte = rest.find(part)?;
        Some(offset.saturating_add(code_points(rest.get(..byte)?)))
    });
    Ok(found.map_or(Value::Int(-1), position_value))
}

/// The last place at or before an offset; without one, anywhere.
fn last_index_of<'v>(text: &str, part: &str, offset: Option<i64>) -> Result<Value<'v>, EvalError> {
    let length = code_points(text);
    let offset = match offset {
        Some(offset) => Some(usize::try_from(offset).map_err(|_| out_of_range(offset))?),
        None => None,
    };
    if part.is_empty() {
        return Ok(position_value(offset.map_or(length, |offset| offset.min(length))));
    }
    let found = match offset {
        None => text.rfind(part),
        Some(offset) if offset >= length => None,
        Some(offset) => byte_of(text, offset).and_then(|start| {
            let end = start.saturating_add(part.len()).min(text.len());
            text.as_bytes().get(..end)?.windows(part.len()).rposition(|window| window == part.as_bytes())
        }),
    };
    let position = found.and_then(|byte| text.get(..byte)).map(code_points);
    Ok(position.map_or(Value::Int(-1), position_value))
}

/// Returns the same value if nothing changes.
fn change_case<'v>(
    operands: &[Value<'v>],
    changes: fn(u8) -> bool,
    change: fn(&str) -> String,
) -> Result<Value<'v>, EvalError> {
    match operands.first() {
        Some(Value::String(text)) if !text.bytes().any(changes) => Ok(Value::String(text.clone())),
        Some(Value::String(text)) => Ok(Value::string(change(text))),
        _ => Err(unexpected()),
    }
}

/// Replaces the first `limit` occurrences, all if it is negative. An empty part is found before each code point and at the end.
fn replace<'v>(operands: &[Value<'v>], limit: i64) -> Result<Value<'v>, EvalError> {
    let (text, part, replacement) = (text(operands, 0)?, text(operands, 1)?, text(operands, 2)?);
    let limit = usize::try_from(limit).ok();
    if replacement.len() > part.len() {
        let count = text.matches(part).take(limit.unwrap_or(usize::MAX)).count();
        check_text(count.saturating_mul(replacement.len()).saturating_add(text.len()))?;
    }
    let replaced = match limit {
        Some(limit) => text.replacen(part, replacement, limit),
        None => text.replace(part, replacement),
    };
    Ok(Value::string(replaced))
}

/// At most `limit` parts, all if it is negative. An empty separator separates all code points.
fn split<'v>(text: &str, separator: &str, limit: i64) -> Value<'v> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Value<'v>> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        let starts: Vec<usize> = text.char_indices().map(|(start, _)| start).take(limit).collect();
        let ends = starts.iter().copied().skip(1).chain([text.len()]);
        starts.iter().zip(ends).map(|(start, end)| Value::string(text.get(*start..end).unwrap_or(""))).collect()
    } else {
        text.splitn(limit, separator).map(Value::string).collect()
    };
    Value::list(parts)
}

fn substring<'v>(operands: &[Value<'v>], start: i64, end: Option<i64>) -> Result<Value<'v>, EvalError> {
    let text = text(operands, 0)?;
    let byte = |position: i64| {
        let index = usize::try_from(position).ok().and_then(|position| byte_of(text, position));
        index.ok_or_else(|| out_of_range(position))
    };
    match end {
        Some(end) if start > end => {
            Err(EvalError::other(format!("invalid substring range. start: {start}, end: {end}")))
        }
        Some(end) => {
            let start = byte(start)?;
            part(operands.first(), start..byte(end)?)
        }
        None => part(operands.first(), byte(start)?..text.len()),
    }
}

fn trim<'v>(operands: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let text = text(operands, 0)?;
    let start = text.len().saturating_sub(text.trim_start().len());
    let end = text.trim_end().len().max(start);
    part(operands.first(), start..end)
}

/// A literal of CEL for the text.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn join<'v>(operands: &[Value<'v>], separator: &str) -> Result<Value<'v>, EvalError> {
    let mut joined = String::new();
    for (index, element) in list(operands, 0)?.iter().enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        match element {
            Value::String(text) => {
                check_text(joined.len().saturating_add(text.len()))?;
                joined.push_str(&text);
            }
            Value::Error(error) => return Err(error),
            Value::Unknown(_) => return Err(EvalError::undetermined()),
            other => return Err(EvalError::other(format!("join: invalid input: {other}"))),
        }
    }
    Ok(Value::string(joined))
}

#[cfg(test)]
mod tests;
