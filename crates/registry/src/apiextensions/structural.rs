//! Whether a schema is structural: every field has a type, and logical parts only add to it.
//!
//! Follows `apiextensions-apiserver/pkg/apiserver/schema/validation.go` and `complete.go`.

use api::field::{Error, Errors, Path};
use api::json::Value;
use cel::regex::Regex;

use crate::document::same;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns the first unsupported field of a structural schema.
pub(super) fn unsupported(schema: &Value) -> Option<String> {
    const NAMES: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    let is_set = |name: &str| match schema.field(name) {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => name == "additionalItems" || !fields.is_empty(),
        _ => true,
    };
    if let Some((_, shown)) = NAMES.iter().find(|(name, _)| is_set(name)) {
        return Some(format!("OpenAPIV3Schema '{shown}' is not supported"));
    }
    if schema.optional_flag("x-kubernetes-preserve-unknown-fields") == Some(false) {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".to_owned());
    }
    if schema.list("items").is_empty() {
        children(schema).find_map(unsupported)
    } else {
        Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned())
    }
}

fn children(schema: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| schema.list(name));
    let singles = ["items", "not", "additionalProperties"].into_iter().filter_map(|name| schema.optional(name));
    lists.chain(singles.filter(|it| it.as_object().is_some())).chain(schema.map("properties").values())
}

/// All complaints, sorted by their text.
pub(super) fn validate(schema: &Value, at: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    invariants(schema, Level::Root, at, &mut errors);
    complete(schema, at, &mut errors);
    let mut list: Vec<Error> = errors.into_iter().collect();
    list.sort_by_key(ToString::to_string);
    list.into_iter().collect()
}

fn invariants(schema: &Value, level: Level, at: &Path<'_>, errors: &mut Errors) {
    let kind = schema.text("type");
    if kind == "array" && !schema.has("items") {
        errors.required(at.child("items"), "must be specified");
    }
    if let Some(items) = schema.optional("items") {
        invariants(items, Level::Item, &at.child("items"), errors);
    }
    let properties = at.child("properties");
    for (name, property) in schema.map("properties").iter() {
        invariants(property, Level::Field, &properties.key(name), errors);
    }
    if let Some(additional) = schema.optional("additionalProperties") {
        if level == Level::Root {
            errors.forbidden(at.child("additionalProperties"), "must not be used at the root");
        }
        if additional.as_object().is_some() {
            invariants(additional, Level::Field, &at.child("additionalProperties"), errors);
        }
    }
    let (int_or_string, preserves, embedded) = (
        schema.flag("x-kubernetes-int-or-string"),
        schema.flag("x-kubernetes-preserve-unknown-fields"),
        schema.flag("x-kubernetes-embedded-resource"),
    );
    if int_or_string && preserves {
        let here = at.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(here, true, "must be false if x-kubernetes-int-or-string is true");
    }
    if int_or_string && embedded {
        let here = at.child("x-kubernetes-embedded-resource");
        errors.invalid(here, true, "must be false if x-kubernetes-int-or-string is true");
    }
    value_validation(schema, is_int_or_string(schema), has_int_or_string(schema), at, errors);
    let checks_metadata = level == Level::Root || embedded;
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(at.child("type"), detail);
        } else {
            errors.invalid(at.child("type"), kind, detail);
        }
    } else if kind.is_empty() && !int_or_string && !preserves {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.required(at.child("type"), detail);
    }
    if embedded && schema.has("additionalProperties") {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(at.child("additionalProperties"), detail);
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.invalid(at.child("type"), kind, "must be object at the root");
    }
    for name in ["kind", "apiVersion"] {
        if let Some(property) = schema.map("properties").get(name).filter(|_| checks_metadata)
            && property.text("type") != "string"
        {
            errors.invalid(properties.key(name).child("type"), property.text("type"), "must be string");
        }
    }
    if let Some(metadata) = schema.map("properties").get("metadata") {
        validate_metadata(metadata, checks_metadata, level, &properties.key("metadata"), errors);
    }
    if embedded && !preserves && schema.map("properties").is_empty() {
        let detail =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.required(at.child("properties"), detail);
    }
}

fn validate_metadata(metadata: &Value, is_checked: bool, level: Level, at: &Path<'_>, errors: &mut Errors) {
    if is_checked && metadata.text("type") != "object" {
        errors.invalid(at.child("type"), metadata.text("type"), "must be object");
    }
    if level != Level::Root {
        return;
    }
    let names = metadata.map("properties");
    let only_names = names.keys().all(|name| matches!(name, "name" | "generateName"));
    let mut others = metadata.as_object().into_iter().flat_map(|fields| fields.keys());
    if !only_names || others.any(|name| !matches!(name, "type" | "properties" | "default")) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(*at, detail);
    }
}

