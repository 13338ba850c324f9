//! The interface through which validation compiles expressions.
//!
//! The caller hands in whatever compiles: the shared compile cache in a server, the bare environments in a test. The
//! answers are complete sentences of an error; their texts are those of the environments.

use api::field::{Errors, Path};
use api::json::Value;
use api::structural_schema::Schema;
use cel::env::EnvError;
use cel_kubernetes::compile::{CompileError, CompiledExpression, Environment};
use cel_kubernetes::environments::{Language, admission, device, devices, node_affinity, printer_column, toleration};
use cel_kubernetes::places::InputError;
use cel_kubernetes::prospect::Prospect;
use cel_kubernetes::schema::TypedSchema;
use std::error::Error as _;

pub use cel_kubernetes::environments::Languages;
pub use cel_kubernetes::places::Place;

pub use crate::apiextensions::CompiledRule;

/// A reason to reject an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// More bytes than allowed.
    TooLong {
        /// The limit.
        max: usize,
    },
    /// The expression does not compile, or has the wrong type.
    Invalid(String),
    /// Its estimated cost is too high.
    TooCostly {
        /// The text of the error.
        detail: String,
        /// The estimate.
        estimated: u64,
        /// The limit.
        limit: u64,
    },
    /// The compiler failed.
    Internal(String),
}

/// Compiles expressions.
pub trait Expressions: Sync {
    /// The estimated cost of `expression`, if it can be used at `place`; `schema` types `self` at places that need one.
    ///
    /// # Errors
    /// Why it cannot.
    fn check(&self, place: Place, schema: Option<&Value>, expression: &str) -> Result<u64, Refusal>;

    /// Returns the warnings for an accepted expression at `place`.
    fn advise(&self, place: Place, expression: &str) -> Vec<String>;

    /// The rules of a schema, compiled; the root of a resource has its metadata.
    ///
    /// # Errors
    /// The schema gives its values no type.
    fn compile_rules(&self, schema: &Value, is_resource: bool) -> Result<Vec<CompiledRule>, String>;

    /// The compiler of admission policies; none if it cannot be made.
    fn policies(&self) -> Option<&admission::Compiler>;
}

/// The environments of all places, without a cache.
#[derive(Debug)]
pub struct Environments {
    toleration: Environment,
    node_affinity: Environment,
    device: Environment,
    devices: Environment,
    /// Language of columns.
    language: Language,
    /// Language of rules.
    kubernetes: Language,
    policies: admission::Compiler,
}

impl Environments {
    /// Builds the environments.
    ///
    /// # Errors
    /// The libraries do not fit each other.
    pub fn new() -> Result<Self, EnvError> {
        Self::sharing(&Languages::default())
    }

    /// Builds the environments from languages that others use, too: takes a fraction of the time.
    ///
    /// # Errors
    /// The libraries do not fit each other.
    pub fn sharing(languages: &Languages) -> Result<Self, EnvError> {
        let (language, kubernetes) = (languages.celplane()?, languages.kubernetes()?);
        Ok(Self {
            toleration: toleration::environment_in(language)?,
            node_affinity: node_affinity::environment_in(language)?,
            device: device::environment_in(kubernetes)?,
            devices: devices::environment_in(language)?,
            language: language.clone(),
            kubernetes: kubernetes.clone(),
            policies: admission::Compiler::new(kubernetes),
        })
    }

    /// Returns the program of `expression` at `place`, for tools that also report its cost; `schema` types `self` at places
    /// that need one.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn compile(
        &self,
        place: Place,
        schema: Option<&Value>,
        expression: &str,
    ) -> Result<CompiledExpression, Refusal> {
        let result = match place {
            Place::Toleration => self.toleration.compile(expression),
            Place::NodeAffinity => self.node_affinity.compile(expression),
            Place::DeviceSelector => self.device.compile(expression),
            Place::DeviceConstraint => self.devices.compile(expression),
            Place::PrinterColumn => made_environment(place, &self.language, schema)?.compile(expression),
            Place::ValidationRule | Place::Base => {
                made_environment(place, &self.kubernetes, schema)?.compile(expression)
            }
        };
        result.map_err(Refusal::from)
    }
}

impl Expressions for Environments {
    fn check(&self, place: Place, schema: Option<&Value>, expression: &str) -> Result<u64, Refusal> {
        self.compile(place, schema, expression).map(|compiled| compiled.cost().max)
    }

    fn advise(&self, place: Place, expression: &str) -> Vec<String> {
        let Place::DeviceConstraint = place else { return Vec::new() };
        let Ok(compiled) = self.compile(place, None, expression) else { return Vec::new() };
        let prospect = Prospect::of(compiled.typed(), devices::VARIABLE);
        let mut advice = Vec::new();
        if prospect.depends_on_order {
            let order = "depends on the order of devices; it sees them in the order of driver, pool and name only";
            advice.push(order.to_owned());
        }
        if prospect.is_exhaustive() {
            let names: Vec<String> = prospect.opaque.iter().map(|name| format!("`{name}`")).collect();
            advice.push(format!(
                "cannot be judged before a set is whole, because of {}; every set may have to be tried",
                names.join(", ")
            ));
        }
        advice
    }

    fn compile_rules(&self, schema: &Value, is_resource: bool) -> Result<Vec<CompiledRule>, String> {
        crate::apiextensions::compile_rules(&self.kubernetes, schema, is_resource)
    }

    fn policies(&self) -> Option<&admission::Compiler> {
        Some(&self.policies)
    }
}

/// The environment of a place whose environment depends on a schema, or is rarely needed.
fn made_environment(place: Place, language: &Language, schema: Option<&Value>) -> Result<Environment, Refusal> {
    let internal = |error: String| Refusal::Internal(error);
    let typed = |schema: &Value| {
        let schema = Schema::from_value(schema).map_err(|error| internal(error.to_string()))?;
        TypedSchema::new(&schema, true, printer_column::TYPE_NAME)
            .ok_or_else(|| internal("the schema gives the object no type".to_owned()))
    };
    let schema = schema.map(typed).transpose()?;
    let cause = |error: InputError| error.source().map_or_else(|| error.to_string(), ToString::to_string);
    place.environment_in(language, schema.as_ref()).map_err(|error| internal(cause(error)))
}

impl From<CompileError> for Refusal {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::TooLong { max } => Refusal::TooLong { max },
            CompileError::TooExpensive { estimated, limit } => {
                Refusal::TooCostly { detail: error.to_string(), estimated, limit }
            }
            CompileError::Plan(_) => Refusal::Internal(error.to_string()),
            _ => Refusal::Invalid(error.to_string()),
        }
    }
}

/// Adds the errors of an expression.
pub(crate) fn validate(compiler: &dyn Expressions, place: Place, expression: &str, at: Path<'_>, errors: &mut Errors) {
    match compiler.check(place, None, expression) {
        Ok(_) => {}
        Err(Refusal::TooLong { max }) => errors.too_long(at, max),
        Err(Refusal::Invalid(detail)) => errors.invalid(at, expression, detail),
        Err(Refusal::TooCostly { detail, .. }) => errors.forbidden(at, detail),
        Err(Refusal::Internal(detail)) => errors.internal(at, detail),
    }
}
