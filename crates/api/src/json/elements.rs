//! Bound on the number of objects in the lists of a document.
//!
//! An empty object has two or three bytes in a request, and a thousand in memory once its type's fields, defaults and
//! errors are added: the length of a body alone does not bound the memory that it takes.

use super::Value;

/// Maximum number of objects that all lists of a document hold together.
pub const ELEMENTS_MAX: usize = 65_536;

/// The error of a document with more.
pub const TOO_MANY_ELEMENTS: &str = "the lists of the object hold more than 65536 objects";

/// Whether the lists of a document of this many bytes hold more than [`ELEMENTS_MAX`] objects.
#[must_use]
pub fn has_too_many_elements(value: &Value, bytes: usize) -> bool {
    // The shortest one, `{}`, has two bytes, so that short documents need not be searched.
    bytes > ELEMENTS_MAX.saturating_mul(2) && count(value, ELEMENTS_MAX).is_none()
}

/// Returns the rest of `left` after the objects in the lists of a value.
fn count(value: &Value, left: usize) -> Option<usize> {
    match value {
        Value::Array(items) => items.iter().try_fold(left, |left, item| match item {
            Value::Object(_) => count(item, left.checked_sub(1)?),
            _ => count(item, left),
        }),
        Value::Object(fields) => fields.iter().try_fold(left, |left, (_, value)| count(value, left)),
        _ => Some(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_in_lists_are_counted() {
        let text = |count: usize| format!("{{\"a\":{{\"b\":[[{}{{}}]]}}}}", "{},".repeat(count - 1));
        let too_many = |text: String| has_too_many_elements(&crate::json::parse(text.as_bytes()).unwrap(), text.len());
        assert!(!too_many(text(ELEMENTS_MAX)));
        assert!(too_many(text(ELEMENTS_MAX + 1)));
        assert!(!too_many(format!("[{}1]", "1,".repeat(200_000))));
        assert!(TOO_MANY_ELEMENTS.contains(&ELEMENTS_MAX.to_string()));
    }
}
