//! Whether a value fits a schema, for defaults: types, bounds, patterns, enumerations, required fields.
//!
//! Texts are those of `kube-openapi`'s validator as apiextensions shows them. Logical parts (`allOf` and the like),
//! formats and rules are left to the validation of custom resources.

use api::field::{Errors, Path};
use api::json::{Value, to_string};
use cel::regex::Regex;

use crate::document::Read;

/// Adds what is wrong with a value.
pub(super) fn validate(value: &Value, schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    if value.is_null() && schema.flag("nullable") {
        return;
    }
    let expected = if schema.flag("x-kubernetes-int-or-string") { "integer,string" } else { schema.text("type") };
    let found = type_name(value);
    let fits =
        expected.is_empty() || expected.split(',').any(|it| it == found || (it == "number" && found == "integer"));
    if !fits {
        let detail = format!("{at} in body must be of type {expected}: \"{found}\"");
        errors.type_invalid(*at, found, detail);
        return;
    }
    match value {
        Value::String(text) => validate_text(text, schema, at, errors),
        Value::Int(_) | Value::Float(_) => validate_number(value, schema, at, errors),
        Value::Array(items) => {
            validate_count(items.len(), "Items", "items", schema, at, errors);
            for (index, item) in items.iter().enumerate() {
                if let Some(schema) = schema.optional("items") {
                    validate(item, schema, &at.index(index), errors);
                }
            }
        }
        Value::Object(fields) => {
            validate_count(fields.len(), "Properties", "properties", schema, at, errors);
            for (name, value) in fields.iter() {
                let additional = schema.optional("additionalProperties").filter(|it| it.as_object().is_some());
                if let Some(schema) = schema.map("properties").get(name).or(additional) {
                    validate(value, schema, &at.child(name), errors);
                }
            }
            for name in schema.texts("required").filter(|name| !fields.contains_key(name)) {
                let has_default = schema.map("properties").get(name).is_some_and(|it| it.has("default"));
                if !has_default {
                    errors.required(at.child(name), "");
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    validate_enum(value, schema, at, errors);
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "integer",
        Value::Float(number) if number.get().fract() == 0.0 => "integer",
        Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn validate_text(text: &str, schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(max) = schema.optional_int("maxLength").filter(|max| length > *max) {
        errors.too_long(*at, usize::try_from(max).unwrap_or_default());
    }
    if let Some(min) = schema.optional_int("minLength").filter(|min| length < *min) {
        errors.invalid(*at, text, format!("{at} in body should be at least {min} chars long"));
    }
    let pattern = schema.text("pattern");
    let matches = |pattern: &str| Regex::new(pattern).is_ok_and(|it| it.is_match(text).unwrap_or(false));
    if !pattern.is_empty() && !matches(pattern) {
        errors.invalid(*at, text, format!("{at} in body should match '{pattern}'"));
    }
}

fn validate_number(value: &Value, schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let Some(number) = value.as_f64() else { return };
    let bound = |name: &str| schema.optional(name).and_then(|it| Some((it.as_f64()?, to_string(it))));
    if let Some((factor, shown)) = bound("multipleOf")
        && factor > 0.0
        && (number / factor).fract() != 0.0
    {
        errors.invalid(*at, value.clone(), format!("{at} in body should be a multiple of {shown}"));
    }
    if let Some((max, shown)) = bound("maximum") {
        if schema.flag("exclusiveMaximum") {
            if number >= max {
                errors.invalid(*at, value.clone(), format!("{at} in body should be less than {shown}"));
            }
        } else if number > max {
            errors.invalid(*at, value.clone(), format!("{at} in body should be less than or equal to {shown}"));
        }
    }
    if let Some((min, shown)) = bound("minimum") {
        if schema.flag("exclusiveMinimum") {
            if number <= min {
                errors.invalid(*at, value.clone(), format!("{at} in body should be greater than {shown}"));
            }
        } else if number < min {
            errors.invalid(*at, value.clone(), format!("{at} in body should be greater than or equal to {shown}"));
        }
    }
}

fn validate_count(count: usize, suffix: &str, word: &str, schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let number = i64::try_from(count).unwrap_or(i64::MAX);
    if let Some(min) = schema.optional_int(&format!("min{suffix}")).filter(|min| number < *min) {
        errors.invalid(*at, number, format!("{at} in body should have at least {min} {word}"));
    }
    if let Some(max) = schema.optional_int(&format!("max{suffix}")).filter(|max| number > *max) {
        errors.too_many(*at, Some(count), usize::try_from(max).unwrap_or_default());
    }
}

fn validate_enum(value: &Value, schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let allowed = schema.list("enum");
    if allowed.is_empty() || allowed.contains(value) {
        return;
    }
    let shown = |it: &Value| it.as_str().map_or_else(|| to_string(it), str::to_owned);
    let texts: Vec<String> = allowed.iter().map(shown).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    errors.not_supported(*at, value.clone(), &texts);
}

#[cfg(test)]
mod tests {
    use api::json::parse;

    use super::*;

    #[track_caller]
    fn check(value: &str, schema: &str, expected: &[&str]) {
        let (value, schema) = (parse(value.as_bytes()).unwrap(), parse(schema.as_bytes()).unwrap());
        let mut errors = Errors::new();
        validate(&value, &schema, &Path::new("f"), &mut errors);
        let found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn texts_are_those_of_custom_resources() {
        check("1", r#"{"type":"integer"}"#, &[]);
        check("2", r#"{"type":"number"}"#, &[]);
        check("null", r#"{"type":"string","nullable":true}"#, &[]);
        check(
            r#""x""#,
            r#"{"type":"integer"}"#,
            &[r#"f: Invalid value: "string": f in body must be of type integer: "string""#],
        );
        check(
            "true",
            r#"{"x-kubernetes-int-or-string":true}"#,
            &[r#"f: Invalid value: "boolean": f in body must be of type integer,string: "boolean""#],
        );
        check(r#""abc""#, r#"{"type":"string","maxLength":2}"#, &["f: Too long: may not be more than 2 bytes"]);
        check(
            r#""""#,
            r#"{"type":"string","minLength":2}"#,
            &[r#"f: Invalid value: "": f in body should be at least 2 chars long"#],
        );
        check(
            r#""b""#,
            r#"{"type":"string","pattern":"a+"}"#,
            &[r#"f: Invalid value: "b": f in body should match 'a+'"#],
        );
        check(
            "4",
            r#"{"type":"integer","minimum":5}"#,
            &["f: Invalid value: 4: f in body should be greater than or equal to 5"],
        );
        check(
            "5",
            r#"{"type":"integer","minimum":5,"exclusiveMinimum":true}"#,
            &["f: Invalid value: 5: f in body should be greater than 5"],
        );
        check("[1,2]", r#"{"type":"array","maxItems":1}"#, &["f: Too many: 2: must have at most 1 item"]);
        check(
            r#""c""#,
            r#"{"type":"string","enum":["a","b"]}"#,
            &[r#"f: Unsupported value: "c": supported values: "a", "b""#],
        );
        check("{}", r#"{"type":"object","required":["a"]}"#, &["f.a: Required value"]);
    }
}
