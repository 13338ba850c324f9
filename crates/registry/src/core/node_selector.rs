//! Node selectors: of pods, volumes, and what resource slices and allocations have.
//!
//! Follows `ValidateNodeSelector` of core validation; `matchCELExpressions` follows KEP-5500, the semver operators
//! KEP-5721. Places that belong to dynamic resource allocation take neither.

use api::field::{Errors, Path};
use api::json::Value;
use api::names;
use api::semver::Version;

use crate::expressions::{self, Expressions, Place};
use crate::meta::{invalid, validate_label_name};

/// Validation rules of a place.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    /// Values that no label can have were there before.
    pub(crate) allow_bad_values: bool,
    /// The semver operators are open.
    pub(crate) allow_semver: bool,
    /// `matchCELExpressions` is open; without a compiler it is never.
    pub(crate) cel: Cel<'a>,
}

/// The rule of a place for expressions.
#[derive(Clone, Copy)]
pub(crate) enum Cel<'a> {
    /// The place never does.
    Never,
    /// The gate is off.
    GateOff,
    /// There are too many, which is reported as a separate error.
    Rejected,
    /// They are compiled.
    Compile(&'a dyn Expressions),
}

/// A selector, which needs a term.
pub(crate) fn validate(selector: &Value, rules: Rules<'_>, at: &Path<'_>, errors: &mut Errors) {
    let terms = at.child("nodeSelectorTerms");
    if selector.list("nodeSelectorTerms").is_empty() {
        errors.required(terms, "must have at least one node selector term");
    }
    for (index, term) in selector.list("nodeSelectorTerms").iter().enumerate() {
        validate_term(term, rules, &terms.index(index), errors);
    }
}

/// One term.
pub(crate) fn validate_term(term: &Value, rules: Rules<'_>, at: &Path<'_>, errors: &mut Errors) {
    let list = at.child("matchExpressions");
    for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
        validate_requirement(requirement, rules, &list.index(index), errors);
    }
    let list = at.child("matchFields");
    for (index, requirement) in term.list("matchFields").iter().enumerate() {
        validate_field_requirement(requirement, &list.index(index), errors);
    }
    let list = at.child("matchCELExpressions");
    for (index, expression) in term.texts("matchCELExpressions").enumerate() {
        let here = list.index(index);
        match rules.cel {
            Cel::Never => errors.forbidden(here, "CEL expressions are not supported here"),
            Cel::GateOff => errors
                .forbidden(here, "node affinity CEL expressions require feature gate TaintTolerationNodeAffinityCEL"),
            Cel::Rejected => {}
            Cel::Compile(compiler) => {
                expressions::validate(compiler, Place::NodeAffinity, expression, here, errors);
            }
        }
    }
}

fn validate_requirement(requirement: &Value, rules: Rules<'_>, at: &Path<'_>, errors: &mut Errors) {
    let values = requirement.list("values");
    let operator = requirement.text("operator");
    match operator {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.required(at.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(at.child("values"), detail);
            }
        }
        "Gt" | "Lt" => {
            if values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(at.child("values"), detail);
            }
        }
        "SemverEq" | "SemverGt" | "SemverLt" if rules.allow_semver => {
            if values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'SemverLt' or 'SemverGt' or 'SemverEq'";
                errors.required(at.child("values"), detail);
            }
            for value in requirement.texts("values") {
                if let Err(error) = Version::parse_tolerant(value) {
                    errors.invalid(at.child("values"), requirement.field("values").clone(), error.as_written(value));
                }
            }
        }
        _ => errors.invalid(at.child("operator"), operator, "not a valid selector operator"),
    }
    validate_label_name(requirement.text("key"), at.child("key"), errors);
    if !rules.allow_bad_values {
        let at = at.child("values");
        for (index, value) in requirement.texts("values").enumerate() {
            invalid(names::label_value(value), value, at.index(index), errors);
        }
    }
}

fn validate_field_requirement(requirement: &Value, at: &Path<'_>, errors: &mut Errors) {
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if requirement.list("values").len() != 1 {
                let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(at.child("values"), detail);
            }
        }
        other => errors.invalid(at.child("operator"), other, "not a valid selector operator"),
    }
    if requirement.text("key") == "metadata.name" {
        let at = at.child("values");
        for (index, value) in requirement.texts("values").enumerate() {
            invalid(names::dns1123_subdomain(value), value, at.index(index), errors);
        }
    } else {
        errors.invalid(at.child("key"), requirement.text("key"), "not a valid field selector key");
    }
}

/// Whether a requirement of a selector has values that no label can have.
pub(crate) fn has_bad_values(selector: &Value) -> bool {
    let terms = selector.list("nodeSelectorTerms").iter();
    let mut values = terms.flat_map(|term| term.list("matchExpressions")).flat_map(|it| it.texts("values"));
    values.any(|value| !names::label_value(value).is_empty())
}

/// Whether a term has expressions.
pub(crate) fn term_uses_cel(term: &Value) -> bool {
    !term.list("matchCELExpressions").is_empty()
}

/// Whether a term compares versions.
pub(crate) fn term_uses_semver(term: &Value) -> bool {
    term.list("matchExpressions").iter().any(|it| it.text("operator").starts_with("Semver"))
}
