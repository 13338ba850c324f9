//! `additionalPrinterColumns[].expression`: reads a custom resource, typed by its schema, yields the printed
//! value (KEP-4595).

use cel::env::EnvError;
use cel::program::Activation;
use cel::value::Value;

use super::{Dialect, Language};
use crate::compile::{Environment, ExpressionLimits, ResultRule};
use crate::schema::TypedSchema;

/// The name that expressions have for the object.
pub const VARIABLE: &str = "self";

/// The name of the object's type; those of nested objects follow from it.
pub const TYPE_NAME: &str = "selfType";

/// The limits of a column: the estimate is reported, not enforced, because columns run over lists without bounds.
pub const LIMITS: ExpressionLimits =
    ExpressionLimits { text_bytes: 10 * 1024, estimated_cost: None, runtime_cost: 1_000_000 };

/// The environment of columns over objects of a schema.
pub fn environment(dialect: Dialect, schema: &TypedSchema) -> Result<Environment, EnvError> {
    environment_in(&dialect.language()?, schema)
}

/// Like `environment`, in a language that other environments share: takes a fraction of the time.
pub fn environment_in(language: &Language, schema: &TypedSchema) -> Result<Environment, EnvError> {
    super::with_schema(language, schema, &[VARIABLE], ResultRule::Any, LIMITS)
}

/// A custom resource, as columns see it.
#[derive(Debug, Clone, Copy)]
pub struct Object<'o> {
    /// Schema of the object.
    pub schema: &'o TypedSchema,
    /// The object.
    pub document: &'o api::json::Value,
}

impl Activation for Object<'_> {
    fn resolve(&self, name: &str) -> Option<Value<'_>> {
        (name == VARIABLE).then(|| self.schema.value(self.document))
    }
}
