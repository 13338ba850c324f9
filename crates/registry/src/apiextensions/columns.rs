//! Printer columns: a JSON path, or an expression where its gate is on.

use api::field::{Errors, Path};
use api::json::Value;

use crate::document::Read;
use crate::expressions::{Place, Refusal};
use crate::render;
use crate::strategy::Context;

const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const FORMATS: &[&str] = &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Whether a hoisted spec has a column with an expression.
pub(super) fn uses_expressions(spec: &Value) -> bool {
    let of_versions = spec.list("versions").iter().flat_map(|it| it.list("additionalPrinterColumns"));
    spec.list("additionalPrinterColumns").iter().chain(of_versions).any(|it| !it.text("expression").is_empty())
}

/// The columns of a version, or of all; expressions are typed by each of the schemas.
pub(super) fn validate(
    columns: &[Value],
    schemas: &[&Value],
    allow_expressions: bool,
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
        validate_source(column, schemas, allow_expressions, context, &here, errors);
    }
}

fn validate_source(
    column: &Value,
    schemas: &[&Value],
    allow_expressions: bool,
    context: &Context<'_>,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let (path, expression) = (column.text("jsonPath"), column.text("expression"));
    if expression.is_empty() {
        if path.is_empty() && allow_expressions {
            let detail = "either JSONPath or CEL expression must be specified";
            errors.required(at.child("JSONPath or expression"), detail);
        } else if path.is_empty() {
            errors.required(at.child("JSONPath"), "");
        } else if !path.starts_with('.') {
            errors.invalid(at.child("JSONPath"), path, "must be a simple json path starting with .");
        }
        return;
    }
    if !allow_expressions {
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
        let Err(refusal) = context.expressions.check(Place::PrinterColumn(schema), expression) else { continue };
        match refusal {
            Refusal::TooLong { max } => errors.too_long(at.child("expression"), max),
            Refusal::Invalid(detail) | Refusal::Internal(detail) => {
                errors.internal(*at, format!("CEL compilation failed for {expression} rules: {detail}"));
            }
            Refusal::TooCostly(detail) => errors.forbidden(at.child("expression"), detail),
        }
        return;
    }
}
