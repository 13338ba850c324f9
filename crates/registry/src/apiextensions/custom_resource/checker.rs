//! Whether a value fits a schema: types, bounds, patterns, formats, enumerations, required fields, and logical parts.
//!
//! Follows the validator of `kube-openapi`, whose texts users see, and the ratcheting around it: what was wrong with an
//! unchanged part of an object is not a reason to refuse an update. Rules, list types and embedded objects are elsewhere.

use std::collections::{HashMap, HashSet};

use api::field::{BadValue, Error, ErrorType, Errors, Path};
use api::go_text::{format_float, quote};
use api::json::{Value, to_string};
use api::structural_schema::{Schema, SchemaOrBool};
use cel::regex::Regex;

use super::correlation::CorrelatedValue;
use super::formats::Format;
use super::numbers;

/// The patterns of a schema, compiled; none where one does not compile.
pub(super) type Patterns = HashMap<String, Option<Regex>>;

/// Compiles the patterns of a schema.
pub(super) fn patterns_of(schema: &Schema) -> Patterns {
    let mut patterns = Patterns::new();
    collect_patterns(schema, &mut patterns);
    patterns
}

fn collect_patterns(schema: &Schema, patterns: &mut Patterns) {
    if !schema.pattern.is_empty() && !patterns.contains_key(&schema.pattern) {
        patterns.insert(schema.pattern.clone(), Regex::new(&schema.pattern).ok());
    }
    let logical = schema.all_of.iter().chain(&schema.any_of).chain(&schema.one_of).chain(schema.not.as_deref());
    let inner = schema.properties.values().chain(schema.items_schema()).chain(schema.additional_properties_schema());
    for schema in logical.chain(inner) {
        collect_patterns(schema, patterns);
    }
}

/// The name of a value, as the validator's texts have it: `spec.list[0].field`, also for entries of maps.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    parent: Option<&'p Place<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Root,
    Field(&'p str),
    Index(usize),
}

impl Place<'_> {
    pub(super) const ROOT: Place<'static> = Place { parent: None, step: Step::Root };

    fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parent = self.parent.filter(|parent| !parent.is_root());
        if let Some(parent) = parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) if parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// One complaint.
struct Finding {
    error_type: ErrorType,
    /// The name of the value; none where the complaint is about no value.
    name: Option<String>,
    bad_value: BadValue,
    detail: String,
    /// Text that identifies an error.
    text: String,
}

/// Checks values of one schema.
pub(super) struct Checker<'c> {
    patterns: &'c Patterns,
    findings: Vec<Finding>,
}

/// Adds what is wrong with a value. `old` is what it was before, with its own schema.
pub(super) fn check(
    value: &Value,
    schema: &Schema,
    old: Option<CorrelatedValue<'_>>,
    patterns: &Patterns,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let mut checker = Checker { patterns, findings: Vec::new() };
    checker.check(value, schema, &Place::ROOT, old, true);
    for finding in checker.findings {
        let field = match finding.name.as_deref() {
            None | Some("") => at.to_string(),
            Some(name) => at.child(name).to_string(),
        };
        let Finding { error_type, bad_value, detail, .. } = finding;
        errors.push(Error { error_type, field, bad_value, detail });
    }
}

/// The types that a schema allows, as texts have them.
fn types(schema: &Schema) -> &[&'static str] {
    if schema.x_int_or_string {
        return &["integer", "string"];
    }
    match schema.type_name.as_str() {
        "object" => &["object"],
        "array" => &["array"],
        "string" => &["string"],
        "integer" => &["integer"],
        "number" => &["number"],
        "boolean" => &["boolean"],
        _ => &[],
    }
}

/// The format, if values of the type have it.
pub(super) fn format(schema: &Schema) -> &str {
    let is_known = match (schema.format.as_str(), schema.type_name.as_str()) {
        ("", _) => false,
        ("int32" | "int64", "integer") | ("float" | "double", "number") => !schema.x_int_or_string,
        (format, "" | "string") => Format::find(format).is_some(),
        _ => false,
    };
    if is_known { &schema.format } else { "" }
}

