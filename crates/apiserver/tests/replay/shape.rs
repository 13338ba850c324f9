//! Summaries of documents that were too long for the recording: names, counts, and samples without
//! descriptions.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::player::{NEXT, difference};

/// All summaries that the real document does not agree with.
pub(super) fn compare(shape: &Map<String, Value>, real: &Value) -> Option<String> {
    let differences = shape.iter().filter_map(|(key, wanted)| {
        let found = summary(key, wanted, real)?;
        names_differ(key, wanted, &found).or_else(|| difference(&sorted(wanted), &sorted(&found), key))
    });
    let differences: Vec<String> = differences.collect();
    (!differences.is_empty()).then(|| differences.join(NEXT))
}

/// Describes surplus and missing names in a list.
fn names_differ(key: &str, wanted: &Value, found: &Value) -> Option<String> {
    let set = |value: &Value| value.as_array().map(|items| items.iter().map(Value::to_string).collect::<BTreeSet<_>>());
    let (wanted, found) = (set(wanted)?, set(found)?);
    let (more, fewer): (Vec<_>, Vec<_>) = (found.difference(&wanted).collect(), wanted.difference(&found).collect());
    (wanted != found).then(|| format!("{key} has also {more:?} and lacks {fewer:?}"))
}

/// Returns the summary of the real document; `None` for documents of another form.
fn summary(key: &str, wanted: &Value, real: &Value) -> Option<Value> {
    let (schemas, place) = match real.pointer("/components/schemas") {
        Some(schemas) => (schemas, "/components/schemas"),
        None => (&real["definitions"], "/definitions"),
    };
    Some(match (key, wanted) {
        ("paths", Value::Array(_)) => names(&real["paths"]),
        ("schemas", _) => names(schemas),
        ("top_level_keys", _) => names(real),
        ("items", Value::String(_)) => format!("{} items", real["items"].as_array().map_or(0, Vec::len)).into(),
        ("n_paths", _) => real["paths"].as_object().map_or(0, Map::len).into(),
        ("n_definitions", _) => schemas.as_object().map_or(0, Map::len).into(),
        ("securitySchemes", _) => real["components"]["securitySchemes"].clone(),
        ("schemas_with_gvk" | "definitions_with_gvk", _) => {
            let gvk = "x-kubernetes-group-version-kind";
            let with = schemas.as_object()?.iter().filter(|(_, schema)| schema.get(gvk).is_some());
            with.map(|(name, schema)| (name.clone(), schema[gvk].clone())).collect::<Map<_, _>>().into()
        }
        ("sample_definitions_descriptions_removed" | "schemas_descriptions_removed", _) => {
            samples(wanted, real.pointer(place)?)
        }
        ("sample_paths_descriptions_removed", _) => samples(wanted, &real["paths"]),
        ("widget", _) => schemas["com.example.v1.Widget"].clone(),
        ("metric_family_count" | "first_line", _) => return None,
        _ => real[key].clone(),
    })
}

fn names(object: &Value) -> Value {
    object.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>()).unwrap_or_default().into()
}

/// The parts that the recording has a sample of, without their descriptions.
fn samples(wanted: &Value, all: &Value) -> Value {
    let names = wanted.as_object().into_iter().flat_map(Map::keys);
    let mut samples: Value = names.map(|name| (name.clone(), all[name].clone())).collect::<Map<_, _>>().into();
    remove_descriptions(&mut samples);
    samples
}

fn remove_descriptions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, value| key != "description" || !value.is_string());
            fields.values_mut().for_each(remove_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_descriptions),
        _ => {}
    }
}

/// Lists of names in one order.
fn sorted(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(items) = value.as_array_mut() {
        items.sort_by_key(Value::to_string);
    }
    value
}
