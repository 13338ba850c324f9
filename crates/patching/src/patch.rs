//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! They work on documents; the caller checks whether the result fits its type. Errors have the texts and codes
//! of the libraries that Kubernetes uses.

mod json_patch;
mod merge;
mod strategic;

use api::json::Value;

pub use self::json_patch::apply as json_patch;
pub use self::merge::apply as merge_patch;
pub use self::strategic::apply as strategic_merge_patch;

/// The result of applying a patch.
pub type Result<T> = std::result::Result<T, Error>;

/// The reasons why a patch cannot be applied, each with the message that Kubernetes returns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The patch cannot be read.
    #[error("{0}")]
    Malformed(String),
    /// The patch has more operations than are allowed.
    #[error("{0}")]
    TooLarge(String),
    /// An operation of the patch does not apply to the document.
    #[error("{0}")]
    Inapplicable(String),
    /// The patch does not fit the type of the object.
    #[error("{0}")]
    Unfit(String),
}

impl Error {
    fn malformed(message: impl Into<String>) -> Self {
        Error::Malformed(message.into())
    }
}

/// The kinds of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A list of operations, RFC 6902.
    Json,
    /// A document that is laid over the object, RFC 7386.
    Merge,
    /// A merge patch with lists merged by key.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// The kind that a content type names; none for another.
    #[must_use]
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// Sorts the keys of the objects that a patch reached: the libraries that Kubernetes uses parse a document only
/// as far as needed, and write the rest unchanged.
pub fn sort_touched(kind: PatchType, value: &mut Value, patch: &[u8]) {
    let patch = api::json::parse(patch).unwrap_or_default();
    if kind != PatchType::Json {
        sort_along(value, &patch);
        return;
    }
    sort_level(value);
    for operation in patch.as_array().unwrap_or_default() {
        let path = operation.text("path");
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
    fn only_patched_lists_are_sorted() {
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
