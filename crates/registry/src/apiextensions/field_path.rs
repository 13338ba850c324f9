//! Paths to fields of a schema: of rules, and of what can be selected by field selectors.
//!
//! Follows `ValidFieldPath` of apiextensions' CEL package.

use api::field::{Errors, Path};
use api::json::Value;

use crate::seen::SeenKeys;

/// The names on the way, and the schema at the end.
pub(super) fn resolve<'s>(
    path: &str,
    schema: &'s Value,
    allows_brackets: bool,
) -> Result<(Vec<String>, &'s Value), String> {
    let tokens = tokens(path);
    let mut names = Vec::new();
    let mut schema = schema;
    let mut rest = tokens.iter();
    while let Some(token) = rest.next() {
        let name = match *token {
            "." => rest.next().ok_or("unexpected end of JSON path")?.to_string(),
            "[" if !allows_brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let token = rest.next().ok_or("unexpected end of JSON path")?;
                let quoted = token.strip_prefix('\'').and_then(|it| it.strip_suffix('\''));
                let quoted = quoted.filter(|_| token.len() >= 2);
                quoted.ok_or_else(|| format!("expected single quoted string but got {token}"))?.replace("\\'", "'")
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let bad = || "does not refer to a valid field".to_owned();
        schema = if schema.has("properties") {
            schema.map("properties").get(&name).ok_or_else(bad)?
        } else {
            schema.optional("additionalProperties").ok_or_else(bad)?
        };
        names.push(name);
        if *token == "[" {
            let end = rest.next().ok_or("unexpected end of JSON path")?;
            if *end != "]" {
                return Err(format!("expected ] but got {end}"));
            }
        }
    }
    Ok((names, schema))
}

/// The path as errors show it: fields behind points, entries of maps in brackets.
pub(super) fn normalize(path: &str, schema: &Value) -> Option<String> {
    let (names, _) = resolve(path, schema, true).ok()?;
    let mut schema = schema;
    let mut text = String::new();
    for name in names {
        if schema.has("properties") {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(&name);
            schema = schema.field("properties").field(&name);
        } else {
            text.push_str(&format!("[{name}]"));
            schema = schema.field("additionalProperties");
        }
    }
    Some(text)
}

/// Dots, brackets, quoted texts and what stands between them.
fn tokens(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut previous = first;
                let end = rest.char_indices().skip(1).find(|(_, c)| {
                    let is_end = *c == '\'' && previous != '\\';
                    previous = *c;
                    is_end
                });
                end.map_or(rest.len(), |(index, _)| index.saturating_add(1))
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, remainder) = rest.split_at_checked(length).unwrap_or((rest, ""));
        tokens.push(token);
        rest = remainder;
    }
    tokens
}

/// Fields by which objects can be selected.
pub(super) fn validate_selectable(fields: &[Value], schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, field) in fields.iter().enumerate() {
        let here = at.index(index);
        let here = here.child("jsonPath");
        let path = field.text("jsonPath");
        if path.is_empty() {
            errors.required(here, "");
            continue;
        }
        let (names, found) = match resolve(path, schema, false) {
            Ok(found) => found,
            Err(complaint) => {
                errors.invalid(here, path, format!("is an invalid path: {complaint}"));
                continue;
            }
        };
        if names.first().is_some_and(|it| it == "metadata") {
            errors.invalid(here, path, "must not point to fields in metadata");
        }
        if !matches!(found.text("type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
            errors.invalid(here, path, detail);
        }
        if seen.contains(&names) {
            errors.duplicate(here, path);
        } else {
            seen.insert(names);
        }
    }
    if seen.len() > 8 {
        errors.too_many(*at, Some(seen.len()), 8);
    }
}
