//! Size limits of values, so that a short expression cannot fill the memory or run endlessly.
//!
//! Costs are the reference's, and it has several calls cheap whose results grow with every call: `format`, `replace`, the
//! sum of two lists. The reference ends when the memory ends; here such a call fails, and nothing absorbs that.

use super::{Bytes, ErrorKind, EvalError, List, Str, Value};

/// Maximum length of a text or octets that a call produces.
pub(crate) const TEXT_BYTES_MAX: usize = 16 << 20;

/// Maximum length of a list that a call produces.
pub(crate) const ELEMENTS_MAX: usize = 1 << 20;

/// Maximum number of bytes that all calls of one evaluation produce together, and read at a fixed price.
pub(crate) const RESULT_BYTES_MAX: u64 = 64 << 20;

/// Shorter texts are read for a fixed price without being counted.
const READ_BYTES_MIN: usize = 1 << 10;

/// About what one element of a list takes.
const ELEMENT_BYTES: u64 = 32;

/// Maximum number of element pairs that all comparisons of one evaluation examine.
pub(crate) const COMPARISONS_MAX: u32 = 1 << 20;

/// Maximum length of a value in a message.
pub(crate) const SHOWN_BYTES_MAX: usize = 256 << 10;

/// The error of a call that would exceed a bound.
#[cold]
pub(crate) fn too_large() -> EvalError {
    EvalError::new(ErrorKind::TooLarge, "operation cancelled: value too large")
}

/// A text or octets of this many bytes can be made.
pub(crate) fn check_text(bytes: usize) -> Result<(), EvalError> {
    if bytes > TEXT_BYTES_MAX { Err(too_large()) } else { Ok(()) }
}

/// A list of this many elements can be made.
pub(crate) fn check_elements(elements: usize) -> Result<(), EvalError> {
    if elements > ELEMENTS_MAX { Err(too_large()) } else { Ok(()) }
}

/// About how many bytes of its own the result of a call takes; what it shares counts too.
#[inline]
pub(crate) fn result_bytes(value: &Value<'_>) -> u64 {
    match value {
        Value::String(Str::Shared(text)) => text.len() as u64,
        Value::Bytes(Bytes::Shared(octets)) => octets.len() as u64,
        Value::List(List::Shared(elements)) => (elements.len() as u64).saturating_mul(ELEMENT_BYTES),
        _ => 0,
    }
}

/// Bytes of text that a call with these operands may read: `size`, `charAt` and `isURL` cost 1 for a text of any length.
#[inline]
pub(crate) fn read_bytes(operands: &[Value<'_>]) -> u64 {
    let bytes = |operand: &Value<'_>| match operand {
        Value::String(text) => text.as_str().len(),
        Value::Bytes(octets) => octets.len(),
        _ => 0,
    };
    operands
        .iter()
        .map(bytes)
        .filter(|bytes| *bytes >= READ_BYTES_MIN)
        .fold(0, |sum, bytes| sum.saturating_add(bytes as u64))
}
