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
use crate::status::{Failure, Result};

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

/// A value as Go prints it with `%v`.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let mut entries: Vec<(&str, &Value)> = fields.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            format!("map[{}]", entries.join(" "))
        }
        Value::Float(number) => api::go_text::format_float(number.get()),
        other => other.to_string(),
    }
}
