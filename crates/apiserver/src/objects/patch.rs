//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! They work on documents; whether the result fits its type is checked by the caller. Errors have the words and codes of
//! the libraries that Kubernetes uses.

mod json_patch;
mod merge;
mod strategic;

use api::json::Value;
use http::HeaderMap;
use http::header::CONTENT_TYPE;

pub use self::json_patch::apply as json_patch;
pub use self::merge::apply as merge_patch;
pub use self::strategic::apply as strategic_merge_patch;
use crate::http::status::{Failure, Result};

/// The kinds of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A list of operations, RFC 6902.
    Json,
    /// A document that is laid over the object, RFC 7386.
    Merge,
    /// The same, with lists merged by key.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// The kind that the content type names.
    ///
    /// # Errors
    /// 415 for another.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self> {
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with_no_details()),
        }
    }
}

/// Sorts the keys of what a patch reached into: the libraries that Kubernetes uses read a document only as far as they
/// need to, and write the rest as it was.
pub(crate) fn sort_touched(kind: PatchType, value: &mut Value, patch: &[u8]) {
    let patch = api::json::parse(patch).unwrap_or_default();
    if kind != PatchType::Json {
        sort_along(value, &patch);
        return;
    }
    sort_level(value);
    for operation in patch.as_array().unwrap_or_default() {
        let path = operation.str_at(&["path"]).unwrap_or_default();
        let parents = path.rsplit_once('/').map_or("", |(parents, _)| parents);
        let mut here = &mut *value;
        for part in parents.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match here {
                Value::Array(items) => part.parse::<usize>().ok().and_then(|index| items.get_mut(index)),
                other => other.get_mut(&part),
            };
            let Some(next) = next else { break };
            here = next;
            sort_level(here);
        }
    }
}

fn sort_level(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.sort();
    }
}

fn sort_along(value: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return };
    sort_level(value);
    for (key, patch) in patch.iter() {
        if let Some(value) = value.get_mut(key) {
            sort_along(value, patch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_patch_reaches_is_sorted() {
        let check = |kind: PatchType, patch: &str, expected: &str| {
            let mut value = api::json::parse(br#"{"z":{"b":1,"a":2},"m":{"d":{"y":1,"x":2},"c":3}}"#).unwrap();
            sort_touched(kind, &mut value, patch.as_bytes());
            assert_eq!(api::json::to_string(&value), expected);
        };
        check(PatchType::Merge, "{}", r#"{"m":{"d":{"y":1,"x":2},"c":3},"z":{"b":1,"a":2}}"#);
        check(PatchType::Merge, r#"{"m":{"c":3}}"#, r#"{"m":{"c":3,"d":{"y":1,"x":2}},"z":{"b":1,"a":2}}"#);
        let operation = r#"[{"op":"add","path":"/m/d/x","value":2}]"#;
        check(PatchType::Json, operation, r#"{"m":{"c":3,"d":{"x":2,"y":1}},"z":{"b":1,"a":2}}"#);
    }
}
