//! Lists and maps in schemas: merge strategy and identity of items.

use api::field::{BadValue, Errors, Path};
use api::json::Value;

use crate::seen::SeenKeys;

/// Validates the extensions of lists and maps.
pub(super) fn validate(schema: &Value, demands_atomic_sets: bool, at: &Path<'_>, errors: &mut Errors) {
    let kind = schema.text("type");
    let typed = |expected: &str, name: &str, errors: &mut Errors| {
        let detail = format!("must be {expected} if {name} is specified");
        if kind.is_empty() {
            errors.required(at.child("type"), detail);
        } else {
            errors.invalid(at.child("type"), kind, detail);
        }
    };
    if schema.optional_flag("x-kubernetes-preserve-unknown-fields") == Some(false) {
        let here = at.child("x-kubernetes-preserve-unknown-fields");
        errors.invalid(here, false, "must be true or undefined");
    }
    if let Some(map_type) = schema.optional_text("x-kubernetes-map-type") {
        if kind != "object" {
            typed("object", "x-kubernetes-map-type", errors);
        }
        if !matches!(map_type, "atomic" | "granular") {
            let here = at.child("x-kubernetes-map-type");
            errors.not_supported(here, map_type, &["atomic", "granular"]);
        }
    }
    let list_type = schema.optional_text("x-kubernetes-list-type");
    if list_type.is_some() && kind != "array" {
        typed("array", "x-kubernetes-list-type", errors);
    } else if demands_atomic_sets {
        let name = non_atomic_set_items(schema);
        if !name.is_empty() {
            let items = at.child("items");
            let shown = schema.field("items").field("x-kubernetes-list-type");
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            errors.invalid(items.child(name), shown.clone(), detail);
        }
    }
    if let Some(list_type) = list_type.filter(|it| !matches!(*it, "atomic" | "set" | "map")) {
        let here = at.child("x-kubernetes-list-type");
        errors.not_supported(here, list_type, &["atomic", "set", "map"]);
    }
    let keys: Vec<&str> = schema.texts("x-kubernetes-list-map-keys").collect();
    if !keys.is_empty() && list_type != Some("map") {
        let here = at.child("x-kubernetes-list-type");
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(here, detail),
            Some(other) => errors.invalid(here, other, detail),
        }
    }
    if list_type == Some("map") {
        validate_list_map(schema, &keys, at, errors);
    }
}

/// The field that makes items of a set non-atomic, if there is one.
pub(super) fn non_atomic_set_items(schema: &Value) -> &'static str {
    let items = schema.field("items");
    if schema.text("x-kubernetes-list-type") != "set" || items.as_object().is_none() {
        return "";
    }
    match items.text("type") {
        "array" if items.optional_text("x-kubernetes-list-type").is_some_and(|it| it != "atomic") => {
            "x-kubernetes-list-type"
        }
        "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => "",
    }
}

fn validate_list_map(schema: &Value, keys: &[&str], at: &Path<'_>, errors: &mut Errors) {
    let here = at.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.required(here, "must not be empty if x-kubernetes-list-type is map");
    }
    let items = schema.field("items");
    let items_at = at.child("items");
    match items {
        Value::Null => errors.required(items_at, "must have a schema if x-kubernetes-list-type is map"),
        Value::Array(_) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            errors.invalid(items_at, items.clone(), detail);
        }
        items if items.text("type") != "object" => {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            errors.invalid(items_at.child("type"), items.text("type"), detail);
        }
        items => {
            let properties = items_at.child("properties");
            let shown = || BadValue::Value(schema.field("x-kubernetes-list-map-keys").clone());
            let mut seen = SeenKeys::default();
            for key in keys {
                // Each error has a copy of the list.
                if errors.is_full() {
                    break;
                }
                match items.map("properties").get(key) {
                    None => errors.invalid(here, shown(), "entries must all be names of item properties"),
                    Some(property) if matches!(property.text("type"), "array" | "object") => {
                        let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                        errors.invalid(properties.key(key).child("type"), items.text("type"), detail);
                    }
                    Some(_) => {}
                }
                if !seen.insert(*key) {
                    errors.invalid(here, shown(), "must not contain duplicate entries");
                }
            }
        }
    }
}

/// Items of sets and maps are never null, and keys are always there.
pub(super) fn validate_map_keys(schema: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list_type = schema.text("x-kubernetes-list-type");
    let items = schema.field("items");
    if items.as_object().is_none() || !matches!(list_type, "set" | "map") {
        return;
    }
    let here = at.child("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(here.child("nullable"), detail);
    }
    if list_type != "map" {
        return;
    }
    let properties = here.child("properties");
    for key in schema.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.map("properties").get(key) else { continue };
        let here = properties.key(key);
        if !items.texts("required").any(|it| it == key) && !property.has("default") {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.required(here.child("default"), detail);
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.forbidden(here.child("nullable"), detail);
        }
    }
}