/// The JSON type of a value, and the format that Go's type of it has.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Int(_) => ("integer", "int64"),
        Value::Float(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

impl Checker<'_> {
    fn add(&mut self, error_type: ErrorType, place: &Place<'_>, bad_value: impl Into<BadValue>, detail: String) {
        let name = place.to_string();
        let text = detail.clone();
        self.findings.push(Finding { error_type, name: Some(name), bad_value: bad_value.into(), detail, text });
    }

    /// A complaint that names no field.
    fn add_nameless(&mut self, text: String) {
        let detail = text.clone();
        self.findings.push(Finding { error_type: ErrorType::Invalid, name: None, bad_value: "".into(), detail, text });
    }

    /// Checks a value; gives back how many checks went well, by which the best of several schemas is found.
    ///
    /// `ratchets` is false where the schema only adds to another one: then the other decides what is forgiven.
    fn check(
        &mut self,
        value: &Value,
        schema: &Schema,
        place: &Place<'_>,
        old: Option<CorrelatedValue<'_>>,
        ratchets: bool,
    ) -> u64 {
        let before = self.findings.len();
        let matches = self.check_all(value, schema, place, old);
        let has_parts = !(schema.all_of.is_empty() && schema.any_of.is_empty() && schema.one_of.is_empty());
        if has_parts {
            self.drop_repeated(before);
        }
        if ratchets && self.findings.len() > before && old.is_some_and(|old| old.is_unchanged()) {
            self.findings.truncate(before);
        }
        matches
    }

    /// Removes repeated findings: several parts of a schema may report the same error.
    fn drop_repeated(&mut self, from: usize) {
        if self.findings.len().saturating_sub(from) < 2 {
            return;
        }
        let mut seen = HashSet::new();
        let kept: Vec<Finding> = self.findings.drain(from.min(self.findings.len())..).collect();
        self.findings.extend(kept.into_iter().filter(|it| seen.insert((it.name.clone(), it.text.clone()))));
    }

    fn check_all(
        &mut self,
        value: &Value,
        schema: &Schema,
        place: &Place<'_>,
        old: Option<CorrelatedValue<'_>>,
    ) -> u64 {
        let has_type = !types(schema).is_empty() || !format(schema).is_empty();
        if value.is_null() {
            let fits = self.check_type(value, schema, place);
            self.check_enum(value, schema, place);
            return u64::from(fits);
        }
        let mut matches = 1_u64;
        if has_type {
            let fits = self.check_type(value, schema, place);
            matches = matches.saturating_add(1).saturating_add(u64::from(fits));
        }
        let inner = self.check_parts(value, schema, place, old);
        matches = matches.saturating_add(2).saturating_add(inner);
        match value {
            Value::String(text) => {
                self.check_text(text, schema, place);
                matches = matches.saturating_add(1);
                let name = format(schema);
                if let Some(format) = Format::find(name) {
                    matches = matches.saturating_add(1);
                    if !format.accepts(text) {
                        let detail = format!("{place} in body must be of type {name}: {}", quote(text));
                        self.add(ErrorType::TypeInvalid, place, text.as_str(), detail);
                    }
                }
            }
            Value::Int(_) | Value::Float(_) => {
                self.check_number(value, schema, place);
                matches = matches.saturating_add(2);
            }
            Value::Array(items) => {
                let inner = self.check_items(items, schema, place, old);
                matches = matches.saturating_add(2).saturating_add(inner);
            }
            _ => {}
        }
        self.check_enum(value, schema, place);
        matches = matches.saturating_add(1);
        if let Value::Object(fields) = value {
            let inner = self.check_fields(fields, schema, place, old);
            matches = matches.saturating_add(1).saturating_add(inner);
        }
        matches
    }

    fn check_type(&mut self, value: &Value, schema: &Schema, place: &Place<'_>) -> bool {
        let (expected, expected_format) = (types(schema), format(schema));
        let (found, found_format) = type_of(value);
        let mut refuse = |expected: &str, found: &str| {
            let detail = format!("{place} in body must be of type {expected}: {}", quote(found));
            self.add(ErrorType::TypeInvalid, place, found, detail);
            false
        };
        if value.is_null() {
            return expected.is_empty() || schema.nullable || refuse(&expected.join(","), found);
        }
        let contains = |name: &str| expected.contains(&name);
        let fits = contains(found)
            || matches!(value, Value::Float(number) if contains("integer") && numbers::is_integer(number.get()))
            || matches!(value, Value::Int(_) if contains("number"));
        let is_text_or_list = matches!(value, Value::String(_) | Value::Array(_));
        if !is_text_or_list && !expected_format.is_empty() && !fits && found_format != expected_format {
            return refuse(expected_format, found_format);
        }
        if !(contains("number") || contains("integer") || expected_format.is_empty()) && is_text_or_list {
            return true;
        }
        fits || refuse(&expected.join(","), found)
    }

    fn check_parts(
        &mut self,
        value: &Value,
        schema: &Schema,
        place: &Place<'_>,
        old: Option<CorrelatedValue<'_>>,
    ) -> u64 {
        let mut matches = 0_u64;
        let name = || quote(&place.to_string());
        if !schema.any_of.is_empty() {
            let (valid, best) = self.check_alternatives(&schema.any_of, value, place, old, true);
            if valid == 0 {
                self.add_nameless(format!("{} must validate at least one schema (anyOf)", name()));
            }
            matches = matches.saturating_add(self.merge(best));
        }
        if !schema.one_of.is_empty() {
            let (valid, best) = self.check_alternatives(&schema.one_of, value, place, old, false);
            if valid != 1 {
                let found = if valid == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {valid} valid alternatives")
                };
                self.add_nameless(format!("{} must validate one and only one schema (oneOf). {found}", name()));
            }
            matches = matches.saturating_add(self.merge(best));
        }
        if !schema.all_of.is_empty() {
            let mut valid = 0_usize;
            for part in &schema.all_of {
                let before = self.findings.len();
                matches = matches.saturating_add(self.check(value, part, place, old, false));
                valid = valid.saturating_add(usize::from(self.findings.len() == before));
            }
            if valid != schema.all_of.len() {
                let more = if valid == 0 { ". None validated" } else { "" };
                self.add_nameless(format!("{} must validate all the schemas (allOf){more}", name()));
            }
        }
        if let Some(not) = &schema.not {
            let before = self.findings.len();
            self.check(value, not, place, old, false);
            let is_valid = self.findings.len() == before;
            self.findings.truncate(before);
            if is_valid {
                self.add_nameless(format!("{} must not validate the schema (not)", name()));
            }
        }
        matches
    }

    /// Returns the number of matching schemas, and the result of the best one: the first match, else the one
    /// that got furthest.
    fn check_alternatives(
        &mut self,
        schemas: &[Schema],
        value: &Value,
        place: &Place<'_>,
        old: Option<CorrelatedValue<'_>>,
        one_is_enough: bool,
    ) -> (usize, Option<(Vec<Finding>, u64)>) {
        let before = self.findings.len();
        let mut valid = 0_usize;
        let mut best: Option<(Vec<Finding>, u64)> = None;
        for schema in schemas {
            let matches = self.check(value, schema, place, old, false);
            let found: Vec<Finding> = self.findings.drain(before.min(self.findings.len())..).collect();
            if found.is_empty() {
                valid = valid.saturating_add(1);
                if valid == 1 {
                    best = Some((found, matches));
                }
                if one_is_enough {
                    break;
                }
            } else if valid == 0 && best.as_ref().is_none_or(|(_, furthest)| matches > *furthest) {
                best = Some((found, matches));
            }
        }
        // Several matching alternatives give no specific error.
        if valid > 1 {
            best = None;
        }
        (valid, best)
    }

    fn merge(&mut self, best: Option<(Vec<Finding>, u64)>) -> u64 {
        let Some((findings, matches)) = best else { return 0 };
        self.findings.extend(findings);
        matches
    }

    fn check_text(&mut self, text: &str, schema: &Schema, place: &Place<'_>) {
        let bounds = (schema.max_length, schema.min_length);
        if bounds != (None, None) {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if let Some(max) = bounds.0.filter(|max| length > *max) {
                let plural = if max == 1 { "" } else { "s" };
                let detail = format!("may not be more than {max} byte{plural}");
                self.add(ErrorType::TooLong, place, "<value omitted>", detail);
                return;
            }
            if let Some(min) = bounds.1.filter(|min| length < *min) {
                let detail = format!("{place} in body should be at least {min} chars long");
                self.add(ErrorType::Invalid, place, text, detail);
                return;
            }
        }
        let pattern = &schema.pattern;
        if pattern.is_empty() {
            return;
        }
        let matches = match self.patterns.get(pattern) {
            Some(Some(compiled)) => compiled.is_match(text).unwrap_or(false),
            _ => false,
        };
        if !matches {
            self.add(ErrorType::Invalid, place, text, format!("{place} in body should match '{pattern}'"));
        }
    }

    fn check_number(&mut self, value: &Value, schema: &Schema, place: &Place<'_>) {
        let kind = if schema.x_int_or_string { "" } else { schema.type_name.as_str() };
        let kind = if matches!(kind, "integer" | "number") { kind } else { "" };
        let name = if kind.is_empty() { "" } else { format(schema) };
        let range = numbers::Range { kind, format: name };
        let out_of_range = |prefix: &str| match name {
            "" => format!("{prefix} value must be of type {kind} (default format) in {place}"),
            _ => format!("{prefix} value must be of type {kind} with format {name} in {place}"),
        };
        if !range.holds(value) {
            self.add_nameless(out_of_range("Checked"));
        }
        if let Some(factor) = schema.multiple_of {
            let native = range.holds(&Value::from(factor));
            if !native {
                self.add_nameless(out_of_range("MultipleOf"));
            }
            match numbers::is_multiple(value, factor, native) {
                Some(true) => {}
                Some(false) => {
                    let shown = numbers::shown(factor, value, native);
                    let detail = format!("{place} in body should be a multiple of {shown}");
                    self.add(ErrorType::Invalid, place, value.clone(), detail);
                }
                None => {
                    let shown = numbers::shown(factor, value, native);
                    let detail = format!("factor MultipleOf declared for {place} must be positive: {shown}");
                    self.add(ErrorType::Invalid, place, Value::from(factor), detail);
                }
            }
        }
        let bounds = [
            (schema.minimum, schema.exclusive_minimum, "Minimum boundary", "greater", std::cmp::Ordering::Less),
            (schema.maximum, schema.exclusive_maximum, "Maximum boundary", "less", std::cmp::Ordering::Greater),
        ];
        for (bound, is_exclusive, prefix, word, beyond) in bounds {
            let Some(bound) = bound else { continue };
            let native = range.holds(&Value::from(bound));
            if !native {
                self.add_nameless(out_of_range(prefix));
            }
            let order = numbers::compare(value, bound, native);
            if order != beyond && !(is_exclusive && order.is_eq()) {
                continue;
            }
            let shown = numbers::shown(bound, value, native);
            let or_equal = if is_exclusive { "" } else { " or equal to" };
            let detail = format!("{place} in body should be {word} than{or_equal} {shown}");
            self.add(ErrorType::Invalid, place, value.clone(), detail);
        }
    }

    fn check_items(
        &mut self,
        items: &[Value],
        schema: &Schema,
        place: &Place<'_>,
        old: Option<CorrelatedValue<'_>>,
    ) -> u64 {
        let mut matches = 0_u64;
        if let Some(inner) = schema.items_schema() {
            let old_items = old.and_then(|old| old.old_items());
            for (index, item) in items.iter().enumerate() {
                let here = Place { parent: Some(place), step: Step::Index(index) };
                let old = old.and_then(|old| old.item(old.new.as_array()?.get(index)?, old_items.as_ref()));
                matches = matches.saturating_add(self.check(item, inner, &here, old, true));
            }
        }
        let count = i64::try_from(items.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_items.filter(|min| count < *min) {
            let detail = format!("{place} in body should have at least {min} items");
            self.add(ErrorType::Invalid, place, count, detail);
        }
        if let Some(max) = schema.max_items.filter(|max| count > *max) {
            self.add_too_many(place, count, max);
        }
        if schema.unique_items {
            let mut seen = HashSet::new();
            let is_unique = items.iter().all(|item| {
                let mut item = item.clone();
                item.sort_keys();
                seen.insert(to_string(&item))
            });
            if !is_unique {
                self.add(ErrorType::Invalid, place, "", format!("{place} in body shouldn't contain duplicates"));
            }
        }
        matches
    }

    fn add_too_many(&mut self, place: &Place<'_>, count: i64, max: i64) {
        let plural = if max == 1 { "" } else { "s" };
        self.add(ErrorType::TooMany, place, count, format!("must have at most {max} item{plural}"));
    }

    fn check_fields(
        &mut self,
        fields: &api::json::Object,
        schema: &Schema,
        place: &Place<'_>,
        old: Option<CorrelatedValue<'_>>,
    ) -> u64 {
        let mut matches = 0_u64;
        let count = i64::try_from(fields.len()).unwrap_or(i64::MAX);
        if let Some(min) = schema.min_properties.filter(|min| count < *min) {
            let detail = format!("{place} in body should have at least {min} properties");
            self.add(ErrorType::Invalid, place, count, detail);
        }
        if let Some(max) = schema.max_properties.filter(|max| count > *max) {
            self.add_too_many(place, count, max);
        }
        let old_of = |name: &str| {
            let is_type = place.is_root() && matches!(name, "kind" | "apiVersion");
            old.filter(|_| !is_type).and_then(|old| old.key(name))
        };
        match &schema.additional_properties {
            Some(SchemaOrBool::Bool(false)) => {
                for name in fields.keys().filter(|name| !schema.properties.contains_key(*name)) {
                    let detail = format!("{place}.{name} in body is a forbidden property");
                    self.add(ErrorType::Invalid, place, name, detail);
                }
            }
            Some(SchemaOrBool::Schema(other)) => {
                for (name, field) in fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
                    let here = Place { parent: Some(place), step: Step::Field(name) };
                    matches = matches.saturating_add(self.check(field, other, &here, old_of(name), true));
                }
            }
            _ => {}
        }
        for (name, property) in &schema.properties {
            if let Some(field) = fields.get(name) {
                let here = Place { parent: Some(place), step: Step::Field(name) };
                matches = matches.saturating_add(self.check(field, property, &here, old_of(name), true));
            }
        }
        for name in schema.required.iter().filter(|name| !fields.contains_key(name)) {
            let here = Place { parent: Some(place), step: Step::Field(name) };
            self.add(ErrorType::Required, &here, "", String::new());
        }
        matches
    }

    fn check_enum(&mut self, value: &Value, schema: &Schema, place: &Place<'_>) {
        let allowed = &schema.enumeration;
        if allowed.is_empty() || allowed.iter().any(|it| is_allowed(value, it)) {
            return;
        }
        let shown = allowed.iter().map(|it| match it {
            Value::String(text) => quote(text),
            other => quote(&to_string(other)),
        });
        let detail = format!("supported values: {}", shown.collect::<Vec<_>>().join(", "));
        self.add(ErrorType::NotSupported, place, value.clone(), detail);
    }
}

/// Whether a value is one of an enumeration: Go converts it to the other's type first.
fn is_allowed(value: &Value, allowed: &Value) -> bool {
    match (value, allowed) {
        // Null is not converted.
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Float(found), Value::Int(allowed)) => numbers::truncated(found.get()) == Some(*allowed),
        (Value::Int(_), Value::Float(allowed)) => value.as_f64() == Some(allowed.get()),
        (Value::Float(found), Value::Float(allowed)) => found.get() == allowed.get(),
        // Kubernetes: a number becomes the character of that number.
        (Value::Int(found), Value::String(allowed)) => {
            let character = u32::try_from(*found).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            let mut characters = allowed.chars();
            characters.next() == Some(character) && characters.next().is_none()
        }
        (found, allowed) => found == allowed,
    }
}

/// A number as Go's `%v` shows it.
pub(super) fn shown_float(value: f64) -> String {
    format_float(value)
}
