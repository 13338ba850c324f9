//! The mutations of admission policies, applied to objects.
//!
//! Follows `patch/smd.go` and `patch/json_patch.go` of Kubernetes' `apiserver/pkg/admission/plugin/policy/mutating`.

use api::json;
use api::json::Value;
use api::structural_schema::Schema;
use api::types;
use registry::admission::{GroupVersionKind, PatchError};
use registry::resources;

use crate::apply::shape::{Relation, Scalar, Shape};
use crate::apply::walk::{self, Duplicates};
use crate::patch;

fn refused(why: String) -> PatchError {
    PatchError::Policy(why)
}

/// Merges a configuration into an object of a built-in kind.
///
/// # Errors
/// The configuration does not fit the kind.
pub fn apply(kind: &GroupVersionKind, object: &Value, patch: Value) -> Result<Value, PatchError> {
    // Kubernetes looks the kind up in the OpenAPI document of its group, where parts such as scales are not.
    let is_served = resources::find_by_api_version(&kind.api_version(), &kind.kind).is_some();
    let of = types::by_kind(&kind.group, &kind.version, &kind.kind).filter(|_| is_served || kind.kind == "Binding");
    let Some(of) = of else {
        let why = "failed to convert patch object to typed object: no corresponding type for";
        return Err(refused(format!("error applying patch: {why} {kind}")));
    };
    let merged = merge(Shape::of_type(of), object, patch)?;
    types::decode(of, &merged).map(|decoded| decoded.value).map_err(refused)
}

/// Merges a configuration into a custom resource, whose schema may not be known.
///
/// # Errors
/// The configuration does not fit the schema.
pub fn apply_custom(schema: Option<&Schema>, object: &Value, patch: Value) -> Result<Value, PatchError> {
    merge(schema.map_or(Shape::Deduced, Shape::of_custom_resource), object, patch)
}

fn merge(shape: Shape<'_>, object: &Value, mut patch: Value) -> Result<Value, PatchError> {
    if let Some(fields) = patch.as_object_mut() {
        for field in ["apiVersion", "kind"] {
            if let Some(value) = object.get(field) {
                fields.insert(field, value.clone());
            }
        }
    }
    let unfit =
        |why: String| refused(format!("error applying patch: failed to convert patch object to typed object: {why}"));
    let mut nulls = Vec::new();
    find_nulls("", shape, &patch, &mut nulls);
    match nulls.as_slice() {
        [] => {}
        [one] => return Err(unfit(one.clone())),
        all => return Err(unfit(format!("errors:\n  {}", all.join("\n  ")))),
    }
    walk::validate(shape, &patch, Duplicates::Refused).map_err(|errors| unfit(errors.to_string()))?;
    let mut atomics = Vec::new();
    find_atomics("", shape, &patch, &mut atomics);
    if !atomics.is_empty() {
        let why = "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs:";
        return Err(refused(format!("error applying patch: {why} {}", atomics.join(", "))));
    }
    Ok(walk::merge(shape, object, &patch))
}

/// Kubernetes: the null of an expression is a number in disguise, which fits no type.
fn find_nulls(path: &str, shape: Shape<'_>, value: &Value, found: &mut Vec<String>) {
    let atom = shape.atom();
    match value {
        Value::Null => {
            let expected = match (atom.map, atom.list, atom.scalar) {
                (_, _, Some(Scalar::Untyped)) => return,
                (Some(_), ..) => "map",
                (_, Some(_), _) => "list",
                (_, _, Some(Scalar::Numeric)) => "numeric (int or float)",
                (_, _, Some(Scalar::Boolean)) => "boolean",
                _ => "string",
            };
            found.push(format!("{path}: expected {expected}, got &value.valueUnstructured{{Value:0}}"));
        }
        Value::Object(fields) => {
            let Some(map) = atom.map else { return };
            for (name, value) in fields.iter() {
                if let Some(shape) = map.field_or_element(name) {
                    find_nulls(&format!("{path}.{name}"), shape, value, found);
                }
            }
        }
        Value::Array(items) => {
            let Some(list) = atom.list else { return };
            for (index, item) in items.iter().enumerate() {
                find_nulls(&format!("{path}[{index}]"), list.element, item, found);
            }
        }
        _ => {}
    }
}

/// The paths of lists, maps and structs that are replaced as a whole.
fn find_atomics(path: &str, shape: Shape<'_>, value: &Value, found: &mut Vec<String>) {
    let atom = shape.atom();
    match value {
        Value::Object(fields) => {
            let Some(map) = atom.map else { return };
            if map.atomic {
                found.push(path.to_owned());
            }
            // Kubernetes looks only into fields that the schema names.
            for (name, value) in fields.iter() {
                if let Some(shape) = map.field(name) {
                    find_atomics(&format!("{path}.{name}"), shape, value, found);
                }
            }
        }
        Value::Array(items) => {
            let Some(list) = atom.list else { return };
            if matches!(list.relation, Relation::Atomic) {
                found.push(path.to_owned());
            }
            for (index, item) in items.iter().enumerate() {
                find_atomics(&format!("{path}[{index}]"), list.element, item, found);
            }
        }
        _ => {}
    }
}

/// Kubernetes: the null that an expression tests for is found nowhere, also where a field is missing.
fn spoil_null_test(operation: &mut Value) {
    if operation.str_at(&["op"]) == Some("test")
        && let Some(value) = operation.get_mut("value").filter(|value| value.is_null())
    {
        *value = json!({"\u{0}": null});
    }
}

/// Applies a JSON patch; none if one of its tests fails.
///
/// # Errors
/// The patch does not apply, or its result is no object of the kind.
pub fn json_patch(
    kind: &GroupVersionKind,
    object: &Value,
    mut operations: Vec<Value>,
) -> Result<Option<Value>, PatchError> {
    operations.iter_mut().for_each(spoil_null_test);
    let patch = json::to_string(&Value::Array(operations));
    let patched = match patch::json_patch(object, patch.as_bytes()) {
        Ok(patched) => patched,
        Err(error) => {
            let why = error.to_string();
            // A patch whose test fails is not applied, and that is no error.
            return if why.ends_with(": test failed") { Ok(None) } else { Err(refused(format!("JSON Patch: {why}"))) };
        }
    };
    let Some(of) = types::by_kind(&kind.group, &kind.version, &kind.kind) else { return Ok(Some(patched)) };
    let decoded = types::decode(of, &patched).map_err(|why| PatchError::Final(500, why))?;
    if decoded.unknown_fields.is_empty() {
        return Ok(Some(decoded.value));
    }
    let unknown = decoded.unknown_fields.iter().map(|field| format!("unknown field {}", api::go_text::quote(field)));
    let unknown: Vec<String> = unknown.collect();
    Err(PatchError::Final(500, format!("strict decoding error: {}", unknown.join(", "))))
}
