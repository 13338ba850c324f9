//! `x-kubernetes-validations[].rule`: reads a part of a custom resource and its previous value, yields whether
//! it is valid.

use cel::env::EnvError;
use cel::program::Activation;
use cel::types::Type;
use cel::value::Value;

use super::{Dialect, Language, printer_column};
use crate::compile::{Environment, ExpressionLimits, ResultRule};
use crate::schema::TypedSchema;

/// The name that rules have for the old value.
pub const OLD_VARIABLE: &str = "oldSelf";

/// The caller multiplies the estimate by the number of occurrences of the part.
pub const LIMITS: ExpressionLimits =
    ExpressionLimits { text_bytes: usize::MAX, estimated_cost: None, runtime_cost: 1_000_000 };

/// The environment of rules on values of a schema; `optional_old_self` makes the old value an optional.
pub fn environment(
    dialect: Dialect,
    schema: &TypedSchema,
    optional_old_self: bool,
    result: ResultRule,
) -> Result<Environment, EnvError> {
    environment_in(&dialect.language()?, schema, optional_old_self, result)
}

/// Like `environment`, in a language that other environments share: takes a fraction of the time.
pub fn environment_in(
    language: &Language,
    schema: &TypedSchema,
    optional_old_self: bool,
    result: ResultRule,
) -> Result<Environment, EnvError> {
    let variables = &[printer_column::VARIABLE, OLD_VARIABLE];
    let mut environment = super::with_schema(language, schema, variables, result, LIMITS)?;
    if optional_old_self {
        let of = Type::optional(schema.declared().cel_type.clone());
        environment.env = environment.env.extend().variable(OLD_VARIABLE, of).build()?;
    }
    Ok(environment)
}

/// A value and its previous state, as input of rules.
#[derive(Debug, Clone, Copy)]
pub struct Change<'o> {
    /// Schema of the value.
    pub schema: &'o TypedSchema,
    /// The value.
    pub new: &'o api::json::Value,
    /// Previous value, if there is one.
    pub old: Option<&'o api::json::Value>,
    /// Whether the rule receives the old value as an optional.
    pub optional_old_self: bool,
}

impl Activation for Change<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        match name {
            printer_column::VARIABLE => Some(self.schema.value(self.new)),
            OLD_VARIABLE => {
                let old = self.old.map(|old| self.schema.value(old));
                match (old, self.optional_old_self) {
                    (Some(old), true) => Some(Value::some(old)),
                    (None, true) => Some(Value::NONE),
                    (old, false) => old,
                }
            }
            _ => None,
        }
    }
}
