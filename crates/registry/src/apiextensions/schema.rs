//! Schemas of definitions: what OpenAPI allows, what structural schemas add, and the rules in them.

use api::field::{Errors, Path};
use api::json::Value;

use super::custom_resource::check_default;
use super::rules::{self, Budget};
use super::{field_path, lists, structural};
use crate::document::same;
use crate::render;
use crate::strategy::Context;

const PACKAGE: &str = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const REASONS: &[&str] = &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Requirements on a definition; an old one that did not meet a requirement need not meet it now.
pub(super) struct Demands<'a> {
    pub(super) schemas: bool,
    types: bool,
    structural: bool,
    atomic_sets: bool,
    map_keys: bool,
    old: Option<&'a Value>,
}

impl<'a> Demands<'a> {
    pub(super) fn new(spec: &Value, old: Option<&'a Value>) -> Self {
        let old_has = |test: &dyn Fn(&Value) -> bool| old.is_some_and(|old| schemas(old).any(|it| any(it, test)));
        let all_have = |spec: &Value| {
            spec.field("validation").has("openAPIV3Schema")
                || spec.list("versions").iter().all(|it| it.field("schema").has("openAPIV3Schema"))
        };
        let has_extensions = |schema: &Value| {
            [
                "x-kubernetes-embedded-resource",
                "x-kubernetes-preserve-unknown-fields",
                "x-kubernetes-int-or-string",
                "x-kubernetes-list-map-keys",
                "x-kubernetes-list-type",
                "x-kubernetes-validations",
            ]
            .iter()
            .any(|name| schema.has(name))
        };
        let was_structural = !old.is_some_and(|old| {
            schemas(old)
                .any(|it| structural::unsupported(it).is_some() || !structural::validate(it, &Path::NIL).is_empty())
        });
        let needs_structure = !spec.flag("preserveUnknownFields")
            || has_defaults(spec)
            || schemas(spec).any(|it| any(it, &has_extensions));
        Self {
            schemas: old.is_none_or(all_have),
            types: !old_has(&|it| !it.text("type").is_empty() && !TYPES.contains(&it.text("type"))),
            structural: was_structural || needs_structure,
            atomic_sets: !old_has(&|it| !lists::non_atomic_set_items(it).is_empty()),
            map_keys: !old_has(&|it| {
                let mut errors = Errors::new();
                lists::validate_map_keys(it, &Path::NIL, &mut errors);
                !errors.is_empty()
            }),
            old,
        }
    }

    /// Whether the schema of a version is as it was.
    fn is_unchanged(&self, version: &str, schema: &Value) -> bool {
        let Some(old) = self.old else { return false };
        let of_version = old.list("versions").iter().find(|it| it.text("name") == version);
        let old = match old.field("validation").optional("openAPIV3Schema") {
            Some(schema) if of_version.is_some() => schema,
            _ => of_version.map_or(&Value::Null, |it| it.field("schema").field("openAPIV3Schema")),
        };
        same(old, schema)
    }
}

/// All schemas of a hoisted spec.
fn schemas(spec: &Value) -> impl Iterator<Item = &Value> {
    let of_versions = spec.list("versions").iter().filter_map(|it| it.field("schema").optional("openAPIV3Schema"));
    spec.field("validation").optional("openAPIV3Schema").into_iter().chain(of_versions)
}

/// Whether a default occurs in a spec.
pub(super) fn has_defaults(spec: &Value) -> bool {
    schemas(spec).any(|schema| any(schema, &|it| it.has("default")))
}

/// Whether a test holds for a schema or one inside it.
fn any(schema: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
    test(schema) || inner(schema).into_iter().any(|it| any(it, test))
}

fn inner(schema: &Value) -> Vec<&Value> {
    let mut inner: Vec<&Value> = Vec::new();
    match schema.field("items") {
        Value::Array(items) => inner.extend(items),
        Value::Object(_) => inner.push(schema.field("items")),
        _ => {}
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        inner.extend(schema.list(name));
    }
    for name in ["not", "additionalProperties", "additionalItems"] {
        inner.extend(schema.optional(name).filter(|it| it.as_object().is_some()));
    }
    for name in ["properties", "patternProperties", "definitions"] {
        inner.extend(schema.map(name).values());
    }
    inner
}

/// Returns the warnings about formats and sets.
pub(super) fn warnings(spec: &Value) -> Vec<String> {
    let mut formats = Vec::new();
    let mut sets = Vec::new();
    for schema in schemas(spec) {
        collect_warnings(schema, &mut formats, &mut sets);
    }
    sets.sort_unstable();
    sets.dedup();
    formats.extend(sets);
    formats
}

