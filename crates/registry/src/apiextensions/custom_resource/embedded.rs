//! Objects inside objects: their type and metadata are those of any Kubernetes object.
//!
//! Follows `apiextensions-apiserver/pkg/apiserver/schema/objectmeta`.

use api::field::{BadValue, Error, ErrorType, Errors, Path};
use api::json::{Value, to_string};
use api::names;
use api::structural_schema::Schema;
use api::types::{self, Type};

use crate::meta;

fn metadata_type() -> Option<&'static Type> {
    types::by_kind("", "v1", "Pod")?.field("metadata")?.kind.struct_type()
}

/// Decodes metadata; returns it in normal form, with the paths of unknown fields.
///
/// # Errors
/// Go's text for the first part that does not fit.
pub(super) fn decode_metadata(metadata: &Value) -> Result<(Value, Vec<String>), String> {
    let Some(of) = metadata_type() else { return Ok((metadata.clone(), Vec::new())) };
    let decoded = types::decode(of, metadata)?;
    Ok((decoded.value, decoded.unknown_fields))
}

/// Brings metadata of embedded objects into normal form; gives back the paths of fields that were dropped.
///
/// # Errors
/// The first part that does not fit.
pub(super) fn coerce(
    value: &mut Value,
    schema: &Schema,
    at: &Path<'_>,
    dropped: &mut Vec<String>,
) -> Result<(), Error> {
    match value {
        Value::Object(_) => {
            if schema.x_embedded_resource {
                coerce_resource(value, at, dropped)?;
            }
            let Some(fields) = value.as_object_mut() else { return Ok(()) };
            for (name, field) in fields.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    coerce(field, property, &at.child(name), dropped)?;
                } else if let Some(other) = schema.additional_properties_schema() {
                    coerce(field, other, &at.key(name), dropped)?;
                }
            }
            Ok(())
        }
        Value::Array(items) => {
            let Some(inner) = schema.items_schema() else { return Ok(()) };
            items.iter_mut().enumerate().try_for_each(|(index, item)| coerce(item, inner, &at.index(index), dropped))
        }
        _ => Ok(()),
    }
}

fn coerce_resource(value: &mut Value, at: &Path<'_>, dropped: &mut Vec<String>) -> Result<(), Error> {
    for name in ["apiVersion", "kind"] {
        if let Some(found) = value.get(name)
            && found.as_str().is_none()
        {
            return Err(Error::new(ErrorType::Invalid, &at.child(name), found.clone(), "must be a string"));
        }
    }
    let Some(metadata) = value.get("metadata") else { return Ok(()) };
    let (normal, unknown) = decode_metadata(metadata).map_err(|message| {
        let mut shown = metadata.clone();
        shown.sort_keys();
        let shown = BadValue::Rendered(to_string(&shown));
        Error::new(ErrorType::Invalid, &at.child("metadata"), shown, message)
    })?;
    dropped.extend(unknown.into_iter().map(|path| format!("{}.{path}", at.child("metadata"))));
    value.set("metadata", normal);
    Ok(())
}

/// Adds the errors in the type and metadata of embedded objects.
pub(super) fn validate(value: &Value, schema: &Schema, at: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Object(fields) => {
            if schema.x_embedded_resource {
                validate_resource(value, at, errors);
            }
            for (name, field) in fields.iter() {
                if let Some(property) = schema.properties.get(name) {
                    validate(field, property, &at.child(name), errors);
                } else if let Some(other) = schema.additional_properties_schema() {
                    validate(field, other, &at.key(name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items_schema() else { return };
            for (index, item) in items.iter().enumerate() {
                validate(item, inner, &at.index(index), errors);
            }
        }
        _ => {}
    }
}

fn validate_resource(value: &Value, at: &Path<'_>, errors: &mut Errors) {
    for name in ["apiVersion", "kind"] {
        if value.get(name).is_none() {
            errors.required(at.child(name), "");
        }
    }
    for name in ["apiVersion", "kind"] {
        let here = at.child(name);
        match value.get(name) {
            None => {}
            Some(Value::String(text)) if text.is_empty() => errors.invalid(here, "", "must not be empty"),
            Some(Value::String(text)) if name == "kind" => {
                let complaints = names::dns1035_label(&text.to_lowercase());
                if !complaints.is_empty() {
                    let detail = format!("may have mixed case, but should otherwise match: {}", complaints.join(","));
                    errors.invalid(here, text.as_str(), detail);
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                errors.invalid(here, text.as_str(), format!("unexpected GroupVersion string: {text}"));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.invalid(here, other.clone(), "must be a string"),
        }
    }
    let Some(metadata) = value.get("metadata") else { return };
    let here = at.child("metadata");
    match decode_metadata(metadata) {
        Err(message) => errors.invalid(here, metadata.clone(), message),
        Ok((mut normal, _)) => {
            if normal.text("name").is_empty() {
                // An embedded object need not have a name.
                normal.set("name", "fakename");
            }
            let is_namespaced = !normal.text("namespace").is_empty();
            meta::validate_common(&normal, is_namespaced, names::path_segment, &here, errors);
        }
    }
}
