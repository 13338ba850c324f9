//! Evaluation of a schema's rules on an object and its change.
//!
//! Rules are compiled once per definition, in a tree that has the form of the schema. Follows
//! `apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go`: a rule that reads `oldSelf` runs where there is an
//! old value, costs are limited per rule and per request, and failures about unchanged parts become warnings.

use std::collections::BTreeMap;

use api::field::{BadValue, Error, ErrorType, Errors, Path};
use api::json::Value;
use api::structural_schema::{Schema, ValidationRule};
use cel::program::Evaluation;
use cel::value::{ErrorKind, Value as CelValue};
use cel_kubernetes::compile::{CompiledExpression, ResultRule};
use cel_kubernetes::environments::validation_rule::Change;
use cel_kubernetes::environments::{Languages, validation_rule};
use cel_kubernetes::reads::Reads;
use cel_kubernetes::schema::TypedSchema;

use super::correlation::{CorrelatedValue, MapList};
use crate::apiextensions::field_path;
use crate::apiextensions::rules::TYPE_NAME;

/// Cost limit of all rules in one request.
const REQUEST_COST_MAX: u64 = 10_000_000;
/// A longer message is not used.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// The rules at and below one place of a schema.
#[derive(Debug)]
pub(super) struct Rules {
    here: Vec<Rule>,
    typed: Option<TypedSchema>,
    /// Error that prevents the rules here from running.
    broken: Option<String>,
    /// The schema that defines the keys of lists.
    schema: Schema,
    items: Option<Box<Rules>>,
    properties: BTreeMap<String, Rules>,
    other: Option<Box<Rules>>,
    all_of: Vec<Rules>,
}

#[derive(Debug)]
struct Rule {
    source: ValidationRule,
    program: Result<CompiledExpression, String>,
    message: Option<CompiledExpression>,
    uses_old_self: bool,
    optional_old_self: bool,
    /// Path of a reported failure, below the place of the rule.
    field_path: String,
}

/// Compiles the rules of a schema; none if it has none.
pub(super) fn compile(schema: &Schema, languages: &Languages) -> Option<Rules> {
    build(schema, schema, true, languages)
}

/// `schema` has the rules, `node` the types: they differ inside `allOf`.
fn build(schema: &Schema, node: &Schema, is_resource: bool, languages: &Languages) -> Option<Rules> {
    let items = match (schema.items_schema(), node.items_schema()) {
        (Some(schema), Some(node)) => build(schema, node, node.x_embedded_resource, languages).map(Box::new),
        _ => None,
    };
    let mut properties = BTreeMap::new();
    for (name, property) in &schema.properties {
        let Some(node) = node.properties.get(name) else { continue };
        if let Some(rules) = build(property, node, node.x_embedded_resource, languages) {
            properties.insert(name.clone(), rules);
        }
    }
    let other = match (schema.additional_properties_schema(), node.additional_properties_schema()) {
        (Some(schema), Some(node)) => build(schema, node, node.x_embedded_resource, languages).map(Box::new),
        _ => None,
    };
    let all_of: Vec<Rules> =
        schema.all_of.iter().filter_map(|part| build(part, node, is_resource, languages)).collect();
    let is_empty = schema.x_validations.is_empty()
        && items.is_none()
        && properties.is_empty()
        && other.is_none()
        && all_of.is_empty();
    if is_empty {
        return None;
    }
    let mut rules =
        Rules { here: Vec::new(), typed: None, broken: None, schema: shallow(node), items, properties, other, all_of };
    if !schema.x_validations.is_empty() {
        match TypedSchema::new(node, is_resource, TYPE_NAME) {
            // What has no type is invisible to rules.
            None => return None,
            Some(typed) => {
                match compile_here(&schema.x_validations, node, &typed, languages) {
                    Ok(here) => rules.here = here,
                    Err(error) => rules.broken = Some(error),
                }
                rules.typed = Some(typed);
            }
        }
    }
    Some(rules)
}

/// Returns the part of a schema that identifies items, without nested schemas.
fn shallow(schema: &Schema) -> Schema {
    Schema {
        type_name: schema.type_name.clone(),
        x_list_type: schema.x_list_type.clone(),
        x_list_map_keys: schema.x_list_map_keys.clone(),
        ..Schema::default()
    }
}