fn collect_warnings(schema: &Value, formats: &mut Vec<String>, sets: &mut Vec<String>) {
    // Formats of strings, without dashes: Kubernetes ignores dashes.
    const KNOWN: &[&str] = &[
        "bsonobjectid",
        "uri",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "cidr",
        "mac",
        "uuid",
        "uuid3",
        "uuid4",
        "uuid5",
        "isbn",
        "isbn10",
        "isbn13",
        "creditcard",
        "ssn",
        "hexcolor",
        "rgbcolor",
        "byte",
        "password",
        "date",
        "duration",
        "datetime",
        "k8sshortname",
        "k8slongname",
    ];
    let format = schema.text("format");
    let is_known = match schema.text("type") {
        "" | "string" => KNOWN.contains(&format.replace('-', "").as_str()),
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double"),
        _ => false,
    };
    if !format.is_empty() && !is_known {
        formats.push(format!("unrecognized format {}", api::go_text::quote(format)));
    }
    let kind = schema.field("items").text("type");
    if schema.text("x-kubernetes-list-type") == "set" && matches!(kind, "object" | "array") {
        sets.push(format!("x-kubernetes-list-type: set for items of type \"{kind}\" is not supported by server-side apply or CEL validation rules"));
    }
    for schema in inner(schema) {
        collect_warnings(schema, formats, sets);
    }
}

/// The schema of a version, or of all.
pub(super) fn validate(
    validation: &Value,
    has_status: bool,
    demands: &Demands<'_>,
    version: &str,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(schema) = validation.optional("openAPIV3Schema") else { return };
    let before = errors.len();
    let here = at.child("openAPIV3Schema");
    if has_status {
        validate_root(schema, at, errors);
    }
    if schema.flag("nullable") {
        errors.forbidden(at.child("openAPIV3Schema.nullable"), "nullable cannot be true at the root");
    }
    let unsupported = structural::unsupported(schema);
    let mut budget = None;
    if demands.structural && unsupported.is_none() {
        let mut found = structural::validate(schema, &here);
        if found.is_empty() {
            validate_defaults(schema, true, &here, &mut found);
        }
        if found.is_empty() {
            budget = Some(Budget::default());
        }
        errors.append(found);
    }
    let mut walk = Walk {
        demands,
        context,
        is_unchanged: demands.is_unchanged(version, schema),
        budget,
        schema_errors: Errors::new(),
        rule_errors: Errors::new(),
    };
    let place = Place { is_root: true, cardinality: Some(1), has_types: true, ..Place::default() };
    walk.schema(schema, &place, &here);
    let Walk { schema_errors, rule_errors, budget, .. } = walk;
    errors.append(schema_errors);
    errors.append(rule_errors);
    if let (true, true, Some(unsupported)) = (errors.len() == before, demands.structural, unsupported) {
        errors.invalid(here, "", unsupported);
    }
    if let Some(budget) = budget {
        budget.finish(&here, errors);
    }
}

/// With a status subresource, the root may have only these fields.
fn validate_root(schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    const ALLOWED: &[&str] = &[
        "Description",
        "Type",
        "Format",
        "Title",
        "Maximum",
        "ExclusiveMaximum",
        "Minimum",
        "ExclusiveMinimum",
        "MaxLength",
        "MinLength",
        "Pattern",
        "MaxItems",
        "MinItems",
        "UniqueItems",
        "MultipleOf",
        "Required",
        "Items",
        "Properties",
        "ExternalDocs",
        "Example",
        "XPreserveUnknownFields",
        "XValidations",
    ];
    let Some(of) = api::types::by_name(PACKAGE, "JSONSchemaProps") else { return };
    for field in of.fields.iter().filter(|field| schema.has(field.name)) {
        if field.name == "type" {
            let kind = schema.text("type");
            if kind != "object" {
                let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                errors.invalid(at.child("openAPIV3Schema.type"), kind, detail);
                return;
            }
        } else if !ALLOWED.contains(&field.go_name) {
            let detail = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                ALLOWED.join(" ")
            );
            errors.invalid(at.child("openAPIV3Schema"), render::internal(PACKAGE, "JSONSchemaProps", schema), detail);
            return;
        }
    }
}

