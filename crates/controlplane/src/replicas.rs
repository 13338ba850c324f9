//! One manifest for many objects: the annotation `sim.celplane.dev/replicas` on a Node or Pod, and the replicas of workloads.

use anyhow::{Context as _, Result};
use api::json::Value;

/// This many objects like this one, with numbers behind their names.
pub const ANNOTATION: &str = "sim.celplane.dev/replicas";
/// The name that earlier releases used.
pub const OLD_ANNOTATION: &str = "sim/replicas";

/// Number of objects that a Node or Pod represents; `None` for only itself.
pub fn of(object: &Value) -> Result<Option<usize>> {
    let value = |name| object.at(&["metadata", "annotations", name]).map(|value| (name, value));
    let Some((name, value)) = value(ANNOTATION).or_else(|| value(OLD_ANNOTATION)) else { return Ok(None) };
    let count = value.as_str().and_then(|text| text.parse().ok());
    count.map(Some).with_context(|| format!("the annotation {name} is not a number"))
}

/// The names of these objects.
pub fn names(name: &str, replicas: Option<usize>) -> Vec<String> {
    match replicas {
        None => vec![name.to_owned()],
        Some(count) => (0..count).map(|number| format!("{name}-{number}")).collect(),
    }
}
