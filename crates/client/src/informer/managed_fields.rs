//! Watch events without the managed fields of their objects.
//!
//! Managed fields are about half of the text of a pod, and no component reads them: they are cut out before the event is parsed.

use api::json::value_at;

/// Path of the managed fields in a watch event.
const PATH: &[&str] = &["object", "metadata", "managedFields"];
/// The field up to its value, behind another field.
const FIELD: &[u8] = b",\"managedFields\":";

/// The event without managed fields. `None` if it has none, or not in the form in which API servers write them; then the
/// event is parsed as it is.
pub(super) fn cut(line: &[u8]) -> Option<Vec<u8>> {
    let value = value_at(line, PATH)?;
    // The value is a part of the line, so that the distance of their addresses is its offset.
    let at = value.as_ptr().addr().checked_sub(line.as_ptr().addr())?;
    let (before, rest) = (line.get(..at)?.strip_suffix(FIELD)?, line.get(at.checked_add(value.len())?..)?);
    let mut short = Vec::with_capacity(before.len().saturating_add(rest.len()));
    short.extend_from_slice(before);
    short.extend_from_slice(rest);
    Some(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&str>) {
        assert_eq!(cut(line.as_bytes()).as_deref().map(String::from_utf8_lossy).as_deref(), expected);
    }

    #[test]
    fn managed_fields_of_the_object_are_cut() {
        check(
            r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","managedFields":[{"manager":"}]","x":{}}]},"spec":{}}}"#,
            Some(r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a"},"spec":{}}}"#),
        );
        check(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","managedFields":[],"uid":"u"}}}"#,
            Some(r#"{"type":"ADDED","object":{"metadata":{"name":"a","uid":"u"}}}"#),
        );
    }

    #[test]
    fn other_fields_of_that_name_stay() {
        check(r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"data":{"k":"v","managedFields":"x"}}}"#, None);
        check(r#"{"type":"ADDED","object":{"metadata":{"name":"a","labels":{"k":"v","managedFields":"x"}}}}"#, None);
    }

    #[test]
    fn events_in_another_form_are_left_alone() {
        check(r#"{"type": "ADDED", "object": {"metadata": {"name": "a", "managedFields": []}}}"#, None);
        check(r#"{"type":"ADDED","object":{"metadata":{"managedFields":[],"name":"a"}}}"#, None);
        check(r#"{"type":"ERROR","object":{"message":"gone"}}"#, None);
        check("", None);
        check("[1,2", None);
    }
}