/// Defaults must not hold what pruning would drop, and fit the schema.
fn validate_defaults(schema: &Value, is_root: bool, at: &Path<'_>, errors: &mut Errors) {
    if let Some(default) = schema.optional("default") {
        let here = at.child("default");
        if has_unknown_fields(default, schema) {
            errors.invalid(here, default.clone(), "must not have unknown fields");
        }
        // A default of the whole object is an object.
        let missing = ["apiVersion", "kind"]
            .into_iter()
            .filter(|name| is_root && default.as_object().is_some() && default.text(name).is_empty());
        let before = errors.len();
        missing.for_each(|name| errors.required(here.child(name), ""));
        if errors.len() == before {
            check_default(default, schema, &here, errors);
        }
    }
    if let Some(items) = schema.optional("items").filter(|it| it.as_object().is_some()) {
        validate_defaults(items, false, &at.child("items"), errors);
    }
    let properties = at.child("properties");
    for (name, property) in schema.map("properties").iter() {
        validate_defaults(property, false, &properties.key(name), errors);
    }
    if let Some(additional) = schema.optional("additionalProperties").filter(|it| it.as_object().is_some()) {
        validate_defaults(additional, false, &at.child("additionalProperties"), errors);
    }
}

fn has_unknown_fields(value: &Value, schema: &Value) -> bool {
    if schema.flag("x-kubernetes-preserve-unknown-fields") {
        return false;
    }
    match value {
        Value::Array(items) => items.iter().any(|item| has_unknown_fields(item, schema.field("items"))),
        Value::Object(fields) => fields.iter().any(|(name, value)| {
            let is_meta =
                schema.flag("x-kubernetes-embedded-resource") && matches!(name, "apiVersion" | "kind" | "metadata");
            match (schema.map("properties").get(name), schema.optional("additionalProperties")) {
                (Some(property), _) => has_unknown_fields(value, property),
                (None, Some(additional)) if additional.as_object().is_some() => has_unknown_fields(value, additional),
                (None, Some(additional)) => additional.as_bool() == Some(false),
                (None, None) => !is_meta,
            }
        }),
        _ => false,
    }
}

/// Position of the walk in a schema.
#[derive(Clone, Default)]
struct Place<'a> {
    is_root: bool,
    /// Inside `metadata` of an object.
    in_metadata: bool,
    /// The reason why defaults are not allowed.
    no_defaults: Option<&'a str>,
    /// Within which list or map values cannot be found again in an old object.
    uncorrelatable: Option<String>,
    /// Maximum number of occurrences; `None` if there is no bound.
    cardinality: Option<u64>,
    /// Rules are compiled here: not inside logical parts.
    has_types: bool,
}