/// `anyOf: [{type: integer}, {type: string}]`, which goes with int-or-string.
fn is_int_or_string(schema: &Value) -> bool {
    let pattern = api::json!([{"type": "integer"}, {"type": "string"}]);
    same(schema.field("anyOf"), &pattern)
}

fn has_int_or_string(schema: &Value) -> bool {
    schema.list("allOf").first().is_some_and(is_int_or_string)
}

fn value_validation(schema: &Value, skip_any_of: bool, skip_first_all_of: bool, at: &Path<'_>, errors: &mut Errors) {
    if !skip_any_of {
        nested_list(schema, "anyOf", false, at, errors);
    }
    nested_list(schema, "allOf", skip_first_all_of, at, errors);
    nested_list(schema, "oneOf", false, at, errors);
    if let Some(not) = schema.optional("not") {
        nested(not, false, &at.child("not"), errors);
    }
    let pattern = schema.text("pattern");
    if let (false, Err(error)) = (pattern.is_empty(), Regex::new(pattern)) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.invalid(at.child("pattern"), pattern, detail);
    }
}

fn nested_list(schema: &Value, name: &str, skip_first: bool, at: &Path<'_>, errors: &mut Errors) {
    let list = at.child(name);
    for (index, item) in schema.list(name).iter().enumerate() {
        nested(item, skip_first && index == 0, &list.index(index), errors);
    }
}

/// Validates a logical part, which restricts values, but does not declare types.
fn nested(schema: &Value, skip_any_of: bool, at: &Path<'_>, errors: &mut Errors) {
    value_validation(schema, skip_any_of, false, at, errors);
    if let Some(items) = schema.optional("items") {
        nested(items, false, &at.child("items"), errors);
    }
    let properties = at.child("properties");
    for (name, property) in schema.map("properties").iter() {
        nested(property, false, &properties.key(name), errors);
    }
    if !schema.text("type").is_empty() {
        errors.forbidden(at.child("type"), "must be empty to be structural");
    }
    if schema.has("additionalProperties") {
        errors.forbidden(at.child("additionalProperties"), "must be undefined to be structural");
    }
    if schema.has("default") {
        errors.forbidden(at.child("default"), "must be undefined to be structural");
    }
    for name in ["title", "description"] {
        if !schema.text(name).is_empty() {
            errors.forbidden(at.child(name), "must be empty to be structural");
        }
    }
    for name in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if schema.flag(name) {
            errors.forbidden(at.child(name), "must be false to be structural");
        }
    }
    if !schema.list("x-kubernetes-list-map-keys").is_empty() {
        errors.forbidden(at.child("x-kubernetes-list-map-keys"), "must be empty to be structural");
    }
    for name in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if schema.has(name) {
            errors.forbidden(at.child(name), "must be undefined to be structural");
        }
    }
    if !schema.list("x-kubernetes-validations").is_empty() {
        errors.forbidden(at.child("x-kubernetes-validations"), "must be empty to be structural");
    }
    if schema.map("properties").contains_key("metadata") {
        errors.forbidden(properties.key("metadata"), "must not be specified in a nested context");
    }
}

/// Fields in logical parts at the root must be specified outside of them. Kubernetes checks only the root.
fn complete(schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    if let Some(not) = schema.optional("not") {
        complete_nested(not, schema, at, &at.child("not"), errors);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = at.child(name);
        for (index, item) in schema.list(name).iter().enumerate() {
            complete_nested(item, schema, at, &list.index(index), errors);
        }
    }
}

fn complete_nested(part: &Value, skeleton: &Value, at: &Path<'_>, part_at: &Path<'_>, errors: &mut Errors) {
    for name in ["allOf", "anyOf", "oneOf"] {
        let list = part_at.child(name);
        for (index, item) in part.list(name).iter().enumerate() {
            complete_nested(item, skeleton, at, &list.index(index), errors);
        }
    }
    if let Some(not) = part.optional("not") {
        complete_nested(not, skeleton, at, &part_at.child("not"), errors);
    }
    if let Some(items) = part.optional("items") {
        let (here, there) = (at.child("items"), part_at.child("items"));
        match skeleton.optional("items") {
            None => errors.required(here, format!("because it is defined in {there}")),
            Some(skeleton) => complete_nested(items, skeleton, &here, &there, errors),
        }
    }
    let (here, there) = (at.child("properties"), part_at.child("properties"));
    for (name, property) in part.map("properties").iter() {
        match skeleton.map("properties").get(name) {
            None => {
                errors.required(here.key(name), format!("because it is defined in {}", there.key(name)));
            }
            Some(skeleton) => complete_nested(property, skeleton, &here.key(name), &there.key(name), errors),
        }
    }
}
