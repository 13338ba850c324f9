//! The annotation in which client-side `kubectl apply` keeps the last applied configuration.
//!
//! Follows `lastapplied*.go` of apimachinery's `managedfields/internal`: it is kept up to date for objects that have
//! it, so that a user may go back to the client's side.

use api::json::{Object, Value};
use api::well_known::ANNOTATION_LAST_APPLIED;

use super::ApplyResult;
use api::metadata;

/// All annotations together may have this many bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

/// Returns the last applied configuration, if the object has one.
pub(super) fn read(object: &Value) -> Option<Value> {
    let text = object.str_at(&["metadata", "annotations", ANNOTATION_LAST_APPLIED])?;
    api::json::parse(text.as_bytes()).ok()
}

/// Writes `config` into the annotation of an object that has it.
pub(super) fn renew(applied: ApplyResult, live: &Value, config: &Value) -> ApplyResult {
    let object = applied.object.as_ref().unwrap_or(live);
    let Some(before) =
        object.str_at(&["metadata", "annotations", ANNOTATION_LAST_APPLIED]).filter(|text| !text.is_empty())
    else {
        return applied;
    };
    let text = encode(config);
    if text == before {
        return applied;
    }
    let mut object = object.clone();
    let annotations = metadata::make(&mut object).get_mut("annotations").and_then(Value::as_object_mut);
    if let Some(annotations) = annotations {
        annotations.insert(ANNOTATION_LAST_APPLIED, text);
        if size(annotations) > ANNOTATIONS_BYTES_MAX {
            annotations.remove(ANNOTATION_LAST_APPLIED);
        }
    }
    metadata::remove(&mut object, "managedFields");
    ApplyResult { object: Some(object), ..applied }
}

fn size(annotations: &Object) -> usize {
    let sizes = annotations.iter().map(|(key, value)| key.len().saturating_add(value.as_str().map_or(0, str::len)));
    sizes.fold(0, usize::saturating_add)
}

/// The configuration without the annotation itself, as Go writes it.
fn encode(config: &Value) -> String {
    let mut config = config.clone();
    let annotations = config.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION_LAST_APPLIED);
    }
    config.sort_keys();
    let mut text = api::json::to_string(&config);
    text.push('\n');
    text
}