struct Walk<'a> {
    demands: &'a Demands<'a>,
    context: &'a Context<'a>,
    is_unchanged: bool,
    budget: Option<Budget>,
    schema_errors: Errors,
    rule_errors: Errors,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, place: &Place<'_>, at: &Path<'_>) {
        let before = self.schema_errors.len();
        let is_root = place.is_root;
        self.standard(schema, place, at);
        if schema.flag("uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.schema_errors.forbidden(at.child("uniqueItems"), detail);
        }
        let inside = Place {
            is_root: false,
            cardinality: place.cardinality.zip(max_elements(schema)).map(|(left, right)| left.saturating_mul(right)),
            ..place.clone()
        };
        let logical = Place { is_root: false, has_types: false, ..place.clone() };
        if let Some(additional) = schema.optional("additionalProperties") {
            let is_open = additional.as_bool() == Some(true);
            if !schema.map("properties").is_empty() && !is_open {
                let detail = "additionalProperties and properties are mutual exclusive";
                self.schema_errors.forbidden(at.child("additionalProperties"), detail);
            }
            if additional.as_object().is_some() {
                let mut place = inside.clone();
                if place.in_metadata {
                    place.no_defaults = Some("inside additionalProperties applying to object metadata");
                }
                self.schema(additional, &place, &at.child("additionalProperties"));
            }
        }
        let properties = at.child("properties");
        for (name, property) in schema.map("properties").iter() {
            let mut place = inside.clone();
            let reason = format!("in top-level {name}");
            let is_meta = matches!(name, "metadata" | "kind" | "apiVersion");
            let is_top = is_meta && is_root;
            place.in_metadata |= is_top || (is_meta && schema.flag("x-kubernetes-embedded-resource"));
            let place = Place { no_defaults: if is_top { Some(&reason) } else { place.no_defaults }, ..place };
            self.schema(property, &place, &properties.key(name));
        }
        if let Some(not) = schema.optional("not") {
            self.schema(not, &logical, &at.child("not"));
        }
        for name in ["allOf", "oneOf", "anyOf"] {
            let list = at.child(name);
            for (index, item) in schema.list(name).iter().enumerate() {
                self.schema(item, &logical, &list.index(index));
            }
        }
        let definitions = at.child("definitions");
        for (name, definition) in schema.map("definitions").iter() {
            self.schema(definition, &logical, &definitions.key(name));
        }
        self.items(schema, &inside, at);
        lists::validate(schema, self.demands.atomic_sets, at, &mut self.schema_errors);
        if self.demands.map_keys {
            lists::validate_map_keys(schema, at, &mut self.schema_errors);
        }
        self.rules(schema, place, before, at);
    }

    fn standard(&mut self, schema: &Value, place: &Place<'_>, at: &Path<'_>) {
        let errors = &mut self.schema_errors;
        let kind = schema.text("type");
        if self.demands.types && !kind.is_empty() && !TYPES.contains(&kind) {
            errors.not_supported(at.child("type"), kind, TYPES);
        }
        if let (true, Some(reason)) = (schema.has("default"), place.no_defaults) {
            errors.forbidden(at.child("default"), format!("must not be set {reason}"));
        }
        for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            let is_empty = matches!(name, "patternProperties" | "definitions") && schema.map(name).is_empty();
            if schema.has(name) && !is_empty {
                errors.forbidden(at.child(name), format!("{name} is not supported"));
            }
        }
        if kind == "null" {
            errors.forbidden(at.child("type"), "type cannot be set to null, use nullable as an alternative");
        }
        if schema.field("items").as_array().is_some_and(|it| !it.is_empty()) {
            errors.forbidden(at.child("items"), "items must be a schema object and not an array");
        }
        if place.in_metadata && schema.flag("x-kubernetes-embedded-resource") {
            let detail = "must not be used inside of resource meta";
            errors.forbidden(at.child("x-kubernetes-embedded-resource"), detail);
        }
    }

    fn items(&mut self, schema: &Value, inside: &Place<'_>, at: &Path<'_>) {
        let mut place = inside.clone();
        if schema.text("x-kubernetes-list-type") != "map" && place.uncorrelatable.is_none() {
            place.uncorrelatable = Some(at.to_string());
        }
        let here = at.child("items");
        match schema.field("items") {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.schema(item, &place, &here.index(index));
                }
            }
            items @ Value::Object(_) => self.schema(items, &place, &here),
            _ => {}
        }
    }

    fn rules(&mut self, schema: &Value, place: &Place<'_>, before: usize, at: &Path<'_>) {
        let rules = schema.list("x-kubernetes-validations");
        if rules.is_empty() {
            return;
        }
        let list = at.child("x-kubernetes-validations");
        for (index, rule) in rules.iter().enumerate() {
            validate_rule(rule, schema, &list.index(index), &mut self.schema_errors);
        }
        if self.schema_errors.len() != before || !place.has_types {
            return;
        }
        let Some(budget) = &mut self.budget else { return };
        let is_resource = place.is_root || schema.flag("x-kubernetes-embedded-resource");
        let errors = &mut self.rule_errors;
        match self.context.expressions.compile_rules(schema, is_resource) {
            Err(detail) => errors.internal(list, detail),
            Ok(compiled) => {
                let limits = rules::Limits { cardinality: place.cardinality, is_unchanged: self.is_unchanged };
                let uncorrelatable = place.uncorrelatable.as_deref();
                rules::validate(rules, &compiled, limits, uncorrelatable, &list, budget, errors);
            }
        }
    }
}

/// Maximum number of values of a list or map.
fn max_elements(schema: &Value) -> Option<u64> {
    let bound = |name: &str| schema.optional_int(name).map(|it| u64::try_from(it).unwrap_or(0));
    match schema.text("type") {
        "object" if schema.has("additionalProperties") => bound("maxProperties"),
        "array" => bound("maxItems"),
        _ => Some(1),
    }
}

/// Validates the fields of a rule, without compiling it.
fn validate_rule(rule: &Value, schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let has_breaks = |text: &str| text.contains(['\n', '\r']);
    let (text, message) = (rule.text("rule").trim(), rule.text("message"));
    if text.is_empty() {
        errors.required(at.child("rule"), "rule is not specified");
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(at.child("message"), message, "must be non-empty if specified");
    } else if has_breaks(message.trim()) {
        errors.invalid(at.child("message"), message, "must not contain line breaks");
    } else if has_breaks(text) && message.trim().is_empty() {
        errors.required(at.child("message"), "message must be specified if rule contains line breaks");
    }
    let expression = rule.text("messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        errors.required(at.child("messageExpression"), "messageExpression must be non-empty if specified");
    }
    if let Some(reason) = rule.optional_text("reason").filter(|it| !REASONS.contains(it)) {
        errors.not_supported(at.child("reason"), reason, REASONS);
    }
    let path = rule.text("fieldPath");
    let here = at.child("fieldPath");
    if !path.is_empty() && path.trim().is_empty() {
        errors.invalid(here, path, "must be non-empty if specified");
    }
    if has_breaks(path) {
        errors.invalid(here, path, "must not contain line breaks");
    }
    if !path.is_empty() && field_path::resolve(path, schema, true).is_err() {
        errors.invalid(here, path, "must be a valid path");
    }
}