fn compile_here(
    sources: &[ValidationRule],
    node: &Schema,
    typed: &TypedSchema,
    languages: &Languages,
) -> Result<Vec<Rule>, String> {
    let language = languages.kubernetes().map_err(|error| error.to_string())?;
    let environment = |optional_old_self: bool, result: ResultRule| {
        validation_rule::environment_in(language, typed, optional_old_self, result).map_err(|error| error.to_string())
    };
    let document = api::json::to_value(node).unwrap_or_default();
    let mut rules = Vec::with_capacity(sources.len());
    for source in sources {
        let optional_old_self = source.optional_old_self == Some(true);
        let program = environment(optional_old_self, ResultRule::Bool)?.compile(&source.rule);
        let message = if source.message_expression.is_empty() {
            None
        } else {
            environment(optional_old_self, ResultRule::String)?.compile(&source.message_expression).ok()
        };
        let uses_old_self = program.as_ref().is_ok_and(|program| {
            let reads = Reads::of(program.typed());
            reads.paths().any(|path| path.first().is_some_and(|it| it.as_ref() == validation_rule::OLD_VARIABLE))
        });
        let program = program.map_err(|error| error.to_string());
        let field_path = if source.field_path.is_empty() {
            String::new()
        } else {
            field_path::normalize(&source.field_path, &document).unwrap_or_default()
        };
        rules.push(Rule { source: source.clone(), program, message, uses_old_self, optional_old_self, field_path });
    }
    Ok(rules)
}

/// Result of running rules.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Errors of the object.
    pub(super) errors: Errors,
    /// Errors in unchanged parts, as warnings.
    pub(super) warnings: Vec<String>,
}

/// Runs the rules on a new object, or on a change.
pub(super) fn run(rules: &Rules, object: &Value, old: Option<CorrelatedValue<'_>>) -> Outcome {
    let mut run = Run { budget: REQUEST_COST_MAX, outcome: Outcome::default() };
    let ratchet = Ratchet { current: old, nearest: None };
    // `None` means that the budget is spent, which has been reported.
    let _ = run.validate(rules, object, old.map(|old| old.old), ratchet, &Path::NIL);
    run.outcome
}

/// State that decides whether a failure is tolerated because the value is unchanged.
#[derive(Clone, Copy)]
struct Ratchet<'v> {
    current: Option<CorrelatedValue<'v>>,
    /// The nearest value around that can be compared with what it was.
    nearest: Option<CorrelatedValue<'v>>,
}

impl<'v> Ratchet<'v> {
    fn forgives(self) -> bool {
        self.current.or(self.nearest).is_some_and(|it| it.is_unchanged())
    }

    fn key(self, field: &str) -> Self {
        match self.current {
            None => self,
            // Both objects have been brought to the same version: changes of these fields are not seen.
            Some(_) if self.nearest.is_none() && matches!(field, "apiVersion" | "kind") => {
                Self { current: None, nearest: None }
            }
            Some(current) => Self { current: current.key(field), nearest: Some(current) },
        }
    }

    fn item(self, item: &'v Value, old_items: Option<&MapList<'v>>) -> Self {
        match self.current {
            None => self,
            Some(current) => Self { current: current.item(item, old_items), nearest: Some(current) },
        }
    }
}

struct Run {
    budget: u64,
    outcome: Outcome,
}

