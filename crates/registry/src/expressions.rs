//! How validation asks whether an expression can be used.
//!
//! The caller hands in whatever compiles: the shared compile cache in a server, the bare environments in a test. The
//! answers are complete sentences of an error; their texts are those of the environments.

use api::field::{Errors, Path};
use api::json::Value;

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
