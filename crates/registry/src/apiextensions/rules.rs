//! Rules in schemas: whether they compile, and what they can cost all together.

use api::field::{Error, ErrorType, Errors, Path};
use api::json::Value;
use api::structural_schema::Schema;
use cel_kubernetes::compile::{CompileError, CompiledExpression, Environment, ResultRule};
use cel_kubernetes::environments::{Language, validation_rule};
use cel_kubernetes::reads::Reads;
use cel_kubernetes::schema::TypedSchema;

use crate::render;

/// Kubernetes numbers the types of rules.
pub(super) const TYPE_NAME: &str = "selfType0";
const PER_RULE: u64 = 10_000_000;
const PER_DEFINITION: u64 = 100_000_000;
const MAX_REQUEST_BYTES: u64 = 3 * 1024 * 1024;

/// A rule that was compiled, or why it was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledRule {
    /// Compile error of the rule.
    pub error: Option<String>,
    /// Maximum cost of one evaluation.
    pub max_cost: u64,
    /// Maximum number of occurrences in a request, if the schema has no bound.
    pub max_cardinality: u64,
    /// Whether it reads the old value.
    pub uses_old_self: bool,
    /// Maximum cost of the message expression, or its error; `None` without one.
    pub message: Option<Result<u64, String>>,
}

/// Compiles the rules of a schema.
///
/// # Errors
/// The schema gives its values no type.
pub(crate) fn compile(language: &Language, schema: &Value, is_resource: bool) -> Result<Vec<CompiledRule>, String> {
    let no_type = || {
        "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations".to_owned()
    };
    let typed = Schema::from_value(schema).map_err(|error| error.to_string())?;
    let typed = TypedSchema::new(&typed, is_resource, TYPE_NAME).ok_or_else(no_type)?;
    let size = typed.declared().min_serialized_size.saturating_add(1);
    let max_cardinality = MAX_REQUEST_BYTES.checked_div(size).unwrap_or(MAX_REQUEST_BYTES);
    let environment = |optional_old_self: bool, result: ResultRule| {
        validation_rule::environment_in(language, &typed, optional_old_self, result).map_err(|error| error.to_string())
    };
    let mut compiled = Vec::new();
    for rule in schema.list("x-kubernetes-validations") {
        let optional_old_self = rule.flag("optionalOldSelf");
        let environments =
            (environment(optional_old_self, ResultRule::Bool)?, environment(optional_old_self, ResultRule::String)?);
        compiled.push(compile_rule(rule, &environments.0, &environments.1, max_cardinality));
    }
    Ok(compiled)
}

fn compile_rule(rule: &Value, environment: &Environment, messages: &Environment, max_cardinality: u64) -> CompiledRule {
    let mut result = CompiledRule { error: None, max_cost: 0, max_cardinality, uses_old_self: false, message: None };
    let compiled: CompiledExpression = match environment.compile(rule.text("rule")) {
        Ok(compiled) => compiled,
        Err(error) => {
            result.error = Some(error.to_string());
            return result;
        }
    };
    let reads = Reads::of(compiled.typed());
    result.uses_old_self = reads.paths().any(|path| path.first().is_some_and(|it| it.as_ref() == "oldSelf"));
    result.max_cost = compiled.cost().max;
    let message = rule.text("messageExpression");
    if !message.is_empty() {
        result.message = Some(match messages.compile(message) {
            Ok(compiled) => Ok(compiled.cost().max),
            Err(error @ CompileError::Issues(_)) => Err(format!("messageExpression {error}")),
            Err(error) => Err(error.to_string()),
        });
    }
    result
}

/// Cost limit of all rules of a definition.
#[derive(Default)]
pub(super) struct Budget {
    total: u64,
    most_expensive: Vec<(u64, String)>,
}

impl Budget {
    fn observe(&mut self, at: &Path<'_>, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost < PER_DEFINITION / 100 {
            return;
        }
        self.most_expensive.push((cost, at.to_string()));
        self.most_expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        self.most_expensive.truncate(4);
    }

    /// Names what is most expensive if all is too expensive.
    pub(super) fn finish(self, at: &Path<'_>, errors: &mut Errors) {
        if self.total <= PER_DEFINITION {
            return;
        }
        for (_, field) in self.most_expensive {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema".to_owned();
            errors.push(Error { error_type: ErrorType::Forbidden, field, bad_value: "".into(), detail });
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.forbidden(*at, exceeds(name, self.total, PER_DEFINITION));
    }
}

#[expect(clippy::cast_precision_loss, reason = "the factor is printed with few digits")]
fn exceeds(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// Cost limits of the rules at one place.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of occurrences, if the schema has a bound.
    pub(super) cardinality: Option<u64>,
    /// The schema is as it was, and so may cost what it costs.
    pub(super) is_unchanged: bool,
}

/// Adds what is wrong with the rules at one place.
pub(super) fn validate(
    rules: &[Value],
    compiled: &[CompiledRule],
    limits: Limits,
    uncorrelatable: Option<&str>,
    at: &Path<'_>,
    budget: &mut Budget,
    errors: &mut Errors,
) {
    for (index, (rule, compiled)) in rules.iter().zip(compiled).enumerate() {
        let here = at.index(index);
        let rule_at = here.child("rule");
        let cost = compiled.max_cost.saturating_mul(limits.cardinality.unwrap_or(compiled.max_cardinality));
        if !limits.is_unchanged && cost > PER_RULE {
            errors.forbidden(rule_at, exceeds("estimated rule cost", cost, PER_RULE));
        }
        budget.observe(&rule_at, cost);
        let shown = || {
            let package = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
            render::internal(package, "ValidationRule", rule)
        };
        if let Some(error) = &compiled.error {
            errors.invalid(rule_at, shown(), error.clone());
        }
        let message_at = here.child("messageExpression");
        match &compiled.message {
            Some(Err(error)) => errors.invalid(message_at, shown(), error.clone()),
            Some(Ok(cost)) => {
                if !limits.is_unchanged && *cost > PER_RULE {
                    errors.forbidden(message_at, exceeds("estimated messageExpression cost", *cost, PER_RULE));
                }
                budget.observe(&message_at, *cost);
            }
            None => {}
        }
        if compiled.uses_old_self {
            if let Some(path) = uncorrelatable {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {path}");
                errors.invalid(rule_at, rule.text("rule"), detail);
            }
        } else if let Some(optional) = rule.optional_flag("optionalOldSelf") {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.invalid(here.child("optionalOldSelf"), optional, detail);
        }
    }
}
