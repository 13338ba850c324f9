//! How validation asks whether an expression can be used.
//!
//! The caller hands in whatever compiles: the shared compile cache in a server, the bare environments in a test. The
//! answers are complete sentences of an error; their texts are those of the environments.

use api::field::{Errors, Path};
use api::json::Value;
use api::structural_schema::Schema;
use cel::env::EnvError;
use cel_kubernetes::compile::{CompileError, Compiled, Environment};
use cel_kubernetes::environments::{
    Language, device, devices, match_condition, node_affinity, printer_column, toleration,
};
use cel_kubernetes::prospect::Prospect;
use cel_kubernetes::schema::TypedSchema;

pub use cel_kubernetes::environments::Languages;

pub use crate::apiextensions::CompiledRule;

/// The places that take an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place<'a> {
    /// `tolerations[].expression`.
    Toleration,
    /// `nodeSelectorTerms[].matchCELExpressions[]`.
    NodeAffinity,
    /// `selectors[].cel.expression` of a device request or class.
    DeviceSelector,
    /// `constraints[].cel.expression` of a claim.
    DeviceConstraint,
    /// `additionalPrinterColumns[].expression` of a CRD, typed by the schema.
    PrinterColumn(&'a Value),
    /// `matchConditions[].expression` of an admission policy or a webhook.
    MatchCondition {
        /// Whether the policy has parameters.
        has_params: bool,
    },
}

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// More bytes than allowed.
    TooLong {
        /// The limit.
        max: usize,
    },
    /// It does not compile, or has the wrong type.
    Invalid(String),
    /// Its estimated cost is too high; the text says so.
    TooCostly(String),
    /// The compiler failed.
    Internal(String),
}

/// Compiles expressions.
pub trait Expressions: Sync {
    /// Whether `expression` can be used at `place`.
    ///
    /// # Errors
    /// Why it cannot.
    fn check(&self, place: Place<'_>, expression: &str) -> Result<(), Refusal>;

    /// What users should know about an expression that can be used at `place`.
    fn advise(&self, place: Place<'_>, expression: &str) -> Vec<String>;

    /// The rules of a schema, compiled; the root of a resource has its metadata.
    ///
    /// # Errors
    /// The schema gives its values no type.
    fn compile_rules(&self, schema: &Value, is_resource: bool) -> Result<Vec<CompiledRule>, String>;
}

/// The environments of all places, without a cache.
#[derive(Debug)]
pub struct Environments {
    toleration: Environment,
    node_affinity: Environment,
    device: Environment,
    devices: Environment,
    /// What columns are written in.
    language: Language,
    /// What rules are written in.
    kubernetes: Language,
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
        })
    }

    /// The program of `expression` at `place`, for tools that also tell its cost.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn compile(&self, place: Place<'_>, expression: &str) -> Result<Compiled, Refusal> {
        let result = match place {
            Place::Toleration => self.toleration.compile(expression),
            Place::NodeAffinity => self.node_affinity.compile(expression),
            Place::DeviceSelector => self.device.compile(expression),
            Place::DeviceConstraint => self.devices.compile(expression),
            Place::PrinterColumn(schema) => column_environment(&self.language, schema)?.compile(expression),
            Place::MatchCondition { has_params } => match_condition::environment_in(&self.kubernetes, has_params)
                .map_err(|error| Refusal::Internal(error.to_string()))?
                .compile(expression),
        };
        result.map_err(Refusal::from)
    }
}

impl Expressions for Environments {
    fn check(&self, place: Place<'_>, expression: &str) -> Result<(), Refusal> {
        self.compile(place, expression).map(|_| ())
    }

    fn advise(&self, place: Place<'_>, expression: &str) -> Vec<String> {
        let Place::DeviceConstraint = place else { return Vec::new() };
        let Ok(compiled) = self.compile(place, expression) else { return Vec::new() };
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
}

fn column_environment(language: &Language, schema: &Value) -> Result<Environment, Refusal> {
    let internal = |error: String| Refusal::Internal(error);
    let schema = Schema::from_value(schema).map_err(|error| internal(error.to_string()))?;
    let typed = TypedSchema::new(&schema, true, printer_column::TYPE_NAME)
        .ok_or_else(|| internal("the schema gives the object no type".to_owned()))?;
    printer_column::environment_in(language, &typed).map_err(|error| internal(error.to_string()))
}

impl From<CompileError> for Refusal {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::TooLong { max } => Refusal::TooLong { max },
            CompileError::TooExpensive { .. } => Refusal::TooCostly(error.to_string()),
            CompileError::Plan(_) => Refusal::Internal(error.to_string()),
            _ => Refusal::Invalid(error.to_string()),
        }
    }
}

/// Adds what is wrong with an expression.
pub(crate) fn validate(
    compiler: &dyn Expressions,
    place: Place<'_>,
    expression: &str,
    at: Path<'_>,
    errors: &mut Errors,
) {
    match compiler.check(place, expression) {
        Ok(()) => {}
        Err(Refusal::TooLong { max }) => errors.too_long(at, max),
        Err(Refusal::Invalid(detail)) => errors.invalid(at, expression, detail),
        Err(Refusal::TooCostly(detail)) => errors.forbidden(at, detail),
        Err(Refusal::Internal(detail)) => errors.internal(at, detail),
    }
}
