//! One manifest for many objects: the annotation `sim/replicas` on a Node or Pod, and the replicas of workloads.

use anyhow::{Context as _, Result};
use api::json::Value;

/// This many objects like this one, with numbers behind their names.
pub(crate) const ANNOTATION: &str = "sim/replicas";

/// How many objects a Node or Pod stands for; nothing where it is only itself.
pub(crate) fn of(object: &Value) -> Result<Option<usize>> {
    let Some(text) = object.at(&["metadata", "annotations", ANNOTATION]) else { return Ok(None) };
    let count = text.as_str().and_then(|text| text.parse().ok());
    count.map(Some).with_context(|| format!("the annotation {ANNOTATION} is not a number"))
}

/// The names of these objects.
pub(crate) fn names(name: &str, replicas: Option<usize>) -> Vec<String> {
    match replicas {
        None => vec![name.to_owned()],
        Some(count) => (0..count).map(|number| format!("{name}-{number}")).collect(),
    }
}
