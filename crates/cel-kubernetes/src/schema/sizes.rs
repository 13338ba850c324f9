//! Types and sizes of a schema: limited by the size of one request, if the schema sets no bound.

use api::structural_schema::Schema;
use cel::types::Type;

use crate::declared::DeclaredType;

use super::{UNNAMED, identifier_of, with_resource_root};

/// The largest request that the API server takes.
pub(crate) const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;

const MIN_BOOL_SIZE: u64 = 4;
const MIN_NUMBER_SIZE: u64 = 1;
const MIN_STRING_SIZE: u64 = 2;
const DATE_SIZE: u64 = 12;
const MIN_DATETIME_SIZE: u64 = 21;
const MAX_DATETIME_SIZE: u64 = 32;
const MIN_DURATION_SIZE: u64 = 3;
const MAX_DURATION_SIZE: u64 = 32;

pub(super) fn declare(schema: &Schema, is_resource_root: bool) -> Option<DeclaredType> {
    if schema.x_int_or_string {
        let max_elements = match schema.max_length {
            Some(length) => non_negative(length).saturating_mul(4),
            None => REQUEST_BYTES_MAX.saturating_sub(2),
        };
        return Some(DeclaredType::scalar(Type::Dyn, max_elements, 1));
    }
    let rooted;
    let schema = if is_resource_root {
        rooted = with_resource_root(schema);
        &rooted
    } else {
        schema
    };
    match schema.type_name.as_str() {
        "array" => declare_list(schema),
        "object" => declare_object(schema),
        "string" => Some(declare_text(schema)),
        "boolean" => Some(DeclaredType::scalar(Type::Bool, 0, MIN_BOOL_SIZE)),
        "number" => Some(DeclaredType::scalar(Type::Double, 0, MIN_NUMBER_SIZE)),
        "integer" => Some(DeclaredType::scalar(Type::Int, 0, MIN_NUMBER_SIZE)),
        _ => None,
    }
}

fn declare_list(schema: &Schema) -> Option<DeclaredType> {
    let items = schema.items_schema()?;
    let element = declare(items, items.x_embedded_resource)?;
    let max_items = match schema.max_items {
        Some(count) => non_negative(count),
        None => per_request(element.min_serialized_size.saturating_add(1)),
    };
    Some(DeclaredType::list(element, max_items))
}

fn declare_object(schema: &Schema) -> Option<DeclaredType> {
    if let Some(values) = schema.additional_properties_schema() {
        let value = declare(values, values.x_embedded_resource)?;
        let max_properties = match schema.max_properties {
            Some(count) => non_negative(count),
            // Quotes, colon, comma and the shortest key come with each value.
            None => per_request(value.min_serialized_size.saturating_add(6)),
        };
        return Some(DeclaredType::map(DeclaredType::string(0), value, max_properties));
    }
    let mut min_serialized_size = 2_u64;
    let mut fields = Vec::with_capacity(schema.properties.len());
    for (name, property) in &schema.properties {
        let Some(declared) = declare(property, property.x_embedded_resource) else { continue };
        // A default is filled in by the server, so only required fields without one take room in a request.
        if property.default.is_none() && schema.requires(name) {
            let size = (name.len() as u64).saturating_add(declared.min_serialized_size).saturating_add(4);
            min_serialized_size = min_serialized_size.saturating_add(size);
        }
        fields.extend(identifier_of(name).map(|identifier| (identifier, declared)));
    }
    let object = DeclaredType::object(UNNAMED, fields);
    Some(DeclaredType { min_serialized_size, ..object })
}

fn declare_text(schema: &Schema) -> DeclaredType {
    match schema.format.as_str() {
        "byte" => {
            let max_elements = schema.max_length.map_or(REQUEST_BYTES_MAX.saturating_sub(2), non_negative);
            DeclaredType::scalar(Type::Bytes, max_elements, MIN_STRING_SIZE)
        }
        "duration" => DeclaredType::scalar(Type::Duration, MAX_DURATION_SIZE, MIN_DURATION_SIZE),
        "date" => DeclaredType::scalar(Type::Timestamp, DATE_SIZE, DATE_SIZE),
        "date-time" => DeclaredType::scalar(Type::Timestamp, MAX_DATETIME_SIZE, MIN_DATETIME_SIZE),
        _ => {
            let longest_choice =
                schema.enumeration.iter().map(|choice| choice.as_str().map_or(0, str::len) as u64).max();
            let max_elements = match (schema.max_length, longest_choice) {
                // A code point can take four bytes, and the reference counts bytes here.
                (Some(length), _) => non_negative(length).saturating_mul(4),
                (None, Some(longest)) => longest,
                (None, None) => REQUEST_BYTES_MAX.saturating_sub(2),
            };
            DeclaredType::scalar(Type::String, max_elements, MIN_STRING_SIZE)
        }
    }
}

fn non_negative(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// Number of values of a size that fit into one request, without brackets.
fn per_request(size: u64) -> u64 {
    REQUEST_BYTES_MAX.saturating_sub(2).checked_div(size).unwrap_or(0)
}
