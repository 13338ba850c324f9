//! Configuration that claims, classes and allocations hand to drivers.

use api::field::{Errors, Path};
use api::json::{Value, to_string};

use super::{Findings, validate_driver};

/// `opaque`: parameters for one driver. Parameters that are stored already may be longer.
pub(super) fn validate(config: &Value, is_stored: bool, at: &Path<'_>, findings: &mut Findings) {
    let Some(opaque) = config.optional("opaque") else {
        findings.written.required(at.child("opaque"), "");
        return;
    };
    let at = at.child("opaque");
    validate_driver(opaque.text("driver"), at.child("driver"), &mut findings.declared);
    validate_raw(opaque.field("parameters"), is_stored, at.child("parameters"), &mut findings.written);
}

/// Any object, of limited size.
pub(super) fn validate_raw(value: &Value, is_stored: bool, at: Path<'_>, errors: &mut Errors) {
    const MAX_BYTES: usize = 10 * 1024;
    match value {
        Value::Null => errors.required(at, ""),
        value if !is_stored && to_string(value).len() > MAX_BYTES => errors.too_long(at, MAX_BYTES),
        Value::Object(_) => {}
        _ => errors.invalid(at, "<value omitted>", "must be a valid JSON object"),
    }
}