impl Run {
    /// `None` if no further rules are to be run.
    fn validate<'v>(
        &mut self,
        rules: &'v Rules,
        value: &'v Value,
        old: Option<&'v Value>,
        ratchet: Ratchet<'v>,
        at: &Path<'_>,
    ) -> Option<()> {
        if value.is_null() {
            return Some(());
        }
        let old = old.filter(|old| !old.is_null());
        self.run_here(rules, value, old, ratchet, at)?;
        for part in &rules.all_of {
            let ratchet = Ratchet { current: None, nearest: ratchet.nearest };
            self.validate(part, value, old, ratchet, at)?;
        }
        match value {
            Value::Array(items) => {
                let Some(inner) = &rules.items else { return Some(()) };
                let old_list = old.and_then(Value::as_array).and_then(|old| MapList::new(&rules.schema, old));
                let ratchet_list = ratchet.current.and_then(|current| current.old_items());
                for (index, item) in items.iter().enumerate() {
                    let old = old_list.as_ref().and_then(|list| list.get(item));
                    let ratchet = ratchet.item(item, ratchet_list.as_ref());
                    self.validate(inner, item, old, ratchet, &at.index(index))?;
                }
            }
            Value::Object(fields) => {
                let old_of = |name: &str| old.and_then(|old| old.get(name));
                if let Some(other) = &rules.other {
                    for (name, field) in fields.iter() {
                        self.validate(other, field, old_of(name), ratchet.key(name), &at.key(name))?;
                    }
                }
                for (name, field) in fields.iter() {
                    if let Some(inner) = rules.properties.get(name) {
                        self.validate(inner, field, old_of(name), ratchet.key(name), &at.child(name))?;
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    fn run_here<'v>(
        &mut self,
        rules: &'v Rules,
        value: &'v Value,
        old: Option<&'v Value>,
        ratchet: Ratchet<'v>,
        at: &Path<'_>,
    ) -> Option<()> {
        let kind = rules.schema.type_name.as_str();
        let invalid = |detail: String| Error::new(ErrorType::Invalid, at, kind, detail);
        if let Some(broken) = &rules.broken {
            self.outcome.errors.push(invalid(format!("rule compiler initialization error: {broken}")));
            return Some(());
        }
        let Some(typed) = rules.typed.as_ref().filter(|_| !rules.here.is_empty()) else { return Some(()) };
        if self.budget == 0 {
            self.outcome.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
            return None;
        }
        for rule in &rules.here {
            let program = match &rule.program {
                Ok(program) => program,
                Err(error) => {
                    self.outcome.errors.push(invalid(format!("rule compile error: {error}")));
                    continue;
                }
            };
            if rule.uses_old_self && old.is_none() && !rule.optional_old_self {
                continue;
            }
            let change = Change { schema: typed, new: value, old, optional_old_self: rule.optional_old_self };
            let Evaluation { result, cost } = program.eval(&change);
            let Some(left) = self.budget.checked_sub(cost) else {
                self.outcome.errors.push(invalid(OUT_OF_BUDGET.to_owned()));
                return None;
            };
            self.budget = left;
            match result {
                Ok(CelValue::Bool(true)) => continue,
                Ok(_) => {}
                Err(error) => {
                    let text = rule.text();
                    let detail = match error.kind() {
                        _ if error.message().starts_with("no such overload") => format!(
                            "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {text}"
                        ),
                        ErrorKind::CostLimit => {
                            let detail = format!(
                                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {text}"
                            );
                            self.outcome.errors.push(invalid(detail));
                            return None;
                        }
                        _ => format!("{error} evaluating rule: {text}"),
                    };
                    self.outcome.errors.push(invalid(detail));
                    continue;
                }
            }
            self.fail(rule, &change, kind, ratchet, at)?;
        }
        Some(())
    }

    /// Reports a rule that does not hold.
    fn fail(
        &mut self,
        rule: &Rule,
        change: &Change<'_>,
        kind: &str,
        ratchet: Ratchet<'_>,
        at: &Path<'_>,
    ) -> Option<()> {
        let below = at.child(&rule.field_path);
        let at = if rule.field_path.is_empty() { at } else { &below };
        let forgives = !rule.uses_old_self && ratchet.forgives();
        let mut add = |error: Error| {
            if forgives {
                self.outcome.warnings.push(error.to_string());
            } else {
                self.outcome.errors.push(error);
            }
        };
        let mut detail = None;
        if let Some(message) = &rule.message {
            let source = api::go_text::quote(&rule.source.message_expression);
            let change = Change { optional_old_self: false, ..*change };
            let Evaluation { result, cost } = message.eval(&change);
            let Some(left) = self.budget.checked_sub(cost) else {
                let detail = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
                add(Error::new(ErrorType::Invalid, at, kind, detail));
                return None;
            };
            if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::CostLimit) {
                let detail = format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"
                );
                add(Error::new(ErrorType::Invalid, at, kind, detail));
                return None;
            }
            self.budget = left;
            detail = match &result {
                Ok(CelValue::String(text)) => usable(text.as_str()),
                _ => None,
            };
        }
        let detail = detail.unwrap_or_else(|| rule.message());
        let value = if matches!(kind, "object" | "array") { BadValue::Omitted } else { change.new.clone().into() };
        add(match rule.source.reason.as_deref() {
            Some("FieldValueForbidden") => Error::new(ErrorType::Forbidden, at, "", detail),
            Some("FieldValueRequired") => Error::new(ErrorType::Required, at, "", detail),
            Some("FieldValueDuplicate") => Error::new(ErrorType::Duplicate, at, value, ""),
            _ => Error::new(ErrorType::Invalid, at, value, detail),
        });
        Some(())
    }
}

/// The message, if it has one line, is not empty and not too long.
fn usable(text: &str) -> Option<String> {
    let text = text.trim();
    let is_usable = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
    is_usable.then(|| text.to_owned())
}

impl Rule {
    /// Name of the rule in errors.
    fn text(&self) -> &str {
        let ValidationRule { message, rule, .. } = &self.source;
        if message.is_empty() { rule.trim() } else { message.trim() }
    }

    /// Message of a failure without a message expression.
    fn message(&self) -> String {
        let message = &self.source.message;
        if message.is_empty() { format!("failed rule: {}", self.source.rule.trim()) } else { message.trim().to_owned() }
    }
}
