//! Printer columns: a JSON path, or an expression where its gate is on.

use api::features::Gate;
use api::field::{Errors, Path};
use api::json::Value;

use crate::expressions::{Place, Refusal};
use crate::render;
use crate::strategy::Context;

const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// The columns with an expression that a definition may have: all with the gate on, else those that it has already.
pub(super) struct AllowedColumns<'a> {
    is_open: bool,
    /// Names and expressions of the columns that the stored definition has.
    known: Vec<(&'a str, &'a str)>,
}

impl<'a> AllowedColumns<'a> {
    /// From the gate and a stored, hoisted spec.
    pub(super) fn new(is_open: bool, old: Option<&'a Value>) -> Self {
        let of_spec = |spec: &'a Value| {
            let of_versions = spec.list("versions").iter().flat_map(|it| it.list("additionalPrinterColumns"));
            spec.list("additionalPrinterColumns").iter().chain(of_versions)
        };
        let known = old.into_iter().flat_map(of_spec).map(|it| (it.text("name"), it.text("expression")));
        Self { is_open, known: known.filter(|(_, expression)| !expression.is_empty()).collect() }
    }

    /// Whether columns with expressions are possible at all.
    fn any(&self) -> bool {
        self.is_open || !self.known.is_empty()
    }

    /// Whether a column is allowed: with the gate off, one that is stored and unchanged.
    fn permits(&self, column: &Value) -> bool {
        self.is_open || self.known.contains(&(column.text("name"), column.text("expression")))
    }
}

/// The columns of a version, or of all; expressions are typed by each of the schemas.
pub(super) fn validate(
    columns: &[Value],
    schemas: &[&Value],
    allowed: &AllowedColumns<'_>,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    for (index, column) in columns.iter().enumerate() {
        let here = at.index(index);
        if column.text("name").is_empty() {
            errors.required(here.child("name"), "");
        }
        let kind = column.text("type");
        let types = format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            errors.required(here.child("type"), types);
        } else if !TYPES.contains(&kind) {
            errors.invalid(here.child("type"), kind, types);
        }
        let format = column.text("format");
        if !format.is_empty() && !FORMATS.contains(&format) {
            errors.invalid(here.child("format"), format, format!("must be one of {}", FORMATS.join(",")));
        }
        validate_source(column, schemas, allowed, context, &here, errors);
    }
}

fn validate_source(
    column: &Value,
    schemas: &[&Value],
    allowed: &AllowedColumns<'_>,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let (path, expression) = (column.text("jsonPath"), column.text("expression"));
    if expression.is_empty() {
        if path.is_empty() && allowed.any() {
            let detail = "either JSONPath or CEL expression must be specified";
            errors.required(at.child("JSONPath or expression"), detail);
        } else if path.is_empty() {
            errors.required(at.child("JSONPath"), "");
        } else if !path.starts_with('.') {
            errors.invalid(at.child("JSONPath"), path, "must be a simple json path starting with .");
        }
        return;
    }
    if !allowed.permits(column) {
        let detail = "CEL printer columns require feature gate CRDAdditionalPrinterColumnCEL";
        errors.forbidden(at.child("expression"), detail);
        return;
    }
    if !path.is_empty() {
        let package = "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1";
        let shown = render::internal(package, "CustomResourceColumnDefinition", column);
        errors.invalid(*at, shown, "only one of jsonPath or expression may be specified");
        return;
    }
    for schema in schemas {
        let checked = context.expressions.check(Place::PrinterColumn, Some(schema), expression);
        let Err(refusal) = checked else { continue };
        match refusal {
            Refusal::TooLong { max } => errors.too_long(at.child("expression"), max),
            Refusal::Invalid(detail) | Refusal::Internal(detail) => {
                errors.internal(*at, format!("CEL compilation failed for {expression} rules: {detail}"));
            }
            Refusal::TooCostly { detail, .. } => errors.forbidden(at.child("expression"), detail),
        }
        return;
    }
}

/// Columns that are added to those of a version.
pub(crate) fn validate_added(
    columns: &[Value],
    version: &Value,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let allowed = AllowedColumns::new(context.features.enabled(Gate::CRDAdditionalPrinterColumnCEL), None);
    let schemas: Vec<&Value> = version.field("schema").optional("openAPIV3Schema").into_iter().collect();
    validate(columns, &schemas, &allowed, context, at, errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_gate_off_only_unchanged_columns_are_allowed() {
        let column =
            |name: &str, expression: &str| api::json!({"name": name, "type": "string", "expression": expression});
        let old = api::json!({"versions": [{"additionalPrinterColumns": [(column("A", "self.spec.a"))]}]});
        let closed = AllowedColumns::new(false, Some(&old));
        assert!(closed.permits(&column("A", "self.spec.a")));
        assert!(!closed.permits(&column("A", "self.spec.b")), "changed");
        assert!(!closed.permits(&column("B", "self.spec.a")), "new");
        assert!(AllowedColumns::new(true, None).permits(&column("B", "self.spec.b")));
        assert!(!AllowedColumns::new(false, None).any());
    }
}
