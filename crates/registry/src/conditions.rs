//! Conditions of `meta/v1`, which several kinds have in their status.
//!
//! Follows `ValidateConditions` of `apimachinery/pkg/apis/meta/v1/validation`.

use api::field::{Errors, Path};
use api::json::Value;

use crate::meta::validate_label_name;
use crate::seen::SeenKeys;

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

/// Adds what is wrong with a list of conditions.
pub(crate) fn validate(conditions: &[Value], at: &Path<'_>, errors: &mut Errors) {
    let mut seen = SeenKeys::default();
    for (index, condition) in conditions.iter().enumerate() {
        let here = at.index(index);
        let kind = condition.text("type");
        if !seen.insert(kind) {
            errors.duplicate(here, kind);
        }
        validate_one(condition, &here, errors);
    }
}

fn validate_one(condition: &Value, at: &Path<'_>, errors: &mut Errors) {
    match condition.text("type") {
        "" => errors.required(at.child("type"), "is required"),
        kind => validate_label_name(kind, at.child("type"), errors),
    }
    match condition.text("status") {
        "" => errors.required(at.child("status"), ""),
        "True" | "False" | "Unknown" => {}
        other => errors.not_supported(at.child("status"), other, &["False", "True", "Unknown"]),
    }
    let generation = condition.int("observedGeneration");
    if generation < 0 {
        errors.invalid(at.child("observedGeneration"), generation, "must be greater than or equal to zero");
    }
    if !condition.has("lastTransitionTime") {
        errors.required(at.child("lastTransitionTime"), "");
    }
    validate_reason(condition.text("reason"), MAX_REASON, at.child("reason"), errors);
    if condition.text("message").len() > MAX_MESSAGE {
        errors.too_long(at.child("message"), MAX_MESSAGE);
    }
}

/// Validates the reason of a condition, which is machine-readable.
pub(crate) fn validate_reason(reason: &str, max_bytes: usize, at: Path<'_>, errors: &mut Errors) {
    if reason.is_empty() {
        errors.required(at, "");
    } else if !is_reason(reason) {
        errors.invalid(at, reason, "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')");
    }
    if reason.len() > max_bytes {
        errors.too_long(at, max_bytes);
    }
}

fn is_reason(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':');
    let is_last = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match text.as_bytes() {
        [] => false,
        [first] => first.is_ascii_alphabetic(),
        [first, inner @ .., last] => {
            first.is_ascii_alphabetic() && inner.iter().all(|byte| is_inner(*byte)) && is_last(*last)
        }
    }
}
