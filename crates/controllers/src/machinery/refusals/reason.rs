//! Reasons of rejections, and the objects that they apply to.
//!
//! A reason is the server's message, without the parts that differ between attempts. Its mark consists of the
//! fields that the server named, and their values. Another object of the kind that matches the mark will be
//! rejected, too.

use api::json::Value;

/// A rejection without the parts that differ between attempts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reason(String);

impl Reason {
    /// The reason of a rejection: the code and the message without the name of the rejected object, which is
    /// random. Invalid objects are invalid everywhere; other rejections (quota, permissions) may differ by
    /// namespace.
    pub(super) fn new(namespace: &str, error: &client::Error) -> Self {
        let message = error.to_string();
        let mut parts = message.splitn(3, '"');
        let (before, after) = match (parts.next(), parts.next(), parts.next()) {
            (Some(before), Some(_), Some(after)) => (before, after),
            _ => (message.as_str(), ""),
        };
        let place = if error.code() == 422 { "" } else { namespace };
        Self(format!("{place} {} {before}{after}", error.code()))
    }
}

/// Fields and values that the server rejects in objects of a kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    plural: String,
    /// Paths, and the value that is wrong there; none where any is.
    fields: Vec<(String, Option<Value>)>,
}

impl Mark {
    /// Returns the mark of a rejected object, if the server named fields that it has.
    pub(super) fn new(plural: &str, object: &Value, error: &client::Error) -> Option<Self> {
        let client::Error::Refused(status) = error else { return None };
        let of_cause = |cause: &client::Cause| {
            let value = at(object, &cause.field)?;
            let any = cause.reason == "FieldValueForbidden";
            Some((cause.field.clone(), (!any).then(|| value.clone())))
        };
        let fields: Option<Vec<_>> = status.causes.iter().map(of_cause).collect();
        let fields = fields.filter(|fields| status.code == 422 && !fields.is_empty())?;
        Some(Self { plural: plural.to_owned(), fields })
    }

    /// Whether an object of a kind has the same wrong.
    pub(super) fn is_on(&self, plural: &str, object: &Value) -> bool {
        let bears = |(path, wrong): &(String, Option<Value>)| {
            at(object, path).is_some_and(|value| wrong.as_ref().is_none_or(|wrong| wrong == value))
        };
        self.plural == plural && self.fields.iter().all(bears)
    }
}

/// The value at a path as errors write it: `spec.containers[0].resources.limits[cpu]`.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let (key, after) = after.split_once(']')?;
            value = match (value.as_array(), key.parse::<usize>()) {
                (Some(items), Ok(index)) => items.get(index)?,
                (Some(_), Err(_)) => return None,
                (None, _) => value.get(key)?,
            };
            rest = after.strip_prefix('.').unwrap_or(after);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let (key, after) = rest.split_at_checked(end)?;
            value = value.get(key)?;
            rest = after.strip_prefix('.').unwrap_or(after);
        }
    }
    (!value.is_null()).then_some(value)
}

#[cfg(test)]
mod tests {
    use api::json;
    use client::{Cause, Status};

    use super::*;

    #[test]
    fn paths_lead_through_lists_and_maps() {
        let pod = json!({"spec": {"containers": [{"resources": {"limits": {"a.b/c": "1"}}}], "none": null}});
        let limit = at(&pod, "spec.containers[0].resources.limits[a.b/c]");
        assert_eq!(limit, Some(&json!("1")));
        for absent in
            ["spec.none", "spec.containers[1]", "spec.containers[x]", "spec.containers.name", "spec or x", "["]
        {
            assert_eq!(at(&pod, absent), None, "{absent}");
        }
    }

    #[test]
    fn a_mark_is_borne_by_those_with_the_same_wrong() {
        let refusal = |reason: &str, field: &str| {
            let causes = vec![Cause { reason: reason.to_owned(), field: field.to_owned() }];
            client::Error::Refused(Status { code: 422, causes, ..Status::default() })
        };
        let pod = |expression: &str| json!({"spec": {"tolerations": [{"expression": expression}]}});
        let path = "spec.tolerations[0].expression";
        let forbidden = Mark::new("pods", &pod("a"), &refusal("FieldValueForbidden", path)).unwrap();
        assert!(forbidden.is_on("pods", &pod("b")), "whatever it says");
        assert!(!forbidden.is_on("replicasets", &pod("b")));
        assert!(!forbidden.is_on("pods", &json!({"spec": {"tolerations": [{"key": "a"}]}})));
        let invalid = Mark::new("pods", &pod("a"), &refusal("FieldValueInvalid", path)).unwrap();
        assert!(invalid.is_on("pods", &pod("a")));
        assert!(!invalid.is_on("pods", &pod("b")));
        assert_eq!(Mark::new("pods", &pod("a"), &refusal("FieldValueRequired", "spec.nodeName")), None);
    }
}
